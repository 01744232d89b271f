"""Find records in an archive: by key, offset, time, header or what a value holds."""

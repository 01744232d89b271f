"""Find records in an archive: by key, offset, time, header or content of the value."""

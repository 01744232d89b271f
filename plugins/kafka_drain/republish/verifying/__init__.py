"""The target read back, and compared with the files record by record."""

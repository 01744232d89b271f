"""Data files of all formats, read without Spark: offsets, records, hashes."""

"""Data files in each format, read without Spark: offsets, records, hashes."""

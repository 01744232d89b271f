"""Reprocess: drain archived offsets again and replace the old files."""

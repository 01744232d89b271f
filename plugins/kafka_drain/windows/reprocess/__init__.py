"""Reprocess: archived offsets drained again, in the place of the old files."""

"""The layout of an archive, and what its documents say."""

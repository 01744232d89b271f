"""The layout of an archive, and the contents of its documents."""

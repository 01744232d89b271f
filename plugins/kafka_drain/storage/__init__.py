"""Storage: paths and URLs, atomic JSON files, and the single-writer lease."""

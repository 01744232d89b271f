"""Where bytes lie: paths and URLs, JSON files written whole, the lease of one writer."""

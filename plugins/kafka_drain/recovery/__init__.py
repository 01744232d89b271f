"""Restore what a cluster was, besides its records, to another cluster."""

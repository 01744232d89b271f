"""Restore a cluster's state besides its records to another cluster."""

"""Schemas of values: fetched from a registry, kept in the archive, passed to a job."""

"""Schemas of values: asked of a registry, kept in the archive, given to a job."""

"""User-facing configuration: pipelines and their options, checked before anything starts."""

"""What users may say: pipelines and their options, checked before anything starts."""

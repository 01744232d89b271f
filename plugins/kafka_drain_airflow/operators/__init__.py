"""The operators, each of which can be used on its own in custom DAGs."""

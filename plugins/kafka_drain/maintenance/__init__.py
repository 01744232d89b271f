"""Roll, compact, delete what is too old, remove leases that were left."""

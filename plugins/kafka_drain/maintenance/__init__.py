"""Roll, compact, delete files past their retention, remove leftover leases."""

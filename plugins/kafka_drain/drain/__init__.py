"""The caller's side of a drain: preflight, plan, job and result."""

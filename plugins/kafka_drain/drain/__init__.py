"""A drain from the caller's side: preflight, plan, job, result."""

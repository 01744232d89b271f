"""From the request to a plan, with checks for everything that may prevent the run."""

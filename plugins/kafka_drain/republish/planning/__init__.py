"""From what is asked for to a plan, and what may stand in its way."""

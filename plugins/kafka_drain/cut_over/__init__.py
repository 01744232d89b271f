"""Cut-over: clients move to another cluster step by step, and can go back until the last one."""

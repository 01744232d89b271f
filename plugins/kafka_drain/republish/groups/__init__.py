"""Committed offsets of consumer groups, translated to the target."""

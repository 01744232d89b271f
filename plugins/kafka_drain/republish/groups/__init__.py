"""Translate committed offsets of consumer groups to the target of a republish."""

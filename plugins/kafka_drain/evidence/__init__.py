"""Signed evidence: statements that can be verified offline, and a witness outside the archive."""

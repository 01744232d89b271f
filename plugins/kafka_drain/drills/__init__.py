"""Drills: a part of an archive is restored to scratch topics, verified, and removed again."""

"""Render HTML pages from plain values. Opens nothing."""

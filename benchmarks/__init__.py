"""Measurements of the marks that the documentation states. Not part of the product."""

"""Benchmarks for the performance figures in the documentation. Not part of the product."""

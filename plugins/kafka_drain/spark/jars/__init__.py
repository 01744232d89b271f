"""The jars that pip doesn't install: which ones, from where, and with which SHA-256."""

"""The jars that pip doesn't bring: which, from where, with which SHA-256."""

"""The journal: what was sealed, in the order of its sealing."""

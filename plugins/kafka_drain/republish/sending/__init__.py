"""How records are sent exactly once; the same in both engines."""

"""Send records exactly once; the protocol is the same in both engines."""

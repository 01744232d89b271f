"""What asset events publish about sealed segments, at least once."""

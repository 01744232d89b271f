"""What an asset's events publish of sealed segments, at least once."""

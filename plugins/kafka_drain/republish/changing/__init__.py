"""Leave records out and change them on their way: one pure function from a batch to a batch."""

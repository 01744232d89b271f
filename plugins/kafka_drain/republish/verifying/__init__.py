"""Read the target back, and compare it with the files record by record."""

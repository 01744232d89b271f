"""What writes windows: backfill, repair, roll, and the removal of what they replace."""

"""Write windows (backfill, repair, reprocess), roll generations, remove superseded files."""

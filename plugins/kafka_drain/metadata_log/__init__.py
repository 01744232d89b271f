"""What Spark's queries leave on disk, parsed without Spark; Spark calls these metadata logs."""

"""The files that Spark's queries leave on disk ("metadata logs"), parsed without Spark."""

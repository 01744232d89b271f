"""Starting Spark jobs: specs, spark-submit's command line, errors, Java."""

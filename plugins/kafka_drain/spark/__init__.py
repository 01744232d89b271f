"""Start Spark jobs: job specs, spark-submit's command line, errors, Java."""

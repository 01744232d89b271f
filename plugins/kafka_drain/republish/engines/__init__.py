"""Where shards are sent from: this machine's processes or Spark's executors."""

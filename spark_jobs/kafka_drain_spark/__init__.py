"""kafka-drain's Spark side. Knows pyspark and the core's plain modules, never Airflow."""

"""What we ask of a Kafka cluster, and how we connect to one."""

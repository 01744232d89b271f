"""Access to a Kafka cluster: connection settings and queries."""

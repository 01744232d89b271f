"""The demo: a real Kafka broker with real data on one machine."""

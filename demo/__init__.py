"""The demo: a real Kafka broker and real data on one machine."""

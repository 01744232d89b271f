"""A local broker: a real Apache Kafka for the demo, tests and benchmarks."""

from __future__ import annotations

from demo.broker.cluster import KafkaCluster

__all__ = ["KafkaCluster"]

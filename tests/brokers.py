"""How tests start a Kafka of their own."""

from __future__ import annotations

__all__ = ["SHORT_LIVED"]

#: Options of Java for a broker that lives for minutes: compiled once, quickly, and one thread that
#: collects garbage. Takes a fifth less of the processor than what Kafka runs with for months.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

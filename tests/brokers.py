"""How tests start a Kafka and a Spark of their own."""

from __future__ import annotations

__all__ = ["SHORT_LIVED"]

#: Options of Java for a broker, or a Spark, that lives for minutes: compiled once, quickly, and one
#: thread that collects garbage. A broker takes a fifth less of the processor than with what Kafka
#: runs with for months, a Spark a third less than with what large drains run with.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

"""How tests start a Kafka and a Spark of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.broker import KafkaCluster as LocalKafka
from demo.broker.processes import command_line

__all__ = ["SHORT_LIVED", "broker_with_quota"]

#: Options of Java for a broker, or a Spark, that lives for minutes: compiled once, quickly, and one
#: thread that collects garbage. A broker takes a fifth less of the processor than with what Kafka
#: runs with for months, a Spark a third less than with what large drains run with.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@contextmanager
def broker_with_quota(folder: Path, quota: str, *clients: str) -> Iterator[str]:
    """Yield the address of a broker with a quota for clients, by options of kafka-configs.sh."""
    # Later releases keep the tool that sets quotas in a jar that a broker doesn't need.
    with LocalKafka(folder / "kafka", java_options=SHORT_LIVED, version="4.1.0") as kafka:
        pid = kafka.pid(1)
        assert pid is not None
        words = command_line(pid).split("\0")
        java, jars = words[0], words[words.index("-cp") + 1]
        command = [java, "-cp", jars, "kafka.admin.ConfigCommand"]
        command += ["--bootstrap-server", kafka.bootstrap_servers, "--alter"]
        command += ["--entity-type", "clients", *clients, "--add-config", quota]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        yield kafka.bootstrap_servers

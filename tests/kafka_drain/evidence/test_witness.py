"""A witness that is a file, or a topic."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import ConfigError, DeliveryError, EvidenceError
from kafka_drain.evidence.witness import WitnessFile, WitnessTopic, open_witness
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.fake_cluster import FakeCluster, Log


def test_witness_file(tmp_path: Path) -> None:
    """Lines are appended, and read in order; no file is no line."""
    witness = WitnessFile(tmp_path / "witness.jsonl")

    assert witness.lines() == []
    assert witness.append(lambda lines: b"first %d\n" % len(lines))
    assert witness.append(lambda lines: b"second %d\n" % len(lines))
    assert not witness.append(lambda lines: None)
    assert witness.lines() == [b"first 0\n", b"second 1\n"]


def test_witness_file_half_line(tmp_path: Path) -> None:
    """Half a line that a killed run left stays, and isn't mixed with the next one."""
    path = tmp_path / "witness.jsonl"
    path.write_bytes(b"first\nhal")

    assert WitnessFile(path).append(lambda lines: b"third\n")
    assert WitnessFile(path).lines() == [b"first\n", b"hal\n", b"third\n"]


def test_witness_file_at_once(tmp_path: Path) -> None:
    """Of runs at the same moment, each sees the line of the one before."""
    witness = WitnessFile(tmp_path / "witness.jsonl")

    def append() -> None:
        for _ in range(20):
            witness.append(lambda lines: b"%d\n" % len(lines))

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert witness.lines() == [b"%d\n" % number for number in range(80)]


def test_witness_file_unusable(tmp_path: Path) -> None:
    """A witness that can't be read or written is an error that names it."""
    with pytest.raises(EvidenceError, match=r"none/w.jsonl can't be written.*its folder"):
        WitnessFile(tmp_path / "none" / "w.jsonl").append(lambda lines: b"x\n")
    with pytest.raises(EvidenceError, match="can't be read"):
        WitnessFile(tmp_path).lines()


def test_witness_topic_no_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of which Kafka says nothing, neither taken nor refused, isn't said to be written."""

    class Producer:
        def __init__(self, settings: dict[str, Any]) -> None: ...

        def produce(self, *_: Any, **more: Any) -> None: ...

        def flush(self, _: float) -> int:
            return 1

    monkeypatch.setattr("confluent_kafka.Producer", Producer)
    cluster = FakeCluster({TopicPartition("w", 0): Log()})
    witness = WitnessTopic(cluster, "w")  # type: ignore[arg-type]

    with pytest.raises(DeliveryError, match="line of witness kafka:w: no response"):
        witness.append(lambda lines: b"first\n")


def test_open_witness() -> None:
    """A witness is a file's absolute path or a topic; only a topic needs a cluster."""

    def no_cluster() -> FakeCluster:
        raise AssertionError("asked for a cluster")

    assert open_witness("/w.jsonl", no_cluster).name == "/w.jsonl"  # type: ignore[arg-type]
    topic = open_witness("kafka:w", lambda: FakeCluster({}))  # type: ignore[arg-type,return-value]
    assert isinstance(topic, WitnessTopic)
    assert topic.name == "kafka:w"
    for bad in ("w.jsonl", "kafka:", "s3://bucket/w", ""):
        with pytest.raises(ConfigError, match="is not acceptable; accepted: the absolute path"):
            open_witness(bad, no_cluster)  # type: ignore[arg-type]

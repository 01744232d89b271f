"""A witness that is a file, or a topic."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError

from kafka_drain.errors import ConfigError, DeliveryError, EvidenceError, TopicError
from kafka_drain.evidence.witness import WitnessFile, WitnessTopic, open_witness
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.kafka_drain.fake_cluster import FakeCluster, Log


def test_witness_file(tmp_path: Path) -> None:
    """Lines are appended, and read in order; no file is no line."""
    witness = WitnessFile(tmp_path / "witness.jsonl")

    assert witness.lines() == []
    assert witness.append(lambda lines: b"first %d\n" % len(lines))
    assert witness.append(lambda lines: b"second %d\n" % len(lines))
    assert not witness.append(lambda lines: None)
    assert witness.lines() == [b"first 0\n", b"second 1\n"]


def test_witness_file_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is on the disk before it is said to be written, in a file that others may read."""
    path, sizes, fsync = tmp_path / "witness.jsonl", list[int](), os.fsync
    readable = tmp_path / "readable"
    readable.touch(mode=0o644)

    def follow(opened: int) -> None:
        sizes.append(os.fstat(opened).st_size)
        fsync(opened)

    monkeypatch.setattr(os, "fsync", follow)

    WitnessFile(path).append(lambda lines: b"first\n")

    assert sizes[-1] == len(b"first\n")
    assert path.stat().st_mode == readable.stat().st_mode


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


class Producer:
    """Takes a line, or refuses it.

    Attributes:
        made: What each producer was given: its settings, and what it was to send.
        error: Why it refuses a line; None if it takes it.
    """

    made: ClassVar[list[tuple[dict[str, Any], list[tuple[Any, ...]]]]] = []
    error: KafkaError | None = None

    def __init__(self, settings: dict[str, Any]) -> None:
        self._sent: list[tuple[Any, ...]] = []
        self.made.append((settings, self._sent))

    def produce(self, topic: str, value: bytes, *, partition: int, on_delivery: Any) -> None:
        self._sent.append((topic, value, partition))
        on_delivery(self.error, None)

    def flush(self, _: float) -> int:
        return 0


def witness_topic(*lines: bytes | None, stable: int | None = None) -> WitnessTopic:
    """Return a witness in a topic that has some lines; another partition has others."""
    tps = {TopicPartition("w", 0): lines, TopicPartition("w", 1): (b"of nobody\n",)}

    def contents(tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
        return [
            {"value": line, "topic": tp.topic, "partition": tp.partition, "offset": offset}
            for offset, line in enumerate(tps[tp])
            if offset in span
        ]

    cluster: Any = FakeCluster(
        {tp: Log(end=len(held), stable=stable) for tp, held in tps.items()}, contents=contents
    )
    return WitnessTopic(cluster, "w")


def test_witness_topic_lines() -> None:
    """A line of an open transaction isn't there yet; a topic that doesn't exist is an error."""
    cluster: Any = FakeCluster({})

    assert witness_topic(b"0\n", b"1\n", b"2\n", stable=2).lines() == [b"0\n", b"1\n"]
    with pytest.raises(TopicError, match="gone"):
        WitnessTopic(cluster, "gone").lines()


def test_witness_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line follows all those of partition 0, for good; without one, nothing is sent."""
    monkeypatch.setattr("confluent_kafka.Producer", Producer)
    monkeypatch.setattr(Producer, "made", [])
    witness = witness_topic(b"first\n", None, b"second\n")

    assert witness.lines() == [b"first\n", b"second\n"]
    assert not witness.append(lambda lines: None)
    assert Producer.made == []
    assert witness.append(lambda lines: b"third of %d\n" % len(lines))
    [(settings, sent)] = Producer.made
    assert sent == [("w", b"third of 2\n", 0)]
    # That has all in-sync replicas acknowledge it.
    assert settings["enable.idempotence"] is True
    # It gives up while `append` still waits, which then says why.
    assert settings["message.timeout.ms"] < 60_000
    assert settings["bootstrap.servers"] == "fake:9092"


def test_witness_topic_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that Kafka refuses isn't said to be written, and the reason is told."""
    monkeypatch.setattr("confluent_kafka.Producer", Producer)
    monkeypatch.setattr(Producer, "made", [])
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(Producer, "error", refused)

    with pytest.raises(DeliveryError, match=rf"kafka:w: {re.escape(refused.str())}"):
        witness_topic().append(lambda lines: b"first\n")


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

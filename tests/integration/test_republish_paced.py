"""Republishes in the records' own time, to a real broker: when each record arrives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.archive.archive import Archive
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from tests.faults.injection import wait_for
from tests.faults.republishing import Run, read_topic
from tests.kafka_drain.made_archive import MadeArchive

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000
PARTITIONS = 3

#: Longest time, in seconds, by which a record is later than the others: a commit and a new producer
#: on a busy machine. Without a pace, it would be the whole span.
TOLERANCE = 1.5


def times(partition: int, seconds: int) -> list[int]:
    """Return the timestamps of a partition's records: 40 over a span, with a pause in the middle.

    One partition begins later, and in one they go back and forth.
    """
    later = 300 * seconds if partition == 1 else 0
    steps = [n + 20 * (n >= 20) for n in range(40)]
    shaken = [step - 3 * (n % 2) * (partition == 2) for n, step in enumerate(steps)]
    return [NOON + later + (1000 * seconds - later) * step // 60 for step in shaken]


def made_archive(folder: Path, seconds: int) -> Archive:
    made = MadeArchive(folder, {"t": "id-1"})
    made.seal(
        {TopicPartition("t", p): dict(enumerate(times(p, seconds))) for p in range(PARTITIONS)},
        value=lambda tp, offset: b"%d of %d" % (offset, tp.partition),
    )
    # A closed generation needs no checkpoint of Spark's.
    made.open_generation()
    return made.archive


def sent(topic: dict[int, list[Any]]) -> dict[int, list[Any]]:
    return {p: [(value, ms) for _, value, _, ms in rows] for p, rows in topic.items()}


def expected(seconds: int) -> dict[int, list[Any]]:
    return {
        p: [(b"%d of %d" % (n, p), ms) for n, ms in enumerate(times(p, seconds))]
        for p in range(PARTITIONS)
    }


@contextmanager
def watched(cluster: KafkaCluster, topic: str) -> Iterator[list[tuple[int, int, float]]]:
    """Note each record that arrives meanwhile: partition, timestamp, and when, in seconds."""
    found: list[tuple[int, int, float]] = []
    ended, begun = Event(), Event()
    ends = cluster.latest([TopicPartition(topic, p) for p in range(PARTITIONS)], "read_uncommitted")
    settings = {"group.id": "watcher", "isolation.level": "read_uncommitted"}
    consumer = Consumer({**cluster.config.for_librdkafka(), **settings})
    consumer.assign([KafkaTopicPartition(topic, tp.partition, at) for tp, at in ends.items()])

    def watch() -> None:
        with closing(consumer):
            while not ended.is_set():
                message = consumer.poll(0.05)
                begun.set()
                if message is not None and message.error() is None:
                    moment = time.monotonic()
                    found.append((message.partition() or 0, message.timestamp()[1], moment))

    thread = Thread(target=watch)
    thread.start()
    try:
        assert begun.wait(30)
        yield found
    finally:
        ended.set()
        thread.join()


def spread(found: list[tuple[int, int, float]], pace: float) -> float:
    """Return by how many seconds some records are later than others, measured from when due."""
    highest: dict[int, int] = {}
    late = []
    for partition, ms, moment in found:
        highest[partition] = max(ms, highest.get(partition, 0))
        late.append(moment - highest[partition] / 1000 / pace)
    return max(late) - min(late)


@pytest.mark.parametrize(("pace", "seconds"), [(1, 3), (10, 30)])
def test_republish_paced(
    pace: int,
    seconds: int,
    make_topic: Any,
    republish: Any,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    tmp_path: Path,
) -> None:
    """Records of all partitions arrive in their own time, and all of them once and in order."""
    target = make_topic(partitions=PARTITIONS)
    archive = made_archive(tmp_path / "archive", seconds)

    with watched(cluster, target) as found:
        receipt = republish(archive, target, pace=pace, engine="auto")

    assert receipt["verification"]["is_exact"]
    assert sent(read_topic(bootstrap_servers, target)) == expected(seconds)
    assert len(found) == PARTITIONS * 40
    assert spread(found, pace) < TOLERANCE


def test_republish_paced_killed(
    make_topic: Any, cluster: KafkaCluster, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Killed half way, it goes on where it stood, in the same pace, without a burst."""
    target = make_topic(partitions=PARTITIONS)
    made_archive(tmp_path / "archive", 6)
    run = Run(tmp_path / "archive", bootstrap_servers, target, tmp_path, ("--pace", "1"))
    with closing(run):
        first = run.start()
        wait_for(lambda: run.progress() >= 40 or first.ended(), "a third of the records")
        assert first.kill()
        before = run.progress()

        with watched(cluster, target) as found:
            run.finish(run.start())

    assert 40 <= before < 120
    assert sent(read_topic(bootstrap_servers, target)) == expected(6)
    assert len(found) == 120 - before
    assert spread(found, 1) < TOLERANCE

"""A client that asks for more or less at a time, without a broker."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.kafka import reading_client
from kafka_drain.kafka.fetch_size import FIRST_BYTES, MOST_BYTES
from kafka_drain.kafka.reading_client import BOUNDED, ReadingClient
from kafka_drain.offsets import TopicPartition

A0 = TopicPartition("a", 0)


class Consumer:
    """Notes what it is asked for; `tell` reports what it has received and unpacked."""

    made: list[Consumer]

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.asked = settings["fetch.message.max.bytes"]
        self.is_closed = False
        self.answers = True
        self.hear = settings["stats_cb"]
        self.taken: list[tuple[int, float]] = []
        self.counts = [0, 0, 0]
        self.made.append(self)

    def assign(self, partitions: Any) -> None:
        self.at = partitions[0].offset

    def tell(self, expansion: int) -> None:
        added = (100_000, 100_000 * expansion, 100)
        self.counts = [a + b for a, b in zip(self.counts, added, strict=True)]
        names = ("rx_bytes", "rxmsg_bytes", "rxmsgs")
        self.hear(json.dumps(dict(zip(names, self.counts, strict=True))))

    def consume(self, most: int, seconds: float) -> list[Any]:
        self.taken.append((most, seconds))
        if not self.answers:
            return []
        parts = {"error": None, "key": None, "headers": None, "value": b"x" * 100_000}
        return [SimpleNamespace(**{name: lambda part=part: part for name, part in parts.items()})]

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    """The consumers that were made."""
    monkeypatch.setattr(Consumer, "made", [], raising=False)
    monkeypatch.setattr(reading_client, "Consumer", Consumer)
    return Consumer.made


def client() -> ReadingClient:
    config: Any = SimpleNamespace(for_librdkafka=dict)
    return ReadingClient(config, {})


def test_read_from_asks_for_more_and_less(made: list[Consumer]) -> None:
    """Another size takes another consumer, which reads on where the reader is."""
    reading = client()
    reading.read_from(A0, 0)
    assert not reading.is_outdated
    made[0].tell(3)
    assert reading.is_outdated
    reading.read_from(A0, 70)
    assert not reading.is_outdated
    made[1].tell(3_000)
    assert reading.is_outdated
    reading.read_from(A0, 90)
    reading.read_from(A0, 95)

    assert [(each.asked, each.at) for each in made] == [
        (FIRST_BYTES, 0),
        (MOST_BYTES, 70),
        ((16 << 20) // 3_000, 95),
    ]


def test_read_from_no_more_than_wanted(made: list[Consumer]) -> None:
    """The reader's own limit holds."""
    reading = client()
    reading.read_from(A0, 0, most=FIRST_BYTES)
    made[0].tell(1)

    assert not reading.is_outdated
    assert reading.fetch_bytes == FIRST_BYTES


def test_read_from_to_and_fro(made: list[Consumer]) -> None:
    """Sizes that go up and down don't cost a consumer each second; down is followed at once."""
    reading = client()
    reading.read_from(A0, 0)
    for number in range(200):
        made[-1].tell(5_000 if number % 2 else 2)
        if reading.is_outdated:
            reading.read_from(A0, 0)

    assert len(made) < 20
    made[-1].tell(2)
    for _ in range(1_000):
        made[-1].tell(2)
        if reading.is_outdated:
            reading.read_from(A0, 0)
    assert made[-1].asked == MOST_BYTES
    made[-1].tell(5_000)
    assert reading.is_outdated


def test_take_by_size(made: list[Consumer]) -> None:
    """The first message is waited for, and of the rest as many are taken as fit."""
    reading = client()
    reading.read_from(A0, 0)

    assert len(reading.take(10_000, 0.1)) == 1
    assert len(reading.take(10_000, 0.1)) == 2
    assert len(reading.take(1, 0.1)) == 1

    most = (16 << 20) // 100_000
    assert made[0].taken == [(1, 0.1), (1, 0.1), (most - 1, 0), (1, 0.1)]


def test_take_nothing(made: list[Consumer]) -> None:
    """Where nothing has come, nothing more is asked for in the same call."""
    reading = client()
    reading.read_from(A0, 0)
    reading.take(10, 0.1)
    made[0].answers = False

    assert reading.take(10, 0.1) == []

    assert made[0].taken == [(1, 0.1)] * 2


def test_read_from_settings(made: list[Consumer]) -> None:
    """The reader's own settings hold beside those that bound what is held in memory."""
    config: Any = SimpleNamespace(for_librdkafka=lambda: {"bootstrap.servers": "k:1"})
    reading = ReadingClient(config, {"isolation.level": "read_committed"}, report_ms=70)

    reading.read_from(A0, 0)

    wanted = {"bootstrap.servers": "k:1", "isolation.level": "read_committed", **BOUNDED}
    assert made[0].settings.items() >= wanted.items()
    assert made[0].settings["statistics.interval.ms"] == 70


def test_read_from_closes(made: list[Consumer]) -> None:
    """No consumer is left open, neither a replaced one nor the last; a closed client can go on."""
    reading = client()
    reading.read_from(A0, 0)
    made[0].tell(3)
    reading.read_from(A0, 70)
    assert [each.is_closed for each in made] == [True, False]

    reading.close()
    reading.close()
    assert [each.is_closed for each in made] == [True, True]
    reading.read_from(A0, 80)

    assert [(each.is_closed, each.at) for each in made] == [(True, 0), (True, 70), (False, 80)]


def test_read_from_hears(made: list[Consumer]) -> None:
    """Reports go to the current reader only."""
    reading, heard = client(), list[list[str]]([[], []])
    reading.read_from(A0, 0, heard=heard[0].append)
    made[0].tell(1_000)
    reading.read_from(TopicPartition("b", 0), 0, heard=heard[1].append)
    made[-1].tell(1_000)
    reading.read_from(A0, 9)
    made[-1].tell(1_000)

    assert [len(one) for one in heard] == [1, 1]

"""Where a generation starts: positions resolved to numbers, against a fake cluster."""

from __future__ import annotations

import pytest

from kafka_drain.config.source_options import check_source_options
from kafka_drain.drain.starting_offsets import resolve_starting_offsets
from kafka_drain.errors import ConfigError
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.fake_cluster import FakeCluster, Log

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.fixture
def cluster() -> FakeCluster:
    """Partition a-0 holds [10, 50) with an open transaction from 40, a-1 holds [0, 5)."""
    return FakeCluster(
        {
            A0: Log(first=10, end=50, stable=40, times={10: 1000, 20: 2000, 30: 3000}),
            A1: Log(first=0, end=5, times={0: 1000, 4: 1500}),
        }
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {A0: 10, A1: 0}),
        ({"startingOffsets": "earliest"}, {A0: 10, A1: 0}),
        ({"startingOffsets": "latest"}, {A0: 40, A1: 5}),
        ({"startingOffsets": {"a": {"0": 25, "1": 3}}}, {A0: 25, A1: 3}),
        ({"startingOffsets": {"a": {"0": -2, "1": -1}}}, {A0: 10, A1: 5}),
        ({"startingOffsets": {"a": {"0": -1, "1": -2}}}, {A0: 40, A1: 0}),
        ({"startingOffsets": {"a": {"0": 10, "1": 5}}}, {A0: 10, A1: 5}),
        ({"startingTimestamp": 1001}, {A0: 20, A1: 4}),
        ({"startingTimestamp": 1000}, {A0: 10, A1: 0}),
        ({"startingOffsetsByTimestamp": {"a": {"0": 2001, "1": 0}}}, {A0: 30, A1: 0}),
        (
            {"startingTimestamp": 2000, "startingOffsetsByTimestampStrategy": "latest"},
            {A0: 20, A1: 5},
        ),
    ],
)
def test_resolve_starting_offsets_position(
    cluster: FakeCluster, options: dict[str, object], expected: dict[TopicPartition, int]
) -> None:
    """Each position becomes one number for each drained partition."""
    checked = check_source_options(options)

    assert expected == resolve_starting_offsets(checked, [A0, A1], cluster, "read_committed")


def test_resolve_starting_offsets_latest_uncommitted(cluster: FakeCluster) -> None:
    """Under read_uncommitted, latest is the high watermark."""
    checked = check_source_options({"startingOffsets": "latest"})

    assert resolve_starting_offsets(checked, [A0, A1], cluster, "read_uncommitted") == {
        A0: 50,
        A1: 5,
    }


def test_resolve_starting_offsets_found_deleted(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that a service finds by time, though it has deleted it, is no start."""
    monkeypatch.setattr(cluster, "first_since", lambda times: dict.fromkeys(times, (3, 1000)))
    checked = check_source_options({"startingTimestamp": 1000})

    assert resolve_starting_offsets(checked, [A0], cluster, "read_committed") == {A0: 10}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingOffsets": {"a": {"0": 9, "1": 0}}},
            r"startingOffsets\[a\]\[0\] = 9 is outside what Kafka holds, \[10, 40\)",
        ),
        (
            {"startingOffsets": {"a": {"0": 41, "1": 0}}},
            r"startingOffsets\[a\]\[0\] = 41 is outside what Kafka holds, \[10, 40\)",
        ),
        ({"startingOffsets": {"a": {"0": 10}}}, r"startingOffsets doesn't name a-1;"),
        (
            {"startingOffsets": {"a": {"0": 10, "1": 0, "2": 0}}},
            r"startingOffsets names a-2, which isn't drained; name exactly",
        ),
        (
            {"startingOffsets": {"a": {"0": 10}, "b": {"0": 0}}},
            r"startingOffsets doesn't name a-1 and names b-0, which isn't drained",
        ),
        (
            {"startingOffsetsByTimestamp": {"a": {"1": 10}}},
            r"startingOffsetsByTimestamp doesn't name a-0;",
        ),
        ({"startingTimestamp": 2000}, r"startingTimestamp: a-1 has no record at or after"),
        (
            {"startingOffsetsByTimestamp": {"a": {"0": 3001, "1": 1501}}},
            r"startingOffsetsByTimestamp: a-0, a-1 has no record at or after",
        ),
        (
            {
                "startingTimestamp": 3001,
                "startingOffsetsByTimestampStrategy": "error",
            },
            r"startingOffsetsByTimestampStrategy = 'latest'",
        ),
    ],
)
def test_resolve_starting_offsets_refused(
    cluster: FakeCluster, options: dict[str, object], message: str
) -> None:
    """A position that doesn't fit what Kafka holds is refused, and the message says where."""
    checked = check_source_options(options)

    with pytest.raises(ConfigError, match=message):
        resolve_starting_offsets(checked, [A0, A1], cluster, "read_committed")


def test_resolve_starting_offsets_empty_partition() -> None:
    """An empty partition starts where it ends."""
    cluster = FakeCluster({A0: Log(first=7, end=7)})

    assert resolve_starting_offsets({}, [A0], cluster, "read_committed") == {A0: 7}

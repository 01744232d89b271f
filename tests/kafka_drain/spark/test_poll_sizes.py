"""How much Spark's consumers take at a time: the places that are looked at, and what follows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.config.source_options import DEFAULTS
from kafka_drain.kafka.single_records import RecordSample
from kafka_drain.offsets import OffsetRange, TopicPartition, count
from kafka_drain.spark.poll_sizes import (
    PLACES,
    PLACES_OF_PARTITION,
    PLACES_OF_TOPIC,
    POLL_BYTES,
    POLL_RECORDS,
    options_for,
    places,
    poll_options,
    records_polled,
)
from tests.kafka_drain.fake_cluster import FakeCluster

R = OffsetRange
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def sample(size: int) -> RecordSample:
    return RecordSample(A0, size)


@pytest.mark.parametrize(
    ("sizes", "records"),
    [
        # Nothing is known: Kafka has no records there, or they are few.
        ([], None),
        ([0], None),
        ([200], None),
        ([838], None),
        ([839], 19_996),
        ([100_000], POLL_BYTES // 100_000),
        # One record alone is more than fits.
        ([100_000_000], 1),
        # The largest decides, wherever it was found.
        ([200, 1_000_000, 100_000], 16),
    ],
)
def test_options_for(sizes: list[int], records: int | None) -> None:
    """So many records are polled as take their share of memory, but no more than always."""
    found = options_for(map(sample, sizes))

    assert found == ({} if records is None else {POLL_RECORDS: str(records)})


@given(st.lists(st.integers(0, 10**9)))
def test_options_for_property(sizes: list[int]) -> None:
    """No poll unpacks to more than its share, or to a single record if that is larger."""
    records = int((DEFAULTS | options_for(map(sample, sizes)))[POLL_RECORDS])

    assert 1 <= records <= int(DEFAULTS[POLL_RECORDS])
    assert all(records * size <= max(POLL_BYTES, size) for size in sizes)


def test_places() -> None:
    """Each topic is looked at in its largest partitions, at equal distances, also over gaps."""
    ranges = {
        A0: [R(1_000, 1_200)],
        A1: [R(0, 400), R(10_000, 11_200)],
        B0: [R(5, 7)],
    }

    found = places(ranges)

    assert [each[A1] for each in found] == [0, 10_000, 10_400, 10_800]
    assert [each[A0] for each in found] == [1_012, 1_062, 1_112, 1_162]
    assert [each[B0] for each in found if B0 in each] == [5, 6]
    assert places({}) == places({A0: []}) == []


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.integers(0, 400).map("t{}".format), st.integers(0, 3)),
        st.integers(0, 3_000).map(lambda size: [R(7, 7 + size), R(10**6, 10**6 + size // 2)]),
        max_size=400,
    )
)
def test_places_property(ranges: dict[TopicPartition, list[OffsetRange]]) -> None:
    """Places are within what is read, few, each once, and of all topics if these are few."""
    found = [pair for each in places(ranges) for pair in each.items()]

    assert all(any(at in part for part in ranges[tp]) for tp, at in found)
    assert len(found) == len(set(found)) <= PLACES
    assert len(places(ranges)) <= PLACES_OF_PARTITION
    assert all(n <= PLACES_OF_TOPIC for n in Counter(tp.topic for tp, _ in found).values())
    topics = {tp.topic for tp, parts in ranges.items() if count(parts)}
    assert len({tp.topic for tp, _ in found}) == min(PLACES, len(topics))


def test_poll_options() -> None:
    """Kafka is asked about what is read, and not at all where the user has set the number."""
    cluster: Any = FakeCluster({})
    cluster.samples = [sample(100_000)]

    found = poll_options(cluster, {A0: [R(0, 1_000)]}, {})

    assert found == {POLL_RECORDS: "167"}
    assert records_polled(DEFAULTS | found) == 167
    assert poll_options(cluster, {B0: [R(0, 1_000)]}, {}) == {}
    del cluster.samples
    assert poll_options(cluster, {A0: [R(0, 1_000)]}, {POLL_RECORDS: "1"}) == {}
    assert poll_options(cluster, {A0: []}, {}) == {}
    assert records_polled({}) is None

"""How much Spark's consumers take at a time: the places that are looked at, and what follows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.config.source_options import DEFAULTS
from kafka_drain.kafka.fetch_samples import FetchSample
from kafka_drain.kafka.single_records import PARTITION_BYTES
from kafka_drain.offsets import OffsetRange, TopicPartition, count
from kafka_drain.spark.poll_sizes import (
    FETCH_BYTES,
    FEW,
    LEAST_FETCH_BYTES,
    PLACES,
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


def sample(fetched: int, records: int, record_bytes: int) -> FetchSample:
    return FetchSample(A0, fetched, records, records * record_bytes)


@pytest.mark.parametrize(
    ("samples", "fetch", "records"),
    [
        # Nothing is known: Kafka has no records there, or they are few.
        ([], None, None),
        ([sample(100, 5, 0)], None, None),
        # As they are sent, and four times as large: what was always asked for fits.
        ([sample(16_000, 80, 200)], None, None),
        ([sample(1_000_000, 1, 1_000_000)], None, None),
        ([sample(16_000, 320, 200)], None, None),
        # Ten times: a smaller response. Small records beside them are taken as before.
        ([sample(16_000, 1, 160_000)], POLL_BYTES // 10, None),
        ([sample(16_000, 1, 160_000), sample(16_000, 80, 200)], POLL_BYTES // 10, None),
        # A thousand times: the smallest response is too large, so records are counted.
        ([sample(10_000, 100, 100_000)], LEAST_FETCH_BYTES, POLL_BYTES // 100_000),
        # Few records in a batch that comes whole.
        ([sample(500_000, 1_000, 100_000)], LEAST_FETCH_BYTES, POLL_BYTES // 100_000),
        # One record alone is more than fits.
        ([sample(500_000, 2, 100_000_000)], LEAST_FETCH_BYTES, 1),
        # The largest decides, wherever it was found.
        ([sample(10_000, 100, 100_000), sample(10_000, 10, 1_000_000)], LEAST_FETCH_BYTES, 16),
    ],
)
def test_options_for(samples: list[FetchSample], fetch: int | None, records: int | None) -> None:
    """Responses are limited first, and records where that isn't enough."""
    wanted = {FETCH_BYTES: fetch, POLL_RECORDS: records}

    found = options_for(samples, {})

    assert found == {name: str(value) for name, value in wanted.items() if value is not None}


def test_options_for_given() -> None:
    """What a user has set stays, and the other option is chosen to match."""
    samples = [sample(10_000, 100, 100_000)]

    assert options_for(samples, {POLL_RECORDS: "7"}) == {FETCH_BYTES: str(LEAST_FETCH_BYTES)}
    assert options_for(samples, {FETCH_BYTES: "9000"}) == {}
    assert options_for(samples, {FETCH_BYTES: "90000"}) == {POLL_RECORDS: "167"}


@given(
    st.lists(
        st.builds(sample, st.integers(60, 10**7), st.integers(1, 10**5), st.integers(0, 10**8))
    )
)
def test_options_for_property(samples: list[FetchSample]) -> None:
    """No poll unpacks to more than its share, and to no more than one record if that is larger."""
    options = DEFAULTS | options_for(samples, {})
    fetch, records = int(options[FETCH_BYTES]), int(options[POLL_RECORDS])

    assert LEAST_FETCH_BYTES <= fetch <= int(DEFAULTS[FETCH_BYTES])
    assert 1 <= records <= int(DEFAULTS[POLL_RECORDS])
    for each in samples:
        size = each.unpacked / each.records
        whole = each.fetched if each.fetched > PARTITION_BYTES else 0
        response = max(fetch, whole) * each.unpacked / each.fetched
        assert min(records * size, response) <= max(POLL_BYTES, size)


def test_places() -> None:
    """Each topic's largest partition is looked at, at equal distances, also over gaps."""
    ranges = {
        A0: [R(1_000, 1_200)],
        A1: [R(0, 400), R(10_000, 11_200)],
        B0: [R(5, 5 + FEW)],
    }

    found = places(ranges)

    assert [set(each) for each in found] == [{A1}] * PLACES_OF_TOPIC
    assert [each[A1] for each in found[:6]] == [0, 100, 200, 300, 10_000, 10_100]
    assert places({B0: [R(5, 5 + FEW)]}) == places({}) == places({A0: []}) == []


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.integers(0, 200).map("t{}".format), st.integers(0, 3)),
        st.integers(0, 3_000).map(lambda size: [R(7, 7 + size), R(10**6, 10**6 + size // 2)]),
        max_size=300,
    )
)
def test_places_property(ranges: dict[TopicPartition, list[OffsetRange]]) -> None:
    """Places are within what is read, few, and of all topics if these are few."""
    found = [pair for each in places(ranges) for pair in each.items()]

    assert all(any(at in part for part in ranges[tp]) for tp, at in found)
    assert len(found) <= PLACES
    large = {tp.topic for tp, parts in ranges.items() if count(parts) > FEW}
    assert len({tp.topic for tp, _ in found}) == min(PLACES, len(large))


def test_poll_options() -> None:
    """Kafka is asked about what is read, and not at all where the user has set both."""
    cluster: Any = FakeCluster({})
    cluster.samples = [sample(10_000, 100, 100_000)]

    found = poll_options(cluster, {A0: [R(0, 1_000)]}, {})

    assert found == {FETCH_BYTES: str(LEAST_FETCH_BYTES), POLL_RECORDS: "167"}
    assert records_polled(DEFAULTS | found) == 167
    assert poll_options(cluster, {B0: [R(0, 1_000)]}, {}) == {}
    del cluster.samples
    both = {FETCH_BYTES: "1", POLL_RECORDS: "1"}
    assert poll_options(cluster, {A0: [R(0, 1_000)]}, both) == {}
    assert poll_options(cluster, {A0: [R(0, FEW)]}, {}) == {}
    assert records_polled({}) is None

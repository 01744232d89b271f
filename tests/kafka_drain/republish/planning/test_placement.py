"""Where records go: by key as the Java client does it, by the source partition, or to one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.errors import ConfigError
from kafka_drain.republish.planning.placement import (
    BY_KEY,
    PARTITIONERS,
    Fit,
    fitting,
    fixed_partition,
    fnv1a,
    murmur2,
    parse_placement,
    partition_of_key,
)
from tests.tables import each_of

# Of `org.apache.kafka.common.utils.UtilsTest.testMurmur2`, as Java counts: signed.
HASHES = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
    # Not of that test: what kafka-clients 3.9.1 returned.
    (b"", 275646681),
    ("é".encode(), 186971271),
    (bytes([255, 254, 253, 128, 200, 0, 129]), 779856521),
]


@pytest.mark.parametrize(("data", "expected"), HASHES)
def test_murmur2(data: bytes, expected: int) -> None:
    """The hash is the one that Kafka's client computes."""
    assert expected % 2**32 == murmur2(data)


@each_of("key, signed", HASHES)
@each_of("partitions", [1, 2, 7, 12])
def test_partition_of_key(key: bytes, signed: int, partitions: int) -> None:
    """A key's partition is its hash without the sign, modulo the partitions."""
    expected = (signed & 0x7FFFFFFF) % partitions

    assert expected == partition_of_key(key, partitions, source_partition=0)
    assert expected == partition_of_key(key, partitions, source_partition=5)


def test_partition_of_key_empty() -> None:
    """An empty key is a key: it decides, not the partition that the record came from."""
    assert {275646681 % 12} == {partition_of_key(b"", 12, source) for source in range(12)}


@pytest.mark.parametrize(("source", "expected"), [(0, 0), (4, 4), (5, 0), (13, 3)])
def test_partition_of_key_none(source: int, expected: int) -> None:
    """A record without a key goes by the partition that it came from."""
    assert expected == partition_of_key(None, 5, source)


@given(st.none() | st.binary(max_size=40), st.integers(1, 100), st.integers(0, 1000))
def test_partition_of_key_property(key: bytes | None, partitions: int, source: int) -> None:
    """Each record has a partition that exists, and the same one each time."""
    found = partition_of_key(key, partitions, source)

    assert found in range(partitions)
    assert found == partition_of_key(key, partitions, source)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("original", "original"), ("key", "key"), ("0", 0), ("12", 12), (0, 0), (7, 7)],
)
def test_parse_placement(value: str | int, expected: str | int) -> None:
    """A placement is a word or a partition's number, also as text."""
    assert expected == parse_placement(value)


@pytest.mark.parametrize("value", ["", "keys", "-1", -1, "1.5", "Original", " 1", "²"])
def test_parse_placement_bad(value: str | int) -> None:
    """Anything else is refused, with what would be accepted."""
    with pytest.raises(
        ConfigError,
        match=r"placement = .* accepted: original, key, key:crc32, key:fnv1a or a partition",
    ):
        parse_placement(value)


@pytest.mark.parametrize("source", [0, 7])
@pytest.mark.parametrize(("placement", "expected"), [(0, 0), (3, 3), ("key", None)])
def test_fixed_partition(placement: str | int, expected: int | None, source: int) -> None:
    """A number is the partition of all records, and keys fix none."""
    assert fixed_partition(placement, source) == expected
    assert fixed_partition("original", source) == source


@pytest.mark.parametrize(
    ("data", "expected"),
    # Of the test vectors of FNV-1a with 32 bits; the last one is negative as an int.
    [(b"", -0x7EE3623B), (b"a", -0x1BF3D6D4), (b"foobar", -0x40630698)],
)
def test_fnv1a(data: bytes, expected: int) -> None:
    """The hash is the one of the specification, as a signed number, without its sign."""
    assert fnv1a(data) == abs(expected)


SAMPLED = [b"key %d" % n for n in range(100)]


@pytest.mark.parametrize("placement", PARTITIONERS)
@pytest.mark.parametrize(("partitions", "known"), [(2, 2), (6, 6), (6, 12), (64, 64)])
def test_fitting(placement: str, partitions: int, known: int) -> None:
    """The partitioner is recognised, also if partitions were added since."""
    samples = [(key, partition_of_key(key, partitions, 0, placement)) for key in SAMPLED]

    assert fitting(samples, known) == Fit(100, placement, True)
    # A few records were sent to a partition that their producer named.
    assert fitting([(b"odd", 1), (b"odder", 0), *samples], known).placement == placement


@pytest.mark.parametrize(
    ("samples", "partitions", "expected"),
    [
        # No known one: by the number in the key.
        ([(key, n % 6) for n, key in enumerate(SAMPLED)], 6, Fit(100, None, True)),
        # Anything explains one partition, and a few keys.
        ([(key, 0) for key in SAMPLED], 1, Fit(100, None, False)),
        ([(b"a", 1), (b"b", 2)], 6, Fit(2, None, False)),
        ([], 6, Fit(0, None, False)),
    ],
)
def test_fitting_none(samples: list[tuple[bytes, int]], partitions: int, expected: Fit) -> None:
    """What can't be told isn't."""
    assert fitting(samples, partitions) == expected


def test_parse_placement_partitioners() -> None:
    """Each partitioner has a placement; others are refused with what there is."""
    assert [parse_placement(name) for name in PARTITIONERS] == [*PARTITIONERS]
    assert BY_KEY in PARTITIONERS
    with pytest.raises(ConfigError, match="original, key, key:crc32, key:fnv1a or a partition"):
        parse_placement("key:md5")

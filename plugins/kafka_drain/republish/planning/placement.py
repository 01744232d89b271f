"""Choose the target partition of a record. Opens nothing.

`original` keeps each record's partition number. `key` hashes the key like the Java client's default
partitioner, so that keys land where Java producers put them; `key:crc32` and `key:fnv1a` like those
of other clients. A number sends everything to that one partition.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import NamedTuple

from kafka_drain.errors import ConfigError

ORIGINAL = "original"
BY_KEY = "key"

#: The share of sampled keys that a partitioner must explain: some records are sent to a partition
#: that their producer chose.
_FITS = 0.95
#: A partitioner is told from chance by so many keys.
_ENOUGH_KEYS = 10

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def parse_placement(value: str | int) -> str | int:
    """Return `original`, `key` or a partition number.

    Raises:
        ConfigError: When the value is none of these.
    """
    if value == ORIGINAL or value in PARTITIONERS:
        return value
    if str(value).isdecimal():
        return int(value)
    raise ConfigError(
        f"placement = {value!r} is not acceptable; accepted: {ORIGINAL}, "
        f"{', '.join(map(str, PARTITIONERS))} or a partition number"
    )


def fixed_partition(placement: str | int, source_partition: int) -> int | None:
    """Return the partition for all records of a source partition; None when keys choose it."""
    if isinstance(placement, int):
        return placement
    return source_partition if placement == ORIGINAL else None


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of some bytes, unsigned.

    Same bits as the signed result of `org.apache.kafka.common.utils.Utils.murmur2`.
    """
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


#: Keys repeat: a cache hit costs a tenth of the hash.
_cached_murmur2 = lru_cache(maxsize=1 << 18)(murmur2)


def _java(key: bytes) -> int:
    # Same as `Utils.toPositive`, which clears the sign bit.
    return _cached_murmur2(key) & 0x7FFFFFFF


def fnv1a(data: bytes) -> int:
    """Return the 32-bit FNV-1a of some bytes without its sign, as Sarama and librdkafka use it."""
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 & _MASK
    return h if h < 1 << 31 else (1 << 32) - h


#: Hash functions for keys, by placement.
PARTITIONERS: dict[str | int, Callable[[bytes], int]] = {
    BY_KEY: _java,
    f"{BY_KEY}:crc32": zlib.crc32,
    f"{BY_KEY}:fnv1a": lru_cache(maxsize=1 << 18)(fnv1a),
}

#: The clients whose default each partitioner is.
CLIENTS: dict[str | int, str] = {
    BY_KEY: "murmur2, the default of Java's producers",
    f"{BY_KEY}:crc32": "CRC-32, the default of librdkafka (confluent-kafka for Python, Go, .NET)",
    f"{BY_KEY}:fnv1a": "FNV-1a, the default of Sarama (Go)",
}


class Fit(NamedTuple):
    """The partitioner that has placed keys.

    Attributes:
        keys: Number of different keys that were looked at.
        placement: The placement that does the same; None if none does, or it can't be told.
        is_known: Whether it can be told: enough keys, in more than one partition.
    """

    keys: int
    placement: str | None
    is_known: bool


def fitting(samples: Collection[tuple[bytes, int]], partitions: int) -> Fit:
    """Return the partitioner that explains the keys' partitions, if one does.

    Args:
        samples: Different keys, each with its partition.
        partitions: Number of partitions of their topic; it may have had fewer.
    """
    lowest = 1 + max((partition for _, partition in samples), default=0)
    if len(samples) < _ENOUGH_KEYS or max(partitions, lowest) == 1:
        return Fit(len(samples), None, False)
    for placement, hash_of in PARTITIONERS.items():
        hashes = [(hash_of(key), partition) for key, partition in samples]
        for number in range(max(partitions, lowest), max(lowest, 2) - 1, -1):
            hits = sum(hashed % number == partition for hashed, partition in hashes)
            if hits >= _FITS * len(samples):
                return Fit(len(samples), str(placement), True)
    return Fit(len(samples), None, True)


def partition_of_key(
    key: bytes | None, partitions: int, source_partition: int, placement: str | int = BY_KEY
) -> int:
    """Return the partition of a key, as a client's default partitioner chooses it.

    Clients spread records without a key at random. Here they stay together by source
    partition, so that they keep their order and verify finds them again.

    Args:
        key: The key; None if the record has none.
        partitions: Number of partitions of the target.
        source_partition: The partition that the record came from.
        placement: The partitioner.
    """
    if key is None:
        return source_partition % partitions
    return PARTITIONERS[placement](key) % partitions

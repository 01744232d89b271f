"""Choose the target partition of a record. Opens nothing.

`original` keeps each record's partition number. `key` hashes the key like the Java client's default
partitioner, so that keys land where Java producers put them. A number sends everything to that one
partition.
"""

from __future__ import annotations

from functools import lru_cache

from kafka_drain.errors import ConfigError

ORIGINAL = "original"
BY_KEY = "key"

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def parse_placement(value: str | int) -> str | int:
    """Return `original`, `key` or a partition number.

    Raises:
        ConfigError: When the value is none of these.
    """
    if value in (ORIGINAL, BY_KEY):
        return value
    if str(value).isdecimal():
        return int(value)
    raise ConfigError(
        f"placement = {value!r} is not acceptable; accepted: {ORIGINAL}, {BY_KEY} or a partition "
        "number"
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


def partition_of_key(key: bytes | None, partitions: int, source_partition: int) -> int:
    """Return the partition of a key, as the Java client's default partitioner chooses it.

    The Java client spreads records without a key at random. Here they stay together by source
    partition, so that they keep their order and verify finds them again.

    Args:
        key: The key; None if the record has none.
        partitions: Number of partitions of the target.
        source_partition: The partition that the record came from.
    """
    if key is None:
        return source_partition % partitions
    # Same as `Utils.toPositive`, which clears the sign bit.
    return (_cached_murmur2(key) & 0x7FFFFFFF) % partitions

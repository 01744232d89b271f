"""Which partition of the target a record goes to. Opens nothing.

`original` keeps each record's partition number. `key` does what the Java client's default
partitioner does with a key, so that keys land where Java producers put them. A number sends
everything to that one partition.
"""

from __future__ import annotations

from functools import lru_cache

from kafka_drain.errors import ConfigError

__all__ = [
    "BY_KEY",
    "ORIGINAL",
    "fixed_partition",
    "murmur2",
    "parse_placement",
    "partition_of_key",
]

ORIGINAL = "original"
BY_KEY = "key"

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def parse_placement(value: str | int) -> str | int:
    """Return `original`, `key` or a partition's number.

    Raises:
        ConfigError: When it is none of these.
    """
    if value in (ORIGINAL, BY_KEY):
        return value
    if str(value).isdecimal():
        return int(value)
    raise ConfigError(
        f"placement = {value!r} is not acceptable; accepted: {ORIGINAL}, {BY_KEY} or a partition's "
        "number"
    )


def fixed_partition(placement: str | int, source_partition: int) -> int | None:
    """Return the partition that all records of a source partition go to; None when keys decide."""
    if isinstance(placement, int):
        return placement
    return source_partition if placement == ORIGINAL else None


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of some bytes, unsigned.

    As `org.apache.kafka.common.utils.Utils.murmur2`, which counts the same bits as signed.
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


# Keys come again and again: a look-up costs a tenth of the hash.
@lru_cache(maxsize=1 << 18)
def _partition_of_key(key: bytes, partitions: int) -> int:
    # `Utils.toPositive`, which clears the sign.
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_of_key(key: bytes | None, partitions: int, source_partition: int) -> int:
    """Return the partition of a key, as the Java client's default partitioner chooses it.

    That one spreads records without a key by chance; here they stay together by the partition
    that they came from, so that their order is kept and a second look finds them.

    Args:
        key: The key; None where the record has none.
        partitions: How many partitions the target has.
        source_partition: Where the record came from.
    """
    return source_partition % partitions if key is None else _partition_of_key(key, partitions)

"""Spark's `xxhash64` of a record, in Python; used to verify the `fingerprint` in a receipt.

Spark hashes the columns one after the other, each with the hash so far as its seed, starting at 42;
nulls leave the hash unchanged (`org.apache.spark.sql.catalyst.expressions.XxHash64`). An `int`
is hashed as four bytes, a `long` and a timestamp (microseconds) as eight, both in little endian.

Numbers are hashed a column at a time with pyarrow's arithmetic, which wraps at 64 bits; keys,
values and headers one by one, in C. That takes a third of the time of a loop in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import accumulate
from operator import xor

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from kafka_drain.data_files.scalars import text, unsigned

_SEED = 42

# The primes of xxHash64.
_P1, _P2, _P3, _P4, _P5 = (
    unsigned(0x9E3779B185EBCA87),
    unsigned(0xC2B2AE3D27D4EB4F),
    unsigned(0x165667B19E3779F9),
    unsigned(0x85EBCA77C2B2AE63),
    unsigned(0x27D4EB2F165667C5),
)
_ZERO, _FOUR, _EIGHT = unsigned(0), unsigned(4), unsigned(8)
_BITS = {bits: unsigned(bits) for bits in (23, 27, 29, 31, 32, 33, 37, 41)}


def records_fingerprint(batches: Iterable[pa.RecordBatch], topic: str | None) -> int:
    """Return the XOR of the records' hashes.

    Args:
        batches: Records with the columns of `data_files.records.SCHEMA`.
        topic: Their topic; None to use the topic column.
    """
    return reduce(xor, (batch_fingerprint(batch, topic) for batch in batches), 0)


def batch_fingerprint(batch: pa.RecordBatch, topic: str | None) -> int:
    """Return the XOR of the hashes of a batch's records; arguments as for `records_fingerprint`."""
    return reduce(xor, (value for _, _, found in record_hashes(batch, topic) for value in found), 0)


def record_hashes(
    batch: pa.RecordBatch, topic: str | None
) -> Iterator[tuple[str | None, pa.RecordBatch, list[int]]]:
    """Yield the records of each topic, with the topic and the hash of each record.

    Args:
        batch: Records, as for `records_fingerprint`.
        topic: Their topic; None to use the topic column.
    """
    for rows, name in _by_topic(batch, topic):
        seed = _SEED if name is None else xxh64_intdigest(name, _SEED)
        yield name, rows, _with_bytes(rows, _of_numbers(rows, seed).to_pylist())


def _by_topic(
    batch: pa.RecordBatch, topic: str | None
) -> Iterator[tuple[pa.RecordBatch, str | None]]:
    if topic is not None:
        yield batch, topic
        return
    topics = batch["topic"]
    for name in pc.unique(topics).to_pylist():
        wanted = topics.is_null() if name is None else pc.equal(topics, text(name))
        yield batch.filter(wanted), name


def _of_numbers(batch: pa.RecordBatch, seed: int) -> pa.UInt64Array:
    """Hash partition, offset, timestamp and its type, each with the previous hash as its seed."""
    hashed = pc.add(pc.multiply(batch["offset"].view(pa.uint64()), _ZERO), unsigned(seed))
    for name in ("partition", "offset", "timestamp", "timestampType"):
        column = batch[name]
        step = _int if pa.types.is_int32(column.type) else _long
        after = step(column, hashed)
        # A null leaves the hash unchanged.
        hashed = pc.coalesce(after, hashed) if column.null_count else after
    return hashed


def _int(column: pa.Array, seeds: pa.UInt64Array) -> pa.UInt64Array:
    value = column.view(pa.uint32()).cast(pa.uint64())
    hashed = pc.bit_wise_xor(pc.add(pc.add(seeds, _P5), _FOUR), pc.multiply(value, _P1))
    return _finished(pc.add(pc.multiply(_rotated(hashed, 23), _P2), _P3))


def _long(column: pa.Array, seeds: pa.UInt64Array) -> pa.UInt64Array:
    value = pc.multiply(_rotated(pc.multiply(column.view(pa.uint64()), _P2), 31), _P1)
    hashed = pc.bit_wise_xor(pc.add(pc.add(seeds, _P5), _EIGHT), value)
    return _finished(pc.add(pc.multiply(_rotated(hashed, 27), _P1), _P4))


def _rotated(values: pa.UInt64Array, bits: int) -> pa.UInt64Array:
    left = pc.shift_left(values, _BITS[bits])
    return pc.bit_wise_or(left, pc.shift_right(values, _BITS[64 - bits]))


def _finished(values: pa.UInt64Array) -> pa.UInt64Array:
    values = pc.multiply(pc.bit_wise_xor(values, pc.shift_right(values, _BITS[33])), _P2)
    values = pc.multiply(pc.bit_wise_xor(values, pc.shift_right(values, _BITS[29])), _P3)
    return pc.bit_wise_xor(values, pc.shift_right(values, _BITS[32]))


def _with_bytes(batch: pa.RecordBatch, hashes: list[int]) -> list[int]:
    """Continue the hashes with key, value and headers."""
    for name in ("key", "value"):
        column = batch[name]
        parts = column.to_pylist()
        if not column.null_count:
            hashes = list(map(xxh64_intdigest, parts, hashes))
        elif column.null_count < len(column):
            hashes = [
                seed if part is None else xxh64_intdigest(part, seed)
                for part, seed in zip(parts, hashes, strict=True)
            ]
    return _with_headers(batch["headers"], hashes)


def _with_headers(headers: pa.ListArray, hashes: list[int]) -> list[int]:
    """Continue with the headers: the first header of each record, then the second, and so on."""
    pairs = headers.flatten()
    if not len(pairs):
        return hashes
    names, contents = pairs.field("key").to_pylist(), pairs.field("value").to_pylist()
    has_nulls = pairs.field("value").null_count
    # A length is null if there are no headers.
    lengths = [length or 0 for length in headers.value_lengths().to_pylist()]
    starts = list(accumulate(lengths, initial=0))
    rows: Sequence[int] = range(len(lengths))
    for number in range(max(lengths)):
        rows = [row for row in rows if lengths[row] > number]
        at = [starts[row] + number for row in rows]
        found = list(
            map(xxh64_intdigest, map(names.__getitem__, at), map(hashes.__getitem__, rows))
        )
        if has_nulls:
            found = [
                hashed if contents[index] is None else xxh64_intdigest(contents[index], hashed)
                for index, hashed in zip(at, found, strict=True)
            ]
        else:
            found = list(map(xxh64_intdigest, map(contents.__getitem__, at), found))
        for row, hashed in zip(rows, found, strict=True):
            hashes[row] = hashed
    return hashes

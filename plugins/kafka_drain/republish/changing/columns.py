"""Rows of a batch that have something, found for whole columns."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.scalars import binaries, number


def rows_with_header(headers: pa.ListArray, name: str) -> pa.BooleanArray | None:
    """Return which records have a header of this name; None if none has."""
    pairs = headers.flatten()
    if not len(pairs):
        return None
    named = pc.is_in(pairs.field("key"), value_set=strings([name]))
    return marked_rows(pc.list_parent_indices(headers).filter(named), len(headers))


def marked_rows(numbers: pa.Int64Array, total: int) -> pa.BooleanArray | None:
    """Return whether each row's number is one of these; None if there are none."""
    if not len(numbers):
        return None
    following = pc.cumulative_sum(pa.nulls(total).is_null().cast(pa.int64()))
    return pc.is_in(following, value_set=pc.add(numbers, number(1)))


def strings(names: Iterable[str]) -> pa.StringArray:
    """Return an array of texts."""
    return binaries(name.encode() for name in names).cast(pa.large_string()).cast(pa.string())

"""Functions on whole columns: compute, and masks of rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.scalars import binaries, number


def _reusing() -> pa.MemoryPool | None:
    """Return a pool that keeps freed memory for the next allocation; None if pyarrow has none."""
    try:
        return pa.mimalloc_memory_pool()
    except NotImplementedError:
        return None


class _Compute:
    """The functions of `pyarrow.compute`, with their results in a pool that reuses memory.

    A change makes a dozen columns of each batch and drops them again. The processes that send have
    pyarrow take memory from the system and give it back at once (`sending.allocation`), so that
    what threads free for one another isn't retained; with that, masking took 2.6 times as long.
    """

    def __init__(self) -> None:
        self._pool = _reusing()

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(pc, name), memory_pool=self._pool)


#: For columns that are dropped again in the same thread.
compute = _Compute()


def rows_with_header(headers: pa.ListArray, name: str) -> pa.BooleanArray | None:
    """Return a mask of records with a header of this name; None if none has it."""
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

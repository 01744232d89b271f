"""Hash changed records in a way that doesn't depend on the batches and files that they come in."""

from __future__ import annotations

import pyarrow as pa

from kafka_drain.data_files.content_hash import content_hash
from kafka_drain.data_files.rows import rows_of

_MASK = (1 << 64) - 1


def digest_of(batch: pa.RecordBatch) -> int:
    """Return the sum of what identifies each record: its content's hash, times its offset's number.

    Sums of several batches can be added, modulo 2**64.
    """
    total = 0
    for key, value, headers, _, offset in rows_of(batch):
        # An odd factor, so that no record counts as nothing and two can't change places.
        total += content_hash(key, value, headers) * (2 * offset + 1)
    return total & _MASK


def digest_text(total: int) -> str:
    """Return a sum as a plan has it."""
    return f"{total & _MASK:016x}"

"""Hash a record's content to 64 bits, which is how verify compares files with Kafka.

Parts are hashed one after the other, each with the previous hash as its seed, so that records whose
parts are split differently don't share a hash. A null has its own step, which distinguishes it from
an empty part. This is no defense against deliberately constructed hash collisions.
"""

from __future__ import annotations

import pyarrow as pa
from xxhash import xxh3_64_intdigest

from kafka_drain.data_files.rows import Headers, rows_of

_MASK = (1 << 64) - 1
_SEED = 0x6B61666B61  # any number would do
_NULL = 0x9E3779B97F4A7C15


def content_hash(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the hash of a record's key, value and headers, in that order.

    To Kafka, a record without headers and one with an empty list of headers are the same.
    """
    # This runs twice per record: one expression per part, no helper functions.
    h = (_SEED + _NULL) & _MASK if key is None else xxh3_64_intdigest(key, _SEED)
    h = (h + _NULL) & _MASK if value is None else xxh3_64_intdigest(value, h)
    if headers:
        for name, content in headers:
            h = xxh3_64_intdigest(name, h)
            h = (h + _NULL) & _MASK if content is None else xxh3_64_intdigest(content, h)
    return h


def digest_of(batch: pa.RecordBatch) -> int:
    """Return a hash of records that doesn't depend on the batches and files that they come in.

    It is the sum of each record's content hash, times its offset; those of several batches can be
    added, modulo 2**64.
    """
    total = 0
    for key, value, headers, _, offset in rows_of(batch):
        # An odd factor, so that no record counts as nothing and two can't change places.
        total += content_hash(key, value, headers) * (2 * offset + 1)
    return total & _MASK


def digest_text(total: int) -> str:
    """Return a digest in the form that a plan has."""
    return f"{total & _MASK:016x}"

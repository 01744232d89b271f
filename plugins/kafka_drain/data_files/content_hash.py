"""Hash a record's content to 64 bits, which is how verify compares files with Kafka.

Parts are hashed one after the other, each with the previous hash as its seed, so that records whose
parts are split differently don't share a hash. A null has its own step, which distinguishes it from
an empty part. This is no defense against deliberately constructed hash collisions. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from kafka_drain.data_files.rows import Columns, Headers

_MASK = (1 << 64) - 1
_SEED = 0x6B61666B61  # any number would do
_NULL = 0x9E3779B97F4A7C15
_NO_KEY = (_SEED + _NULL) & _MASK

#: Headers that a client can't read, and that no file has, as their names are text. Their records'
#: hash is 0.
UNREADABLE: Final[Headers] = [("\0", None)]


def content_hash(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the hash of a record's key, value and headers, in that order.

    To Kafka, a record without headers and one with an empty list of headers are the same.
    """
    return content_hashes([key], [value], [headers])[0]


def content_hashes(
    keys: Iterable[bytes | None],
    values: Iterable[bytes | None],
    headers: Iterable[Headers],
) -> list[int]:
    """Return the hash of each record's content; see `content_hash`."""
    found = []
    # One expression per part, no helper functions: this runs for each record.
    for key, value, pairs in zip(keys, values, headers, strict=True):
        h = _NO_KEY if key is None else xxh3_64_intdigest(key, _SEED)
        h = (h + _NULL) & _MASK if value is None else xxh3_64_intdigest(value, h)
        if pairs:
            for name, content in pairs:
                h = xxh3_64_intdigest(name, h)
                h = (h + _NULL) & _MASK if content is None else xxh3_64_intdigest(content, h)
            if pairs is UNREADABLE:
                h = 0
        found.append(h)
    return found


def digest_of(columns: Columns) -> int:
    """Return a hash of records that doesn't depend on the batches and files that they come in.

    It is the sum of each record's content hash, times its offset; those of several batches can be
    added, modulo 2**64.
    """
    keys, values, headers, _, offsets = columns
    hashes = content_hashes(keys, values, headers)
    # An odd factor, so that no record counts as nothing and two can't change places.
    return sum(h * (2 * at + 1) for h, at in zip(hashes, offsets, strict=True)) & _MASK


def digest_text(total: int) -> str:
    """Return a digest in the form that a plan has."""
    return f"{total & _MASK:016x}"

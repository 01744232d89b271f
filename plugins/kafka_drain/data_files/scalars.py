"""pyarrow values for comparisons with columns: single ones, and sets of bytes.

They are built from buffers: comparing with Python values, or creating scalars with `pa.scalar`,
would import all of pandas if it is installed, which costs up to two seconds and 40 MB.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def number(value: int) -> pa.Int64Scalar:
    """Return a whole number, clamped to 64 bits."""
    held = pa.py_buffer(struct.pack("=q", max(_LOWEST, min(_HIGHEST, value))))
    return pa.Array.from_buffers(pa.int64(), 1, [None, held])[0]


def unsigned(value: int) -> pa.UInt64Scalar:
    """Return the lowest 64 bits of a whole number."""
    held = pa.py_buffer(struct.pack("=Q", value & (1 << 64) - 1))
    return pa.Array.from_buffers(pa.uint64(), 1, [None, held])[0]


def text(value: str) -> pa.StringScalar:
    """Return a string."""
    encoded = value.encode()
    bounds = pa.py_buffer(struct.pack("=2i", 0, len(encoded)))
    return pa.Array.from_buffers(pa.string(), 1, [None, bounds, pa.py_buffer(encoded)])[0]


def binaries(values: Iterable[bytes | None]) -> pa.LargeBinaryArray:
    """Return an array of bytes."""
    held = list(values)
    valid = booleans([value is not None for value in held]).buffers()[1] if None in held else None
    present = [value or b"" for value in held]
    bounds = array("q", accumulate(map(len, present), initial=0))
    buffers = [valid, pa.py_buffer(bounds), pa.py_buffer(b"".join(present))]
    return pa.Array.from_buffers(pa.large_binary(), len(held), buffers)


def booleans(values: Sequence[bool]) -> pa.BooleanArray:
    """Return an array of booleans."""
    held = bytearray(-(-len(values) // 8))
    for at, value in enumerate(values):
        held[at // 8] |= value << at % 8
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bytes(held))])


#: False, as a value that columns are compared with or filled.
FALSE = booleans([False])[0]

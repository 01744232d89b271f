"""Check that a Parquet file's footer fits its schema, which pyarrow does too late.

pyarrow ends the process when it is asked for the metadata of a column chunk that doesn't fit the
schema: what its C++ code throws there isn't translated into an exception. A footer is
`FileMetaData` of parquet.thrift, in Thrift's compact protocol.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

from kafka_drain.errors import DataFileError

#: Types of Thrift's compact protocol.
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE = range(8)
_BINARY, _LIST, _SET, _MAP, _STRUCT = range(8, 13)
_FIXED = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}

#: Bytes of the longest variable-length integer.
_VARINT_BYTES = 10
#: Deeper than any footer is nested.
_DEPTH = 32


@dataclass(frozen=True, slots=True)
class _Type:
    """A type of parquet.thrift.

    Attributes:
        kind: Its type in Thrift.
        element: The type of a list's elements.
        fields: Those fields of a structure that are looked at, or have lists in them: C++ reads a
            list's elements as what they should be, whatever type is written there.
    """

    kind: int
    element: _Type | None = None
    fields: Mapping[int, _Type] = field(default_factory=dict)


def _struct(fields: Mapping[int, _Type]) -> _Type:
    return _Type(_STRUCT, fields=fields)


def _list(element: _Type) -> _Type:
    return _Type(_LIST, element)


_INT, _LONG, _BYTES, _ANY = _Type(_I32), _Type(_I64), _Type(_BINARY), _struct({})

_SIZES = _struct({1: _LONG, 2: _list(_LONG), 3: _list(_LONG)})
_STATISTICS = _struct({1: _BYTES, 2: _BYTES, 5: _BYTES, 6: _BYTES})
_COLUMN = _struct(
    {
        1: _INT,
        2: _list(_INT),
        3: _list(_BYTES),
        4: _INT,
        8: _list(_ANY),
        12: _STATISTICS,
        13: _list(_ANY),
        16: _SIZES,
        17: _struct({2: _list(_INT)}),
    }
)
_CHUNK = _struct({3: _COLUMN, 8: _struct({1: _ANY, 2: _struct({1: _list(_BYTES)})})})
_GROUP = _struct({1: _list(_CHUNK), 4: _list(_ANY)})
_FILE = _struct({2: _list(_ANY), 4: _list(_GROUP), 5: _list(_ANY), 7: _list(_ANY), 8: _ANY})

#: Physical types by their numbers.
_PHYSICAL = (
    *("BOOLEAN", "INT32", "INT64", "INT96"),
    *("FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"),
)
#: Sizes of their values in bytes.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
#: Codecs, from UNCOMPRESSED to LZ4_RAW.
_CODECS = range(8)


#: The end of a file: the footer's size in bytes, and these bytes.
_TAIL_BYTES, _PLAIN = 8, b"PAR1"


def check_footer(source: Any, schema: pq.ParquetSchema) -> None:
    """Refuse a file that pyarrow has opened, and whose footer it would end the process for.

    A footer that is encrypted is authenticated, too: its bytes are those that were written.

    Args:
        source: The file's bytes; moved.
        schema: The schema that pyarrow has read.

    Raises:
        DataFileError: When the footer is damaged.
    """
    end = source.seek(-_TAIL_BYTES, os.SEEK_END)
    tail = source.read(_TAIL_BYTES)
    if tail[4:] == _PLAIN:
        size = int.from_bytes(tail[:4], "little")
        source.seek(max(0, end - size))
        check_metadata(bytes(source.read(size)), schema)


class KeptReads:
    """A file in an object store that keeps the bytes read until it is told to forget them.

    pyarrow reads the footer when it opens the file; `check_footer` needs no further request.

    Args:
        source: The file.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._kept: dict[int, bytes] | None = {}

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`, or all that follow."""
        at = self._source.tell()
        for start, content in (self._kept or {}).items():
            if size >= 0 and start <= at and at + size <= start + len(content):
                self._source.seek(at + size)
                return content[at - start :][:size]
        found = bytes(self._source.read(size))
        if self._kept is not None:
            self._kept[at] = found
        return found

    def forget(self) -> None:
        """Keep nothing any more."""
        self._kept = None

    def __getattr__(self, name: str) -> Any:
        if name == "read_buffer":
            # pyarrow prefers it to `read`.
            raise AttributeError(name)
        return getattr(self._source, name)


def check_metadata(footer: bytes, schema: pq.ParquetSchema) -> None:
    """Compare a footer's column chunks with the schema that pyarrow read from it.

    Args:
        footer: `FileMetaData` in plain text; what follows it, such as a signature, is ignored.
        schema: The file's schema.

    Raises:
        DataFileError: When the footer is damaged.
    """
    try:
        described = _Reader(footer).value(_FILE)
    except IndexError as error:
        raise _damaged("it ends early") from error
    columns = [schema.column(number) for number in range(len(schema))]
    for chunks in (group.get(1, []) for group in described.get(4, [])):
        if len(chunks) != len(columns):
            raise _damaged(
                f"a row group has {len(chunks)} columns, but the schema has {len(columns)}"
            )
        for chunk, column in zip(chunks, columns, strict=True):
            # The metadata of an encrypted column are authenticated, and may not be here.
            if 8 not in described or 8 not in chunk:
                _check_chunk(chunk, column)


def _check_chunk(chunk: dict[int, Any], column: pq.ColumnSchema) -> None:
    if 8 in chunk:
        raise _damaged(f"column {column.path} has a key, but the file isn't encrypted")
    if 3 not in chunk:
        raise _damaged(f"column {column.path} has no metadata")
    described = chunk[3]
    type_, codec = described.get(1), described.get(4)
    if type_ not in range(len(_PHYSICAL)) or _PHYSICAL[type_] != column.physical_type:
        raise _damaged(
            f"column {column.path} has type {type_}, but it is {column.physical_type} in the schema"
        )
    if codec not in _CODECS:
        raise _damaged(f"column {column.path} has codec {codec}, expected 0 to {_CODECS[-1]}")
    _check_sizes(described.get(16, {}), column)
    width = _WIDTHS.get(column.physical_type, 0)
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        width = column.length
    for value in described.get(12, {}).values():
        if len(value) < width:
            raise _damaged(
                f"a bound of column {column.path} has {len(value)} bytes, expected {width}"
            )


def _check_sizes(sizes: dict[int, Any], column: pq.ColumnSchema) -> None:
    """Check `SizeStatistics`."""
    if 1 in sizes and column.physical_type != "BYTE_ARRAY":
        raise _damaged(
            f"column {column.path} of {column.physical_type} has a size that only BYTE_ARRAY has"
        )
    levels = {2: column.max_repetition_level, 3: column.max_definition_level}
    for number, most in levels.items():
        counts = len(sizes.get(number, []))
        if counts not in (0, most + 1):
            raise _damaged(f"column {column.path} has {counts} levels, expected {most + 1}")


def _damaged(why: str) -> DataFileError:
    return DataFileError(f"the footer is damaged: {why}")


class _Reader:
    """Values in Thrift's compact protocol, one after another.

    Each value takes at least a byte, so that reading ends.

    Raises:
        DataFileError: When a value isn't as specified.
        IndexError: When the content ends early.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def value(self, type_: _Type, depth: int = 0) -> Any:
        """Return a value: of a structure only the given fields."""
        if type_.kind == _STRUCT:
            return self._fields(type_.fields, depth + 1)
        if type_.element is not None:
            size, kind = self._list_header()
            if size and kind != type_.element.kind:
                raise _damaged(f"a list has elements of type {kind}")
            return [self.value(type_.element, depth + 1) for _ in range(size)]
        if type_.kind == _BINARY:
            start, size = self._at_size()
            return self._content[start : start + size]
        return self._integer()

    def _fields(self, fields: Mapping[int, _Type], depth: int) -> dict[int, Any]:
        if depth > _DEPTH:
            raise _damaged("its structures are nested too deep")
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) & 0x0F != _STOP:
            kind, step = head & 0x0F, head >> 4
            number = number + step if step else self._integer()
            # C++ takes 16 bits of it.
            if not -0x8000 <= number < 0x8000:
                raise _damaged(f"it has a field {number}")
            known = fields.get(number)
            if known is None:
                # The type of a boolean field is its value.
                if kind > _FALSE:
                    self._skip(kind, depth)
            elif kind != known.kind or number in found:
                raise _damaged(f"field {number} has type {kind}, or occurs twice")
            else:
                found[number] = self.value(known, depth)
        return found

    def _skip(self, kind: int, depth: int) -> None:
        if _I16 <= kind <= _I64:
            self._varint()
        elif kind in _FIXED:
            self._move(_FIXED[kind])
        elif kind == _BINARY:
            self._at_size()
        elif kind in (_LIST, _SET):
            size, element = self._list_header()
            self._skip_all([element] * size, depth)
        elif kind == _MAP:
            if size := self._size():
                kinds = self._byte()
                self._skip_all([kinds >> 4, kinds & 0x0F] * size, depth)
        elif kind == _STRUCT:
            self._fields({}, depth + 1)
        else:
            raise _damaged(f"it has a value of type {kind}")

    def _skip_all(self, kinds: list[int], depth: int) -> None:
        if depth > _DEPTH:
            raise _damaged("its lists are nested too deep")
        for kind in kinds:
            self._skip(kind, depth + 1)

    def _list_header(self) -> tuple[int, int]:
        """Return the number of elements, and their type."""
        head = self._byte()
        size = head >> 4
        return (size if size < 15 else self._size()), head & 0x0F

    def _at_size(self) -> tuple[int, int]:
        """Return the start of bytes and their number; moves to their end."""
        size = self._size()
        start = self._at
        self._move(size)
        return start, size

    def _size(self) -> int:
        size = self._varint()
        if size > len(self._content) - self._at:
            raise _damaged(f"it says that {size:,} values follow")
        return size

    def _move(self, size: int) -> None:
        self._at += size
        if self._at > len(self._content):
            raise IndexError(self._at)

    def _integer(self) -> int:
        encoded = self._varint()
        return encoded >> 1 ^ -(encoded & 1)

    def _varint(self) -> int:
        value = self._byte()
        if value < 0x80:
            return value
        value &= 0x7F
        for shift in range(7, 7 * _VARINT_BYTES, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise _damaged("it has an integer that doesn't end")

    def _byte(self) -> int:
        byte = self._content[self._at]
        self._at += 1
        return byte

"""Parquet footers as trees of Thrift's compact protocol: taken apart, damaged, and put together.

As a program, it reads damaged footers as the readers of data files do: `footers.py FIRST COUNT`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_drain.data_files.parquet_footer import check_footer
from kafka_drain.errors import DataFileError

DATA = Path(__file__).parents[2] / "data"
#: Written by Spark 4.0 and 4.1, and by pyarrow.
FILES = (
    *sorted(DATA.glob("sink_v1_spark4/generations/0001/data/*/*.parquet"))[:2],
    DATA / "bloom_filter_spark41.parquet",
    *sorted(DATA.glob("archive_0_1/generations/0002/data/*/*.parquet"))[:1],
)

#: What readers ask a column chunk for, and the rest that pyarrow has of it.
LOOKED_AT = (
    *("path_in_schema", "physical_type", "num_values", "encodings", "compression"),
    *("total_compressed_size", "total_uncompressed_size", "has_dictionary_page"),
    *("dictionary_page_offset", "data_page_offset", "metadata", "statistics"),
)

_TRUE, _FALSE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 7, 8, 9, 12

#: A value with its type; a structure's fields are [number, value], a list has its elements' type.
Value = list[Any]


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _zigzag(value: int) -> bytes:
    return _varint((value << 1 ^ value >> 63) & (1 << 64) - 1)


def put(value: Value) -> bytes:
    """Return a value's bytes."""
    kind, content, *element = value
    if kind == _STRUCT:
        parts = []
        before = 0
        for number, part in content:
            step = number - before
            head = step << 4 if 0 < step < 16 else 0
            parts.append(bytes([head | part[0]]) + (b"" if head else _zigzag(number)) + put(part))
            before = number
        return b"".join(parts) + b"\0"
    if kind == _LIST:
        size = len(content)
        head = bytes([size << 4 | element[0]]) if size < 15 else bytes([0xF0 | element[0]])
        return head + (b"" if size < 15 else _varint(size)) + b"".join(map(put, content))
    if kind == _BINARY:
        return _varint(len(content)) + bytes(content)
    if kind == _DOUBLE:
        return bytes(content)
    return b"" if kind in (_TRUE, _FALSE) else _zigzag(content)


class _Taker:
    def __init__(self, content: bytes) -> None:
        self._content = iter(content)

    def _take(self, size: int) -> bytes:
        return bytes(next(self._content) for _ in range(size))

    def _varint(self) -> int:
        value = shift = 0
        while (byte := next(self._content)) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _zigzag(self) -> int:
        encoded = self._varint()
        return encoded >> 1 ^ -(encoded & 1)

    def value(self, kind: int) -> Value:
        if kind == _STRUCT:
            fields = []
            number = 0
            while head := next(self._content):
                number = number + (head >> 4) if head >> 4 else self._zigzag()
                fields.append([number, self.value(head & 0x0F)])
            return [kind, fields]
        if kind == _LIST:
            head = next(self._content)
            size = head >> 4 if head >> 4 < 15 else self._varint()
            return [kind, [self.value(head & 0x0F) for _ in range(size)], head & 0x0F]
        if kind == _BINARY:
            return [kind, self._take(self._varint())]
        if kind == _DOUBLE:
            return [kind, self._take(8)]
        return [kind, None if kind in (_TRUE, _FALSE) else self._zigzag()]


def taken(footer: bytes) -> Value:
    """Take a footer apart."""
    return _Taker(footer).value(_STRUCT)


def field(value: Value, *path: int) -> Value:
    """Return a value in a tree, by numbers of fields and positions in lists."""
    for step in path:
        kind, content = value[:2]
        value = content[step] if kind == _LIST else dict(content)[step]
    return value


def set_field(value: Value, number: int, to: Value | None) -> None:
    """Set a structure's field, or remove it."""
    others = [part for part in value[1] if part[0] != number]
    value[1] = sorted(others + ([] if to is None else [[number, to]]), key=lambda part: part[0])


def footer_of(file: bytes) -> bytes:
    """Return a file's footer."""
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


def with_footer(file: bytes, footer: bytes) -> bytes:
    """Return a file with another footer."""
    return file[: -8 - len(footer_of(file))] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _parts(value: Value) -> Iterator[Value]:
    yield value
    if value[0] == _STRUCT:
        for _, part in value[1]:
            yield from _parts(part)
    elif value[0] == _LIST:
        for part in value[1]:
            yield from _parts(part)


def _change(tree: Value, chance: random.Random) -> None:
    """Change one value: remove, repeat, move or replace some of it."""
    parts = [*_parts(tree)]
    kind, content = (part := chance.choice(parts))[:2]
    if kind in (_LIST, _STRUCT):
        what = chance.randrange(4)
        if what == 0 and content:
            del content[chance.randrange(len(content))]
        elif what == 1 and content:
            content.insert(chance.randrange(len(content) + 1), chance.choice(content))
        elif kind == _STRUCT and what == 2 and content:
            chance.choice(content)[0] += chance.choice([-1, 1, 7, 1 << 16])
        elif kind == _STRUCT:
            other = chance.choice(parts)
            if not any(one is part for one in _parts(other)):
                content.append([chance.randrange(1, 20), other])
                content.sort(key=lambda field: field[0] if isinstance(field[0], int) else 0)
    elif kind == _BINARY:
        part[1] = chance.choice([b"", content[:-1], content + b"x", chance.randbytes(len(content))])
    elif kind not in (_TRUE, _FALSE, _DOUBLE):
        part[1] = chance.choice([0, 1, -1, content + 1, content ^ 2, chance.getrandbits(62)])


def damaged(seed: int) -> bytes:
    """Return a file whose footer is damaged: some of its bytes, or of its values, are others."""
    chance = random.Random(seed)
    file = chance.choice(FILES).read_bytes()
    footer = bytearray(footer_of(file))
    if chance.random() < 0.5:
        tree = taken(bytes(footer))
        for _ in range(chance.choice([1, 1, 2, 4])):
            _change(tree, chance)
        return with_footer(file, put(tree))
    for _ in range(chance.choice([1, 1, 2, 4])):
        at = chance.randrange(len(footer))
        other = chance.randrange(len(footer))
        size = chance.choice([0, 0, 0, 1, 4, 8])
        if size:
            footer[at : at + size] = footer[other : other + size]
        else:
            footer[at] = chance.choice([footer[at] ^ 1 << chance.randrange(8), other & 0xFF])
    return with_footer(file, bytes(footer))


def look(file: bytes, *, is_checked: bool = True) -> None:
    """Open a file, and ask pyarrow for all that readers of data files ask for."""
    source = pa.BufferReader(file)
    opened = pq.ParquetFile(source, pre_buffer=False)
    if is_checked:
        check_footer(source, opened.schema)
    metadata = opened.metadata
    for column in map(opened.schema.column, range(metadata.num_columns)):
        column.path, column.logical_type.to_json()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            for name in LOOKED_AT:
                getattr(chunk, name)
            if chunk.statistics is not None:
                chunk.statistics.min_raw, chunk.statistics.max_raw  # noqa: B018
    str(opened.schema_arrow)


def main(first: int, count: int, *, is_checked: bool) -> None:
    """Look at damaged files; writes what became of them."""
    read = refused = others = 0
    for seed in range(first, first + count):
        sys.stderr.write(f"seed {seed}\n")
        try:
            look(damaged(seed), is_checked=is_checked)
        except DataFileError:
            refused += 1
        except Exception:  # pyarrow has many for damaged bytes
            others += 1
        else:
            read += 1
    sys.stdout.write(f"{read} {refused} {others}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), is_checked=len(sys.argv) < 4)

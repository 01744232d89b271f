"""Replace fields in a whole column of Avro of one schema at once, wherever that is certain.

All values are walked side by side: field by field, and each field in all rows. Values that end
where they should are certain. The others are left to `avro_fields`, which gives the same result for
each of them, but takes twenty times as long; so are schemas with arrays, maps, or recursive types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import pyarrow as pa

from kafka_drain.data_files.scalars import binaries, number
from kafka_drain.republish.changing.avro_fields import SIZES, resolved, within
from kafka_drain.republish.changing.columns import compute as pc
from kafka_drain.republish.changing.masks import REMEMBERED, Mask, Replace

#: Most bytes of a size, and of a number.
_SIZE_BYTES, _LONG_BYTES = 4, 10

_NOTHING = binaries([b""])[0]
_NONE, _ONE, _SEVEN_BITS, _MORE = number(0), number(1), number(0x7F), number(0x80)

_Paths = list[tuple[tuple[Any, ...], int]]


class ReplacedColumn(NamedTuple):
    """A column after its change.

    Attributes:
        column: The column, with the fields replaced where that was certain.
        certain: The rows in which it was.
        hits: Number of occurrences of each field in these.
    """

    column: pa.LargeBinaryArray
    certain: pa.BooleanArray
    hits: list[int]


class _Span(NamedTuple):
    """A field that was found: where it begins and ends in each row that has it."""

    field: int
    kind: str
    logical: str
    start: pa.Int64Array
    end: pa.Int64Array
    there: pa.BooleanArray


class AvroColumn:
    """Replaces fields in values of one schema.

    Args:
        schema: A self-contained schema.
        paths: The steps of each field: names, indexes from 0, or `ALL`. No field lies in another.
        how: The replacement for each field.

    Raises:
        ConfigError: When the schema can't be read.
    """

    def __init__(self, schema: Any, paths: Sequence[Sequence[Any]], how: Sequence[Replace]) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._schema = resolved(schema, "", self._named)
        self._paths: _Paths = [(tuple(path), place) for place, path in enumerate(paths)]
        self._how = how
        self._is_flat = _is_flat(self._schema, self._named, ())
        self._new = [lru_cache(REMEMBERED)(partial(_in_avro, one)) for one in how]

    def replaced(self, column: pa.LargeBinaryArray, skipped: int) -> ReplacedColumn:
        """Return the column with the fields replaced where that is certain.

        Args:
            column: Without nulls.
            skipped: Number of bytes before each value, which are there.
        """
        total = len(column)
        bounds = pa.Array.from_buffers(
            pa.int64(), total + 1, [None, column.buffers()[1]], offset=column.offset
        )
        starts, ends = bounds.slice(0, total), bounds.slice(1, total)
        walk = _Walk(self._named, column.buffers()[2], column.is_valid())
        none = ReplacedColumn(column, column.is_null(), [0] * len(self._paths))
        if not self._is_flat:
            return none
        end = walk.through(
            self._schema, pc.add(starts, number(skipped)), self._paths, column.is_valid()
        )
        certain = pc.and_(pc.equal(end, ends), pc.invert(walk.failed))
        rows = pc.indices_nonzero(certain)
        if not len(rows):
            return none
        hits = [0] * len(self._paths)
        parts: list[Any] = []
        at = pc.take(starts, rows)
        for span in walk.spans:
            there = pc.take(span.there, rows)
            found = pc.sum(there).as_py() or 0
            hits[span.field] += found
            if not found or span.kind == "null":
                continue
            start = pc.if_else(there, pc.take(span.start, rows), at)
            end = pc.if_else(there, pc.take(span.end, rows), at)
            try:
                new = self._replacement(span, column, start, end)
            except ValueError:
                # Its type can't be replaced; the slow way names a record.
                return none
            parts += [_slices(column, at, start), pc.if_else(there, new, _NOTHING)]
            at = end
        if not parts:
            return ReplacedColumn(column, certain, hits)
        parts.append(_slices(column, at, pc.take(ends, rows)))
        joined = pc.binary_join_element_wise(*parts, _NOTHING)
        whole = len(joined) == total
        return ReplacedColumn(
            joined if whole else pc.replace_with_mask(column, certain, joined), certain, hits
        )

    def _replacement(
        self, span: _Span, column: pa.LargeBinaryArray, start: pa.Int64Array, end: pa.Int64Array
    ) -> pa.Scalar | pa.LargeBinaryArray:
        new = self._new[span.field]
        held = _slices(column, start, end)
        if isinstance(self._how[span.field], Mask):
            longest = pc.max(pc.binary_length(held)).as_py()
            return binaries([new(span.kind, span.logical, bytes(longest))])[0]
        encoded = held.dictionary_encode()
        # Nothing is held by rows that don't have the field.
        contents = [
            new(span.kind, span.logical, one) if one else b""
            for one in encoded.dictionary.to_pylist()
        ]
        return binaries(contents).take(encoded.indices)


class _Walk:
    """A walk through all rows, side by side.

    Attributes:
        spans: The fields that were found, in their order.
        failed: The rows that aren't values of the schema, or too unusual.
    """

    def __init__(
        self, named: Mapping[str, Mapping[str, Any]], data: pa.Buffer, rows: pa.BooleanArray
    ) -> None:
        self._named = named
        self._data = pa.Array.from_buffers(pa.uint8(), data.size, [None, data])
        self._last = number(data.size - 1)
        self.spans: list[_Span] = []
        self.failed = pc.invert(rows)

    def through(
        self, schema: Any, at: pa.Int64Array, paths: _Paths, there: pa.BooleanArray
    ) -> pa.Int64Array:
        """Return the end of a schema's value in each row.

        Args:
            at: Start of the value in each row.
            paths: The fields in it.
            there: The rows that have it; what is found in the others means nothing.
        """
        if isinstance(schema, list):
            return self._union(schema, at, paths, there)
        while isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema if isinstance(schema, str) else schema["type"]
        ends = next((place for steps, place in paths if not steps), None)
        if ends is not None:
            end = self.through(schema, at, [], there)
            logical = "" if isinstance(schema, str) else str(schema.get("logicalType", ""))
            self.spans.append(_Span(ends, kind, logical, at, end, there))
            return end
        if kind == "record":
            for field in schema["fields"]:
                at = self.through(field["type"], at, within(paths, field["name"]), there)
            return at
        if kind in ("int", "long", "enum"):
            return self._number(at, _LONG_BYTES, there)[1]
        if kind in ("bytes", "string"):
            size, at = self._number(at, _SIZE_BYTES, there)
            self._fail(there, pc.not_equal(pc.bit_wise_and(size, _ONE), _NONE))
            return pc.add(at, pc.shift_right(size, _ONE))
        return pc.add(at, number(schema["size"] if kind == "fixed" else SIZES[kind]))

    def _union(
        self, schema: list[Any], at: pa.Int64Array, paths: _Paths, there: pa.BooleanArray
    ) -> pa.Int64Array:
        # A branch's number, doubled, is one byte.
        branch, at = self._byte(at), pc.add(at, _ONE)
        end, known = at, pc.invert(there)
        for place, each in enumerate(schema):
            is_here = pc.and_(there, pc.equal(branch, number(2 * place)))
            known = pc.or_(known, is_here)
            if each != "null" or paths:
                end = pc.if_else(is_here, self.through(each, at, paths, is_here), end)
        self._fail(there, pc.invert(known))
        return end

    def _number(
        self, at: pa.Int64Array, most: int, there: pa.BooleanArray
    ) -> tuple[pa.Int64Array, pa.Int64Array]:
        """Return a number's bits of at most four bytes, and where it ends."""
        byte = self._byte(at)
        bits, more = pc.bit_wise_and(byte, _SEVEN_BITS), pc.greater_equal(byte, _MORE)
        at = pc.add(at, _ONE)
        for place in range(1, most):
            if not pc.any(pc.and_(more, there)).as_py():
                return bits, at
            byte = self._byte(at)
            if place < _SIZE_BYTES:
                higher = pc.shift_left(pc.bit_wise_and(byte, _SEVEN_BITS), number(7 * place))
                bits = pc.add(bits, pc.if_else(more, higher, _NONE))
            at = pc.add(at, pc.cast(more, pa.int64()))
            more = pc.and_(more, pc.greater_equal(byte, _MORE))
        self._fail(there, more)
        return bits, at

    def _byte(self, at: pa.Int64Array) -> pa.Int64Array:
        """Return the byte at each place; any if it is behind the last one."""
        return pc.cast(pc.take(self._data, pc.min_element_wise(at, self._last)), pa.int64())

    def _fail(self, there: pa.BooleanArray, rows: pa.BooleanArray) -> None:
        self.failed = pc.or_(self.failed, pc.and_(there, rows))


def _in_avro(how: Replace, kind: str, logical: str, held: bytes) -> bytes:
    new = how.in_avro(kind, logical, held)
    assert new is not None
    return new


def _slices(
    column: pa.LargeBinaryArray, starts: pa.Int64Array, ends: pa.Int64Array
) -> pa.LargeBinaryArray:
    """Return parts of a column's bytes, each behind the one before."""
    total = len(starts)
    # Parts, and what lies between them, which is left out again.
    places = pc.subtract(
        pc.cumulative_sum(pc.cast(pa.nulls(2 * total).is_null(), pa.int64())), _ONE
    )
    halves = pc.shift_right(places, _ONE)
    order = pc.add(halves, pc.multiply(pc.bit_wise_and(places, _ONE), number(total)))
    bounds = pa.concat_arrays([starts, ends]).take(order)
    both = pa.Array.from_buffers(
        pa.large_binary(), 2 * total - 1, [None, bounds.buffers()[1], column.buffers()[2]]
    )
    return pc.take(both, pc.multiply(places.slice(0, total), number(2)))


def _is_flat(schema: Any, named: Mapping[str, Mapping[str, Any]], above: tuple[str, ...]) -> bool:
    """Return whether a schema has neither arrays nor maps nor a type within itself."""
    if isinstance(schema, list):
        return all(_is_flat(branch, named, above) for branch in schema)
    if isinstance(schema, str):
        if schema not in named:
            return True
        return schema not in above and _is_flat(named[schema], named, (*above, schema))
    if schema["type"] in ("array", "map"):
        return False
    if schema["type"] != "record":
        return True
    above = (*above, *(name for name, held in named.items() if held is schema))
    return all(_is_flat(field["type"], named, above) for field in schema["fields"])

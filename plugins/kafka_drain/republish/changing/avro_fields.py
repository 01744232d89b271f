"""Find fields in encoded Avro, to replace them and nothing else. Opens nothing.

Decoding and encoding a whole record would need each union's branch to be guessed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka_drain.errors import ConfigError
from kafka_drain.schemas.value_path import ALL

#: Number of bytes of types that always take as many.
SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class AvroSpan(NamedTuple):
    """A field that was found.

    Attributes:
        start: Start of its bytes, after the number of its branch if it is in a union.
        end: End of its bytes.
        number: The field's number.
        kind: Its type: a primitive one, `enum`, `fixed`, `array`, `map` or `record`.
        logical: Its logical type; empty without one.
    """

    start: int
    end: int
    number: int
    kind: str
    logical: str


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends.

    Raises:
        IndexError: When the bytes end before it does.
    """
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def long_bytes(number: int) -> bytes:
    """Return a number that isn't negative, encoded."""
    left, encoded = number << 1, bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*encoded, left])


class AvroFields:
    """Finds fields in values of one schema.

    Args:
        schema: A self-contained schema.
        paths: The steps of each field: names, indexes from 0, or `ALL`. No field lies in another.

    Raises:
        ConfigError: When the schema can't be read.
    """

    def __init__(self, schema: Any, paths: Iterable[Sequence[Any]]) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._schema = resolved(schema, "", self._named)
        self._paths = [(tuple(path), number) for number, path in enumerate(paths)]

    def find(self, data: bytes, start: int) -> list[AvroSpan]:
        """Return the fields that a value has, in its order.

        Args:
            start: Start of the value.

        Raises:
            ValueError: When the bytes aren't a value of the schema.
        """
        spans: list[AvroSpan] = []
        try:
            end = self._walk(self._schema, data, start, self._paths, spans)
        except (IndexError, RecursionError, OverflowError) as error:
            raise ValueError("it isn't a value of its schema") from error
        if end != len(data):
            raise ValueError("it isn't a value of its schema")
        return spans

    def _walk(
        self,
        schema: Any,
        data: bytes,
        at: int,
        paths: list[tuple[tuple[Any, ...], int]],
        spans: list[AvroSpan],
    ) -> int:
        if isinstance(schema, list):
            branch, at = read_long(data, at)
            if branch < 0:
                raise IndexError
            return self._walk(schema[branch], data, at, paths, spans)
        while isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema if isinstance(schema, str) else schema["type"]
        ends = next((number for steps, number in paths if not steps), None)
        if ends is not None:
            end = self._walk(schema, data, at, [], spans)
            logical = "" if isinstance(schema, str) else str(schema.get("logicalType", ""))
            spans.append(AvroSpan(at, end, ends, kind, logical))
            return end
        if kind == "record":
            for field in schema["fields"]:
                inner = within(paths, field["name"])
                at = self._walk(field["type"], data, at, inner, spans)
            return at
        if kind in ("array", "map"):
            return self._blocks(schema, data, at, paths, spans)
        if kind in ("int", "long", "enum"):
            return read_long(data, at)[1]
        if kind in ("bytes", "string"):
            size, at = read_long(data, at)
        else:
            size = schema["size"] if kind == "fixed" else SIZES[kind]
        if size < 0 or at + size > len(data):
            raise IndexError
        return at + int(size)

    def _blocks(
        self,
        schema: Mapping[str, Any],
        data: bytes,
        at: int,
        paths: list[tuple[tuple[Any, ...], int]],
        spans: list[AvroSpan],
    ) -> int:
        """Walk the blocks of an array or a map."""
        is_map = schema["type"] == "map"
        inner = schema["values" if is_map else "items"]
        index = 0
        while True:
            count, at = read_long(data, at)
            if not count:
                return at
            if count < 0:
                # A block's size in bytes follows; it must stay true.
                count, (size, at) = -count, read_long(data, at)
                if paths:
                    raise ValueError("it has blocks with sizes, which would change")
                if size < 0 or at + size > len(data):
                    raise IndexError
            for _ in range(count):
                step: Any = index
                if is_map:
                    size, at = read_long(data, at)
                    if size < 0 or at + size > len(data):
                        raise IndexError
                    step = data[at : at + size].decode(errors="replace")
                    at += size
                before = at
                at = self._walk(inner, data, at, within(paths, step), spans)
                index += 1
                if at == before and count > len(data):
                    raise IndexError  # nulls without end


def within(
    paths: list[tuple[tuple[Any, ...], int]], step: Any
) -> list[tuple[tuple[Any, ...], int]]:
    """Return the paths that go through a step, without it."""
    if not paths:
        return paths
    return [
        (steps[1:], number)
        for steps, number in paths
        if steps and (steps[0] is ALL or (type(steps[0]) is type(step) and steps[0] == step))
    ]


def resolved(schema: Any, namespace: str, named: dict[str, Mapping[str, Any]]) -> Any:
    """Return a schema with full names, and note its named types.

    Raises:
        ConfigError: When it isn't a schema.
    """
    if isinstance(schema, list):
        return [resolved(branch, namespace, named) for branch in schema]
    if isinstance(schema, str):
        if schema in SIZES or schema in ("int", "long", "bytes", "string"):
            return schema
        full = _full(schema, namespace)
        for name in (full, schema):
            if name in named:
                return name
        raise ConfigError(f"it uses the type {schema}, which it doesn't define")
    if not isinstance(schema, dict) or "type" not in schema:
        raise ConfigError("it isn't an Avro schema")
    kind = schema["type"]
    try:
        if kind in ("record", "error", "enum", "fixed"):
            full = _full(schema["name"], schema.get("namespace", namespace))
            own = full.rpartition(".")[0]
            found: dict[str, Any] = {**schema, "type": "record" if kind == "error" else kind}
            named[full] = found
            if kind in ("record", "error"):
                found["fields"] = [
                    {"name": field["name"], "type": resolved(field["type"], own, named)}
                    for field in schema["fields"]
                ]
            return found
        inner = {"array": "items", "map": "values"}.get(kind) if isinstance(kind, str) else None
        if inner is not None:
            return {**schema, inner: resolved(schema[inner], namespace, named)}
    except (KeyError, TypeError) as error:
        raise ConfigError("it isn't an Avro schema") from error
    if isinstance(kind, str) and "logicalType" in schema and kind not in named:
        return {**schema, "type": resolved(kind, namespace, named)}
    return resolved(kind, namespace, named)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"

"""Apply a change to a batch of records: the same function for planning, sending and verifying."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import pyarrow as pa

from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.rows import Headers, headers_of
from kafka_drain.data_files.scalars import FALSE, binaries, number
from kafka_drain.errors import ConfigError, MachineError, SourceRecordError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing import json_column
from kafka_drain.republish.changing.avro_column import AvroColumn
from kafka_drain.republish.changing.avro_fields import AvroFields
from kafka_drain.republish.changing.columns import compute as pc
from kafka_drain.republish.changing.columns import marked_rows, rows_with_header, strings
from kafka_drain.republish.changing.conditions import Condition, Filter
from kafka_drain.republish.changing.fields import HEADER, KEY, VALUE, Field
from kafka_drain.republish.changing.filter_columns import FilterColumns
from kafka_drain.republish.changing.function import UserFunction, call_function, load_function
from kafka_drain.republish.changing.json_column import JsonColumn
from kafka_drain.republish.changing.json_fields import JsonFields
from kafka_drain.republish.changing.masks import Replace, remembering
from kafka_drain.republish.changing.spec import ChangeSpec
from kafka_drain.schemas.avro import AVRO, parse_schema, self_contained
from kafka_drain.schemas.decoders import SchemaText, body_of
from kafka_drain.schemas.payloads import Payloads
from kafka_drain.schemas.schema_ids import HEADERS, ID_BYTES, SchemaId, id_of_payload

#: Name of the header that says that a record was changed; its value is the start of the change's
#: hash.
MARK, MARK_DIGITS = "kafka-drain.changed", 12

_ZERO = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(8))])
_NONE = _ZERO.cast(pa.int32())[0]

_NOTHING = binaries([b""])[0]
#: More bytes than any payload has: pyarrow's binary_slice fails if it isn't told where to end.
_LONGEST = (1 << 31) - 1

FindSchema = Callable[[SchemaId], "SchemaText | None"]

#: Replaces fields in some payloads; returns them, and in which rows that was done.
_AtOnce = Callable[[pa.LargeBinaryArray], tuple[pa.LargeBinaryArray, pa.BooleanArray]]


@dataclass(frozen=True)
class Change:
    """A change of a plan, ready to be carried out; can be passed to other processes.

    Attributes:
        spec: The drops and changes.
        schemas: The schemas of keys and values whose fields matter, by id or GUID.
        key: The key of pseudonyms; secret.
        folder: The folder of the function's module.
    """

    spec: ChangeSpec
    schemas: Mapping[SchemaId, SchemaText] = field(default_factory=dict)
    key: bytes = field(default=b"", repr=False)
    folder: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON types, the key included."""
        return {
            "spec": self.spec.to_dict(),
            "schemas": schemas_to_rows(self.schemas),
            "key": self.key.hex(),
            "folder": self.folder,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Change:
        """Parse a document from `to_dict`."""
        return cls(
            ChangeSpec.from_dict(document["spec"]),
            schemas_of_rows(document["schemas"]),
            bytes.fromhex(document["key"]),
            document["folder"],
        )

    def open(self, find: FindSchema | None = None) -> Changer:
        """Return the changer.

        Args:
            find: Returns a schema by its id or GUID; None to use the plan's own.

        Raises:
            ConfigError: When its function can't be imported, or isn't the planned one.
        """
        planned = self.spec.function
        function = None if planned is None else load_function(planned, self.folder)
        return Changer(self.spec, self.key, find or self.schemas.get, function)


def schemas_to_rows(schemas: Mapping[SchemaId, SchemaText]) -> list[dict[str, Any]]:
    """Return schemas as JSON types."""
    return [
        {"id": id_, "kind": s.kind, "text": s.text, "references": dict(s.references)}
        for id_, s in sorted(schemas.items(), key=lambda item: str(item[0]))
    ]


def schemas_of_rows(rows: Iterable[Mapping[str, Any]]) -> dict[SchemaId, SchemaText]:
    """Parse rows from `schemas_to_rows`."""
    return {row["id"]: SchemaText(row["kind"], row["text"], row["references"]) for row in rows}


@dataclass(frozen=True)
class Changed:
    """A batch after its change.

    Attributes:
        batch: The records that are sent.
        dropped: Number of records that aren't.
        changed: Mask of the changed records of `batch`.
        before: These records as they were.
    """

    batch: pa.RecordBatch
    dropped: int
    changed: pa.BooleanArray
    before: pa.RecordBatch


class Changer:
    """Applies a change. A record's fate depends on this record alone.

    Args:
        spec: The drops and changes.
        key: The key of pseudonyms.
        find: Returns a schema by its id or GUID; None if it is unknown.
        function: The user's function; None without one.

    Attributes:
        hits: Number of occurrences of each replaced field, by its text.
        left_out: Number of occurrences of each header that is left out, by its name.
        unseen: Fields of the filter's conditions, by text, that no planned record has had.
        seen: The schemas that were used.
    """

    def __init__(
        self, spec: ChangeSpec, key: bytes, find: FindSchema, function: UserFunction | None
    ) -> None:
        self._spec = spec
        self._filter = spec.wanted.filter()
        self._filter_columns = FilterColumns(self._filter or Filter(()))
        replacements = spec.wanted.replacements(key)
        self._headers = [(f, remembering(how)) for f, how in replacements if f.part == HEADER]
        self._key = next(
            ((f, remembering(how)) for f, how in replacements if f.part == KEY and f.steps is None),
            None,
        )
        self._parts = [
            _Part(part, fields, self)
            for part in (KEY, VALUE)
            if (
                fields := [
                    (f, h) for f, h in replacements if f.part == part and f.steps is not None
                ]
            )
        ]
        self._dropped_names = frozenset(spec.wanted.drop_headers)
        self._function = function
        self._find = find
        # What can't be read would pass a condition with `not`.
        self._payloads = Payloads(self.schema, needs_libraries=True)
        self.hits: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        named = self._filter.fields if self._filter is not None else ()
        self.unseen = {str(where): Filter.of([Condition(where, None)]) for where in named}
        self.seen: dict[SchemaId, SchemaText] = {}

    def apply(
        self, batch: pa.RecordBatch, source: TopicPartition, *, twice: bool = False
    ) -> Changed:
        """Return a batch as it is sent.

        Args:
            batch: Records of one partition, with the columns of `data_files.records.SCHEMA`.
            twice: Whether this is the plan: the user's function is applied twice, to find one that
                isn't a function of each record alone, and `unseen` is kept.

        Raises:
            SourceRecordError: When a record can't be changed as asked; names it, and shows nothing
                of it.
            ConfigError: When the user's function breaks its contract.
        """
        if twice and self.unseen:
            _naming(batch, source, self._seen)
        before = _naming(batch, source, self._filtered)
        after = _naming(before, source, self._replaced)
        if self._function is not None and after.num_rows:
            before, after = self._by_function(before, after, source, twice=twice)
        changed = _differing(before, after)
        if self._spec.wanted.mark:
            after = _marked(after, changed.to_pylist(), self._spec.digest[:MARK_DIGITS].encode())
        return Changed(after, batch.num_rows - after.num_rows, changed, before)

    def schema(self, id_: SchemaId) -> SchemaText | None:
        """Return a schema, and note that it was used."""
        found = self._find(id_)
        if found is not None:
            self.seen[id_] = found
        return found

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._filter is None:
            return batch
        kept = self._kept(batch, self._filter_columns)
        return batch if pc.all(kept).as_py() else batch.filter(kept)

    def _seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Remove the conditions that a batch meets from `unseen`; return the batch."""
        for text, has in [*self.unseen.items()]:
            try:
                is_met = pc.any(self._kept(batch, FilterColumns(has))).as_py()
            except (_RowError, MachineError):
                # Of a record that another condition may leave out.
                is_met = True
            if is_met:
                del self.unseen[text]
        return batch

    def _kept(self, batch: pa.RecordBatch, columns: FilterColumns) -> pa.BooleanArray:
        """Return a mask of the records that a filter keeps."""

        def decoded(part: str, rows: pa.BooleanArray) -> Iterator[Any]:
            payloads = batch[part].filter(rows).to_pylist()
            headers = headers_of(batch["headers"].filter(rows))
            places = pc.indices_nonzero(rows).to_pylist()
            return map(partial(self._content_of, part), places, payloads, headers)

        return columns.keeps(batch, decoded)

    def _content_of(self, part: str, row: int, payload: bytes | None, headers: Headers) -> Any:
        """Return a decoded key or value.

        Raises:
            _RowError: When its schema is unknown, or it isn't a value of it.
            MachineError: When the library that decodes it is missing.
        """
        if payload is None:
            return None
        id_, _ = body_of(part, payload, headers)
        if id_ is not None and self.schema(id_) is None:
            raise _RowError(row, f"schema id {id_} is unknown, which the {part} has")
        found = self._payloads.of(part, payload, headers)
        if id_ is not None and found.schema is None:
            # Without its content, a condition with `not` would let it pass.
            raise _RowError(row, f"the {part} isn't a value of its schema, id {id_}")
        return found.content

    def _replaced(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch[name] for name in batch.schema.names}
        for part in self._parts:
            columns[part.name] = part.replaced(columns[part.name], batch["headers"])
        if self._key is not None:
            columns[KEY] = self._with_pseudonyms(columns[KEY])
        if self._headers or self._dropped_names:
            columns["headers"] = self._with_headers(columns["headers"])
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)

    def _with_pseudonyms(self, column: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
        assert self._key is not None
        named, how = self._key
        self.hits[str(named)] += len(column) - column.null_count
        return _each(column, how)

    def _with_headers(self, column: pa.ListArray) -> pa.ListArray:
        """Return headers with some left out, and the values of others replaced."""
        flat = column.flatten()
        if not len(flat):
            return column
        names, values = flat.field("key"), flat.field("value")
        for named, how in self._headers:
            rows = pc.and_(pc.is_in(names, value_set=strings([named.header])), values.is_valid())
            self.hits[str(named)] += pc.sum(rows).as_py() or 0
            values = pc.replace_with_mask(values, rows, _each(values.filter(rows), how))
        dropped = pc.is_in(names, value_set=strings(self._dropped_names))
        self.left_out.update(names.filter(dropped).to_pylist())
        kept = pc.invert(dropped)
        ends = pc.cumulative_sum(column.value_lengths().cast(pa.int64()).fill_null(number(0)))
        if pc.any(dropped).as_py():
            names, values = names.filter(kept), values.filter(kept)
            up_to = pc.cumulative_sum(kept.cast(pa.int64()))
            ends = pa.concat_arrays([_ZERO, up_to]).take(ends)
        return _headers_from(names, values, ends)

    def _by_function(
        self, before: pa.RecordBatch, after: pa.RecordBatch, source: TopicPartition, *, twice: bool
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        assert self._function is not None
        given = _with_topic(after, source.topic)
        kept, result = call_function(self._function, given, source)
        if twice:
            at = given.num_rows // 3
            parts = [part for part in (given.slice(0, at), given.slice(at)) if part.num_rows]
            again = [call_function(self._function, part, source)[1] for part in parts]
            if not pa.Table.from_batches(again).equals(pa.Table.from_batches([result])):
                raise ConfigError(
                    f"{self._function.id.name} isn't a function of each record alone: applied "
                    f"again to the same records, from offset {given['offset'][0].as_py():,} of "
                    f"{source}, in batches of another size, it gave something else. A run that is "
                    "resumed would send other records. Leave out random values, the time, and "
                    "what it remembers. Nothing was sent"
                )
        columns = [
            (result if name in (KEY, VALUE, "headers") else kept)[name] for name in SCHEMA.names
        ]
        rows = pc.index_in(result["offset"], value_set=before["offset"])
        before = before if result.num_rows == before.num_rows else before.take(rows)
        return before, pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class _RowError(Exception):
    """Raised for a record of a batch that can't be changed."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def _naming(
    batch: pa.RecordBatch,
    source: TopicPartition,
    step: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> pa.RecordBatch:
    """Apply a step to a batch; name the record that it fails for."""
    try:
        return step(batch)
    except _RowError as error:
        offset = batch["offset"][error.row].as_py()
        raise SourceRecordError(
            f"{error}, of the record at offset {offset:,} of {source}. Nothing more was sent; "
            "leave the record out (filter, offsets), or correct what is asked for"
        ) from None


class _Part:
    """Fields that are replaced in keys, or in values."""

    def __init__(
        self, name: str, fields: Sequence[tuple[Field, Replace]], changer: Changer
    ) -> None:
        self.name = name
        self._names = [str(named) for named, _ in fields]
        self._how = [how for _, how in fields]
        self._paths = [named.steps or () for named, _ in fields]
        self._json = JsonFields(self._paths)
        self._columns = [
            JsonColumn(path, how) for path, how in zip(self._paths, self._how, strict=True)
        ]
        self._changer = changer
        self._avro: dict[SchemaId, AvroFields | None] = {}
        self._avro_columns: dict[SchemaId, AvroColumn] = {}

    def replaced(self, column: pa.LargeBinaryArray, headers: pa.ListArray) -> pa.LargeBinaryArray:
        """Return the column with the fields replaced.

        Raises:
            _RowError: When a payload can't be read, or a field can't be replaced.
        """
        left = column.is_valid()
        if len(column) >= json_column.LEAST_ROWS:
            named = rows_with_header(headers, HEADERS[self.name])
            plain = left if named is None else pc.and_(left, pc.invert(named))
            column, done = self._in_columns(column, plain)
            left = pc.and_(left, pc.invert(done))
        rows = pc.indices_nonzero(left).to_pylist()
        if not rows:
            return column
        held = headers_of(headers)
        payloads = (column if len(rows) == len(column) else column.filter(left)).to_pylist()
        new = binaries(
            self._of(row, payload, held[row]) for row, payload in zip(rows, payloads, strict=True)
        )
        return new if len(rows) == len(column) else pc.replace_with_mask(column, left, new)

    def _in_columns(
        self, column: pa.LargeBinaryArray, rows: pa.BooleanArray
    ) -> tuple[pa.LargeBinaryArray, pa.BooleanArray]:
        """Replace the fields in many rows at once; return also in which that was done.

        Args:
            column: The payloads.
            rows: The ones that aren't null, and for which no header names a schema.
        """
        heads = pc.binary_slice(column, 0, ID_BYTES)
        is_json = pc.and_(rows, pc.starts_with(heads, pattern=b"{").fill_null(FALSE))
        done = pa.nulls(len(column)).is_valid()
        groups: list[tuple[pa.BooleanArray, _AtOnce]] = [(is_json, self._json_at_once)]
        prefixed = pc.and_(rows, pc.starts_with(heads, pattern=b"\0").fill_null(FALSE))
        if pc.any(prefixed).as_py():
            for head in heads.filter(prefixed).unique().to_pylist():
                at_once = self._behind_id(head)
                if at_once is not None:
                    one = pc.equal(heads, binaries([head])[0]).fill_null(FALSE)
                    groups.append((pc.and_(rows, one), at_once))
        for each, replaced in groups:
            if (pc.sum(each).as_py() or 0) < json_column.LEAST_ROWS:
                continue
            given = pc.filter(column, each)
            new, certain = replaced(given)
            where = pc.replace_with_mask(each, each, certain)
            done = pc.or_(done, where)
            whole = len(new) == len(column) and pc.all(certain).as_py()
            column = new if whole else pc.replace_with_mask(column, where, pc.filter(new, certain))
        return column, done

    def _json_at_once(
        self, given: pa.LargeBinaryArray
    ) -> tuple[pa.LargeBinaryArray, pa.BooleanArray]:
        certain, there = given.is_valid(), []
        for one in self._columns:
            given, is_certain, is_there = one.replaced(given, json_column.LEAST_ROWS)
            certain = pc.and_(certain, is_certain)
            there.append(is_there)
        for name, found in zip(self._names, there, strict=True):
            self._changer.hits[name] += pc.sum(pc.and_(found, certain)).as_py() or 0
        return given, certain

    def _json_behind_id_at_once(
        self, head: bytes, given: pa.LargeBinaryArray
    ) -> tuple[pa.LargeBinaryArray, pa.BooleanArray]:
        new, certain = self._json_at_once(pc.binary_slice(given, ID_BYTES, _LONGEST))
        return pc.binary_join_element_wise(binaries([head])[0], new, _NOTHING), certain

    def _avro_at_once(
        self, avro: AvroColumn, given: pa.LargeBinaryArray
    ) -> tuple[pa.LargeBinaryArray, pa.BooleanArray]:
        new, certain, hits = avro.replaced(given, ID_BYTES)
        for name, found in zip(self._names, hits, strict=True):
            self._changer.hits[name] += found
        return new, certain

    def _behind_id(self, head: bytes) -> _AtOnce | None:
        """Return the function that replaces fields of payloads that begin with a schema's id."""
        id_ = id_of_payload(head)
        if id_ is None:
            return None
        try:
            if self._avro_of(id_) is None:
                return partial(self._json_behind_id_at_once, head)
        except ValueError:
            # The first such record is named later.
            return None
        if id_ not in self._avro_columns:
            schema = self._changer.schema(id_)
            assert schema is not None
            self._avro_columns[id_] = AvroColumn(_schema_of(schema), self._paths, self._how)
        return partial(self._avro_at_once, self._avro_columns[id_])

    def _of(self, row: int, payload: bytes, headers: Headers) -> bytes:
        try:
            id_, start = body_of(self.name, payload, headers)
            if id_ is None:
                return self._in_json(payload, 0)
            avro = self._avro_of(id_)
            return (
                self._in_json(payload, start)
                if avro is None
                else self._in_avro(avro, payload, start)
            )
        except ValueError as error:
            what = str(error)
            if isinstance(error, UnicodeDecodeError):
                what = "it isn't JSON"
            raise _RowError(
                row, f"{', '.join(self._names)}: can't be replaced in the {self.name} ({what})"
            ) from None

    def _in_json(self, payload: bytes, start: int) -> bytes:
        text = (payload[start:] if start else payload).decode()
        parts, at = [], 0
        for span in self._json.find(text):
            self._changer.hits[self._names[span.number]] += 1
            new = self._how[span.number].in_json(span.value, text[span.start : span.end])
            if new is not None:
                parts += [text[at : span.start], new]
                at = span.end
        parts.append(text[at:])
        return payload[:start] + "".join(parts).encode()

    def _in_avro(self, fields: AvroFields, payload: bytes, start: int) -> bytes:
        parts, at = [], 0
        for span in fields.find(payload, start):
            self._changer.hits[self._names[span.number]] += 1
            held = payload[span.start : span.end]
            new = self._how[span.number].in_avro(span.kind, span.logical, held)
            if new is not None:
                parts += [payload[at : span.start], new]
                at = span.end
        return b"".join([*parts, payload[at:]])

    def _avro_of(self, id_: SchemaId) -> AvroFields | None:
        """Return the column of the fields in Avro of a schema; None if its values are JSON.

        Raises:
            ValueError: When the schema is unknown, or of another kind.
        """
        if id_ not in self._avro:
            schema = self._changer.schema(id_)
            if schema is None:
                raise ValueError(f"schema id {id_} is unknown")
            if schema.kind not in (AVRO, "JSON"):
                raise ValueError(f"its schema is of type {schema.kind}; JSON and Avro can be")
            self._avro[id_] = None if schema.kind == "JSON" else _avro_fields(schema, self._paths)
        return self._avro[id_]


def _each(
    column: pa.LargeBinaryArray, how: Callable[[bytes | None], bytes | None]
) -> pa.LargeBinaryArray:
    """Return the replacements for the bytes of a column, each content once."""
    encoded = column.dictionary_encode()
    return binaries(map(how, encoded.dictionary.to_pylist())).take(encoded.indices)


def _avro_fields(schema: SchemaText, paths: Sequence[Sequence[Any]]) -> AvroFields:
    try:
        return AvroFields(_schema_of(schema), paths)
    except ConfigError as error:
        raise ValueError(f"its schema can't be read: {error}") from error


def _schema_of(schema: SchemaText) -> Any:
    references = {name: parse_schema(text, name) for name, text in schema.references.items()}
    return self_contained(parse_schema(schema.text, "it"), references)


def header_column(rows: Sequence[Headers]) -> pa.ListArray:
    """Return headers as a column of a batch."""
    pairs = [pair for headers in rows if headers for pair in headers]
    names = strings(name for name, _ in pairs)
    values = binaries(held.encode() if isinstance(held, str) else held for _, held in pairs)
    ends = [*accumulate(len(headers or ()) for headers in rows)]
    held = pa.py_buffer(struct.pack(f"={len(ends)}q", *ends))
    return _headers_from(names, values, pa.Array.from_buffers(pa.int64(), len(ends), [None, held]))


def _headers_from(
    names: pa.StringArray, values: pa.LargeBinaryArray, ends: pa.Int64Array
) -> pa.ListArray:
    """Return headers as a column; null for a record without any.

    Args:
        names: The names of all records' headers.
        ends: End of each record's headers.
    """
    kind = SCHEMA.field("headers").type
    fields = [kind.value_type.field(name) for name in ("key", "value")]
    flat = pa.StructArray.from_arrays([names, values], fields=fields)
    bounds = pa.concat_arrays([_ZERO, ends])
    having = pc.greater(ends, bounds.slice(0, len(ends)))
    buffers = [having.buffers()[1], bounds.cast(pa.int32()).buffers()[1]]
    return pa.Array.from_buffers(kind, len(ends), buffers, children=[flat])


def _with_topic(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Return a batch with the topic's name, which files in a topic's folder don't hold."""
    if not topic:
        return batch
    names = strings([topic])
    first = pa.Array.from_buffers(
        pa.int32(), batch.num_rows, [None, pa.py_buffer(bytes(4 * batch.num_rows))]
    )
    at = batch.schema.names.index("topic")
    return batch.set_column(at, SCHEMA.field("topic"), names.take(first))


def _differing(before: pa.RecordBatch, after: pa.RecordBatch) -> pa.BooleanArray:
    """Return a mask of records with another key, value or headers."""
    found = pa.nulls(after.num_rows).is_valid()
    for name in (KEY, VALUE):
        a, b = before[name], after[name]
        if a.equals(b):
            continue
        same = pc.or_(pc.equal(a, b).fill_null(FALSE), pc.and_(a.is_null(), b.is_null()))
        found = pc.or_(found, pc.invert(same))
    if not before["headers"].equals(after["headers"]):
        found = pc.or_(found, _other_headers(before["headers"], after["headers"]))
    return found


def _other_headers(before: pa.ListArray, after: pa.ListArray) -> pa.BooleanArray:
    """Return a mask of records with other headers; none and an empty list are the same."""
    were, are = (column.value_lengths().fill_null(_NONE) for column in (before, after))
    same = pc.equal(were, are)
    before, after = before.filter(same), after.filter(same)
    pairs, others = before.flatten(), after.flatten()
    if not len(pairs):
        return pc.invert(same)
    differ = pc.not_equal(pairs.field("key"), others.field("key"))
    a, b = pairs.field("value"), others.field("value")
    equal = pc.or_(pc.equal(a, b).fill_null(FALSE), pc.and_(a.is_null(), b.is_null()))
    differ = pc.or_(differ, pc.invert(equal))
    rows = marked_rows(pc.list_parent_indices(before).filter(differ), len(before))
    return pc.invert(same) if rows is None else pc.replace_with_mask(pc.invert(same), same, rows)


def _marked(batch: pa.RecordBatch, changed: Sequence[bool], value: bytes) -> pa.RecordBatch:
    """Add the header to the records that were changed."""
    if not any(changed):
        return batch
    headers = [
        [*(held or ()), (MARK, value)] if is_changed else held
        for held, is_changed in zip(headers_of(batch["headers"]), changed, strict=True)
    ]
    at = batch.schema.names.index("headers")
    return batch.set_column(at, SCHEMA.field("headers"), header_column(headers))

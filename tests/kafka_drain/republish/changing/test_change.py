"""A change applied to batches: what is left out, what is changed, and what is refused."""

from __future__ import annotations

import io
import json
import pickle
import sys
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_drain.data_files.content_hash import digest_of, digest_text
from kafka_drain.data_files.rows import Row, columns_of, rows_of
from kafka_drain.errors import ConfigError, MachineError, SourceRecordError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing import change as module
from kafka_drain.republish.changing import json_column
from kafka_drain.republish.changing.change import MARK, Change, Changed, header_column
from kafka_drain.republish.changing.function import find_function
from kafka_drain.republish.changing.masks import Pseudonym
from kafka_drain.republish.changing.spec import ChangeRequest, ChangeSpec
from kafka_drain.schemas.decoders import SchemaText
from tests.kafka_drain.data_files.test_rows import batch_of
from tests.kafka_drain.republish.changing.test_avro_fields import ORDER, SCHEMA, encoded
from tests.tables import each_of

HERE = "tests.kafka_drain.republish.changing.user_functions"
TP, KEY = TopicPartition("t", 0), b"a secret key of pseudonyms"
TIME = {"type": "long", "logicalType": "timestamp-millis"}
UNTIL = {
    "type": "record",
    "name": "Until",
    "fields": [{"name": "id", "type": "long"}, {"name": "until", "type": TIME}],
}
#: Id 42; until the end of time, for which Python has no date.
FOR_EVER = b"\0\0\0\0\4\x54\xfe" + b"\xff" * 8 + b"\1"
SCHEMAS: Any = {
    1: SchemaText("AVRO", json.dumps(SCHEMA)),
    2: SchemaText("JSON", "{}"),
    3: SchemaText(
        "PROTOBUF",
        'syntax = "proto3"; enum Kind { TEST = 0; REAL = 1; } message M { Kind kind = 1; }',
    ),
    4: SchemaText("AVRO", json.dumps(UNTIL)),
}


def change_of(function: str = "", **wanted: Any) -> Change:
    found = find_function(f"{HERE}:{function}").id if function else None
    spec = ChangeSpec(ChangeRequest(function=found.name if found else "", **wanted), found, "id")
    return Change(spec, SCHEMAS, KEY)


def changed(rows: list[Row], change: Change, **more: Any) -> tuple[list[Row], Changed]:
    result = change.open().apply(batch_of(rows), TP, **more)
    return list(rows_of(result.batch)), result


def row(value: Any, *, key: Any = b"k", headers: Any = None, offset: int = 7) -> Row:
    return key, value, headers, 1, offset


def pseudonym(content: bytes) -> bytes:
    found = Pseudonym(KEY).of_bytes(content)
    assert found is not None
    return found


AVRO = b"\0\0\0\0\1" + encoded(ORDER)
GUID = "01234567-89ab-cdef-0123-456789abcdef"
CASES: dict[str, tuple[dict[str, Any], Row, Row | None]] = {
    "masked": ({"mask": ("$.a",)}, row(b'{"a":"x", "b": 1.50}'), row(b'{"a":"***", "b": 1.50}')),
    "masked by a text": ({"mask": ("$.a=-",)}, row(b'{"a":"x"}'), row(b'{"a":"-"}')),
    "no such field": ({"mask": ("$.z",)}, row(b'{"a":"x"}'), row(b'{"a":"x"}')),
    "tombstone": ({"mask": ("$.a",)}, row(None), row(None)),
    "behind a JSON schema": (
        {"mask": ("$.a",)}, row(b'\0\0\0\0\2{"a":"x"}'), row(b'\0\0\0\0\2{"a":"***"}'),
    ),
    "number behind a JSON schema": (
        {"mask": ("$.a", "$.b")}, row(b'\0\0\0\0\2{"a":1, "b":"x\\n"}'),
        row(b'\0\0\0\0\2{"a":0, "b":"***"}'),
    ),
    "nothing behind a JSON schema": (
        {"mask": ("$.a",)}, row(b'\0\0\0\0\2{"b":1}'), row(b'\0\0\0\0\2{"b":1}'),
    ),
    "schema in a header": (
        {"mask": ("$.a",)},
        row(b'{"a":5}', headers=[("__value_schema_id", b"\0\0\0\0\2")]),
        row(b'{"a":0}', headers=[("__value_schema_id", b"\0\0\0\0\2")]),
    ),
    "Avro": (
        {"mask": ("$.email",), "hashed": ("$.home.city",)}, row(AVRO),
        row(b"\0\0\0\0\1" + encoded(
            {**ORDER, "email": "***", "home": {"city": pseudonym(b"X").decode(), "zip": 12345}}
        )),
    ),
    "hashed key": ({"hashed": ("key",)}, row(b"v", key=b"id"), row(b"v", key=pseudonym(b"id"))),
    "no key": ({"hashed": ("key",)}, row(b"v", key=None), row(b"v", key=None)),
    "field of the key": (
        {"hashed": ("key:$.id",)}, row(b"v", key='{"id":"é"}'.encode()),
        row(b"v", key=b'{"id":"%s"}' % pseudonym("é".encode())),
    ),
    "hashed and masked headers": (
        {"hashed": ("header:a",), "mask": ("header:b=",), "drop_headers": ("c",)},
        row(b"v", headers=[("a", b"1"), ("c", b"2"), ("b", b"3"), ("a", None), ("d", b"4")]),
        row(b"v", headers=[("a", pseudonym(b"1")), ("b", b""), ("a", None), ("d", b"4")]),
    ),
    "last header dropped": (
        {"drop_headers": ("c",)}, row(b"v", headers=[("c", b"")]), row(b"v", headers=None),
    ),
    "kept": ({"filters": ("$.a=1",)}, row(b'{"a":1}'), row(b'{"a":1}')),
    "left out": ({"filters": ("$.a=1",)}, row(b'{"a":2}'), None),
    "left out of Avro": ({"filters": ("$.home.city=Y",)}, row(AVRO), None),
    "kept of Avro": ({"filters": ("$.home.city=X", "$.kind=B")}, row(AVRO), row(AVRO)),
    "kept of Avro with an odd time": ({"filters": ("$.id=42",)}, row(FOR_EVER), row(FOR_EVER)),
    "filtered before the change": (
        {"filters": ("$.a=1",), "mask": ("$.a",)}, row(b'{"a":1}'), row(b'{"a":0}'),
    ),
    "left out of Protobuf": (
        {"filters": ("not $.kind=REAL",)}, row(b"\0\0\0\0\3\0\x08\1"), None,
    ),
    # A producer leaves out 0, false and an enum's first name.
    "left out of Protobuf by a default": (
        {"filters": ("not $.kind=TEST",)}, row(b"\0\0\0\0\3\0"), None,
    ),
    "kept of Protobuf by a default": (
        {"filters": ("$.kind=TEST",)}, row(b"\0\0\0\0\3\0"), row(b"\0\0\0\0\3\0"),
    ),
    "bytes without a path": ({"filters": ("not $.a",)}, row(b"\xff"), row(b"\xff")),
}  # fmt: skip


@pytest.fixture(autouse=True, params=[False, True], ids=["records", "columns"])
def least_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply changes record by record, and to whole columns, as in larger batches."""
    if request.param:
        monkeypatch.setattr(json_column, "LEAST_ROWS", 1)


@each_of("case", CASES)
def test_apply(case: str) -> None:
    """One record: what it becomes, or that it is left out; both are counted."""
    wanted, given, expected = CASES[case]
    rows, result = changed([given], change_of(**wanted))

    assert rows == ([] if expected is None else [expected])
    assert result.dropped == (expected is None)
    assert result.changed.to_pylist() == ([] if expected is None else [expected != given])


@pytest.mark.parametrize(
    ("wanted", "value", "said"),
    [
        ({"mask": ("$.a",)}, b"secret", "can't be replaced in the value .it isn't JSON"),
        ({"mask": ("$.a",)}, b"\xffsecret", "can't be replaced in the value .it isn't JSON"),
        ({"mask": ("$.a",)}, b"\0\0\0\0\2secret", "it isn't JSON"),
        ({"mask": ("$.a",)}, b"\0\0\0\0\3secret", "its schema is of type PROTOBUF"),
        ({"mask": ("$.a",)}, b"\0\0\0\0\x09secret", "schema id 9 is unknown"),
        ({"mask": ("$.email",)}, b"\0\0\0\0\1secret", "isn't a value of its schema"),
        ({"mask": ("$.home",)}, AVRO, "is a record"),
        ({"hashed": ("$.a",)}, b'{"a":{"b":"secret"}}', "is an object or an array"),
        ({"filters": ("$.a=1",)}, b"\0\0\0\0\x09secret", "schema id 9 is unknown, which the value"),
        ({"filters": ("not $.a",)}, b"\0\0\0\0\1secret", "isn't a value of its schema, id 1"),
        ({"filters": ("not $.a=1",)}, b"\0\0\0\0\2secret", "isn't a value of its schema, id 2"),
    ],
)
def test_apply_refused(wanted: dict[str, Any], value: bytes, said: str) -> None:
    """A record that can't be changed as asked is named, and nothing of it is shown."""
    rows = [row(None, offset=5), row(b"secret", key=None, offset=6), row(value, offset=9)]
    with pytest.raises(SourceRecordError, match=f"{said}.* at offset 9 of t-0") as refused:
        changed([rows[0], rows[2]], change_of(**wanted))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("library", "value", "said"),
    [
        ("grpc_tools", b"\0\0\0\0\3\0", "needs the extra protobuf"),
        ("fastavro", AVRO, "needs fastavro"),
    ],
)
def test_apply_filter_without_library(
    library: str, value: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a filter can't read values, none is sent: all would pass a condition with `not`."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MachineError, match=said):
        changed([row(value)], change_of(filters=("not $.home.city=X",)))


def test_apply_filter_text_not_utf8() -> None:
    """A record of Avro whose other field isn't UTF-8 doesn't pass a filter that excludes it."""
    flat = {
        "type": "record", "name": "R",
        "fields": [{"name": "country", "type": "string"}, {"name": "note", "type": "string"}],
    }  # fmt: skip
    change = replace(
        change_of(filters=("not $.country=DE",)), schemas={1: SchemaText("AVRO", json.dumps(flat))}
    )
    with pytest.raises(SourceRecordError, match="at offset 7 of t-0"):
        changed([row(b"\0\0\0\0\1\4DE\2\xff")], change)


def test_apply_refused_after_filter() -> None:
    """The record is the right one also where others before it were left out."""
    rows = [row(b"{}", key=b"x", offset=1), row(b"{", offset=4)]
    with pytest.raises(SourceRecordError, match="at offset 4 of t-0"):
        changed(rows, change_of(filters=("key=k",), mask=("$.a",)))


def test_apply_function() -> None:
    """A function comes after filter, mask and hash; it is given the topic."""
    rows = [row(b'{"a":"x"}', offset=1), row(None, offset=2), row(b'{"a":"y"}', key=b"z", offset=3)]
    change = change_of("tombstones_out", mask=("$.a=masked",), filters=("key=k",))
    found, result = changed(rows, change, twice=True)

    assert found == [row(b'{"A":"MASKED"}', offset=1)]
    assert (result.dropped, result.changed.to_pylist()) == (2, [True])


@pytest.mark.parametrize("function", ["random_values", "numbered_in_batch"])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_apply_function_not_of_each_record(function: str, rows: int) -> None:
    """A function that gives something else the second time, or in another batch, is found."""
    given = [row(b"v", offset=n) for n in range(rows)]
    if function == "numbered_in_batch" and rows < 3:
        changed(given, change_of(function), twice=True)
        return
    with pytest.raises(ConfigError, match="isn't a function of each record alone"):
        changed(given, change_of(function), twice=True)


def test_apply_mark() -> None:
    """A header says which records were changed, and by what; the others stay as they are."""
    rows = [row(b'{"a":"x"}', offset=1, headers=[("h", b"1")]), row(b'{"b":"x"}', offset=2)]
    change = change_of(mask=("$.a",), mark=True)
    found, result = changed(rows, change)

    mark = change.spec.digest[:12].encode()
    assert found == [
        row(b'{"a":"***"}', offset=1, headers=[("h", b"1"), (MARK, mark)]),
        row(b'{"b":"x"}', offset=2),
    ]
    assert result.changed.to_pylist() == [True, False]


def test_hits() -> None:
    """How often each field was there is counted, and which schemas were used."""
    changer = change_of(mask=("$.email", "$.a", "header:h"), hashed=("key",)).open()
    rows = [row(AVRO, offset=1), row(b'{"a":1,"a":2}', headers=[("h", b"")], offset=2)]
    changer.apply(batch_of([*rows, row(None, key=None, offset=3)]), TP)

    assert changer.hits == {"$['email']": 1, "$['a']": 2, "header:h": 1, "key": 2}
    assert [*changer.seen] == [1]


def test_change_to_dict() -> None:
    """A change passes to another process, by JSON and by pickle; its repr doesn't show the key."""
    change = change_of("nothing", mask=("$.a",), hashed=("key",), filters=("key=secret",))
    read = Change.from_dict(json.loads(json.dumps(change.to_dict())))

    assert read == change == pickle.loads(pickle.dumps(change))
    assert "secret" not in repr(change)


VALUES = st.sampled_from([None, b"", b'{"a":1,"s":"x"}', b'{"a":2}', b'{"s":"y","a":1}', b"[1]"])
HEADS = st.none() | st.lists(
    st.tuples(st.sampled_from("ab"), st.none() | st.just(b"1")), max_size=2
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(VALUES, HEADS), min_size=1, max_size=12), st.data())
def test_apply_in_parts_property(given_: list[Any], data: st.DataObject) -> None:
    """However a resumed run cuts the records into batches, the same records come out."""
    wanted: dict[str, Any] = {
        "filters": data.draw(st.sampled_from([(), ("$.a=1",), ("not header:a",)])),
        "mask": data.draw(st.sampled_from([(), ("$.s",), ("$.s", "header:a")])),
        "hashed": data.draw(st.sampled_from([(), ("key",)])),
        "drop_headers": data.draw(st.sampled_from([(), ("b",)])),
        "mark": data.draw(st.booleans()),
    }
    change = change_of(data.draw(st.sampled_from(["", "tombstones_out", "by_rows"])), **wanted)
    rows = [
        row(value or (b"{}" if value == b"" else None), headers=headers or None, offset=2 * n)
        for n, (value, headers) in enumerate(given_)
    ]
    whole, result = changed(rows, change)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows)), max_size=3)) | {0, len(rows)})
    parts = [changed(rows[a:b], change) for a, b in pairwise(cuts)]

    assert [one for found, _ in parts for one in found] == whole
    assert sum(part.dropped for _, part in parts) == result.dropped == len(rows) - len(whole)
    assert [c for _, part in parts for c in part.changed.to_pylist()] == result.changed.to_pylist()
    digests = sum(digest_of(columns_of(part.batch)) for _, part in parts)
    assert digest_text(digests) == digest_text(digest_of(columns_of(result.batch)))


def test_apply_large() -> None:
    """In a batch of all kinds of records, each becomes what it becomes alone."""
    flat = {
        "type": "record", "name": "R",
        "fields": [{"name": "a", "type": ["null", "string"]}, {"name": "b", "type": "long"}],
    }  # fmt: skip
    schemas = {**SCHEMAS, 4: SchemaText("AVRO", json.dumps(flat))}
    kinds = [
        b'{"a":"x","b":1}', b'{"a":null}', b'{"b":2}', b'{"a":[1]}', b'{"a":"\\n"}', None,
        b"\0\0\0\0\4\2\2x\xac\2", b"\0\0\0\0\4\0\2", b'\0\0\0\0\2{"a":"x"}', b' {"a":"x"}',
    ]  # fmt: skip
    given = [row(kinds[n % 10], key=b"%d" % (n % 30), offset=n) for n in range(1_500)]
    for wanted in ({"mask": ("$.a",)}, {"mask": ("$.a", "$.b"), "hashed": ("key",)}):
        change = replace(change_of(**wanted), schemas=schemas)
        changer = change.open()
        whole = changer.apply(batch_of(given), TP)
        one_by_one = change.open()
        alone = [one_by_one.apply(batch_of([one]), TP) for one in given[:30]]
        expected = [found for result in alone for found in rows_of(result.batch)]
        assert [one[:4] for one in rows_of(whole.batch)] == [one[:4] for one in expected] * 50
        assert whole.changed.to_pylist() == [r.changed[0].as_py() for r in alone] * 50
        assert changer.hits == {name: 50 * hits for name, hits in one_by_one.hits.items()}


def test_digest_of() -> None:
    """Records that change places, or one more or less, have another digest."""
    a, b = row(b"a", offset=1), row(b"b", offset=2)
    swapped = [row(b"b", offset=1), row(b"a", offset=2)]
    found = [digest_of(columns_of(batch_of(rows))) for rows in ([a, b], swapped, [a], [b], [])]
    assert len(set(found)) == 5
    assert digest_of(columns_of(batch_of([b, a]))) == found[0]
    assert digest_text(-1) == "f" * 16


def test_header_column() -> None:
    """Headers are the same after they were made a column again."""
    rows: list[Any] = [None, [("a", b"1"), ("é", None)], [], [("a", b"")]]
    found = header_column(rows)
    found.validate(full=True)
    assert found.to_pylist() == [
        None, [{"key": "a", "value": b"1"}, {"key": "é", "value": None}], None,
        [{"key": "a", "value": b""}],
    ]  # fmt: skip
    assert isinstance(found, pa.ListArray)
    assert header_column([]).to_pylist() == []


def test_avro_decodes() -> None:
    """What is sent is Avro that a reader decodes to the same record but for the field."""
    rows, _ = changed([row(AVRO)], change_of(mask=("$.tags[*]", "$.notes.*", "$.id", "$.rate")))
    payload = rows[0][1]
    assert payload is not None
    source = io.BytesIO(payload[5:])
    decoded = fastavro.schemaless_reader(source, fastavro.parse_schema(SCHEMA))
    at = fastavro.schemaless_reader(io.BytesIO(AVRO[5:]), fastavro.parse_schema(SCHEMA))["at"]
    assert decoded == {
        **ORDER, "at": at, "tags": ["***"] * 2, "notes": {"n": "***", "m": None},
        "id": 0, "rate": 0.0,
    }  # fmt: skip


HEADERS: list[Any] = [
    None, [], [("a", b"1")], [("a", b"2")], [("a", None)], [("b", b"1")],
    [("a", b"1"), ("b", b"1")], [("b", b"1"), ("a", b"1")],
]  # fmt: skip


@pytest.mark.parametrize("only", ["all", "same count", "other count", "no pairs", "one"])
def test_differing_headers(only: str) -> None:
    """Records differ by any name, value or place of a header; none and no headers are the same."""
    pairs = [
        (a, b)
        for a, b in product(HEADERS, HEADERS)
        if only == "all"
        or (only == "same count" and len(a or ()) == len(b or ()))
        # No two lists of the same length differ.
        or (only == "other count" and ((a or ()) == (b or ()) or len(a or ()) != len(b or ())))
        or (only == "no pairs" and (len(a or ()) != len(b or ()) or not (a or b)))
        or (only == "one" and b == HEADERS[2])
    ]
    before, after = (
        batch_of([row(b"v", headers=pair[side], offset=at) for at, pair in enumerate(pairs)])
        for side in (0, 1)
    )

    found = module._differing(before, after)

    assert found.to_pylist() == [(a or []) != (b or []) for a, b in pairs]


@pytest.mark.parametrize("is_turned", [False, True])
def test_apply_filter_order(is_turned: bool) -> None:
    """Headers decide first, in the plan and when sending: contents may be of an unknown schema."""
    rows = [
        row(AVRO, headers=[("type", b"a")], offset=1),
        row(b"\0\0\0\0\x09x", headers=[("type", b"b")], offset=2),
    ]
    filters = ("header:type=a", "$.home.city=X")
    change = change_of(filters=filters[::-1] if is_turned else filters)
    sent = replace(change, spec=ChangeSpec.from_dict(change.spec.to_dict()))

    for each, twice in ((change, True), (sent, False)):
        assert changed(rows, each, twice=twice)[1].dropped == 1

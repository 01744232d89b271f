"""Schema ids in records: found and replaced, in the payload's prefix and in headers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_drain.data_files.records import SCHEMA
from kafka_drain.errors import SourceRecordError
from kafka_drain.schemas.schema_ids import (
    HEADERS,
    IdLocation,
    SchemaIds,
    id_in,
    id_of_payload,
    with_id,
)
from kafka_drain.schemas.wire_format import count_ids, translated
from tests.kafka_drain.schemas.records import G1, G2, IDS, batch_of, guid, prefix, row


def expected_row(one: dict[str, Any], schema_ids: SchemaIds, topic: str) -> dict[str, Any]:
    """Translate one record, slowly."""
    found = dict(one)
    pairs = [dict(pair) for pair in one["headers"] or ()]
    for part, name in HEADERS.items():
        if f"{topic}:{part}" in schema_ids.kept:
            continue
        carried = [
            pair for pair in pairs if pair["key"] == name and id_in(pair["value"]) is not None
        ]
        for pair in carried:
            pair["value"] = with_id(pair["value"], schema_ids)
        if not carried and id_of_payload(one[part]) is not None:
            found[part] = with_id(one[part], schema_ids)
    return found | {"headers": None if one["headers"] is None else pairs}


PAYLOADS = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.builds(lambda i, b: prefix(i) + b, st.sampled_from(sorted(IDS.ids)), st.binary(max_size=9)),
)
CONTENTS = st.one_of(
    PAYLOADS, st.builds(lambda g, b: guid(g) + b, st.sampled_from([G1, G2]), st.binary(max_size=3))
)
ROWS = st.builds(
    row,
    PAYLOADS,
    PAYLOADS,
    st.one_of(
        st.none(),
        st.lists(st.tuples(st.sampled_from([*HEADERS.values(), "x"]), CONTENTS), max_size=3),
    ),
)


@given(
    st.lists(ROWS, max_size=12),
    st.integers(0, 5),
    st.sets(st.sampled_from(["t:key", "t:value", "u:value"])),
)
@example([row(None, prefix(1)), row(None, None, [("__value_schema_id", guid(G1))])], 1, set())
def test_translated_property(rows: list[dict[str, Any]], start: int, kept: set[str]) -> None:
    """Each record is translated as if it were alone, in slices too, and back again."""
    schema_ids = SchemaIds(IDS.ids, IDS.guids, frozenset(kept))
    batch = batch_of(rows).slice(start)
    rows = batch.to_pylist()
    try:
        expected = [expected_row(one, schema_ids, "t") for one in rows]
    except SourceRecordError:
        with pytest.raises(SourceRecordError):
            translated(batch, schema_ids, "t")
        return

    found = translated(batch, schema_ids, "t")

    found.validate(full=True)
    assert found.schema == SCHEMA
    assert found.to_pylist() == expected
    back = SchemaIds(
        {new: old for old, new in IDS.ids.items()},
        {new: old for old, new in IDS.guids.items()},
        frozenset(kept),
    )
    assert translated(found, back, "t").to_pylist() == rows


@given(st.lists(ROWS, max_size=12), st.integers(0, 5))
def test_count_ids_property(rows: list[dict[str, Any]], start: int) -> None:
    """Each id is counted where it is read: in the header if it is there, else in the payload."""
    batch = batch_of(rows).slice(start)
    expected: Counter[IdLocation] = Counter()
    for one in batch.to_pylist():
        for part, name in HEADERS.items():
            contents = [pair["value"] for pair in one["headers"] or () if pair["key"] == name]
            carried = [found for found in map(id_in, contents) if found is not None]
            if not carried and one[part] is not None:
                carried = [id_of_payload(one[part])]
            expected.update(IdLocation("t", part, found) for found in carried)

    assert count_ids(batch, "t") == expected


def test_translated_payload_without_prefix() -> None:
    """A payload whose GUID is in a header has no prefix, even if it starts with a zero byte."""
    batch = batch_of([row(prefix(1), prefix(999), [("__value_schema_id", guid(G1))])])

    [found] = translated(batch, IDS, "t").to_pylist()

    assert (found["key"], found["value"]) == (prefix(70_000), prefix(999))
    assert found["headers"] == [{"key": "__value_schema_id", "value": guid(G2)}]


def test_translated_kept_id() -> None:
    """An id that is kept in one part stays, in payloads and headers; it is translated elsewhere."""
    header = [("__value_schema_id", guid(G1))]
    batch = batch_of(
        [row(prefix(1), prefix(1)), row(None, prefix(1) + b"x"), row(None, None, header)]
    )
    kept = SchemaIds(IDS.ids, IDS.guids, frozenset({"t:value:1", f"t:value:{G1}", "u:key:1"}))

    found = translated(batch, kept, "t").to_pylist()

    assert [one["key"] for one in found] == [prefix(70_000), None, None]
    assert [one["value"] for one in found] == [prefix(1), prefix(1) + b"x", None]
    assert found[2]["headers"] == [{"key": "__value_schema_id", "value": guid(G1)}]

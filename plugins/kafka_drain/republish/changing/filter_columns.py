"""Decide for whole columns which records a filter keeps.

Keys and headers are compared as they are, and so are texts in JSON, wherever that is certain
(`json_column`). Only the rows that this leaves undecided are decoded, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.scalars import FALSE, binaries, booleans
from kafka_drain.republish.changing import json_column
from kafka_drain.republish.changing.columns import marked_rows, rows_with_header, strings
from kafka_drain.republish.changing.conditions import Condition, Filter
from kafka_drain.republish.changing.fields import KEY
from kafka_drain.republish.changing.json_column import JsonTexts
from kafka_drain.schemas import exact_json
from kafka_drain.schemas.schema_ids import HEADERS
from kafka_drain.schemas.value_path import ValuePath, bytes_of

#: Returns the decoded keys or values of some rows of a batch, in their order.
Decoded = Callable[[str, pa.BooleanArray], Iterable[object]]


class FilterColumns:
    """Decides for a batch."""

    def __init__(self, filter: Filter) -> None:
        self._groups = [
            [(condition, JsonTexts(condition.where.steps or ())) for condition in group]
            for group in filter.groups
        ]

    def keeps(self, batch: pa.RecordBatch, decoded: Decoded) -> pa.BooleanArray:
        """Return a mask of the records to keep.

        Args:
            batch: The records.
            decoded: Decodes; only what the conditions before leave open is asked for.
        """
        none = pa.nulls(batch.num_rows).is_valid()
        kept = pc.invert(none)
        for group in self._groups:
            any_holds = none
            for condition, texts in group:
                undecided = pc.and_(kept, pc.invert(any_holds))
                if condition.where.steps is None:
                    has = _has_bytes(condition, batch)
                else:
                    has = _has_content(condition, texts, batch, undecided, decoded)
                holds = pc.invert(has) if condition.is_negated else has
                any_holds = pc.or_(any_holds, holds)
            kept = pc.and_(kept, any_holds)
        return kept


def _has_bytes(condition: Condition, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return a mask of records with the key or the header that a condition names."""
    where, expected = condition.where, condition.expected
    value = None if expected is None else binaries([bytes_of(where.part, expected)])[0]
    if where.part == KEY:
        keys = batch[KEY]
        return keys.is_valid() if value is None else pc.equal(keys, value).fill_null(FALSE)
    pairs = batch["headers"].flatten()
    found = pc.is_in(pairs.field("key"), value_set=strings([where.header]))
    if value is not None:
        found = pc.and_(found, pc.equal(pairs.field("value"), value).fill_null(FALSE))
    rows = pc.list_parent_indices(batch["headers"]).filter(found)
    has = marked_rows(rows, batch.num_rows)
    return pa.nulls(batch.num_rows).is_valid() if has is None else has


def _has_content(
    condition: Condition,
    texts: JsonTexts,
    batch: pa.RecordBatch,
    undecided: pa.BooleanArray,
    decoded: Decoded,
) -> pa.BooleanArray:
    """Return a mask of undecided records with the content that a condition names."""
    where, expected = condition.where, condition.expected
    assert where.steps is not None
    has, left = pc.invert(undecided), undecided
    if batch.num_rows >= json_column.LEAST_ROWS:
        has, is_certain = _has_text(condition, texts, batch)
        left = pc.and_(undecided, pc.invert(is_certain))
    if pc.any(left).as_py():
        path = ValuePath(where.steps, expected)
        new = booleans([path.matches(content) for content in decoded(where.part, left)])
        has = pc.replace_with_mask(has, left, new)
    return has


def _has_text(
    condition: Condition, texts: JsonTexts, batch: pa.RecordBatch
) -> tuple[pa.BooleanArray, pa.BooleanArray]:
    """Return two masks for a condition on JSON: where it holds, and where that is certain."""
    where, expected = condition.where, condition.expected
    column, headers = batch[where.part], batch["headers"]
    named = rows_with_header(headers, HEADERS[where.part])
    plain = pc.starts_with(column, pattern=b"{").fill_null(FALSE)
    plain = plain if named is None else pc.and_(plain, pc.invert(named))
    found, certain = texts.of(column.filter(plain))
    has = found.is_valid() if expected is None else pc.is_in(found, value_set=_texts(expected))
    has, certain = (pc.replace_with_mask(plain, plain, each) for each in (has, certain))
    # A tombstone has no members.
    return has, pc.or_(certain, column.is_null()) if where.steps else certain


def _texts(expected: str) -> pa.LargeBinaryArray:
    """Return the texts that a condition expects: this one, or the one that it is in JSON."""
    found = [expected]
    try:
        decoded = exact_json.decoded(expected)
    except (ValueError, RecursionError):
        decoded = None
    if isinstance(decoded, str):
        found.append(decoded)
    return binaries(text.encode("utf-8", "surrogatepass") for text in found)

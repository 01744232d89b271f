"""Decide for whole columns which records a filter keeps, wherever that is certain.

The other records are left to `conditions`, which decodes them one by one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.scalars import FALSE, binaries
from kafka_drain.republish.changing import json_column
from kafka_drain.republish.changing.columns import marked_rows, rows_with_header, strings
from kafka_drain.republish.changing.conditions import Condition, Filter
from kafka_drain.republish.changing.fields import KEY
from kafka_drain.republish.changing.json_column import JsonTexts
from kafka_drain.schemas import exact_json
from kafka_drain.schemas.schema_ids import HEADERS
from kafka_drain.schemas.value_path import bytes_of


class FilterColumns:
    """Decides for a batch."""

    def __init__(self, filter: Filter) -> None:
        self._groups = [
            [(condition, JsonTexts(condition.where.steps or ())) for condition in group]
            for group in filter.groups
        ]

    def keeps(self, batch: pa.RecordBatch) -> tuple[pa.BooleanArray, pa.BooleanArray]:
        """Return which records are kept, and for which ones that has to be decided one by one."""
        none = pa.nulls(batch.num_rows).is_valid()
        kept, left = pc.invert(none), none
        if batch.num_rows < json_column.LEAST_ROWS:
            return kept, kept
        for group in self._groups:
            any_holds = none
            for condition, texts in group:
                has, is_certain = _has(condition, texts, batch)
                holds = pc.invert(has) if condition.is_negated else has
                any_holds = pc.or_(any_holds, holds)
                left = pc.or_(left, pc.invert(is_certain))
            kept = pc.and_(kept, any_holds)
        return kept, left


def _has(
    condition: Condition, texts: JsonTexts, batch: pa.RecordBatch
) -> tuple[pa.BooleanArray, pa.BooleanArray]:
    """Return which records have what a condition names, and for which ones that is certain."""
    where, expected = condition.where, condition.expected
    none = pa.nulls(batch.num_rows).is_valid()
    if where.steps is not None:
        column, headers = batch[where.part], batch["headers"]
        named = rows_with_header(headers, HEADERS[where.part])
        plain = pc.starts_with(column, pattern=b"{").fill_null(FALSE)
        plain = plain if named is None else pc.and_(plain, pc.invert(named))
        found, certain = texts.of(column.filter(plain))
        has = found.is_valid() if expected is None else pc.is_in(found, value_set=_texts(expected))
        has, certain = (pc.replace_with_mask(plain, plain, each) for each in (has, certain))
        # A tombstone has no members.
        return has, pc.or_(certain, column.is_null()) if where.steps else certain
    value = None if expected is None else binaries([bytes_of(where.part, expected)])[0]
    if where.part == KEY:
        keys = batch[KEY]
        has = keys.is_valid() if value is None else pc.equal(keys, value).fill_null(FALSE)
        return has, pc.invert(none)
    pairs = batch["headers"].flatten()
    if not len(pairs):
        return none, pc.invert(none)
    found = pc.is_in(pairs.field("key"), value_set=strings([where.header]))
    if value is not None:
        found = pc.and_(found, pc.equal(pairs.field("value"), value).fill_null(FALSE))
    rows = pc.list_parent_indices(batch["headers"]).filter(found)
    has = marked_rows(rows, batch.num_rows)
    return none if has is None else has, pc.invert(none)


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

"""What Spark needs for decoded values, and what is said of them, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain_spark import decoding
from kafka_drain_spark.decoding import (
    count_columns,
    counts_line,
    sources_of,
    total_counts,
    with_decoded,
)

AVRO = {"encoding": "avro", "reader": "string", "writers": {"5": "string", "7": "string"}}
JSON = {"encoding": "json", "columns": "a INT"}


@pytest.mark.parametrize(
    ("file_format", "values", "sources"),
    [
        ("parquet", None, {"parquet"}),
        ("parquet", JSON, {"parquet"}),
        ("parquet", AVRO, {"parquet", "avro"}),
        ("avro", None, {"avro"}),
    ],
)
def test_sources_of(file_format: str, values: Any, sources: set[str]) -> None:
    """Spark needs Avro's jar to decode Avro, and not for JSON."""
    assert sources_of(file_format, values) == sources


def test_with_decoded_without_values() -> None:
    """Nothing is added to records whose values aren't decoded."""
    records: Any = object()

    assert with_decoded(records, None) is records


def test_count_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way in which a value may stay raw is counted; an unknown id is told of by its bounds."""

    def expr(text: str) -> Any:
        return SimpleNamespace(alias=lambda name: (name, text))

    monkeypatch.setattr(decoding, "F", SimpleNamespace(expr=expr))

    found: list[Any] = [count_columns(values) for values in (JSON, AVRO)]
    of_json, of_avro = map(dict, found)

    assert of_json.keys() == {"decoded", "tombstones", "not_decodable"}
    assert of_avro.keys() == of_json.keys() | {
        "not_in_wire_format",
        "unknown_schema_id",
        "lowest_unknown_id",
        "highest_unknown_id",
    }
    assert of_avro["lowest_unknown_id"].startswith("min(")
    assert of_avro["highest_unknown_id"].startswith("max(")
    assert "IN (-1, 5, 7) AND value_decoded IS NULL" in of_avro["not_decodable"]
    for name in ("unknown_schema_id", "lowest_unknown_id", "highest_unknown_id"):
        assert "value_schema_id NOT IN (-1, 5, 7)" in of_avro[name]


def test_total_counts() -> None:
    """Batches are added up; of unknown ids, the lowest and the highest of all batches stay."""
    none = {"lowest_unknown_id": None, "highest_unknown_id": None}
    batches: list[dict[str, Any]] = [
        {**none, "decoded": 3, "unknown_schema_id": 0},
        {"decoded": 1, "unknown_schema_id": 2, "lowest_unknown_id": 5, "highest_unknown_id": 9},
        {"decoded": 0, "unknown_schema_id": 0, **none},
        {"decoded": 2, "unknown_schema_id": 1, "lowest_unknown_id": 7, "highest_unknown_id": 7},
        {"decoded": 0, "unknown_schema_id": 1, "lowest_unknown_id": 2, "highest_unknown_id": 11},
    ]

    assert total_counts(batches) == {
        "decoded": 6,
        "unknown_schema_id": 4,
        "lowest_unknown_id": 2,
        "highest_unknown_id": 11,
    }
    assert total_counts(batches[:1]) == {"decoded": 3, "unknown_schema_id": 0}
    assert total_counts([]) == {}


UNKNOWN = {"unknown_schema_id": 2000, "lowest_unknown_id": 5, "highest_unknown_id": 9}


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ({}, "values: 0 decoded"),
        ({"decoded": 1000, "tombstones": 2}, "values: 1,000 decoded, 2 without a value"),
        (
            {"decoded": 0, **UNKNOWN},
            "values: 0 decoded, 2,000 of unknown schema ids (5 to 9); undecoded values stay raw",
        ),
        (
            {"decoded": 1, **UNKNOWN, "highest_unknown_id": 5},
            "values: 1 decoded, 2,000 of unknown schema ids (5); undecoded values stay raw",
        ),
        (
            {"decoded": 1, "not_decodable": 2, "not_in_wire_format": 3},
            "values: 1 decoded, 2 not decodable, 3 not in wire format; undecoded values stay raw",
        ),
    ],
)
def test_counts_line(counts: Mapping[str, int], line: str) -> None:
    """The log says how many values were decoded, and why others stay raw."""
    assert counts_line(counts) == line

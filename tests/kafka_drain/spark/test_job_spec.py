"""What a spec says of the query that it asks for."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from kafka_drain.spark.job_spec import DrainSpec

SPEC = DrainSpec(
    pipeline="p",
    reader_options={"subscribe": "t"},
    file_format="parquet",
    writer_options={"path": "/a/generations/0001/data"},
    partition_by=["topic"],
    columns={"date": "d"},
    log_levels={},
    start='{"t":{"0":0}}',
    planned_end='{"t":{"0":9}}',
    result_path="/one/result.json",
    secrets_path="/one/secrets.json",
    archive="/a",
)

CHANGES: dict[str, tuple[Any, bool]] = {
    "pipeline": ("q", False),
    "reader_options": ({"subscribe": "t", "maxOffsetsPerTrigger": "9"}, False),
    "poll_options": ({"kafka.max.poll.records": "7"}, True),
    "file_format": ("orc", False),
    "writer_options": ({"path": "/a/generations/0002/data"}, False),
    "partition_by": ([], False),
    "columns": ({}, False),
    "log_levels": ({"org.apache.kafka": "DEBUG"}, True),
    "start": ('{"t":{"0":5}}', True),
    "planned_end": ('{"t":{"0":20}}', True),
    "result_path": ("/two/result.json", True),
    "secrets_path": ("/two/secrets.json", True),
    "values": ({"encoding": "json", "columns": "a INT"}, False),
    "archive": ("/b", False),
    "partitions_per_task": (1, True),
    "notes_path": ("/b/generations/0001/fingerprints", False),
    "first_unlisted": (3, True),
    "encryption": ({"current": "a", "keys": []}, False),
    "skipped": ([{"topic": "t", "partition": 0, "start": 0, "end": 4}], True),
}


def test_changes_of_every_field() -> None:
    """The table below has each field."""
    assert CHANGES.keys() == {field.name for field in fields(DrainSpec)}


@pytest.mark.parametrize("name", CHANGES)
def test_query_key(name: str) -> None:
    """A retry finds the query whose spec differs only in what an attempt brings along."""
    value, is_same = CHANGES[name]

    changed = replace(SPEC, **{name: value})

    assert (changed.query_key == SPEC.query_key) is is_same


def test_source_options() -> None:
    """Limits of a poll replace those that the pipeline's options have."""
    given = {"subscribe": "t", "kafka.max.poll.records": "500"}

    spec = replace(SPEC, reader_options=given, poll_options={"kafka.max.poll.records": "7"})

    assert spec.source_options == {"subscribe": "t", "kafka.max.poll.records": "7"}
    assert replace(spec, poll_options={}).source_options == given

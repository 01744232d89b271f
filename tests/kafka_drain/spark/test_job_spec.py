"""What a spec says of the query that it asks for."""

from __future__ import annotations

import stat
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.spark.job_spec import DrainSpec, read_result, write_private

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


def test_spec_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec is read as it was written, and is never there for other users to read."""
    path, modes = tmp_path / "spec.json", list[int]()
    write_text = Path.write_text

    def noting(self: Path, *given: Any, **how: Any) -> int:
        modes.append(stat.S_IMODE(self.stat().st_mode))
        return write_text(self, *given, **how)

    monkeypatch.setattr(Path, "write_text", noting)
    spec = replace(SPEC, pipeline="Größe", skipped=[{"topic": "t", "partition": 0}])

    spec.write(path)

    assert DrainSpec.read(path) == spec
    assert modes == [0o600]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_read_result(tmp_path: Path) -> None:
    """A result that isn't there, or of which a killed job wrote the beginning, is none."""
    path = tmp_path / "result.json"
    assert read_result(path) is None

    write_private(path, {"records": 3, "topic": "ö"})
    assert read_result(path) == {"records": 3, "topic": "ö"}
    for written in (b"", path.read_bytes()[:-1], "ö".encode()[:1]):
        path.write_bytes(written)
        assert read_result(path) is None


def test_query_key_order() -> None:
    """The order in which options were given makes no other query."""
    given = {"subscribe": "t", "a": "1"}
    other = dict(reversed(given.items()))

    keys = {replace(SPEC, reader_options=each).query_key for each in (given, other)}

    assert len(keys) == 1

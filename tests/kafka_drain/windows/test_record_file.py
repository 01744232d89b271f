"""Archives of files of records: whole, of one file each, and of what can be sent."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.data_files.record_lines import RecordLine
from kafka_drain.errors import ConfigError
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.findings import errors
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.paths import locate
from kafka_drain.windows import record_file
from kafka_drain.windows.record_file import RecordFile, archive_file

NOW = datetime(2026, 5, 1, tzinfo=timezone.utc)
NOW_MS = 1_777_593_600_000

CASES = [
    RecordLine("b", b"k", b"\xff\x00", 3, 7, 1_700_000_000_001, 1, (("h", None), ("h", b"\xfe"))),
    RecordLine("a", None, b"", 0, 9, None),
    RecordLine("b", b"", None, 3, 7, 9_999_999_999_999),
    RecordLine("a", b"k", b"v", None),
]


def write(path: Path, records: list[RecordLine]) -> RecordFile:
    path.write_text("".join(f"{record.line()}\n" for record in records))
    return RecordFile.read(str(path))


def test_archive_file(tmp_path: Path) -> None:
    """It has the records, with offsets of its own, and is sound; made again, it is the same."""
    root = locate(str(tmp_path / "new" / "archive"))
    file = write(tmp_path / "cases.jsonl", CASES)

    archive = archive_file(file, root, now=NOW)

    found = [match.record() for match in Search(archive, Criteria()).matches()]
    assert found == [
        RecordLine("a", None, b"", 0, 0, NOW_MS, 0),
        RecordLine("a", b"k", b"v", 0, 1, NOW_MS, 0),
        RecordLine("b", b"k", b"\xff\x00", 3, 0, 1_700_000_000_001, 1, CASES[0].headers),
        RecordLine("b", b"", None, 3, 1, 9_999_999_999_999, 0),
    ]
    assert errors(validate_archive(archive, None, deep=True).findings) == []
    assert [*(tmp_path / "new").iterdir()] == [tmp_path / "new" / "archive"]
    assert (tmp_path / "new" / "archive").stat().st_mode & 0o777 == 0o700

    later = archive_file(file, root, now=NOW + timedelta(days=1))
    assert [match.record() for match in Search(later, Criteria()).matches()] == found

    edited = write(tmp_path / "cases.jsonl", CASES[:3])
    with pytest.raises(ConfigError, match="has other records than"):
        archive_file(edited, root, now=NOW)


def test_archive_file_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends before the last step leaves no archive, and the next one makes it."""
    file, root = write(tmp_path / "cases.jsonl", CASES), locate(str(tmp_path / "archive"))
    with monkeypatch.context() as patched:
        patched.setattr(record_file, "seal_superseding", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            archive_file(file, root, now=NOW)
    assert not root.exists()
    (tmp_path / "archive").mkdir()

    assert archive_file(file, root, now=NOW).snapshot().windows[0].receipt


def test_archive_file_in_use(tmp_path: Path) -> None:
    """A folder with something else in it is left alone."""
    file, folder = write(tmp_path / "cases.jsonl", CASES), tmp_path / "mine"
    folder.mkdir()
    (folder / "notes").touch()
    with pytest.raises(ConfigError, match="name a new folder"):
        archive_file(file, locate(str(folder)), now=NOW)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cases.jsonl", "mine"]
    with pytest.raises(ConfigError, match="isn't a local folder"):
        archive_file(file, locate("memory://cases"), now=NOW)


@pytest.mark.parametrize(
    ("changed", "keeps_partitions", "said"),
    [
        ({}, True, ""),
        ({"partition": None}, False, ""),
        ({"partition": None}, True, "line 1: partition is missing; give one, or say --placement"),
        ({"timestamp": 0}, True, "line 1: timestamp is 0"),
        ({"timestamp": -1}, True, "line 1: timestamp is -1"),
        ({"headers": [{"name": "a\0b", "value": None}]}, True, "line 1: headers has a name with"),
    ],
)
def test_refuse_unsendable(
    changed: dict[str, Any], keeps_partitions: bool, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(
        json.dumps({"topic": "a", "partition": 0, "key": None, "value": "v", **changed})
    )
    file = RecordFile.read(str(path))
    if not said:
        file.refuse_unsendable(keeps_partitions=keeps_partitions)
        return
    with pytest.raises(ConfigError, match=said):
        file.refuse_unsendable(keeps_partitions=keeps_partitions)


def test_read_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limits, the error names what to use instead; nothing is no file of records."""
    path = tmp_path / "cases.jsonl"
    with pytest.raises(ConfigError, match="can't be read"):
        RecordFile.read(str(path))
    write(path, CASES)
    for name, most, said in (
        ("MOST_RECORDS", 3, "has 4 records, at most 3; send more from an archive"),
        ("MOST_RECORDS", 1, "has 4 lines, at most 1; send more from an archive"),
        ("MOST_BYTES", 100, "has more than 0 MiB; send more from an archive"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(record_file, name, most)
            with pytest.raises(ConfigError, match=said):
                RecordFile.read(str(path))
    path.write_text("\n")
    with pytest.raises(ConfigError, match="has no record"):
        RecordFile.read(str(path))


def test_read_pipe(tmp_path: Path) -> None:
    """A pipe is refused, and not waited for."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ConfigError, match="isn't a file"):
        RecordFile.read(str(tmp_path / "pipe"))

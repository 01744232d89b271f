"""Damage to what Spark keeps of sealed batches, in files that Spark 4.0.2 wrote.

Each is found by preflight's part and by validation, and by a second validation just the same.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation_state import is_of_sealed_batch
from kafka_drain.drain.preflight import refuse_damage
from kafka_drain.errors import CheckpointError
from kafka_drain.findings import Reason, errors, summary
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.proof import committed_file
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import Scope, validate_archive
from kafka_drain.windows.roll import plan_roll, roll
from tests.kafka_drain.golden import (
    CHECKPOINT,
    END,
    MANIFEST,
    P0,
    P1,
    add_batch,
    golden_cluster,
    note_batch,
    open_next,
    sealed_copy,
    state_of,
)
from tests.tables import each_of


@pytest.fixture
def folder(archive: Archive) -> Path:
    """The archive's folder."""
    return Path(str(archive.root))


def write(path: Path, content: bytes) -> None:
    """Write a file of Spark's anew, without the `.crc` that would tell that it was changed."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.write_bytes(content)


def validate_twice(archive: Archive, scope: Scope = "all") -> Report:
    """Validate twice: nothing is sealed, and the second finds what the first did."""
    first, second = (validate_archive(archive, golden_cluster(), scope=scope) for _ in range(2))
    assert errors(first.findings)
    assert first.findings == second.findings
    assert first.receipts_written == second.receipts_written == 0
    return first


def copied_file(folder: Path) -> str:
    """Leave a copy of a data file beside it, as a killed task does; return its manifest line."""
    line = (folder / MANIFEST / "9.compact").read_text().split("\n")[1]
    entry = json.loads(line)
    name = str(entry["path"]).rpartition("/")[2]
    copy = name.replace("part-00000", "part-00077").replace("part-00001", "part-00077")
    data = folder / "generations/0001/data/topic=flights"
    shutil.copy(data / name, data / copy)
    return json.dumps(entry | {"path": str(entry["path"]).replace(name, copy)})


# a line too many


@pytest.mark.parametrize("at", [1, 7, 21])
@pytest.mark.parametrize("scope", ["open", "all"])
def test_validate_compact_line_too_many(
    archive: Archive, folder: Path, at: int, scope: Scope
) -> None:
    """A line more in a compacted file of sealed batches is found, with its file and line."""
    log = folder / MANIFEST / "9.compact"
    lines = log.read_text().split("\n")
    lines.insert(at, copied_file(folder))
    write(log, "\n".join(lines).encode())

    report = validate_twice(archive, scope)

    assert summary(errors(report.findings)) == {"manifest_changed": 1}
    [finding] = errors(report.findings)
    assert finding.where == f"{MANIFEST}/9.compact:{at + 1}"
    assert "the receipts of batches up to 9 don't" in finding.detail


@pytest.mark.parametrize("at", [1, 7, 29])
def test_validate_compact_over_new_line_too_many(archive: Archive, folder: Path, at: int) -> None:
    """In a compaction that holds a new batch as well, what no batch explains is found too."""
    add_batch(archive.generation(1), 14, END, 50)
    logs = [folder / MANIFEST / name for name in ("9.compact", "10", "11", "12", "13", "14")]
    lines = ["v1", *(line for log in logs for line in log.read_text().split("\n")[1:])]
    lines.insert(at, copied_file(folder))
    write(folder / MANIFEST / "14.compact", "\n".join(lines).encode())

    report = validate_twice(archive)

    assert summary(errors(report.findings)) == {"offset_outside": 1}


def test_validate_line_too_many_and_new_batch(archive: Archive, folder: Path) -> None:
    """A sound new batch isn't sealed while sealed ones have a line too many, nor later."""
    log = folder / MANIFEST / "9.compact"
    write(log, f"{log.read_text()}\n{copied_file(folder)}".encode())
    add_batch(archive.generation(1), 14, END, 50)

    report = validate_twice(archive)

    assert summary(errors(report.findings)) == {"manifest_changed": 1}


@each_of("batch", [None, 3, 9, 10])
@each_of("compacted", [None, 4, 9, 14])
@each_of("last_sealed", [-1, 4, 9])
def test_is_of_sealed_batch(batch: int | None, compacted: int | None, last_sealed: int) -> None:
    """A line is of a sealed batch when its own is, or all that it may be of."""
    line = SinkFile("part-1", 1, 0, batch, "log")
    candidates = {
        (None, None): [],
        (None, 4): range(5),
        (None, 9): range(10),
        (None, 14): range(15),
    }.get((batch, compacted), [batch] if batch is not None else [])

    expected = bool(candidates) and all(b <= last_sealed for b in candidates if b is not None)
    assert is_of_sealed_batch(line, compacted, last_sealed) == expected


# the checkpoint

OFFSETS_12 = f"{CHECKPOINT}/offsets/12"
COMMITS_12 = f"{CHECKPOINT}/commits/12"
METADATA = f"{CHECKPOINT}/metadata"
INITIAL = f"{CHECKPOINT}/sources/0/0"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param(OFFSETS_12, b'"0":39', b'"0":40', id="ends elsewhere"),
        pytest.param(OFFSETS_12, b'"0":39,', b"", id="lacks a partition"),
        pytest.param(OFFSETS_12, b'"batchWatermarkMs":0', b'"batchWatermarkMs":"x"', id="a text"),
        pytest.param(OFFSETS_12, b'"conf":{', b'"conf":[],"other":{', id="conf no object"),
        pytest.param(OFFSETS_12, b'{"batch', b'[],{"batch', id="no JSON"),
        pytest.param(COMMITS_12, b"{", b"[", id="commit no JSON"),
        pytest.param(COMMITS_12, b'{"nextBatchWatermarkMs":0}', b"7", id="commit no object"),
        pytest.param(COMMITS_12, b":0}", b":null}", id="commit no number"),
        pytest.param(METADATA, b"{", b"", id="metadata no JSON"),
        pytest.param(METADATA, b'"id"', b'"it"', id="metadata without id"),
        pytest.param(METADATA, None, b"", id="metadata empty"),
        pytest.param(METADATA, None, b"\xff\xfe", id="metadata garbage"),
        pytest.param(METADATA, None, b'"id"', id="metadata no object"),
        pytest.param(INITIAL, None, b"", id="initial offsets empty"),
        pytest.param(INITIAL, b"v1", b"v7", id="initial offsets of another version"),
        pytest.param(INITIAL, b'{"flights"', b'"flights"', id="initial offsets no JSON"),
        pytest.param(INITIAL, b'"1":0', b'"1":3', id="initial offsets elsewhere"),
    ],
)
@pytest.mark.parametrize("scope", ["open", "all"])
def test_validate_checkpoint_damaged(
    archive: Archive, folder: Path, name: str, old: bytes | None, new: bytes, scope: Scope
) -> None:
    """What Spark would fail on, or take for true, is named before a drain starts; a roll helps."""
    content = (folder / name).read_bytes()
    if old is not None:
        assert old in content
        new = content.replace(old, new, 1)
    write(folder / name, new)

    with pytest.raises(CheckpointError, match=f"{name}: .+run `kafka-drain roll /"):
        refuse_damage(errors(state_of(archive.generation(1)).findings), archive.root)
    report = validate_twice(archive, scope)
    plan = plan_roll(archive, golden_cluster())
    roll(plan)
    after = validate_archive(archive, golden_cluster(), scope=scope)

    # An end that is too high makes the next batch begin too late as well.
    assert {f.reason for f in errors(report.findings)} == {Reason.CHECKPOINT_CORRUPT}
    assert name in {finding.where for finding in report.findings}
    assert plan.starting_offsets == {P0: END, P1: END}
    assert after.findings == []


@pytest.mark.parametrize("starts", [{"0": 0}, {"0": 0, "1": 1}])
def test_validate_starts_changed_before_seal(tmp_path: Path, starts: dict[str, int]) -> None:
    """What Spark started at has to be in generation.json, also while nothing is sealed."""
    archive = sealed_copy(tmp_path / "archive")
    opened = open_next(archive, "parquet", ["topic"])
    add_batch(opened, 0, END, END + 1)
    started = Path(str(opened.folder)) / "checkpoint/sources/0/0"
    started.parent.mkdir(parents=True)
    started.write_bytes(b'\0v1\n{"flights":{"0":%d,"1":%d}}' % (END, END))
    path = Path(str(opened.folder)) / "generation.json"
    text = json.loads(path.read_text())
    changed = {p: n + END for p, n in starts.items()}
    path.write_text(json.dumps(text | {"starting_offsets": {"flights": changed}}))

    report = validate_archive(archive, None)

    assert "generations/0002/checkpoint/sources/0/0" in {f.where for f in errors(report.findings)}
    assert not report.complete


def test_validate_checkpoint_old_batch_elsewhere(tmp_path: Path) -> None:
    """An end of long ago, which Spark reads no more, is found by each validation."""
    archive = sealed_copy(tmp_path / "archive")
    generation = archive.generation(1)
    for batch in range(14, 18):
        add_batch(generation, batch, END + batch - 14, END + batch - 13)
        validate_archive(archive, golden_cluster())
    path = Path(str(archive.root)) / CHECKPOINT / "offsets" / "12"
    write(path, path.read_bytes().replace(b'"0":39', b'"0":40'))

    for scope in ("open", "all"):
        report = validate_twice(archive, scope)  # type: ignore[arg-type]

        assert [f.where for f in errors(report.findings)] == [OFFSETS_12]


@pytest.mark.parametrize(("name", "reasons"), [(METADATA, ["note_unreadable"]), (INITIAL, [])])
def test_validate_checkpoint_written_anew(
    archive: Archive, folder: Path, name: str, reasons: list[str]
) -> None:
    """What Spark writes anew by itself may be gone: an older copy often has no such file."""
    (folder / name).unlink()

    report = validate_archive(archive, golden_cluster())

    assert [str(finding.reason) for finding in report.findings] == reasons
    assert report.complete


# files that are links, or go


@pytest.mark.parametrize("scope", ["open", "all"])
@pytest.mark.parametrize("deep", [False, True])
def test_validate_dangling_link(archive: Archive, folder: Path, scope: Scope, deep: bool) -> None:
    """A link that leads nowhere is no file, whether it is listed or not."""
    data = folder / "generations/0001/data/topic=flights"
    (data / "part-00099-nowhere.parquet").symlink_to("gone")
    path = min(data.glob("part-00000-*.parquet"))
    path.unlink()
    path.symlink_to("gone as well")

    report = validate_archive(archive, None, scope=scope, deep=deep)

    assert errors(report.findings)[0].reason == Reason.FILE_MISSING
    assert errors(report.findings)[0].where == str(path.relative_to(folder))
    assert summary(report.findings) == {"file_missing": 1, "offset_missing": 1}


def test_validate_new_dangling_link(archive: Archive, folder: Path) -> None:
    """So is one in the place of a file that isn't sealed yet."""
    path, _ = add_batch(archive.generation(1), 14, END, 50)
    path.unlink()
    path.symlink_to("gone")

    report = validate_archive(archive, None)

    assert errors(report.findings)[0].reason == Reason.FILE_MISSING
    assert errors(report.findings)[0].where == str(path.relative_to(folder))


@pytest.mark.parametrize(
    ("error", "found"),
    [(FileNotFoundError(), "file_missing"), (OSError(errno.EIO, "I/O error"), "file_changed")],
)
def test_validate_deep_file_vanishes(
    archive: Archive,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
    found: str,
) -> None:
    """Fault 115: a file that goes between the hash of its bytes and that of its records."""
    generation = archive.generation(1)
    paths = add_batch(generation, 14, END, 50)
    note_batch(generation, 14, paths, END, 50)
    assert validate_archive(archive, golden_cluster()).receipts_written == 1
    name = str(paths[0].relative_to(folder))

    def read(*_: object) -> int:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(committed_file, "read_all", read)
        for _ in range(2):
            report = validate_archive(archive, None, deep=True)
            of_file = [str(f.reason) for f in errors(report.findings) if f.where == name]
            assert of_file == [found]
            assert not report.complete
    assert errors(validate_archive(archive, golden_cluster(), deep=True).findings) == []


def test_list_data_files_vanishing(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, or a folder, that goes while it is looked at isn't listed."""
    generation = archive.generation(1)
    listed = generation.list_data_files()
    data = Path(str(generation.data))
    gone = data / min(listed)
    (data / "topic=other").mkdir()
    scandir = os.scandir

    class Entries(list[os.DirEntry[str]]):
        """What `os.scandir` returns."""

        def __enter__(self) -> Entries:
            return self

        def __exit__(self, *_: object) -> None: ...

    def vanish(path: str) -> Entries:
        entries = list(scandir(path))
        for entry in entries:
            if entry.name == "topic=other":
                # Asked for its kind before it goes.
                assert entry.is_dir()
                Path(entry.path).rmdir()
            elif entry.path == str(gone):
                gone.unlink()
        return Entries(entries)

    monkeypatch.setattr(os, "scandir", vanish)

    assert generation.list_data_files().keys() == listed.keys() - {min(listed)}

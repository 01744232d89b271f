"""An archive that Spark 4.0.2 wrote, read where it lies and from a copy. Needs no Java."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files, inspect_archive
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import summary
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.report import raise_findings
from kafka_drain.proof.validation import validate_archive

GOLDEN = Path(__file__).parents[2] / "data" / "sink_v1_spark4"
MANIFEST = "generations/0001/data/_spark_metadata"
CHECKPOINT = "generations/0001/checkpoint"
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the archive in another folder."""
    return shutil.copytree(GOLDEN, tmp_path / "moved archive")


def test_golden_files() -> None:
    """The archive is what the tests mean it to be: compacted, purged, with plain batches after."""
    manifest = {path.name for path in (GOLDEN / MANIFEST).iterdir() if path.suffix != ".crc"}
    offsets = {path.name for path in (GOLDEN / CHECKPOINT / "offsets").glob("[0-9]*")}
    commits = {path.name for path in (GOLDEN / CHECKPOINT / "commits").glob("[0-9]*")}

    assert manifest == {"9.compact", "10", "11", "12", "13"}
    assert offsets == commits == {"11", "12", "13"}
    assert len(list(GOLDEN.rglob(".*.crc"))) == 28 + 5 + 3 + 3 + 2


@pytest.mark.parametrize("place", ["as written", "copied"])
def test_validate_golden(place: str, copy: Path) -> None:
    """Every offset is in exactly one file, told without Kafka, wherever the archive lies."""
    report = validate_archive(Archive.at(str(GOLDEN if place == "as written" else copy)), None)

    # Drained by a release that left no word of what Spark had read.
    assert summary(report.findings) == {"content_unknown": 3}
    assert report.gaps == []
    assert report.complete
    assert (report.files, report.records, report.offsets) == (28, 84, 84)
    assert report.bytes == sum(path.stat().st_size for path in GOLDEN.rglob("part-*"))
    assert [(s.first_batch, s.last_batch) for s in report.segments] == [(0, 11), (12, 12), (13, 13)]
    assert [
        {"topic": "flights", "partition": p, "start": 0, "end": 42, "records": 42, "gaps": {}}
        for p in (0, 1)
    ] == report.partitions()
    json.dumps(report.to_dict())


def test_read_manifest_golden() -> None:
    """The compacted file stands for the purged ones, and forgets which batch wrote which file."""
    manifest, findings = Archive.at(str(GOLDEN)).generation(1).read_manifest()

    assert findings == []
    assert (manifest.last_batch, manifest.batches) == (13, (10, 11, 12, 13))
    assert [sink_file.batch for sink_file in manifest.files.values()] == (
        [None] * 20 + [10, 10, 11, 11, 12, 12, 13, 13]
    )


def test_read_checkpoint_golden() -> None:
    """The ends of the batches that are kept are known, and nothing is missing between them."""
    checkpoint, findings = Archive.at(str(GOLDEN)).generation(1).read_checkpoint({P0: 0, P1: 0})

    assert findings == []
    assert {b: {P0: 3 * b + 3, P1: 3 * b + 3} for b in (11, 12, 13)} == checkpoint.ends
    assert frozenset({11, 12, 13}) == checkpoint.commits


def test_inspect_archive_golden() -> None:
    """Batches that were compacted and purged count as well."""
    described = inspect_archive(Archive.at(str(GOLDEN)))

    assert ("golden", str(GOLDEN)) == (described["pipeline"], described["archive"])
    [generation] = described["generations"]
    assert tuple(generation[key] for key in ("generation", "batches", "files", "format")) == (
        1,
        14,
        28,
        "parquet",
    )
    assert [
        {"topic": "flights", "partition": p, "start": 0, "end": 42, "offsets": 42} for p in (0, 1)
    ] == generation["partitions"]


def test_committed_files_copied(copy: Path) -> None:
    """Paths are those of the place where the archive lies now, and the files are there."""
    files = committed_files(Archive.at(str(copy)))

    assert len({file["path"] for file in files}) == 28
    for file in files:
        path = Path(file["path"])
        assert path.is_relative_to(copy)
        assert path.stat().st_size == file["size"]


def test_validate_golden_compact_removed(copy: Path) -> None:
    """Without the compacted file its ten batches are holes, and their files are orphans."""
    (copy / MANIFEST / "9.compact").unlink()

    report = validate_archive(Archive.at(str(copy)), None)

    assert summary(report.findings) == {
        "manifest_hole": 10,
        "file_orphan": 20,
        "offset_missing": 2,
        "content_unknown": 2,
    }
    assert {"unknown"} == {str(gap.reason) for gap in report.gaps}
    with pytest.raises(ManifestInvalidError, match=r"manifest_hole 10, offset_missing 2\n"):
        raise_findings(report, "report.json")
    with pytest.raises(ManifestInvalidError, match="there is no file for batch 0"):
        committed_files(Archive.at(str(copy)))


def test_validate_golden_compact_cut_to_header(copy: Path) -> None:
    """A compacted file with nothing but its version is found by the files that it doesn't list."""
    (copy / MANIFEST / "9.compact").write_text("v1")

    report = validate_archive(Archive.at(str(copy)), None)

    assert summary(report.findings) == {
        "manifest_truncated": 1,
        "file_orphan": 20,
        "offset_missing": 2,
    }
    assert report.findings[0].where == f"{MANIFEST}/9.compact"


def test_validate_golden_compact_cut_at_line_end(copy: Path) -> None:
    """A manifest file that lost its last line, and has nothing wrong in it, is found as well."""
    log = copy / MANIFEST / "9.compact"
    log.write_text(log.read_text().rpartition("\n")[0])

    report = validate_archive(Archive.at(str(copy)), None)

    assert summary(report.findings) == {
        "manifest_truncated": 1,
        "file_orphan": 1,
        "offset_missing": 1,
    }
    assert report.findings[0].where == f"{MANIFEST}/9.compact"


def test_validate_golden_checkpoint_removed(copy: Path) -> None:
    """Without a checkpoint nobody knows what was read: no file is accused of holding too much."""
    shutil.rmtree(copy / CHECKPOINT)

    report = validate_archive(Archive.at(str(copy)), None)

    assert summary(report.findings) == {"checkpoint_missing": 1}
    assert report.records == 84

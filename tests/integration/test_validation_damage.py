"""A real archive, damaged in one place at a time, and what validation reports."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.reader import read_offsets
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import errors, summary
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.metadata_log.manifest import parse_log
from kafka_drain.proof.report import Report, raise_findings
from kafka_drain.proof.validation import validate_archive

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00 UTC, in milliseconds
DATA = "generations/0001/data"
MANIFEST = f"{DATA}/_spark_metadata"
CHECKPOINT = "generations/0001/checkpoint"

# Batches 0 to 12, each with 3 offsets of both partitions: two files, and a compaction at batch 9.
BATCHES = 13
OFFSETS = 3
#: What the loss of one batch's files from the manifest always entails.
UNLISTED = {"file_orphan": 2, "offset_missing": 2}


@pytest.fixture(scope="module")
def built() -> dict[str, Path]:
    """The shared archive of this module, built on first use."""
    return {}


@pytest.fixture
def intact(
    built: dict[str, Path],
    drain: Any,
    make_topic: Any,
    send: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """An archive that Spark wrote in thirteen batches; no test changes it."""
    if not built:
        topic = make_topic(partitions=2)
        for partition in (0, 1):
            # Each value is longer than the previous one, so that no two files have the same size.
            values = [random.Random(n).randbytes(50 + 20 * n) for n in range(BATCHES * OFFSETS)]
            records = [(b"%d" % n, value, None, NOON + n) for n, value in enumerate(values)]
            send(topic, records, partition=partition)
        folder = tmp_path_factory.mktemp("intact") / "archive"
        pipeline = Pipeline(
            name="damage",
            topics=[topic],
            archive=str(folder),
            partition_by=["topic"],
            source_options={"maxOffsetsPerTrigger": 2 * OFFSETS},
        )
        assert drain(pipeline)["batches"] == BATCHES
        built["archive"] = folder
    return built["archive"]


@dataclass(frozen=True)
class Copy:
    """A copy of the archive, to be damaged."""

    root: Path
    cluster: KafkaCluster

    @property
    def manifest(self) -> Path:
        return self.root / MANIFEST

    def file(self, batch: int) -> str:
        """Return the data file that a batch wrote for partition 0, relative to the archive."""
        log, _ = parse_log(f"{batch}", (self.manifest / f"{batch}").read_bytes(), DATA)
        assert log is not None
        for path in (f"{DATA}/{sink_file.path}" for sink_file in log.added):
            [offsets] = read_offsets(self.root / path, "parquet", "any")
            if offsets.tp.partition == 0:
                return path
        raise AssertionError(f"batch {batch} wrote nothing of partition 0")

    def validate(self, *, ask_kafka: bool = True) -> Report:
        """Validate, and check that raising reports every error, or nothing if there is none."""
        report = validate_archive(Archive.at(str(self.root)), self.cluster if ask_kafka else None)
        bad = summary(errors(report.findings))
        if not bad:
            raise_findings(report, "report.json")
            assert report.complete
            return report
        with pytest.raises(ManifestInvalidError) as raised:
            raise_findings(report, "report.json")
        counts = ", ".join(f"{code} {number}" for code, number in bad.items())
        assert f"is not complete: {counts}\n" in str(raised.value)
        return report


@pytest.fixture
def copy(intact: Path, cluster: KafkaCluster, tmp_path: Path) -> Copy:
    """A copy of the intact archive."""
    return Copy(shutil.copytree(intact, tmp_path / "archive"), cluster)


def found(report: Report) -> dict[str, int]:
    return summary(report.findings)


def where(report: Report, reason: str) -> list[str]:
    return [finding.where for finding in report.findings if finding.reason == reason]


def lost(report: Report) -> list[str]:
    """Return the gaps whose records Kafka still holds; all must be of that kind."""
    assert {str(gap.reason) for gap in report.gaps} == {"lost"}
    return [f"{gap.tp.partition}: {gap.range}" for gap in report.gaps]


def test_validate_intact(copy: Copy) -> None:
    """Nothing is found in an untouched archive, with Kafka and without."""
    for ask_kafka in (True, False):
        report = copy.validate(ask_kafka=ask_kafka)

        assert report.findings == report.gaps == []
        assert (report.files, report.records) == (2 * BATCHES, 2 * BATCHES * OFFSETS)


# manifest


def test_validate_manifest_removed(copy: Copy) -> None:
    """Without its manifest no file of the sink counts, but Kafka still holds the records."""
    shutil.rmtree(copy.manifest)

    report = copy.validate()

    assert found(report) == {"manifest_missing": 1, "file_orphan": 26, "offset_missing": 2}
    assert lost(report) == ["0: [0, 39)", "1: [0, 39)"]
    assert report.records == 0


def test_validate_manifest_file_empty(copy: Copy) -> None:
    """An empty manifest file is named, and the files that it listed are orphans."""
    (copy.manifest / "11").write_bytes(b"")

    report = copy.validate()

    assert found(report) == {"manifest_empty": 1, **UNLISTED}
    assert where(report, "manifest_empty") == [f"{MANIFEST}/11"]
    assert lost(report) == ["0: [33, 36)", "1: [33, 36)"]


@pytest.mark.parametrize("batch", ["11", "12"], ids=["between", "newest"])
def test_validate_manifest_file_cut_to_header(copy: Copy, batch: str) -> None:
    """A manifest file with only its version isn't a batch without files: its files reveal it."""
    (copy.manifest / batch).write_bytes(b"v1")

    report = copy.validate()

    assert found(report) == {"manifest_truncated": 1, **UNLISTED}
    assert where(report, "manifest_truncated") == [f"{MANIFEST}/{batch}"]


def test_validate_manifest_file_cut_at_line_end(copy: Copy) -> None:
    """A manifest file that lost its last line, but is otherwise valid, is found."""
    log = copy.manifest / "11"
    log.write_bytes(log.read_bytes().rpartition(b"\n")[0])

    report = copy.validate()

    assert found(report) == {"manifest_truncated": 1, "file_orphan": 1, "offset_missing": 1}
    assert where(report, "manifest_truncated") == [f"{MANIFEST}/11"]


@pytest.mark.parametrize(("end", "line", "files"), [(-30, 3, 1), (60, 2, 2)])
def test_validate_manifest_file_cut_in_json(copy: Copy, end: int, line: int, files: int) -> None:
    """A manifest file that ends mid-line is found with file and line; earlier lines count."""
    log = copy.manifest / "11"
    log.write_bytes(log.read_bytes()[:end])

    report = copy.validate()

    assert found(report) == {"manifest_corrupt": 1, "file_orphan": files, "offset_missing": files}
    assert where(report, "manifest_corrupt") == [f"{MANIFEST}/11:{line}"]


def test_validate_manifest_line_junk(copy: Copy) -> None:
    """A line that Spark doesn't write is found with file and line, without side effects."""
    log = copy.manifest / "11"
    log.write_bytes(log.read_bytes() + b"\n<<<<<<< HEAD")

    report = copy.validate()

    assert found(report) == {"manifest_corrupt": 1}
    assert where(report, "manifest_corrupt") == [f"{MANIFEST}/11:4"]


def test_validate_manifest_line_twice(copy: Copy) -> None:
    """A duplicated line is found, and its records count once."""
    log = copy.manifest / "11"
    log.write_bytes(log.read_bytes() + b"\n" + log.read_bytes().split(b"\n")[1])

    report = copy.validate()

    assert found(report) == {"manifest_duplicate": 1}
    assert where(report, "manifest_duplicate") == [f"{MANIFEST}/11"]
    assert report.records == 2 * BATCHES * OFFSETS


def test_validate_manifest_file_missing_between(copy: Copy) -> None:
    """A batch without a manifest file between two others is a hole."""
    (copy.manifest / "11").unlink()

    report = copy.validate()

    assert found(report) == {"manifest_hole": 1, **UNLISTED}
    [hole] = [finding for finding in report.findings if finding.reason == "manifest_hole"]
    assert (hole.where, hole.detail) == (MANIFEST, "there is no file for batch 11")


def test_validate_manifest_file_missing_at_end(copy: Copy) -> None:
    """A manifest that ends before the checkpoint's last commit lags behind it."""
    (copy.manifest / "12").unlink()

    report = copy.validate()

    assert found(report) == {"manifest_behind": 1, **UNLISTED}
    assert lost(report) == ["0: [36, 39)", "1: [36, 39)"]


def test_validate_manifest_compact_removed(copy: Copy) -> None:
    """If the compacted file is lost and the others are purged, ten batches are holes."""
    for batch in range(9):
        (copy.manifest / f"{batch}").unlink()
    (copy.manifest / "9.compact").unlink()

    report = copy.validate()

    assert found(report) == {"manifest_hole": 10, "file_orphan": 20, "offset_missing": 2}
    assert lost(report) == ["0: [0, 30)", "1: [0, 30)"]


def test_validate_manifest_compact_cut_to_header(copy: Copy) -> None:
    """A compacted file that lists nothing is found, though older manifest files exist."""
    (copy.manifest / "9.compact").write_bytes(b"v1")

    report = copy.validate()

    assert found(report) == {"manifest_truncated": 1, "file_orphan": 20, "offset_missing": 2}
    assert where(report, "manifest_truncated") == [f"{MANIFEST}/9.compact"]


# checkpoint


def test_validate_checkpoint_removed(copy: Copy) -> None:
    """A missing checkpoint is the only finding; no data file is blamed."""
    shutil.rmtree(copy.root / CHECKPOINT)

    report = copy.validate()

    assert found(report) == {"checkpoint_missing": 1}
    assert where(report, "checkpoint_missing") == [CHECKPOINT]


def test_validate_checkpoint_older(copy: Copy) -> None:
    """With a checkpoint restored from before the last batches, the manifest is ahead of it."""
    for batch in (11, 12):
        (copy.root / CHECKPOINT / "offsets" / f"{batch}").unlink()
        (copy.root / CHECKPOINT / "commits" / f"{batch}").unlink()

    report = copy.validate()

    assert found(report) == {"manifest_ahead": 1}
    assert where(report, "manifest_ahead") == [CHECKPOINT]


@pytest.mark.parametrize("folder", ["offsets", "commits"])
def test_validate_checkpoint_file_missing_between(copy: Copy, folder: str) -> None:
    """A batch missing from the checkpoint between two others is a hole."""
    (copy.root / CHECKPOINT / folder / "6").unlink()

    report = copy.validate()

    assert found(report) == {"checkpoint_hole": 1}
    assert where(report, "checkpoint_hole") == [f"{CHECKPOINT}/{folder}"]


@pytest.mark.parametrize(("batch", "content"), [(6, b""), (6, b"v1\n{}"), (12, b"\0" * 700)])
def test_validate_checkpoint_offsets_corrupt(copy: Copy, batch: int, content: bytes) -> None:
    """An unreadable end of a batch is named, and no data file is blamed for it."""
    (copy.root / CHECKPOINT / "offsets" / f"{batch}").write_bytes(content)

    report = copy.validate()

    assert found(report) == {"checkpoint_corrupt": 1}
    assert where(report, "checkpoint_corrupt") == [f"{CHECKPOINT}/offsets/{batch}"]


# data files


def test_validate_file_missing(copy: Copy) -> None:
    """A missing listed file is named; Kafka still holds its records, or wasn't queried."""
    path = copy.file(11)
    (copy.root / path).unlink()

    report = copy.validate()
    unasked = copy.validate(ask_kafka=False)

    assert found(report) == found(unasked) == {"file_missing": 1, "offset_missing": 1}
    assert where(report, "file_missing") == [path]
    assert lost(report) == ["0: [33, 36)"]
    assert [str(gap.reason) for gap in unasked.gaps] == ["unknown"]


def test_validate_file_cut_short(copy: Copy) -> None:
    """A file that is shorter than the manifest says is named."""
    path = copy.file(11)
    (copy.root / path).write_bytes((copy.root / path).read_bytes()[:-1])

    report = copy.validate()

    assert found(report) == {"file_size": 1, "offset_missing": 1}
    assert where(report, "file_size") == [path]


def test_validate_file_footer_destroyed(copy: Copy) -> None:
    """A file of the right size that can't be read is named."""
    path = copy.file(11)
    content = (copy.root / path).read_bytes()
    (copy.root / path).write_bytes(content[:-100] + b"\0" * 100)

    report = copy.validate()

    assert found(report) == {"file_corrupt": 1, "offset_missing": 1}
    assert where(report, "file_corrupt") == [path]


def test_validate_file_swapped(copy: Copy) -> None:
    """Another batch's records in a valid file of the right size: duplicated, and out of place."""
    smaller, path = copy.file(10), copy.file(11)
    content, size = (copy.root / smaller).read_bytes(), (copy.root / path).stat().st_size
    # Parquet finds its footer from the end of a file, everything else from the start.
    footer = int.from_bytes(content[-8:-4], "little") + 8
    padded = content[:-footer] + b"\0" * (size - len(content)) + content[-footer:]
    (copy.root / path).write_bytes(padded)

    report = copy.validate()

    assert found(report) == {"offset_duplicate": 1, "offset_outside": 1, "offset_missing": 1}
    assert where(report, "offset_outside") == [path]
    [twice] = [finding for finding in report.findings if finding.reason == "offset_duplicate"]
    assert {path, smaller} == {twice.where, *(p for p in (path, smaller) if p in twice.detail)}
    assert lost(report) == ["0: [33, 36)"]


# what is allowed


def test_validate_file_copied(copy: Copy) -> None:
    """A copy of a data file in the sink is a warning: readers ignore it."""
    path = copy.root / copy.file(11)
    shutil.copy(path, path.with_name(f"part-copy-{path.name}"))

    report = copy.validate()

    assert found(report) == {"file_orphan": 1}
    assert (report.complete, report.records) == (True, 2 * BATCHES * OFFSETS)


def test_validate_killed_before_commit(copy: Copy) -> None:
    """A manifest one batch ahead of the commits is the result of a kill between the two."""
    (copy.root / CHECKPOINT / "commits" / "12").unlink()

    report = copy.validate()

    assert report.findings == []
    assert report.records == 2 * BATCHES * OFFSETS


def test_validate_killed_before_manifest(copy: Copy) -> None:
    """Files of a batch in neither manifest nor commits are orphans, and no error."""
    (copy.root / CHECKPOINT / "commits" / "12").unlink()
    (copy.manifest / "12").unlink()

    report = copy.validate()

    assert found(report) == {"file_orphan": 2}
    assert report.complete
    assert report.records == 2 * (BATCHES - 1) * OFFSETS

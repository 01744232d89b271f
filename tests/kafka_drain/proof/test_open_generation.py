"""When data files that no manifest lists show that the manifest has lost lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from upath import UPath

from kafka_drain.archive.generation import Generation
from kafka_drain.findings import Finding, Reason
from kafka_drain.metadata_log.manifest import Manifest
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.open_generation import unlisted_files
from tests.kafka_drain.golden import P0, P1, crc_of, row, write_rows

FOLDER = "generations/0001/data/_spark_metadata"
DETAIL = (
    "the sink has files that it doesn't list; they hold offsets that no other file holds, such as "
)
MANIFEST = Manifest(batches=(0, 1, 2, 3))


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


def part(first: int, last: int | None = None) -> Segment:
    return Segment(first, first if last is None else last, {})


Missing = list[tuple[Segment, TopicPartition, list[OffsetRange]]]


class Sink:
    """A generation whose manifest files have no checksum, and its unlisted files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.generation = Generation(UPath(root), 1)
        self.logs = root / FOLDER
        self.logs.mkdir(parents=True)
        for name in ("0", "1", "2", "3", "2.compact"):
            (self.logs / name).write_bytes(b"v1")
        self.orphans: list[str] = []

    def orphan(self, tp: TopicPartition, *offsets: int, folder: str = "topic=flights") -> str:
        """Leave an unlisted file with records of some offsets."""
        path = f"generations/0001/data/{folder}/{len(self.orphans)}.parquet"
        write_rows(self.root / path, "parquet", [row(tp, offset) for offset in offsets])
        self.orphans.append(path)
        return path

    def found(
        self,
        missing: Missing,
        manifest: Manifest = MANIFEST,
        findings: Sequence[Finding] = (),
    ) -> list[tuple[str, str]]:
        """Return where lines were lost, and the offsets that are named."""
        found = unlisted_files(
            self.generation, manifest, findings, iter(missing), self.orphans, "parquet"
        )
        assert {each.reason for each in found} <= {Reason.MANIFEST_TRUNCATED}
        assert all(each.detail.startswith(DETAIL) for each in found)
        return [(str(each.subject), each.detail.removeprefix(DETAIL)) for each in found]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ([], []),
        ([(part(1), P0, [R(4, 6)])], [(f"{FOLDER}/1", f"{R(4, 6)} of flights-0")]),
        ([(part(1), P0, [R(0, 4), R(6, 9)])], []),
        ([(part(1), P0, [R(0, 5)])], [(f"{FOLDER}/1", f"{R(4, 6)} of flights-0")]),
        ([(part(1), P1, [R(4, 6)])], []),
        (
            [(part(1), P0, [R(4, 6)]), (part(2), P1, [R(7, 8)])],
            [
                (f"{FOLDER}/1", f"{R(4, 6)} of flights-0"),
                (f"{FOLDER}/2", f"{R(7, 8)} of flights-1"),
            ],
        ),
        # Of the first, no unlisted file holds anything.
        (
            [(part(0), P0, [R(0, 1)]), (part(1), P0, [R(4, 6)])],
            [(f"{FOLDER}/1", f"{R(4, 6)} of flights-0")],
        ),
    ],
    ids=["none", "lost", "elsewhere", "partly", "other partition", "two", "after another"],
)
def test_unlisted_files(sink: Sink, missing: Missing, expected: list[tuple[str, str]]) -> None:
    """Lines were lost where an unlisted file holds what the batch's own files miss."""
    sink.orphan(P0, 4)
    sink.orphan(P0, 5)
    sink.orphan(P1, 7)

    assert sink.found(missing) == expected


def test_unlisted_files_none(sink: Sink) -> None:
    """Without unlisted files, nothing was listed."""
    assert sink.found([(part(1), P0, [R(4, 6)])]) == []


def test_unlisted_files_as_written(sink: Sink) -> None:
    """A manifest file that fits its checksum has lost nothing; one that doesn't may have."""
    sink.orphan(P0, 4)
    sink.orphan(P0, 14)
    (sink.logs / ".1.crc").write_bytes(crc_of(b"v1"))
    (sink.logs / ".2.crc").write_bytes(crc_of(b"v1\n{}"))

    found = sink.found([(part(1), P0, [R(4, 5)]), (part(2), P0, [R(14, 15)])])

    assert found == [(f"{FOLDER}/2", f"{R(14, 15)} of flights-0")]


def test_unlisted_files_of_several_batches(sink: Sink) -> None:
    """Of a segment of several batches, only those files are suspected that may have lost lines."""
    sink.orphan(P0, 4)
    missing: Missing = [(part(0, 2), P0, [R(4, 5)])]
    mismatch = Finding(Reason.CHECKSUM_MISMATCH, f"{FOLDER}/1", "")

    assert sink.found(missing) == [(FOLDER, f"{R(4, 5)} of flights-0")]
    assert sink.found(missing, findings=[mismatch]) == [(f"{FOLDER}/1", f"{R(4, 5)} of flights-0")]
    for name in "02":
        (sink.logs / f".{name}.crc").write_bytes(crc_of(b"v1"))
    assert sink.found(missing) == [(f"{FOLDER}/1", f"{R(4, 5)} of flights-0")]


@pytest.mark.parametrize(
    ("subject", "is_told"), [(f"{FOLDER}/1", False), (f"{FOLDER}/2", True), ("1", True)]
)
def test_unlisted_files_known(sink: Sink, subject: str, is_told: bool) -> None:
    """A manifest file that has a finding of its own gets no second one; another batch's does."""
    sink.orphan(P0, 4)
    sink.orphan(P0, 34)
    known = Finding(Reason.MANIFEST_CORRUPT, subject, "")
    missing: Missing = [(part(1), P0, [R(4, 5)]), (part(3), P0, [R(34, 35)])]

    found = sink.found(missing, findings=[known])

    assert [where for where, _ in found] == [f"{FOLDER}/1"] * is_told + [f"{FOLDER}/3"]


@pytest.mark.parametrize(
    ("manifest", "where"),
    [
        (Manifest(batches=(3,), compacted=2), f"{FOLDER}/2.compact"),
        # It isn't there: that is a finding of its own.
        (Manifest(batches=(0, 2, 3)), None),
    ],
)
def test_unlisted_files_logs(sink: Sink, manifest: Manifest, where: str | None) -> None:
    """The manifest file is suspected that lists the batch now."""
    sink.orphan(P0, 4)

    found = sink.found([(part(1), P0, [R(4, 5)])], manifest)

    assert found == ([(where, f"{R(4, 5)} of flights-0")] if where else [])


def test_unlisted_files_unreadable(sink: Sink) -> None:
    """What a killed task wrote in part, or Spark has just removed, counts as nothing."""
    torn, gone = sink.orphan(P0, 4), sink.orphan(P0, 5)
    sink.orphan(P0, 8)
    (sink.root / torn).write_bytes(b"PAR1")
    (sink.root / gone).unlink()

    assert sink.found([(part(1), P0, [R(4, 6)])]) == []
    assert sink.found([(part(1), P0, [R(4, 9)])]) == [(f"{FOLDER}/1", f"{R(8, 9)} of flights-0")]


def test_unlisted_files_named(sink: Sink) -> None:
    """Of each place, the first range is named, and three places at most."""
    for tp in (P0, P1):
        sink.orphan(tp, 4, 6, 14, 24, 34)
    missing: Missing = [(part(1), P0, [R(4, 9)])]
    missing += [(part(1), tp, [R(at, at + 1)]) for tp, at in ((P1, 14), (P1, 24), (P0, 34))]

    named = f"{R(4, 5)} of flights-0, {R(14, 15)} of flights-1, {R(24, 25)} of flights-1"
    assert sink.found(missing) == [(f"{FOLDER}/1", named)]

"""Readers by time read few receipts of a closed generation, and get what the receipts say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic import Linker, SyntheticArchive
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_summary import summarized
from kafka_drain.archive.history import History, read_history
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.receipts import ReceiptError
from kafka_drain.archive.soundness import check_sealed_state
from kafka_drain.archive.summary_files import receipts_between, write_missing_summaries
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import Reason
from kafka_drain.intervals import TimeRange
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage import json_files
from tests.kafka_drain.made_archive import MadeArchive

TP = TopicPartition("flights", 0)
RECEIPTS, FILES = 8, 8
FIRST_MS, DAY_MS = 1_000, 86_400_000


def times_of(start: int, end: int) -> TimeRange:
    """The times of the records with some offsets, of which each receipt has those of a day."""
    return TimeRange(FIRST_MS + start * DAY_MS // 10, FIRST_MS + end * DAY_MS // 10)


#: Of the sixth receipt.
SIXTH = times_of(50, 60)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two closed generations of eight receipts with ten records each, and an open one."""
    folder = tmp_path_factory.mktemp("summaries") / "archive"
    folder.mkdir()
    link = Linker(folder.parent / "template.parquet", with_crc=False)
    made = SyntheticArchive(folder, link.size, link, first_time=FIRST_MS, step=DAY_MS // 10)
    for number, receipts in enumerate((RECEIPTS, RECEIPTS, 1), start=1):
        made.add_generation(number, sealed=receipts, files=FILES)
    note_sealed(made.archive.root, check_sealed_state(made.archive.snapshot()).there)
    return folder


@pytest.fixture
def archive(template: Path, tmp_path: Path) -> Archive:
    """A copy of it."""
    shutil.copytree(template, tmp_path / "archive")
    return Archive.at(str(tmp_path / "archive"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The receipts that are read, as generation and name."""
    names: list[str] = []
    read = Generation.read_receipt

    def noting(generation: Generation, name: str) -> Any:
        names.append(f"{generation.number}/{name}")
        return read(generation, name)

    monkeypatch.setattr(Generation, "read_receipt", noting)
    return names


def paths(archive: Archive, times: TimeRange | None = None) -> list[str]:
    """The files that readers get, of which the open generation's manifest isn't asked."""
    snapshot = archive.snapshot()
    newest = check_sealed_state(snapshot).newest
    return [
        file.path
        for generation in snapshot.generations
        for receipt in receipts_between(generation, newest[generation.name].sha256, times, {})
        for file in receipt.files
    ]


def lie(archive: Archive) -> None:
    """Let the first generation's summary rule out its sixth receipt, with a seal that fits."""
    generation = archive.generation(1)
    summary = summarized(1, list(generation.receipts()))
    rows = list(summary.receipts)
    object.__setattr__(rows[5], "last_timestamp", 0)
    object.__setattr__(rows[5], "first_timestamp", 0)
    generation.write_summary(type(summary)(1, tuple(rows)))


def test_receipts_between(archive: Archive, opened: list[str]) -> None:
    """With summaries, a reader of a few records reads their receipt and the newest ones."""
    without = paths(archive, SIXTH)
    many = len(opened)
    assert len(without) == FILES * (2 * RECEIPTS + 1)
    write_missing_summaries(archive.snapshot())
    opened.clear()

    few = paths(archive, SIXTH)

    assert any("generations/0001" in path for path in few)
    # The newest of each generation, the one that is asked for, and the open generation's.
    assert (many, len(opened)) == (2 * RECEIPTS + 1, 3 + 1)


def test_receipts_between_same(archive: Archive) -> None:
    """Whatever time is asked for, the receipts that hold it are those that all receipts name."""
    write_missing_summaries(archive.snapshot())
    generations = archive.snapshot().generations
    newest = check_sealed_state(archive.snapshot()).newest
    for start in range(-5, 175, 5):
        times = times_of(start, start + 7)
        wanted = [
            receipt.where
            for generation in generations[:-1]
            for receipt in generation.receipts()
            if receipt.covers_time(times.from_ms or 0, times.to_ms or 0)
        ]

        found = [
            receipt.where
            for generation in generations[:-1]
            for receipt in receipts_between(generation, newest[generation.name].sha256, times, {})
        ]

        assert found == wanted


@pytest.mark.parametrize(
    "damage",
    [
        lambda archive: None,
        lambda archive: _summary(archive).write_bytes(b""),
        lambda archive: _summary(archive).write_bytes(
            _summary(archive).read_bytes().replace(b"2", b"3")
        ),
        # Of another generation.
        lambda archive: _summary(archive).write_bytes(_summary(archive, 2).read_bytes()),
        # Made before the newest receipt was restored.
        lambda archive: archive.generation(1).write_summary(
            summarized(1, list(archive.generation(1).receipts())[:-1])
        ),
        lambda archive: _summary(archive).unlink(),
    ],
)
def test_receipts_between_damaged(archive: Archive, damage: Callable[[Archive], Any]) -> None:
    """A summary that isn't of just these receipts is ignored: their files are all listed."""
    write_missing_summaries(archive.snapshot())
    damage(archive)

    found = paths(archive, times_of(50, 80))

    for receipt in list(archive.generation(1).receipts())[5:]:
        assert {file.path for file in receipt.files} <= set(found)


def test_receipts_between_other_receipt(archive: Archive) -> None:
    """A receipt that was replaced as a whole isn't read in place of the one that was summarized."""
    write_missing_summaries(archive.snapshot())
    generation = archive.generation(1)
    names = generation.receipt_names()
    folder = Path(str(generation.folder)) / "receipts"
    (folder / names[5]).write_bytes((folder / names[4]).read_bytes())

    with pytest.raises(ReceiptError, match="is a copy of"):
        paths(archive, SIXTH)


def test_archive_files_other_receipt(archive: Archive) -> None:
    """Readers refuse then, and say what to run."""
    write_missing_summaries(archive.snapshot())
    generation = archive.generation(2)
    names = generation.receipt_names()
    folder = Path(str(generation.folder)) / "receipts"
    (folder / names[5]).write_bytes((folder / names[4]).read_bytes())

    with pytest.raises(ManifestInvalidError, match="validate"):
        archive_files(archive.snapshot(), times_of(130, 140))


def test_validate_summary_lies(archive: Archive) -> None:
    """Validation of everything finds a summary that says something else, once."""
    write_missing_summaries(archive.snapshot())
    before = _summary(archive).read_bytes()
    lie(archive)
    cluster: Any = None

    first = validate_archive(archive, cluster)
    again = validate_archive(archive, cluster)

    found = [(f.reason, f.where) for f in first.findings if "summary" in f.where]
    assert found == [(Reason.SUMMARY_CHANGED, "generations/0001/summary.json")]
    assert not [f for f in again.findings if "summary" in f.where]
    assert _summary(archive).read_bytes() == before


def test_validate_summary_unreadable(archive: Archive) -> None:
    """One that can't be read is a note that the same validation rewrites."""
    write_missing_summaries(archive.snapshot())
    before = _summary(archive).read_bytes()
    _summary(archive).write_bytes(before[:-9])
    cluster: Any = None

    first = validate_archive(archive, cluster)
    again = validate_archive(archive, cluster)

    assert [f.reason for f in first.findings if "summary" in f.where] == [Reason.NOTE_UNREADABLE]
    assert not [f for f in again.findings if "summary" in f.where]
    assert _summary(archive).read_bytes() == before


def test_validate_writes_summaries(archive: Archive) -> None:
    """It writes what is missing, of closed generations only; one that writes nothing doesn't."""
    cluster: Any = None
    validate_archive(archive, cluster, writes=False)
    assert not list(Path(str(archive.root)).rglob("summary.json"))

    validate_archive(archive, cluster)

    assert [_summary(archive, number).is_file() for number in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize("number", [1, 2])
def test_write_missing_summaries_killed(
    archive: Archive, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it writes any of them, the next run writes what is missing, and nothing else."""
    replace, left = json_files.os.replace, [number]

    def killed(source: str, target: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(json_files.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write_missing_summaries(archive.snapshot())

    assert write_missing_summaries(archive.snapshot()) == [1, 2][number - 1 :]
    assert write_missing_summaries(archive.snapshot()) == []


def test_write_missing_summaries_damaged(archive: Archive) -> None:
    """A damaged receipt keeps nothing else from being summarized."""
    generation = archive.generation(1)
    path = Path(str(generation.folder)) / "receipts" / generation.receipt_names()[3]
    path.write_bytes(path.read_bytes()[:-9])

    assert write_missing_summaries(archive.snapshot()) == [2]


def test_read_history_summaries(
    archive: Archive, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page reads no old receipts, and shows what they all say."""
    monkeypatch.setattr("kafka_drain.archive.history.COLUMNS", 1)
    plain, quick = History(), History()
    read_history(archive, plain)
    write_missing_summaries(archive.snapshot())
    opened.clear()

    read_history(archive, quick)

    assert len(opened) == RECEIPTS + 2
    assert (quick.spans, quick.read, quick.newest) == (plain.spans, plain.read, plain.newest)
    assert list(quick.points) == list(plain.points)
    assert (quick.runs, quick.days, quick.unknown) == (plain.runs, plain.days, plain.unknown)


def test_read_history_summaries_unknown(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of receipts whose records aren't proven, the page still names every file."""
    monkeypatch.setattr("kafka_drain.archive.history.COLUMNS", 1)
    old = MadeArchive(tmp_path / "old", {"flights": "id"})
    for number in range(3):
        old.seal({TP: {number: None}})
        old.open_generation()
    plain, quick = History(), History()
    read_history(old.archive, plain)
    assert write_missing_summaries(old.archive.snapshot()) == [1, 2, 3]

    read_history(old.archive, quick)

    assert quick.unknown == plain.unknown != {}
    assert quick.spans == plain.spans


def _summary(archive: Archive, number: int = 1) -> Path:
    return Path(str(archive.generation(number).folder)) / "summary.json"

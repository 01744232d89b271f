"""With an index, few old documents are read, and each answer is what it is without one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic import (
    CLUSTER_ID,
    SEALED_AT,
    TOPIC,
    Linker,
    SyntheticArchive,
    SyntheticCluster,
)
from kafka_drain.archive import index as deciding
from kafka_drain.archive import snapshot as reading
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.copies import copy_path
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.history import History, read_history
from kafka_drain.archive.index import Index, Query, parse_index
from kafka_drain.archive.index_files import index_to_write, write_index
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.soundness import check_sealed_state, note_of_window
from kafka_drain.archive.summary_files import write_missing_summaries
from kafka_drain.archive.window import Window
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import CheckpointError, ManifestInvalidError
from kafka_drain.findings import Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.intervals import Interval, TimeRange
from kafka_drain.maintenance.maintain import plan_maintenance
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.report import Report
from kafka_drain.proof.sealing import Identity, seal_deletion
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage import json_files
from kafka_drain.storage.sealed_json import seal
from kafka_drain.windows.window_jobs import freeze_window

TPS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
#: Closed generations of so many receipts, of which these aren't compacted.
CLOSED, RECEIPTS, PLAIN = 12, 2, (7, 12)
BACKFILLS = 12
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
HOUR_MS = 3_600_000
FIRST_MS = round(FIRST.timestamp() * 1000)

Damage = Callable[[Archive], Any]


def hours(start: float, end: float) -> TimeRange:
    """Times of some hours: each window of a backfill, and each receipt, has the records of one."""
    return TimeRange(FIRST_MS + round(start * HOUR_MS), FIRST_MS + round(end * HOUR_MS))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Backfilled hours, closed generations that are compacted, and an open one; with an index."""
    folder = tmp_path_factory.mktemp("index") / "archive"
    folder.mkdir()
    link = Linker(folder.parent / "template.parquet", with_crc=False)
    made = SyntheticArchive(folder, link.size, link, TPS, FIRST_MS, HOUR_MS // 10)
    for hour in range(BACKFILLS):
        start = FIRST + timedelta(hours=hour)
        made.add_backfill(Interval(start, start + timedelta(hours=1)))
    for number in range(1, CLOSED + 1):
        made.add_generation(number, sealed=RECEIPTS, files=len(TPS))
    for number in range(1, CLOSED + 1):
        if number not in PLAIN:
            made.compact(number)
            shutil.rmtree(folder / f"generations/{number:04d}/data/topic={TOPIC}")
    made.add_generation(CLOSED + 1, sealed=1, files=len(TPS), unsealed=1, new_files=len(TPS))
    note_sealed(made.archive.root, check_sealed_state(made.archive.snapshot()).there)
    write_missing_summaries(made.archive.snapshot())
    index = index_to_write(made.archive.snapshot(), whole=True)
    assert index is not None
    write_index(made.archive.snapshot(), index)
    return folder


@pytest.fixture
def archive(template: Path, tmp_path: Path) -> Archive:
    """A copy of it."""
    shutil.copytree(template, tmp_path / "archive")
    path = Path(tmp_path / "archive" / f"generations/{CLOSED + 1:04d}/data/_spark_metadata/1")
    path.write_bytes(path.read_bytes().replace(bytes(template), bytes(tmp_path / "archive")))
    for crc in path.parent.glob(".*.crc"):
        crc.unlink()
    return Archive.at(str(tmp_path / "archive"))


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generations and two windows are looked at in turn."""
    monkeypatch.setattr(deciding, "GENERATIONS_IN_TURN", 2)
    monkeypatch.setattr(deciding, "WINDOWS_IN_TURN", 2)


@contextmanager
def without_index() -> Iterator[None]:
    """Read everything, as if there were no index."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "FEW", 1_000)
        yield


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The owners of the receipts and plans that are read."""
    names: list[str] = []
    of_generation, of_window = Generation.read_receipt, Window.read_receipt

    def generation(self: Generation, name: str) -> Any:
        names.append(self.name)
        return of_generation(self, name)

    def window(self: Window) -> Any:
        names.append(self.name)
        return of_window(self)

    monkeypatch.setattr(Generation, "read_receipt", generation)
    monkeypatch.setattr(Window, "read_receipt", window)
    return names


def path_of(archive: Archive, where: str) -> Path:
    """A file of an archive."""
    return Path(str(archive.root)) / where


def index_of(archive: Archive) -> Index:
    """What its index says."""
    return parse_index(path_of(archive, "index.json").read_bytes())


def validated(archive: Archive, scope: Any = "open", **how: Any) -> Report:
    """Validate an archive; nobody is asked why offsets are missing if nothing is written."""
    cluster: Any = SyntheticCluster(TPS) if how.get("writes", True) else None
    return validate_archive(archive, cluster, scope=scope, **how)


def said(report: Report) -> dict[str, Any]:
    """What a report says, but for the time that it took."""
    found = report.to_dict()
    found.pop("seconds", None)
    found.pop("validated_at", None)
    return found


def checked(archive: Archive) -> str:
    """Whether a drain may run, and where it would resume; or why not."""
    pipeline = Pipeline(
        name="synthetic", topics=[TOPIC], archive=str(archive.root), partition_by=["topic"]
    )
    cluster: Any = SyntheticCluster(TPS)
    try:
        return str(preflight(pipeline, cluster).start)
    except CheckpointError as error:
        return str(error)


def listed(archive: Archive, times: TimeRange) -> list[str] | str:
    """The files that a reader of some times gets; or why it gets none."""
    try:
        files = archive_files(archive.snapshot(), times)
    except ManifestInvalidError as error:
        return str(error)
    return [
        file.path
        for file in files
        if file.sealed is None
        or any(times.may_hold(c.first_timestamp, c.last_timestamp) for c in file.sealed.contents)
    ]


def test_index_names_all(archive: Archive) -> None:
    """All closed generations and settled windows are in it, and it is sound."""
    index = archive.snapshot().index

    assert index is not None
    assert index == index_of(archive)
    assert [row.generation for row in index.generations] == [*range(1, CLOSED + 1)]
    assert len(index.windows) == BACKFILLS + CLOSED - len(PLAIN)
    assert index.is_gone(index.generations[0])
    assert not index.is_gone(index.generations[-1])


def test_validate_open_same(archive: Archive, opened: list[str]) -> None:
    """Validation of the open generation reports all figures, and reads few old receipts."""
    with without_index():
        plain = validated(archive, writes=False)
    many = len(opened)
    opened.clear()

    quick = validated(archive, writes=False)

    assert said(quick) == said(plain)
    assert plain.complete
    assert len(plain.generations) == CLOSED + 1
    # All windows and closed generations; or two generations in turn, the newest, and two windows.
    assert many - len(opened) == (BACKFILLS + CLOSED - len(PLAIN) - 2) + (CLOSED - 3)


def test_validate_open_seals(archive: Archive) -> None:
    """It seals what is new, which continues the chain of receipts."""
    assert validated(archive).receipts_written == 1
    assert validated(archive).complete
    assert validated(archive, "all").complete


def test_validate_open_all_in_turn(archive: Archive, opened: list[str]) -> None:
    """As the journal grows, everything that is closed is looked at."""
    seen = set[str]()
    for turn in range(1, 12):
        opened.clear()
        snapshot = archive.snapshot()
        object.__setattr__(snapshot.journal, "newest", turn)
        check_sealed_state(snapshot, query=Query())
        seen |= set(opened)

    owners = {f"generations/{number:04d}" for number in range(1, CLOSED + 2)}
    assert seen == owners | {f"windows/{key}" for key in archive.snapshot().folders}


def test_preflight_same(archive: Archive, opened: list[str]) -> None:
    """A drain's check says the same, and looks at few closed generations."""
    with without_index():
        plain = checked(archive)
    many = len(opened)
    opened.clear()

    assert checked(archive) == plain
    # Two generations in turn, the newest that is closed, and the open one.
    assert (many, len(opened)) == (CLOSED + 1, 4)
    assert {owner for owner in opened if owner.startswith("windows")} == set()


@pytest.mark.parametrize("start", [-1, 0, 5.5, 11, 12, 13.25, 24, 34, 35, 36, 37, 60])
@pytest.mark.parametrize("length", [0.5, 2, 100])
def test_archive_files_same(archive: Archive, start: float, length: float) -> None:
    """Whatever time is asked for, a reader gets the same files."""
    times = hours(start, start + length)
    with without_index():
        plain = listed(archive, times)

    assert listed(archive, times) == plain


def test_archive_files_few(archive: Archive, opened: list[str]) -> None:
    """A reader of an hour reads what may have its records, and what is looked at in turn."""
    archive_files(archive.snapshot(), hours(13, 14))

    # The compacted first generation; two windows, the newest and two other generations in turn.
    assert "windows/compact_0001" in opened
    assert len(set(opened)) <= 1 + 2 + 3 + 1


def test_topic_incarnations_same(archive: Archive) -> None:
    """The incarnations of topics are those of all generations."""
    with without_index():
        plain = archive.snapshot().topic_incarnations()

    assert archive.snapshot().topic_incarnations() == plain == {(TOPIC, TPS_ID): 1}


@pytest.mark.parametrize("days", [None, 1])
def test_plan_maintenance_same(archive: Archive, opened: list[str], days: int | None) -> None:
    """Maintenance plans the same, and reads no window that a compaction has written."""
    pipeline = Pipeline(
        name="synthetic",
        topics=[TOPIC],
        archive=str(archive.root),
        partition_by=["topic"],
        retention_days=days,
        target_file_bytes=1 << 40,
    )

    def clock() -> datetime:
        return FIRST + timedelta(days=1, hours=18.5)

    with without_index():
        plain = plan_maintenance(pipeline, clock=clock)
    many = len(set(opened))
    opened.clear()

    quick = plan_maintenance(pipeline, clock=clock)

    assert quick.lines() == plain.lines()
    assert [found.files for found in quick.compactions] == [f.files for f in plain.compactions]
    # The generations that aren't compacted; the backfilled hours, unless they are too old.
    assert len(plain.compactions) == (3 if days is None else 2)
    assert bool(plain.deletions) is (days is not None)
    assert len(set(opened)) < many


@pytest.mark.parametrize(("columns", "points"), [(1, 3), (1, 1_000), (96, 1)])
def test_read_history_same(
    archive: Archive, opened: list[str], columns: int, points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page shows what all receipts say; with an index, it reads those that it shows by run."""
    monkeypatch.setattr("kafka_drain.archive.history.COLUMNS", columns)
    monkeypatch.setattr("kafka_drain.archive.history.POINTS", points)
    plain, quick = History(), History()
    with without_index():
        read_history(archive, plain)
    opened.clear()

    read_history(archive, quick)

    shown = lambda history: (history.spans, history.read, history.newest, history.unknown)  # noqa: E731
    assert shown(quick) == shown(plain)
    assert list(quick.points) == list(plain.points)
    assert (quick.runs, quick.days) == (plain.runs, plain.days)
    assert quick.drained_again == plain.drained_again
    assert not any(owner.startswith("windows/") for owner in opened)
    # It was sealed on the day before.
    assert ("generations/0003" in opened) is ((columns, points) != (1, 3))


TPS_ID = "synthetic-topic-000001"
WINDOW, LATER = "windows/compact_0003", "windows/compact_0011"


def rewrite(archive: Archive, index: Index) -> None:
    """Write another index, with a seal that fits."""
    path_of(archive, "index.json").write_bytes(index.to_bytes())


def older(archive: Archive) -> None:
    """An index of a state with fewer generations and windows."""
    snapshot = archive.snapshot()
    few = Snapshot(snapshot.root)
    few.__dict__["_all_generations"] = snapshot.generations[:7]
    kept = [key for key in snapshot.folders if key <= "compact_0004"]
    few.__dict__["_all_folders"] = {key: snapshot.folders[key] for key in kept}
    index = index_to_write(few, whole=True)
    assert index is not None
    assert len(index.generations) == 6
    rewrite(archive, index)


def byte(where: str) -> Damage:
    """Change a byte of a file."""

    def change(archive: Archive) -> None:
        content = bytearray(path_of(archive, where).read_bytes())
        content[len(content) // 2] ^= 1
        path_of(archive, where).write_bytes(bytes(content))

    return change


def away(where: str) -> Damage:
    """Remove a file or folder."""

    def remove(archive: Archive) -> None:
        path = path_of(archive, where)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


NEWEST = f"generations/{CLOSED:04d}"
HARMLESS: dict[str, Damage] = {
    "none": lambda archive: None,
    "index missing": away("index.json"),
    "index empty": lambda archive: path_of(archive, "index.json").write_bytes(b""),
    "index changed": byte("index.json"),
    "index of an older state": older,
    "index with other receipts": lambda archive: rewrite(
        archive,
        replace(
            index_of(archive),
            generations=(
                replace(index_of(archive).generations[0], sha256="0" * 64),
                *index_of(archive).generations[1:],
            ),
        ),
    ),
    "index of the open generation": lambda archive: rewrite(
        archive,
        replace(
            index_of(archive),
            generations=(
                *index_of(archive).generations,
                replace(index_of(archive).generations[-1], generation=CLOSED + 1),
            ),
        ),
    ),
    "index that ends later": lambda archive: rewrite(
        archive,
        replace(
            index_of(archive),
            partitions=tuple(replace(row, end=row.end + 1) for row in index_of(archive).partitions),
        ),
    ),
}
FOUND_AT_ONCE: dict[str, Damage] = {
    "window missing": away(WINDOW),
    "all windows missing": away("windows"),
    "generation missing": away("generations/0003"),
    "newest closed generation's receipts missing": away(f"{NEWEST}/receipts"),
    "newest closed generation's receipt changed": byte(f"{NEWEST}/receipts/000000000001.json"),
    "newest closed generation changed": byte(f"{NEWEST}/generation.json"),
    "open generation's receipt changed": byte(
        f"generations/{CLOSED + 1:04d}/receipts/000000000000.json"
    ),
    "journal cut": away("journal/000000000001.json"),
}


@pytest.mark.parametrize("damage", HARMLESS.values(), ids=HARMLESS)
def test_index_damaged(archive: Archive, damage: Damage) -> None:
    """Without a sound index, everything is as without any; validation writes a true one."""
    before = path_of(archive, "index.json").read_bytes()
    with without_index():
        plain = said(validated(archive, writes=False)), checked(archive)
        files = listed(archive, hours(13, 40))
    damage(archive)

    assert (said(validated(archive, writes=False)), checked(archive)) == plain
    assert listed(archive, hours(13, 40)) == files
    validated(archive)
    assert path_of(archive, "index.json").read_bytes() == before


@pytest.mark.parametrize("damage", FOUND_AT_ONCE.values(), ids=FOUND_AT_ONCE)
def test_archive_damaged(archive: Archive, damage: Damage) -> None:
    """What is missing from the listings, or of what is newest, is found at once, as without it."""
    damage(archive)
    with without_index():
        plain = said(validated(archive, writes=False)), checked(archive)
        files = listed(archive, hours(13, 15))

    assert (said(validated(archive, writes=False)), checked(archive)) == plain
    assert listed(archive, hours(13, 15)) == files
    assert plain[0]["findings"]
    assert isinstance(files, str)


def reopened(archive: Archive) -> None:
    """Another reason for which the third generation was opened."""
    path = path_of(archive, "generations/0003/generation.json")
    path.write_text(path.read_text().replace('"rollover"', '"another"'))


@pytest.mark.parametrize(
    ("damage", "where"),
    [
        (byte(f"{WINDOW}/receipt.json"), f"{WINDOW}/receipt.json"),
        (byte(f"{WINDOW}/plan.json"), f"{WINDOW}/plan.json"),
        (away(f"{WINDOW}/receipt.json"), f"{WINDOW}/receipt.json"),
        (
            byte("generations/0003/receipts/000000000001.json"),
            "generations/0003/receipts/000000000001.json",
        ),
        (
            away("generations/0003/receipts/000000000000.json"),
            "generations/0003/receipts/000000000000.json",
        ),
        (reopened, "generations/0003/generation.json"),
    ],
)
def test_closed_damaged(archive: Archive, damage: Damage, where: str) -> None:
    """What is wrong with old documents is found in turn, when asked for, and by a full look."""
    damage(archive)
    turns = []
    for turn in range(1, 12):
        snapshot = archive.snapshot()
        object.__setattr__(snapshot.journal, "newest", turn)
        turns.append(bool(check_sealed_state(snapshot, query=Query()).findings))

    assert {*turns} == {False, True}
    assert not validated(archive, "all", writes=False).complete
    if where.startswith(WINDOW):
        # The window has the records of the third generation.
        assert isinstance(listed(archive, hours(16, 18)), str)


def test_window_restored(archive: Archive) -> None:
    """A window that is put back is as it was, and the index counts again."""
    folder = path_of(archive, WINDOW)
    shutil.move(folder, folder.parent.parent / "elsewhere")
    assert archive.snapshot().index is None
    shutil.move(folder.parent.parent / "elsewhere", folder)

    assert archive.snapshot().index is not None
    assert validated(archive).complete


def delete(archive: Archive, key: str, paths: list[str]) -> None:
    """Seal a window that deletes files of generation 7, without a look at other windows."""
    window = Window(archive.root, key)
    gaps = [
        Gap(content.tp, OffsetRange(content.first, content.last + 1), GapReason.DELETED)
        for receipt in archive.generation(7).receipts()
        for file in receipt.files
        if file.path in paths
        for content in file.contents
    ]
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    for gap in gaps:
        ranges.setdefault(gap.tp, []).append(gap.range)
    held = {"files": len(paths), "bytes": 0, "records": []}
    how: Any = {"kind": WindowKind.RETENTION, "file_format": "parquet", "partition_by": []}
    freeze_window(window, ranges, replaces=paths, replaced=held, **how)
    receipt = seal_deletion(
        gaps,
        identity=Identity("synthetic", CLUSTER_ID, {TOPIC: TPS_ID}),
        window=key,
        replaces=paths,
        sealed_at=SEALED_AT,
    )
    window.write_receipt(receipt.sealed())
    noted = note_of_window(archive.snapshot(), window, window.read_receipt())
    note_sealed(archive.root, noted)


@pytest.mark.parametrize("is_later", [False, True])
def test_index_replaced_twice(archive: Archive, is_later: bool) -> None:
    """Two windows that name the same files don't make the other files of their owner vanish."""
    files = [file.path for file in archive_files(archive.snapshot(), hours(24, 26))]
    own = [path for path in files if path.startswith("generations/0007/")]
    delete(archive, "retention_0098", own[:2])
    if is_later:
        rewrite(archive, index_to_write(archive.snapshot(), whole=False) or Index())
    delete(archive, "retention_0099", own[:2])

    made = [index_to_write(archive.snapshot(), whole=whole) for whole in (False, True)]

    for index in made:
        assert index is not None
        assert not index.is_gone(next(row for row in index.generations if row.generation == 7))
        rewrite(archive, index)
        found = [file.path for file in archive_files(archive.snapshot(), hours(24, 26))]
        assert found == [path for path in files if path not in own[:2]]
    assert len(own) == 4


def test_receipt_restored(archive: Archive) -> None:
    """A receipt that is restored from its copy is the one that the index names."""
    where = "generations/0003/receipts/000000000001.json"
    byte(where)(archive)
    path_of(archive, where).write_bytes(copy_path(archive.root, where).read_bytes())

    assert archive.snapshot().index is not None
    assert validated(archive, "all").complete


LIES: dict[str, tuple[Callable[[Index], Index], str]] = {
    "times of a generation": (
        lambda index: replace(
            index,
            generations=(
                *index.generations[:6],
                replace(index.generations[6], first_timestamp=0, last_timestamp=0),
                *index.generations[7:],
            ),
        ),
        "generations/0007",
    ),
    "what a window replaces": (
        lambda index: replace(
            index,
            windows=tuple(
                replace(row, replaces={}) if row.window == "compact_0003" else row
                for row in index.windows
            ),
        ),
        WINDOW,
    ),
    "offsets of a window": (
        lambda index: replace(
            index,
            windows=tuple(
                replace(row, held={TOPIC: "0:0-1"}) if row.window == "compact_0003" else row
                for row in index.windows
            ),
        ),
        WINDOW,
    ),
    "offsets that are covered": (
        lambda index: replace(
            index,
            partitions=tuple(replace(row, covered=((0, 1),)) for row in index.partitions),
        ),
        "their sums",
    ),
    "sums": (lambda index: replace(index, files=index.files + 1), "their sums"),
}


@pytest.mark.parametrize(("lie", "name"), LIES.values(), ids=LIES)
def test_validate_index_lies(archive: Archive, lie: Callable[[Index], Index], name: str) -> None:
    """Validation of everything finds an index that says something else, once."""
    before = path_of(archive, "index.json").read_bytes()
    rewrite(archive, lie(index_of(archive)))

    first, again = validated(archive, "all"), validated(archive, "all")

    found = [(f.reason, f.where, f.detail) for f in first.findings]
    detail = f"says something else of {name} than the receipts themselves"
    assert found == [(Reason.SUMMARY_CHANGED, "index.json", detail)]
    assert again.findings == []
    assert path_of(archive, "index.json").read_bytes() == before


def test_validate_index_other_version(archive: Archive) -> None:
    """An index of another release doesn't count, is no damage, and is made anew."""
    path, index = path_of(archive, "index.json"), index_of(archive)
    path.write_bytes(seal({"format_version": 1, "generations": []}))

    assert archive.snapshot().index is None
    assert validated(archive, "all").findings == []
    assert index_of(archive).windows == index.windows


def test_validate_index_unreadable(archive: Archive) -> None:
    """An index that isn't one is reported by a validation of everything, and written again."""
    before = path_of(archive, "index.json").read_bytes()
    byte("index.json")(archive)

    first, again = validated(archive, "all"), validated(archive, "all")

    assert [(f.reason, f.where) for f in first.findings] == [(Reason.NOTE_UNREADABLE, "index.json")]
    assert again.findings == []
    assert path_of(archive, "index.json").read_bytes() == before


def test_validate_writes_no_index(archive: Archive) -> None:
    """None is written where nothing may be, for a small archive, or beside damage."""
    path_of(archive, "index.json").unlink()
    validated(archive, writes=False)
    with without_index():
        validated(archive, "all")
    byte(f"{WINDOW}/receipt.json")(archive)
    validated(archive)

    assert not path_of(archive, "index.json").exists()


def test_write_index_killed(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it is written, the next validation writes it."""
    before = path_of(archive, "index.json").read_bytes()
    path_of(archive, "index.json").unlink()
    validated(archive, writes=False)
    index = index_to_write(archive.snapshot(), whole=True)
    assert index is not None

    def killed(source: str, target: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(json_files.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write_index(archive.snapshot(), index)
    validated(archive)

    assert path_of(archive, "index.json").read_bytes() == before
    assert not write_index(archive.snapshot(), index)


def test_index_grows(archive: Archive, opened: list[str]) -> None:
    """A validation adds what was closed since, and reads nothing else for it."""
    index, keep = index_of(archive), {"compact_0010", "compact_0011"}
    rewrite(archive, Index().plus((), ()))
    older(archive)
    opened.clear()

    validated(archive)

    assert index_of(archive) == index
    assert {f"windows/{key}" for key in keep} <= set(opened)
    assert json.loads(path_of(archive, "index.json").read_bytes())["format_version"] == 2


def test_index_without_summaries(archive: Archive, opened: list[str]) -> None:
    """A validation of the open generation doesn't read all receipts of another for its index."""
    before = path_of(archive, "index.json").read_bytes()
    path_of(archive, "index.json").unlink()
    path_of(archive, "generations/0007/summary.json").unlink()

    validated(archive)

    assert [row.generation for row in index_of(archive).generations] == [*range(1, 7)]
    assert opened.count("generations/0007") == 1
    validated(archive, "all")
    assert path_of(archive, "index.json").read_bytes() == before


def test_validate_plan_reformatted(archive: Archive) -> None:
    """A plan with other whitespace is the same plan, and the index isn't wrong."""
    path = path_of(archive, f"{WINDOW}/plan.json")
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7))

    assert validated(archive, "all", writes=False).findings == []

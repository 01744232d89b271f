"""With an index, backfills, seals and rolls read what they ask for, and decide as without one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import (
    SEALED_AT,
    TOPIC,
    TOPIC_ID,
    Linker,
    SyntheticArchive,
    SyntheticCluster,
    write_records,
)
from kafka_drain.archive import index as deciding
from kafka_drain.archive import snapshot as reading
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.history import History, read_history
from kafka_drain.archive.index import parse_index
from kafka_drain.archive.index_files import index_to_write, write_index
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.soundness import check_sealed_state
from kafka_drain.archive.summary_files import write_missing_summaries
from kafka_drain.archive.window import Window
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.reader import read_records
from kafka_drain.data_files.xxhash64 import records_fingerprint
from kafka_drain.errors import KafkaDrainError, ManifestInvalidError
from kafka_drain.intervals import Interval, TimeRange
from kafka_drain.offsets import OffsetRange, TopicPartition, overlapping
from kafka_drain.proof.sealing import seal_window
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import plan_republish
from kafka_drain.spark.job_spec import write_private
from kafka_drain.storage.paths import locate
from kafka_drain.windows import window_jobs as jobs
from kafka_drain.windows.backfill import (
    finish_backfill,
    open_backfill,
    refuse_incomplete,
    sealed_windows,
)
from kafka_drain.windows.backfill_plan import BackfillPlan, plan_backfill
from kafka_drain.windows.roll import plan_roll
from kafka_drain.windows.window_jobs import freeze_window, refuse_taken
from tests.kafka_drain.fake_cluster import fake_application

P0, P1 = TPS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
#: The hour of the first record in Kafka; each hour has ten records of each partition.
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
FIRST_MS = round(FIRST.timestamp() * 1000)
STEP = 360_000
#: Hours that were backfilled: the first ones and these between them weren't.
BACKFILLED = [hour for hour in range(2, 16) if hour not in (7, 8)]
#: The first drained hour; then three closed generations of two hours, and an open one of one.
DRAINED = 16
CLOSED = 3


class Kafka(SyntheticCluster):
    """A Kafka that has deleted some of its first offsets."""

    def __init__(self, first: int = 0, end: int = 1_000) -> None:
        super().__init__(TPS, FIRST_MS, STEP)
        self._first, self._end = first, end

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that it has."""
        return dict.fromkeys(partitions, self._first)

    def latest(
        self, partitions: Iterable[TopicPartition], isolation_level: str
    ) -> dict[TopicPartition, int]:
        """Return the end of its log."""
        return dict.fromkeys(partitions, self._end)


def interval(start: float, length: float = 1) -> Interval:
    """The hours from one on."""
    begin = FIRST + timedelta(hours=start)
    return Interval(begin, begin + timedelta(hours=length))


def make(folder: Path, closed: int) -> Path:
    """Write an archive of backfilled and drained hours, the first generation compacted."""
    folder.mkdir()
    link = Linker(folder.parent / f"{folder.name}.parquet", with_crc=False)
    ends = dict.fromkeys(TPS, 20)
    made = SyntheticArchive(folder, link.size, link, TPS, FIRST_MS, STEP, ends)
    for hour in range(2, DRAINED):
        if hour in BACKFILLED:
            made.add_backfill(interval(hour))
        else:
            made.ends = {tp: end + 10 for tp, end in made.ends.items()}
    for number in range(1, closed + 1):
        made.add_generation(number, sealed=2, files=len(TPS))
    if closed:
        made.compact(1)
    made.add_generation(closed + 1, sealed=1, files=len(TPS))
    note_sealed(made.archive.root, check_sealed_state(made.archive.snapshot()).there)
    write_missing_summaries(made.archive.snapshot())
    index = index_to_write(made.archive.snapshot(), whole=True)
    assert index is not None
    assert len(index.windows) == len(BACKFILLED) + bool(closed)
    write_index(made.archive.snapshot(), index)
    return folder


@pytest.fixture(scope="module", params=[CLOSED, 0], ids=["closed", "nothing closed"])
def template(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """An archive with an index, which no test changes."""
    folder = tmp_path_factory.mktemp("backfills") / "archive"
    return Archive.at(str(make(folder, request.param)))


@pytest.fixture
def archive(template: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """A copy of it; Java isn't needed."""
    monkeypatch.setattr(jobs, "prepare_application", fake_application)
    # The manifest names its files by path: nothing here is unsealed.
    shutil.copytree(str(template.root), tmp_path / "archive")
    return Archive.at(str(tmp_path / "archive"))


@pytest.fixture(autouse=True, scope="module")
def short_turns() -> Iterator[None]:
    """One generation and one window are looked at in turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deciding, "GENERATIONS_IN_TURN", 1)
        patch.setattr(deciding, "WINDOWS_IN_TURN", 1)
        yield


@contextmanager
def without_index() -> Iterator[None]:
    """Read everything, as if there were no index."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "FEW", 1_000)
        yield


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The owners of the receipts that are read."""
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


def pipeline(archive: Archive) -> Pipeline:
    """The archive's pipeline."""
    return Pipeline(
        name="synthetic", topics=[TOPIC], archive=str(archive.root), partition_by=["topic"]
    )


def outcome(decide: Callable[[], Any]) -> Any:
    """What is decided, or why nothing is."""
    try:
        return decide()
    except KafkaDrainError as error:
        return type(error), str(error)


def same(decide: Callable[[], Any]) -> Any:
    """Return what is decided with the index, which is what is decided without it."""
    with without_index():
        plain = outcome(decide)
    found = outcome(decide)

    assert found == plain
    return found


@given(st.data())
@settings(max_examples=40)
def test_plan_backfill_same(template: Archive, data: st.DataObject) -> None:
    """Whichever hours are asked for, and whatever Kafka has deleted, the plan is the same."""
    hours = st.integers(0, 50).map(lambda half: half / 2)
    asked = interval(data.draw(hours) - 1, data.draw(st.sampled_from([0.5, 1, 4])))
    first = data.draw(st.sampled_from([0, 0, 0, 15, 20, 25, 70, 75, 100, 175, 200, 230]))
    options = {"force": data.draw(st.integers(0, 5)) == 0}
    if data.draw(st.booleans()):
        expired = [f"{TOPIC}:{n}:0-{max(first, 1)}" for n in (0, 1)]
        options["acknowledged"] = parse_ranges("accepted", expired)

    plan = same(lambda: plan_backfill(pipeline(template), Kafka(first), asked, **options))

    assert isinstance(plan, BackfillPlan | tuple)


@pytest.mark.parametrize(
    ("hour", "left", "receipts"),
    [
        # Nobody holds it: no window, nor the open generation's neighbour, is looked at for it.
        (0, 20, 0),
        (7, 20, 0),
        # Its own window.
        (3, 0, 1),
    ],
)
def test_plan_backfill_few(
    template: Archive, opened: list[str], hour: int, left: int, receipts: int
) -> None:
    """A plan reads who holds the hour, those next to it, and what is looked at in turn."""
    plan = plan_backfill(pipeline(template), Kafka(), interval(hour))

    near = {f"windows/{interval(hour + number).key}" for number in (-1, 0, 1)}
    windows = {owner for owner in opened if owner.startswith("windows/")}
    assert plan.left == left
    assert len(plan.covered_by) == receipts
    assert len(windows - near) <= 1
    assert windows >= {name for name in near if (template.root / name).exists()}


def held_by_archive(archive: Archive) -> list[str]:
    """All files that readers get, by path."""
    return sorted(file.path for file in archive_files(archive.snapshot()) if file.sealed)


def receipt(
    key: str, ranges: Mapping[TopicPartition, Collection[tuple[int, int]]], replaces: list[str]
) -> Receipt:
    """A window that isn't sealed yet, with a file of all its offsets."""
    parts = [(tp, OffsetRange(*pair)) for tp, pairs in ranges.items() for pair in pairs]
    files = [
        SyntheticArchive._file(_Numbered(), f"windows/{key}/x-{number}.parquet", 1, tp, held, 0)
        for number, (tp, held) in enumerate(parts)
    ]
    return seal_window(
        parts,
        files,
        [],
        identity=SyntheticArchive.identity.fget(None),  # type: ignore[attr-defined]
        window=key,
        replaces=replaces,
        fingerprint=None,
        sealed_at=SEALED_AT,
    )


class _Numbered:
    """What is needed of a synthetic archive to describe a file."""

    _files, first_time, step = 0, FIRST_MS, STEP


@given(st.data())
@settings(max_examples=40)
def test_seal_same(template: Archive, data: st.DataObject) -> None:
    """Whatever a window holds and replaces, it is refused for the same reason, or not at all."""
    start = data.draw(st.integers(0, 230))
    ranges = {P0: [(start, start + data.draw(st.integers(1, 30)))]}
    if data.draw(st.booleans()):
        ranges[P1] = [(start, start + 2), (start + 5, start + 7)]
    owners = sorted({"/".join(path.split("/")[:2]) for path in held_by_archive(template)})
    owners += ["generations/0001"]
    chosen = data.draw(st.lists(st.sampled_from(owners), max_size=2, unique=True))
    key = data.draw(st.sampled_from(["compact_9999", interval(3).key, interval(7).key]))
    replaces = [f"{owner}/data/{name}" for owner in chosen for name in ("some", "other")]
    if data.draw(st.booleans()):
        there = [path for path in held_by_archive(template) if path.startswith(tuple(chosen))]
        replaces = there if chosen else []
    sealed = receipt(key, ranges, replaces)

    same(lambda: bool(refuse_taken(template.snapshot(), sealed)))


@pytest.mark.parametrize("template", [CLOSED], indirect=True)
def test_seal_replaced(template: Archive) -> None:
    """Files that another window has replaced can't be replaced again, with the index or without."""
    compacted = template.snapshot().folders["compact_0001"].receipt
    again = receipt("compact_9999", {P0: [(0, 1)]}, [compacted.replaces[0]])

    found = same(lambda: refuse_taken(template.snapshot(), again))

    assert "window compact_0001 has replaced 1 of the same files" in found[1]


def drained(
    archive: Archive, hour: float, folder: Path, length: float = 1
) -> tuple[BackfillPlan, Receipt]:
    """Plan a backfill, write its files in place of Spark, prove and seal them."""
    cluster: Any = Kafka()
    plan = plan_backfill(pipeline(archive), cluster, interval(hour, length))
    run = folder / f"run-{hour}"
    run.mkdir(mode=0o700)
    job = open_backfill(plan, pipeline(archive), cluster, run)
    data, value = Path(str(job.data)) / f"topic={TOPIC}", 0
    data.mkdir(parents=True)
    for tp, ranges in plan.ranges.items():
        path = f"{data}/part-{tp.partition:05d}.parquet"
        write_records(path, tp, ranges[0], FIRST_MS, STEP)
        value ^= records_fingerprint(read_records(locate(path), "parquet"), TOPIC)
    write_private(job.result_path, {"records": plan.left, "fingerprint": f"{value:016x}"})
    return plan, finish_backfill(plan, job, cluster, run="test")


def test_backfills_one_by_one(
    archive: Archive, opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each backfilled hour is added to the index, so that the next one reads no more than it."""
    monkeypatch.setattr(deciding, "chunk_of_turn", lambda portions, turn: ())
    read = []
    for half in range(8):
        opened.clear()
        plan, sealed = drained(archive, half / 2 if half < 4 else 5 + half / 2, tmp_path, 0.5)
        again = plan_backfill(pipeline(archive), Kafka(), plan.interval)
        refuse_incomplete(again)
        assert [each.window for each in sealed_windows(again)] == [plan.window.key]
        assert (again.left, again.covered_by) == (0, [sealed.where])
        read.append(len(set(opened)))

    index = archive.snapshot().index
    assert index is not None
    assert len(index.windows) >= len(BACKFILLED) + 8
    assert index.covered[P0, TOPIC_ID][0].start == 0
    # Some have a window on both sides.
    assert max(read) <= min(read) + 2
    assert validate_archive(archive, Kafka()).complete
    assert archive.snapshot().index == index_to_write(archive.snapshot(), whole=True)


def test_backfill_index_lost(archive: Archive, tmp_path: Path) -> None:
    """Without an index, or with one of another release, the first backfill begins one."""
    path = Path(str(archive.root / "index.json"))
    path.unlink()
    drained(archive, 7, tmp_path)
    assert [row.window for row in parse_index(path.read_bytes()).windows] == [interval(7).key]
    assert archive.snapshot().index is not None

    drained(archive, 8, tmp_path)

    assert len(parse_index(path.read_bytes()).windows) == 2
    same(lambda: plan_backfill(pipeline(archive), Kafka(), interval(0)))
    assert validate_archive(archive, Kafka(), scope="open").complete
    assert parse_index(path.read_bytes()) == index_to_write(archive.snapshot(), whole=True)


def test_backfill_killed_before_index(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is killed between receipt and index, the window is read until a validation adds it."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "add_to_index", killed)
        with pytest.raises(KeyboardInterrupt):
            drained(archive, 7, tmp_path)

    plan = same(lambda: plan_backfill(pipeline(archive), Kafka(), interval(7)))
    assert plan.nothing_to_do
    assert interval(7).key not in {row.window for row in archive.snapshot().index.windows}
    assert validate_archive(archive, Kafka(), scope="open").complete
    assert interval(7).key in {row.window for row in archive.snapshot().index.windows}


def damage(archive: Archive, where: str, *, is_gone: bool) -> None:
    """Remove a document, or change a byte of it."""
    path = Path(str(archive.root / where))
    if is_gone:
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["receipt.json", "plan.json"])
@pytest.mark.parametrize("is_gone", [False, True])
def test_backfill_beside_damage(archive: Archive, tmp_path: Path, name: str, is_gone: bool) -> None:
    """A damaged window stops who asks for it; others go on, and a validation of all finds it."""
    damaged = interval(11)
    damage(archive, f"windows/{damaged.key}/{name}", is_gone=is_gone)

    for asked in (damaged, interval(10.5), interval(12)):
        with pytest.raises(ManifestInvalidError, match=damaged.key):
            plan_backfill(pipeline(archive), Kafka(), asked)
    with pytest.raises(ManifestInvalidError, match=damaged.key):
        refuse_taken(archive.snapshot(), receipt("x", {P1: [(115, 116)]}, []))
    with pytest.raises(ManifestInvalidError, match=damaged.key):
        refuse_taken(archive.snapshot(), receipt("x", {P1: [(0, 1)]}, [f"windows/{damaged.key}/x"]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            deciding, "chunk_of_turn", lambda portions, turn: portions[0] if portions else ()
        )
        drained(archive, 0, tmp_path)
    found = validate_archive(archive, Kafka())
    assert damaged.key in str(found.findings)
    assert not found.complete


@pytest.mark.parametrize("name", ["receipt.json", "plan.json"])
@pytest.mark.parametrize("is_gone", [False, True])
def test_archive_files_beside_damage(
    archive: Archive, name: str, is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of offsets is refused those of a damaged window, and no others; a roll goes on."""
    monkeypatch.setattr(deciding, "chunk_of_turn", lambda portions, turn: ())
    cluster: Any = Kafka()
    plan = plan_roll(archive, cluster).to_dict()
    damage(archive, f"windows/{interval(11).key}/{name}", is_gone=is_gone)

    with pytest.raises(ManifestInvalidError, match=interval(11).key):
        archive_files(archive.snapshot(), None, {P0: [OffsetRange(119, 130)]})
    with pytest.raises(ManifestInvalidError, match=interval(11).key):
        archive_files(archive.snapshot())

    assert archive_files(archive.snapshot(), None, {P0: [OffsetRange(120, 130)]})
    assert plan_roll(archive, cluster).to_dict() == plan


def test_validate_same(template: Archive) -> None:
    """A validation reports the same, also if the index has nothing but backfills."""

    def said() -> dict[str, Any]:
        found = validate_archive(template, None, scope="open", writes=False).to_dict()
        return {
            key: value for key, value in found.items() if key not in ("seconds", "validated_at")
        }

    found = same(said)

    assert found["findings"] == []
    assert len(found["windows"]) >= len(BACKFILLED)


def test_read_history_same(template: Archive) -> None:
    """An archive's page shows the same, also if the index has nothing but backfills."""

    def shown() -> tuple[Any, ...]:
        history = History()
        read_history(template, history)
        return history.spans, history.read, history.newest, list(history.points), history.days

    same(shown)


def test_plan_roll_same(template: Archive, opened: list[str]) -> None:
    """A roll opens the next generation at the same offsets, and reads no window for it."""
    cluster: Any = Kafka()

    plan = same(lambda: plan_roll(template, cluster).to_dict())
    opened.clear()
    plan_roll(template, cluster)

    assert plan["opened"] == len(template.snapshot().generations) + 1
    assert (plan["voided"], plan["given_up"]) == ([], [])
    assert not [owner for owner in opened if owner.startswith("windows/")]


def test_plan_roll_voided(archive: Archive) -> None:
    """A window among the offsets that the next generation drains is removed all the same."""
    cluster: Any = Kafka()
    end = archive.snapshot().generations[-1].last_receipt()
    assert end is not None
    start = end.ends[P0]
    later = receipt("repair_1", {P0: [(start, start + 5)]}, [])
    window = Window(archive.root, "repair_1")
    how: Any = {"kind": WindowKind.REPAIR, "file_format": "parquet", "partition_by": []}
    freeze_window(window, {P0: [OffsetRange(start, start + 5)]}, replaces=[], **how)
    window.write_receipt(later.sealed())

    # Its file can't be compared with Kafka's records.
    accepted = [f"{TOPIC}:0:{start}-{start + 5}"]
    plan = same(
        lambda: plan_roll(
            archive, cluster, replaceable=parse_ranges("accepted", accepted)
        ).to_dict()
    )

    assert plan["voided"] == ["repair_1"]


@given(st.data())
@settings(max_examples=40)
def test_archive_files_same(template: Archive, data: st.DataObject) -> None:
    """Whichever offsets and times are asked for, a reader gets the same files that have some."""
    start = data.draw(st.integers(0, 240))
    offsets = {P0: [OffsetRange(start, start + data.draw(st.integers(1, 60)))]}
    if data.draw(st.booleans()):
        offsets[P1] = [OffsetRange(0, 25), OffsetRange(start + 30, start + 31)]
    times = None
    if data.draw(st.booleans()):
        first = FIRST_MS + data.draw(st.integers(0, 24)) * 3_600_000
        times = TimeRange(first, first + 7_200_000)

    def listed() -> list[str]:
        return [
            file.path
            for file in archive_files(template.snapshot(), times, offsets)
            if file.sealed is not None
            and any(
                overlapping(offsets.get(held.tp, []), OffsetRange(held.first, held.last + 1))
                and (times is None or times.may_hold(held.first_timestamp, held.last_timestamp))
                for held in file.sealed.contents
            )
        ]

    same(listed)


def test_archive_files_few(template: Archive, opened: list[str]) -> None:
    """A reader of some offsets reads the windows that have some, and what is looked at in turn."""
    files = archive_files(template.snapshot(), None, {P1: [OffsetRange(35, 36)]})

    assert f"windows/{interval(3).key}" in {file.owner.name for file in files}
    assert len({owner for owner in opened if owner.startswith("windows/")}) <= 2


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ({"offsets": [f"{TOPIC}:1:35-36"]}, ""),
        ({"offsets": [f"{TOPIC}:0:100000-100001"]}, ""),
        ({"offsets": [f"{TOPIC}:2:35-36"]}, "never held events-2; it holds events: 2 partitions"),
        ({"offsets": ["other:0:0-1"]}, "holds no records of other"),
        ({"partitions": ["1"], "offsets": [f"{TOPIC}:1:0-500"]}, ""),
        ({"partitions": ["2"]}, "never held partition 2"),
    ],
)
def test_plan_republish_same(template: Archive, asked: dict[str, Any], refused: str) -> None:
    """A restore of offsets plans the same, and refuses partitions that the archive never held."""
    cluster: Any = Kafka()
    request = RepublishRequest(target_topic=TOPIC, into_source=True, **asked)

    def planned() -> Any:
        how: Any = {"now": FIRST, "apply": False}
        found = plan_republish(template, cluster, request, **how)
        return [shard.files for shard in found.plan.shards]

    found = same(planned)

    assert isinstance(found, tuple) is bool(refused)
    assert refused in str(found)

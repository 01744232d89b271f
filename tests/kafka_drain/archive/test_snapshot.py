"""An archive as one value: what it is made of, read once, and how seldom commands read it."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kafka_drain
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.fold import Fold, WindowKind
from kafka_drain.archive.receipts import ReceiptError
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.soundness import note_of_segment
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import ArchiveError
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import plan_republish
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import (
    P0,
    P1,
    golden_cluster,
    open_next,
    row,
    seal_repair,
    sealed_copy,
)
from tests.kafka_drain.made_archive import MadeArchive, dense

HOUR = ["2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"]


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive with a generation and a window of each kind, of which none replaces anything."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal({P0: dense(0, 10)})
    for number, key in enumerate(
        ("20260101T000000Z_20260102T000000Z", "repair_1", "reprocess_0001_0001", "compact_0002")
    ):
        made.seal_window(key, {P0: dense(20 + 10 * number, 30 + 10 * number)})
    return made


# windows


@pytest.mark.parametrize(
    ("key", "plan", "kind", "supersedes", "is_maintained"),
    [
        ("reprocess_0001_0001", {}, WindowKind.REPROCESS, True, False),
        ("compact_0001", {}, WindowKind.COMPACTION, True, True),
        ("retention_0001", {}, WindowKind.RETENTION, True, True),
        ("erase_0001", {}, WindowKind.ERASURE, True, True),
        ("repair_20260101T000000Z", {}, WindowKind.REPAIR, False, False),
        ("another", {}, WindowKind.REPAIR, False, False),
        ("hour", {"interval": HOUR}, WindowKind.BACKFILL, False, False),
        # Of a plan of an earlier release, which doesn't say its kind, the name says more.
        ("compact_1", {"interval": HOUR}, WindowKind.COMPACTION, True, True),
        ("compact_1", {"kind": "repair"}, WindowKind.REPAIR, False, False),
        ("retention_1", {"kind": "backfill"}, WindowKind.BACKFILL, False, False),
        ("w", {"kind": "reprocess"}, WindowKind.REPROCESS, True, False),
        ("w", {"kind": "compact", "interval": HOUR}, WindowKind.COMPACTION, True, True),
        ("w", {"kind": "retention"}, WindowKind.RETENTION, True, True),
        ("compacted", {}, WindowKind.REPAIR, False, False),
    ],
)  # fmt: skip
def test_kind(
    tmp_path: Path,
    key: str,
    plan: dict[str, Any],
    kind: WindowKind,
    supersedes: bool,
    is_maintained: bool,
) -> None:
    """A plan says its kind; without it, the name does, and otherwise an interval."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal_window(key, {P0: dense(0, 10)}, **plan)

    [window] = made.archive.snapshot().windows

    assert (window.kind, window.supersedes, window.is_maintained) == (
        kind, supersedes, is_maintained
    )  # fmt: skip


def test_kind_plan_gone(made: MadeArchive) -> None:
    """Without its plan, a window's name still says whether it replaces sound files."""
    for window in made.archive.snapshot().windows:
        (window.folder / "plan.json").unlink()

    backfill, compaction, repair, _ = made.archive.snapshot().windows

    assert (compaction.kind, compaction.supersedes) == (WindowKind.COMPACTION, True)
    assert not backfill.supersedes
    assert not repair.supersedes
    with pytest.raises(ArchiveError, match=r"has no plan\.json"):
        _ = repair.kind


def test_kind_of_newer_release(tmp_path: Path) -> None:
    """A kind that this release doesn't know is refused, and its files aren't taken for gone."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    [file] = made.seal({P0: dense(0, 10)})
    made.seal_window("compact_0001", {P0: dense(0, 10)}, [file.path], kind="encrypt")

    [window] = made.archive.snapshot().windows

    with pytest.raises(ArchiveError, match=r"plan\.json has kind 'encrypt', expected one of"):
        _ = window.kind
    fold = made.archive.snapshot().fold
    assert (fold.replaced, fold.gone) == ({file.path}, set())


def test_windows_begun(made: MadeArchive) -> None:
    """A folder in which nothing was written yet is no window; one with a plan or data is."""
    windows = Path(str(made.root / "windows"))
    (windows / "empty").mkdir()
    (windows / "hidden").mkdir()
    (windows / "hidden" / ".half").write_text("{")
    (windows / "data_only" / "data").mkdir(parents=True)
    (windows / "planned").mkdir()
    (windows / "planned" / "plan.json").write_text("{}")
    (windows / "a_file").write_text("")

    snapshot = made.archive.snapshot()

    others = {window.key for window in snapshot.windows} - {w.key for w in snapshot.sealed}
    assert others == {"data_only", "planned"}
    assert {"empty", "hidden"} < set(snapshot.folders)
    assert "a_file" not in snapshot.folders
    assert len(snapshot.sealed) == 4


@pytest.mark.parametrize(
    ("names", "number"),
    [
        ([], 1),
        (["20260101T000000Z_20260102T000000Z", "repair_9", "compact"], 1),
        (["compact_0001"], 2),
        # A reprocess numbers its windows after this number.
        (["reprocess_0007_0012", "retention_0003"], 8),
    ],
)
def test_next_number(tmp_path: Path, names: list[str], number: int) -> None:
    """Windows that stand for intact files count from 1, sealed or not; others don't count."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    for name in names:
        (Path(str(made.root)) / "windows" / name).mkdir(parents=True)

    assert made.archive.snapshot().next_number == number


@pytest.mark.parametrize(
    ("plan", "is_sealed", "asked", "continues"),
    [
        ({"replaces": ["a"]}, False, {"replaces": ["a"]}, True),
        ({"replaces": ["a"], "format": "avro"}, False, {"replaces": ["a"]}, True),
        ({"replaces": ["a"]}, False, {"replaces": ["a"], "format": "avro"}, False),
        ({"replaces": ["a"]}, False, {"replaces": ["a", "b"]}, False),
        ({"replaces": ["a"]}, True, {"replaces": ["a"]}, False),
    ],
)
def test_can_continue(
    tmp_path: Path, plan: dict[str, Any], is_sealed: bool, asked: dict[str, Any], continues: bool
) -> None:
    """An attempt is continued by one with the same plan, as long as it isn't sealed."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal_window("w", {P0: dense(0, 10)}, **plan)
    if not is_sealed:
        (made.root / "windows/w/receipt.json").unlink()

    snapshot = made.archive.snapshot()

    assert [window.key for window in snapshot.unsealed] == ["w"] * (not is_sealed)
    assert snapshot.folders["w"].can_continue(asked) is continues
    assert (snapshot.continuing(asked, WindowKind.REPAIR) is not None) is continues


def test_continuing_any(tmp_path: Path) -> None:
    """Of several unsealed windows, the first one with that plan is continued."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    for key, replaces in (("w_1", ["a"]), ("w_2", ["b"]), ("w_3", ["b"])):
        made.seal_window(key, {P0: dense(0, 10)}, replaces)
        (made.root / "windows" / key / "receipt.json").unlink()

    found = made.archive.snapshot().continuing({"replaces": ["b"]}, WindowKind.REPAIR)

    assert found is not None
    assert found.key == "w_2"


@pytest.mark.parametrize("kind", list(WindowKind), ids=str)
def test_continuing_another_kind(tmp_path: Path, kind: WindowKind) -> None:
    """An erasure that was withdrawn, say, has left a window with the plan that a repair makes."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal_window("w", {P0: dense(0, 10)}, ["a"], kind=kind.value)
    (made.root / "windows/w/receipt.json").unlink()

    found = made.archive.snapshot().continuing({"replaces": ["a"]}, WindowKind.REPAIR)

    assert (found is not None) is (kind is WindowKind.REPAIR)


@pytest.mark.parametrize(
    ("generation", "windows", "newest"),
    [
        (None, {}, None),
        (3, {}, 3),
        (None, {"a": 5}, 5),
        (3, {"a": 5, "b": 4}, 5),
        (6, {"a": 5, "b": 4}, 6),
        (3, {"damaged": 9, "a": 5}, 5),
    ],
)
def test_sealed_at(
    tmp_path: Path, generation: int | None, windows: dict[str, int], newest: int | None
) -> None:
    """The newest seal is a generation's or a window's; what a damaged receipt says is unknown."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    if generation is not None:
        made.seal({P0: dense(0, 10)}, sealed_at=f"2026-01-0{generation}")
    for key, day in windows.items():
        made.seal_window(key, {P0: dense(20, 30)}, sealed_at=f"2026-01-0{day}")
    if "damaged" in windows:
        path = Path(str(made.root / "windows/damaged/receipt.json"))
        path.write_bytes(path.read_bytes().replace(b'"records"', b'"recards"', 1))

    assert made.archive.snapshot().sealed_at == (newest and f"2026-01-0{newest}")


def test_of_interval(made: MadeArchive) -> None:
    """An interval's windows are named, sealed or not."""
    first = "20260101T000000Z_20260102T000000Z"
    (Path(str(made.root)) / "windows" / f"{first}_2" / "data").mkdir(parents=True)
    (Path(str(made.root)) / "windows" / f"{first}X").mkdir()

    found = made.archive.snapshot().of_interval(first)

    assert [window.key for window in found] == [first, f"{first}_2"]


def test_fold_only_unsealed(made: MadeArchive) -> None:
    """A window that isn't sealed any more isn't left out: what it holds isn't known."""
    (made.root / "windows/repair_1/receipt.json").unlink()

    snapshot = made.archive.snapshot()

    assert Fold(snapshot.windows).only(["compact_0002", "x"]).keys == ["compact_0002"]
    with pytest.raises(ReceiptError, match="repair_1 isn't sealed"):
        _ = Fold(snapshot.windows).only(["compact_0002", "repair_1"]).replaced


def test_sealed_receipt_damaged(made: MadeArchive) -> None:
    """A damaged receipt is a seal all the same; whoever needs what it says gets the error."""
    path = Path(str(made.root / "windows/repair_1/receipt.json"))
    path.write_bytes(path.read_bytes().replace(b'"records"', b'"recards"', 1))

    snapshot = made.archive.snapshot()

    assert len(snapshot.sealed) == 4
    assert {w.key for w in snapshot.sealed} - {w.key for w in snapshot.readable_fold.windows} == {
        "repair_1"
    }
    with pytest.raises(ReceiptError):
        _ = snapshot.folders["repair_1"].receipt
    with pytest.raises(ReceiptError):
        _ = snapshot.fold.replaced


def test_receipt_not_sealed(made: MadeArchive) -> None:
    """A window without a receipt holds nothing yet, and says so."""
    (made.root / "windows/repair_1/receipt.json").unlink()

    window = made.archive.snapshot().folders["repair_1"]

    assert not window.is_sealed
    with pytest.raises(ReceiptError, match="window repair_1 isn't sealed"):
        _ = window.receipt


def test_replaced(tmp_path: Path) -> None:
    """What any sealed window replaces isn't live; removed is what was sound."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    first, second = (made.seal({P0: dense(at, at + 10)})[0].path for at in (0, 10))
    made.seal_window("repair_1", {P0: dense(0, 10)}, [first])
    made.seal_window("compact_0001", {P0: dense(10, 20)}, [second])

    snapshot = made.archive.snapshot()

    assert snapshot.fold.replaced == {first, second}
    assert snapshot.fold.gone == {second}


# generations


def test_generations_newest_not_begun(made: MadeArchive) -> None:
    """A newest folder that a killed drain left empty is no generation."""
    folder = Path(str(made.root / "generations/0002"))
    folder.mkdir()
    (folder / ".generation.json.tmp").write_text("{")
    assert [each.number for each in made.archive.snapshot().generations] == [1]

    (folder / "data").mkdir()
    assert [each.number for each in made.archive.snapshot().generations] == [1, 2]


@pytest.mark.parametrize(
    "name", ["1", "01", "00001", "0000", "\uff11", "\u00b2", "0001_copy", "0001 (1)"]
)
def test_generations_copied(name: str, tmp_path: Path) -> None:
    """A generation's folder copied under another name isn't that generation a second time."""
    archive = sealed_copy(tmp_path / "archive")
    files = archive_files(archive.snapshot())
    generations = tmp_path / "archive/generations"
    shutil.copytree(generations / "0001", generations / name)

    snapshot = archive.snapshot()

    assert [each.number for each in snapshot.generations] == [1]
    assert [file.path for file in archive_files(snapshot)] == [file.path for file in files]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_topic_ids_of_old_generation(is_damaged: bool, tmp_path: Path) -> None:
    """A generation without topic ids keeps those of its receipts when a topic is made again."""
    archive = sealed_copy(tmp_path / "archive")
    before = archive.snapshot().document
    archive.update_topics(before, {"flights": "another", "new": "id"})
    if is_damaged:
        newest = archive.generation(1).receipt_names()[-1]
        (tmp_path / "archive/generations/0001/receipts" / newest).write_text("{}")

    snapshot = archive.snapshot()

    known = "another" if is_damaged else before.topics["flights"]
    assert snapshot.topic_ids(snapshot.generations[0]) == {"flights": known, "new": "id"}


def test_topic_incarnations(tmp_path: Path) -> None:
    """A topic's incarnation begins with the first generation that counts in its id."""
    made = MadeArchive(tmp_path / "archive", {"t": "old"})
    made.seal({P0: dense(0, 3)})
    made.open_generation(t="new")
    made.open_generation(t="new")

    assert made.archive.snapshot().topic_incarnations() == {("t", "old"): 1, ("t", "new"): 2}


def test_topics_now(made: MadeArchive) -> None:
    """The newest generation's ids count, also of a roll that was killed before it noted them."""
    assert made.archive.snapshot().topics_now == {"t": "id"}

    made.archive.generation(2).write(
        starting_offsets={P0: 0},
        file_format="parquet",
        partition_by=["topic"],
        topic_ids={"t": "new"},
        reason="test",
    )
    snapshot = made.archive.snapshot()
    assert (snapshot.document.topics, snapshot.topics_now) == ({"t": "id"}, {"t": "new"})

    (made.root / "generations/0002/generation.json").write_text("{")
    assert made.archive.snapshot().topics_now == {"t": "id"}
    shutil.rmtree(str(made.root / "generations"))
    assert made.archive.snapshot().topics_now == {"t": "id"}


# one value


def test_snapshot_keeps_what_it_read(made: MadeArchive) -> None:
    """What changes on disk doesn't change a snapshot; the next one has it."""
    snapshot = made.archive.snapshot()
    seen = [snapshot.document, snapshot.generations, snapshot.windows, snapshot.fold.replaced]
    receipts = [window.receipt for window in snapshot.sealed]

    made.open_generation(u="other")
    made.seal_window("compact_0009", {P0: dense(0, 10)}, ["generations/0001/data/gone"])
    (made.root / "windows/repair_1/receipt.json").unlink()

    assert seen == [
        snapshot.document,
        snapshot.generations,
        snapshot.windows,
        snapshot.fold.replaced,
    ]
    assert receipts == [window.receipt for window in snapshot.sealed]
    again = snapshot.again()
    assert again.document.topics == {"t": "id", "u": "other"}
    assert len(again.generations) == 2
    assert "repair_1" not in {window.key for window in again.sealed}
    assert again.fold.replaced == {"generations/0001/data/gone"}


def test_snapshot_keeps_newest_receipts(made: MadeArchive) -> None:
    """A snapshot lists receipts once; a journal's note counts what was sealed since as well."""
    for at in range(3):
        made.seal({P0: dense(100 + 10 * at, 110 + 10 * at)})
    snapshot = made.archive.snapshot()
    [generation] = snapshot.generations
    names = generation.receipt_names()
    receipts = list(generation.receipts())

    made.seal({P0: dense(130, 140)})
    (generation.folder / "receipts" / names[-1]).write_text("{}")

    assert generation.receipt_names() == names
    assert generation.last_receipt() is receipts[-1]
    newest = made.archive.generation(1).last_receipt()
    assert newest is not None
    assert generation.read_receipt(newest.name) == newest
    [tip] = note_of_segment(snapshot, generation, newest).tips.values()
    assert (tip.name, tip.receipts) == (newest.name, len(names) + 1)


_OPENED: list[list[str]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and isinstance(
        arguments[0], str | os.PathLike
    ):
        for opened in _OPENED:
            opened.append(os.fspath(arguments[0]))  # type: ignore[arg-type]


sys.addaudithook(_audit)


@contextmanager
def reads(root: str) -> Iterator[Counter[str]]:
    """Count which files of a folder are opened, and which folders are listed."""
    found: Counter[str] = Counter()
    opened: list[str] = []
    _OPENED.append(opened)
    try:
        yield found
    finally:
        _OPENED.remove(opened)
        found.update(os.path.relpath(path, root) for path in opened if path.startswith(root))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """The golden archive, sealed, with a second generation and a repair of each of two files."""
    archive = sealed_copy(tmp_path / "archive")
    damaged = sorted(archive.generation(1).list_data_files())
    for number, tp in enumerate((P0, P1)):
        path = next(p for p in damaged if f"part-0000{number}" in p)
        held = pq.read_table(str(archive.generation(1).data / path)).column("offset")
        rows = [row(tp, offset) for offset in held.to_pylist()]
        seal_repair(archive, f"repair_{number}", rows, [f"generations/0001/data/{path}"])
    open_next(archive, "parquet", ["topic"])
    return archive


def drain(archive: Archive) -> None:
    """Check that a drain may run."""
    topics = archive.snapshot().document.topics
    pipeline = Pipeline(
        name=archive.snapshot().document.pipeline,
        topics=list(topics),
        archive=str(archive.root),
        partition_by=["topic"],
    )
    with reads(str(archive.root)) as found:
        preflight(pipeline, golden_cluster())  # type: ignore[arg-type]
    _once(found, lists_windows=False)


def validate(archive: Archive) -> None:
    """Validate with nothing new."""
    with reads(str(archive.root)) as found:
        validate_archive(archive, golden_cluster())  # type: ignore[arg-type]
    _once(found)


def republish(archive: Archive) -> None:
    """Plan a republish of everything."""
    document = archive.snapshot().document
    cluster: Any = FakeCluster(
        {**golden_cluster().logs, **{type(P0)("copy", p): Log() for p in (0, 1)}},
        id=document.cluster_id,
        topic_ids=document.topics,
        configs={"copy": {"retention.ms": "-1"}},
    )
    with reads(str(archive.root)) as found:
        plan_republish(
            archive, cluster, RepublishRequest(target_topic="copy"), now=utc_now(), apply=False
        )
    _once(found)


def list_files(archive: Archive) -> None:
    """List the files that readers take."""
    with reads(str(archive.root)) as found:
        assert archive_files(archive.snapshot())
    _once(found)


def _once(found: Counter[str], *, lists_windows: bool = True) -> None:
    documents = {
        path: times
        for path, times in found.items()
        if path.endswith(("archive.json", "generation.json", "plan.json"))
        or (path.startswith("windows/") and path.endswith("receipt.json"))
        or path == "windows"
    }
    assert documents["archive.json"] == 1
    assert documents.get("windows", 0) == lists_windows
    assert {path: times for path, times in documents.items() if times > 1} == {}


@pytest.mark.parametrize("command", [drain, validate, republish, list_files])
def test_documents_read_once(archive: Archive, command: Callable[[Archive], None]) -> None:
    """A command reads archive.json, each plan and each window's receipt once, and lists once."""
    validate_archive(archive, golden_cluster())  # type: ignore[arg-type]

    command(archive)


def test_archive_document_read_in_one_place() -> None:
    """Nothing but the snapshot reads archive.json."""
    core = Path(kafka_drain.__file__).parent
    readers = [
        path.name for path in core.rglob("*.py") if "ArchiveDocument.read" in path.read_text()
    ]

    assert readers == ["snapshot.py"]


def test_snapshot_opens_nothing_unasked(made: MadeArchive) -> None:
    """A snapshot that nobody asks costs nothing."""
    with reads(str(made.root)) as found:
        Snapshot(made.root)

    assert found == {}

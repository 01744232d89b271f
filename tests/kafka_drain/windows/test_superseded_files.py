"""Removing what windows stand for: only while every byte that stands for it is as it was sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from upath import UPath

from kafka_drain.archive.files import ArchiveFile
from kafka_drain.clock import utc_now
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import say
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.storage.immutability import Locked, ObjectLock, Retention
from kafka_drain.storage.object_retention import StoreLocks
from kafka_drain.windows import superseded_files as superseding
from kafka_drain.windows.superseded_files import remove_superseded, remove_unsealed
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.republish.receipts import receipt_of

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Damage = Callable[[Path], object]


def cut(path: Path) -> None:
    """End a file a byte earlier."""
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    """Change a bit in the middle; the size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE: list[Damage] = [Path.unlink, cut, flip]


class Superseded:
    """Two batches of two partitions; window 1 stands for them, window 2 for window 1's files."""

    def __init__(self, folder: Path) -> None:
        self.made = MadeArchive(folder / "archive", {"t": "id"})
        self.batches = [
            file
            for n in (0, 5)
            for file in self.made.seal({P0: dense(n, n + 5), P1: dense(n, n + 5)})
        ]
        # Two closed generations, of which one is left alone, and the open one.
        self.made.open_generation()
        self.closed = self.made.seal({P0: dense(10, 12)})
        self.made.open_generation()
        self.open = self.made.seal({P0: dense(12, 14)})
        self.first = self.window("compact_0001", self.batches)

    def window(self, key: str, files: list[ArchiveFile]) -> list[ArchiveFile]:
        """Seal a window that holds what some files hold."""
        batch = {P0: dense(0, 10), P1: dense(0, 10)}
        return self.made.seal_window(key, batch, [file.path for file in files])

    def plan(self, key: str) -> None:
        """Plan a window, of which nothing is sealed."""
        folder = Path(str(self.made.root), "windows", key)
        folder.mkdir()
        (folder / "plan.json").write_text("{}")

    def path(self, file: ArchiveFile) -> Path:
        """Where a file is."""
        return Path(str(self.made.root / file.path))

    def there(self, files: list[ArchiveFile]) -> list[bool]:
        """Which of some files are there."""
        return [self.path(file).is_file() for file in files]


@pytest.fixture
def case(tmp_path: Path) -> Superseded:
    """An archive in which a compaction was sealed and nothing removed yet."""
    return Superseded(tmp_path)


def test_remove_superseded(case: Superseded, said: list[str]) -> None:
    """What a sound window stands for goes, with the manifest that names it; the rest stays."""
    generations = [Path(str(case.made.root), f"generations/000{n}") for n in (1, 2, 3)]
    for generation in generations:
        for name in ("data/_spark_metadata/0", "checkpoint/offsets/0"):
            (generation / name).parent.mkdir(parents=True)
            (generation / name).touch()
    for file in (*case.batches, *case.closed):
        # Beside each file, Hadoop keeps its checksum.
        path = case.path(file)
        path.with_name(f".{path.name}.crc").touch()
    size = sum(case.path(file).stat().st_size for file in case.batches)

    found = remove_superseded(case.made.archive)

    assert found == {"removed_files": 4, "removed_bytes": size}
    assert not any(case.there(case.batches))
    assert all(case.there([*case.first, *case.closed, *case.open]))
    assert list((generations[0] / "data").iterdir()) == []
    assert not (generations[0] / "checkpoint").exists()
    for generation in generations[1:]:
        assert (generation / "data/_spark_metadata/0").is_file()
        assert (generation / "checkpoint/offsets/0").is_file()
    assert all((generation / "receipts").is_dir() for generation in generations)
    assert len(list((generations[1] / "data").rglob("*.crc"))) == 1
    assert said[-1].endswith(f"removed 4 superseded files, {size:,} bytes")
    # Another run has nothing to do, even where the folder is gone.
    (generations[0] / "data").rmdir()
    assert remove_superseded(case.made.archive)["removed_files"] == 0


def test_remove_superseded_closed_generations(case: Superseded) -> None:
    """Each closed generation whose files go loses its manifest, not the first alone."""
    case.made.seal_window("compact_0002", {P0: dense(10, 12)}, [f.path for f in case.closed])
    manifests = [
        Path(str(case.made.root), f"generations/000{number}/data/_spark_metadata")
        for number in (1, 2, 3)
    ]
    for manifest in manifests:
        manifest.mkdir()

    assert remove_superseded(case.made.archive)["removed_files"] == 5

    assert [manifest.is_dir() for manifest in manifests] == [False, False, True]


def test_remove_superseded_open_generation(case: Superseded) -> None:
    """The generation that drains continue keeps its place in Kafka, even if its files go."""
    case.made.seal_window("compact_0002", {P0: dense(12, 14)}, [f.path for f in case.open])
    generation = Path(str(case.made.root), "generations/0003")
    kept = [generation / name for name in ("data/_spark_metadata/0", "checkpoint/offsets/0")]
    for path in kept:
        path.parent.mkdir(parents=True)
        path.touch()

    assert remove_superseded(case.made.archive)["removed_files"] == 5

    assert all(path.is_file() for path in kept)


def test_remove_superseded_in_store(
    case: Superseded, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """A store is asked once which files are there; of these, the superseded ones go."""
    monkeypatch.setattr(superseding, "is_local", lambda root: False)
    case.path(case.batches[0]).unlink()

    found = remove_superseded(case.made.archive)

    assert found["removed_files"] == 3
    assert len(said) == 1
    assert not any(case.there(case.batches))
    assert all(case.there([*case.first, *case.closed, *case.open]))


def test_remove_superseded_partly(tmp_path: Path) -> None:
    """Files of a generation that no window stands for stay, with their checksums."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    first, second = made.seal({P0: dense(0, 5), P1: dense(0, 5)})
    made.open_generation()
    made.seal_window("compact_0001", {P0: dense(0, 5)}, [first.path])
    paths = [Path(str(made.root / file.path)) for file in (first, second)]
    checksums = [path.with_name(f".{path.name}.crc") for path in paths]
    for path in checksums:
        path.touch()

    assert remove_superseded(made.archive)["removed_files"] == 1

    assert [path.is_file() for path in paths] == [False, True]
    assert [path.is_file() for path in checksums] == [False, True]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("number", [0, 1])
def test_remove_superseded_window_damaged(case: Superseded, number: int, damage: Damage) -> None:
    """If any file of a window differs from what was sealed, nothing is removed, also if rerun."""
    damage(case.path(case.first[number]))

    for _ in range(2):
        says = "window compact_0001 differs from what was sealed"
        with pytest.raises(ManifestInvalidError, match=says):
            remove_superseded(case.made.archive)
        assert all(case.there(case.batches))


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("is_first_gone", [False, True])
def test_remove_superseded_newer_window_damaged(
    case: Superseded, number: int, damage: Damage, is_first_gone: bool
) -> None:
    """Files of which the window was replaced itself rely on the newer one: it is compared too."""
    second = case.window("compact_0002", case.first)
    if is_first_gone:
        for file in case.first:
            case.path(file).unlink()
    damage(case.path(second[number]))

    for _ in range(2):
        says = "window compact_0002 differs from what was sealed"
        with pytest.raises(ManifestInvalidError, match=says):
            remove_superseded(case.made.archive)
        assert all(case.there(case.batches))
        assert any(case.there(case.first)) is not is_first_gone


@pytest.mark.parametrize("damage", DAMAGE)
def test_remove_superseded_window_repaired(case: Superseded, damage: Damage) -> None:
    """What a repair stands for is no damage that keeps everything from being removed for ever."""
    damage(case.path(case.first[0]))
    [repaired] = repair(case, changed=())

    assert remove_superseded(case.made.archive)["removed_files"] == 4

    assert not any(case.there(case.batches))
    assert all(case.there([repaired, case.first[1]]))


@pytest.mark.parametrize("damage", DAMAGE)
def test_remove_superseded_repair_damaged(case: Superseded, damage: Damage) -> None:
    """The repair's files are compared as well."""
    case.path(case.first[0]).unlink()
    [repaired] = repair(case, changed=())
    damage(case.path(repaired))

    says = "window repair_1 differs from what was sealed"
    with pytest.raises(ManifestInvalidError, match=says):
        remove_superseded(case.made.archive)
    assert all(case.there(case.batches))


@pytest.mark.parametrize("changed", [None, ("t:0:0-10",)])
def test_remove_superseded_window_not_made_good(
    case: Superseded, changed: tuple[str, ...] | None, said: list[str]
) -> None:
    """Where a repair has other records, or isn't proven not to, the old files stay."""
    case.path(case.first[0]).unlink()
    repair(case, changed=changed)
    second = case.made.seal_window(
        "compact_0003", {P0: dense(10, 12)}, [file.path for file in case.closed]
    )

    assert remove_superseded(case.made.archive)["removed_files"] == 1

    assert all(case.there([*case.batches, *second]))
    assert "keeping 4 files" in said[0]
    assert not any("the store refuses" in line for line in said)


def test_remove_superseded_repair_of_repair_not_made_good(
    case: Superseded, said: list[str]
) -> None:
    """A repair that is damaged in turn, and can't be drained again, stands for no old file."""
    case.path(case.first[0]).unlink()
    [repaired] = repair(case, changed=())
    case.path(repaired).unlink()
    case.made.seal_window("repair_2", {P0: dense(0, 10)}, [repaired.path], changed=None)

    assert remove_superseded(case.made.archive)["removed_files"] == 0

    assert all(case.there(case.batches))
    assert "keeping 4 files" in said[0]


def test_remove_superseded_repair_lacks_some(case: Superseded, said: list[str]) -> None:
    """What somebody has accepted as lost may be in the old files alone, whatever was drained."""
    lost = [case.first[0], *case.closed]
    for file in lost:
        case.path(file).unlink()
    # Kafka has the other file's records, all of which are the same.
    case.made.seal_window(
        "repair_1",
        {P0: dense(10, 12)},
        [file.path for file in lost],
        changed=(),
        acknowledged=("t:0:0-10",),
    )

    assert remove_superseded(case.made.archive)["removed_files"] == 0

    assert all(case.there(case.batches))
    assert "keeping 4 files" in said[0]


def repair(case: Superseded, *, changed: tuple[str, ...] | None) -> list[ArchiveFile]:
    """Let a repair stand for the first window's first file."""
    lost = [case.first[0].path]
    return case.made.seal_window("repair_1", {P0: dense(0, 10)}, lost, changed=changed)


def test_remove_superseded_chain(case: Superseded) -> None:
    """Files of windows go as those of generations do, once a newer window stands for them."""
    second = case.window("reprocess_0002", case.first)

    assert remove_superseded(case.made.archive)["removed_files"] == 6
    assert all(case.there(second))


def test_remove_superseded_unsealed(case: Superseded) -> None:
    """A window without a receipt stands for nothing."""
    Path(str(case.made.root), "windows/compact_0001/receipt.json").unlink()

    assert remove_superseded(case.made.archive)["removed_files"] == 0
    assert all(case.there(case.batches))


def test_remove_superseded_repaired(tmp_path: Path) -> None:
    """A repair's window stands for damaged files; these aren't maintenance's to remove."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    [file] = made.seal({P0: dense(0, 5)})
    made.seal_window("repair_1", {P0: dense(0, 5)}, [file.path])

    assert remove_superseded(made.archive)["removed_files"] == 0
    assert (made.root / file.path).is_file()
    assert made.archive.snapshot().fold.gone == frozenset()


@pytest.mark.parametrize(
    ("days", "state", "stays"),
    [
        (1, "planned", True),
        (3, "planned", True),
        (5, "planned", False),
        (400, "opened", True),
        (1, "abandoned", False),
        (1, "ended", False),
    ],
)
def test_remove_superseded_needed(
    case: Superseded, days: int, state: str, stays: bool, said: list[str]
) -> None:
    """Files of a republish that may be resumed stay, until it has ended or was abandoned.

    One that never opened is planned again after three days, so that its files may go then.
    """
    [shard, *_] = PLAN.shards
    files = tuple(replace(file, path=case.batches[0].path) for file in shard.files)
    plan = replace(
        PLAN,
        key="r",
        created_at=(utc_now() - timedelta(days=days)).isoformat(),
        shards=(replace(shard, files=files),),
    )
    run = RepublishRun(case.made.root, "r")
    run.write_plan(plan)
    if state != "planned":
        run.mark_opened(PLAN)
    if state == "abandoned":
        run.abandon(utc_now())
    if state == "ended":
        run.write_receipt(receipt_of(key=run.key))
    RepublishRun(case.made.root, "not-planned").folder.mkdir()

    found = remove_superseded(case.made.archive)

    assert found["removed_files"] == 4 - stays
    assert case.there(case.batches) == [stays, False, False, False]
    says = (
        "keeping 1 files for now: republish r still needs them; if it won't be resumed, end it "
        f"with `kafka-drain republish {case.made.root} --abandon r --apply`"
    )
    assert any(says in line for line in said) is stays


class SomeLocks(StoreLocks):
    """Says that some of an archive's files are locked, by path."""

    def __init__(self, case: Superseded, held: dict[str, ObjectLock]) -> None:
        super().__init__(case.made.root, "look")
        self._locked = held

    def locked(self, paths: Iterable[str]) -> dict[str, ObjectLock]:
        """Return which of some files the store refuses to delete."""
        return {path: self._locked[path] for path in paths if path in self._locked}


LOCK = ObjectLock(1, Retention("governance", datetime(2999, 1, 2, 3, 4, tzinfo=timezone.utc)))


@pytest.mark.parametrize("number", range(5))
def test_remove_superseded_locked(case: Superseded, number: int, said: list[str]) -> None:
    """Of four superseded files, those that the store locks stay until they are free."""
    locked = [file.path for file in case.batches[:number]]

    found = remove_superseded(case.made.archive, SomeLocks(case, dict.fromkeys(locked, LOCK)))

    assert found["removed_files"] == 4 - number
    assert case.there(case.batches) == [True] * number + [False] * (4 - number)
    says = f"keeping {number} files, locked until 2999-01-02 03:04 UTC: the store refuses"
    assert any(says in line for line in said) is (number > 0)
    # Then they are free.
    assert remove_superseded(case.made.archive)["removed_files"] == number
    assert not any(case.there(case.batches))


def test_remove_superseded_locked_unread(case: Superseded) -> None:
    """What stands for locked files alone isn't read to keep them: that would be each day."""
    cut(case.path(case.first[0]))
    locked = dict.fromkeys([file.path for file in case.batches], LOCK)

    assert remove_superseded(case.made.archive, SomeLocks(case, locked)) == {
        "removed_files": 0,
        "removed_bytes": 0,
    }
    del locked[case.batches[0].path]
    with pytest.raises(ManifestInvalidError, match="compact_0001"):
        remove_superseded(case.made.archive, SomeLocks(case, locked))
    assert all(case.there(case.batches))


@pytest.mark.parametrize("is_listed", [True, False])
def test_still_locked(case: Superseded, monkeypatch: pytest.MonkeyPatch, is_listed: bool) -> None:
    """What is kept of the superseded files, or of some; not what readers use, nor what is gone."""
    gone, kept, unlisted, free = case.batches
    soon = case.closed[0]
    locked = dict.fromkeys([f.path for f in (gone, kept, unlisted, soon, *case.first)], LOCK)
    case.path(gone).unlink()
    there = [kept.path, free.path, case.first[0].path] if is_listed else None

    def found() -> int:
        locks = SomeLocks(case, locked)
        return superseding.still_locked(case.made.archive, locks, there, among).files

    among: list[str] | None = None
    assert found() == 0
    monkeypatch.setattr(superseding, "is_local", lambda root: root is None)
    monkeypatch.setattr(superseding, "can_lock", lambda root: root is not None)
    assert found() == (1 if is_listed else 2)
    among = [soon.path, unlisted.path]
    assert found() == (0 if is_listed else 2)


def test_remove_unsealed_locked(
    case: Superseded, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """What was killed between its locks and its receipt stays as long as it is locked."""
    case.plan("compact_0002")
    folder = Path(str(case.made.root), "windows/compact_0002")
    case.plan("compact_0003")

    def locked_in(path: UPath) -> Locked:
        say(f"asking for {path.name}")
        return Locked(2, on_hold=2) if path.name == folder.name else Locked()

    monkeypatch.setattr(superseding, "locked_in", locked_in)

    remove_unsealed(case.made.archive)

    assert folder.is_dir()
    assert not folder.with_name("compact_0003").exists()
    assert said[0] == "asking for compact_0002"
    assert said[1].endswith(
        "keeping window compact_0002, which was never sealed: 2 files, locked until a legal hold "
        "is released; a later maintenance removes it"
    )
    monkeypatch.undo()
    remove_unsealed(case.made.archive)
    assert not folder.exists()


def test_remove_unsealed_sealed_meanwhile(
    case: Superseded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended until another maintenance has sealed a window of the same name, it leaves that."""
    case.plan("compact_0002")
    later: list[ArchiveFile] = []

    def suspended(folder: UPath) -> Locked:
        # The other one removed what was unsealed, so that it gives the same number again.
        (Path(str(folder)) / "plan.json").unlink()
        later.extend(case.window("compact_0002", case.first))
        return Locked()

    monkeypatch.setattr(superseding, "locked_in", suspended)

    remove_unsealed(case.made.archive)

    assert all(case.there(later))


def test_remove_unsealed(case: Superseded, said: list[str]) -> None:
    """What a killed maintenance left behind goes, and says its name; other windows stay."""
    windows = Path(str(case.made.root), "windows")
    for key in ("compact_0002", "retention_0003", "reprocess_0004", "20130101_20130102"):
        case.plan(key)

    remove_unsealed(case.made.archive)

    assert {path.name for path in windows.iterdir()} == {
        "compact_0001",
        "reprocess_0004",
        "20130101_20130102",
    }
    assert [line.split(": ")[-1] for line in said] == [
        "removing window compact_0002, which was never sealed",
        "removing window retention_0003, which was never sealed",
    ]


def test_superseded_files(case: Superseded) -> None:
    """The files that sealed windows stand for; those of a window on its way count as there."""
    case.plan("compact_0002")

    assert case.made.archive.snapshot().fold.gone == {file.path for file in case.batches}


@pytest.mark.parametrize("changed", [None, ()])
@pytest.mark.parametrize("value", [b"value", b"other"])
def test_remove_superseded_other_records(
    tmp_path: Path, value: bytes, changed: tuple[str, ...] | None, said: list[str]
) -> None:
    """What an earlier release has replaced by as many other records isn't removed."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    old = made.seal({P0: dense(0, 5)})
    made.open_generation()
    columns, kind = {"value": value}, "reprocess"
    made.seal_window(
        "reprocess_0001_0001", {P0: dense(0, 5)}, [old[0].path], columns, kind=kind, changed=changed
    )

    removed = remove_superseded(made.archive)["removed_files"]

    is_held = value == b"other" and changed is None
    assert (removed, (made.root / old[0].path).is_file()) == (int(not is_held), is_held)
    assert any("isn't proven to hold their records at t:0:0-5" in line for line in said) == is_held

"""Consumers get each sealed record once: by batches that stay the same until acknowledged."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.fold import Partition, WindowKind
from kafka_drain.cursor import (
    Batch,
    CursorDocument,
    CursorRow,
    PendingRow,
    acknowledge,
    after,
    batch_id,
    new_files,
    next_offsets,
    take,
)
from kafka_drain.errors import ArchiveError, ConfigError, LockedError
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.storage import lease_store
from tests.kafka_drain.golden import END, P0, golden_rows, seal_repair
from tests.kafka_drain.made_archive import MadeArchive, dense

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NAME = "warehouse"


def offsets(**ranges: list[tuple[int, int]]) -> dict[Partition, list[OffsetRange]]:
    """Return offsets of t-0 by topic id."""
    return {(T0, key): [OffsetRange(*each) for each in own] for key, own in ranges.items()}


@pytest.mark.parametrize(
    ("sealed", "loaded", "expected"),
    [
        ({}, {}, {}),
        (offsets(a=[(0, 5)]), {}, offsets(a=[(0, 5)])),
        (offsets(a=[(0, 5)]), offsets(a=[(0, 5)]), {}),
        (offsets(a=[(0, 9)]), offsets(a=[(0, 5)]), offsets(a=[(5, 9)])),
        (offsets(a=[(0, 9)]), offsets(a=[(2, 3), (5, 6)]), offsets(a=[(0, 2), (3, 5), (6, 9)])),
        # More was loaded than is sealed: an older copy of the archive.
        (offsets(a=[(0, 5)]), offsets(a=[(0, 9)]), {}),
        # Of another id, the same offsets are other records.
        (offsets(b=[(0, 5)]), offsets(a=[(0, 9)]), offsets(b=[(0, 5)])),
        (offsets(a=[(0, 5)], b=[(0, 5)]), {}, offsets(a=[(0, 5)])),
        (offsets(a=[(0, 5)], b=[(0, 5)]), offsets(a=[(0, 5)]), offsets(b=[(0, 5)])),
    ],
)
def test_next_offsets(sealed: Any, loaded: Any, expected: Any) -> None:
    """A batch is what is sealed and not loaded, of one id of each topic."""
    assert next_offsets(sealed, loaded) == expected


def document(pending: str | None, acknowledged: str | None = None) -> CursorDocument:
    def rows(start: int, end: int) -> list[CursorRow]:
        return [CursorRow(topic="t", topic_id="a", partition=0, start=start, end=end)]

    return CursorDocument(
        format_version=1,
        consumer=NAME,
        loaded=rows(0, 5),
        acknowledged=acknowledged,
        pending=None if pending is None else PendingRow(batch=pending, offsets=rows(5, 9)),
    )


def test_after_pending() -> None:
    """The pending batch's offsets are loaded, and none is pending."""
    new = after(document("two", "one"), "two")

    assert [(row.start, row.end) for row in new.loaded] == [(0, 9)]
    assert (new.acknowledged, new.pending) == ("two", None)


@pytest.mark.parametrize("pending", [None, "two"])
def test_after_again(pending: str | None) -> None:
    """What was acknowledged last is acknowledged again without any change."""
    known = document(pending, "one")

    assert after(known, "one") is known


@pytest.mark.parametrize("pending", [None, "two"])
def test_after_other(pending: str | None) -> None:
    """Another batch is refused, and what is pending is named."""
    with pytest.raises(ConfigError, match="two is pending" if pending else "none is pending"):
        after(document(pending, "one"), "three")


def test_batch_id_differs() -> None:
    """Other offsets, ids, and consumers have other batches; the same ones the same."""
    scopes = [("c", "p", "a"), ("c", "p", "b"), ("d", "p", "a")]
    held = [offsets(a=[(0, 5)]), offsets(a=[(0, 6)]), offsets(b=[(0, 5)])]
    ids = {batch_id(scope, each) for scope in scopes for each in held}

    assert len(ids) == 9
    assert batch_id(scopes[0], held[0]) == batch_id(scopes[0], offsets(a=[(0, 5)]))


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive with ten records in each of two partitions."""
    made = MadeArchive(tmp_path / "made", {"t": "id"})
    made.seal({T0: dense(0, 10), T1: dense(0, 10)})
    made.open_generation()
    return made


def taken(archive: Archive, **options: Any) -> Batch:
    batch = take(archive, NAME, **options)
    assert batch is not None
    return batch


def rows_of(batch: Batch) -> list[tuple[str, int, int]]:
    table = batch.dataset().to_table(columns=["topic", "partition", "offset"])
    return sorted((r["topic"], r["partition"], r["offset"]) for r in table.to_pylist())


def rows(start: int, end: int, *partitions: int) -> list[tuple[str, int, int]]:
    return [("t", p, offset) for p in partitions or (0, 1) for offset in range(start, end)]


def test_take_until_acknowledged(made: MadeArchive) -> None:
    """A batch stays the same while more is sealed; what was sealed meanwhile is the next one."""
    first = taken(made.archive)
    made.seal({T0: dense(10, 15)})
    made.open_generation()
    again = taken(made.archive)

    assert (again.id, again.files, again.is_repeated) == (first.id, first.files, True)
    assert rows_of(again) == rows(0, 10)
    assert [(file.records, file.is_whole) for file in first.files] == [(10, True)] * 2
    acknowledge(made.archive, NAME, first.id)
    acknowledge(made.archive, NAME, first.id)
    second = taken(made.archive)
    assert rows_of(second) == rows(10, 15, 0)
    acknowledge(made.archive, NAME, second.id)
    assert take(made.archive, NAME) is None
    # Another consumer has its own cursor.
    other = take(made.archive, "other")
    assert other is not None
    assert len(rows_of(other)) == 25


def compact(made: MadeArchive, key: str, end: int) -> None:
    """Replace all files of t-0 by one."""
    live = [
        f.path for f in made.archive.snapshot().fold.live(made.files()) if "part-00000" in f.path
    ]
    made.seal_window(f"compact_{key}", {T0: dense(0, end)}, live, kind="compact")


def test_take_compacted(made: MadeArchive) -> None:
    """Compacted files are nothing new; a pending batch is given from the file that holds it now."""
    first = taken(made.archive)
    made.seal({T0: dense(10, 15)})
    made.open_generation()
    compact(made, "0001", 15)
    again = taken(made.archive)

    assert again.id == first.id
    assert again.files != first.files
    assert [file.records for file in again.files] == [10, None]
    assert rows_of(again) == rows(0, 10)
    counted = again.dataset()
    query = 'SELECT count(*) FROM counted WHERE "offset" > 3'
    assert duckdb.execute(query).fetchall() == [(12,)]
    acknowledge(made.archive, NAME, again.id)
    assert rows_of(taken(made.archive)) == rows(10, 15, 0)
    assert counted.count_rows() == 20


def test_take_deleted(made: MadeArchive) -> None:
    """A pending batch whose records were deleted keeps its id, and has no files any more."""
    first = taken(made.archive)
    replaced = [file.path for file in made.files()]
    deleted = {tp: OffsetRange(0, 10) for tp in (T0, T1)}
    made.seal_window("retention_0001", {}, replaced, deleted=deleted, kind="retention")
    again = taken(made.archive)

    assert (again.id, again.files, rows_of(again)) == (first.id, (), [])


def test_take_backfilled(made: MadeArchive) -> None:
    """What only a window holds is new once it is sealed."""
    acknowledge(made.archive, NAME, taken(made.archive).id)
    made.seal_window("20130101T000000Z_20130101T010000Z", {T1: dense(50, 53)}, kind="backfill")

    assert rows_of(taken(made.archive)) == rows(50, 53, 1)


def test_take_recreated_topic(made: MadeArchive) -> None:
    """Records of a topic's new id are new, though they have the same offsets."""
    acknowledge(made.archive, NAME, taken(made.archive).id)
    made.open_generation(t="second")
    made.seal({T0: dense(0, 3)})
    made.open_generation()

    assert rows_of(taken(made.archive)) == rows(0, 3, 0)


def test_take_recreated_topic_in_shared_files(tmp_path: Path) -> None:
    """Where files hold several topics, records of a topic's other id aren't in a batch."""
    u0 = TopicPartition("u", 0)
    made = MadeArchive(tmp_path / "made", {"t": "first", "u": "id"}, partition_by=())
    made.seal({T0: dense(0, 10), u0: dense(0, 10)})
    made.open_generation(t="second")
    made.seal({T0: dense(0, 5), u0: dense(10, 20)})
    made.open_generation()
    found = []
    while batch := take(made.archive, NAME):
        found.append(rows_of(batch))
        acknowledge(made.archive, NAME, batch.id)

    assert found == [[("u", 0, n) for n in range(20)], rows(0, 10, 0), rows(0, 5, 0)]


def test_take_recreated_topic_without_id(tmp_path: Path) -> None:
    """An id that Kafka never told, as in the first archives, is no wildcard for later ones."""
    made = MadeArchive(tmp_path / "made", {"t": ""})
    made.seal({T0: dense(0, 10)})
    made.open_generation(t="~2")
    made.seal({T0: dense(0, 5)})
    made.open_generation()
    first = taken(made.archive)
    acknowledge(made.archive, NAME, first.id)

    assert rows_of(first) == rows(0, 10, 0)
    assert rows_of(taken(made.archive)) == rows(0, 5, 0)


def test_take_older_archive(made: MadeArchive, tmp_path: Path) -> None:
    """A batch of which the archive has only a part any more isn't given as if it were whole."""
    root, backup, state = Path(str(made.root)), tmp_path / "backup", str(tmp_path / "state")
    shutil.copytree(root, backup)
    made.seal({T0: dense(10, 15)})
    made.open_generation()
    batch = taken(made.archive, state=state)
    root.rename(tmp_path / "newer")
    backup.rename(root)

    with pytest.raises(ArchiveError, match="t:0:10-15 of batch"):
        take(made.archive, NAME, state=state)
    # A load that has committed it may say so.
    acknowledge(made.archive, NAME, batch.id, state=state)
    assert take(made.archive, NAME, state=state) is None


def test_take_of_real(archive: Archive) -> None:
    """Of an archive of Spark's, records that were compacted aren't given again."""
    acknowledge(archive, NAME, taken(archive).id)
    own = [row for row in golden_rows() if row["partition"] == 0]
    paths = sorted(
        str(path.relative_to(str(archive.root)))
        for path in Path(str(archive.root)).glob("generations/*/data/**/part-00000*.parquet")
    )
    seal_repair(archive, "compact_0001", own, paths, WindowKind.COMPACTION)

    assert take(archive, NAME) is None
    other = take(archive, "other")
    assert other is not None
    assert len(rows_of(other)) == 2 * END
    assert P0 in other.files[-1].offsets


def test_new_files_fails(made: MadeArchive) -> None:
    """A batch is acknowledged when the block ends, not when it fails."""
    with pytest.raises(ZeroDivisionError), new_files(made.archive, NAME):
        raise ZeroDivisionError
    with new_files(made.archive, NAME) as batch:
        assert batch is not None
        assert batch.is_repeated
    with new_files(made.archive, NAME) as batch:
        assert batch is None


def test_take_state(made: MadeArchive, tmp_path: Path) -> None:
    """With a folder of its own for the state, nothing is written to the archive."""
    before = sorted(Path(str(made.root)).rglob("*"))
    state = str(tmp_path / "state")
    batch = taken(made.archive, state=state)
    acknowledge(made.archive, NAME, batch.id, state=state)

    assert take(made.archive, NAME, state=state) is None
    assert sorted(Path(str(made.root)).rglob("*")) == before
    with pytest.raises(ConfigError, match="is an archive"):
        take(made.archive, NAME, state=str(made.root))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "-a", "ä", "a" * 101, "a\n"])
def test_take_name(made: MadeArchive, name: str) -> None:
    """A name that may be no file's is refused."""
    with pytest.raises(ConfigError, match="consumer"):
        take(made.archive, name)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format_version": 9}'])
def test_take_damaged(made: MadeArchive, content: str) -> None:
    """A damaged state isn't taken for a new consumer's."""
    acknowledge(made.archive, NAME, taken(made.archive).id)
    [path] = Path(str(made.root), "cursors", NAME).iterdir()
    path.write_text(content)

    with pytest.raises(ArchiveError, match="cursors"):
        take(made.archive, NAME)
    assert [each.read_text() for each in path.parent.iterdir()] == [content]


def test_take_other_consumers(made: MadeArchive) -> None:
    """The state of another consumer, restored to the wrong folder, is refused."""
    taken(made.archive)
    folder = Path(str(made.root), "cursors")
    shutil.copytree(folder / NAME, folder / "other")

    with pytest.raises(ArchiveError, match="expected 'other'"):
        take(made.archive, "other")


def test_take_at_once(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two processes at once that see something else, one gets a batch, the other an error."""
    create: Callable[..., bool] = vars(lease_store)["create_document"]
    winner = list[Batch]()

    def overtaken(*arguments: Any) -> bool:
        monkeypatch.undo()
        made.seal({T0: dense(10, 15)})
        made.open_generation()
        winner.append(taken(made.archive))
        return create(*arguments)

    monkeypatch.setattr(lease_store, "create_document", overtaken)
    with pytest.raises(LockedError, match="another process"):
        take(made.archive, NAME)

    assert taken(made.archive).id == winner[0].id
    assert len(rows_of(winner[0])) == 25


class Killed(BaseException):
    """The process ends here."""


def load(root: str, target: Path, point: Callable[[], None]) -> None:
    """Load all that is new, as a task does; `point` is called wherever it may be killed."""
    while batch := take(root, NAME):
        done = target / batch.id
        if not done.exists():
            found = rows_of(batch)
            point()
            beside = target / f".{batch.id}"
            beside.write_text(json.dumps(found))
            point()
            beside.replace(done)
        point()
        acknowledge(root, NAME, batch.id)


@contextmanager
def killable(point: Callable[[], None]) -> Iterator[None]:
    """Call `point` before and after each operation on the cursor's state."""

    def around(operation: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            point()
            answer = operation(*arguments)
            point()
            return answer

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name in ("create_document", "list_folder", "read_bytes"):
            patch.setattr(lease_store, name, around(getattr(lease_store, name)))
        yield


def loaded(target: Path) -> list[tuple[str, int, int]]:
    files = [path for path in target.iterdir() if not path.name.startswith(".")]
    return sorted(tuple(row) for path in files for row in json.loads(path.read_text()))


def change(made: MadeArchive, random_: random.Random, number: int, end: int) -> int:
    """Seal more, compact, or seal a window of its own; return where t-0 ends now."""
    what = random_.choice(["seal", "compact", "window", "nothing"])
    if what == "seal":
        made.seal({T0: dense(end, end + 3)})
        made.open_generation()
        return end + 3
    if what == "compact":
        compact(made, f"{number:04d}", end)
    if what == "window":
        start = 1000 + 5 * number
        key = f"201301{number // 24 + 1:02d}T{number % 24:02d}0000Z"
        made.seal_window(f"{key}_{key}", {T1: dense(start, start + 2)}, kind="backfill")
    return end


@pytest.mark.parametrize("seed", range(6))
def test_load_killed(made: MadeArchive, tmp_path: Path, seed: int) -> None:
    """Killed at random points, 20 times, while the archive changes, each row is loaded once."""
    random_, target, end, kills = random.Random(seed), tmp_path / "target", 10, 0
    target.mkdir()
    for number in range(200):
        left = random_.randrange(25)

        def point() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        try:
            with killable(point):
                load(str(made.root), target, point)
        except Killed:
            kills += 1
        if kills == 20:
            break
        end = change(made, random_, number, end)
    load(str(made.root), target, lambda: None)

    assert kills == 20
    everything = taken_by_other(made.archive)
    assert loaded(target) == everything
    assert len({*everything}) == len(everything) > 20


def taken_by_other(archive: Archive) -> list[tuple[str, int, int]]:
    batch = take(archive, "other")
    assert batch is not None
    return rows_of(batch)


def test_load_killed_by_signal(made: MadeArchive, tmp_path: Path) -> None:
    """The same with processes that are killed by SIGKILL."""
    target, end = tmp_path / "target", 10
    target.mkdir()
    for number, at in enumerate((4, 7, 8)):
        command = [sys.executable, "-c", f"from {__name__} import main; main()"]
        arguments = [str(made.root), str(target), str(at)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run([*command, *arguments], env=environment, check=False)
        assert ended.returncode == -signal.SIGKILL
        made.seal({T0: dense(end, end + 3)})
        made.open_generation()
        end += 3
        if number % 2:
            compact(made, f"{number:04d}", end)
    load(str(made.root), target, lambda: None)

    assert loaded(target) == taken_by_other(made.archive)


def main() -> None:
    """Load, and be killed at a point."""
    root, target, left = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])

    def point() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with killable(point):
        load(root, target, point)

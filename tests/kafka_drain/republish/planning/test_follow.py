"""Following an archive: each sealed record is sent by exactly one of a follower's runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.archive.files import ArchiveFile
from kafka_drain.errors import ArchiveError, ManifestInvalidError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.binding import Binding
from kafka_drain.republish.planning.documents import BindingJson, ThroughJson
from kafka_drain.republish.planning.follow import (
    NOTHING,
    follower_key,
    followers,
    has_sent,
    new_files,
    next_run,
    previous_binding,
    previous_request,
    runs_of,
    through_now,
)
from kafka_drain.republish.planning.previous_runs import sent
from kafka_drain.republish.planning.runs import RepublishRun, run_key
from tests.kafka_drain.golden import NOON
from tests.kafka_drain.made_archive import Batch, MadeArchive, dense
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.republish.planning.test_previous_runs import plan_of
from tests.kafka_drain.republish.receipts import receipt_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def new(made: MadeArchive, since: ThroughJson) -> list[ArchiveFile]:
    return new_files(made.archive.snapshot(), since, through_now(made.archive.snapshot()))


def offsets_of(files: Sequence[ArchiveFile]) -> list[int]:
    """Return the offsets that some files hold."""
    sealed = [file.sealed for file in files if file.sealed]
    return [o for s in sealed for c in s.contents for o in range(c.first, c.last + 1)]


def paths_of(files: Sequence[ArchiveFile]) -> list[str]:
    return [file.path for file in files]


# runs


def sent_at(number: int) -> ThroughJson:
    return {"generations": {"1": f"{number:012d}.json"}, "windows": []}


def end(run: RepublishRun, through: ThroughJson, **more: Any) -> None:
    run.write_receipt(receipt_of(key=run.key, through=through, **more))


def leave(made: MadeArchive, follower: str, states: str) -> None:
    """Leave a follower's runs behind: (e)nded, (p)lanned, or (k)illed before there was a plan."""
    for number, state in enumerate(states, start=1):
        run = RepublishRun(made.root, f"{follower}.{number:06d}")
        if state == "e":
            end(run, sent_at(number), request={"number": number})
        elif state == "p":
            run.write_plan(plan_of(run.key, through=sent_at(number)))
        else:
            run.folder.mkdir(parents=True)


def test_next_run_first(made: MadeArchive) -> None:
    """The first run begins at the beginning."""
    run, since = next_run(made.archive, "f")

    assert (run.key, since) == ("f.000001", NOTHING)


def test_next_run_after_receipt(made: MadeArchive) -> None:
    """After a run that has its receipt comes the next number, from where that one ended."""
    for number in range(1, 12):
        run, since = next_run(made.archive, "f")
        assert run.key == f"f.{number:06d}"
        assert since == (sent_at(number - 1) if number > 1 else NOTHING)
        end(run, sent_at(number))


@pytest.mark.parametrize("is_planned", [True, False])
def test_next_run_not_ended(made: MadeArchive, is_planned: bool) -> None:
    """A run without receipt is gone on with; one that has no plan yet begins after those before."""
    first, _ = next_run(made.archive, "f")
    end(first, sent_at(1))
    second, _ = next_run(made.archive, "f")
    second.folder.mkdir(parents=True)
    if is_planned:
        (second.folder / "plan.json").write_text("…")

    assert next_run(made.archive, "f") == (second, sent_at(1))


@pytest.mark.parametrize("lost", ["receipt", "content"])
def test_next_run_receipt_lost(lost: str, made: MadeArchive) -> None:
    """A run that others have followed had ended, even if its receipt is lost."""
    for number in (1, 2, 3):
        run, _ = next_run(made.archive, "f")
        run.folder.mkdir(parents=True)
        (run.folder / "plan.json").write_text("…")
        end(run, sent_at(number))
    second = RepublishRun(made.root, "f.000002").folder
    for path in [second / "receipt.json"] if lost == "receipt" else list(second.iterdir()):
        path.unlink()

    run, since = next_run(made.archive, "f")

    assert (run.key, since) == ("f.000004", sent_at(3))


def test_next_run_two_not_ended(made: MadeArchive) -> None:
    """The older of two runs without receipts is resumed, from where those before it ended."""
    end(next_run(made.archive, "f")[0], sent_at(1))
    for key in ("f.000002", "f.000003"):
        RepublishRun(made.root, key).folder.mkdir(parents=True)

    run, since = next_run(made.archive, "f")

    assert (run.key, since) == ("f.000002", sent_at(1))


def test_next_run_of_other_followers(made: MadeArchive) -> None:
    """Runs of other followers, and others whose names look alike, don't count."""
    for key in ("g.000007", "f", "f.000003-0123456789ab", "ff.000009", "f.g.000008"):
        end(RepublishRun(made.root, key), sent_at(7))

    assert next_run(made.archive, "f")[0].key == "f.000001"


@pytest.mark.parametrize("follower", ["f", "f.g", "f.000001"])
@pytest.mark.parametrize(
    ("states", "number", "since"),
    [("", 1, 0), ("p", 1, 0), ("e", 2, 1), ("ep", 2, 1), ("ek", 2, 1), ("eee", 4, 3)],
)
def test_next_run_of_name(
    made: MadeArchive, follower: str, states: str, number: int, since: int
) -> None:
    """The last run that hasn't ended, or the one after it; a name may hold dots and numbers."""
    leave(made, follower, states)
    leave(made, "other", "eeeeee")

    run, sent = next_run(made.archive, follower)

    assert run.key == f"{follower}.{number:06d}"
    assert sent == (sent_at(since) if since else NOTHING)


def test_next_run_receipt_of_no_follower(made: MadeArchive) -> None:
    """A receipt that doesn't say how much was sent is named: nothing can follow it."""
    RepublishRun(made.root, "f.000001").write_receipt(receipt_of(key="f.000001", through=None))

    with pytest.raises(ArchiveError, match=r"republish/f\.000001/receipt\.json doesn't say how"):
        next_run(made.archive, "f")


@pytest.mark.parametrize(
    ("states", "number"),
    [("", None), ("p", None), ("k", None), ("e", 1), ("ep", 1), ("ek", 1), ("ee", 2), ("eep", 2)],
)
def test_previous_request(made: MadeArchive, states: str, number: int | None) -> None:
    """The request of the last run that has ended counts, and of no other follower's."""
    leave(made, "f", states)
    leave(made, "g", "eeee")
    end(RepublishRun(made.root, "f"), sent_at(9), request={"number": 9})

    found = previous_request(made.archive, "f")

    assert found == (None if number is None else {"number": number})


def test_previous_binding_of_older_release(made: MadeArchive) -> None:
    """Where a follower's runs say only where each one sent, all of them count, the newest most."""
    [entry, *_] = sent(PLAN)

    def sent_to(run: str, topic: str, id: str) -> None:
        target = {**entry, "target_topic": topic, "target_topic_id": id}
        end(RepublishRun(made.root, run), NOTHING, cluster_id="c", sent=[target])

    for number, (topic, id) in enumerate([("a", "1"), ("b", "1"), ("b", "2")], start=1):
        sent_to(f"f.{number:06d}", topic, id)
        sent_to(f"g.{number:06d}", "z", "1")
    # Which hasn't ended.
    RepublishRun(made.root, "f.000004").write_plan(plan_of("f.000004"))

    assert previous_binding(made.archive, "f", NOTHING) == Binding("c", {"a": "1", "b": "2"})
    assert previous_binding(made.archive, "h", NOTHING) == Binding()
    bound: BindingJson = {"cluster_id": "d", "topics": {"x": "1"}}
    assert previous_binding(made.archive, "f", {**NOTHING, "bound": bound}) == Binding(
        "d", {"x": "1"}
    )


@pytest.mark.parametrize("last", [None, 0, 1, 2])
@pytest.mark.parametrize("generation", ["1", "2"])
@pytest.mark.parametrize("windows", [[], ["v"], ["v", "w"]], ids=str)
def test_has_sent(made: MadeArchive, last: int | None, generation: str, windows: list[str]) -> None:
    """Batches up to a generation's last one were sent, and the windows that are named."""
    for first in range(3):
        made.seal({T0: dense(first, first + 1)})
    made.seal_window("w", {T1: dense(0, 3)})
    snapshot = made.archive.snapshot()
    [sealed] = snapshot.generations
    names = sealed.receipt_names()
    through: ThroughJson = {
        "generations": {} if last is None else {generation: names[last]},
        "windows": windows,
    }

    found = [has_sent(through, sealed.read_receipt(name)) for name in names]

    is_this = last is not None and generation == "1"
    assert found == [is_this and number <= (last or 0) for number in range(3)]
    [window] = snapshot.windows
    assert has_sent(through, window.receipt) is ("w" in windows)


@pytest.mark.parametrize(
    ("states", "numbers"),
    [
        ("", []), ("k", []), ("p", [1]), ("e", [1]), ("ek", [1]), ("ep", [1, 2]), ("ee", [2]),
        ("eee", [3]), ("eep", [2, 3]), ("eek", [2]), ("eeep", [3, 4]),
    ],
)  # fmt: skip
def test_followers(made: MadeArchive, states: str, numbers: list[int]) -> None:
    """What the last run has sent counts, and beside it what one that hasn't ended may have sent."""
    f, g = follower_key("f"), follower_key("a.b")
    leave(made, f, states)
    leave(made, g, "eep")

    found = followers(made.archive)

    assert sorted(found, key=str) == sorted(
        [(f, sent_at(n)) for n in numbers] + [(g, sent_at(n)) for n in (2, 3)], key=str
    )


@pytest.mark.parametrize("states", ["p", "k", "ep", "eep", "ek"])
def test_followers_abandoned(made: MadeArchive, states: str) -> None:
    """One whose last run was abandoned sends nothing more, and holds nothing back."""
    f, g = follower_key("f"), follower_key("g")
    leave(made, f, states)
    leave(made, g, "ep")
    run = runs_of(made.archive, f)[-1]

    run.abandon(NOON)

    assert followers(made.archive) == [(g, sent_at(1)), (g, sent_at(2))]
    # Unless an attempt ended all the same.
    end(run, sent_at(len(states)))
    assert (f, sent_at(len(states))) in followers(made.archive)


@pytest.mark.parametrize(
    "key",
    [
        "f.000001",
        "follow-f.000001",
        run_key("f"),
        f"{run_key('f')}.000001",
        follower_key("f"),
        f"{follower_key('f')}.1",
        f"{follower_key('f')}.0000001",
        f"{follower_key('f')}.00000x",
        f"x{follower_key('f')}.000001",
        f"{follower_key('f')}x.000001",
    ],
)
def test_followers_alike(made: MadeArchive, key: str) -> None:
    """Runs whose names only look like a follower's follow nothing."""
    end(RepublishRun(made.root, key), sent_at(1))

    assert followers(made.archive) == []


def test_followers_plan_of_no_follower(made: MadeArchive) -> None:
    """A plan that doesn't say how much of the archive it sends is no follower's."""
    key = f"{follower_key('f')}.000001"
    RepublishRun(made.root, key).write_plan(plan_of(key))

    assert followers(made.archive) == []


def test_followers_receipt_of_no_follower(made: MadeArchive) -> None:
    """A receipt that doesn't say how much was sent is named."""
    key = f"{follower_key('f')}.000001"
    RepublishRun(made.root, key).write_receipt(receipt_of(key=key, through=None))

    with pytest.raises(ArchiveError, match=rf"{key}/receipt\.json doesn't say how much"):
        followers(made.archive)


def test_follower_key_of_name() -> None:
    """A follower's key is that of its name alone, and no run's without follow."""
    assert follower_key("a") == follower_key("a")
    assert len({follower_key("a"), follower_key("b"), run_key("a"), run_key("b")}) == 4


# what is new


def test_through_now_nothing_sealed(made: MadeArchive) -> None:
    """An archive without receipts is followed through nothing."""
    assert through_now(made.archive.snapshot()) == {"generations": {}, "files": {}, "windows": []}
    assert new(made, NOTHING) == []


def test_through_now(made: MadeArchive) -> None:
    """What is sealed is told by the last receipt of each generation and by windows."""
    made.seal({T0: dense(0, 3)})
    made.seal({T0: dense(3, 6)})
    made.open_generation()
    made.seal({T0: dense(6, 9)})
    made.seal_window("w", {T1: dense(0, 3)})
    (made.root / "windows" / "unsealed").mkdir()

    through = through_now(made.archive.snapshot())

    assert list(through["generations"]) == ["1", "2"]
    assert through["windows"] == ["w"]
    assert new(made, through) == []


def test_new_files_since(made: MadeArchive) -> None:
    """Only what was sealed since is new, over generations and windows."""
    first = made.seal({T0: dense(0, 3), T1: dense(0, 3)})
    since = through_now(made.archive.snapshot())
    second = made.seal({T0: dense(3, 6)})
    made.open_generation()
    third = made.seal({T0: dense(6, 9)})
    window = made.seal_window("w", {T1: dense(3, 5)})

    found = new(made, NOTHING)
    assert paths_of(found) == paths_of([*first, *second, *third, *window])
    assert all(f"{f.owner.data_name}/" in f.path and f.file_format == "parquet" for f in found)
    assert paths_of(new(made, since)) == paths_of([*second, *third, *window])


def test_new_files_through(made: MadeArchive) -> None:
    """What is sealed after the plan was made is left to the next run."""
    made.seal({T0: dense(0, 3)})
    through = through_now(made.archive.snapshot())
    later = made.seal({T0: dense(3, 6)})
    made.open_generation()
    later += made.seal({T0: dense(6, 9)})
    later += made.seal_window("w", {T1: dense(0, 2)})

    assert offsets_of(new_files(made.archive.snapshot(), NOTHING, through)) == [0, 1, 2]
    assert paths_of(new(made, through)) == paths_of(later)


def test_new_files_damaged_before(made: MadeArchive) -> None:
    """A file that a window replaced before the first run isn't sent, the window is."""
    [damaged] = made.seal({T0: dense(0, 5)})
    made.seal({T0: dense(5, 8)})
    window = made.seal_window("w", {T0: dense(0, 5)}, replaces=[damaged.path])

    files = new(made, NOTHING)

    assert sorted(offsets_of(files)) == list(range(8))
    assert paths_of(files)[-1:] == paths_of(window)


def test_new_files_damaged_after(made: MadeArchive) -> None:
    """A window in place of a file that was sent before holds nothing new."""
    [damaged] = made.seal({T0: dense(0, 5)})
    since = through_now(made.archive.snapshot())
    made.seal_window("w", {T0: dense(0, 5)}, replaces=[damaged.path])
    more = made.seal({T0: dense(5, 8)})

    assert paths_of(new(made, since)) == paths_of(more)


def test_new_files_window_damaged_after(made: MadeArchive) -> None:
    """A second window, in place of one that was sent, holds nothing new."""
    [lost] = made.seal({T0: dense(0, 5)})
    made.seal({T1: dense(0, 5)})
    [first] = made.seal_window("w1", {T0: dense(0, 5)}, replaces=[lost.path])
    [other] = made.seal_window("w2", {T1: dense(5, 9)})
    since = through_now(made.archive.snapshot())
    replaces = [first.path, lost.path, other.path]
    made.seal_window("w3", {T0: dense(0, 5), T1: dense(5, 9)}, replaces=replaces)

    assert new(made, since) == []


def test_new_files_sealed_after_its_window(made: MadeArchive) -> None:
    """A damaged file that is sealed after the window in its place isn't sent beside it."""
    path = "generations/0001/data/topic=t/part-00000-0.parquet"
    made.seal_window("w", {T0: dense(0, 5)}, replaces=[path])
    since = through_now(made.archive.snapshot())
    [damaged] = made.seal({T0: dense(0, 5)})
    assert damaged.path == path

    assert new(made, since) == []
    assert sorted(offsets_of(new(made, NOTHING))) == list(range(5))


def test_new_files_window_of_two_files(made: MadeArchive) -> None:
    """A window in place of a file that was sent and of one that wasn't is refused as a whole."""
    [sent] = made.seal({T0: dense(0, 5)})
    since = through_now(made.archive.snapshot())
    [unsent] = made.seal({T0: dense(5, 8)})
    made.seal_window("w", {T0: dense(0, 8)}, replaces=[sent.path, unsent.path])

    with pytest.raises(ManifestInvalidError, match=r"windows/w/.*expected all or none"):
        new(made, since)


@pytest.mark.parametrize("sent_before", [0, 1, 2])
@pytest.mark.parametrize("holds", [{T0: dense(0, 8)}, {}], ids=["compacted", "expired"])
@pytest.mark.parametrize("kind", ["compact", "reprocess"])
def test_new_files_superseding(
    made: MadeArchive, sent_before: int, holds: Batch, kind: str
) -> None:
    """A window that supersedes files is sent whole if none of them was, and not if all were."""
    since = NOTHING
    replaced: list[str] = []
    for number, rows in enumerate([dense(0, 5), dense(5, 8)], start=1):
        replaced += paths_of(made.seal({T0: rows}))
        if number == sent_before:
            since = through_now(made.archive.snapshot())
    window = made.seal_window("w", holds, replaces=replaced, kind=kind)
    others = paths_of(made.seal({T1: dense(0, 3)}))

    if sent_before == 1 and holds:
        with pytest.raises(ManifestInvalidError, match=r"supersedes 2 files, of which .* sent 1;"):
            new(made, since)
    else:
        expected = paths_of(window) if sent_before == 0 else []
        assert paths_of(new(made, since)) == others + expected


@pytest.mark.parametrize(
    ("rows", "is_sent"),
    [
        (dense(0, 5), False),
        (dense(1, 4), False),
        (dense(0, 6), None),
        (dense(4, 9), None),
        (dense(5, 9), True),
    ],
    ids=["the same", "fewer", "one more", "one of them", "others"],
)
def test_new_files_repaired(made: MadeArchive, rows: dict[int, int], is_sent: bool | None) -> None:
    """Of a window in place of a file that was sent, all records are new or none; else refused."""
    [damaged] = made.seal({T0: dense(0, 5)})
    since = through_now(made.archive.snapshot())
    window = made.seal_window("w", {T0: rows, T1: dense(0, 5)}, replaces=[damaged.path])

    if is_sent is None:
        with pytest.raises(ManifestInvalidError, match="expected all or none"):
            new(made, since)
    else:
        # Of the other partition, nothing was sent.
        assert paths_of(new(made, since)) == paths_of(window if is_sent else window[1:])


@pytest.mark.parametrize("kind", ["erase", "repair"])
@pytest.mark.parametrize("is_sent", [False, True])
def test_new_files_superseded_twice(made: MadeArchive, kind: str, is_sent: bool) -> None:
    """What stands in place of a window that holds nothing new holds nothing new, either."""
    [file] = made.seal({T0: dense(0, 5)})
    since = through_now(made.archive.snapshot()) if is_sent else NOTHING
    [first] = made.seal_window("w2", {T0: dense(0, 5)}, [file.path], kind="erase")
    # In an order of names that isn't the one of sealing.
    second = made.seal_window("w1", {T0: dense(0, 5)}, [first.path], kind=kind)

    assert paths_of(new(made, since)) == ([] if is_sent else paths_of(second))


HOUR = "20260101T000000Z_20260101T010000Z"


def backfill(
    made: MadeArchive,
    key: str,
    end: int,
    replaces: Sequence[ArchiveFile] = (),
    topic_id: str = "1",
    interval_end: int = 0,
) -> list[ArchiveFile]:
    """Seal a backfill of T1 from offset 0, of an interval that may reach beyond it."""
    plan = {
        "kind": "backfill",
        "topics": {"t": topic_id},
        "ranges": [{"topic": "t", "partition": 1, "start": 0, "end": interval_end or end}],
    }
    return made.seal_window(key, {T1: dense(0, end)}, paths_of(replaces), **plan)


def remove_receipt(made: MadeArchive, key: str) -> None:
    """Remove a window's receipt, as a forced backfill does."""
    (made.root / "windows" / key / "receipt.json").unlink()


def test_new_files_backfilled_again(made: MadeArchive) -> None:
    """A forced backfill of what was sent holds nothing new; it has removed the earlier receipt."""
    first = backfill(made, HOUR, 3)
    since = through_now(made.archive.snapshot())
    second = backfill(made, f"{HOUR}_2", 3, first)
    remove_receipt(made, HOUR)
    # A second time before the follower's next run.
    backfill(made, f"{HOUR}_3", 3, second)
    remove_receipt(made, f"{HOUR}_2")

    assert new(made, since) == []
    assert offsets_of(new(made, NOTHING)) == [0, 1, 2]


def test_new_files_backfilled_again_with_more(made: MadeArchive) -> None:
    """A forced backfill that holds more than what was sent is refused."""
    first = backfill(made, HOUR, 3)
    since = through_now(made.archive.snapshot())
    backfill(made, f"{HOUR}_2", 5, first)
    remove_receipt(made, HOUR)

    with pytest.raises(ManifestInvalidError, match=r"T010000Z_2/.*expected all or none"):
        new(made, since)


@pytest.mark.parametrize("end", [5, 7])
def test_new_files_backfilled_again_before_its_end_is_drained(made: MadeArchive, end: int) -> None:
    """What a generation drains of an interval, its windows never held: it is sent.

    Their plans have these offsets all the same, as an interval may reach beyond the first drain.
    """
    made.start_at({T1: 3})
    first = backfill(made, HOUR, 3, interval_end=5)
    since = through_now(made.archive.snapshot())
    backfill(made, f"{HOUR}_2", 3, first, interval_end=5)
    remove_receipt(made, HOUR)
    made.seal({T1: dense(3, end)})

    assert offsets_of(new(made, since)) == [*range(3, end)]


def test_new_files_backfilled_again_topic_recreated(made: MadeArchive) -> None:
    """The same offsets of a recreated topic are other records, and are sent."""
    first = backfill(made, HOUR, 3, topic_id="0")
    since = through_now(made.archive.snapshot())
    second = backfill(made, f"{HOUR}_2", 3, first)
    remove_receipt(made, HOUR)

    assert paths_of(new(made, since)) == paths_of(second)


@pytest.mark.parametrize("left", ["nothing", "no plan", "a plan without topics"])
def test_new_files_window_removed(left: str, made: MadeArchive) -> None:
    """A window that was sent is removed, and nothing says which records it held: refused."""
    key = "repair_20260101T000000Z"
    made.seal_window("a", {T1: dense(0, 2)}, kind="repair")
    made.seal_window(key, {T0: dense(0, 2)}, kind="repair")
    since = through_now(made.archive.snapshot())
    window = made.root / "windows" / key
    if left == "nothing":
        window.fs.rm(window.path, recursive=True)
    else:
        (window / "receipt.json").unlink()
        if left == "no plan":
            (window / "plan.json").unlink()
    made.seal({T0: dense(0, 5)})

    with pytest.raises(ManifestInvalidError, match=r"repair_20260101T000000Z.*was removed"):
        new(made, since)


def test_through_now_of_older_release(made: MadeArchive) -> None:
    """A run of an older release recorded no files; they are recorded with the next receipt."""
    made.seal({T0: dense(0, 3)})
    older = sent_at(0)
    assert through_now(made.archive.snapshot(), older) == {**older, "files": {}}
    made.seal({T0: dense(3, 6)})

    assert offsets_of(new(made, older)) == [3, 4, 5]
    assert through_now(made.archive.snapshot(), older) == through_now(made.archive.snapshot())


@pytest.mark.parametrize("restored", [False, True])
def test_new_files_restored_and_drained_again(tmp_path: Path, restored: bool) -> None:
    """An older copy, drained again, has other batches under the same names: refused.

    Batch 1 held offsets 3 to 5 when it was sent. In the restored archive it ends at 3, so that
    batch 2, the only new one, starts with records that were sent; if it ended later, some would
    never be sent.
    """
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    for start in (0, 3):
        made.seal({T0: dense(start, start + 3)})
    since = through_now(made.archive.snapshot())
    if restored:
        made = MadeArchive(tmp_path / "restored", {"t": "1"})
        made.seal({T0: dense(0, 3)})
        made.seal({T0: dense(3, 4)})
        # Nothing is new yet, and what was sent stays known.
        assert new(made, since) == []
        assert through_now(made.archive.snapshot(), since) == since
        made.seal({T0: dense(4, 8)})
        with pytest.raises(ManifestInvalidError, match=r"receipts/000000000001.json.*older copy"):
            new(made, since)
    else:
        made.seal({T0: dense(6, 8)})
        assert offsets_of(new(made, since)) == [6, 7]


@pytest.mark.parametrize("windows", [False, True])
def test_new_files_restored_without_generation(tmp_path: Path, windows: bool) -> None:
    """An older copy lacks a whole generation that was sent, and its records are drained again."""
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    made.seal({T0: dense(0, 3)})
    made.open_generation()
    made.seal({T0: dense(3, 6)})
    since = through_now(made.archive.snapshot())
    assert list(since["generations"]) == ["1", "2"]
    made = MadeArchive(tmp_path / "restored", {"t": "1"})
    made.seal({T0: dense(0, 3)})
    made.seal({T0: dense(3, 8)})
    if windows:
        made.seal_window("w", {T1: dense(0, 3)})

    with pytest.raises(ManifestInvalidError, match=r"generation 2.*older copy"):
        new(made, since)


def test_new_files_restored_with_other_generation(tmp_path: Path) -> None:
    """A generation has the number of one that was sent, whose records are in the one before."""
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    made.seal({T0: dense(0, 3)})
    made.open_generation()
    made.seal({T0: dense(3, 6)})
    since = through_now(made.archive.snapshot())
    made = MadeArchive(tmp_path / "restored", {"t": "1"})
    made.seal({T0: dense(0, 3)})
    made.seal({T0: dense(3, 8)})
    made.open_generation()
    made.seal({T0: dense(8, 9)})

    with pytest.raises(ManifestInvalidError, match=r"0002/receipts/000000000000.json.*older copy"):
        new(made, since)


@pytest.mark.parametrize("is_sealed_again", [False, True])
def test_new_files_receipt_given_up(made: MadeArchive, is_sealed_again: bool) -> None:
    """Batches whose receipts were given up may be sealed again with later ones: refused."""
    for start in (0, 3, 6):
        made.seal({T0: dense(start, start + 3)})
    since = sent_at(1)
    receipts = made.archive.generation(1).folder / "receipts"
    (receipts / "000000000001.json").unlink()
    if not is_sealed_again:
        (receipts / "000000000002.json").unlink()

    with pytest.raises(ManifestInvalidError, match=r"receipts/000000000001.json, up to which"):
        new(made, since)


def test_new_files_receipt_damaged(made: MadeArchive) -> None:
    """A damaged receipt is an error that names the command to look closer."""
    made.seal({T0: dense(0, 5)})
    [path] = (made.archive.generation(1).folder / "receipts").iterdir()
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))

    damaged = rf"^{re.escape(str(made.root))}: a receipt is damaged.*kafka-drain validate"
    with pytest.raises(ManifestInvalidError, match=damaged):
        through_now(made.archive.snapshot())
    with pytest.raises(ManifestInvalidError, match=damaged):
        new_files(made.archive.snapshot(), NOTHING, sent_at(0))


steps = st.lists(st.sampled_from(["seal", "generation", "repair", "run"]), max_size=14)


@settings(max_examples=40)
@given(steps=steps, data=st.data())
def test_follow_property(
    steps: list[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is sealed, rolled and repaired between the runs, each offset is sent once."""
    made = MadeArchive(tmp_path_factory.mktemp("follow") / "archive", {"t": "1"})
    sent: list[int] = []
    # Each file, and those that it stands for: a repair finds them damaged as well.
    whole: list[tuple[ArchiveFile, list[str]]] = []
    sealed = windows = 0

    def follow() -> None:
        run, since = next_run(made.archive, "f")
        through = through_now(made.archive.snapshot())
        sent.extend(offsets_of(new_files(made.archive.snapshot(), since, through)))
        end(run, through)

    for step in steps:
        if step == "seal":
            whole += [(file, []) for file in made.seal({T0: dense(sealed, sealed + 3)})]
            sealed += 3
        elif step == "generation":
            made.open_generation()
        elif step == "repair" and whole:
            damaged, replaces = whole.pop(data.draw(st.integers(0, len(whole) - 1)))
            offsets = offsets_of([damaged])
            windows += 1
            replaces = [damaged.path, *replaces]
            batch = {T0: dense(offsets[0], offsets[-1] + 1)}
            files = made.seal_window(f"w{windows:03d}", batch, replaces)
            whole += [(file, replaces) for file in files]
        elif step == "run":
            follow()
    follow()

    assert Counter(sent) == Counter(range(sealed))


def test_new_files_repaired_and_backfilled_again(made: MadeArchive) -> None:
    """A forced backfill of what was sent and repaired since holds nothing new."""
    [file] = backfill(made, HOUR, 3)
    mended = made.seal_window("repair_1", {T1: dense(0, 3)}, [file.path], kind="repair")
    since = through_now(made.archive.snapshot())
    backfill(made, f"{HOUR}_2", 3, mended)
    for key in (HOUR, "repair_1"):
        remove_receipt(made, key)

    assert new(made, since) == []


def test_has_sent_backfilled_again(made: MadeArchive) -> None:
    """A window in place of those that were sent holds what was sent."""
    first = backfill(made, HOUR, 3)
    through = through_now(made.archive.snapshot())
    backfill(made, f"{HOUR}_2", 3, first)
    remove_receipt(made, HOUR)

    [again] = made.archive.snapshot().fold.windows
    assert has_sent(through, again.receipt)


def test_new_files_backfilled_again_and_compacted(made: MadeArchive) -> None:
    """A compaction may put a forced backfill together with windows that were sent."""
    later = "20260101T010000Z_20260101T020000Z"
    first = backfill(made, HOUR, 3)
    other = made.seal_window(later, {T0: dense(0, 3)}, kind="backfill", topics={"t": "1"})
    since = through_now(made.archive.snapshot())
    again = backfill(made, f"{HOUR}_2", 3, first)
    remove_receipt(made, HOUR)
    rows = {T0: dense(0, 3), T1: dense(0, 3)}
    made.seal_window("compact_1", rows, paths_of([*other, *again]), kind="compact")

    assert new(made, since) == []

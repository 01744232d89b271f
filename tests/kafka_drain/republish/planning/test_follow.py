"""Following an archive: each sealed record is sent by exactly one of a follower's runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.archive.files import ArchiveFile
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.documents import ThroughJson
from kafka_drain.republish.planning.follow import (
    NOTHING,
    follower_key,
    new_files,
    next_run,
    through_now,
)
from kafka_drain.republish.planning.runs import RepublishRun, run_key
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.republish.receipts import receipt_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of topic t, of which nothing is sealed yet."""
    return MadeArchive(tmp_path / "archive", {"t": "1"})


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


def end(run: RepublishRun, through: ThroughJson) -> None:
    run.write_receipt(receipt_of(through=through))


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


def test_next_run_of_other_followers(made: MadeArchive) -> None:
    """Runs of other followers, and others whose names look alike, don't count."""
    for key in ("g.000007", "f", "f.000003-0123456789ab", "ff.000009", "f.g.000008"):
        end(RepublishRun(made.root, key), sent_at(7))

    assert next_run(made.archive, "f")[0].key == "f.000001"


def test_follower_key_of_name() -> None:
    """A follower's key is that of its name alone, and no run's without follow."""
    assert follower_key("a") == follower_key("a")
    assert len({follower_key("a"), follower_key("b"), run_key("a"), run_key("b")}) == 4


# what is new


def test_through_now_nothing_sealed(made: MadeArchive) -> None:
    """An archive without receipts is followed through nothing."""
    assert through_now(made.archive.snapshot()) == {"generations": {}, "windows": []}
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

    assert paths_of(new(made, NOTHING)) == paths_of([*first, *second, *third, *window])
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


def test_new_files_receipt_damaged(made: MadeArchive) -> None:
    """A damaged receipt is an error that names the command to look closer."""
    made.seal({T0: dense(0, 5)})
    [path] = (made.archive.generation(1).folder / "receipts").iterdir()
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))

    with pytest.raises(ManifestInvalidError, match=r"a receipt is damaged.*kafka-drain validate"):
        new(made, NOTHING)


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

"""A place outside an archive for what runs keep: bound to one archive, and to nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.state_folder import BINDING, StateFolder, arguments_of
from kafka_drain.clock import utc_now
from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.previous_runs import refuse_repeated
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.run import plan_republish
from kafka_drain.storage.json_files import is_unfinished
from kafka_drain.storage.paths import is_of_volume, locate
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import MadeArchive, dense

TP = TopicPartition("flights", 0)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of 10 records."""
    archive = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    archive.seal({TP: dense(0, 10)})
    archive.open_generation()
    return archive


def content(folder: Path) -> dict[str, bytes]:
    """Return each file with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("has_id", [True, False])
def test_identify_bound(made: MadeArchive, tmp_path: Path, has_id: bool) -> None:
    """The archive's id, or a new one, is kept in the folder; the archive stays as it is."""
    known = made.archive.identify() if has_id else None
    before = content(tmp_path / "archive")
    archive = made.archive.keeping_state_in(tmp_path / "state")
    assert archive.identity() == known

    named = archive.identify()

    assert known in (named, None)
    assert archive.identity() == archive.identify() == named
    assert made.archive.keeping_state_in(str(tmp_path / "state")).identity() == named
    assert content(tmp_path / "archive") == before


def test_identify_before_the_archive(made: MadeArchive, tmp_path: Path) -> None:
    """An archive that gets its id later leaves a run elsewhere the one that it has begun with."""
    named = made.archive.keeping_state_in(tmp_path / "state").identify()

    own = made.archive.identify()

    later = made.archive.keeping_state_in(tmp_path / "state")
    assert later.identity() == later.identify() == named != own


@pytest.mark.parametrize("has_id", [True, False])
def test_keeping_state_in_of_another(made: MadeArchive, tmp_path: Path, has_id: bool) -> None:
    """A folder isn't shared: two runs of one name would be taken for each other."""
    other = MadeArchive(tmp_path / "other", {"flights": "id-1"})
    if has_id:
        made.archive.identify()
        other.archive.identify()
    made.archive.keeping_state_in(tmp_path / "state").identify()

    with pytest.raises(ArchiveError, match=r"is of the archive .*/archive .*expected .*/other"):
        other.archive.keeping_state_in(tmp_path / "state")


@pytest.mark.parametrize("has_id", [True, False])
def test_keeping_state_in_of_moved(made: MadeArchive, tmp_path: Path, has_id: bool) -> None:
    """An archive that was moved is known by its id; without one, it may be another one."""
    if has_id:
        made.archive.identify()
    named = made.archive.keeping_state_in(tmp_path / "state").identify()
    moved = Archive.at(str((tmp_path / "archive").rename(tmp_path / "moved")))

    if has_id:
        assert moved.keeping_state_in(tmp_path / "state").identify() == named
        return
    for _ in range(2):
        with pytest.raises(ArchiveError, match=r"expected .*/moved"):
            moved.keeping_state_in(tmp_path / "state")
        # It may get an id of its own meanwhile.
        moved.identify()


@pytest.mark.parametrize("other", [{"pipeline": "p2"}, {"cluster_id": "c2"}])
def test_check_of_another_pipeline(other: dict[str, str], tmp_path: Path) -> None:
    """An archive at the same place, but of another pipeline or cluster, is another archive."""
    place, root = locate(str(tmp_path / "state")), locate(str(tmp_path / "archive"))
    state = StateFolder(place, root, "p", "c", None)
    named = state.identify()
    state.check()
    assert (state.identity(), state.identify()) == (named, named)

    for known in (None, named):
        another = replace(state, known_id=known, **other)
        for call in (another.check, another.identify, another.identity):
            with pytest.raises(ArchiveError, match="give each archive a folder of its own"):
                call()


def test_check_of_volume(tmp_path: Path) -> None:
    """What a file system keeps in a folder, or a crash has left there, belongs to nobody."""
    for name in ("lost+found", f".{BINDING}.{'0' * 32}.tmp"):
        (tmp_path / name).touch()
    assert all(is_of_volume(p.name) or is_unfinished(p.name) for p in tmp_path.iterdir())

    StateFolder(locate(str(tmp_path)), locate("elsewhere"), "p", "c", None).check()


def test_keeping_state_in_refused(made: MadeArchive, tmp_path: Path) -> None:
    """Neither an archive nor a folder with other files is taken; an empty one is."""
    with pytest.raises(ConfigError, match="is an archive"):
        made.archive.keeping_state_in(str(made.root))
    (tmp_path / "photos").mkdir()
    made.archive.keeping_state_in(tmp_path / "photos")
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(ConfigError, match=r"isn't empty \(it has cat.jpg\)"):
        made.archive.keeping_state_in(tmp_path / "photos")
    with pytest.raises(ArchiveError, match="expected an archive"):
        Archive.at(str(tmp_path / "nothing")).keeping_state_in(tmp_path / "new")


def test_arguments_of(made: MadeArchive, tmp_path: Path) -> None:
    """Advice names the archive, and where its runs are if elsewhere, as a shell reads it."""
    place = tmp_path / "the state"
    run = RepublishRun(locate(place), "r-1")
    made.archive.keeping_state_in(place).identify()

    assert arguments_of(made.root) == str(made.root)
    assert arguments_of(run.root) == f"{made.root} --state '{place}'"
    assert f"republish {made.root} --state '{place}' --abandon r-1 --apply`" in run.abandoning


def test_plan_republish_other_place(
    made: MadeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs in either place have sent counts, and nothing is written to the archive."""
    cluster: Any = FakeCluster(
        {TP: Log(end=10), TopicPartition("copy", 0): Log()},
        topic_ids={"flights": "id-1", "copy": "id-2"},
    )
    before = content(tmp_path / "archive")
    archive = made.archive.keeping_state_in(tmp_path / "state")
    asked: list[str] = []
    monkeypatch.setattr(
        "kafka_drain.republish.planning.planner.refuse_repeated",
        lambda root, plan, **how: (asked.append(str(root)), refuse_repeated(root, plan, **how)),
    )

    run = plan_republish(
        archive,
        cluster,
        RepublishRequest(target_topic="copy", engine="worker"),
        now=utc_now(),
        apply=True,
    )

    assert asked == [str(made.root), str(archive.state)]
    assert run.run.root == archive.state
    assert content(tmp_path / "archive") == before


def test_plan_republish_sent_by_owner(made: MadeArchive, tmp_path: Path) -> None:
    """What a run of the same name in the archive has sent isn't sent again by one elsewhere."""
    cluster: Any = FakeCluster(
        {TP: Log(end=10), TopicPartition("copy", 0): Log()},
        topic_ids={"flights": "id-1", "copy": "id-2"},
    )
    plan = partial(
        plan_republish,
        cluster=cluster,
        request=RepublishRequest(target_topic="copy", engine="worker"),
        now=utc_now(),
        apply=True,
    )
    owners = plan(made.archive)
    owners.run.mark_opened(owners.run.write_plan(owners.plan))

    with pytest.raises(ConfigError, match=f"run {owners.plan.key} started to send"):
        plan(made.archive.keeping_state_in(tmp_path / "state"))

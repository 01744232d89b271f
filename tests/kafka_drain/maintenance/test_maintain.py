"""What maintenance does, in which order; what it says of archives that it can't read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive import files as listing
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    KeyUnavailableError,
    LockedError,
    TerminalError,
)
from kafka_drain.maintenance import compact as compacting
from kafka_drain.maintenance import maintain as maintaining
from kafka_drain.maintenance.approved import plan_text
from kafka_drain.maintenance.compaction_plan import Compaction
from kafka_drain.maintenance.maintain import MaintenancePlan, plan_maintenance, run_maintenance
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import plan_reprocess
from tests.kafka_drain.golden import RECEIPTS, golden_cluster, golden_pipeline, sealed_copy
from tests.kafka_drain.made_archive import EPOCH, NOW, MadeArchive, dense
from tests.kafka_drain.maintenance.test_erase import TP, Killed, application, lying, rewrite


def reprocess(pipeline: Pipeline) -> object:
    cluster: Any = golden_cluster()
    return plan_reprocess(pipeline, cluster, Cut(batch=(1, 0)))


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        # The newest is asked whether a roll is due, all of them what a reprocess replaces.
        (plan_maintenance, "000000000013.json"),
        (reprocess, "000000000011.json"),
    ],
)
def test_plan_receipt_damaged(
    tmp_path: Path, plan: Callable[[Pipeline], object], name: str
) -> None:
    """A damaged receipt is named, and no retry can help."""
    archive = sealed_copy(tmp_path / "archive")
    pipeline = golden_pipeline(archive)
    receipt = Path(str(archive.root), RECEIPTS, name)
    receipt.write_bytes(receipt.read_bytes().replace(b'"records":', b'"Records":', 1))

    with pytest.raises(TerminalError, match=f"generations/0001/receipts/{name}:? is damaged"):
        plan(pipeline)


# what is done, and in which order


DAY = 86_400_000
NOW_MS = round((NOW - EPOCH).total_seconds() * 1000)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeArchive:
    """A closed generation: two batches that are 40 days old, three that are new; Java isn't needed.

    The open one has a batch, and none that isn't sealed.
    """
    monkeypatch.setattr(compacting, "prepare_application", application)
    monkeypatch.setattr(listing, "_new_files", lambda *_: [])
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    for number in range(5):
        age = 40 * DAY if number < 2 else DAY
        made.seal({TP: dense(10 * number, 10 * number + 10, NOW_MS - age)})
    made.open_generation()
    made.seal({TP: dense(50, 60, NOW_MS - 40 * DAY)})
    return made


def maintained(made: MadeArchive, runner: Any = rewrite, **keys: Any) -> dict[str, Any]:
    """Run maintenance of files that are too old after 30 days."""
    given = {"retention_days": 30, "max_generation_days": 10_000, **keys}
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root), **given)
    cluster: Any = None
    return run_maintenance(pipeline, cluster, runner, run="t", wait_seconds=0, clock=lambda: NOW)


def maintain(pipeline: Pipeline) -> dict[str, Any]:
    """Run maintenance of a pipeline."""
    cluster: Any = None
    return run_maintenance(pipeline, cluster, rewrite, run="t", wait_seconds=0, clock=lambda: NOW)


def offsets(*ranges: tuple[int, int]) -> Counter[int]:
    return Counter(offset for start, end in ranges for offset in range(start, end))


def test_run_maintenance(made: MadeArchive) -> None:
    """What is too old is deleted, what is left is put together; the open generation stays."""
    done = maintained(made)

    assert [key.partition("_")[0] for key in done["windows"]] == ["retention", "compact"]
    assert lying(made.root) == offsets((20, 60))
    assert (done["files_before"], done["files_after"], done["files_removed"]) == (6, 2, 5)
    assert done["rolled"] is False
    again = maintained(made)
    assert (again["windows"], again["files_removed"]) == ([], 0)


def test_run_maintenance_lost_key(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files whose master key is lost keep no others from being compacted, and it ends in red."""
    for start in (60, 70):
        made.seal({TP: dense(start, start + 10, NOW_MS - DAY)})
    made.open_generation()
    found: list[str] = []

    def refuse(_: Archive, compaction: Compaction) -> None:
        found.append(compaction.name)
        if len(found) == 1:
            raise KeyUnavailableError("isn't available")

    monkeypatch.setattr(maintaining, "refuse_locked", refuse)

    with pytest.raises(KeyUnavailableError, match="isn't available"):
        maintained(made, retention_days=None)

    assert [window.key for window in made.archive.snapshot().windows] == ["compact_0001"]
    assert len(found) == 2


def test_run_maintenance_without_retention(made: MadeArchive) -> None:
    """Nothing is ever deleted of a pipeline that doesn't say after how long."""
    assert len(maintained(made, retention_days=None)["windows"]) == 1

    assert lying(made.root) == offsets((0, 60))


@pytest.mark.parametrize("act", [plan_maintenance, maintain])
def test_maintenance_of_another_pipeline(
    made: MadeArchive, act: Callable[[Pipeline], object]
) -> None:
    """A pipeline that names another one's archive by mistake deletes nothing of it.

    Its drains are refused; maintenance runs each night, whether they succeed or not.
    """
    other = Pipeline(name="other", topics=["clicks"], archive=str(made.root), retention_days=1)

    with pytest.raises(ArchiveError, match="is the archive of pipeline 'made', not of 'other'"):
        act(other)

    assert lying(made.root) == offsets((0, 60))


def test_run_maintenance_reprocess(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """While a reprocess is unfinished, its old and new files must stay: nothing is done, and why.

    Otherwise a nightly run that does nothing looks like one that has nothing to do.
    """
    removed: list[Archive] = []
    monkeypatch.setattr(maintaining, "remove_unsealed", removed.append)
    monkeypatch.setattr(maintaining, "unfinished_reprocess", lambda _: object())

    done = maintained(made)

    assert (done["windows"], done["files_removed"], removed) == ([], 0, [])
    assert lying(made.root) == offsets((0, 60))
    why = f"maintain {made.root}: erases, compacts and deletes nothing: a reprocess was started"
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root))
    for lines in (said, plan_maintenance(pipeline, clock=lambda: NOW).lines()):
        assert [line.startswith(why) for line in lines].count(True) == 1


@pytest.mark.parametrize("is_rolled", [True, False])
def test_run_maintenance_roll(
    is_rolled: bool, made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generation that was due and couldn't be closed belongs to drains, and stays as it is."""

    def roll(*_: Any, **how: Any) -> object:
        if is_rolled:
            made.open_generation()
        return object() if is_rolled else None

    monkeypatch.setattr(maintaining, "due_for_roll", lambda *_: "it is due")
    monkeypatch.setattr(maintaining, "roll_between_drains", roll)

    assert maintained(made)["rolled"] is is_rolled

    assert lying(made.root) == offsets((20, 50 if is_rolled else 60))


def test_run_maintenance_erases_first(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be erased isn't put together with the rest before."""
    seen: list[int] = []

    def sweep(archive: Archive, *_: Any, **__: Any) -> list[str]:
        seen.append(len(archive.snapshot().windows))
        return ["erase_0001"]

    monkeypatch.setattr(maintaining, "sweep", sweep)

    assert maintained(made)["windows"][0] == "erase_0001"

    assert seen == [0]


@pytest.mark.parametrize(
    ("numbers", "names"), [([], ""), ([1], "erasure 1"), ([1, 3], "erasures 1, 3")]
)
def test_plan_maintenance_erasures(
    numbers: list[int], names: str, made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan and its approval say which erasures maintenance carries out."""
    found = [SimpleNamespace(number=number, lifted=None) for number in numbers]
    lifted = SimpleNamespace(number=2, lifted=object())
    monkeypatch.setattr(maintaining, "read_erasures", lambda _: [*found, lifted])
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root))

    plan = plan_maintenance(pipeline)

    assert plan.to_dict()["erasures"] == numbers
    said = f"carries out {names} on what was sealed since"
    assert [line for line in plan.lines() if "carries out" in line] == (
        [f"maintain {made.root}: {said}"] if numbers else []
    )
    assert f"| carries out on what was sealed since | {names or 'none'} |" in plan_text(plan)


def test_run_maintenance_killed(made: MadeArchive) -> None:
    """What a killed run has written and not sealed is discarded, and nothing is there twice."""

    def dies(application: SparkApplication) -> None:
        rewrite(application)
        raise Killed

    with pytest.raises(Killed):
        maintained(made, dies)
    assert lying(made.root) == offsets((20, 60), (20, 50))

    maintained(made)

    assert lying(made.root) == offsets((20, 60))


def test_run_maintenance_while_another_runs(made: MadeArchive) -> None:
    """Maintenance runs once at a time; nothing is done beside another."""
    with (
        hold_lease(made.root / "maintenance", run="other"),
        pytest.raises(LockedError, match="run other"),
    ):
        maintained(made)

    assert lying(made.root) == offsets((0, 60))


def of_files(number: int, size: int, later: int = 0) -> Any:
    """Return what stands for an action on some files."""
    return SimpleNamespace(
        files=[object()] * number,
        bytes=size,
        group=SimpleNamespace(bytes=size),
        dated_later=dict.fromkeys(range(later)),
    )


def test_maintenance_plan_figures(tmp_path: Path) -> None:
    """A plan's figures count files and bytes, not the actions on them."""
    plan = MaintenancePlan(
        Archive.at(str(tmp_path)),
        roll="it is old",
        compactions=[of_files(3, 30), of_files(4, 40)],
        deletions=[of_files(5, 500, later=1), of_files(6, 600, later=2)],
        held=["some"],
        erasures=[2, 3],
    )

    assert plan.to_dict() == {
        "archive": str(tmp_path),
        "roll": "it is old",
        "erasures": [2, 3],
        "compactions": 2,
        "compacted_files": 7,
        "compacted_bytes": 70,
        "deleted_files": 11,
        "deleted_bytes": 1100,
        "deleted_files_dated_later": 3,
        "held": ["some"],
    }


def test_plan_maintenance_asks(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan looks at all that is too old or not compacted, as of the time at which it is made."""
    queries: list[Any] = []
    times: list[Any] = []
    refuse = maintaining.refuse_unsound

    def asked(snapshot: Any, *, query: Any) -> Any:
        queries.append(query)
        return refuse(snapshot, query=query)

    def due(*given: Any) -> str:
        times.append(given[2])
        return ""

    monkeypatch.setattr(maintaining, "refuse_unsound", asked)
    monkeypatch.setattr(maintaining, "due_for_roll", due)
    pipeline = Pipeline(name="made", topics=[TP.topic], archive=str(made.root), retention_days=30)

    plan_maintenance(pipeline, clock=lambda: NOW)
    plan_maintenance(pipeline.model_copy(update={"retention_days": None}), clock=lambda: NOW)

    old, whole = queries
    assert times == [NOW, NOW]
    assert (old.times.to_ms, whole.times) == (NOW_MS - 30 * DAY, None)
    assert (old.uncompacted, old.dated_later) == (True, True)
    assert (whole.uncompacted, whole.dated_later) == (True, False)


def test_plan_maintenance_locked(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old files that the store still locks are neither deleted nor compacted, and it is said."""
    pipeline = Pipeline(name="made", topics=[TP.topic], archive=str(made.root), retention_days=30)
    monkeypatch.setattr(maintaining, "held_by_future", lambda *_: ["a file that is dated later"])
    free = plan_maintenance(pipeline, clock=lambda: NOW)
    old = [file.path for found in free.deletions for file in found.files]
    assert free.held == ["a file that is dated later"]
    locks: Any = SimpleNamespace(
        locked=lambda paths: {path: object() for path in paths if path == old[0]},
        summary=lambda paths: f"{len(paths)} files",
    )

    plan = plan_maintenance(pipeline, clock=lambda: NOW, locks=locks)

    assert [file.path for found in plan.deletions for file in found.files] == old[1:]
    compacted = {path for found in plan.compactions for path in found.group.replaces}
    assert compacted.isdisjoint(old)
    assert plan.held == [
        "a file that is dated later",
        "1 files, which are past retention_days",
    ]


def test_run_maintenance_chosen(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is chosen of a plan is carried out, and the plan is of the time that is given."""
    times: list[Any] = []

    def due(*given: Any) -> str:
        times.append(given[2])
        return "it is due"

    monkeypatch.setattr(maintaining, "due_for_roll", due)
    monkeypatch.setattr(maintaining, "roll_between_drains", lambda *_, **__: pytest.fail("rolled"))
    pipeline = Pipeline(name="made", topics=[TP.topic], archive=str(made.root), retention_days=30)
    nobody: Any = None

    found = run_maintenance(
        pipeline,
        nobody,
        rewrite,
        run="r",
        clock=lambda: NOW,
        choose=lambda plan: MaintenancePlan(plan.archive),
    )

    assert (found["rolled"], found["windows"]) == (False, [])
    assert lying(made.root) == offsets((0, 60))
    assert set(times) == {NOW}


def test_run_maintenance_no_archive(tmp_path: Path) -> None:
    """A folder that is no archive gets no lease."""
    pipeline = Pipeline(name="made", topics=["t"], archive=str(tmp_path))
    nobody: Any = None

    with pytest.raises(ArchiveError):
        run_maintenance(pipeline, nobody, nobody, run="r")

    assert list(tmp_path.iterdir()) == []


def test_run_maintenance_steps(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed run left is removed before anything is erased; a roll waits as it is told."""
    steps: list[Any] = []
    plans = [MaintenancePlan(made.archive, roll="it is old"), MaintenancePlan(made.archive)]

    def step(name: str, result: Any = None) -> None:
        def note(*_: Any, **given: Any) -> Any:
            steps.append((name, given["wait_seconds"]) if "wait_seconds" in given else name)
            return result

        monkeypatch.setattr(maintaining, name, note)

    step("roll_between_drains")
    step("remove_unsealed")
    step("remove_superseded")
    step("sweep", ["erase_0001"])
    monkeypatch.setattr(maintaining, "plan_maintenance", lambda *_, **__: plans.pop(0))
    pipeline = Pipeline(name="made", topics=[TP.topic], archive=str(made.root))
    nobody: Any = None

    run_maintenance(pipeline, nobody, nobody, run="r", wait_seconds=7)

    *before, last = steps
    assert last == "sweep"
    assert set(before) == {("roll_between_drains", 7), "remove_unsealed", "remove_superseded"}


def test_plan_maintenance_half_sent(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of which a follower has sent some aren't compacted, and it is said."""
    pipeline = Pipeline(name="made", topics=[TP.topic], archive=str(made.root))
    [compaction] = plan_maintenance(pipeline, clock=lambda: NOW).compactions
    monkeypatch.setattr(maintaining, "half_sent", lambda *_: "billing")

    plan = plan_maintenance(pipeline, clock=lambda: NOW)

    assert plan.compactions == []
    [held] = plan.held
    assert held.startswith(compaction.line())
    assert "follower billing" in held


def test_run_maintenance_lost_key_of_erasure(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that an erasure can't search keep nothing from being deleted by its age."""

    def refuse(*_: Any, **__: Any) -> list[str]:
        raise KeyUnavailableError("isn't available")

    monkeypatch.setattr(maintaining, "sweep", refuse)

    with pytest.raises(KeyUnavailableError, match="isn't available"):
        maintained(made)

    assert lying(made.root) == offsets((20, 60))


def test_run_maintenance_roll_refused(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A roll that somebody has to decide about keeps nothing from being deleted; it ends in red."""

    def refuse(*_: Any, **__: Any) -> None:
        raise ConfigError("Nobody was asked")

    monkeypatch.setattr(maintaining, "due_for_roll", lambda *_: "it is old")
    monkeypatch.setattr(maintaining, "roll_between_drains", refuse)

    with pytest.raises(ConfigError, match="Nobody was asked"):
        maintained(made)

    assert lying(made.root) == offsets((20, 60))

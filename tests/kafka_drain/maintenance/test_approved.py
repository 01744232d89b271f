"""Maintenance that was seen is what is carried out."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive import files as listing
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.frozen_plan import FrozenPlan, PlanDecision, PlanState
from kafka_drain.archive.frozen_plans import carrying_out, freeze, state_of
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import PlanChangedError
from kafka_drain.maintenance import maintain as maintaining
from kafka_drain.maintenance.approved import (
    MaintenanceScope,
    freeze_maintenance,
    plan_approved,
    run_approved,
)
from kafka_drain.maintenance.maintain import MaintenancePlan, plan_maintenance
from kafka_drain.offsets import TopicPartition
from kafka_drain.spark.submit import SparkApplication
from tests.forks import kill_points, run_forked
from tests.integration.killed_steps import kill_at_change
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.made_archive import EPOCH, NOW, MadeArchive, dense

P0 = TopicPartition("t", 0)
LATER = NOW + timedelta(hours=1)
DAY = 86_400_000
#: 30 days before the plan is made.
BEFORE = int((NOW - timedelta(days=30) - EPOCH).total_seconds() * 1000)
LONG_AGO = (NOW - timedelta(days=31)).isoformat()


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """A closed generation: two files are too old, one is an hour later, and one is new."""
    archive = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    starts = (BEFORE - 9 * DAY, BEFORE - DAY, BEFORE + 1_000_000, BEFORE + DAY)
    for n, first_ms in enumerate(starts):
        archive.seal({P0: dense(10 * n, 10 * n + 10, first_ms)})
    archive.open_generation()
    return archive


def pipeline_of(made: MadeArchive, **keys: Any) -> Pipeline:
    given = {"retention_days": 30, "max_generation_days": 10_000, **keys}
    return Pipeline(name="made", topics=["t"], archive=str(made.root), **given)


def frozen_in(made: MadeArchive, **keys: Any) -> tuple[MaintenancePlan, FrozenPlan]:
    return freeze_maintenance(pipeline_of(made, **keys), now=NOW)


def run(made: MadeArchive, plan: FrozenPlan, **keys: Any) -> dict[str, Any]:
    cluster: Any = FakeCluster({})
    return run_approved(pipeline_of(made, **keys), cluster, refuses, plan, run="tests")


def refuses(application: SparkApplication) -> None:
    raise AssertionError("nothing was to be compacted")


def refused(made: MadeArchive, plan: FrozenPlan, now: Any = LATER, **keys: Any) -> str:
    with pytest.raises(PlanChangedError) as error:
        plan_approved(pipeline_of(made, **keys), plan.id, now=now)
    return str(error.value)


def paths(made: MadeArchive) -> list[str]:
    return [file.path for file in archive_files(made.archive.snapshot())]


def only_deletes(made: MadeArchive) -> FrozenPlan:
    """Return a plan without compaction: two files are left, which are few enough."""
    return frozen_in(made)[1]


def test_run_approved_deletes_what_was_seen(made: MadeArchive) -> None:
    """A file that has become too old since the plan was made stays: nobody has seen it go."""
    before = paths(made)
    plan = only_deletes(made)
    assert "delete 20 records" in plan.text
    assert "| files deleted | 2 (" in plan.text

    pipeline = pipeline_of(made)
    todo, _, decision = plan_approved(pipeline, plan.id, now=LATER)
    assert decision is PlanDecision.RUN
    assert [file.path for found in todo.deletions for file in found.files] == before[:2]
    # The same are due, as the plan counts from the time at which it was made.
    assert [found.before_ms for found in todo.deletions] == [BEFORE]
    # Alone, maintenance would delete three.
    now_due = plan_maintenance(pipeline, clock=lambda: LATER)
    assert [len(found.files) for found in now_due.deletions] == [3]
    figures = run(made, plan)

    assert figures["files_removed"] == 2
    assert paths(made) == before[2:]


def test_run_approved_rolls(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old files of the generation that the run itself closes stay: nobody has seen them go."""

    def roll(*_: Any, **__: Any) -> object:
        made.open_generation()
        return object()

    monkeypatch.setattr(listing, "_new_files", lambda *_: [])
    monkeypatch.setattr(maintaining, "due_for_roll", lambda *_: ROLL)
    monkeypatch.setattr(maintaining, "roll_between_drains", roll)
    made.seal({P0: dense(40, 50, BEFORE - DAY)})
    before, plan = paths(made), only_deletes(made)

    figures = run(made, plan)

    assert figures["rolled"] is True
    assert paths(made) == before[2:]
    # Alone, the next maintenance deletes it.
    [due] = plan_maintenance(pipeline_of(made), clock=lambda: NOW).deletions
    assert [file.path for file in due.files] == before[-1:]


def test_plan_approved_done(made: MadeArchive) -> None:
    """A plan that was carried out does nothing more, and is no error."""
    plan = only_deletes(made)
    run(made, plan)

    todo, _, decision = plan_approved(pipeline_of(made), plan.id, now=NOW + timedelta(days=9))

    assert decision is PlanDecision.DO_NOTHING
    assert not todo.deletions


def test_plan_approved_killed(made: MadeArchive) -> None:
    """A plan that was started goes on with what is left of it, even after it has expired."""
    plan = only_deletes(made)
    with pytest.raises(ZeroDivisionError), carrying_out(made.root, plan, "first"):
        raise ZeroDivisionError

    todo, _, decision = plan_approved(pipeline_of(made), plan.id, now=NOW + timedelta(days=9))
    assert decision is PlanDecision.RESUME
    assert [len(found.files) for found in todo.deletions] == [2]
    assert run(made, plan)["files_removed"] == 2
    assert run(made, plan)["files_removed"] == 0


def carry_out_until(folder: str, plan_id: str, change: int) -> None:
    """Carry out a plan as a task does, up to the nth change of a file; 0 for no limit."""
    kill_at_change(folder, change)
    pipeline = Pipeline(
        name="made", topics=["t"], archive=folder, retention_days=30, max_generation_days=10_000
    )
    _, frozen, decision = plan_approved(pipeline, plan_id, now=LATER)
    if decision is not PlanDecision.DO_NOTHING:
        cluster: Any = FakeCluster({})
        run_approved(pipeline, cluster, refuses, frozen, run="tests")


def test_run_approved_killed(made: MadeArchive, tmp_path: Path) -> None:
    """Killed at any change of a file, the retry deletes what was seen, and ends the plan.

    An hour later, maintenance would delete a third file. All changes of maintenance itself are in
    tests/integration/test_maintain.py.
    """
    plan, before = only_deletes(made), paths(made)
    for change in kill_points():
        folder = shutil.copytree(str(made.root), str(tmp_path / f"killed-{change}"))
        archive = Archive.at(folder)

        code = run_forked(carry_out_until, folder, plan.id, change)

        assert code in (0, -signal.SIGKILL)
        for lock in Path(folder).rglob("lock.json"):
            lock.unlink()
        assert run_forked(carry_out_until, folder, plan.id, 0) == 0
        assert [file.path for file in archive_files(archive.snapshot())] == before[2:]
        assert state_of(archive.root, plan.id) is PlanState.DONE
        if code == 0:
            break
    assert change > 30


def test_plan_approved_expired(made: MadeArchive) -> None:
    """An expired plan isn't started."""
    plan = only_deletes(made)

    assert "had to be started by" in refused(made, plan, NOW + timedelta(days=1))
    assert len(paths(made)) == 4


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"retention_days": 29}, "the pipeline's retention_days became 29, and was 30"),
        ({"retention_days": None}, "retention_days became None, and was 30; 2 files to be deleted"),
        ({"max_future_days": 1}, "the pipeline's max_future_days became 1, and was None"),
        ({"target_file_bytes": 1 << 20}, "the pipeline's target_file_bytes became 1048576, and"),
        ({"max_manifest_lines": 7}, "the pipeline's max_manifest_lines became 7"),
        ({"max_generation_days": 7}, "the pipeline's max_generation_days became 7"),
    ],
)
def test_plan_approved_pipeline_changed(made: MadeArchive, keys: dict[str, Any], said: str) -> None:
    """A pipeline that now says otherwise is no longer what was approved."""
    plan = only_deletes(made)

    assert said in refused(made, plan, **keys)


def test_plan_approved_max_future_days(tmp_path: Path) -> None:
    """What goes by the time of its drain was seen, and is what goes; without the bound, nothing."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    times = ([BEFORE - DAY, BEFORE + 9_999 * DAY], [BEFORE - DAY], [BEFORE + 9_999 * DAY])
    for start, own in zip((0, 2, 3), times, strict=True):
        drained = LONG_AGO if start < 3 else NOW.isoformat()
        made.seal({P0: dict(enumerate(own, start))}, sealed_at=drained)
    made.open_generation()
    before, (_, plan) = paths(made), frozen_in(made, max_future_days=1)
    assert f"with records dated later: {before[0]} (t-0: 2053-" in plan.text
    assert "dated or drained before" in plan.text
    assert "max_future_days became None, and was 1; 1 files to be deleted are gone" in (
        refused(made, plan)
    )

    todo, _, decision = plan_approved(pipeline_of(made, max_future_days=1), plan.id, now=LATER)

    assert decision is PlanDecision.RUN
    assert [file.path for found in todo.deletions for file in found.files] == before[:2]
    assert run(made, plan, max_future_days=1)["files_removed"] == 2
    assert paths(made) == before[2:]


def test_plan_approved_of_earlier_release(made: MadeArchive) -> None:
    """A plan that says nothing of a bound was made without one, and is carried out without one."""
    plan = only_deletes(made)
    older = replace(plan, asked={k: v for k, v in plan.asked.items() if k != "max_future_days"})
    older = freeze(made.root, older, NOW)

    assert plan_approved(pipeline_of(made), older.id, now=LATER)[2] is PlanDecision.RUN
    assert "max_future_days became 1, and was None" in refused(made, older, max_future_days=1)


def test_plan_approved_deleted_by_another(made: MadeArchive) -> None:
    """Files that another maintenance has deleted are named."""
    plan, first = only_deletes(made), paths(made)[0]
    run(made, freeze_maintenance(
        pipeline_of(made), now=NOW + timedelta(seconds=1)
    )[1])  # fmt: skip

    assert f"2 files to be deleted are gone, or not to be deleted any more, such as {first}" in (
        refused(made, plan)
    )


def test_choose_deletions(made: MadeArchive) -> None:
    """Of files that are to be deleted, those are chosen that were seen."""
    plan, _ = frozen_in(made)
    first, _ = (file.path for found in plan.deletions for file in found.files)

    chosen = MaintenanceScope(False, frozenset([first, "other"]), frozenset()).choose(plan)
    assert [file.path for found in chosen.deletions for file in found.files] == [first]
    assert MaintenanceScope(False, frozenset(), frozenset()).choose(plan).deletions == []


def test_choose_compactions(made: MadeArchive) -> None:
    """Of compactions that are planned again, those are chosen that were seen."""
    plan, frozen = frozen_in(made, retention_days=None)
    [compaction] = plan.compactions
    seen = MaintenanceScope.of(plan)

    assert (
        MaintenanceScope.from_dict(frozen.seen)
        == seen
        == MaintenanceScope.from_dict(seen.to_dict())
    )
    assert seen.choose(plan) == plan
    assert seen.changes(plan) == []
    other = MaintenanceScope(
        False, frozenset(), frozenset([frozenset(compaction.group.replaces[1:])])
    )
    assert other.choose(plan).compactions == []
    [said] = other.changes(plan)
    assert f"such as that of {sorted(compaction.group.replaces)[1]}" in said
    assert "compacts generation 1: 4 files" in frozen.text


ROLL, NO_ROLL = "it is 8 days old", ""


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("due", [NO_ROLL, ROLL])
def test_choose_roll(made: MadeArchive, rolls: bool, due: str) -> None:
    """A generation is closed only if that was seen; if it was closed since, that is said."""
    now = MaintenancePlan(made.archive, roll=due)
    seen = MaintenanceScope(rolls, frozenset(), frozenset())

    assert seen.choose(now).roll == (due if rolls else "")
    assert seen.changes(now) == ["the open generation was closed"] * (rolls and not due)


@pytest.mark.parametrize("deletes", [[], ["a"]])
def test_changes_waiting(made: MadeArchive, deletes: Sequence[str]) -> None:
    """A reprocess that was started holds files back: that is said if there were any."""
    now = MaintenancePlan(made.archive, waits_for="a reprocess was started")
    seen = MaintenanceScope(False, frozenset(deletes), frozenset())

    assert seen.changes(now) == ["a reprocess was started"] * bool(deletes)

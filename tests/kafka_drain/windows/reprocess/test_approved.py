"""A reprocess that was seen is the one that is carried out: on the golden archive."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.frozen_plan import FrozenPlan, PlanDecision, PlanState
from kafka_drain.archive.frozen_plans import carrying_out, state_of
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError, PlanChangedError
from kafka_drain.offsets import OffsetRange
from kafka_drain.windows.reprocess import approved as approving
from kafka_drain.windows.reprocess.abandon import abandon_reprocess, plan_abandon
from kafka_drain.windows.reprocess.approved import (
    changes,
    freeze_reprocess,
    plan_approved,
    run_approved,
)
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import open_reprocess, plan_reprocess
from kafka_drain.windows.reprocess.state import ReprocessPlan
from tests.kafka_drain.fake_cluster import Log
from tests.kafka_drain.golden import P0, P1, golden_cluster, golden_rows, seal_repair
from tests.kafka_drain.made_archive import NOW

CUT = Cut(batch=(1, 12))
LATER = NOW + timedelta(hours=1)


def frozen_for(pipeline: Pipeline, cut: Cut | None = CUT) -> tuple[ReprocessPlan, FrozenPlan]:
    cluster: Any = golden_cluster()
    return freeze_reprocess(pipeline, cluster, cut, now=NOW)


def approved(
    pipeline: Pipeline, plan: FrozenPlan, now: Any = LATER
) -> tuple[ReprocessPlan, PlanDecision]:
    cluster: Any = golden_cluster()
    again, _, decision = plan_approved(pipeline, cluster, plan.id, now=now)
    return again, decision


def refused(pipeline: Pipeline, plan: FrozenPlan, now: Any = LATER) -> str:
    with pytest.raises(PlanChangedError) as error:
        approved(pipeline, plan, now)
    return str(error.value)


@pytest.mark.parametrize("cut", [CUT, Cut(time_ms=0), Cut(offsets={P1: 30})])
def test_plan_approved_is_what_was_seen(pipeline: Pipeline, cut: Cut) -> None:
    """Whatever the start was said by, the same segments and files are planned again."""
    seen, plan = frozen_for(pipeline, cut)

    again, decision = approved(pipeline, plan)

    assert decision is PlanDecision.RUN
    assert again == seen
    assert (again.groups, again.since) == (seen.groups, str(cut))
    assert f"replace {seen.to_dict()['files']:,} files" in plan.text


def test_plan_approved_leaves_newer(pipeline: Pipeline) -> None:
    """Segments that were sealed since aren't in it: they weren't seen."""
    cluster: Any = golden_cluster()
    whole = plan_reprocess(pipeline, cluster, CUT)
    part = plan_reprocess(pipeline, cluster, CUT, last=(1, 12))

    [all_groups], [part_groups] = whole.groups.values(), part.groups.values()
    assert part_groups.offsets < all_groups.offsets
    assert set(part_groups.replaces) < set(all_groups.replaces)


def test_plan_approved_files_replaced(pipeline: Pipeline) -> None:
    """A file that a repair has replaced since is named."""
    seen, plan = frozen_for(pipeline)
    archive = Archive.at(pipeline.archive)
    own = [
        path for group in seen.groups.values() for path in group.replaces if "part-00000" in path
    ]
    rows = [row for row in golden_rows() if row["partition"] == 0]
    held = [row for row in rows if row["offset"] >= min_offset(seen)]
    seal_repair(archive, "repair_20260101T000000Z", held, own)

    assert f"{len(own)} files were replaced or removed, such as {min(own)}" in refused(
        pipeline, plan
    )


def test_plan_approved_pipeline_changed(pipeline: Pipeline) -> None:
    """New files would have another format than was seen."""
    _, plan = frozen_for(pipeline)
    changed = pipeline.model_copy(update={"format": "avro"})

    assert "the pipeline's format became avro, and was parquet" in refused(changed, plan)


def test_plan_approved_other_reprocess(pipeline: Pipeline) -> None:
    """Beside another reprocess that was started, it isn't."""
    _, plan = frozen_for(pipeline)
    cluster: Any = golden_cluster()
    open_reprocess(plan_reprocess(pipeline, cluster, CUT), cluster, run="tests")

    # Of the same start: the person has approved this plan, and not that one.
    assert "another reprocess was started, from batch 12" in refused(pipeline, plan)


def test_plan_approved_expired(pipeline: Pipeline) -> None:
    """An expired plan isn't started."""
    _, plan = frozen_for(pipeline)

    assert "had to be started by" in refused(pipeline, plan, NOW + timedelta(days=1))


def test_plan_approved_killed(pipeline: Pipeline) -> None:
    """A plan that was started is resumed, even after it has expired."""
    seen, plan = frozen_for(pipeline)
    cluster: Any = golden_cluster()
    root = Archive.at(pipeline.archive).root
    with pytest.raises(KeyboardInterrupt), carrying_out(root, plan, "first"):
        open_and_stop(approved(pipeline, plan)[0], cluster)

    again, decision = approved(pipeline, plan, NOW + timedelta(days=9))

    assert decision is PlanDecision.RESUME
    assert again.begun
    assert list(again.groups.values()) == list(seen.groups.values())


def open_and_stop(plan: ReprocessPlan, cluster: Any) -> None:
    """Be killed when the plan was written and the generation is closed."""
    open_reprocess(plan, cluster, run="tests")
    raise KeyboardInterrupt


def test_plan_approved_killed_before_it_began(pipeline: Pipeline) -> None:
    """A plan of which nothing was written is compared again, and so is an abandoned one."""
    _, plan = frozen_for(pipeline)
    cluster: Any = golden_cluster()
    root = Archive.at(pipeline.archive).root
    with pytest.raises(ZeroDivisionError), carrying_out(root, plan, "first"):
        raise ZeroDivisionError
    assert approved(pipeline, plan)[1] is PlanDecision.RUN

    open_reprocess(approved(pipeline, plan)[0], cluster, run="tests")
    abandon_reprocess(plan_abandon(Archive.at(pipeline.archive)), run="tests")
    assert "generation 1 was closed" in refused(pipeline, plan)


def test_plan_approved_done(pipeline: Pipeline) -> None:
    """A plan that was carried out does nothing more, whatever has changed."""
    seen, plan = frozen_for(pipeline)
    with carrying_out(Archive.at(pipeline.archive).root, plan, "first"):
        pass

    again, decision = approved(pipeline, plan, NOW + timedelta(days=9))

    assert decision is PlanDecision.DO_NOTHING
    assert again.to_dict() == seen.to_dict()


def stopped(pipeline: Pipeline) -> tuple[ReprocessPlan, FrozenPlan, Archive]:
    """Start a frozen plan, and fail."""
    seen, plan = frozen_for(pipeline)
    archive = Archive.at(pipeline.archive)
    with pytest.raises(ZeroDivisionError), carrying_out(archive.root, plan, "first"):
        raise ZeroDivisionError
    return seen, plan, archive


def replace_all(archive: Archive, seen: ReprocessPlan, kind: WindowKind) -> None:
    """Seal windows of a kind in the place of all that a plan replaces."""
    replaced = {path for group in seen.groups.values() for path in group.replaces}
    rows = [row for row in golden_rows() if row["offset"] >= min_offset(seen)]
    for tp in (P0, P1):
        own = [path for path in replaced if f"part-{tp.partition:05d}" in path]
        held = [row for row in rows if row["partition"] == tp.partition]
        seal_repair(archive, f"{kind.value}_000{tp.partition}_0001", held, own, kind)


def test_plan_approved_killed_before_its_last_note(pipeline: Pipeline) -> None:
    """If its windows have replaced all that it was to replace, nothing is done again."""
    seen, plan, archive = stopped(pipeline)
    replace_all(archive, seen, WindowKind.REPROCESS)

    assert approved(pipeline, plan)[1] is PlanDecision.DO_NOTHING


def test_plan_approved_replaced_by_others(pipeline: Pipeline) -> None:
    """If others have replaced its files since it was stopped, it is refused."""
    seen, plan, archive = stopped(pipeline)
    replace_all(archive, seen, WindowKind.REPAIR)

    assert "files were replaced or removed" in refused(pipeline, plan)


def min_offset(plan: ReprocessPlan) -> int:
    return min(r[0].start for group in plan.groups.values() for r in group.ranges.values())


def test_freeze_reprocess_begun(pipeline: Pipeline) -> None:
    """A reprocess that was started has its plan."""
    cluster: Any = golden_cluster()
    open_reprocess(plan_reprocess(pipeline, cluster, CUT), cluster, run="tests")

    with pytest.raises(ConfigError, match="resume it, or abandon it"):
        frozen_for(pipeline)


def test_plan_approved_gone_from_kafka(pipeline: Pipeline) -> None:
    """What Kafka no longer holds is refused as without an approval."""
    _, plan = frozen_for(pipeline)
    cluster: Any = golden_cluster()
    cluster.logs = {tp: Log(first=41, end=60) for tp in (P0, P1)}

    with pytest.raises(Exception, match="the archive may be the only copy"):
        plan_approved(pipeline, cluster, plan.id, now=LATER)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, ""),
        ({"archive": None}, ""),
        ({"begun": True}, "another reprocess was started"),
        ({"file_format": "orc"}, "format became orc, and was parquet"),
        ({"compression": "gzip"}, "compression became gzip"),
        ({"partition_by": []}, "partition_by became -, and was topic, date"),
        ({"closes": 2}, "generation 1 was closed"),
        ({"groups": {}}, "replaced or removed, such as"),
    ],
)
def test_changes(pipeline: Pipeline, values: dict[str, Any], said: str) -> None:
    """Whatever would be done otherwise is said; the names of the windows aren't."""
    seen, _ = frozen_for(pipeline)
    now = replace(seen, **{"groups": {f"{k}x": g for k, g in seen.groups.items()}, **values})

    assert [said in text for text in changes(seen, now)] == [True] * bool(said)


def test_changes_of_offsets(pipeline: Pipeline) -> None:
    """Other offsets for the same files are a change."""
    seen, _ = frozen_for(pipeline)
    groups = {
        key: replace(group, ranges=group.ranges | {P0: [OffsetRange(0, 1)]})
        for key, group in seen.groups.items()
    }

    assert changes(seen, replace(seen, groups=groups)) == [
        "the offsets or the files of a window became others"
    ]


def test_run_approved(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan is noted as begun before anything changes, and as done once it has ended."""
    archive = Archive.at(pipeline.archive)
    seen, frozen = frozen_for(pipeline)
    accepted = {P0: [OffsetRange(40, 41)]}
    cluster: Any = golden_cluster()
    spark: Any = object()
    given: list[Any] = []

    def killed(*_: Any, **__: Any) -> None:
        given.append(state_of(archive.state, frozen.id))
        raise KeyboardInterrupt

    def reprocess(*args: Any, **keys: Any) -> dict[str, int]:
        given.append((args, keys, state_of(archive.state, frozen.id)))
        return {"removed_files": 3, "removed_bytes": 4}

    def run() -> dict[str, int]:
        return run_approved(
            seen, pipeline, cluster, spark, frozen, run="the run", replaceable=accepted
        )

    monkeypatch.setattr(approving, "run_reprocess", killed)
    with pytest.raises(KeyboardInterrupt):
        run()
    begun = state_of(archive.state, frozen.id)
    monkeypatch.setattr(approving, "run_reprocess", reprocess)

    assert run() == {"removed_files": 3, "removed_bytes": 4}

    args = (seen, pipeline, cluster, spark)
    assert given == [
        PlanState.STARTED,
        (args, {"run": "the run", "replaceable": accepted}, PlanState.STARTED),
    ]
    assert (begun, state_of(archive.state, frozen.id)) == (PlanState.STARTED, PlanState.DONE)
    assert approved(pipeline, frozen)[1] is PlanDecision.DO_NOTHING

"""Exactly the erasure that a person has seen is carried out; what is frozen has no keys."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.erasures import read_erasures
from kafka_drain.archive.frozen_plan import FrozenPlan, PlanDecision
from kafka_drain.errors import ArchiveError, PlanChangedError
from kafka_drain.maintenance.approved_erasure import (
    ErasureScope,
    freeze_erasure,
    plan_approved,
    plan_text,
    run_approved,
)
from kafka_drain.maintenance.erase import plan_erasure, run_erasure
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.output import Level, level_of
from kafka_drain.storage.immutability import Locked
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.maintenance.test_erase import (
    GONE,
    REQUEST,
    TP,
    cluster,
    erase,
    left,
    lying,
    made,
    pipeline_of,
    refuse_inexact,
    rewrite,
)

__all__ = ["made"]

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


def freeze(made: MadeArchive, request: ErasureRequest | None = REQUEST) -> FrozenPlan:
    """Freeze an erasure."""
    return freeze_erasure(pipeline_of(made.root), cluster(), request, now=NOW)[1]


def approved(made: MadeArchive, frozen: FrozenPlan, now: datetime = NOW) -> PlanDecision:
    """Return what is decided of a plan."""
    return plan_approved(pipeline_of(made.root), frozen.id, now=now)[2]


def carry_out(made: MadeArchive, frozen: FrozenPlan, runner: Any = rewrite) -> dict[str, Any]:
    """Carry out a plan."""
    return run_approved(pipeline_of(made.root), cluster(), runner, frozen, run="t")


def test_run_approved(made: MadeArchive) -> None:
    """A frozen plan changes nothing, shows no key, and is carried out without any; only once."""
    frozen = freeze(made)

    assert lying(made.root) == left(but=frozenset())
    assert read_erasures(made.root) == []
    shown = frozen.text + (Path(str(made.root)) / "plans" / f"{frozen.id}.json").read_text()
    assert not any(f'"{key.decode()}"' in shown for key in GONE)
    assert "Erase 4 records" in frozen.text
    named = "5 keys; all topics; those written before the request"
    assert f"| 1 | r | b | {named} | 4 |" in frozen.text
    assert "doesn't reach Kafka" in frozen.text
    assert approved(made, frozen) is PlanDecision.RUN

    assert carry_out(made, frozen) == {
        "windows": ["erase_0001"],
        "erased": 4,
        "locked_files": 0,
        "locked_until": None,
    }

    refuse_inexact(made.root, left())
    assert approved(made, frozen) is PlanDecision.DO_NOTHING
    [erasure] = read_erasures(made.root)
    assert (erasure.document.request, erasure.document.by) == ("r", "b")


def test_run_approved_again(made: MadeArchive) -> None:
    """One that was started is resumed, however much later, and whatever it has changed."""
    frozen = freeze(made)

    def fails(application: Any) -> None:
        raise ArchiveError("killed")

    with pytest.raises(ArchiveError, match="killed"):
        carry_out(made, frozen, fails)

    assert len(read_erasures(made.root)) == 1
    later = NOW + timedelta(days=9)
    assert approved(made, frozen, later) is PlanDecision.RESUME
    assert carry_out(made, frozen)["erased"] == 4
    refuse_inexact(made.root, left())


def test_plan_approved_without_request(made: MadeArchive) -> None:
    """What was asked for before can be frozen for records that were drained since."""
    erase(made.root)
    made.seal({TP: dense(40, 50)})
    made.open_generation()
    frozen = freeze(made, None)

    assert carry_out(made, frozen)["erased"] == 1

    assert lying(made.root) == left(50)


def test_plan_approved_changed(made: MadeArchive) -> None:
    """Another record that it names, drained since, was not seen: nothing is done."""
    frozen = freeze(made)
    made.seal({TP: dense(40, 50)})
    made.open_generation()

    with pytest.raises(PlanChangedError, match="1 other files hold records to be erased"):
        approved(made, frozen)

    assert read_erasures(made.root) == []
    with pytest.raises(PlanChangedError, match="it had to be started by"):
        approved(made, frozen, NOW + timedelta(days=2))


def test_plan_approved_other_salt(made: MadeArchive) -> None:
    """A plan that was made before the first erasure has hashes that nobody can compare."""
    frozen = freeze(made)
    run_erasure(
        pipeline_of(made.root),
        cluster(),
        rewrite,
        ErasureRequest("s", "b", keys=frozenset({b"1"})),
        run="t",
        wait_seconds=0,
    )

    with pytest.raises(PlanChangedError, match="its hashes have another salt"):
        approved(made, frozen)

    assert len(read_erasures(made.root)) == 1


SEEN = ErasureScope(rolls=False, records={"a": 1, "b": 2}, rewrites=frozenset("abc"))


@pytest.mark.parametrize(
    ("was", "now", "changes"),
    [
        ({}, {}, []),
        ({"rolls": True}, {"rolls": True}, []),
        ({"rolls": True}, {}, ["the open generation was closed"]),
        # Its files are among the others then.
        ({}, {"rolls": True}, []),
        (
            {},
            {"records": {"a": 1}, "rewrites": frozenset("a")},
            ["2 files were replaced or removed, such as b"],
        ),
        ({}, {"records": {"a": 1}}, []),
        (
            {},
            {"records": {"a": 1, "b": 3}},
            ["1 other files hold records to be erased, such as b"],
        ),
        (
            {},
            {"records": {"a": 1, "b": 2, "d": 1}, "rewrites": frozenset("abcd")},
            ["1 other files hold records to be erased, such as d"],
        ),
        (
            {},
            {"rewrites": frozenset("abcd")},
            ["1 other files have to be rewritten, such as d"],
        ),
    ],
)
def test_seen_changes(was: dict[str, Any], now: dict[str, Any], changes: list[str]) -> None:
    """What would be done beside what was seen, or instead of it, is a change."""
    seen = dataclasses.replace(SEEN, **was)

    assert seen.changes(dataclasses.replace(SEEN, **now)) == changes
    assert ErasureScope.from_dict(seen.to_dict()) == seen


def test_run_approved_other_cluster(made: MadeArchive) -> None:
    """A plan isn't carried out with a connection that leads elsewhere; both are named."""
    frozen = freeze(made)
    other: Any = FakeCluster({}, id="other")

    with pytest.raises(ArchiveError, match=r"from Kafka cluster cluster-1, .* cluster other at "):
        run_approved(pipeline_of(made.root), other, rewrite, frozen, run="t")

    assert read_erasures(made.root) == []
    assert carry_out(made, frozen)["erased"] == 4


def test_plan_text_locked(made: MadeArchive) -> None:
    """Whoever approves is told what the store keeps of the erased records, and until when."""
    plan = plan_erasure(pipeline_of(made.root), cluster(), REQUEST)
    locked = dataclasses.replace(plan, locked=Locked(3, (NOW, NOW + timedelta(days=9))))

    said = plan_text(locked)

    assert "isn't complete while the store keeps 3 " in said
    [line] = [line for line in locked.lines() if "isn't complete while the store keeps 3 " in line]
    assert level_of(line) is Level.WARNING
    assert "2026-01-11" in said
    assert "isn't complete" not in plan_text(plan)

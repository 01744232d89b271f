"""`kafka-drain reprocess`: what its flags ask for; nothing is replaced without --apply."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.frozen_plan import PlanDecision
from kafka_drain.cli.main import main
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.windows.reprocess.plan import Cut
from tests.core_calls import CoreCalls, Frozen, Planned
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.made_archive import MadeArchive

HERE = "kafka_drain.cli.commands.reprocess"
ACCEPTED = {TopicPartition("t", 0): [OffsetRange(1, 2)]}
REPLACE = ["--replace-changed", "t:0:1-2"]
KAFKA = FakeCluster({})
CUT = Cut(batch=(1, 2))
PLAN = Planned(batches=3)


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which has files to write again."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", KAFKA)
    calls.replace(f"{HERE}.pipeline_from", Pipeline(name="p", topics=["t"], archive="/a"))
    calls.replace(f"{HERE}.runner_of", "the runner")
    calls.replace(f"{HERE}.plan_reprocess", PLAN)
    calls.replace(f"{HERE}.run_reprocess", {"records": 3})
    calls.replace(f"{HERE}.plan_abandon", PLAN)
    calls.replace(f"{HERE}.abandon_reprocess", {"removed": 1})
    frozen = Frozen(expires_at="noon")
    calls.replace(f"{HERE}.freeze_reprocess", (PLAN, frozen))
    calls.replace(f"{HERE}.read_plan", SimpleNamespace(seen={"format": "orc", "end": 4}))
    calls.replace(f"{HERE}.plan_approved", (PLAN, frozen, PlanDecision.RUN))
    calls.replace(f"{HERE}.run_approved", {"files_removed": 4})
    return calls


@pytest.fixture
def run(made: MadeArchive, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command; return its answer."""

    def run(*flags: str) -> dict[str, Any]:
        assert main(["reprocess", str(made.root), "--json", *flags]) == 0
        answered: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answered

    return run


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    made.open_generation()
    return made


def test_reprocess(core: CoreCalls, run: Any) -> None:
    """The plan is of the batch that was named; it is carried out only if told to."""
    assert run("--from-batch", "1:2", *REPLACE)["batches"] == 3
    assert core.given["plan_reprocess"][0][1:] == (KAFKA, CUT)
    assert "run_reprocess" not in core.given

    answered = run("--from-batch", "1:2", *REPLACE, "--apply")

    assert (answered["batches"], answered["records"]) == (3, 3)
    (plan, pipeline, *rest), named = core.given["run_reprocess"]
    assert (plan, pipeline.name, rest) == (PLAN, "p", [KAFKA, "the runner"])
    assert named == {"run": "terminal", "replaceable": ACCEPTED}


def test_reprocess_batch_of_newest(core: CoreCalls, run: Any) -> None:
    """A batch without a generation is one of the newest (2); no start at all resumes."""
    run("--from-batch", "7")
    assert core.given["plan_reprocess"][0][2] == Cut(batch=(2, 7))

    run()
    assert core.given["plan_reprocess"][0][2] is None


def test_reprocess_frozen(core: CoreCalls, run: Any) -> None:
    """A plan is frozen for as long as was said, and its id is answered."""
    answered = run("--from-batch", "1:2", "--freeze", "2")

    assert (answered["plan_id"], answered["batches"]) == ("x1", 3)
    given, named = core.given["freeze_reprocess"]
    assert (given[1:], named["lifetime"]) == ((KAFKA, CUT), timedelta(hours=2))
    assert named.keys() == {"now", "lifetime"}
    assert "run_reprocess" not in core.given


def test_reprocess_approved(core: CoreCalls, run: Any) -> None:
    """A frozen plan is carried out in the format that it was made with."""
    assert run("--plan", "x1", *REPLACE)["batches"] == 3
    assert core.given["plan_approved"][0][1:] == (KAFKA, "x1")
    assert "run_approved" not in core.given

    answered = run("--plan", "x1", *REPLACE, "--apply")

    assert answered == {"batches": 3, "files_removed": 4}
    (plan, pipeline, *rest), named = core.given["run_approved"]
    assert (plan, pipeline.format, pipeline.name) == (PLAN, "orc", "p")
    assert [*rest[:2], rest[2].id] == [KAFKA, "the runner", "x1"]
    assert named == {"run": "terminal", "replaceable": ACCEPTED}
    assert core.given["plan_approved"][0][0] == pipeline
    assert core.named("plan_approved").keys() == {"now"}
    assert "plan_reprocess" not in core.given


def test_reprocess_abandoned(core: CoreCalls, run: Any) -> None:
    """What was started is ended only if told to, and Kafka isn't asked."""
    assert run("--abandon")["batches"] == 3
    assert "abandon_reprocess" not in core.given

    assert run("--abandon", "--apply")["removed"] == 1

    assert core.given["abandon_reprocess"] == ((PLAN,), {"run": "terminal"})
    assert "cluster_from" not in core.given


@pytest.mark.parametrize("flags", [["--from-batch", "1:2"], ["--plan", "x1"], ["--freeze"]])
def test_reprocess_elsewhere(core: CoreCalls, tmp_path: Path, flags: list[str]) -> None:
    """In a folder that isn't an archive, nothing is planned."""
    assert main(["reprocess", str(tmp_path), *flags]) != 0

    assert core.order == []

"""`kafka-drain maintain`: what its flags ask for; nothing is deleted without --apply."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.frozen_plan import PlanDecision
from kafka_drain.cli.main import main
from tests.core_calls import CoreCalls, Frozen, Planned
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.made_archive import MadeArchive

HERE = "kafka_drain.cli.commands.maintain"
KAFKA = FakeCluster({})
PLAN = Planned(deleted_files=2)


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which has files to delete."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", KAFKA)
    calls.replace(f"{HERE}.runner_of", "the runner")
    calls.replace(f"{HERE}.plan_maintenance", PLAN)
    calls.replace(f"{HERE}.run_maintenance", {"files_removed": 2})
    frozen = Frozen(expires_at="noon")
    calls.replace(f"{HERE}.freeze_maintenance", (PLAN, frozen))
    calls.replace(f"{HERE}.read_plan", SimpleNamespace(asked={"retention_days": 9, "end": 4}))
    calls.replace(f"{HERE}.plan_approved", (PLAN, frozen, PlanDecision.RUN))
    calls.replace(f"{HERE}.run_approved", {"files_removed": 3})
    return calls


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command; return its answer."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    made.open_generation()

    def run(*flags: str) -> dict[str, Any]:
        assert main(["maintain", str(made.root), "--json", *flags]) == 0
        answered: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answered

    return run


def test_maintain(core: CoreCalls, run: Any) -> None:
    """The settings are those that were given; without --apply, Kafka and Spark aren't asked."""
    assert run("--retention-days", "30") == {"deleted_files": 2}
    assert core.given["plan_maintenance"][0][0].retention_days == 30
    assert core.order == ["plan_maintenance"]

    answered = run("--retention-days", "30", "--apply")

    assert answered["files_removed"] == 2
    (pipeline, *rest), named = core.given["run_maintenance"]
    assert (pipeline.retention_days, rest) == (30, [KAFKA, "the runner"])
    assert named == {"run": "terminal"}


def test_maintain_frozen(core: CoreCalls, run: Any) -> None:
    """A plan is frozen for as long as was said, and its id is answered."""
    answered = run("--retention-days", "30", "--freeze", "2")

    assert (answered["plan_id"], answered["deleted_files"]) == ("x1", 2)
    assert core.named("freeze_maintenance")["lifetime"] == timedelta(hours=2)
    assert core.named("freeze_maintenance").keys() == {"now", "lifetime"}
    assert core.order == ["freeze_maintenance"]


def test_maintain_approved(core: CoreCalls, run: Any) -> None:
    """A frozen plan is carried out with the settings that it was made with."""
    assert run("--plan", "x1") == {"deleted_files": 2}
    assert "run_approved" not in core.given

    answered = run("--plan", "x1", "--apply")

    assert answered["files_removed"] == 3
    (pipeline, *rest), named = core.given["run_approved"]
    assert (pipeline.retention_days, rest[:2], rest[2].id) == (9, [KAFKA, "the runner"], "x1")
    assert named == {"run": "terminal"}
    assert core.given["plan_approved"][0] == (pipeline, "x1")
    assert core.named("plan_approved").keys() == {"now"}
    assert "run_maintenance" not in core.given

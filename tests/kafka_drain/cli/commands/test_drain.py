"""`kafka-drain drain`: what its flags ask for, also of a dry run."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.cli.main import main
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.core_calls import CoreCalls, Planned
from tests.kafka_drain.fake_cluster import FakeCluster

HERE = "kafka_drain.cli.commands.drain"
ACCEPTED = {TopicPartition("t", 0): [OffsetRange(1, 2)]}
FLAGS = ["--topic", "t", "--acknowledge-expired", "t:0:1-2", "--log-level", "DEBUG"]


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, in which all is in order."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", FakeCluster({}))
    calls.replace(f"{HERE}.preflight", Planned(offsets=7))
    calls.replace(f"{HERE}.run_drain", (Planned(), {"records": 3}))
    calls.replace(f"{HERE}.registry_from", "the registry")
    return calls


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_drain(core: CoreCalls, flags: list[str], tmp_path: Any) -> None:
    """What is accepted as lost is accepted, whether it is drained or only planned."""
    assert main(["drain", str(tmp_path / "archive"), *FLAGS, *flags]) == 0

    name = "preflight" if flags else "run_drain"
    assert ("preflight" in core.given, "run_drain" in core.given) == (bool(flags), not flags)
    pipeline, named = core.given[name][0][0], core.named(name)
    assert pipeline.topics == ["t"]
    assert "DEBUG" in pipeline.log_levels.values()
    assert named["acknowledged"] == ACCEPTED
    if not flags:
        assert (named["run"], named["registry"]) == ("terminal", "the registry")

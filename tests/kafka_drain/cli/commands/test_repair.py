"""`kafka-drain repair`: what its flags ask for, and how it exits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.cli.main import main
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.core_calls import CoreCalls, Planned
from tests.kafka_drain.fake_cluster import FakeCluster

HERE = "kafka_drain.cli.commands.repair"
ACCEPTED = {TopicPartition("t", 0): [OffsetRange(1, 2)]}
KAFKA = FakeCluster({})
FLAGS = ["--acknowledge-expired", "t:0:1-2", "--replace-changed", "t:0:1-2", "--deep"]


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which has mended everything."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", KAFKA)
    calls.replace(f"{HERE}.pipeline_from", "the pipeline")
    calls.replace(f"{HERE}.runner_of", "the runner")
    calls.replace(f"{HERE}.run_repair", "the report")
    calls.replace(f"{HERE}.answer_report", 0)
    calls.replace(f"{HERE}.preview_repair", Planned(is_sound=True))
    return calls


@pytest.mark.parametrize("new_journal", [False, True])
@pytest.mark.parametrize("applies", [False, True])
def test_repair(core: CoreCalls, tmp_path: Path, new_journal: bool, applies: bool) -> None:
    """What is accepted is accepted, and nothing is mended without --apply."""
    flags = ["--new-journal"] * new_journal + ["--apply"] * applies

    assert main(["repair", str(tmp_path), *FLAGS, *flags]) == 0

    name, other = ("run_repair", "preview_repair") if applies else ("preview_repair", "run_repair")
    assert other not in core.given
    request = core.given[name][0][0]
    assert (str(request.archive.root), request.cluster) == (str(tmp_path), KAFKA)
    assert (request.deep, request.new_journal) == (True, new_journal)
    assert (request.acknowledged, request.replaceable) == (ACCEPTED, ACCEPTED)
    if applies:
        _, pipeline, runner = core.given["run_repair"][0]
        assert (pipeline(), runner) == ("the pipeline", "the runner")
        assert core.named("run_repair") == {"run": "terminal"}
        assert core.given["answer_report"][0][2] == "the report"


@pytest.mark.parametrize(("is_sound", "code"), [(True, 0), (False, 1)])
def test_repair_preview_exits(core: CoreCalls, tmp_path: Path, is_sound: bool, code: int) -> None:
    """A preview of an archive with errors isn't a success."""
    core.replace(f"{HERE}.preview_repair", Planned(is_sound=is_sound))

    assert main(["repair", str(tmp_path)]) == code

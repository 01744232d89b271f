"""`kafka-drain roll`: what its flags ask for; what discards something needs --apply."""

from __future__ import annotations

import pytest

from kafka_drain.cli.main import main
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.core_calls import CoreCalls, Planned
from tests.kafka_drain.fake_cluster import FakeCluster

HERE = "kafka_drain.cli.commands.roll"
ACCEPTED = {TopicPartition("t", 0): [OffsetRange(1, 2)]}
KAFKA = FakeCluster({})


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, whose roll discards something."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", KAFKA)
    calls.replace(f"{HERE}.plan_roll", Planned(discards=True))
    calls.replace(f"{HERE}.run_roll", Planned(discards=True))
    return calls


@pytest.mark.parametrize(
    ("flags", "unsealed", "rewritten"),
    [([], False, False), (["--leave-unsealed"], True, False), (["--rewritten"], False, True)],
)
@pytest.mark.parametrize(
    ("told", "acts", "may_discard"),
    [([], True, False), (["--apply"], True, True), (["--dry-run"], False, False)],
)
def test_roll(
    core: CoreCalls,
    flags: list[str],
    unsealed: bool,
    rewritten: bool,
    told: list[str],
    acts: bool,
    may_discard: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A roll gives up only what was named, and only with --apply."""
    more = ["--leave-out", "a", "--leave-out", "b:1", "--replace-changed", "t:0:1-2"]

    assert main(["roll", "/archives/t", *more, *flags, *told]) == 0

    name, other = ("run_roll", "plan_roll") if acts else ("plan_roll", "run_roll")
    assert other not in core.given
    (archive, cluster, left_out), named = core.given[name]
    assert (str(archive.root), cluster, left_out) == ("/archives/t", KAFKA, ["a", "b:1"])
    asked = {"leave_unsealed": unsealed, "rewritten": rewritten, "replaceable": ACCEPTED}
    assert named == asked | ({"may_discard": may_discard, "run": "terminal"} if acts else {})
    assert ("pass --apply to carry it out" in capsys.readouterr().err) is not acts


def test_roll_nothing_left_out(core: CoreCalls) -> None:
    """Without flags, all topics go on."""
    assert main(["roll", "/archives/t"]) == 0

    assert core.given["run_roll"][0][2] == []
    assert core.named("run_roll")["replaceable"] == {}

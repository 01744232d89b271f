"""`kafka-drain backfill`: what its flags ask for; what replaces files needs --apply."""

from __future__ import annotations

import json

import pytest

from kafka_drain.cli.main import main
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.windows.preview import Preview
from tests.core_calls import CoreCalls, Planned
from tests.kafka_drain.fake_cluster import FakeCluster

HERE = "kafka_drain.cli.commands.backfill"
ACCEPTED = {TopicPartition("t", 0): [OffsetRange(1, 2)]}
KAFKA = FakeCluster({})
FLAGS = ["/archives/t", "--start", "2026-01-01T00:00Z", "--end", "2026-01-01T01:00Z"]


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which has a window to drain."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", KAFKA)
    calls.replace(f"{HERE}.pipeline_from", "the pipeline")
    calls.replace(f"{HERE}.runner_of", "the runner")
    calls.replace(f"{HERE}.plan_backfill", Planned(nothing_to_do=False))
    calls.replace(f"{HERE}.run_backfill", {"records": 3})
    return calls


@pytest.mark.parametrize(
    ("flags", "is_forced", "acts"),
    [
        ([], False, True),
        (["--dry-run"], False, False),
        (["--force"], True, False),
        (["--force", "--dry-run"], True, False),
        (["--force", "--apply"], True, True),
    ],
)
def test_backfill(core: CoreCalls, flags: list[str], is_forced: bool, acts: bool) -> None:
    """A backfill only adds; with --force it replaces, and only if told to."""
    more = ["--acknowledge-expired", "t:0:1-2", "--replace-changed", "t:0:1-2"]

    assert main(["backfill", *FLAGS, *more, *flags]) == 0

    (pipeline, cluster, interval), named = core.given["plan_backfill"]
    assert (pipeline, cluster) == ("the pipeline", KAFKA)
    assert interval.key == "20260101T000000Z_20260101T010000Z"
    assert named == {"force": is_forced, "acknowledged": ACCEPTED}
    assert ("run_backfill" in core.given) is acts
    if acts:
        plan = Planned(nothing_to_do=False)
        assert core.given["run_backfill"][0] == (plan, "the pipeline", KAFKA, "the runner")
        assert core.named("run_backfill") == {"run": "terminal", "replaceable": ACCEPTED}


def test_backfill_nothing_to_do(core: CoreCalls) -> None:
    """Where everything is archived, nothing is started."""
    core.replace(f"{HERE}.plan_backfill", Planned(nothing_to_do=True))

    assert main(["backfill", *FLAGS]) == 0

    assert "run_backfill" not in core.given


@pytest.mark.parametrize(
    "flags",
    [[], ["--apply"], ["--dry-run", "--force"], ["--dry-run", "--acknowledge-expired", "t:0:1-2"]],
)
def test_backfill_preview_refused(
    core: CoreCalls, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A preview of many intervals is no way to drain them."""
    assert main(["backfill", *FLAGS, "--interval-minutes", "15", *flags]) == 2

    assert "airflow dags backfill" in capsys.readouterr().err
    assert not core.given.keys() & {"plan_backfill", "run_backfill"}


def test_backfill_preview(core: CoreCalls, capsys: pytest.CaptureFixture[str]) -> None:
    """The span is planned interval by interval, and nothing is started."""
    core.replace(f"{HERE}.preview_backfill", Preview("/archives/t", []))

    assert main(["backfill", *FLAGS, "--interval-minutes", "15", "--dry-run", "--json"]) == 0

    (pipeline, cluster, intervals), _ = core.given["preview_backfill"]
    assert (pipeline, cluster) == ("the pipeline", KAFKA)
    assert [one.key[9:13] for one in intervals] == ["0000", "0015", "0030", "0045"]
    assert json.loads(capsys.readouterr().out) == {"archive": "/archives/t", "intervals": []}
    assert "run_backfill" not in core.given

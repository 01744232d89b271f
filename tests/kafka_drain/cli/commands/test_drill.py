"""`kafka-drain drill`: what it asks for, and which exit code its verdict has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.drills import write_result
from kafka_drain.cli.commands import drill as command
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.cli.main import main
from kafka_drain.clock import utc_now
from kafka_drain.drills.drill import DrillRequest
from kafka_drain.offsets import TopicPartition
from tests.core_calls import noted_engines
from tests.kafka_drain.archive.test_drill_status import NOW, drill
from tests.kafka_drain.golden import sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense

P0 = TopicPartition("flights", 0)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of ten records."""
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    made.seal({P0: dense(0, 10)})
    return made


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run the command, and return its exit code and its answer."""

    def run(made: Archive | MadeArchive, *arguments: str) -> tuple[int, dict[str, Any]]:
        code = main(["drill", str(made.root), "--json", *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize(
    ("drills", "arguments", "state"),
    [
        ([], [], "never"),
        ([(5, "passed")], [], "ok"),
        # Without --max-age, no age is too old.
        ([(500, "passed")], [], "ok"),
        ([(5, "passed")], ["--max-age", "6"], "ok"),
        ([(5, "passed")], ["--max-age", "4"], "too_old"),
        ([(5, "passed"), (1, "failed")], ["--max-age", "6"], "failed"),
    ],
)
def test_drill_check(
    drills: list[tuple[float, str]],
    arguments: list[str],
    state: str,
    made: MadeArchive,
    answer: Any,
) -> None:
    """A check fails unless the newest drill has passed, and not too long ago."""
    ahead = (utc_now() - NOW).total_seconds() / 86_400
    for number, (days, verdict) in enumerate(drills):
        # Days before now, which has moved on since the fixture's.
        result = drill(days - ahead, verdict, drill=f"20260101T00000{number}Z-0123abcd")
        write_result(made.archive.root, result)

    code, told = answer(made, "--check", *arguments)

    assert (code, told["state"]) == (OK if state == "ok" else FAILED, state)
    names = [f"20260101T00000{number}Z-0123abcd" for number in range(len(drills))]
    assert told["newest"] == (names[-1] if names else None)
    assert told["passed"] == (names[0] if names else None)
    assert told["detail"]


def test_drill_check_state(made: MadeArchive, answer: Any, tmp_path: Path) -> None:
    """With --state, the drills are read from there, and not from the archive."""
    state = ("--state", str(tmp_path / "state"))
    archive = made.archive.keeping_state_in(state[1])
    archive.identify()
    write_result(archive.state, drill(0.1, "passed", drill="20260101T000000Z-0123abcd"))

    assert answer(made, "--check", *state)[1]["state"] == "ok"
    assert answer(made, "--check")[1]["state"] == "never"


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        ([], DrillRequest()),
        (
            ["--sample", "newest-hour", "--seed", "0", "--prefix", "try", "--max-age", "3"],
            DrillRequest(sample="newest_hour", seed=0, prefix="try", max_age_days=3),
        ),
        (
            ["--topic-config", "retention.ms=5"],
            DrillRequest(topic_config={"retention.ms": "5"}),
        ),
    ],
)
@pytest.mark.parametrize("verdict", ["passed", "failed"])
def test_drill_request(
    arguments: list[str],
    request_: DrillRequest,
    verdict: str,
    made: MadeArchive,
    answer: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is given is what is tried; a drill that failed is a failure."""
    asked: list[DrillRequest] = []

    def run_drill(archive: Any, cluster: Any, engines: Any, request: Any, **more: Any) -> Any:
        assert cluster.config.bootstrap_servers == "other:9092"
        assert more == {"run": "terminal", "clock": utc_now, "signer": "the signer"}
        assert str(archive.root) == str(made.root)
        # A drill doesn't depend on Spark.
        assert [engines] == noted
        root, target, _, _, runner = engines.given
        assert (root, target) == (str(made.root), cluster)
        with pytest.raises(AssertionError, match="starts no Spark"):
            runner()
        asked.append(request)
        return drill(0, verdict)

    noted = noted_engines(monkeypatch, f"{command.__name__}.Engines")
    monkeypatch.setattr(command, "signer_from", lambda _: "the signer")
    monkeypatch.setattr(command, "run_drill", run_drill)
    named = {"bootstrap_servers": "other:9092"}
    monkeypatch.setattr("kafka_drain.kafka.cluster.KafkaCluster.named", lambda _: named)
    code, told = answer(made, "--to-bootstrap", "other:9092", *arguments)

    assert asked == [request_]
    assert (code, told["verdict"]) == (OK if verdict == "passed" else FAILED, verdict)
    assert told == drill(0, verdict).content() | named


def test_drill_dry_run(tmp_path: Path, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run needs no target, and restores nothing."""
    monkeypatch.setattr(command, "run_drill", None)

    code, told = answer(sealed_copy(tmp_path / "golden"), "--dry-run", "--sample", "whole")

    assert (code, told["kind"], told["topics"]) == (OK, "whole", {"flights": 2})

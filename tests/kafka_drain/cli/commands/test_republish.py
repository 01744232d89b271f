"""`kafka-drain republish` asks for what its flags say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.cli.commands.republish import request_of
from kafka_drain.cli.main import main, parser
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.request import RepublishRequest
from tests.core_calls import CoreCalls, Planned
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.made_archive import MadeArchive, dense

HERE = "kafka_drain.cli.commands.republish"
#: A run that sends.
SENT = SimpleNamespace(
    plan=Planned(shards=[], summary=dict),
    request=SimpleNamespace(limits=(0, 0)),
    run=SimpleNamespace(has_ended=True),
    execute=lambda *_: {"records": 10},
)


def asked(*flags: str) -> RepublishRequest:
    return request_of(parser(["republish"]).parse_args(["republish", "/archive", *flags]))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {}),
        (["--same-topics"], {"target_topic": None}),
        (
            ["--target-topic", "copy", "--create-target"],
            {"target_topic": "copy", "create_target": True},
        ),
        (["--rename", "a=x", "--rename", "b=y"], {"rename": {"a": "x", "b": "y"}}),
        (
            ["--topic", "a", "--topic", "b", "--partition", "3"],
            {"topics": ["a", "b"], "partitions": [3]},
        ),
        (["--to-time", "2026-01-31T13:00Z"], {"to_time": "2026-01-31T13:00:00Z"}),
        (["--run-name", "mine", "--follow"], {"run_name": "mine", "follow": True}),
        # As it was called before.
        (["--run", "mine"], {"run_name": "mine"}),
        (["--engine", "spark"], {"engine": "spark"}),
        (["--bytes-per-second", "1e6"], {"bytes_per_second": 1e6}),
        (["--placement", "3"], {"placement": 3}),
        (["--repeat", "--provenance"], {"repeat": True, "provenance": True}),
    ],
)
def test_request_of_flags(flags: list[str], expected: dict[str, Any]) -> None:
    """A flag is the option of its name; what isn't said is the request's default."""
    assert asked(*flags) == RepublishRequest(**expected)


@pytest.mark.parametrize("flags", [["--transactions", "fast"], ["--transactions=strict"]])
def test_transactions_removed(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that only older releases know is refused with what there is instead."""
    with pytest.raises(SystemExit, match=r"^2$"):
        asked(*flags)

    [said] = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert "error: --transactions was removed: each transaction has a producer epoch" in said


def test_into_source_without_target() -> None:
    """Into the source means each record's own topic, where no target is named."""
    assert asked("--into-source").target_topic is None
    assert asked("--into-source", "--target-topic", "copy").target_topic == "copy"


@pytest.mark.parametrize("flags", [["--abandon", ""], ["--abandon="]])
def test_abandon_without_a_name(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script whose variable is empty wants to end a run, not to send the whole archive."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    made.seal({TopicPartition("t", 0): dense(0, 10)})
    made.open_generation()
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", FakeCluster({}))
    calls.replace(f"{HERE}.runner_of", "the runner")
    calls.replace(f"{HERE}._planned", (SENT, None))

    with pytest.raises(SystemExit, match=r"^2$"):
        main(["republish", str(made.root), *flags, "--apply"])

    assert "_planned" not in calls.given

"""`kafka-drain republish` asks for what its flags say."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.republish import request_of
from kafka_drain.cli.exit_codes import USAGE
from kafka_drain.cli.main import main, parser
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.request import RepublishRequest
from tests.core_calls import CoreCalls, Frozen, Planned, noted_engines
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


CLUSTER = FakeCluster({}, id="target")


class Sending(SimpleNamespace):
    """A planned republish of ten records; notes the engines that it is executed with."""

    def __init__(self, *, has_ended: bool = True) -> None:
        plan = Planned(shards=[])
        plan.summary = lambda: {"records": 10}
        super().__init__(plan=plan, run=SimpleNamespace(has_ended=has_ended), engines=None)
        self.request = SimpleNamespace(limits=(0, 0))

    def execute(self, engines: Any, clock: object) -> dict[str, Any]:
        """Note the engines."""
        self.engines = engines
        return {"records_sent": 10, "sent": [], "through": {}, "request": {}}


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which plans to send ten records."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", CLUSTER)
    calls.replace(f"{HERE}.runner_of", "the runner")
    calls.replace(f"{HERE}.signer_from", "the signer")
    calls.replace(f"{HERE}.plan_republish", Sending())
    frozen = Frozen(expires_at="noon")
    calls.replace(f"{HERE}.freeze_republish", (Sending(), frozen))
    calls.replace(f"{HERE}.plan_approved", (Sending(), frozen))
    calls.replace(f"{HERE}.sign_run", "evidence/republish/run.json")
    return calls


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command; return its answer, and what it said."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    made.open_generation()

    def run(*flags: str) -> tuple[dict[str, Any], str]:
        assert main(["republish", str(made.root), "--json", *flags]) == 0
        said = capsys.readouterr()
        return json.loads(said.out), said.err

    return run


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        (["--topic", "t"], "plan_republish"),
        (["--topic", "t", "--dry-run"], "plan_republish"),
        (["--topic", "t", "--apply"], "plan_republish"),
        (["--topic", "t", "--freeze", "2"], "freeze_republish"),
        (["--plan", "x1"], "plan_approved"),
        (["--plan", "x1", "--apply"], "plan_approved"),
    ],
)
def test_republish(flags: list[str], asked: str, core: CoreCalls, run: Any, tmp_path: Path) -> None:
    """Nothing is sent without --apply; a frozen plan lives for the hours that were given."""
    told, said = run(*flags)

    applies = "--apply" in flags
    planners = ("plan_republish", "freeze_republish", "plan_approved")
    assert [name for name in core.order if name in planners] == [asked]
    (archive, cluster, what), named = core.given[asked]
    assert (archive, cluster) == (Archive.at(str(tmp_path / "archive")), CLUSTER)
    if asked == "freeze_republish":
        assert named["lifetime"] == timedelta(hours=2)
    else:
        assert named["apply"] is applies
    assert what == ("x1" if asked == "plan_approved" else RepublishRequest(topics=["t"]))
    sent = {"records_sent": 10, "evidence": "evidence/republish/run.json"} if applies else {}
    frozen = {} if asked == "plan_republish" else {"plan_id": "x1", "expires_at": "noon"}
    assert told == {"records": 10} | CLUSTER.named() | sent | frozen
    assert ("sign_run" in core.given) is applies
    assert ("to send it" in said) is not applies


def test_republish_engines(core: CoreCalls, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines send to the target, with the number of processes that was given."""
    sending = Sending()
    core.replace(f"{HERE}.plan_republish", sending)
    core.replace(f"{HERE}.pipeline_from", "the pipeline")
    made = noted_engines(monkeypatch, f"{HERE}.Engines")
    run("--apply", "--processes", "3")

    [engines] = made
    root, cluster, pipeline, _, runner, processes = engines.given
    assert (cluster, pipeline, runner, processes) == (CLUSTER, "the pipeline", "the runner", 3)
    assert root == str(core.given["plan_republish"][0][0].root)
    assert sending.engines is engines


def test_republish_signed(core: CoreCalls, run: Any) -> None:
    """A run that has ended is signed, if a key was given."""
    sending = Sending()
    core.replace(f"{HERE}.plan_republish", sending)
    run("--apply")
    archive, *signed, _ = core.given["sign_run"][0]
    assert archive == core.given["plan_republish"][0][0]
    assert signed == [sending.run, "the signer"]


@pytest.mark.parametrize(("has_ended", "signer"), [(False, "the signer"), (True, None)])
def test_republish_unsigned(has_ended: bool, signer: str | None, core: CoreCalls, run: Any) -> None:
    """Nothing is signed before the run has ended, or without a key."""
    core.replace(f"{HERE}.plan_republish", Sending(has_ended=has_ended))
    core.replace(f"{HERE}.signer_from", signer)

    assert "evidence" not in run("--apply")[0]
    assert "sign_run" not in core.given


@pytest.mark.parametrize("applies", [False, True])
def test_abandon(applies: bool, core: CoreCalls, run: Any) -> None:
    """A run is abandoned only with --apply; nothing is planned or sent."""
    ended: list[object] = []
    core.replace(f"{HERE}.unfinished_run", SimpleNamespace(key="r-1", abandon=ended.append))

    told, _ = run("--abandon", "mine", *(["--apply"] if applies else []))

    assert told == {"run": "r-1", "abandoned": applies}
    assert core.given["unfinished_run"][0][1] == "mine"
    assert len(ended) == applies
    assert core.order == ["unfinished_run"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--follow", "--run-name=mine"],
        ["--offsets=a:0:1-2"],
        ["--provenance"],
        ["--state=/state"],
        ["--plan=republish-1"],
        ["--abandon=mine"],
    ],
)
def test_from_file_beside(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flags that mean another archive, or a run that has begun, are refused beside a file."""
    command = ["republish", str(tmp_path / "new"), "--from-file", "cases.jsonl", *flags]
    assert main([*command, "--bootstrap-servers", "localhost:1"]) == USAGE
    said = capsys.readouterr().err
    assert "omit" in said
    assert ("--from-file" in said) or flags[0].partition("=")[0] in said
    assert not [*tmp_path.iterdir()]

"""`kafka-drain erase` asks for what its flags say, even if names of files are empty."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plan import PlanDecision
from kafka_drain.cli.commands import erase
from kafka_drain.cli.exit_codes import USAGE
from kafka_drain.cli.main import main
from kafka_drain.maintenance.erasure_request import ErasureRequest
from tests.core_calls import CoreCalls, Frozen, Planned
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.made_archive import MadeArchive
from tests.kafka_drain.maintenance.test_erase import cluster, left, lying, made, rewrite

__all__ = ["made"]

HERE = "kafka_drain.cli.commands.erase"
KAFKA = FakeCluster({})
PLAN = Planned(records=4)
ASKED = ("--request", "r", "--by", "b")


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka with the archive's topic; Python rewrites the files in Spark's place."""
    here: Any = cluster()
    monkeypatch.setattr(erase, "cluster_from", lambda _: here)
    monkeypatch.setattr(erase, "runner_of", lambda _: rewrite)


@pytest.mark.usefixtures("kafka")
@pytest.mark.parametrize("flags", [["--keys", ""], ["--headers="], ["--keys=", "--headers", ""]])
@pytest.mark.parametrize("told", [["--apply"], ["--freeze"], []])
def test_erase_file_without_a_name(
    made: MadeArchive,
    flags: Sequence[str],
    told: Sequence[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A script whose variable is empty asks for some keys, not for all records of the topic."""
    asked = ["--request", "r", "--by", "b", "--topic", "flights"]

    with suppress(SystemExit):
        assert main(["erase", str(made.root), *asked, *flags, *told]) == USAGE

    assert lying(made.root) == left(but=frozenset())
    assert "is empty; give FILE, or leave the option out" in capsys.readouterr().err


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which has four records to erase."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", KAFKA)
    calls.replace(f"{HERE}.runner_of", "the runner")
    calls.replace(f"{HERE}.plan_erasure", PLAN)
    calls.replace(f"{HERE}.run_erasure", {"erased": 4})
    frozen = Frozen(expires_at="noon")
    calls.replace(f"{HERE}.freeze_erasure", (PLAN, frozen))
    calls.replace(f"{HERE}.plan_approved", (PLAN, frozen, PlanDecision.RUN))
    calls.replace(f"{HERE}.run_approved", {"erased": 3})
    calls.replace(f"{HERE}.liftable", "erasure 7")
    calls.replace(f"{HERE}.lift_erasure")
    return calls


@pytest.fixture
def run(made: MadeArchive, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command; return its answer."""

    def run(*flags: str) -> dict[str, Any]:
        assert main(["erase", str(made.root), "--json", *flags]) == 0
        answered: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answered

    return run


def test_erase(core: CoreCalls, run: Any, made: MadeArchive, tmp_path: Path) -> None:
    """The flags name the records to erase; nothing is erased without --apply."""
    keys, headers = tmp_path / "keys", tmp_path / "headers"
    keys.write_text("k1\n")
    headers.write_text("h=v\n")
    flags = (*ASKED, "--keys", str(keys), "--headers", str(headers), "--topic", "t", "--for-ever")
    names = {"keys": frozenset({b"k1"}), "headers": frozenset({("h", b"v")})}
    wanted = ErasureRequest("r", "b", **names, topics=frozenset({"t"}), for_ever=True)

    assert run(*flags) == {"records": 4}
    (pipeline, *rest), named = core.given["plan_erasure"]
    assert (pipeline.archive, rest, named) == (str(made.root), [KAFKA, wanted], {})
    answered = run(*flags, "--freeze", "2")
    assert (answered["records"], answered["plan_id"]) == (4, "x1")
    assert core.given["freeze_erasure"][0] == (pipeline, KAFKA, wanted)
    assert core.named("freeze_erasure")["lifetime"] == timedelta(hours=2)
    assert "run_erasure" not in core.given

    assert run(*flags, "--apply") == {"archive": str(made.root), "erased": 4}
    given = (pipeline, KAFKA, "the runner", wanted)
    assert core.given["run_erasure"] == (given, {"run": "terminal"})


def test_erase_in_force(core: CoreCalls, run: Any) -> None:
    """Without a request, the erasures in force are carried out."""
    run("--apply")

    assert core.given["run_erasure"][0][3] is None


@pytest.mark.parametrize("flags", [ASKED, ("--request", "r"), ("--by", "b")])
def test_erase_no_records_named(
    flags: Sequence[str], core: CoreCalls, made: MadeArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request that names no records is refused, and not taken for one of all records."""
    assert main(["erase", str(made.root), *flags, "--apply"]) == USAGE

    assert "name the records: --keys" in capsys.readouterr().err
    assert "run_erasure" not in core.given


def test_erase_approved(core: CoreCalls, run: Any, made: MadeArchive) -> None:
    """A frozen plan is carried out only with --apply."""
    assert run("--plan", "x1") == {"records": 4}
    assert "run_approved" not in core.given

    assert run("--plan", "x1", "--apply") == {"archive": str(made.root), "erased": 3}

    (pipeline, *rest), named = core.given["run_approved"]
    assert (rest[:2], rest[2].id, named) == ([KAFKA, "the runner"], "x1", {"run": "terminal"})
    assert core.given["plan_approved"][0] == (pipeline, "x1")
    assert "run_erasure" not in core.given


def test_erase_lift(core: CoreCalls, run: Any, made: MadeArchive) -> None:
    """An erasure is lifted only with --apply, in the name given with --by."""
    assert run("--lift", "7") == {"archive": str(made.root), "lift": 7}
    assert core.order == ["liftable"]

    run("--lift", "7", "--by", "b", "--apply")

    archive = Archive.at(str(made.root))
    assert core.given["liftable"] == ((archive, 7), {})
    assert core.given["lift_erasure"] == ((archive, 7, "b"), {"run": "terminal"})

"""`kafka-drain plan-recovery`: what is applied, and how it exits."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kafka_drain.cli.main import main
from kafka_drain.kafka.cluster_state import ScramUser
from kafka_drain.recovery.commands import Commands
from kafka_drain.recovery.diff import Action, Archived, Difference, Kind
from kafka_drain.recovery.recovery import RecoveryPlan
from tests.core_calls import CoreCalls
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.made_archive import MadeArchive

HERE = "kafka_drain.cli.commands.plan_recovery"
SAFE = Difference(Kind.CONFIGS, "a", Action.CHANGE, "1", "2", setting="s", sets={"s": "1"})
LESS = Difference(Kind.CONFIGS, "b", Action.CHANGE, "1", "2", setting="s", lowers="deletes more")
LATER = Difference(Kind.CONFIGS, "a", Action.LATER, "1", "2", setting="t")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which applies what it is given; afterwards, something else is left."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", FakeCluster({}))
    asked: list[int] = []

    def plan(*given: Any) -> RecoveryPlan:
        asked.append(1)
        rows = (SAFE, LESS) if len(asked) == 1 else (LESS, LATER, LATER)
        return RecoveryPlan(Archived(None, None, {}, {}), "other", rows, {})  # type: ignore[arg-type]

    monkeypatch.setattr(f"{HERE}.plan_recovery", plan)
    return calls


@pytest.mark.parametrize(
    ("flags", "applied", "refused", "code", "left"),
    [
        ([], 0, [], 0, 2),
        (["--apply"], 1, [], 1, 3),
        (["--apply", "configs", "--accept-lower-safety"], 2, [], 0, 3),
        (["--apply", "configs", "--accept-lower-safety"], 1, ["no ACL"], 1, 3),
        (["--apply", "topics"], 0, [], 0, 2),
        (["--dry-run"], 0, [], 0, 2),
    ],
)
def test_plan_recovery(
    core: CoreCalls,
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    applied: int,
    refused: list[str],
    code: int,
    left: int,
) -> None:
    """What is held back or refused isn't a success; what is left is looked at after the apply."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    core.replace(f"{HERE}.apply_rows", (applied, refused))

    assert main(["plan-recovery", str(made.root), "--json", *flags]) == code

    rows = core.given["apply_rows"][0][0]
    is_asked = "--apply" in flags and "topics" not in flags
    lowers = "--accept-lower-safety" in flags
    assert rows == ([SAFE, *([LESS] if lowers else [])] if is_asked else [])
    document = json.loads(capsys.readouterr().out)
    assert (document["applied"], document["refused"], document["left"]) == (applied, refused, left)
    assert document["held_back"] == (1 if is_asked and not lowers else 0)


@pytest.mark.parametrize(
    ("servers", "protocol"), [(["--bootstrap-servers", "b:1"], "PLAINTEXT"), ([], "SSL")]
)
def test_plan_recovery_commands(
    servers: list[str],
    protocol: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commands in the plan reach the same archive and target, as of the same time."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    config = tmp_path / "kafka.json"
    config.write_text(json.dumps({"bootstrap.servers": "a:1", "security.protocol": protocol}))
    asked: list[Any] = []
    found = RecoveryPlan(Archived(None, None, {}, {}), "other", (SAFE,), {})  # type: ignore[arg-type]
    monkeypatch.setattr(f"{HERE}.plan_recovery", lambda *given: asked.append(given) or found)
    monkeypatch.setattr(f"{HERE}.apply_rows", lambda *_: (1, []))
    state, at = str(tmp_path / "state"), "2026-01-31T13:00Z"
    flags = ["--kafka-config", str(config), *servers, "--at", at, "--state", state]

    assert main(["plan-recovery", str(made.root), *flags, "--apply", "configs"]) == 0

    # After it has applied something, it looks again in the same way.
    assert asked[0] == asked[1]
    archive, cluster, commands, when = asked[0]
    assert str(archive.root) == str(made.root)
    assert cluster.config.bootstrap_servers == (servers or ["", "a:1"])[1]
    assert commands == Commands(
        str(made.root),
        cluster.config.bootstrap_servers,
        ["--kafka-config", str(config), *servers],
        at,
        state,
        is_secured=protocol == "SSL",
    )
    assert when.isoformat() == "2026-01-31T13:00:00+00:00"


@pytest.mark.parametrize("name", ["[prod]orders", "a[/b]", "[bold]", "x[link=y]z"])
def test_plan_recovery_table(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Names and commands are shown as they are, whatever brackets they have."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    commands = Commands(str(made.root), "target:9092")
    command = commands.add_user(ScramUser("ann", "SCRAM-SHA-256", 4096))
    rows = (
        Difference(Kind.GROUPS, name, Action.BY_HAND, name, "2", note=f"see {name}"),
        Difference(Kind.USERS, "ann", Action.BY_HAND, "", None, note=command),
    )
    found = RecoveryPlan(Archived(None, None, {}, {}), "other", rows, {})  # type: ignore[arg-type]
    monkeypatch.setattr(f"{HERE}.cluster_from", lambda _: FakeCluster({}))
    monkeypatch.setattr(f"{HERE}.plan_recovery", lambda *_: found)
    monkeypatch.setattr(f"{HERE}.apply_rows", lambda *_: (0, []))

    assert main(["plan-recovery", str(made.root)]) == 0

    shown = re.sub(r"[\s│]+", "", capsys.readouterr().out)
    assert shown.count(name) == 3
    assert "[iterations=4096,password=${NEW_PASSWORD:?}]" in shown

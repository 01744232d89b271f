"""`--freeze` and `--plan` of the commands that send, replace or delete."""

from __future__ import annotations

import json
import re
import shlex
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from time import time
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plan import FrozenPlan
from kafka_drain.archive.frozen_plans import list_plans
from kafka_drain.cli.commands import republish
from kafka_drain.cli.commands.frozen import answer_of, frozen_for, refuse_beside_plan
from kafka_drain.cli.exit_codes import OK, USAGE
from kafka_drain.cli.main import main, parser
from kafka_drain.errors import ConfigError
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.republish.approved import freeze_republish, plan_approved
from kafka_drain.republish.planning.request import RepublishRequest
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.maintenance.test_approved import BEFORE, P0
from tests.kafka_drain.republish.planning.test_planner import cluster_with

COMMANDS = ("maintain", "reprocess", "republish")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An archive with two files that are older than 30 days."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    for n in range(3):
        made.seal({P0: dense(10 * n, 10 * n + 10, BEFORE if n < 2 else int(time() * 1000))})
    made.open_generation()
    return made.archive


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    """Run a command; return its exit code, its answer, and what it said."""
    code = main([*arguments[:1], "--json", *arguments[1:]])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else None, said.err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], None),
        (["--freeze"], timedelta(hours=24)),
        (["--freeze", "1.5"], timedelta(minutes=90)),
        (["--dry-run", "--freeze", "720"], timedelta(days=30)),
    ],
)
def test_frozen_for(command: str, flags: list[str], expected: timedelta | None) -> None:
    """A plan lives for a day unless the user says how many hours."""
    options = parser([command]).parse_args([command, "/archive", *flags])

    assert frozen_for(options) == expected


@pytest.mark.parametrize("flags", [["--freeze", "--apply"], ["--freeze", "0"]])
def test_frozen_for_refused(flags: list[str]) -> None:
    """What is carried out isn't frozen, and no plan lives for no time."""
    with pytest.raises(ConfigError):
        frozen_for(parser(["maintain"]).parse_args(["maintain", "/archive", *flags]))


def test_refuse_beside_plan() -> None:
    """What would be planned otherwise is named."""
    refuse_beside_plan([])
    with pytest.raises(ConfigError, match="omit --format, --from-batch"):
        refuse_beside_plan(["--from-batch", "--format"])


def test_maintain_approved(
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frozen once, checked, carried out once: nothing is typed again."""
    root = str(archive.root)
    terms = ["--retention-days", "30", "--max-generation-days", "9999"]
    code, frozen, said = run(capsys, "maintain", root, *terms, "--freeze")
    plan_id = frozen["plan_id"]
    assert (code, list_plans(archive.root)) == (OK, [plan_id])
    assert f"`kafka-drain maintain {root} --plan {plan_id} --apply`" in said

    assert "deletes 2 files" in said

    code, checked, said = run(capsys, "maintain", root, "--plan", plan_id)
    assert (code, checked["deleted_files"]) == (OK, 2)
    assert "deletes 2 files" in said
    assert "approve it with" not in said

    # Nobody answers there, which isn't waited for.
    config = tmp_path / "kafka.json"
    config.write_text('{"bootstrap.servers": "localhost:1", "socket.timeout.ms": 1000}')
    kafka = ["--kafka-config", str(config)]
    code, done, _ = run(capsys, "maintain", root, *kafka, "--plan", plan_id, "--apply")
    assert (code, done["files_removed"]) == (OK, 2)

    code, again, said = run(capsys, "maintain", root, *kafka, "--plan", plan_id, "--apply")
    assert (code, again["deleted_files"]) == (OK, 0)
    assert "has been carried out already" in said


@pytest.mark.parametrize("beside", [["--plan", "unknown"], ["--freeze"], ["--freeze", "0"]])
@pytest.mark.parametrize(
    "instead",
    [
        ["reprocess", "--abandon"],
        ["republish", "--abandon", "run"],
        ["erase", "--lift", "1"],
    ],
)
def test_end_beside_plan(
    archive: Archive, capsys: pytest.CaptureFixture[str], instead: list[str], beside: list[str]
) -> None:
    """What ends something carries out no plan, and freezes none: both at once are refused."""
    command, *flags = instead
    told = ["--apply"] if "--plan" in beside else []

    code, _, error = run(capsys, command, str(archive.root), *flags, *beside, *told)

    assert code == USAGE
    assert "omit" in error
    assert "plan" in error


@pytest.mark.parametrize("is_signed", [False, True])
def test_republish_approved_as_said(
    is_signed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command that is named for a plan can be pasted: it finds the archive, plan and key."""
    made = MadeArchive(tmp_path / "Ann's archive", {"t": "id-1"})
    made.seal({P0: dense(0, 10)})
    made.open_generation()
    here: Any = cluster_with(copy=2)
    monkeypatch.setattr(republish, "cluster_from", lambda _: here)
    config = tmp_path / "my kafka.json"
    config.write_text("{}")
    key = tmp_path / "my key.pem"
    SigningKey.create(key)
    # An archive that is only read keeps no evidence.
    state = [] if is_signed else ["--state", str(tmp_path / "my state")]
    signed = ["--evidence-key", str(key)] if is_signed else []
    reach = [*state, "--kafka-config", str(config), "--bootstrap-servers", "a:1,b:1", *signed]
    asked = [*reach, "--target-topic", "copy", "--freeze"]

    code, frozen, said = run(capsys, "republish", str(made.root), *asked)

    assert code == OK
    [command] = re.findall("approve it with `(.*)`", said)
    assert command.endswith(f" --plan {frozen['plan_id']} --apply")
    program, *words = shlex.split(command)
    words.remove("--apply")
    code, checked, _ = run(capsys, *words)
    assert (program, code, checked["records"]) == ("kafka-drain", OK, 10)
    assert words[2:-2] == reach


@pytest.mark.parametrize(
    ("command", "planned", "kept"),
    [
        ("republish", ["--hash", "key"], ["--processes", "2", "--hash-key-file", "my key"]),
        (
            "reprocess",
            ["--compression", "gzip"],
            ["--source-option", "a=b", "--replace-changed", "t:0:1-2"],
        ),
        ("maintain", ["--retention-days", "3"], ["--pipeline", "my pipeline.json"]),
        ("erase", ["--topic", "t"], ["--pipeline", "my pipeline.json"]),
    ],
)
def test_answer_of_options(
    command: str, planned: list[str], kept: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The named command has all options that aren't in the plan, as they were given."""
    spark = ["--master", "yarn", "--deploy-mode", "cluster"]
    conf = ["--spark-conf", "a=1", "--spark-conf", "b=2"]
    given = [*spark, *conf, *kept]
    options = parser([command]).parse_args([command, "/archive", *planned, *given, "--freeze"])
    now = datetime.now(timezone.utc).isoformat()
    frozen = FrozenPlan(
        kind="maintain",
        pipeline="made",
        archive_id="1",
        created_at=now,
        expires_at=now,
        asked={},
        seen={},
        text="",
    )

    answer_of(options, frozen)

    [named] = re.findall("approve it with `(.*)`", capsys.readouterr().err)
    _, named_command, archive, *words = shlex.split(named)
    assert (named_command, archive) == (command, "/archive")
    assert words[-3:] == ["--plan", frozen.id, "--apply"]
    assert sorted(words[:-3]) == sorted(given)
    parser([command]).parse_args(shlex.split(named)[1:])


def test_republish_of_a_function_approved_as_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The named command finds a function in the current folder, as the one that froze the plan."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    made.seal({P0: dense(0, 10)})
    made.open_generation()
    here: Any = cluster_with(copy=2)
    monkeypatch.setattr(republish, "cluster_from", lambda _: here)
    (tmp_path / "rules_that_are_approved.py").write_text("def f(batch): return batch\n")
    monkeypatch.chdir(tmp_path)
    # As of a console script: its own folder is there, and not the current one.
    path = [each for each in sys.path if each not in ("", str(tmp_path))]
    asked = ["--target-topic", "copy", "--change", "rules_that_are_approved:f", "--freeze"]

    monkeypatch.setattr(sys, "path", [*path])
    code, _, said = run(capsys, "republish", str(made.root), *asked)
    assert code == OK
    [command] = re.findall("approve it with `(.*)`", said)

    # In another process.
    monkeypatch.setattr(sys, "path", [*path])
    monkeypatch.delitem(sys.modules, "rules_that_are_approved")
    code, checked, said = run(capsys, *(w for w in shlex.split(command)[1:] if w != "--apply"))

    assert (code, said.count("can't be imported")) == (OK, 0)
    assert checked["records"] == 10


def test_republish_approved_with_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan that Airflow froze with a connection's key is carried out with a file that has it."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    made.seal({P0: dense(0, 10)})
    made.open_generation()
    here: Any = cluster_with(copy=2)
    monkeypatch.setattr(republish, "cluster_from", lambda _: here)
    request = RepublishRequest(target_topic="copy", hash_fields=("key",))
    now = datetime.now(timezone.utc)
    _, frozen = freeze_republish(made.archive, here, request, now=now, hash_key=b"0123456789abcdef")
    plan = ["republish", str(made.root), "--plan", frozen.id]

    code, _, said = run(capsys, *plan)
    assert code == USAGE
    assert "name a file that has it (--hash-key-file)" in said

    (tmp_path / "key").write_text("0123456789abcdef")
    code, checked, said = run(capsys, *plan, "--hash-key-file", str(tmp_path / "key"))
    assert (code, checked and checked["records"]) == (OK, 10), said

    (tmp_path / "key").write_text("another key, not that")
    code, _, said = run(capsys, *plan, "--hash-key-file", str(tmp_path / "key"))
    assert code != OK
    assert "the key of the pseudonyms became another one" in said


def test_republish_approved_with_key_of_another_machine(tmp_path: Path) -> None:
    """A plan frozen at a terminal with a file is carried out in Airflow with a connection's key."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    made.seal({P0: dense(0, 10)})
    made.open_generation()
    here: Any = cluster_with(copy=2)
    (tmp_path / "key").write_text("0123456789abcdef")
    request = RepublishRequest(
        target_topic="copy", hash_fields=("key",), hash_key_file=str(tmp_path / "key")
    )
    now = datetime.now(timezone.utc)
    _, frozen = freeze_republish(made.archive, here, request, now=now)
    (tmp_path / "key").unlink()

    again, _ = plan_approved(
        made.archive, here, frozen.id, now=now, apply=False, hash_key=b"0123456789abcdef"
    )

    assert again.plan.records == 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["maintain", "--retention-days", "9"], "omit --retention-days"),
        (
            ["maintain", "--retention-days", "9", "--max-future-days", "1"],
            "omit --max-future-days, --retention-days",
        ),
        (["reprocess", "--from-batch", "9"], "omit --from-batch"),
        (["reprocess", "--format", "orc"], "omit --format"),
        (["republish", "--target-topic", "other"], "omit --target-topic"),
        (["erase", "--keys", "k"], "omit --keys"),
        (["erase", "--topic", "t"], "omit --topic"),
        (["erase", "--by", "b"], "omit --by"),
        (["maintain"], "has no plan 'unknown'; its newest are none"),
        (["reprocess"], "has no plan 'unknown'; its newest are none"),
        (["republish"], "has no plan 'unknown'; its newest are none"),
    ],
)
def test_plan_refused(
    archive: Archive, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """A plan that there isn't is refused, and so are other terms beside one."""
    command, *flags = arguments
    kafka = ["--bootstrap-servers", "localhost:1"]

    code, _, error = run(capsys, command, str(archive.root), *kafka, "--plan", "unknown", *flags)

    assert code == USAGE
    assert said in error


def test_republish_freeze_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A secret among Spark's settings is refused before a command repeats it."""
    conf = ["--spark-conf", "spark.hadoop.fs.s3a.secret.key=hush"]

    code, _, said = run(capsys, "republish", str(tmp_path), *conf, "--freeze")

    assert (code, "hush" in said) == (USAGE, False)
    assert "doesn't belong in spark_conf" in said

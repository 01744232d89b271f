"""`airflow dags backfill` on Airflow 3: its parser, and what it refuses before a DAG is touched.

No scheduler runs here; `tests/integration/test_airflow_backfill.py` has whole backfills.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_2_PLUS

from tests.airflow_program import answer_of
from tests.kafka_drain.golden import sealed_copy
from tests.tables import each_of

pytestmark = pytest.mark.skipif(
    not AIRFLOW_V_3_2_PLUS, reason="Airflow loads the commands of other packages since 3.2"
)

HOUR = ("-s", "2026-01-10T01:00", "-e", "2026-01-10T03:00")
#: Commands by what they are about. Each finds all DAGs paused, and no backfill.
COMMANDS: dict[str, tuple[str, ...]] = {
    "dates reversed": ("drain_old", "-s", "2026-01-11", "-e", "2026-01-10"),
    "dates of the future": ("drain_old", "-s", "2126-01-11", "-e", "2126-01-12"),
    "no date": ("drain_old",),
    "no interval": ("drain_old", "-s", "2026-01-10T01:10", "-e", "2026-01-10T01:20"),
    "invalid JSON": ("drain_old", *HOUR, "-c", '{"mode": hush}'),
    "JSON that is no object": ("drain_old", *HOUR, "-c", '["hush"]'),
    "unknown field": ("drain_old", *HOUR, "-c", '{"mod": "window"}'),
    "value that the form refuses": ("drain_old", *HOUR, "-c", '{"mode": "windows"}'),
    "contradiction": ("drain_old", *HOUR, "--rerun-failed-tasks", "--reset-dagruns"),
    "no such dag": ("drain_olf", *HOUR),
    "no terminal": ("drain_old", *HOUR, "+without-yes"),
    "locked": ("drain_old", *HOUR, "+locked"),
    "active backfill": ("drain_old", *HOUR, "+active"),
    "empty archive": ("drain_new", *HOUR),
    "empty archive of a group": ("drain_member", *HOUR),
    "a group": ("drain_group_g", *HOUR),
    "no schedule": ("reprocess_old", *HOUR),
    "0 at a time": ("drain_old", *HOUR, "--max-active-runs", "0"),
    "-1 at a time": ("drain_old", *HOUR, "--max-active-runs=-1"),
    "ten at a time": ("drain_old", *HOUR, "--max-active-runs", "ten"),
    "abbreviation": ("drain_old", *HOUR, "--reset"),
    "unknown option": ("drain_old", *HOUR, "--whatever", "7"),
    "a date that is none": ("drain_old", "-s", "yesterday"),
    "without effect": (
        *("drain_old", *HOUR, "-I", "-S", "/dags", "-l", "-v", "-x", "--continue-on-failures"),
        *("--delay-on-limit", "7", "--donot-pickle", "--ignore-first-depends-on-past"),
        *("--local", "--subdir", "/dags", "--verbose"),
    ),
    "fine": ("drain_old", *HOUR),
    "fine, three at a time": ("drain_old", *HOUR, "--max-active-runs", "3"),
    "fine, of the dag": ("drain_two", *HOUR),
    "fine, without a schedule": ("republish_old", *HOUR),
    "fine, as far as is known here": ("drain_away", *HOUR),
    "dry run": ("drain_old", *HOUR, "-n"),
}

#: Options of Airflow 2's command that would do something else, and a word of what replaces each.
GONE = {
    "-i": "tasks clear",
    "--ignore-dependencies": "tasks clear",
    "-m": "leave dates out",
    "--mark-success": "leave dates out",
    "-t=x": "tasks clear",
    "--task-regex=x": "tasks clear",
    "--disable-retry": "retries",
    "--pool=x": "task_kwargs",
    "--treat-dag-as-regex": "dags list",
    "--treat-dag-id-as-regex": "dags list",
}

DAGS = """
from kafka_drain_airflow import Pipeline, create_dags, create_group_dags

create_dags(Pipeline(name="old", topics=["t"], archive="{old}", schedule="@hourly"))
create_dags(
    Pipeline(name="two", topics=["t"], archive="{two}", schedule="@hourly"),
    dag_kwargs={{"drain": {{"max_active_runs": 2}}}},
)
create_dags(Pipeline(name="new", topics=["t"], archive="{new}", schedule="@hourly"))
member = Pipeline(name="member", topics=["t"], archive="{member}", schedule="@hourly")
create_group_dags("g", [member])
create_dags(
    Pipeline(
        name="away",
        topics=["t"],
        archive="s3://bucket/away",
        archive_conn_id="not_here",
        schedule="@hourly",
    )
)
"""

RUN_COMMANDS = """
import io, json, os, sqlite3, sys, traceback
from contextlib import redirect_stderr, redirect_stdout

from airflow import settings
from airflow.cli.cli_parser import get_parser
from airflow.models import import_all_models
from airflow.models.base import Base

import_all_models()
Base.metadata.create_all(settings.engine)
database = sqlite3.connect(settings.engine.url.database, isolation_level=None)
sys.stdin = open(os.devnull)

def run(*words):
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            args = get_parser().parse_args(["dags", *words])
            args.func(args)
            code = 0
        except SystemExit as ended:
            code = ended.code
        except Exception:
            code = 1
            traceback.print_exc()
    return code, said.getvalue()

def reset():
    for table in ("backfill_dag_run", "dag_run", "backfill"):
        database.execute(f"DELETE FROM {table}")
    database.execute("UPDATE dag SET is_paused = 1")

code, said = run("reserialize")
if code or not database.execute("SELECT count(*) FROM dag").fetchone()[0]:
    raise RuntimeError(f"{code}: {said}")
ended = {}
for name, (dag_id, *words) in json.loads(sys.argv[1]).items():
    reset()
    state = [word for word in words if word.startswith("+")]
    words = [dag_id, *(word for word in words if not word.startswith("+"))]
    if "+without-yes" not in state:
        words += ["--yes", "--no-wait"]
    if "+active" in state:
        run("backfill", *words)
        database.execute("UPDATE dag SET is_paused = 1")
    before = database.execute("SELECT count(*) FROM backfill").fetchone()[0]
    if "+locked" in state:
        database.execute("BEGIN IMMEDIATE")
    code, said = run("backfill", *words)
    if "+locked" in state:
        database.execute("ROLLBACK")
    paused = database.execute("SELECT count(*) FROM dag WHERE NOT is_paused").fetchone()[0] == 0
    rows = database.execute("SELECT max_active_runs FROM backfill ORDER BY id").fetchall()
    ended[name] = code, said, paused, [at_once for (at_once,) in rows][before:]
print(json.dumps(ended))
"""


class Ended(NamedTuple):
    """A command that has ended.

    Attributes:
        code: Its exit code.
        said: What it has printed.
        are_paused: Whether all DAGs are paused.
        backfills: How many runs at the same time each backfill has that it has added.
    """

    code: int
    said: str
    are_paused: bool
    backfills: list[int]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """All commands, run one after another by Airflow's own parser and database."""
    folder = tmp_path_factory.mktemp("backfill")
    places = {name: str(folder / "archives" / name) for name in ("old", "two", "new", "member")}
    for name in ("old", "two"):
        sealed_copy(Path(places[name]))
    (folder / "dags").mkdir()
    (folder / "dags" / "of_test.py").write_text(DAGS.format(**places))
    commands = COMMANDS | {option: ("drain_old", *HOUR, *option.split("=")) for option in GONE}
    found = answer_of(
        RUN_COMMANDS,
        json.dumps(commands),
        home=folder / "airflow",
        AIRFLOW__CORE__DAGS_FOLDER=str(folder / "dags"),
        AIRFLOW__CORE__LOAD_EXAMPLES="false",
        AIRFLOW__DATABASE__CHECK_MIGRATIONS="false",
        COLUMNS="200",
    )
    return {name: Ended(*each) for name, each in found.items()}


@each_of(
    "name, code, sentence",
    [
        ("dates reversed", 2, "the start date 2026-01-11T.* is after the end date 2026-01-10T"),
        ("dates of the future", 2, "is in the future"),
        ("no date", 2, "no dates given; use -s/--start-date"),
        ("no interval", 1, "No runs to create for Dag drain_old|created no backfill"),
        ("invalid JSON", 2, "--conf isn't JSON: Expecting value.*; give an object such as"),
        ("JSON that is no object", 2, "--conf is JSON, but no object; give one such as"),
        ("unknown field", 2, "'mod' isn't a field of drain_old; did you mean 'mode'?"),
        ("value that the form refuses", 1, "'windows' is not one of"),
        ("contradiction", 2, "--rerun-failed-tasks and --reset-dagruns contradict each other"),
        ("no such dag", 1, "there is no dag drain_olf; `airflow dags list` lists all dags"),
        (
            "no terminal",
            2,
            "until the dag is unpaused, and then its schedule starts.*pass --yes to confirm",
        ),
        ("locked", 1, "Airflow's database says: database is locked; .*still paused. .*try again"),
        ("active backfill", 1, r"backfill \d+ of drain_old isn't finished \(3 of 3 runs left\)"),
        ("empty archive", 1, "empty.*decides where the archive begins.*`airflow dags unpause"),
        ("empty archive of a group", 1, "empty.*&& airflow dags trigger drain_member`"),
        ("a group", 2, "drain_group_g drains from its cursors.*the drains of its pipelines"),
        ("no schedule", 1, "reprocess_old has a non-periodic schedule"),
        ("0 at a time", 2, "'0' isn't a number of runs; give 1 or more"),
        ("-1 at a time", 2, "'-1' isn't a number of runs; give 1 or more"),
        ("ten at a time", 2, "'ten' isn't a number of runs; give 1 or more"),
        ("abbreviation", 2, "unrecognized arguments: --reset"),
        ("unknown option", 2, "unrecognized arguments: --whatever 7"),
        ("a date that is none", 2, "'yesterday' isn't a date; give a date such as"),
    ],
)
def test_backfill_refused(ended: dict[str, Ended], name: str, code: int, sentence: str) -> None:
    """What is refused is refused in a sentence, creates no backfill, and leaves the DAG paused."""
    found = ended[name]

    assert re.search(sentence, found.said), found.said
    assert "Traceback" not in found.said
    assert "hush" not in found.said
    assert found[0::2] == (code, True)
    assert found.backfills == []


@pytest.mark.parametrize("option", GONE)
def test_backfill_option_gone(ended: dict[str, Ended], option: str) -> None:
    """An option of Airflow 2's that would do something else is refused with what replaces it."""
    name = option.partition("=")[0]
    found = ended[option]

    assert re.search(f"{name} was Airflow 2's: .*{GONE[option]}", found.said), found.said
    assert (found.code, found.are_paused, found.backfills) == (2, True, [])


def test_backfill_own_help(ended: dict[str, Ended]) -> None:
    """Wrong arguments show the help of this command."""
    for name in ("abbreviation", "unknown option", "0 at a time", "-m"):
        usage = re.findall("Usage: ([a-z ]+) ", ended[name].said)
        assert usage == ["airflow dags backfill"]


def test_backfill_option_without_effect(ended: dict[str, Ended]) -> None:
    """Options of Airflow 2's that change nothing are taken, and it is said that they don't."""
    found = ended["without effect"]

    assert len(re.findall("changes nothing: ", found.said)) == 12
    assert (found.code, found.backfills) == (0, [1])


@pytest.mark.parametrize(
    ("name", "at_once", "words"),
    [
        ("fine", 1, "unpaused; its schedule starts too, with a run for the newest interval"),
        ("fine, three at a time", 3, "created with id \\d+, 3 at a time"),
        ("fine, of the dag", 2, "created with id \\d+, 2 at a time"),
        ("fine, without a schedule", 1, "unpaused; no other runs start"),
    ],
)
def test_backfill_created(ended: dict[str, Ended], name: str, at_once: int, words: str) -> None:
    """A backfill has one run at a time unless more are asked for; its DAG is unpaused after it."""
    found = ended[name]

    assert (found.code, found.are_paused, found.backfills) == (0, False, [at_once])
    assert re.search(words, found.said), found.said
    assert found.said.index("created with id") < found.said.index("unpaused")


def test_backfill_archive_unreadable_here(ended: dict[str, Ended]) -> None:
    """Where this machine can't read the archive, the backfill is created, and that is said."""
    found = ended["fine, as far as is known here"]

    assert re.search(
        "can't read s3://bucket/away: .*If the archive is empty, the runs fail", found.said
    )
    assert (found.code, found.are_paused, found.backfills) == (0, False, [1])


def test_backfill_dry_run(ended: dict[str, Ended]) -> None:
    """A dry run shows the runs and changes nothing."""
    found = ended["dry run"]

    assert (found.code, found.are_paused, found.backfills) == (0, True, [])
    assert "2026-01-10 03:00" in found.said


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command's module, for which no time passes."""
    from kafka_drain_airflow import dags_backfill

    clock = itertools.count(0.0, dags_backfill.QUIET_SECONDS + 1)
    time = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None)
    monkeypatch.setattr(dags_backfill, "time", time)
    return dags_backfill


@pytest.mark.parametrize(
    ("states", "skipped", "failure"),
    [
        ([{"queued": 2}, {"running": 1, "success": 1}, {"success": 2}], [], ""),
        ([{"queued": 2}, {"success": 1, "failed": 1}], [], "1 of 2 runs of d failed; rerun them"),
        # A run that failed first doesn't end the wait for the others.
        ([{"failed": 1, "running": 1}, {"failed": 1, "success": 1}], [], "1 of 2 runs"),
        ([{"success": 1}], ["is skipped: a run exists, failed"], "d has runs that failed earlier"),
        ([{"success": 1}], ["is skipped: a run exists, success"], ""),
        # All dates have a run already.
        ([{}], ["is skipped: a run exists, success"], ""),
        ([{}], ["is skipped: a run exists, failed"], "d has runs that failed earlier"),
    ],
)
def test_wait(
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    states: list[dict[str, int]],
    skipped: list[str],
    failure: str,
) -> None:
    """The command ends when all runs have, and fails if one did, also if that was earlier."""
    seen = [Counter(each) for each in states]
    monkeypatch.setattr(module, "_states", lambda _: seen.pop(0))
    monkeypatch.setattr(module, "_skipped", lambda _: iter(skipped))

    if failure:
        with pytest.raises(SystemExit) as ended:
            module._wait("d", 7)
        assert ended.value.code == 1
    else:
        module._wait("d", 7)

    assert seen == []
    said, told = capsys.readouterr()
    assert failure in told
    assert bool(failure) is bool(told)
    assert all(f"backfill d: {line}" in said for line in skipped)


#: What is seen of a run, a minute after each other.
STATES = ({"queued": 1}, {"queued": 1}, {"running": 1}, {"running": 1}, {"success": 1})


def test_wait_without_scheduler(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While nothing starts, the command asks for a scheduler, once each minute."""
    seen = [Counter(each) for each in STATES]
    monkeypatch.setattr(module, "_states", lambda _: seen.pop(0))
    monkeypatch.setattr(module, "_skipped", lambda _: iter(()))

    module._wait("d", 7)

    said = capsys.readouterr().out
    assert said.count("is a scheduler running?") == 1
    assert said.count("(1 queued)") == said.count("(1 running)") == 2


@pytest.mark.parametrize(
    ("polls", "left", "is_refused"),
    [
        # None there, or one that the scheduler closes soon.
        (0, {}, False),
        (2, {"success": 3}, False),
        (2, {"failed": 3}, False),
        (1, {"queued": 1, "success": 1}, True),
        (1, {"running": 1, "success": 1}, True),
        # Nobody closes it.
        (9, {"success": 3}, True),
    ],
)
def test_wait_for_earlier(
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    polls: int,
    left: dict[str, int],
    is_refused: bool,
) -> None:
    """A backfill waits until an earlier one is closed, and is refused while that has runs left."""
    active = iter([5] * polls)
    monkeypatch.setattr(module, "_active", lambda _: next(active, None))
    monkeypatch.setattr(module, "_states", lambda _: Counter(left))

    if is_refused:
        with pytest.raises(SystemExit) as ended:
            module._wait_for_earlier("d")
        assert ended.value.code == 1
    else:
        module._wait_for_earlier("d")

    said, told = capsys.readouterr()
    assert ("backfill 5 of d isn't finished" in told) is is_refused
    assert said.count("waiting for the scheduler to close backfill 5") == (polls > 1)


@pytest.mark.parametrize(
    ("options", "behavior"),
    [
        ({}, None),
        ({"rerun_failed_tasks": True}, "failed"),
        ({"reset_dagruns": True}, "completed"),
    ],
)
def test_create(
    module: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], behavior: str | None
) -> None:
    """Runs that are there stay as they are unless it is asked for more."""
    asked: list[Any] = []
    monkeypatch.setattr(module, "create_backfill", asked.append)
    given = {"rerun_failed_tasks": False, "reset_dagruns": False, **options}
    args = SimpleNamespace(dag_id="d", conf="{}", run_backwards=True, dry_run=True, **given)

    module._create(args, ("from", "to"), 3, "")

    [one] = asked
    assert (one.from_date, one.to_date, one.max_active_runs) == ("from", "to", 3)
    assert (one.dag_id, one.dag_run_conf, one.run_backwards) == ("d", "{}", True)
    assert (one.dry_run, one.reprocess_behavior) == (True, behavior)

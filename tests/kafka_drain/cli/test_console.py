"""What commands print: bars, tables and colours at a terminal, plain lines in a pipe."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_drain.cli.main import COMMANDS, main
from tests.integration.command_line import run_module
from tests.kafka_drain.golden import golden_copy
from tests.pseudo_terminal import ROOT, Seen, at_terminal
from tests.tables import each_of

LINES = [
    "drain flights: 200,000 offsets planned",
    "drain flights: 50,000 of 200,000 offsets (25 %), 8,367/s, 18 s left",
    "drain flights: WARNING Kafka deletes records after an hour",
    "drain flights: 200,000 of 200,000 offsets (100 %), 8,367/s",
    "drain flights: 200,000 of 200,000 offsets (100 %), 8,000/s",
    "drain flights: 200,000 records in 1 batch",
    "validate: 500 of 600 files (83 %), 100/s, 1 s left",
    "republish flights: verify: 1 records are in Kafka once, in order, as in the files",
]
SAY = f"""
from kafka_drain.cli import console
from kafka_drain.output import Level, Line
from kafka_drain.progress import read_progress_line
levels = {{2: Level.WARNING, 7: Level.GOOD}}
for n, line in enumerate({LINES!r}):
    console.say(read_progress_line(line) or Line(line, levels.get(n, Level.PLAIN)))
"""
ANSWER = """
import argparse
console.answer(argparse.Namespace(json=JSON), {"records": 1234}, console.print_fields(
    {"records": 1234, "ranges": [{"topic": "a", "start": 5}], "roll": None}))
"""


def said(program: str, **options: object) -> Seen:
    """Return what a program prints at a terminal."""
    seen = at_terminal(["-c", program], **options)  # type: ignore[arg-type]
    assert seen.code == 0, seen.sent
    return seen


def validated(folder: Path, **options: object) -> Seen:
    """Validate an archive at a terminal."""
    module = ["-m", "kafka_drain.cli", "validate", folder]
    return at_terminal(module, **options)  # type: ignore[arg-type]


def without_a_file(folder: Path) -> str:
    """Make an archive in which a file is missing; return which."""
    golden_copy(folder)
    lost = min((folder / "generations" / "0001" / "data").rglob("part-00001-*"))
    lost.unlink()
    return str(lost.relative_to(folder))


def test_say_at_terminal() -> None:
    """One bar moves; it stays, once, when all is done, and goes when other work begins."""
    seen = said(SAY)

    planned, warning, bar, records, verdict = seen.lines
    assert [planned, warning, records, verdict] == [LINES[n] for n in (0, 2, 5, 7)]
    assert bar.startswith("drain flights ━━━━━")
    assert bar.endswith("━ 100 %, 200,000 of 200,000 offsets, 8,367/s")
    assert len(bar) <= 80
    assert "25 %, 50,000 of 200,000 offsets, 8,367/s, 18 s left" in seen.sent
    assert "83 %, 500 of 600 files, 100/s, 1 s left" in seen.sent
    assert f"\x1b[33m{warning}\x1b[0m" in seen.sent
    assert f"\x1b[32m{verdict}\x1b[0m" in seen.sent
    # Whenever the process is killed, there is a cursor.
    assert seen.sent.count("\x1b[?25l\x1b[?25h") == seen.sent.count("\x1b[?25l") == 3


@pytest.mark.parametrize("columns", [20, 40, 60, 200])
def test_say_at_terminal_of_any_width(columns: int) -> None:
    """A bar is one line of the terminal, with as many words as there is room for."""
    bar = said(SAY, columns=columns).lines[2]

    assert len(bar) <= columns
    assert "100 %" in bar
    assert ("200,000 of 200,000 offsets" in bar) == (columns >= 60)


def test_say_at_dumb_terminal() -> None:
    """A terminal that can't move its cursor shows the lines of a log."""
    assert said(SAY, environment={"TERM": "dumb"}).lines == LINES


def test_say_without_colour() -> None:
    """NO_COLOR leaves the bar, and takes the colours."""
    seen = said(SAY, environment={"NO_COLOR": "1"})

    assert "100 %, 200,000 of 200,000 offsets" in seen.lines[2]
    assert "\x1b[3" not in seen.sent


def test_say_in_pipe() -> None:
    """A log holds the lines as they were said, without one escape code."""
    ended = run_program(SAY)

    assert ended.splitlines() == LINES


def test_say_in_pipe_with_colours() -> None:
    """FORCE_COLOR colours a pipe's lines; they stay lines."""
    lines = run_program(SAY, FORCE_COLOR="1").splitlines()

    assert len(lines) == len(LINES)
    assert lines[1] == LINES[1]
    assert lines[2] == f"\x1b[33m{LINES[2]}\x1b[0m"


def run_program(program: str, **environment: str) -> str:
    """Return what a program writes to a pipe."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "plugins"), "TERM": "xterm"}
    for name in ("NO_COLOR", "FORCE_COLOR"):
        variables.pop(name, None)
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**variables, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_answer_as_json_beside_bar() -> None:
    """Standard output holds JSON alone while the terminal shows a bar."""
    seen = said(SAY + ANSWER.replace("JSON", "True"), pipes_out=True)

    assert json.loads(seen.out) == {"records": 1234}
    assert "100 %" in seen.lines[2]


def test_answer_at_terminal() -> None:
    """An answer is a list of fields, whose lists are tables."""
    seen = said("from kafka_drain.cli import console\n" + ANSWER.replace("JSON", "False"))

    assert seen.lines[0] == "records  1,234"
    assert [line.split() for line in seen.lines[1:5:2]] == [
        ["ranges", "┏━━━━━━━┳━━━━━━━┓"],
        ["┡━━━━━━━╇━━━━━━━┩"],
    ]
    assert seen.lines[-1] == "roll     none"


def test_answer_in_pipe() -> None:
    """In a pipe an answer is a line a field, however long."""
    long = "x" * 500
    answer = ANSWER.replace("JSON", "False").replace("None", repr(long))

    assert run_program("from kafka_drain.cli import console\n" + answer).splitlines() == [
        "records                 1,234",
        "ranges                  [{'topic': 'a', 'start': 5}]",
        f"roll                    {long}",
    ]


def test_answer_in_pipe_long_name() -> None:
    """A long name is apart from its value, and a truth is a word, as at a terminal."""
    program = """
from kafka_drain.cli import console
import argparse
shown = console.print_fields({"deleted_files_dated_later": 0, "rolled": True})
console.answer(argparse.Namespace(json=False), {}, shown)
"""

    assert run_program(program).splitlines() == [
        "deleted files dated later 0",
        "rolled                  yes",
    ]


TABLE = """
from kafka_drain.cli import console
console.say_table(
    ["  flights-0 -> other: 1,234 records"],
    ("source", "target", "records"),
    [("flights-0", "[other]", 1234)],
)
"""


def test_say_table() -> None:
    """A list is a table at a terminal, and its lines in a pipe."""
    assert "│ flights-0 │ [other] │   1,234 │" in said(TABLE).lines
    assert run_program(TABLE) == "  flights-0 -> other: 1,234 records\n"


def test_submit_at_terminal() -> None:
    """What spark-submit prints becomes a bar, its log stays lines, its exit code is heard."""
    seen = at_terminal(["-c", SUBMIT])

    log, bar = seen.lines[:2]
    assert log == "26/11/22 12:00:00 WARN TaskSetManager: lost task 0.0"
    assert f"\x1b[33m{log}" in seen.sent
    assert bar.startswith("drain a ━━━")
    assert bar.endswith("100 %, 9 of 9 offsets, 3/s")
    assert "SparkJobError: spark-submit failed with exit code 3" in seen.lines[-1]


SUBMIT = """
import sys
from argparse import Namespace
from kafka_drain.cli.foreground import runner_of

PROGRAM = '''
import sys
print("26/11/22 12:00:00 WARN TaskSetManager: lost task 0.0", file=sys.stderr, flush=True)
print("drain a: 3 of 9 offsets (33 %), 3/s, 2 s left", flush=True)
print("drain a: 9 of 9 offsets (100 %), 3/s", flush=True)
sys.exit(3)
'''

class Application:
    environment = {}

    def command(self, master, options, binary):
        return [sys.executable, "-c", PROGRAM]

runner_of(Namespace(master="local[1]", deploy_mode="client"))(Application())
"""


def test_submit_interrupted() -> None:
    """Ctrl-C ends Spark too, before the command; the bar stays, and how to go on is said."""
    seen = at_terminal(["-c", INTERRUPTED], interrupt_at="33 %")

    # That the terminal was read to its end says that nobody is left there.
    assert seen.code == 130
    line, *said = seen.lines
    assert " ".join(said).endswith("Run the same command again to continue")
    assert line.startswith("drain a ━━━")
    assert line.endswith("33 %, 3 of 9 offsets, 3/s, 2 s left")


INTERRUPTED = """
import sys
from argparse import Namespace
from kafka_drain.cli import main as cli
from kafka_drain.cli.commands import inspect
from kafka_drain.cli.foreground import runner_of

PROGRAM = '''
import signal
print("drain a: 3 of 9 offsets (33 %), 3/s, 2 s left", flush=True)
signal.pause()
'''

class Application:
    environment = {}

    def command(self, master, options, binary):
        return [sys.executable, "-c", PROGRAM]

here = Namespace(master="local[1]", deploy_mode="client")
inspect.run = lambda options: runner_of(here)(Application())
sys.exit(cli.main(["inspect", "/archive"]))
"""


def test_validate_at_terminal(tmp_path: Path) -> None:
    """A report is a table of partitions and a green verdict."""
    golden_copy(tmp_path / "archive")
    seen = validated(tmp_path / "archive")

    assert seen.code == 0
    assert "│ flights │         0 │     0 │  42 │      42 │ none │" in seen.lines
    assert "\x1b[32mverdict: complete\x1b[0m" in seen.sent


@pytest.mark.parametrize("columns", [80, 45])
def test_validate_findings_at_terminal(columns: int, tmp_path: Path) -> None:
    """Findings are a table that fits the terminal, then what to do, then a red verdict."""
    archive = tmp_path / "it's mine"
    without_a_file(archive)
    seen = validated(archive, columns=columns)

    assert seen.code == 1
    # The lines above the tables are wrapped by the terminal, as are those with paths below: it
    # copies them whole, and a command is pasted as it is.
    said = [line for line in seen.lines if re.match("[a-z]+_missing: ", line)]
    tables = [line for line in seen.lines[2:-1] if line not in said]
    assert all(len(line) <= columns for line in tables)
    assert "\x1b[31mfile_missing" in seen.sent
    assert "\x1b[31mverdict: findings\x1b[0m" in seen.sent
    assert said[0].startswith("file_missing: restore the file from a copy, or run `kafka-drain")
    for line in said:
        [command] = re.findall("`([^`]*)`", line)
        assert shlex.split(command) == ["kafka-drain", "repair", str(archive), "--apply"]


def test_validate_in_pipe(tmp_path: Path) -> None:
    """In a pipe the report is the lines that scripts know, without one escape code."""
    lost = without_a_file(tmp_path / "archive")
    ended = run_module(
        "kafka_drain.cli", "validate", tmp_path / "archive", environment={"FORCE_COLOR": None}
    )

    assert ended.code == 1
    assert "\x1b" not in ended.out + ended.err
    lines = ended.out.splitlines()
    assert "  flights-0: offsets [0, 42), 42 records, gaps: none" in lines
    assert f"ERROR file_missing: {lost}: listed in manifest file 9.compact" in lines
    assert lines[-2] == "verdict: findings"


def test_usage_error_at_terminal() -> None:
    """What the command line refuses is red as well, below the usage."""
    seen = at_terminal(["-m", "kafka_drain.cli", "validate", "/archive", "--scope", "al"])

    assert seen.code == 2
    assert seen.lines[0].startswith("usage: kafka-drain validate")
    assert (
        "\x1b[31mkafka-drain validate: error: argument --scope: invalid choice: 'al'" in seen.sent
    )


def test_error_at_terminal(tmp_path: Path) -> None:
    """Why a command failed, and what to do, stands red on standard error."""
    seen = at_terminal(["-m", "kafka_drain.cli", "inspect", tmp_path], pipes_out=True)

    assert (seen.code, seen.out) == (2, "")
    assert seen.sent.startswith(f"\x1b[31mkafka-drain inspect: {tmp_path} is a folder without")
    assert "check the path" in seen.sent


@each_of("name", ["", *COMMANDS])
def test_help_fits_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line of a command's help is longer than a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([*filter(None, [name]), "--help"])

    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_table_in_pipe() -> None:
    """In a pipe, no cell is cut or broken."""
    name = "x" * 300

    said = run_program(
        f"""
import argparse
from kafka_drain.cli import console
def show(c):
    table = console.new_table(c, "a", "b")
    table.add_row({name!r}, {name!r})
    console.print_table(c, table)
console.answer(argparse.Namespace(json=False), None, show)
"""
    )

    assert said.count(name) == 2

"""The command line finds its commands, and tells what it doesn't know."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import kafka_drain
from kafka_drain import outages
from kafka_drain.cli import commands
from kafka_drain.cli.commands import files
from kafka_drain.cli.main import COMMANDS, GROUPS, main, parser
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    KafkaUnavailableError,
    LockedError,
    ManifestInvalidError,
    NotWritableError,
    TopicError,
)
from tests.kafka_drain.golden import MANIFEST, golden_copy, sealed_copy
from tests.tables import each_of

LOADED_FOR_HELP = """
import sys
from kafka_drain.cli.main import main
try:
    main(["--help"])
except SystemExit:
    print(*sys.modules)
"""

#: Modules that commands share.
SHARED = {
    "arguments",
    "frozen",
    "pipeline_arguments",
    "plan_answer",
    "registry_arguments",
    "report_answer",
}


def subparsers(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(a.choices for a in of._actions if isinstance(a, argparse._SubParsersAction))


def test_commands_are_modules() -> None:
    """Each command is a module of its name, and each module that isn't shared is a command."""
    found = {module.name for module in iter_modules(commands.__path__)}

    assert found == {name.replace("-", "_") for name in COMMANDS} | SHARED


@each_of("name", COMMANDS)
def test_parser_of_one_command(name: str) -> None:
    """A command's help is the same whether the others have been imported or not."""
    alone, all_of_them = subparsers(parser([name]))[name], subparsers(parser())[name]

    assert alone.format_help() == all_of_them.format_help()
    assert callable(alone.get_default("command"))


def test_main_command_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that there isn't ends with 2 and the names of those that there are."""
    with pytest.raises(SystemExit, match="2"):
        main(["drian", "/archive"])

    said = capsys.readouterr().err
    assert "invalid choice: 'drian'" in said
    assert all(name in said for name in COMMANDS)


@pytest.mark.parametrize("code", [0, None, 3])
def test_main_left(
    code: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that something ends by sys.exit has failed, and says so."""
    from kafka_drain.cli.commands import files

    monkeypatch.setattr(files, "run", lambda _: sys.exit(code))

    assert main(["files", "/archive"]) == 1
    said = f"kafka-drain files: something that it called ended it by sys.exit({code})"
    assert said in capsys.readouterr().err


def test_main_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` lists every command with what it does."""
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    said = " ".join(capsys.readouterr().out.split())
    assert all(text in said for text in COMMANDS.values())


@pytest.mark.parametrize("columns", ["40", "80"])
def test_main_help_groups(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` lists each command once, below its group's title, however narrow the terminal."""
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    lines = capsys.readouterr().out.splitlines()
    found: dict[str, list[str]] = {}
    for line in lines[: lines.index("options:")]:
        if re.fullmatch(r"[a-z][a-z -]+:", line):
            found[line[:-1]] = []
        elif re.match(r"  [a-z]", line):
            found[next(reversed(found))].append(line.split()[0])
    assert found == {title: [*names] for title, names in GROUPS.items()}
    assert max(map(len, lines)) <= int(columns)


def test_groups_have_each_command_once() -> None:
    """Each command, a module of that name, is in exactly one group."""
    modules = {module.name.replace("_", "-") for module in iter_modules(commands.__path__)}
    grouped = [name for names in GROUPS.values() for name in names]

    assert sorted(grouped) == sorted(modules - {name.replace("_", "-") for name in SHARED})


def test_help_loads_no_command() -> None:
    """`--help` imports neither a command nor a library."""
    ended = subprocess.run(
        [sys.executable, "-c", LOADED_FOR_HELP],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    loaded = set(ended.stdout.splitlines()[-1].split())
    assert "kafka_drain.cli.main" in loaded
    assert not {name for name in loaded if name.startswith("kafka_drain.cli.commands.")}
    assert not {name.partition(".")[0] for name in loaded} & {
        *("rich", "pydantic", "pyarrow", "confluent_kafka", "fsspec", "upath", "shtab", "airflow")
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("why"), 2),
        (ArchiveError("why"), 2),
        (NotWritableError("why"), 2),
        (TopicError("why"), 1),
        (ManifestInvalidError("why"), 1),
        (LockedError("why"), 1),
        (PermissionError(13, "why", "file"), 1),
        # Of what a user's function calls; a script would take it for a success.
        (SystemExit(0), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_main_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
) -> None:
    """What the user has to correct exits with 2, everything else that failed with 1."""

    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(files, "run", fail)

    assert main(["files", str(tmp_path)]) == code

    said = capsys.readouterr().err
    assert said.startswith("kafka-drain files: ")
    assert "why" in said or "sys.exit(0)" in said


def test_main_answer_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants no more of an answer, as `head`, has got what they asked for."""

    def fail(_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(files, "run", fail)
    monkeypatch.setattr(sys, "stdout", sys.stdout)

    assert main(["files", str(tmp_path)]) == 0

    with sys.stdout as nowhere:
        assert nowhere.name == os.devnull


@pytest.mark.parametrize("key", ["source_options", "sink_options", "spark_conf"])
@pytest.mark.parametrize("value", [[], None, "a"])
def test_main_options_in_file_of_another_form(
    key: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options in a pipeline's file that aren't an object are named, also beside the flag's own."""
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps({key: value}))
    flag = {
        "source_options": "--source-option=minPartitions=2",
        "sink_options": "--sink-option=retention=1d",
        "spark_conf": "--spark-conf=spark.ui.enabled=true",
    }[key]

    kafka = "--bootstrap-servers=127.0.0.1:1"
    code = main(["drain", str(tmp_path / "new"), "--topic=t", f"--pipeline={file}", flag, kafka])

    assert code == 2
    assert f"{key} = " in capsys.readouterr().err


@pytest.mark.parametrize("processes", ["0", "-1"])
def test_main_processes_none(
    processes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No process at all can't send: it is refused, and isn't taken for the default."""
    kafka = ["--bootstrap-servers=127.0.0.1:1", "--target-topic=t"]

    assert main(["republish", str(tmp_path), *kafka, f"--processes={processes}"]) == 2

    said = capsys.readouterr().err
    assert f"--processes = '{processes}'" in said or f"--processes = {processes}" in said
    assert "at least 1" in said


@pytest.mark.parametrize("command", ["validate", "files"])
@pytest.mark.parametrize("document", ["archive.json", "journal.json", f"{MANIFEST}/13"])
def test_main_document_unreadable(
    document: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the system doesn't let anyone read is named, without a stack trace."""
    archive = sealed_copy(tmp_path / "archive")
    path = tmp_path / "archive" / document
    path.unlink()
    # Root may read any file, but no folder.
    path.mkdir()

    assert main([command, str(archive.root)]) == 1

    assert f"{document}: Is a directory; check that" in capsys.readouterr().err


def test_main_outage_seen_after_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a command says last is why it failed, also if its clients take a while to go."""
    away, let_go = KafkaUnavailableError("b:9092 refuses connections"), threading.Event()

    class Client:
        def __del__(self) -> None:
            let_go.set()
            for thread in threading.enumerate():
                if thread.name == "outages":
                    thread.join(2)

    def look() -> KafkaUnavailableError:
        let_go.wait(10)
        return away

    def run(_: object) -> int:
        # The error's traceback keeps it until the command has said how it ended.
        client = Client()
        outages.watch("Kafka at b", look)
        raise KafkaUnavailableError(f"{client.__class__.__name__}: no response")

    monkeypatch.setattr(outages, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr("kafka_drain.cli.commands.inspect.run", run)

    assert main(["inspect", "folder"]) == 1

    assert capsys.readouterr().err == "kafka-drain inspect: Client: no response\n"


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGHUP, 129, "its terminal was closed"),
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
    ],
)
def test_main_ended_by_signal(
    number: signal.Signals,
    code: int,
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By either signal a command cleans up, says how to continue, and ends with its code."""
    cleaned: list[str] = []

    def run(_: argparse.Namespace) -> int:
        try:
            os.kill(os.getpid(), number)
            threading.Event().wait(30)
        finally:
            cleaned.append("lease")
        return 0

    monkeypatch.setattr("kafka_drain.cli.commands.inspect.run", run)
    before = signal.getsignal(signal.SIGTERM)
    # These tests may have been started by nohup, or in the background.
    started = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    inherited = {each: signal.signal(each, handler) for each, handler in started.items()}
    try:
        assert main(["inspect", "/archive"]) == code
    finally:
        for each, handler in inherited.items():
            signal.signal(each, handler)

    assert cleaned == ["lease"]
    assert capsys.readouterr().err == (
        f"kafka-drain inspect: {word}; what it had started has ended. Run the same command again "
        "to continue\n"
    )
    assert signal.getsignal(signal.SIGTERM) is before


def test_main_started_by_nohup(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command was started to ignore doesn't end it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def run(_: argparse.Namespace) -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        return 0

    monkeypatch.setattr("kafka_drain.cli.commands.inspect.run", run)
    try:
        assert main(["inspect", "/archive"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_main_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is that of the installed distribution."""
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])

    assert capsys.readouterr().out == f"kafka-drain {kafka_drain.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scope", "open", "--scope", "all"], "--scope is given as open and as all; give one"),
        (["--scope=open", "--scop=all"], "--scope is given as open and as all; give one"),
        (
            ["--bootstrap-servers", "a:1", "--json", "--bootstrap-servers", "b:1"],
            "--bootstrap-servers is given as a:1 and as b:1; give one of them",
        ),
    ],
)
def test_main_option_twice(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two values of an option, none is taken."""
    with pytest.raises(SystemExit, match="2"):
        main(["validate", "/archive", *arguments])

    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["cut-over", "/archive", "--apply", "--step", ""],
        ["verify-evidence", "e.json", "--public-key", "key.pub", "--archive", ""],
        ["evidence-key", "new", "--replaces="],
        ["validate", "/archive", "--bootstrap-servers", ""],
        ["validate", "/archive", "--kafka-config", ""],
        ["plan-recovery", "/archive", "--at", ""],
        ["translate-group", "/archive", "--group", "g", "--offsets-file", ""],
        ["translate-group", "/archive", "--group", "g", "--run", ""],
        ["republish", "/archive", "--abandon", ""],
        # Everything would be sent as it is.
        ["republish", "/archive", "--change", "", "--apply"],
        ["republish", "/archive", "--schema-map=", "--apply"],
        ["republish", "/archive", "--run-name", ""],
        ["erase", "/archive", "--keys", ""],
        ["drain", "/archive", "--master", ""],
        # Any machine that reaches this one could run code.
        ["spark-server", "--host", ""],
        ["evidence-key", ""],
    ],
)
def test_main_option_empty(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What a script names by a variable that isn't set is missed, instead of left out."""
    with pytest.raises(SystemExit, match="2"):
        main(command)

    assert "is empty; give " in capsys.readouterr().err


def test_parser_option_empty() -> None:
    """A value that may be empty is taken as it is."""
    options = parser(["find"]).parse_args(["find", "/archive", "--key", "", "--topic="])

    assert (options.keys, options.topics) == ([""], [""])


def test_parser_option_twice() -> None:
    """The same value twice is that value; a list grows; nothing else gets into the namespace."""
    alone = parser(["validate"]).parse_args(["validate", "/a", "--scope", "open"])
    twice = parser(["validate"]).parse_args(["validate", "/a", *("--scope", "open") * 2])
    ranges = ("--acknowledge-expired", "t:0:0-1", "--acknowledge-expired", "t:0:1-2")
    listed = parser(["validate"]).parse_args(["validate", "/a", *ranges])

    assert vars(twice) | {"whole_parser": None} == vars(alone) | {"whole_parser": None}
    assert listed.acknowledge_expired == [ranges[1], ranges[3]]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_main_stream_closed(tmp_path: Path, closed: str) -> None:
    """A command whose standard streams are closed works as if nobody read them."""
    archive = sealed_copy(tmp_path / "archive")
    command = f"{sys.executable} -m kafka_drain.cli validate {archive.root} {closed}"

    assert subprocess.run(command, shell=True, check=False).returncode == 0
    report = max((tmp_path / "archive" / "reports").glob("validate_*.json"))
    assert json.loads(report.read_text())["verdict"] == "complete"


@pytest.mark.parametrize("arguments", [["validate"], ["inspect"], ["validate", "--json"]])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_main_pipe_unread(tmp_path: Path, arguments: list[str], is_damaged: bool) -> None:
    """A pipe that nobody reads changes neither the work nor the exit code."""
    archive = sealed_copy(tmp_path / "archive")
    if is_damaged:
        next(Path(str(archive.root)).rglob("part-*.parquet")).unlink()
    name, *options = arguments
    command = [sys.executable, "-m", "kafka_drain.cli", name, str(archive.root), *options]
    reader, writer = os.pipe()
    os.close(reader)

    unread = subprocess.run(command, check=False, stdout=writer, stderr=writer)

    os.close(writer)
    assert unread.returncode == (is_damaged and name == "validate")


def test_main_archive_in_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path may begin with the home directory, even if no shell has seen it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    sealed_copy(tmp_path / "archive")

    assert main(["validate", "~/archive"]) == 0
    assert main(["validate", ""]) == 2
    assert "an archive's path is empty" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("command", ["files", "inspect", "validate"])
def test_main_folder_is_not_utf_8(
    command: str, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a folder is bytes: they are printed as they are, whatever the terminal's text."""
    name = os.fsdecode(b"odd \xff \xc3\xa9")
    golden_copy(tmp_path / name)
    said = io.BytesIO()
    # As at a terminal whose locale is neither C nor POSIX.
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(said, encoding, errors="strict"))

    code = main([command, str(tmp_path / name)])

    sys.stdout.flush()
    assert code in (0, 1)
    assert b"odd \xff " in said.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [
        ["find", "--topic=flights", "--partition=0", f"--offset=5-{1 << 63}"],
        ["find", "--topic=flights", "--partition=0", f"--offset={10**30}"],
        ["validate", "--dry-run", f"--acknowledge-expired=flights:0:5-{10**30}"],
        ["maintain", f"--retention-days={10**10}"],
        ["drill", "--check", f"--max-age={10**10}"],
    ],
)
def test_main_number_too_large(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number that is beyond all offsets, or all dates, is refused, and named."""
    golden_copy(tmp_path / "archive")
    command, *flags = arguments

    assert main([command, str(tmp_path / "archive"), *flags]) == 2

    said = capsys.readouterr().err
    assert said.startswith(f"kafka-drain {command}: ")
    assert re.search(r"\d{10}", said)

"""Shells complete commands, options and choices, from what `kafka-drain completion` prints."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_drain.cli.commands.completion import SHELLS, WORDS, completion_script
from kafka_drain.cli.main import COMMANDS, main, parser

#: Asks bash what a Tab at the end of `words` would offer, a word a line.
ASK = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
asked=$(complete -p kafka-drain) && asked=${asked#*-F } && ${asked%% *}
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def in_bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, as a user keeps it."""
    path = tmp_path_factory.mktemp("completion") / "kafka-drain"
    path.write_text(completion_script(parser(), "bash"))
    return path


def offered(script: Path, *words: str, folder: Path | None = None) -> list[str]:
    """Return what a Tab offers, in a bash that finds no program at all."""
    ended = subprocess.run(
        ["/bin/bash", "--norc", "-c", ASK, "bash", script, "kafka-drain", *words],
        env={"PATH": ""},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    return ended.stdout.split()


def options_of(found: argparse.ArgumentParser) -> Iterator[tuple[str, set[str]]]:
    """Yield each command with its long options."""
    commands = next(a for a in found._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        long = {option for a in command._actions for option in a.option_strings}
        yield name, {option for option in long if option.startswith("--")}


needs_bash = pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs bash")


@needs_bash
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rep"], ["repair", "reprocess", "republish"]),
        (["republish", "--eng"], ["--engine"]),
        (["republish", "--engine", ""], ["auto", "worker", "spark"]),
        (["validate", "/archive", "--scope", "o"], ["open"]),
        (["drain", "--format", ""], ["parquet", "avro", "json", "orc"]),
        (["republish", "--placement", ""], ["original", "key", "key:crc32", "key:fnv1a"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["nothing-such"], []),
    ],
)
def test_completion_in_bash(words: list[str], expected: list[str], in_bash: Path) -> None:
    """A Tab offers the commands, options and choices that begin so; no program is started."""
    assert sorted(offered(in_bash, *words)) == sorted(expected)


@needs_bash
def test_completion_of_paths(in_bash: Path, tmp_path: Path) -> None:
    """An archive is a folder; an option that takes a file is offered files."""
    (tmp_path / "archive").mkdir()
    (tmp_path / "answers.json").write_text("{}")

    assert offered(in_bash, "validate", "a", folder=tmp_path) == ["archive"]
    files = offered(in_bash, "validate", "--kafka-config", "an", folder=tmp_path)
    assert files == ["answers.json"]


@needs_bash
def test_completion_options_in_bash(in_bash: Path) -> None:
    """Each command is offered with each of its options, and no other."""
    found = dict(options_of(parser()))

    assert found.keys() == COMMANDS.keys()
    for name, options in found.items():
        assert set(offered(in_bash, name, "--")) == options


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_names_everything(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints a script that holds every command and every option."""
    assert main(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert script == completion_script(parser(), shell) + "\n"
    for name, options in options_of(parser()):
        assert name in script
        for option in options:
            # fish has names of options without the dashes.
            assert option.removeprefix("--") in script


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_its_language(shell: str, tmp_path: Path) -> None:
    """The shell itself can read its script."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} isn't installed")
    path = tmp_path / "script"
    path.write_text(completion_script(parser(), shell))

    subprocess.run([program, "-n", path], check=True, timeout=30)


def test_completion_words_belong_to_options() -> None:
    """Each option that gets words has none of its own: the parser lets its value pass."""
    free = set()
    commands = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    for command in commands.choices.values():
        free |= {action.dest for action in command._actions if action.choices is None}

    assert WORDS.keys() <= free

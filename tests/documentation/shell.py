"""From a block of shell to its commands, and what is known of each without running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml
from botocore import xform_name
from botocore.session import get_session

from demo.__main__ import ENVIRONMENT
from kafka_drain.cli.main import parser
from tests.documentation.blocks import ROOT, Code, blocks

_OPERATORS = frozenset(("|", "||", "&&", ";", "&"))
_REDIRECTIONS = frozenset(("<", ">", ">>"))


@dataclass(frozen=True)
class Command:
    """A command with its arguments.

    Attributes:
        page: The document, from the repository's root.
        line: Where its block begins.
        words: The command's name, without the folder that it is in, and its arguments.
    """

    page: str
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"


def commands(name: str = "") -> list[Command]:
    """List the commands of all blocks of shell; only those of one name, if it is given."""
    found = [c for block in blocks() if block.language == "sh" for c in commands_of(block)]
    return [command for command in found if name in ("", command.words[0])]


def commands_of(block: Code) -> Iterator[Command]:
    """Yield a block's commands, those within a pipe too, without comments and redirections.

    Raises:
        ValueError: When a quote has no end.
    """
    waiting = ""
    for line in block.text.splitlines():
        if line.endswith("\\"):
            waiting += line[:-1] + " "
            continue
        waiting += line + "\n"
        try:
            words = _words(waiting)
        except ValueError:
            continue  # a quote goes on in the next line
        waiting = ""
        for command in _simple(words):
            found = Command(
                block.page, block.line, (Path(command[0]).name or command[0], *command[1:])
            )
            yield found
            inner = _inner(found.words)
            if inner:
                yield Command(block.page, block.line, inner)
    if waiting:
        raise ValueError(f"{block.place}: {waiting!r} has no end")


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    return list(lexer)


def _simple(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    is_file = False
    for word in [*words, ";"]:
        if word in _OPERATORS:
            if command:
                yield command
            command = []
        elif word in _REDIRECTIONS or is_file:
            is_file = not is_file
        else:
            command.append(word)


def _inner(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that `docker compose exec` runs in a service; empty for another one."""
    if words[:3] != ("docker", "compose", "exec"):
        return ()
    service = next(n for n, word in enumerate(words) if n > 2 and not word.startswith("-"))
    return words[service + 1 :]


def check(words: tuple[str, ...]) -> None:
    """Check a command as far as that goes without running it.

    Raises:
        AssertionError: When there is no such command, verb, argument, service or variable.
    """
    assert words[0] in _CHECKS, f"{words[0]}: nobody knows how to check this command"
    _CHECKS[words[0]](words[1:])


# Making it takes longer than using it a hundred times.
_parser = cache(parser)


def _kafka_drain(arguments: tuple[str, ...]) -> None:
    try:
        _parser().parse_args(arguments)
    except SystemExit:
        raise AssertionError(f"kafka-drain doesn't take {arguments}") from None


def _make(arguments: tuple[str, ...]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for argument in arguments:
        variable, is_variable, _ = argument.partition("=")
        if is_variable:
            assert f"$({variable})" in makefile, f"the Makefile has no variable {variable}"
        else:
            assert re.search(rf"^{re.escape(argument)}:", makefile, flags=re.M), argument


def _docker(arguments: tuple[str, ...]) -> None:
    """`make test-compose` runs the stack: here the verbs and services are those that exist."""
    assert arguments[0] in ("build", "compose"), arguments
    if arguments[0] == "build":
        return
    services = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    arguments = arguments[1:]
    if arguments[0] == "--profile":
        assert arguments[1] in {
            name for each in services.values() for name in each.get("profiles", ())
        }
        arguments = arguments[2:]
    verb, *rest = arguments
    named = [word for word in rest if not word.startswith("-")]
    assert verb in ("up", "down", "build", "exec", "cp"), arguments
    if verb == "exec":
        assert named[0] in services, arguments
    elif verb in ("up", "build"):
        assert set(named) <= set(services), arguments


def _python(arguments: tuple[str, ...]) -> None:
    assert arguments[0] == "-c", "a script of Python stands in a block of its own"
    compile(arguments[1], "python -c", "exec")


def _export(arguments: tuple[str, ...]) -> None:
    for argument in arguments:
        assert argument.partition("=")[0] == "KAFKA_BOOTSTRAP_SERVERS", argument


def _read(arguments: tuple[str, ...]) -> None:
    """A shell reads what `make ui` leaves."""
    assert arguments == (f".demo/{ENVIRONMENT}",), arguments


def _airflow(arguments: tuple[str, ...]) -> None:
    """Airflow's own parser takes them all at once: importing it takes seconds."""


def _cat(arguments: tuple[str, ...]) -> None:
    """A file of the stack's, whose name only Airflow decides."""


def _kafka_configs(arguments: tuple[str, ...]) -> None:
    """Kafka's own parser is a start of Java; tests/integration/test_client_quota.py runs it."""
    known = {"--bootstrap-server", "--alter", "--entity-type", "--entity-name", "--add-config"}
    assert {word for word in arguments if word.startswith("--")} == known, arguments


def _aws(arguments: tuple[str, ...]) -> None:
    service, verb, *rest = arguments
    assert service == "s3api", f"nobody knows how to check aws {service}"
    model = get_session().get_service_model("s3")
    known = {xform_name(name, "-"): name for name in model.operation_names}
    assert verb in known, f"aws s3api has no {verb}"
    options = {
        xform_name(name, "-") for name in model.operation_model(known[verb]).input_shape.members
    }
    for word in rest:
        name = word.removeprefix("--")
        assert name == word or name in {*options, "query"}, f"aws s3api {verb} has no {word}"


_CHECKS: Mapping[str, Callable[[tuple[str, ...]], None]] = {
    ".": _read,
    "aws": _aws,
    "kafka-configs.sh": _kafka_configs,
    "airflow": _airflow,
    "cat": _cat,
    "docker": _docker,
    "export": _export,
    "kafka-drain": _kafka_drain,
    "make": _make,
    "python": _python,
    "python3": _python,
}


def check_inline(text: str) -> None:
    """Check a command between backticks, which may leave out what its sentence doesn't need.

    Raises:
        AssertionError: When there is no such command, verb or option.
    """
    name, *rest = text.replace("…", " ").split() or [""]
    if name == "make" and rest:
        words = shlex.split(" ".join(rest))
        _make(tuple(word for word in words if word))
    elif name == "kafka-drain" and rest and not rest[0].isupper():
        options = _options_of(rest[0])
        for word in rest[1:]:
            assert not word.startswith("--") or word.partition("=")[0] in options, text


def _options_of(command: str) -> set[str]:
    found = _parser()
    for action in found._actions:
        if action.choices and command in action.choices:
            chosen = dict(action.choices)[command]
            return {name for option in chosen._actions for name in option.option_strings}
    if command.startswith("--"):
        return {name for action in found._actions for name in action.option_strings}
    raise AssertionError(f"kafka-drain has no command {command}")

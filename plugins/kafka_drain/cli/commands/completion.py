"""`kafka-drain completion`: print a shell's script to complete commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from rich.console import Console

from kafka_drain.cli.console import answer
from kafka_drain.cli.exit_codes import OK
from kafka_drain.config.sink_options import COMPRESSIONS, PARTITION_COLUMNS
from kafka_drain.config.spark_conf import LOG_LEVELS
from kafka_drain.republish.planning.placement import ORIGINAL, PARTITIONERS

SHELLS = ("bash", "zsh", "fish")

#: Completions for options whose values are checked elsewhere, with the whole pipeline.
WORDS: dict[str, Sequence[str]] = {
    "compression": sorted({name for names in COMPRESSIONS.values() for name in names}),
    "log_level": LOG_LEVELS,
    "partition_by": list(PARTITION_COLUMNS),
    "placement": [ORIGINAL, *map(str, PARTITIONERS)],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    """Print the completion script for a shell."""
    script = completion_script(options.whole_parser(), options.shell)

    def show(_: Console) -> None:
        print(script)

    answer(options, {"shell": options.shell, "script": script}, show)
    return OK


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script for a shell, generated from the command line's whole parser.

    It contains every command, option and choice, so that completing doesn't start Python; it must
    be generated again after an upgrade.
    """
    # Not at the top: the other commands' arguments must be listable without shtab.
    import shtab

    for action in _arguments(parser):
        if action.dest == "archive":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest in WORDS:
            action.choices = WORDS[action.dest]
    script: str = shtab.complete(parser, shell)
    return script


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _arguments(command)
        else:
            yield action

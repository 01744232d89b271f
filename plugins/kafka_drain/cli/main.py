"""`kafka-drain`: the same functions as the operators, for people at a terminal.

Answers go to standard output (a table, or JSON with `--json`); progress and errors to standard
error. The exit codes are those of `kafka_drain.cli.exit_codes`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import NoReturn

from kafka_drain.cli.exit_codes import FAILED, INTERRUPTED, MEANINGS, OK, USAGE
from kafka_drain.errors import ArchiveError, ConfigError, KafkaDrainError

__all__ = ["COMMANDS", "main"]

#: What each command does. Its module is of the same name, in `kafka_drain.cli.commands`.
COMMANDS = {
    "drain": "drain what Kafka holds now to the archive",
    "validate": "prove that every drained offset is there",
    "repair": "drain lost offsets again, write a damaged manifest anew; deletes nothing",
    "roll": "close the open generation, open the next at exact offsets",
    "backfill": "drain what no receipt covers of a data interval",
    "reprocess": "drain archived offsets again, and replace the old files",
    "maintain": (
        "close a generation when it is due, compact small files, delete files that are too old"
    ),
    "unlock": "show who holds an archive's leases; remove those that nobody renews",
    "inspect": "show what an archive holds",
    "files": "list the committed data files, one a line",
    "republish": "send an archive's records to Kafka",
    "translate-group": "plan, commit or undo a consumer group's offsets after a republish",
    "jars": "fetch the jars that Spark needs; the only command that does",
    "class-archive": (
        "let Spark start faster on this machine: keep the classes that Java loads for a drain"
    ),
    "completion": "print what bash, zsh or fish needs to complete commands and options",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # Imports take longer than most answers: only those of the command that is run.
    options = parser(COMMANDS.keys() & set(arguments[:1])).parse_args(arguments)
    # By name, as the commands are, which have loaded it: `--help` does without its library.
    terminal = import_module("kafka_drain.cli.console")
    try:
        code: int = options.command(options)
        return code
    except (ConfigError, ArchiveError) as error:
        terminal.complain(f"kafka-drain {options.name}: {error}")
        return USAGE
    except KafkaDrainError as error:
        terminal.complain(f"kafka-drain {options.name}: {error}")
        return FAILED
    except BrokenPipeError:
        # The reader (`head`) has seen enough.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - has to stay open until the end
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        terminal.end_progress(keep=True)


class Parser(argparse.ArgumentParser):
    """A parser that tells what it refuses as commands tell why they failed."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        import_module("kafka_drain.cli.console").complain(f"{self.prog}: error: {message}")
        sys.exit(USAGE)


def parser(whole: Iterable[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Return the parser, which knows all commands, and the arguments of some."""
    found = Parser(
        prog="kafka-drain",
        description="Drain Kafka topics to files, prove that every offset arrived, republish them.",
        epilog="exit codes: " + "; ".join(f"{code} {text}" for code, text in MEANINGS.items()),
    )
    commands = found.add_subparsers(dest="name", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--json", action="store_true", help="print the answer as JSON")
        if name in whole:
            module = import_module(f"kafka_drain.cli.commands.{name.replace('-', '_')}")
            module.add_arguments(added)
            added.set_defaults(command=module.run)
    return found

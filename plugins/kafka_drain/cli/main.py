"""`kafka-drain`: the operators' functions as commands for the terminal.

Answers go to standard output (a table, or JSON with `--json`); progress and errors to standard
error. The exit codes are those of `kafka_drain.cli.exit_codes`.
"""

from __future__ import annotations

import argparse
import atexit
import codecs
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from itertools import takewhile
from types import ModuleType
from typing import Any, NoReturn

from kafka_drain.cli.exit_codes import FAILED, HUNG_UP, INTERRUPTED, MEANINGS, OK, TERMINATED, USAGE
from kafka_drain.config.checks import nearest
from kafka_drain.errors import ArchiveError, ConfigError, KafkaDrainError
from kafka_drain.outages import hush, told_of_outages
from kafka_drain.output import heard_by

#: The commands, each with what it does, in groups by purpose: `--help` and the reference page show
#: them so. A command's module, in `kafka_drain.cli.commands`, has its name.
GROUPS = {
    "every day": {
        "drain": "drain what Kafka holds now to the archive",
        "validate": "prove that every drained offset is in the archive",
        "backfill": "drain the offsets of a data interval that no receipt covers",
        "republish": "send an archive's records to Kafka",
        "maintain": (
            "close a generation when it is due, compact small files, delete files that are too old"
        ),
        "status": "say whether archives could be restored; exits 0 only if all are ready",
        "inspect": "show the contents of an archive",
        "files": "list the committed data files, one per line",
        "find": "find records by key, offset, time, header or value",
        "register": "make an Iceberg table hold exactly an archive's sealed Parquet files",
    },
    "mend": {
        "repair": "drain lost offsets again, rebuild a damaged manifest; deletes nothing",
        "roll": "close the open generation, open the next one at exact offsets",
        "reprocess": "drain archived offsets again, and replace the old files",
        "unlock": "show who holds an archive's leases; remove leases that are no longer renewed",
    },
    "move or lose a cluster": {
        "plan-recovery": (
            "compare topics, ACLs and users of the archived cluster with another one; restore some"
        ),
        "translate-group": "plan, commit or undo a consumer group's offsets after a republish",
        "cut-over": "move all clients to another cluster, step by step; go back until the last one",
        "drill": "restore a part of an archive to scratch topics, verify it, and remove them",
        "capture-schemas": "keep the schemas of a Schema Registry that an archive's records use",
        "restore-schemas": "register an archive's schemas in another Schema Registry",
        "check-decoding": "decode what a republish has sent with the target's schemas",
    },
    "privacy and evidence": {
        "erase": "erase records on request, prove that all others are as they were",
        "rewrap": "give the data keys of an encrypted archive another master key",
        "evidence-key": "create a key pair that signs evidence",
        "verify-evidence": "verify signed evidence offline, with nothing but a public key",
    },
    "set-up": {
        "jars": "fetch the jars that Spark needs; no other command downloads any",
        "class-archive": (
            "make Spark start faster on this machine: write a CDS archive of the classes of a drain"
        ),
        "spark-server": "start a Spark Connect server for --master sc://…, until it is interrupted",
        "size": "say which cores, memory, files and hours a pipeline needs",
        "completion": (
            "print the script with which bash, zsh or fish completes commands and options"
        ),
    },
}
COMMANDS = {name: text for commands in GROUPS.values() for name, text in commands.items()}

#: Number of new objects after which the garbage collector runs; Python's default is 700.
NEW_OBJECTS = 50_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _open_closed_streams()
    _print_any_name()
    # NumPy, which pyarrow loads, would start a thread for each core that waits by spinning.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Most objects of a command are its modules': to look for garbage among them, while it runs and
    # twice when it ends, took a quarter of a validation's processor time.
    gc.set_threshold(NEW_OBJECTS)
    atexit.register(gc.freeze)
    # Imports take longer than most commands: load only those of the command being run.
    options = parser(COMMANDS.keys() & set(arguments[:1])).parse_args(arguments)
    # By name, like the commands, which have loaded it: `--help` must not need its library.
    terminal = import_module("kafka_drain.cli.console")
    # Until its end is said: what is watched may take a moment to end.
    with heard_by(terminal.say), told_of_outages(terminal.say):
        return _run(options, terminal)


def _run(options: argparse.Namespace, terminal: ModuleType) -> int:
    """Run a parsed command, and say how it ended; return the process's exit code."""
    try:
        with _ended_by_signals(), _for_master(options):
            code: int = options.command(options)
        return code
    except (ConfigError, ArchiveError) as error:
        _complain(terminal, f"kafka-drain {options.name}: {error}")
        return USAGE
    except KafkaDrainError as error:
        _complain(terminal, f"kafka-drain {options.name}: {error}")
        return FAILED
    except BrokenPipeError:
        # The reader (such as `head`) wants no more of answers that are printed one by one.
        # Has to stay open until the end.
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
        return OK
    except OSError as error:
        # A file that this user may not read, a folder in its place, a disk that fails.
        _complain(
            terminal,
            f"kafka-drain {options.name}: {error.filename or 'the system'}: "
            f"{error.strerror or error}; check that this user may read and write the archive, and "
            "the machine's disks",
        )
        return FAILED
    except SystemExit as error:
        _complain(
            terminal,
            f"kafka-drain {options.name}: something that it called ended it by "
            f"sys.exit({error.code!r}) before it was done",
        )
        return FAILED
    except KeyboardInterrupt as error:
        ended = error.code if isinstance(error, _Ended) else INTERRUPTED
        # A terminal that was closed takes nothing any more.
        with suppress(OSError):
            _complain(
                terminal,
                f"kafka-drain {options.name}: {_ENDED[ended]}; what it had started has ended. Run "
                "the same command again to continue",
            )
        return ended
    finally:
        terminal.end_progress(keep=True)


def _complain(terminal: ModuleType, line: str) -> None:
    """Print why a command failed, as the last that is said: its clients may take a while to go."""
    hush()
    terminal.complain(line)


def _open_closed_streams() -> None:
    """Let closed standard streams lead nowhere: a file that is opened later would take their place.

    Of what was started with `>&-`, Python has no standard output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number is the stream's own. It stays open until the end.
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode))  # noqa: PTH123, SIM115


def _print_any_name() -> None:
    """Let standard output take what its encoding lacks, such as a path that isn't UTF-8.

    The bytes of a path are printed as they are, so that a script gets the name of the file; other
    characters are escaped, as Python does by itself on standard error.
    """
    codecs.register_error(_ANY_NAME, _as_bytes)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ANY_NAME)


_ANY_NAME = "kafka_drain.any_name"


def _as_bytes(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return the bytes of what a stream's encoding doesn't have."""
    if not isinstance(error, UnicodeEncodeError):
        return codecs.replace_errors(error)
    found = error.object[error.start : error.end]
    return b"".join(
        # As `os.fsdecode` marks a byte that isn't text.
        bytes([ord(each) - 0xDC00])
        if "\udc80" <= each <= "\udcff"
        else each.encode("ascii", "backslashreplace")
        for each in found
    ), error.end


#: Words for the signal that has ended a command, by its exit code.
_ENDED = {HUNG_UP: "its terminal was closed", INTERRUPTED: "interrupted", TERMINATED: "terminated"}

#: The signals that end a command, beside Ctrl-C: a terminal that is closed sends the first one;
#: systemd, Kubernetes and `timeout` send the other.
_SIGNALS = {signal.SIGHUP: HUNG_UP, signal.SIGTERM: TERMINATED}


class _Ended(KeyboardInterrupt):
    """Raised by a signal, so that a command ends as it does by Ctrl-C: with all it has started."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals end the command in the body, unless it was started to ignore them, by `nohup`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> NoReturn:
        # Once: a second one ends the process at once, as it does without us.
        signal.signal(number, signal.SIG_DFL)
        raise _Ended(_SIGNALS[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _for_master(options: argparse.Namespace) -> AbstractContextManager[None]:
    """Return the context for a command whose driver runs elsewhere; others need none."""
    master, mode = getattr(options, "master", ""), getattr(options, "deploy_mode", "client")
    if not master.startswith("sc://") and mode == "client":
        return nullcontext()
    prepared: AbstractContextManager[None] = import_module("kafka_drain.spark.submit").for_master(
        master, mode
    )
    return prepared


class _Version(argparse.Action):
    """Prints the version and ends, without looking it up for other commands."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the version."""
        print(f"{parser.prog} {import_module('kafka_drain').__version__}")
        parser.exit()


#: Placeholders of values that name something. An empty one, as of a script's variable that isn't
#: set, would count as none: an erasure without the file of its keys erases every key, a republish
#: without the function that masks its records sends them as they are.
_NAMES = frozenset(
    {
        *("ARCHIVE", "FILE", "FOLDER", "HOST", "HOST:PORT", "KEY", "MASTER", "MODULE:FUNCTION"),
        *("NAME", "NAMESPACE.TABLE", "OLD", "RUN", "STEP", "TIME", "URL"),
    }
)


class _Once(argparse.Action):
    """Stores an option's value; refuses an empty name.

    Refuses another value after it, too: nobody would see which counts.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value."""
        placeholder = self.metavar or self.dest.upper()
        if values == "" and placeholder in _NAMES:
            if option_string is not None:
                parser.error(
                    f"{option_string} is empty; give {placeholder}, or leave the option out"
                )
            # Archives say more of an empty path themselves.
            if self.dest != "archive":
                parser.error(f"{self.dest} is empty; give the name of a {self.dest}")
        given = namespace.__dict__.setdefault(_GIVEN, {})
        before = given.setdefault(self.dest, values)
        # Not a number (nan) is unequal to itself.
        if option_string is not None and before is not values and before != values:
            parser.error(f"{option_string} is given as {before} and as {values}; give one of them")
        setattr(namespace, self.dest, values)


#: A namespace's attribute for the values of options that were given, while it is filled.
_GIVEN = "_given"


class Parser(argparse.ArgumentParser):
    """A parser that reports usage errors the way commands report failures."""

    #: Whether it is that of a command, whose options all come after its name.
    is_command = False
    #: Replacements for flags that only earlier releases know.
    removed: Mapping[str, str] = {}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for action in (None, "store"):
            self.register("action", action, _Once)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; of options that a command doesn't have, say which one is meant."""
        if self.is_command:
            self._refuse_short(args or ())
        found, unknown = super().parse_known_args(args, namespace)
        found.__dict__.pop(_GIVEN, None)
        if self.is_command and any(argument.startswith("-") for argument in unknown):
            for argument in unknown:
                if (name := argument.partition("=")[0]) in self.removed:
                    self.error(f"{name} was removed: {self.removed[name]}")
            said = f"unrecognized arguments: {' '.join(unknown)}"
            meant = [flag for argument in unknown if (flag := self._meant_by(argument))]
            self.error(f"{said}; did you mean {', '.join(meant)}?" if meant else said)
        return found, unknown

    def _refuse_short(self, arguments: Sequence[str]) -> None:
        """Refuse beginnings of flags that are too short: they may be another one, misspelt."""
        for argument in takewhile(lambda each: each != "--", arguments):
            name = argument.partition("=")[0]
            if name.startswith("--") and len(name) < 5 and name not in self._option_string_actions:
                self.error(f"unrecognized arguments: {name}; write at least three letters")

    def _meant_by(self, argument: str) -> str | None:
        """Return the flag that an unknown one is most like, or whose field in a DAG it names."""
        if not argument.startswith("--"):
            return None
        name = argument.partition("=")[0]
        of_field = {
            action.dest: action.option_strings[0]
            for action in self._actions
            if action.option_strings
        }
        field = name.removeprefix("--").replace("-", "_")
        return of_field.get(field) or nearest(name, self._option_string_actions)

    def error(self, message: str) -> NoReturn:
        """Print usage and message to stderr, and exit with 2."""
        self.print_usage(sys.stderr)
        import_module("kafka_drain.cli.console").complain(f"{self.prog}: error: {message}")
        sys.exit(USAGE)


class _MainParser(Parser):
    """The parser of `kafka-drain` itself, whose help lists the commands by group."""

    def format_help(self) -> str:
        """Return the help: usage, the groups of commands, the options, the exit codes."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        (commands,) = (a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        listed = {action.dest: action for action in commands._get_subactions()}
        for title, names in GROUPS.items():
            formatter.start_section(title)
            formatter.add_arguments(listed[name] for name in names)
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments(action for action in self._actions if action is not commands)
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def parser(whole: Iterable[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Return the parser, with all commands, and with the arguments of the given ones."""
    found = _MainParser(
        prog="kafka-drain",
        description="Drain Kafka topics to files, prove that every offset arrived, republish them.",
        epilog="exit codes: " + "; ".join(f"{code} {text}" for code, text in MEANINGS.items()),
    )
    found.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = found.add_subparsers(
        dest="name", required=True, metavar="COMMAND", parser_class=Parser
    )
    for name, text in COMMANDS.items():
        added = commands.add_parser(name, help=text, description=text)
        added.is_command = True
        added.add_argument("--json", action="store_true", help="print the result as JSON")
        if name in whole:
            module = import_module(f"kafka_drain.cli.commands.{name.replace('-', '_')}")
            module.add_arguments(added)
            added.removed = getattr(module, "REMOVED", {})
            added.set_defaults(command=module.run, whole_parser=parser)
    return found

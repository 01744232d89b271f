"""The package's Airflow provider entry point: adds `airflow dags backfill` to Airflow 3.2.

Airflow 2 ships that command; Airflow 3 replaced it with `airflow backfill create`. The commands of
other packages are loaded since 3.2. Each `airflow` command imports this module: it imports nothing
of ours, which would take seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

#: Options of Airflow 2's command that change nothing here, with their number of values and why.
NEEDLESS: Mapping[tuple[str, ...], tuple[int, str]] = {
    ("-I", "--ignore-first-depends-on-past"): (0, "the first run waits for no earlier one"),
    ("-S", "--subdir"): (1, "the scheduler takes the dag from Airflow's database"),
    ("-l", "--local"): (0, "the scheduler's executor runs the tasks"),
    ("-v", "--verbose"): (0, "progress is shown anyway"),
    ("-x", "--donot-pickle"): (0, "nothing is pickled"),
    ("--continue-on-failures",): (0, "a failed run doesn't stop the others"),
    ("--delay-on-limit",): (1, "the scheduler starts a run as soon as another one ends"),
}
#: Those that would do something else, with their number of values and what to use instead.
GONE: Mapping[tuple[str, ...], tuple[int, str]] = {
    ("-i", "--ignore-dependencies"): (
        0,
        "a run's tasks depend on each other; to run one of them again, use `airflow tasks clear`",
    ),
    ("-m", "--mark-success"): (
        0,
        "nothing would have been drained; leave dates out by -s and -e instead",
    ),
    ("-t", "--task-regex"): (
        1,
        "to run some tasks again, use `airflow tasks clear --task-regex REGEX -s DATE -e DATE DAG`",
    ),
    ("--disable-retry",): (0, 'set {"retries": 0} in the default_args of the dag file'),
    ("--pool",): (1, 'set it in the dag file: task_kwargs={"drain": {"pool": "spark"}}'),
    ("--treat-dag-as-regex",): (0, "name one dag in each command; `airflow dags list` has all"),
    ("--treat-dag-id-as-regex",): (0, "name one dag in each command; `airflow dags list` has all"),
}


def get_provider_info() -> dict[str, Any]:
    """Return the provider metadata in the form of Airflow's `provider_info.schema.json`."""
    info: dict[str, Any] = {
        "package-name": "kafka-drain",
        "name": "kafka-drain",
        "description": "Drain Kafka to files, prove that every offset arrived, republish.",
    }
    if int(version("apache-airflow").split(".", 1)[0]) >= 3:
        info["cli"] = ["kafka_drain_provider.cli_commands"]
    return info


def cli_commands() -> list[Any]:
    """Add `backfill` to the existing `airflow dags` group; always returns an empty list.

    Airflow calls this while it assembles its command line and accepts only new groups: it would
    refuse a second group named `dags`.
    """
    from airflow.cli import cli_parser
    from airflow.cli.cli_config import ActionCommand, GroupCommand, lazy_load_command

    backfill = ActionCommand(
        name="backfill",
        help="Run a DAG for each data interval between two dates and wait for the runs",
        description="Creates a backfill, which the scheduler runs, and shows its progress until it "
        "has finished. Exits with code 0 if all runs succeeded. This command comes from "
        "kafka-drain: Airflow 3's own `airflow backfill create` doesn't wait.",
        func=lazy_load_command("kafka_drain_airflow.dags_backfill.backfill"),
        args=tuple(_arguments()),
    )
    commands = cli_parser.airflow_commands
    for number, command in enumerate(commands):
        if not isinstance(command, GroupCommand) or command.name != "dags":
            continue
        if all(below.name != "backfill" for below in command.subcommands):
            commands[number] = command._replace(subcommands=(*command.subcommands, backfill))
    return []


def _arguments() -> list[Any]:
    from airflow.cli import cli_config

    # Airflow doesn't type these, or doesn't export them.
    untyped: Any = cli_config
    Arg, date = untyped.Arg, partial(_date, untyped.parsedate)

    class DagId(untyped.Arg):  # type: ignore[misc]
        """The command's only positional argument, which makes its parser strict."""

        def add_to_parser(self, parser: argparse.ArgumentParser) -> None:
            parser.allow_abbrev = False
            parse: Any = partial(_parse_all, parser, parser.parse_known_args)
            parser.parse_known_args = parse  # type: ignore[method-assign]
            super().add_to_parser(parser)

    def flag(*names: str, help: str) -> Any:
        return Arg(names, help=help, action="store_true")

    def old(names: tuple[str, ...], values: int, action: type[argparse.Action]) -> Any:
        # One value is no list.
        nargs, hidden = None if values else 0, argparse.SUPPRESS
        return Arg(names, nargs=nargs, action=action, help=hidden, default=hidden)

    return [
        DagId(("dag_id",), help="The id of the dag"),
        Arg(("-s", "--start-date"), type=date, help="First logical date"),
        Arg(("-e", "--end-date"), type=date, help="Last logical date"),
        flag("-y", "--yes", help="Don't ask before resetting runs or unpausing the dag"),
        flag("--rerun-failed-tasks", help="Rerun the failed runs of these dates"),
        flag("--reset-dagruns", help="Rerun all runs of these dates"),
        flag("-B", "--run-backwards", help="Latest date first"),
        Arg(("-c", "--conf"), help="Configuration of the runs, as JSON"),
        flag("-n", "--dry-run", help="Show the runs without creating them"),
        Arg(
            ("--max-active-runs",),
            type=_runs,
            help="Runs at the same time; each drain starts a Spark of its own. Without it, the "
            "dag's max_active_runs, which is 1 for kafka-drain's DAGs",
        ),
        flag("--no-wait", help="Don't wait for the runs to finish"),
        *(old(names, values, _Needless) for names, (values, _) in NEEDLESS.items()),
        *(old(names, values, _Gone) for names, (values, _) in GONE.items()),
    ]


def _date(parse: Any, given: str) -> Any:
    """Convert a date as Airflow does, in its default time zone."""
    try:
        return parse(given)
    except ValueError:
        accepted = "give a date such as 2026-01-31 or 2026-01-31T13:00"
        raise argparse.ArgumentTypeError(f"{given!r} isn't a date; {accepted}") from None


def _runs(given: str) -> int:
    """Convert the number of runs at the same time: with 0 or less, Airflow would start none."""
    number = int(given) if given.strip().isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{given!r} isn't a number of runs; give 1 or more")
    return number


def _parse_all(
    parser: argparse.ArgumentParser,
    parse: Any,
    arguments: Sequence[str] | None = None,
    namespace: argparse.Namespace | None = None,
) -> tuple[argparse.Namespace, list[str]]:
    """Parse a command's arguments, and refuse what it doesn't know itself.

    Airflow would refuse that at its top, with the help of `airflow` rather than the command's.
    """
    known, unknown = parse(arguments, namespace)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return known, unknown


class _Needless(argparse.Action):
    """An option of Airflow 2's command that changes nothing: says why."""

    def __call__(self, *given: Any) -> None:
        why = NEEDLESS[tuple(self.option_strings)][1]
        sys.stderr.write(f"airflow dags backfill: {given[-1]} changes nothing: {why}\n")


class _Gone(argparse.Action):
    """An option of Airflow 2's command that is refused with what replaces it."""

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        parser.error(f"{given[-1]} was Airflow 2's: {GONE[tuple(self.option_strings)][1]}")

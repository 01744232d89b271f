"""What Airflow asks the installed package for: the command `airflow dags backfill` in Airflow 3.

Airflow 2 has that command itself; Airflow 3 dropped it for `airflow backfill create`.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

__all__ = ["cli_commands", "get_provider_info"]


def get_provider_info() -> dict[str, Any]:
    """Return the package's description, as Airflow's `provider_info.schema.json` wants it."""
    info: dict[str, Any] = {
        "package-name": "kafka-drain",
        "name": "kafka-drain",
        "description": "Drain Kafka to files, prove that every offset arrived, republish.",
    }
    if int(version("apache-airflow").split(".", 1)[0]) >= 3:
        info["cli"] = ["kafka_drain_provider.cli_commands"]
    return info


def cli_commands() -> list[Any]:
    """Add `backfill` to the commands below `airflow dags`; returns no commands beside them.

    Airflow calls this while it puts its commands together, and takes new groups only: a second
    group `dags` would be refused.
    """
    from airflow.cli import cli_config, cli_parser
    from airflow.cli.cli_config import ActionCommand, GroupCommand, lazy_load_command

    # Without types, or not for others as it says.
    untyped: Any = cli_config
    Arg, parsedate = untyped.Arg, untyped.parsedate

    def flag(*names: str, help: str) -> Any:
        return Arg(names, help=help, action="store_true")

    backfill = ActionCommand(
        name="backfill",
        help="Run a DAG for each of its data intervals between two dates, and wait",
        description="Creates a backfill, which the scheduler runs, and shows its progress until it "
        "has ended. Exit code 0 when all runs succeeded. Brought by kafka-drain: Airflow 3 has "
        "`airflow backfill create`, which doesn't wait.",
        func=lazy_load_command("kafka_drain_airflow.dags_backfill.backfill"),
        args=(
            Arg(("dag_id",), help="The id of the dag"),
            Arg(("-s", "--start-date"), type=parsedate, help="First logical date"),
            Arg(("-e", "--end-date"), type=parsedate, help="Last logical date"),
            flag("-y", "--yes", help="Don't ask before runs are reset or the dag is unpaused"),
            flag("--rerun-failed-tasks", help="Run failed runs of these dates again"),
            flag("--reset-dagruns", help="Run all runs of these dates again"),
            flag("-B", "--run-backwards", help="Latest date first"),
            Arg(("-c", "--conf"), help="JSON with the runs' configuration"),
            flag("-n", "--dry-run", help="Show the runs, create none"),
            Arg(("--max-active-runs",), type=int, default=10, help="Runs at once (10)"),
            flag("--no-wait", help="Don't wait for the runs to end"),
        ),
    )
    commands = cli_parser.airflow_commands
    for number, command in enumerate(commands):
        if not isinstance(command, GroupCommand) or command.name != "dags":
            continue
        if all(below.name != "backfill" for below in command.subcommands):
            commands[number] = command._replace(subcommands=(*command.subcommands, backfill))
    return []

"""The package's Airflow provider entry point: adds `airflow dags backfill` to Airflow 3.2.

Airflow 2 ships that command; Airflow 3 replaced it with `airflow backfill create`. The commands of
other packages are loaded since 3.2.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any


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
    from airflow.cli import cli_config, cli_parser
    from airflow.cli.cli_config import ActionCommand, GroupCommand, lazy_load_command

    # Airflow doesn't type these, or doesn't export them.
    untyped: Any = cli_config
    Arg, parsedate = untyped.Arg, untyped.parsedate

    def flag(*names: str, help: str) -> Any:
        return Arg(names, help=help, action="store_true")

    backfill = ActionCommand(
        name="backfill",
        help="Run a DAG for each data interval between two dates and wait for the runs",
        description="Creates a backfill, which the scheduler runs, and shows its progress until it "
        "has finished. Exits with code 0 if all runs succeeded. This command comes from "
        "kafka-drain: Airflow 3's own `airflow backfill create` doesn't wait.",
        func=lazy_load_command("kafka_drain_airflow.dags_backfill.backfill"),
        args=(
            Arg(("dag_id",), help="The id of the dag"),
            Arg(("-s", "--start-date"), type=parsedate, help="First logical date"),
            Arg(("-e", "--end-date"), type=parsedate, help="Last logical date"),
            flag("-y", "--yes", help="Don't ask before resetting runs or unpausing the dag"),
            flag("--rerun-failed-tasks", help="Rerun the failed runs of these dates"),
            flag("--reset-dagruns", help="Rerun all runs of these dates"),
            flag("-B", "--run-backwards", help="Latest date first"),
            Arg(("-c", "--conf"), help="Configuration of the runs, as JSON"),
            flag("-n", "--dry-run", help="Show the runs without creating them"),
            Arg(("--max-active-runs",), type=int, default=10, help="Runs at the same time (10)"),
            flag("--no-wait", help="Don't wait for the runs to finish"),
        ),
    )
    commands = cli_parser.airflow_commands
    for number, command in enumerate(commands):
        if not isinstance(command, GroupCommand) or command.name != "dags":
            continue
        if all(below.name != "backfill" for below in command.subcommands):
            commands[number] = command._replace(subcommands=(*command.subcommands, backfill))
    return []

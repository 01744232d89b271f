"""Build the stack in docker-compose.yaml, drain and republish in it, and remove it again.

    python -m scripts.compose_test [--records N] [--data-folder FOLDER]

Prints each step with its duration, and exits with 0 only if all of them succeeded.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from confluent_kafka import KafkaException

from demo.content import read_topic
from demo.flights import create_topic, flight_records, produce
from scripts.compose_test import checks
from scripts.compose_test.airflow_api import Airflow, log_in
from scripts.compose_test.base_image import base_image, provide_base_image
from scripts.compose_test.commands import output_of
from scripts.compose_test.engine import docker_engine, find_compose
from scripts.compose_test.errors import ComposeTestError
from scripts.compose_test.stack import Stack, prepare_stack
from scripts.compose_test.steps import Steps, say

CHECKOUT = Path(__file__).resolve().parents[2]
# The address that the broker advertises to programs on this machine.
KAFKA = "127.0.0.1:29092"
SOURCE, TARGET = "flights", "flights_republished"
ARCHIVE = "/var/lib/kafka-drain/flights"
PASSWORDS = "/var/lib/airflow/simple_auth_manager_passwords.json.generated"
HEALTHY_SECONDS = 600
RUN_SECONDS = 600


def run(steps: Steps, records: int, data_folder: Path | None) -> None:
    """Run all steps; always remove what was started.

    Args:
        steps: Records each step with its duration.
        records: Number of records in the drained topic.
        data_folder: Where a private engine keeps its images; None for a temporary folder.

    Raises:
        ComposeTestError: If a step failed.
    """
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="kafka-drain-test-")))
        with steps.step("Docker engine and Compose"):
            engine = ending.enter_context(docker_engine(data_folder))
            compose = find_compose(engine, folder)
            version = output_of([*compose, "version", "--short"], environment=engine.environment)
            own = "started for this run" if engine.is_own else "this machine's"
            say(f"  Docker {engine.version}, {own}; Compose {version.strip()}")
        with steps.step("Base image"):
            image = base_image((CHECKOUT / "Dockerfile").read_text(encoding="utf-8"))
            say(f"  {image}: {provide_base_image(engine, image)}")
        with steps.step("docker compose build"):
            stack = prepare_stack(engine, compose, CHECKOUT, folder)
            stack.build()
        try:
            with steps.step("docker compose up --wait"):
                stack.up(HEALTHY_SECONDS)
            use(stack, steps, records, folder)
        finally:
            with steps.step("docker compose down --volumes"):
                stack.down()


def use(stack: Stack, steps: Steps, records: int, folder: Path) -> None:
    """Drain and republish in a running stack, and check the results.

    Raises:
        ComposeTestError: If a step failed.
    """
    flights = islice(flight_records(), records)
    with steps.step("Send the first half of the records to the topic"):
        create_topic(KAFKA, SOURCE)
        produce(KAFKA, SOURCE, islice(flights, records // 2))
    with steps.step("Log in to Airflow's REST API"):
        password = json.loads(stack.run_in("airflow", "cat", PASSWORDS))["admin"]
        airflow = log_in(f"http://{stack.address('airflow', 8080)}", "admin", password)
    # Once unpaused, the DAG also has a scheduled run, and either of the two runs may drain.
    with steps.step("Unpause drain_flights and trigger it: drain, validation"):
        run_dag(airflow, "drain_flights", {})
    with steps.step("Send the other half of the records to the topic"):
        produce(KAFKA, SOURCE, flights)
        source = read_topic(KAFKA, SOURCE)
    with steps.step("Trigger drain_flights: only new records"):
        runs = run_dag(airflow, "drain_flights", {})
    with steps.step(f"Check that the archive holds each of {source.total:,} records once"):
        checks.check_archive(stack, ARCHIVE, folder, source)
    with steps.step("Trigger republish_flights, sent by Spark's executors"):
        conf = {"apply": True, "target_topic": TARGET, "create_target": True, "engine": "spark"}
        runs += run_dag(airflow, "republish_flights", conf)
    with steps.step("Check that both topics have the same content, record by record"):
        checks.check_same_content(source, read_topic(KAFKA, TARGET))
    with steps.step("Check that two drains and the republish ran on the Spark cluster"):
        checks.check_spark_applications(stack, {"drain_flights": 2, "republish_flights": 1})
    with steps.step("Check that Airflow's runs are in PostgreSQL"):
        checks.check_database(stack, runs)
    with steps.step("Check that no container has a process running as root"):
        checks.check_unprivileged(stack)


def run_dag(airflow: Airflow, dag: str, conf: dict[str, object]) -> int:
    """Trigger a DAG, wait until all of its runs have succeeded, and return the number of runs.

    Raises:
        ComposeTestError: If a run failed.
    """
    airflow.trigger(dag, conf)
    airflow.unpause(dag)
    return len(airflow.wait_for_runs(dag, RUN_SECONDS))


def main(arguments: Sequence[str]) -> int:
    """Run the test as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts.compose_test", description=__doc__)
    parser.add_argument("--records", type=int, default=20_000, help="records to drain (20000)")
    parser.add_argument(
        "--data-folder",
        type=Path,
        help="where a private engine keeps images for the next run (default: none are kept)",
    )
    options = parser.parse_args(arguments)
    # So that the stack is also removed if this process is terminated.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    steps = Steps()
    status = 0
    try:
        data_folder = options.data_folder and options.data_folder.resolve()
        run(steps, options.records, data_folder)
    except (ComposeTestError, KafkaException, TimeoutError):
        # The step has already printed the error.
        status = 1
    say(f"\n{steps.table()}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m demo`: 336,776 flights from Kafka through Spark and Airflow to files, and back.

python -m demo run       run the demo from an empty folder (about three minutes)
python -m demo recovery  destroy a cluster, and restore it to another one from the archive
python -m demo ui        start a broker, PostgreSQL and Airflow with its UI, and leave them running
python -m demo stop      stop all three
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from itertools import islice
from pathlib import Path

from confluent_kafka import KafkaException
from rich.table import Table

from demo.broker import KafkaCluster
from demo.broker.ports import free_ports
from demo.content import read_topic
from demo.flights import FLIGHTS, create_topic, flight_records, produce, topic_exists
from demo.local_airflow import ROOT, AirflowError, LocalAirflow
from demo.local_postgres import LocalPostgres
from demo.output import DemoFailed, console, say, step
from demo.recovery import run as run_recovery
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files, inspect_archive
from kafka_drain.errors import KafkaDrainError

FOLDER = ROOT / ".demo"
#: The file that `ui` writes for a shell to source.
ENVIRONMENT = "environment.sh"
SOURCE, TARGET = "flights", "flights_republished"
FIRST_PART = 200_000
#: The data intervals to backfill: the first hours that contain departures.
FIRST_HOUR, LAST_HOUR, HOURS = "2013-01-01T10:00", "2013-01-01T12:00", 3


def run(folder: Path) -> None:
    """Run the demo.

    Raises:
        DemoFailed: If a count or the content differs from what is expected.
    """
    stop(folder)
    postgres = _postgres(folder)
    postgres.remove()
    for name in ("broker", "airflow", "archives", "logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    began = time.monotonic()
    port = free_ports(1, avoid=())[0]
    with (
        KafkaCluster(folder / "broker", as_downloaded=True) as broker,
        postgres,
        LocalAirflow(folder, broker.bootstrap_servers, port, database=postgres.url) as airflow,
    ):
        servers = broker.bootstrap_servers
        archive = Archive.at(str(airflow.archives / "flights"))
        flights = flight_records()
        with step(f"1. Start a real Kafka broker on {servers}, and an empty Airflow on PostgreSQL"):
            airflow.run("db", "migrate", log="migrate")
            create_topic(servers, SOURCE)
            create_topic(servers, TARGET)
        with step(f"2. Send {FIRST_PART:,} flights to topic {SOURCE!r}, keyed by carrier"):
            produced = produce(servers, SOURCE, islice(flights, FIRST_PART))
        with step("3. Drain them with Spark: airflow dags test drain_flights"):
            airflow.test_dag("drain_flights", "drain_1", say)
            first = drained_offsets(archive)
        with step("4. Send the remaining flights to the topic"):
            produced += produce(servers, SOURCE, flights)
        with step("5. Drain again, only the new records: airflow dags test drain_flights"):
            airflow.test_dag("drain_flights", "drain_2", say)
            second = drained_offsets(archive) - first
            files = len(committed_files(archive))
        with step("6. Drain once more, with nothing new"):
            airflow.test_dag("drain_flights", "drain_3", say)
            third = drained_offsets(archive) - first - second
            new_files = len(committed_files(archive)) - files
        backfill = ["dags", "backfill", "-s", FIRST_HOUR, "-e", LAST_HOUR, "-y", "drain_flights"]
        with step(f"7. Backfill {HOURS} past hours: airflow {' '.join(backfill)}"):
            with airflow.running():
                airflow.run(*backfill, log="backfill", say=say)
            backfilled = len(committed_files(archive)) - files
        with step(f"8. Republish the files to {TARGET!r}: airflow dags test republish_flights"):
            conf = json.dumps({"target_topic": TARGET, "apply": True})
            airflow.test_dag("republish_flights", "republish", say, "--conf", conf)
        with step("9. Read both topics from beginning to end and compare them"):
            source, target = read_topic(servers, SOURCE), read_topic(servers, TARGET)
    report = latest_report(archive)
    table = Table("stage", "records", "expected", "", title="From Kafka to files and back")
    rows = [
        (f"sent to topic {SOURCE}", produced, FLIGHTS),
        ("drained by the first run", first, FIRST_PART),
        ("drained by the second run", second, FLIGHTS - FIRST_PART),
        ("drained by the third run", third, 0),
        ("new files from the third run", new_files, 0),
        ("new files from the backfill (all archived)", backfilled, 0),
        ("in the files, proven by validation", report["records"], FLIGHTS),
        (f"in topic {SOURCE}", source.total, FLIGHTS),
        (f"in topic {TARGET}", target.total, FLIGHTS),
    ]
    for stage, seen, expected in rows:
        table.add_row(
            stage, f"{seen:,}", f"{expected:,}", "equal" if seen == expected else "DIFFERS"
        )
    same = "equal" if source.hash == target.hash else "DIFFERS"
    table.add_row(f"content of {TARGET}", target.hash[:16], source.hash[:16], same)
    console.print()
    console.print(table)
    console.print(
        "content: SHA-256 over key, value, headers and timestamp of each record, in order, "
        f"partition by partition\nverdict of the last validation: {report['verdict']}, "
        f"{time.monotonic() - began:.0f} s in total"
    )
    if source.hash != target.hash or report["verdict"] != "complete":
        raise DemoFailed("the republished records differ from the source topic's")
    if any(seen != expected for _, seen, expected in rows):
        raise DemoFailed("a count differs from what was expected")
    show_files(archive)


def drained_offsets(archive: Archive) -> int:
    """Return the number of drained offsets according to Spark's checkpoint."""
    generations = inspect_archive(archive)["generations"]
    return sum(row["offsets"] for g in generations for row in g["partitions"])


def latest_report(archive: Archive) -> dict[str, object]:
    """Return the report of the last validation."""
    reports = sorted((Path(str(archive.root)) / "reports").glob("*.json"))
    report: dict[str, object] = json.loads(reports[-1].read_text())
    return report


def show_files(archive: Archive) -> None:
    """Print where the files are and how to open them."""
    root = _shown(Path(str(archive.root)))
    flights = f"archive_dataset('{root}').to_table().to_pandas()"
    console.print(
        f"""
The archive is the folder {root}: Parquet files, Spark's manifest and checkpoint, and reports.

Read it:             .venv/bin/python -c "from kafka_drain.reading import *; print({flights})"
List its files:      .venv/bin/kafka-drain files {root}
Inspect it:          .venv/bin/kafka-drain inspect {root}
See it in Airflow:   make ui        (stop it with make stop)
""",
        markup=False,
        soft_wrap=True,
    )


def ui(folder: Path, port: int, flights: int = FLIGHTS) -> None:
    """Start a broker with the flights, and Airflow with its UI, unless they are already running."""
    broker, postgres = KafkaCluster(folder / "broker"), _postgres(folder)
    running = LocalAirflow(folder, "").running_port()
    if running is not None and broker.running_nodes() and postgres.is_running():
        console.print("everything is already running")
        _show(
            folder, LocalAirflow(folder, broker.bootstrap_servers, running, database=postgres.url)
        )
        return
    stop(folder)  # whatever is still running
    LocalAirflow(folder, "", port).require_port()
    try:
        broker.start(background=True)
        servers = broker.bootstrap_servers
        # The target isn't created: the tutorial shows how a republish does it.
        if not topic_exists(servers, SOURCE):
            create_topic(servers, SOURCE)
            console.print(f"sending {flights:,} flights to topic {SOURCE} …")
            produce(servers, SOURCE, islice(flight_records(), flights))
        console.print("starting Airflow on PostgreSQL, which takes about half a minute …")
        postgres.start()
        airflow = LocalAirflow(folder, servers, port, database=postgres.url)
        airflow.start()
    except BaseException:
        stop(folder)
        raise
    _show(folder, airflow)


def _postgres(folder: Path) -> LocalPostgres:
    return LocalPostgres(folder / "postgres")


def _shown(path: Path) -> Path:
    """Return a path relative to the checkout, if it is inside it."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def _show(folder: Path, airflow: LocalAirflow) -> None:
    """Print where everything is, and how to use it."""
    user, password = airflow.login()
    settings = folder / ENVIRONMENT
    airflow.write_environment(settings)
    console.print(
        f"""
Airflow:   {airflow.url}   user {user}, password {password}
Kafka:     {airflow.settings["KAFKA_BOOTSTRAP_SERVERS"]}
Drain:     open the DAG drain_flights and press Trigger; its archive is {airflow.archives}/flights
Terminal:  . {_shown(settings)}   sets up a shell for `airflow` and `kafka-drain`; after the first
           drain, try for example:
           airflow dags backfill -s {FIRST_HOUR} -e {LAST_HOUR} -y drain_flights
Stop all:  make stop
""",
        markup=False,
        soft_wrap=True,
    )


def stop(folder: Path) -> None:
    """Stop everything that `ui` left running."""
    (folder / ENVIRONMENT).unlink(missing_ok=True)
    if LocalAirflow(folder, "").stop():
        console.print("Airflow stopped")
    if _postgres(folder).stop():
        console.print("PostgreSQL stopped")
    broker = KafkaCluster(folder / "broker")
    if broker.running_nodes():
        broker.stop()
        console.print("broker stopped")


def main() -> int:
    """Run one of the commands and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m demo", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("verb", choices=["run", "recovery", "ui", "stop"])
    parser.add_argument("--port", type=int, default=8080, help="port of Airflow's UI")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder for all data")
    parser.add_argument("--flights", type=int, default=FLIGHTS, help="number of flights `ui` sends")
    options = parser.parse_args()
    folder = options.folder.absolute()
    try:
        if options.verb == "run":
            run(folder)
        elif options.verb == "recovery":
            run_recovery(folder)
        elif options.verb == "ui":
            ui(folder, options.port, options.flights)
        else:
            stop(folder)
    except (AirflowError, DemoFailed, KafkaDrainError, KafkaException) as error:
        console.print(f"\ndemo: {error}", markup=False, style="red")
        return 1
    except KeyboardInterrupt:
        console.print("\ndemo: interrupted; everything it started was stopped", markup=False)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

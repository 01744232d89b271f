"""The example DAGs, run by a real Airflow with real Spark and a real broker."""

from __future__ import annotations

import contextlib
import json
import runpy
import shutil
import socket
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from demo.flights import PARTITIONS, create_topic, flight_records, produce
from demo.local_airflow import AirflowError, LocalAirflow
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.proof.validation import validate_archive
from kafka_drain_airflow.observability.task_progress import is_progress
from tests.conftest import manifest_files
from tests.faults.injection import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

RECORDS = 500
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Drained:
    """An Airflow that has drained topic flights once, and the output of its tasks."""

    airflow: LocalAirflow
    metrics: set[str]
    lineage: Path
    said: list[str] = field(default_factory=list)

    @property
    def archive(self) -> Archive:
        """The archive of the example DAG."""
        return Archive.at(str(self.airflow.archives / "flights"))

    def events(self) -> list[dict[str, Any]]:
        """Return the archive's asset events, oldest first; only Airflow 3 keeps them."""
        if not AIRFLOW_V_3_0_PLUS:
            return []
        return [
            json.loads(extra) for extra in self.ask("SELECT extra FROM asset_event ORDER BY id")
        ]

    def ask(self, query: str) -> list[Any]:
        """Return the first column of a query's result from Airflow's database."""
        with contextlib.closing(sqlite3.connect(self.airflow.home / "airflow.db")) as database:
            return [row[0] for row in database.execute(query)]

    def run(self, dag_id: str, log: str, **conf: Any) -> None:
        """Run a DAG and keep the output of its tasks."""
        more = ("--conf", json.dumps(conf)) if conf else ()
        self.airflow.test_dag(dag_id, log, self.said.append, *more)


@contextlib.contextmanager
def heard_metrics() -> Iterator[set[str]]:
    """Let Airflow send its metrics by StatsD, and yield this package's as `name:value`."""
    metrics: set[str] = set()

    def hear(server: socket.socket) -> None:
        while packet := server.recv(1 << 16):
            lines = packet.decode().splitlines()
            metrics.update(line.partition("|")[0] for line in lines if "kafka_drain." in line)

    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        server.bind(("127.0.0.1", 0))
        patch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
        patch.setenv("AIRFLOW__METRICS__STATSD_PORT", str(server.getsockname()[1]))
        listener = threading.Thread(target=hear, args=(server,))
        listener.start()
        try:
            yield metrics
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.sendto(b"", server.getsockname())
            listener.join()


@contextlib.contextmanager
def told_lineage(path: Path) -> Iterator[Path]:
    """Let Airflow's OpenLineage provider write its events to a file, one per line."""
    transport = {"type": "file", "log_file_path": str(path), "append": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
        yield path


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str) -> Iterator[Drained]:
    """A new Airflow after its first drain of 500 records."""
    folder = tmp_path_factory.mktemp("airflow")
    create_topic(bootstrap_servers, "flights")
    assert produce(bootstrap_servers, "flights", islice(flight_records(), RECORDS)) == RECORDS
    with (
        heard_metrics() as metrics,
        told_lineage(folder / "lineage.json") as lineage,
        LocalAirflow(folder, bootstrap_servers) as airflow,
    ):
        local = Drained(airflow, metrics, lineage)
        airflow.run("db", "migrate", log="migrate")
        local.run("drain_flights", "drain_1")
        yield local


def test_drain_dag_drains_and_validates(drained: Drained) -> None:
    """A first drain logs its plan, drains every record, and is proven complete."""
    (report,) = (Path(drained.archive.root) / "reports").glob("*.json")
    document = json.loads(report.read_text())

    assert "drain flights: 500 of 500 offsets (100 %)" in "\n".join(drained.said)
    assert any("500 records in 1 batch, offsets behind latest: min 0" in s for s in drained.said)
    assert (document["verdict"], document["records"]) == ("complete", RECORDS)


@pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="`dags test` of Airflow 2 keeps no events")
def test_drain_dag_asset_event(drained: Drained) -> None:
    """The archive's asset gets an event with the sealed offsets and their receipt."""
    [event] = drained.events()
    [segment] = event["segments"]
    [receipt] = drained.archive.generation(1).receipts()

    assert (segment["receipt"], segment["sha256"]) == (receipt.where, receipt.sha256)
    assert segment["records"] == RECORDS
    drained_offsets = [end - start for [[start, end]] in segment["offsets"].values()]
    assert sum(drained_offsets) == RECORDS


@pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="`dags test` of Airflow 2 keeps no events")
def test_flights_delays_of_event(drained: Drained, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example DAG computes the right means for the flights in the archive's event."""
    monkeypatch.setenv("KAFKA_DRAIN_ARCHIVES", str(drained.airflow.archives))
    [event] = drained.events()
    example = runpy.run_path(str(ROOT / "dags" / "flights_delays.py"))["mean_delays"]

    told = SimpleNamespace(extra=event)
    found = example.function(triggering_asset_events={"the archive": [told]})

    late: dict[str, list[int]] = {}
    for record in islice(flight_records(), RECORDS):
        delay = json.loads(record.value)["dep_delay"]
        if delay is not None:
            late.setdefault(record.key.decode(), []).append(delay)
    assert found == {carrier: round(sum(d) / len(d), 1) for carrier, d in late.items()}


def test_drain_dag_lineage(drained: Drained, bootstrap_servers: str) -> None:
    """The drain's lineage is reported to OpenLineage: topic, archive and number of records."""

    def outputs() -> list[dict[str, Any]]:
        lines = drained.lineage.read_text().splitlines() if drained.lineage.exists() else []
        events = [json.loads(line) for line in lines]
        return [
            event
            for event in events
            if event["job"]["name"] == "drain_flights.drain" and event["outputs"]
        ]

    wait_for(outputs, "the drain's event")
    told = outputs()[-1]
    [source], [target] = told["inputs"], told["outputs"]

    assert (source["namespace"], source["name"]) == (f"kafka://{bootstrap_servers}", "flights")
    assert (target["namespace"], target["name"]) == ("file", str(drained.archive.root))
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == RECORDS


@pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 keeps templates as they were before")
def test_drain_dag_plan(drained: Drained) -> None:
    """The drain's plan is among its task's rendered templates, for the UI."""
    [kept] = drained.ask(
        "SELECT rendered_fields FROM rendered_task_instance_fields WHERE task_id = 'drain'"
    )

    assert "500 offsets" in json.loads(kept)["plan"]


def test_drain_dag_progress(drained: Drained) -> None:
    """The drain's task has stored its progress for the pages: 100 % at the end."""
    [kept] = drained.ask("SELECT value FROM xcom WHERE key = 'progress' AND task_id = 'drain'")
    # Airflow 2 stores bytes, Airflow 3 JSON, which SQLite stores as text again.
    progress = json.loads(kept)
    progress = json.loads(progress) if isinstance(progress, str) else progress

    assert (progress["done"], progress["total"], progress["percent"]) == (RECORDS, RECORDS, 100)
    assert is_progress(progress)


def test_drain_dag_metrics(drained: Drained) -> None:
    """Airflow's metrics include the drain's figures and the archive's state."""
    expected = {
        f"airflow.kafka_drain.flights.{name}:{value}"
        for name, value in {
            "drain.records": RECORDS,
            "archive.records": RECORDS,
            "archive.lag": 0,
            "archive.complete": 1,
        }.items()
    }

    wait_for(lambda: expected <= drained.metrics, f"{expected - drained.metrics}")


def test_drain_dag_with_nothing_new(drained: Drained) -> None:
    """A second drain succeeds, logs that nothing is new, and writes no manifest file."""
    before = manifest_files(drained.archive)

    drained.run("drain_flights", "drain_2")

    assert "drain flights: nothing new; every offset is drained" in drained.said
    assert manifest_files(drained.archive) == before == ["0"]


@pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="`dags test` of Airflow 2 keeps no events")
def test_drain_dag_archive_is_gone(drained: Drained, tmp_path: Path) -> None:
    """A drain to an archive that was validated before, and isn't there, fails: no second one.

    Only if a new one is meant, it begins; when the archive is back, drains go on with it.
    """
    root = Path(drained.archive.root)
    root.rename(tmp_path / "elsewhere")
    try:
        with pytest.raises(AirflowError, match=f"{root} holds no archive, but Airflow knows that"):
            drained.run("drain_flights", "archive_is_gone")
        assert not root.exists()
        drained.run("drain_flights", "archive_is_new", new_archive=True)
        assert validate_archive(drained.archive, None).records == RECORDS
        shutil.rmtree(root)
    finally:
        (tmp_path / "elsewhere").rename(root)

    drained.run("drain_flights", "archive_is_back")

    assert "drain flights: nothing new; every offset is drained" in drained.said


def test_republish_dag_dry_run(drained: Drained, make_topic: Any, read: Any) -> None:
    """With the form's defaults, a run shows its plan and sends nothing."""
    target = make_topic(partitions=PARTITIONS)

    drained.run("republish_flights", "dry_run", target_topic=target)

    assert any("500 records of" in line for line in drained.said)
    assert not any(read(target).values())


@pytest.mark.parametrize("engine", ["worker", "spark"])
def test_republish_dag_sends_equal_records(
    engine: str, drained: Drained, make_topic: Any, read: Any
) -> None:
    """A republish sends every record unchanged, with either engine, and proves it."""
    target = make_topic(partitions=PARTITIONS)

    drained.run("republish_flights", engine, target_topic=target, engine=engine, apply=True)

    assert read(target) == read("flights")
    assert any("verify: 500 records are in Kafka once, in order" in s for s in drained.said)


def test_republish_dag_without_target_fails_clearly(drained: Drained) -> None:
    """A republish to a topic that doesn't exist fails the run and says what to do."""
    with pytest.raises(AirflowError, match=r"topic nowhere doesn't exist.*create it or correct"):
        drained.run("republish_flights", "nowhere", target_topic="nowhere", apply=True)


def test_republish_dag_unknown_name(drained: Drained, make_topic: Any, read: Any) -> None:
    """A field's name with a letter missing fails the task before the plan: all would be sent."""
    target = make_topic(partitions=PARTITIONS)
    asked = {"target_topic": target, "apply": True, "to_tme": "2013-01-01T12:00:00Z"}

    with pytest.raises(AirflowError, match="'to_tme' isn't a field of republish_flights; did you"):
        drained.run("republish_flights", "unknown_name", **asked)

    assert not any(read(target).values())


def test_republish_dag_names_of_command(drained: Drained, make_topic: Any, read: Any) -> None:
    """A field may be called as the command's flag is: only what was asked for is sent."""
    target = make_topic(partitions=PARTITIONS)
    asked = {"target_topic": target, "apply": True, "filter": ["$.carrier=UA"]}

    drained.run("republish_flights", "names_of_command", **asked)

    sent = [record for records in read(target).values() for record in records]
    expected = sum(r.key == b"UA" for r in islice(flight_records(), RECORDS))
    assert len(sent) == expected > 0


def files_of(archive: Archive) -> set[str]:
    """Return the files that readers take."""
    return {file.path for file in archive_files(archive.snapshot())}


@dataclass
class Reprocessed:
    """The changes made by a reprocess of the whole archive.

    Attributes:
        old: The files before it.
        new: The files after it.
        left: The old files that were still there afterwards.
        told: Events about it.
    """

    old: set[str]
    new: set[str]
    left: set[str]
    told: list[dict[str, Any]]


@pytest.fixture(scope="module")
def reprocessed(drained: Drained) -> Reprocessed:
    """The archive after a reprocess; its files are those of closed segments."""
    old, told = files_of(drained.archive), drained.events()
    drained.run("reprocess_flights", "reprocess", from_batch="1:0", apply=True)
    left = {path for path in old if (drained.archive.root / path).exists()}
    return Reprocessed(old, files_of(drained.archive), left, drained.events()[len(told) :])


def test_reprocess_dag_dry_run(drained: Drained) -> None:
    """With the form's defaults, nothing is drained again, and no event is emitted."""
    old, told = files_of(drained.archive), drained.events()

    drained.run("reprocess_flights", "reprocess_dry", from_batch="1:0")

    assert files_of(drained.archive) == old
    assert drained.events() == told


def test_reprocess_dag_replaces_files(drained: Drained, reprocessed: Reprocessed) -> None:
    """A reprocess drains the archive again: other files, the same records, an intact archive.

    DAGs scheduled on the archive get an event about the replaced files.
    """
    assert reprocessed.new
    assert not reprocessed.new & reprocessed.old
    assert not reprocessed.left
    if AIRFLOW_V_3_0_PLUS:
        [event] = reprocessed.told
        assert (event["removed_files"], event["segments"]) == (len(reprocessed.old), [])
    report = validate_archive(drained.archive, None, deep=True)
    assert (report.complete, report.summary()["records"]) == (True, RECORDS)


@pytest.mark.usefixtures("reprocessed")
def test_maintain_dag_compacts_files(drained: Drained) -> None:
    """Maintenance compacts the files of closed segments; a manual run does so only with apply.

    DAGs scheduled on the archive get an event about it, but not if there was nothing to do.
    """
    old, told = files_of(drained.archive), drained.events()

    drained.run("maintain_flights", "maintain_dry")
    assert files_of(drained.archive) == old
    drained.run("maintain_flights", "maintain", apply=True)
    # As before `apply` was introduced.
    drained.run("maintain_flights", "maintain_again", dry_run=False)

    new = files_of(drained.archive)
    assert 0 < len(new) < len(old) / 2
    assert any("bytes before;" in line for line in drained.said)
    if AIRFLOW_V_3_0_PLUS:
        [event] = drained.events()[len(told) :]
        assert (event["files_removed"], event["segments"]) == (len(old - new), [])
    report = validate_archive(drained.archive, None, deep=True)
    assert (report.complete, report.summary()["records"]) == (True, RECORDS)

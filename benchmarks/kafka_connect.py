"""Kafka Connect with Apache Iceberg's sink: the jars are those of `kafka_connect.xml`.

The sink writes rows, so that a record's bytes become a column of one. It writes value, topic,
partition, offset and timestamp; Connect has no transform that adds the key or all headers.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from uuid import uuid4

import pyarrow.dataset as ds
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.process_tree import Cost, Meter
from kafka_drain.spark.submit import spark_home

__all__ = ["JARS", "drain_by_kafka_connect"]

#: The folder of the jars; empty to leave the arm out.
JARS = os.environ.get("BENCH_KAFKA_CONNECT", "")

_TASKS = 2
_COMMIT_MS = 2_000
_PATIENCE = 300.0


def drain_by_kafka_connect(servers: str, topic: str, folder: Path, records: int) -> Cost:
    """Run a standalone worker until its sink has committed all records of a topic.

    Raises:
        RuntimeError: If the worker ends before, takes too long, or commits other records.
    """
    folder.mkdir(parents=True)
    name = f"arm-{uuid4().hex[:8]}"
    control = f"control-{name}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(control, 1, 1)])[control].result(20)
    worker, sink = folder / "worker.properties", folder / "sink.properties"
    worker.write_text(_properties(_worker(servers, folder)))
    sink.write_text(_properties(_sink(name, topic, control, folder)))
    command = ["java", "-Xmx1g", "-cp", _class_path()]
    command += ["org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(sink)]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            with Meter(process.pid) as meter:
                _wait(process, folder, topic, records)
        finally:
            process.terminate()
    found = ds.dataset(_data_files(folder), format="parquet")
    offsets = found.to_table(columns=["partition", "offset"]).group_by(["partition", "offset"])
    if (found.count_rows(), offsets.aggregate([]).num_rows) != (records, records):
        raise RuntimeError(f"{folder} holds {found.count_rows()} records, not {records}")
    return meter.cost


def _class_path() -> str:
    hadoop = sorted(map(str, (spark_home() / "jars").glob("hadoop-client-*.jar")))
    more = sorted(map(str, (spark_home() / "jars").glob("commons-logging-*.jar")))
    return os.pathsep.join([f"{JARS}/*", *hadoop, *more])


def _wait(process: subprocess.Popen[bytes], folder: Path, topic: str, records: int) -> None:
    began = time.monotonic()
    while _committed(folder, topic) < records:
        if process.poll() is not None or time.monotonic() - began > _PATIENCE:
            log = (folder / "log").read_text(errors="replace")
            raise RuntimeError(
                f"Kafka Connect committed {_committed(folder, topic)}: {log[-3000:]}"
            )
        time.sleep(0.1)


def _committed(folder: Path, topic: str) -> int:
    """Return the number of records in the table's current snapshot."""
    table = folder / "warehouse" / "db" / topic / "metadata"
    try:
        version = (table / "version-hint.text").read_text()
        metadata = json.loads((table / f"v{version}.metadata.json").read_text())
    except (OSError, ValueError):
        return 0
    current = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots", []):
        if snapshot["snapshot-id"] == current:
            return int(snapshot["summary"]["total-records"])
    return 0


def _data_files(folder: Path) -> list[str]:
    return sorted(map(str, (folder / "warehouse" / "db").glob("*/data/**/*.parquet")))


def _worker(servers: str, folder: Path) -> dict[str, object]:
    as_bytes = "org.apache.kafka.connect.converters.ByteArrayConverter"
    return {
        "bootstrap.servers": servers,
        "key.converter": as_bytes,
        "value.converter": as_bytes,
        "offset.storage.file.filename": folder / "offsets",
        # At the end of the topic, a sink takes part in a commit only this often; 60 s by default.
        "offset.flush.interval.ms": 1_000,
        "listeners": "http://127.0.0.1:0",
        "plugin.discovery": "hybrid_warn",
        "connector.client.config.override.policy": "All",
    }


def _sink(name: str, topic: str, control: str, folder: Path) -> dict[str, object]:
    transforms = "org.apache.kafka.connect.transforms"
    return {
        "name": name,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": _TASKS,
        "topics": topic,
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.max.poll.records": 20_000,
        "transforms": "value,kafka",
        "transforms.value.type": f"{transforms}.HoistField$Value",
        "transforms.value.field": "value",
        "transforms.kafka.type": f"{transforms}.InsertField$Value",
        "transforms.kafka.topic.field": "topic",
        "transforms.kafka.partition.field": "partition",
        "transforms.kafka.offset.field": "offset",
        "transforms.kafka.timestamp.field": "timestamp",
        "iceberg.tables": f"db.{topic}",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.write-props.write.parquet.compression-codec": "zstd",
        "iceberg.catalog.type": "hadoop",
        "iceberg.catalog.warehouse": f"file://{folder / 'warehouse'}",
        # The tasks create the table at the same time; the loser would wait 5 seconds.
        "iceberg.catalog.lock.acquire-interval-ms": 100,
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": _COMMIT_MS,
        "iceberg.control.commit.timeout-ms": 60_000,
    }


def _properties(values: dict[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())

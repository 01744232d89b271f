"""An archive on S3 whose values are decoded, by a Spark Connect server that was started for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from upath import UPath

from demo.broker.ports import free_ports
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.proof.validation import validate_archive
from tests.fake_registry import LOGIN, FakeRegistry, fake_registry, in_wire_format
from tests.s3_server import CREDENTIALS
from tests.spark_connect import Server, client

pytestmark = [pytest.mark.integration, pytest.mark.connect]

START = 1_767_225_600_000
RECORDS = 40
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry that asks for a login."""
    with fake_registry(LOGIN) as running:
        yield running


@pytest.fixture(scope="module")
def store_server(tmp_path_factory: pytest.TempPathFactory, s3_url: str) -> Iterator[Server]:
    """A server that opens the store with credentials in its own environment."""
    (port,) = free_ports(1, ())
    found = Server(port, tmp_path_factory.mktemp("store-server") / "log")
    found.start("--with-store", **CREDENTIALS, AWS_ENDPOINT_URL=s3_url)
    yield found
    assert found.stop() == 0, found.said()


def test_decoded_archive_on_s3(
    store_server: Server,
    bucket: str,
    registry: FakeRegistry,
    make_topic: Any,
    send: Any,
    read: Any,
    tmp_path: Path,
    bootstrap_servers: str,
    cluster: Any,
) -> None:
    """Drained and decoded, proven, compacted and republished: the store's key is in no output."""
    topic, archive = make_topic(partitions=2), f"{bucket}/archive"
    registry.register(f"{topic}-value", 7, ORDER)
    orders = [{"id": n, "city": f"c{n}"} for n in range(RECORDS)]
    for order in orders:
        value = in_wire_format(7, ORDER, order)
        send(topic, [(b"k", value, None, START)], partition=order["id"] % 2)
    pipeline, settings = tmp_path / "pipeline.json", tmp_path / "registry.json"
    values = {"encoding": "avro", "registry_conn_id": "registry"}
    pipeline.write_text(json.dumps({"topics": [topic], "values": values}))
    settings.write_text(json.dumps(registry.settings))
    kafka = ("--bootstrap-servers", bootstrap_servers, "--master", store_server.master)

    out, err = client(
        *("drain", archive, *kafka, "--pipeline", pipeline, "--registry-config", settings),
        *("--source-option", "maxOffsetsPerTrigger=20", "--json"),
    )

    result = json.loads(out)
    assert (result["records"], result["values"]["decoded"]) == (RECORDS, RECORDS)
    report = validate_archive(Archive.at(archive), cluster, deep=True)
    assert report.complete, report.findings
    rows = [
        row
        for file in committed_files(Archive.at(archive))
        for row in pq.read_table(BytesIO(UPath(file["path"]).read_bytes())).to_pylist()
    ]
    assert sorted(row["value_decoded"]["id"] for row in rows) == [*range(RECORDS)]
    target = f"{topic}.copy"
    client(
        *("republish", archive, *kafka, "--engine", "spark", "--target-topic", target),
        *("--create-target", "--apply"),
    )
    sent = {partition: [row[1] for row in rows] for partition, rows in read(target).items()}
    assert sent == {partition: [row[1] for row in rows] for partition, rows in read(topic).items()}
    for text in (out, err, store_server.said()):
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in text
        assert LOGIN.partition(":")[2] not in text

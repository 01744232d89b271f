"""Kafka or the Spark Connect server dies or hangs during a drain: it says so, ends, and resumes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from demo.broker import KafkaCluster as LocalKafka
from demo.broker.ports import free_ports
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.topic_watch import AWAY_SECONDS
from kafka_drain.spark.client_mode import GONE_SECONDS
from tests.brokers import SHORT_LIVED
from tests.filled_topic import RECORDS
from tests.spark_connect import Client, Server, assert_exact, client, start_client

pytestmark = [pytest.mark.integration, pytest.mark.connect]

#: A drain of a hundred batches, which lasts until something has died.
SLOW = ("--source-option", "maxOffsetsPerTrigger=20")
#: Within which what is waited for must be said.
SOON = 20.0
#: For what ends after its time: looks, the end of Spark, and a machine that is busy.
PATIENCE = 60.0


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[LocalKafka]:
    """A broker that a test may kill, with a topic of two partitions."""
    with LocalKafka(tmp_path / "kafka", java_options=SHORT_LIVED) as local:
        admin = AdminClient({"bootstrap.servers": local.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(30)
        producer = Producer({"bootstrap.servers": local.bootstrap_servers, "log_level": 0})
        for number in range(RECORDS):
            producer.produce("orders", b"%d" % number, partition=number % 2)
        assert producer.flush(30) == 0
        yield local


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that a test may kill."""
    (port,) = free_ports(1, ())
    found = Server(port, tmp_path / "server.log")
    found.start()
    yield found
    if not found.has_ended():
        found.stop()


def drain(tmp_path: Path, kafka: LocalKafka, server: Server) -> tuple[Any, ...]:
    """Return the words of a drain."""
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)
    archive = tmp_path / "archive"
    return ("drain", archive, "--topic", "orders", *servers, "--master", server.master)


def start_until_mid_query(tmp_path: Path, words: tuple[Any, ...]) -> Client:
    """Start a slow drain, and wait until it has committed a batch."""
    started = start_client(tmp_path / "client", *words, *SLOW)
    commits = tmp_path / "archive/generations/0001/checkpoint/commits"
    started.wait_until(lambda: len([*commits.glob("[0-9]*")]) > 1, "batches")
    return started


def seconds_until(started: Client, pattern: str) -> float:
    """Return the seconds from now until a command says something."""
    before = time.monotonic() - started.began
    return started.seconds_until_it_says(pattern) - before


def ends_within(started: Client, seconds: float) -> str:
    """Wait until a command fails; return what it said."""
    assert started.process.wait(seconds) == 1, started.said()
    return started.said()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_drain_broker_dies(
    number: signal.Signals, tmp_path: Path, own_kafka: LocalKafka, server: Server
) -> None:
    """A broker that died, or hangs, is named soon; the drain ends, and the next one goes on."""
    words = drain(tmp_path, own_kafka, server)
    started = start_until_mid_query(tmp_path, words)
    broker = own_kafka.pid(1)
    assert broker is not None

    if number == signal.SIGKILL:
        own_kafka.kill_node(1)
    else:
        os.kill(broker, number)

    servers = own_kafka.bootstrap_servers
    seconds = seconds_until(started, f"waiting: no response from Kafka at {servers}")
    said = ends_within(started, AWAY_SECONDS + PATIENCE)
    if number == signal.SIGKILL:
        own_kafka.start_node(1)
    else:
        os.kill(broker, signal.SIGCONT)
    assert seconds < SOON
    assert "refuses connections" in said or "accepts connections, but doesn't answer" in said
    client(*words)
    assert_exact(tmp_path / "archive", KafkaCluster(KafkaConfig({"bootstrap.servers": servers})))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_drain_server_dies(
    number: signal.Signals, tmp_path: Path, own_kafka: LocalKafka, own_server: Server
) -> None:
    """A server that died, or hangs, is named soon; the drain ends, and the next one goes on."""
    words = drain(tmp_path, own_kafka, own_server)
    started = start_until_mid_query(tmp_path, words)
    assert own_server.process is not None

    os.killpg(own_server.process.pid, number)

    missed = f"no Spark Connect server answers at {own_server.master}"
    seconds = seconds_until(started, f"waiting: {missed}")
    said = ends_within(started, GONE_SECONDS + PATIENCE)
    if number == signal.SIGKILL:
        own_server.process.wait()
        own_server.start()
    else:
        os.killpg(own_server.process.pid, signal.SIGCONT)
    assert seconds < SOON
    assert f"kafka-drain drain: the Spark Connect server stopped answering: {missed}" in said
    assert "RETRIES_EXCEEDED" not in said
    client(*words)
    assert_exact(
        tmp_path / "archive",
        KafkaCluster(KafkaConfig({"bootstrap.servers": own_kafka.bootstrap_servers})),
    )


def test_drain_leaves_no_error_in_the_servers_log(
    tmp_path: Path, own_kafka: LocalKafka, own_server: Server
) -> None:
    """A drain that succeeds asks the server for nothing that it would log as an error."""
    before = len(own_server.said())

    for name in ("parquet", "avro"):
        client(*drain(tmp_path / name, own_kafka, own_server), "--format", name)

    assert " ERROR " not in own_server.said()[before:]

"""Three brokers, one of which at a time is killed and comes back: all results are exact."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import TransientError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.sending import shard_sender as sending
from tests.brokers import SHORT_LIVED
from tests.brute_force import refuse_inexact
from tests.conftest import Drain
from tests.faults.conftest import Start
from tests.faults.injection import wait_for
from tests.faults.republishing import audit, read_topic, send_all

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

NODES = 3
PARTITIONS = 6
RECORDS = 3_000
PATIENCE = 240.0

T = TypeVar("T")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Three brokers; topics have three replicas, two of which must be in sync."""
    # A killed broker may come back after that time, instead of only after 9 s.
    quick = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
    folder = tmp_path_factory.mktemp("three-brokers")
    with LocalKafka(
        folder / "kafka", nodes=NODES, properties=quick, heap="384m", java_options=SHORT_LIVED
    ) as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap_servers(local: LocalKafka) -> str:
    """Their addresses, for everything in this module."""
    return local.bootstrap_servers


@pytest.fixture(scope="module")
def cluster(bootstrap_servers: str) -> KafkaCluster:
    """The same brokers, as the product sees them."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))


def topic_on_all(bootstrap: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(name, PARTITIONS, NODES, config={"retention.ms": "-1"})
    admin.create_topics([new])[name].result(30)
    wait_for(lambda: replicas_in_sync(bootstrap) == {NODES}, "three replicas of all")
    return name


def replicas_in_sync(bootstrap: str) -> set[int]:
    """Return the numbers of in-sync replicas of partitions on all brokers."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        topics = client.list_topics(timeout=5).topics.values()
    except KafkaException:
        return set()
    partitions = [p for found in topics for p in found.partitions.values()]
    return {len(p.isrs) for p in partitions if len(p.replicas) == NODES}


@contextmanager
def brokers_killed_in_turn(local: LocalKafka) -> Iterator[threading.Event]:
    """Kill and restart each broker in turn while the body runs; yields the event of the end."""
    ended = threading.Event()
    failures: list[BaseException] = []
    servers = local.bootstrap_servers

    def kill_in_turn() -> None:
        try:
            for node in range(1, NODES + 1):
                local.kill_node(node)
                wait_for(lambda: max(replicas_in_sync(servers), default=9) < NODES, "its absence")
                local.start_node(node)
                wait_for(lambda: replicas_in_sync(servers) == {NODES}, "its return")
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=kill_in_turn)
    thread.start()
    try:
        yield ended
    finally:
        thread.join()
    assert not failures, failures


def until_done(attempt: Callable[[], T]) -> T:
    """Retry as Airflow does: only after errors that a retry may help."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except TransientError:
            assert time.monotonic() < deadline


def test_brokers_killed_in_turn(
    tmp_path: Path,
    local: LocalKafka,
    bootstrap_servers: str,
    cluster: KafkaCluster,
    drain: Drain,
    republish: Any,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drains and a republish continue while brokers fail: each offset and each record once.

    Both at the same time, because killing three brokers and waiting for each takes half a minute.
    """
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", 100)
    monkeypatch.setattr(sending, "STEP", 50)
    drained, source, target = (topic_on_all(bootstrap_servers) for _ in range(3))
    send_all(bootstrap_servers, source, PARTITIONS, RECORDS)
    sealed = Archive.at(tmp_path / "sealed")
    drain(Pipeline(name="sealed", topics=[source], archive=str(sealed.root)))
    assert validate_archive(sealed, cluster).complete
    growing = Pipeline(name="growing", topics=[drained], archive=str(tmp_path / "growing"))
    # As long as it takes to kill and restart three brokers.
    slowly = RECORDS / 12

    with ThreadPoolExecutor(1) as pool, brokers_killed_in_turn(local) as ended:
        sent = pool.submit(
            until_done,
            lambda: republish(sealed, target, run_name="three", records_per_second=slowly),
        )
        while not ended.is_set():
            send_all(bootstrap_servers, drained, PARTITIONS, RECORDS)
            until_done(lambda: start(growing).finish())
        receipt = sent.result(PATIENCE)
    until_done(lambda: start(growing).finish())

    archive = Archive.at(growing.archive)
    report = validate_archive(archive, cluster, deep=True)
    assert (report.complete, report.findings) == (True, [])
    refuse_inexact(archive, cluster, drained, PARTITIONS)
    assert receipt["records"] == RECORDS
    records = [read_topic(bootstrap_servers, name) for name in (source, target)]
    assert audit(*records).is_exact

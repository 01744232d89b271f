"""Drains before it is too late: what a real broker says of lag and retention, and of nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.archive.watermarks import observe, write_observations
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain_airflow.operators.watch import WatchOperator
from kafka_drain_airflow.triggers import BacklogTrigger
from tests.brokers import SHORT_LIVED
from tests.kafka_drain.drain.test_preflight import drain_batch

pytestmark = pytest.mark.integration

HOUR = 3600


class NoRuns:
    """A task instance of an Airflow in which nothing has run."""

    def get_dr_count(self, **_: Any) -> int:
        return 0


CONTEXT: Any = {"ti": NoRuns()}


@pytest.fixture
def connection(bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's connection to the one broker of this test run."""
    connect(monkeypatch, "KAFKA_DEFAULT", bootstrap_servers)


def connect(monkeypatch: pytest.MonkeyPatch, name: str, servers: str) -> None:
    extra = {"bootstrap.servers": servers, "socket.timeout.ms": "1500"}
    connection = {"conn_type": "kafka", "extra": extra}
    monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))


def drained(folder: Path, cluster: KafkaCluster, topic: str, upto: int, **watch: Any) -> Pipeline:
    """Return a pipeline whose archive says that partition 0 is drained to an offset."""
    pipeline = Pipeline(
        name="p", topics=[topic], archive=str(folder / topic), watch=watch, schedule=None
    )
    tp = TopicPartition(topic, 0)
    archive = Archive.at(pipeline.archive)
    ids = {topic: cluster.topics([topic])[topic].id}
    archive.create(pipeline="p", cluster_id=cluster.cluster_id(), topic_ids=ids, source={})
    generation = archive.generation(1)
    generation.write(
        starting_offsets={tp: 0},
        file_format="parquet",
        partition_by=["topic", "date"],
        topic_ids=ids,
        reason="first",
    )
    drain_batch(generation, 0, {tp: upto})
    return pipeline


def waits(operator: WatchOperator) -> BacklogTrigger:
    """Run a watch that finds nothing due; return what Airflow would give to the triggerer."""
    with pytest.raises(TaskDeferred) as raised:
        operator.execute(CONTEXT)
    _, arguments = raised.value.trigger.serialize()
    return BacklogTrigger(**json.loads(json.dumps(arguments)))


async def event_of(trigger: BacklogTrigger) -> Any:
    return [event.payload async for event in trigger.run()]


def operator_of(*pipelines: Pipeline) -> WatchOperator:
    return WatchOperator(task_id="watch", pipelines=pipelines, poll_seconds=0.2)


@pytest.mark.usefixtures("connection")
def test_watch_lag(tmp_path: Path, cluster: KafkaCluster, make_topic: Any, send: Any) -> None:
    """Records that arrive while the trigger waits end the wait, and their drain is started once."""
    topic = make_topic(partitions=1)
    send(topic, [(b"k", b"v", None, 0)] * 15)
    operator = operator_of(drained(tmp_path, cluster, topic, 10, lag=10))
    trigger = waits(operator)

    async def wait_and_send() -> Any:
        waiting = asyncio.create_task(event_of(trigger))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await asyncio.to_thread(send, topic, [(b"k", b"v", None, 0)] * 5)
        return await asyncio.wait_for(waiting, 30)

    reason = "a lag of 10 offsets reached the limit of 10"
    assert asyncio.run(wait_and_send()) == [{"p": reason}]
    (run,) = operator.resume(CONTEXT, {"p": reason})
    assert (run["trigger_dag_id"], run["conf"]) == ("drain_p", {"reason": reason})


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize(("upto", "expiring"), [(0, 3), (2, 1), (3, 0)])
def test_watch_expiring(
    upto: int,
    expiring: int,
    tmp_path: Path,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
) -> None:
    """A drain is due a quarter of an hour before the oldest undrained record is an hour old."""
    topic = make_topic(partitions=1, retention_ms=str(HOUR * 1000))
    now = int(time.time())
    ages = [3000, 2800, 2750, 2000, 10]
    send(topic, [(b"k", b"v", None, (now - age) * 1000) for age in ages])
    operator = operator_of(drained(tmp_path, cluster, topic, upto, hours_to_expiry=0.25))

    if expiring:
        (run,) = operator.execute(CONTEXT)
        said = f"{expiring} offsets of {topic}-0 expire within 0.25 h, by retention.ms"
        assert run["conf"] == {"reason": said}
    else:
        trigger = waits(operator)
        assert trigger.reasons() == {}
        assert trigger._said == {}  # Kafka answered.


@pytest.mark.usefixtures("connection")
def test_watch_first_offset_moves(
    tmp_path: Path, cluster: KafkaCluster, make_topic: Any, send: Any, bootstrap_servers: str
) -> None:
    """Deletions by size, which no client can foresee, are seen by the first offset's progress."""
    topic = make_topic(partitions=1)
    send(topic, [(b"k", b"v", None, 0)] * 100)
    pipeline = drained(tmp_path, cluster, topic, 60, hours_to_expiry=1)
    archive = Archive.at(pipeline.archive)
    before = time.time() - 600
    write_observations(
        archive, observe({}, {TopicPartition(topic, 0): KafkaBounds(0, 60, 60)}, "run", before)
    )
    operator = operator_of(pipeline)
    trigger = waits(operator)

    delete_records(bootstrap_servers, topic, 50)

    (reason,) = trigger.reasons().values()
    assert reason.startswith(
        f"at the rate of its deletions, Kafka reaches undrained offsets of {topic}-0 in 2 min"
    )
    (run,) = operator.resume(CONTEXT, {"p": reason})
    assert run["conf"]["reason"].startswith("at the rate of its deletions")


@pytest.mark.usefixtures("connection")
def test_watch_too_late(
    tmp_path: Path, cluster: KafkaCluster, make_topic: Any, send: Any, bootstrap_servers: str
) -> None:
    """What is lost wakes the watch, and starts one drain, which fails with the offsets' names."""
    topic = make_topic(partitions=1)
    send(topic, [(b"k", b"v", None, 0)] * 20)
    operator = operator_of(drained(tmp_path, cluster, topic, 5, lag=50))
    trigger = waits(operator)

    delete_records(bootstrap_servers, topic, 8)

    assert trigger.reasons() == {"p": f"3 offsets of {topic}-0 expired before they were drained"}
    (run,) = operator.resume(CONTEXT, trigger.reasons())
    assert run["trigger_run_id"].startswith("watch_refused__")
    assert f"{topic}:0:5-8" in run["conf"]["reason"]


def delete_records(servers: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for future in admin.delete_records([KafkaTopicPartition(topic, 0, before)]).values():
        future.result(30)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[LocalKafka]:
    """A broker that a test may stop; it keeps its port."""
    with LocalKafka(tmp_path / "kafka", java_options=SHORT_LIVED) as broker:
        yield broker


def test_watch_broker_stopped(
    tmp_path: Path, own_broker: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is down starts nothing and ends nothing; once it is back, the wait goes on."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewTopic

    servers = own_broker.bootstrap_servers
    connect(monkeypatch, "KAFKA_DEFAULT", servers)
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic("t", 1)])["t"].result(20)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))
    operator = operator_of(drained(tmp_path, cluster, "t", 0, lag=10))
    trigger = waits(operator)

    own_broker.stop()
    assert trigger.reasons() == {}
    down = waits(operator)
    assert down.watched == []
    until = datetime.fromisoformat(down.until) - datetime.now(timezone.utc)
    assert until <= timedelta(minutes=15)

    own_broker.start()
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(10):
        producer.produce("t", b"%d" % number)
    assert producer.flush(30) == 0
    found = asyncio.run(asyncio.wait_for(event_of(trigger), 60))
    assert found == [{"p": "a lag of 10 offsets reached the limit of 10"}]

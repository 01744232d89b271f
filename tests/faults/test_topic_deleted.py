"""Topics deleted while they are read or sent to, where Kafka creates what is asked for.

`auto.create.topics.enable` is Kafka's own default: a client that asks for a deleted topic brings it
back, empty, with another id and perhaps other partitions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.clock import utc_now
from kafka_drain.errors import DeliveryError, KafkaUnavailableError, TopicError
from kafka_drain.evidence.witness import WitnessTopic
from kafka_drain.kafka.client_config import KafkaConfig, for_client
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import plan_republish
from tests.brokers import SHORT_LIVED
from tests.faults.injection import NOON, SLOW, wait_for
from tests.faults.republishing import make_target
from tests.integration.command_line import kafka_drain, start_kafka_drain
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration

#: Far less than the two minutes of Spark's consumer, or the 45 seconds of a producer.
SOON = 45.0


@pytest.fixture(scope="module")
def creating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker that creates topics, as Kafka is delivered."""
    folder = tmp_path_factory.mktemp("creating") / "kafka"
    properties = {"auto.create.topics.enable": "true", "num.partitions": "3"}
    with LocalKafka(folder, properties=properties, java_options=SHORT_LIVED) as local:
        yield local.bootstrap_servers


@pytest.fixture
def there(creating: str) -> KafkaCluster:
    """That broker, as the product sees it."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": creating}))


def send_batches(servers: str, topic: str, batches: int, size: int = 5) -> None:
    """Send record batches that a slow drain fetches one by one."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "log_level": 0})
    for number in range(batches):
        for record in range(size):
            producer.produce(topic, b"%d-%d" % (number, record), partition=0, timestamp=NOON)
        assert producer.flush(30) == 0


def delete(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)


def seconds_until_end(command: Any) -> float:
    began = time.monotonic()
    command.join(200)
    assert command.exitcode == 1
    return time.monotonic() - began


# 420


def test_clients_create_no_topic(creating: str, there: KafkaCluster) -> None:
    """Neither a request about a topic nor a record for it creates one, whichever client sends it.

    Not even for a producer that has sent to the topic before it was deleted.
    """
    topic = make_target(creating, "sent-to", 1)
    settings = for_client(
        there.config.for_librdkafka(), {"log_level": 0, "topic.metadata.refresh.interval.ms": 200}
    )
    producer = Producer(settings)
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(30) == 0
    delete(creating, topic)

    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        producer.produce(topic, b"later", partition=0)
        producer.poll(0.1)
    producer.list_topics("asked-for", timeout=20)
    there.admin.ask(lambda admin: admin.list_topics("asked-for-too", timeout=20))
    quick = KafkaCluster(there.config, timeout_seconds=1)
    with pytest.raises(KafkaUnavailableError):
        quick.latest([TopicPartition("ends-of", 0)], "read_uncommitted")

    assert not {topic, "asked-for", "asked-for-too", "ends-of"} & set(there.topic_names())
    producer.purge()


def test_witness_topic_deleted_meanwhile(creating: str, there: KafkaCluster) -> None:
    """A witness that is deleted between reading and appending isn't begun again."""
    topic = make_target(creating, "witness", 1)
    witness = WitnessTopic(there, topic)
    assert witness.append(lambda _: b"one\n")

    def next_line(_: list[bytes]) -> bytes:
        delete(creating, topic)
        wait_for(lambda: topic not in there.topic_names(), "its end")
        return b"two\n"

    with pytest.raises(DeliveryError, match="kafka:witness"):
        witness.append(next_line)

    assert topic not in there.topic_names()


# 421


def test_drain_topic_deleted_meanwhile(creating: str, there: KafkaCluster, tmp_path: Path) -> None:
    """The drain ends soon, says which topic was deleted, and doesn't bring it back."""
    stays, gone = make_target(creating, "stays", 1), make_target(creating, "gone", 1)
    for topic in (stays, gone):
        send_batches(creating, topic, 400)
    id = there.topics([gone])[gone].id
    archive = tmp_path / "archive"
    options = [f"--source-option={name}={value}" for name, value in SLOW.items()]

    running = start_kafka_drain(
        tmp_path,
        *("drain", archive, "--bootstrap-servers", creating, "--topic", stays, "--topic", gone),
        *options,
    )
    data = archive / "generations" / "0001" / "data"
    wait_for(lambda: any(data.rglob("*.parquet")), "the first file", patience=180)
    delete(creating, gone)
    took = seconds_until_end(running)

    said = (tmp_path / "err").read_text() + (tmp_path / "out").read_text()
    assert f"topic gone with id {id} was deleted while it was being drained" in said, said
    assert gone not in there.topic_names()
    assert took < SOON
    again = kafka_drain("drain", archive, "--bootstrap-servers", creating, "--topic", gone)
    assert "topic gone doesn't exist" in again.err
    assert gone not in there.topic_names()


# 422


def made_for(there: KafkaCluster, tmp_path: Path, records: int) -> MadeArchive:
    """An archive of topic big."""
    made = MadeArchive(tmp_path / "archive", {"big": "1"}, there.cluster_id())
    made.seal_window("all", {TopicPartition("big", 0): dense(0, records)})
    return made


def test_republish_target_deleted_meanwhile(
    creating: str, there: KafkaCluster, tmp_path: Path
) -> None:
    """A republish ends soon, says which topic was deleted, and doesn't bring it back."""
    made = made_for(there, tmp_path, 60_000)
    target = make_target(creating, "copy", 1)
    id = there.topics([target])[target].id

    running = start_kafka_drain(
        tmp_path,
        *("republish", made.root, "--bootstrap-servers", creating, "--target-topic", target),
        *("--apply", "--engine", "worker", "--processes", 1, "--records-per-second", 500),
    )
    wait_for(
        lambda: sum(there.latest([TopicPartition(target, 0)], "read_uncommitted").values()) > 0,
        "the first record",
    )
    delete(creating, target)
    took = seconds_until_end(running)

    said = (tmp_path / "err").read_text() + (tmp_path / "out").read_text()
    assert f"topic {target} with id {id} was deleted while run" in said, said
    assert target not in there.topic_names()
    assert took < SOON


def test_republish_target_made_again_by_sink(
    creating: str, there: KafkaCluster, tmp_path: Path
) -> None:
    """A topic that the sender itself made never counts as the one that was deleted.

    Java's producer, which Spark's sink uses, has no setting that keeps it from creating a topic. In
    its place is librdkafka's with its own default, which does the same.
    """
    made = made_for(there, tmp_path, 100)
    target = make_target(creating, "sunk", 1)
    id = there.topics([target])[target].id

    def sink(*_: Any) -> None:
        delete(creating, target)
        wait_for(lambda: target not in there.topic_names(), "its end")
        java = Producer({"bootstrap.servers": creating, "log_level": 0})
        java.produce(target, b"value")
        assert java.flush(30) == 0

    request = RepublishRequest(target_topic=target, delivery="at_least_once")
    planned = plan_republish(made.archive, there, request, now=utc_now(), apply=True)

    with pytest.raises(TopicError) as raised:
        planned.execute(sink, utc_now)  # type: ignore[arg-type]

    assert f"topic {target} with id {id}, which has been recreated since" in str(raised.value)
    assert planned.run.receipt() is None

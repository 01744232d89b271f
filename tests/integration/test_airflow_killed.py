"""Tasks that Airflow kills, or whose API server is gone when they end, and their retries.

Airflow's own supervisor and task runner run each task; see tests/airflow_worker.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plans import list_plans
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from tests.airflow_worker import HOUR, NOON, Task, Worker, airflow_worker, at
from tests.brute_force import data_files, offsets_in_files, refuse_inexact

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.skipif(
        version("apache-airflow").startswith("2."), reason="Airflow 2 has no supervisor of tasks"
    ),
]

PARTITIONS = 2
FIRST_BATCH = "generations/0001/data/_spark_metadata/0"
#: Number of records per hour in each partition.
RECORDS = (2_000, 200)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str) -> Iterator[Worker]:
    """A worker of Airflow: no scheduler, no API server, no database."""
    with airflow_worker(tmp_path_factory.mktemp("airflow"), bootstrap_servers) as running:
        yield running


def make_pipeline(worker: Worker, bootstrap_servers: str, archive: Path) -> Pipeline:
    """Make a topic of two hours, and DAGs whose drain begins with the second hour, in batches."""
    topic = "two-hours"
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.create_topics([new])[topic].result(20)
    # One that sends a batch again after another would mix the hours.
    settings = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings)
    for hour in (0, 1):
        for partition, records in enumerate(RECORDS):
            for n in range(records):
                producer.produce(
                    topic, b"%d" % n, b"k", partition, timestamp=NOON + hour * HOUR + n
                )
    assert producer.flush(30) == 0
    made = Pipeline(
        name="drained",
        topics=[topic],
        archive=str(archive),
        partition_by=["topic"],
        source_options={"startingTimestamp": at(NOON + HOUR), "maxOffsetsPerTrigger": 1_500},
    )
    worker.write_dags(made)
    return made


@dataclass
class Drained:
    """An archive of the second hour: one try of its drain was killed, one had no API server.

    Attributes:
        worker: Airflow's worker.
        pipeline: The pipeline.
        killed: The try that Airflow ended when it had committed a first batch.
        left: What still ran of it a moment after its end.
        unheard: The try after it, whose API server went away when it pushed its result.
    """

    worker: Worker
    pipeline: Pipeline
    killed: Task
    left: list[str]
    unheard: Task

    @property
    def topic(self) -> str:
        """The source."""
        return (self.pipeline.topics or [""])[0]

    @property
    def archive(self) -> Archive:
        """The archive."""
        return Archive.at(self.pipeline.archive)

    def drain(self, **options: Any) -> Task:
        """Start an attempt of the drain."""
        return self.worker.start("drain_drained", "drain", **options)

    def republish(self, target: str, is_gone_at: str | None = None, **more: Any) -> Task:
        """Start an attempt to send the second hour to another topic."""
        form = {
            "apply": True,
            "engine": "worker",
            "target_topic": target,
            "from_time": at(NOON + HOUR),
            **more,
        }
        return self.worker.start(
            "republish_drained", "republish", is_gone_at, run_id=target, conf=form
        )


@pytest.fixture(scope="module")
def drained(
    worker: Worker, bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Drained:
    """Drain an archive in two attempts, each with its fault."""
    archive = tmp_path_factory.mktemp("drained") / "archive"
    pipeline = make_pipeline(worker, bootstrap_servers, archive)
    killed = worker.start("drain_drained", "drain")
    killed.wait_until((archive / FIRST_BATCH).exists, "a first batch")
    assert worker.runs_spark()
    worker.terminate()
    killed.end()
    left = worker.left_processes()
    unheard = worker.start("drain_drained", "drain", is_gone_at="/return_value")
    unheard.end()
    return Drained(worker, pipeline, killed, left, unheard)


def test_drain_killed(drained: Drained, cluster: KafkaCluster) -> None:
    """If Airflow kills a drain between two batches, Spark exits too, and the retry is exact."""
    assert drained.killed.server.states == ["up_for_retry"], drained.killed.said()[-3000:]
    assert drained.left == []
    assert validate_archive(drained.archive, cluster).complete
    assert offsets_in_files(drained.archive) == second_hours_offsets()


def test_drain_without_api_server(drained: Drained, cluster: KafkaCluster) -> None:
    """A drain that ends without an API server has drained all; the next finds nothing new."""
    folder = str(drained.archive.root)
    before = data_files(folder)
    assert drained.unheard.is_unheard(), drained.unheard.said()[-3000:]

    again = drained.drain().result()

    assert (again["batches"], again["records"]) == (0, 0)
    assert data_files(folder) == before
    assert validate_archive(drained.archive, cluster).complete
    assert offsets_in_files(drained.archive) == second_hours_offsets()


def test_republish_without_api_server(
    drained: Drained,
    cluster: KafkaCluster,
    make_topic: Callable[..., str],
    read: Callable[[str], Any],
) -> None:
    """A republish that ends without an API server has sent everything; the retry sends nothing."""
    assert validate_archive(drained.archive, cluster).complete
    target = make_topic(PARTITIONS)

    unheard = drained.republish(target, is_gone_at="/state")

    unheard.end()
    assert unheard.is_unheard(), unheard.said()[-3000:]
    sent = cluster.latest(partitions_of(target), "read_uncommitted")
    again = drained.republish(target).result()
    assert (again["records_sent"], again["records"]) == (0, sum(RECORDS))
    assert cluster.latest(partitions_of(target), "read_uncommitted") == sent
    assert read(target) == second_hour(read(drained.topic))


@pytest.mark.parametrize(
    ("processes", "is_marked"), [(1, True), (2, False)], ids=["marked-failed", "two-processes"]
)
def test_republish_killed(
    processes: int,
    is_marked: bool,
    drained: Drained,
    cluster: KafkaCluster,
    make_topic: Callable[..., str],
    read: Callable[[str], Any],
) -> None:
    """A republish that Airflow kills while it sends leaves no process and no open transaction.

    The retry sends the missing records: nothing is lost, nothing is duplicated.
    """
    assert validate_archive(drained.archive, cluster).complete
    drained.worker.write_dags(drained.pipeline, sum(RECORDS) // processes)
    target = make_topic(PARTITIONS)
    under_way, small = partitions_of(target)
    # The large partition takes four seconds.
    killed = drained.republish(target, records_per_second=RECORDS[0] // 2)
    killed.wait_until(lambda: is_half_way(cluster, target), "a partition that is done")
    running = drained.worker.processes().values()

    if is_marked:
        killed.server.is_marked_failed.set()
    else:
        drained.worker.terminate()

    killed.end()
    senders = [command for command in running if "engines.worker_main" in command]
    assert len(senders) == (processes if processes > 1 else 0)
    assert killed.server.states == ([] if is_marked else ["up_for_retry"]), killed.said()[-3000:]
    assert killed.server.results == []
    assert drained.worker.left_processes() == []
    ends = [
        cluster.latest([under_way, small], level)
        for level in ("read_committed", "read_uncommitted")
    ]
    assert ends[0] == ends[1]
    again = drained.republish(target).result()
    assert again["records_sent"] == RECORDS[0]
    assert (again["verification"]["lost"], again["verification"]["twice"]) == (0, 0)
    assert read(target) == second_hour(read(drained.topic))


def test_approved_republish_killed(
    drained: Drained,
    cluster: KafkaCluster,
    make_topic: Callable[..., str],
    read: Callable[[str], Any],
) -> None:
    """The process that carries out an approved plan is killed: the retry ends exactly that plan.

    What a try was asked for beside the plan's id doesn't count, and a further try sends nothing.
    """
    assert validate_archive(drained.archive, cluster).complete
    target = make_topic(PARTITIONS)
    seen = drained.republish(
        target, apply=False, records_per_second=RECORDS[0] // 2, to_time=at(NOON + 2 * HOUR)
    ).result()
    assert seen["records"] == sum(RECORDS)
    plan = {"plan_id": seen["plan_id"], "from_time": at(NOON)}
    killed = drained.republish(target, **plan)
    killed.wait_until(lambda: is_half_way(cluster, target), "a partition that is done")

    drained.worker.kill_task()

    killed.end()
    assert (killed.server.results, drained.worker.left_processes()) == ([], [])
    again, further = (drained.republish(target, **plan).result() for _ in range(2))
    assert (again["records_sent"], further["records_sent"]) == (RECORDS[0], 0)
    assert (again["verification"]["lost"], again["verification"]["twice"]) == (0, 0)
    assert read(target) == second_hour(read(drained.topic))
    [plan_id] = list_plans(drained.archive.root)
    assert plan_id == seen["plan_id"]


def test_republish_killed_before_commit(
    drained: Drained,
    cluster: KafkaCluster,
    make_topic: Callable[..., str],
    read: Callable[[str], Any],
) -> None:
    """Airflow may retry a republish that it killed just before its commit."""
    assert validate_archive(drained.archive, cluster).complete
    target = make_topic(PARTITIONS)
    tp = partitions_of(target)[1]
    # Ten records of one file, about forty bytes: all are sent, and their commit takes seconds.
    few = [f"{drained.topic}:1:390-400"]
    killed = drained.republish(target, offsets=few, bytes_per_second=10)
    killed.wait_until(lambda: cluster.latest([tp], "read_uncommitted")[tp] > 0, "a record")

    drained.worker.terminate()

    killed.end()
    assert killed.server.states == ["up_for_retry"], killed.said()[-3000:]
    again = drained.republish(target, offsets=few).result()
    assert again["records_sent"] == 10
    assert read(target)[1] == second_hour(read(drained.topic))[1][-10:]


def test_window_killed(drained: Drained, cluster: KafkaCluster) -> None:
    """If Airflow kills a backfill's drain, Spark exits too, and the retry is exact."""
    run = {
        "run_id": "backfill",
        "run_type": "backfill",
        "data_interval_start": at(NOON),
        "data_interval_end": at(NOON + HOUR),
    }
    assert validate_archive(drained.archive, cluster).complete
    killed = drained.drain(**run)
    killed.wait_until(drained.worker.runs_spark, "Spark")

    drained.worker.terminate()

    killed.end()
    assert killed.server.states == ["up_for_retry"], killed.said()[-3000:]
    assert drained.worker.left_processes() == []
    again = drained.drain(**run).result()
    assert again["records"] == sum(RECORDS)
    assert validate_archive(drained.archive, cluster).complete
    refuse_inexact(drained.archive, cluster, drained.topic, PARTITIONS)


def partitions_of(topic: str) -> list[TopicPartition]:
    """Return a topic's partitions."""
    return [TopicPartition(topic, partition) for partition in range(PARTITIONS)]


def is_half_way(cluster: KafkaCluster, target: str) -> bool:
    """Return whether one partition is done, and the other's records wait for their commit."""
    under_way, small = partitions_of(target)
    if cluster.latest([under_way], "read_uncommitted")[under_way] == 0:
        return False
    done = cluster.latest([under_way, small], "read_committed")
    return done[small] > 0 and done[under_way] == 0


def second_hour(read: dict[int, list[Any]]) -> dict[int, list[Any]]:
    """Return the records of the second hour, by partition."""
    return {
        partition: [record for record in records if record[3] >= NOON + HOUR]
        for partition, records in read.items()
    }


def second_hours_offsets() -> dict[tuple[int, int], int]:
    """Return partition and offset of each record in the second hour, once."""
    return {
        (partition, records + n): 1
        for partition, records in enumerate(RECORDS)
        for n in range(records)
    }

"""Brokers that tell neither topic ids nor the cluster's: what ids can't say, records do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import DataLossError
from kafka_drain.findings import summary
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_state import ASKED, PartOutcome
from kafka_drain.kafka.describing import ClusterDescriber
from kafka_drain.kafka.identity import NO_TOPIC_ID
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.roll import plan_roll, roll
from tests.conftest import Drain
from tests.faults.injection import NOON, wait_for
from tests.faults.old_broker import kafka_without_ids

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker whose clients get no ids."""
    with kafka_without_ids(tmp_path_factory.mktemp("old")) as (_, address):
        yield address


@pytest.fixture(scope="module")
def cluster(bootstrap_servers: str) -> KafkaCluster:
    """The same broker, as the product sees it."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))


def records(name: str, count: int) -> list[Any]:
    return [(b"k", b"%s-%d" % (name.encode(), n), None, NOON + n) for n in range(count)]


def test_drain_topic_made_again_without_ids(
    archive_folder: str,
    drain: Drain,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    make_topic: Any,
    send: Any,
    read: Any,
) -> None:
    """A topic made again is refused by its records; a roll archives both, each record once."""
    topic = make_topic(partitions=1)
    pipeline, archive = (
        Pipeline(name="p", topics=[topic], archive=archive_folder),
        Archive.at(archive_folder),
    )
    send(topic, records("old", 20))
    warned = preflight(pipeline, cluster).warnings
    drain(pipeline)
    report = validate_archive(archive, cluster)

    assert cluster.topics([topic])[topic].id == NO_TOPIC_ID
    assert cluster.cluster_id() == ""
    assert [line for line in warned if "tells no" in line] == warned
    assert len(warned) == 2
    assert (report.complete, report.receipts_written) == (True, 1)
    assert summary(report.findings) == {"identity_untold": 2}

    send(topic, records("more", 5))
    drain(pipeline)
    assert validate_archive(archive, cluster).receipts_written == 1

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in cluster.topic_names(), "a deleted topic")
    make_topic(partitions=1, name=topic)
    send(topic, records("new", 30))
    with pytest.raises(DataLossError) as raised:
        drain(pipeline)
    assert f"{topic}-0 from offset 0 on (offset 24 has another record" in str(raised.value)
    report = validate_archive(archive, cluster, deep=True)
    assert summary(report.findings) == {"identity_untold": 2, "log_rewritten": 1}

    roll(plan_roll(archive, cluster, rewritten=True))
    drain(pipeline)
    report = validate_archive(archive, cluster, deep=True)
    assert (report.complete, report.records, report.receipts_written) == (True, 55, 1)
    assert summary(report.findings) == {"identity_untold": 2}
    assert drain(pipeline)["batches"] == 0


def test_look_without_ids(cluster: KafkaCluster) -> None:
    """A cluster without an id can be watched; confluent-kafka would crash on describing it."""
    state = ClusterDescriber(cluster.config).describe([])

    assert (cluster.look(), cluster.look()) == (None, None)
    assert state.cluster_id == ""
    assert {state.parts[part].outcome for part in ASKED} == {PartOutcome.UNANSWERED}

"""The way past a record that can't be stored unchanged loses only that record."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from kafka_drain.archive.archive import Archive
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import DataLossError, SourceRecordError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.unkept_records import WAY_OUT
from kafka_drain.windows.roll import plan_roll, roll
from tests.integration.test_contents import ANY_TIME, records

pytestmark = pytest.mark.integration

#: Where the record is, after records that can be stored.
OFFSET = 23


def test_drain_past_unkept_record(
    archive_folder: str,
    drain: Any,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    bootstrap_servers: str,
) -> None:
    """After draining up to it in smaller and smaller batches, only that record must be deleted."""
    topic = make_topic(partitions=2, **ANY_TIME)
    send(topic, records(7), partition=0)
    send(topic, records(OFFSET), partition=1)
    send(topic, [(b"k", b"v", None, 1 << 62)], partition=1)
    send(topic, records(4), partition=1)
    archive, last = Archive.at(archive_folder), TopicPartition(topic, 1)
    pipeline = Pipeline(name="times", topics=[topic], archive=archive_folder)
    with pytest.raises(SourceRecordError, match=f"{topic}-1 offset {OFFSET}: ") as raised:
        drain(pipeline)
    assert WAY_OUT in str(raised.value)
    for step in ("validate", "roll", "maxOffsetsPerTrigger", "delete", "--acknowledge-expired"):
        assert step in WAY_OUT

    for limit in ("10", "1"):
        validate_archive(archive, cluster)
        roll(plan_roll(archive, cluster))
        small = pipeline.model_copy(update={"source_options": {"maxOffsetsPerTrigger": limit}})
        with pytest.raises(SourceRecordError, match=f"{topic}-1 offset {OFFSET}: "):
            drain(small)

    report = validate_archive(archive, cluster)
    assert (report.complete, report.cursor[last]) == (True, OFFSET)
    wanted = KafkaTopicPartition(topic, 1, OFFSET + 1)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_records([wanted])[wanted].result(30)
    with pytest.raises(DataLossError, match=rf"{topic}-1 \[{OFFSET}, {OFFSET + 1}\)"):
        drain(pipeline)
    accepted = [f"{topic}:1:{OFFSET}-{OFFSET + 1}"]
    drain(pipeline, acknowledged=parse_ranges("accepted", accepted))
    report = validate_archive(archive, cluster, acknowledged=parse_ranges("accepted", accepted))

    assert report.complete
    assert report.records == 7 + OFFSET + 4

"""What of a record is different when it is sent: schema ids, and headers that say its source."""

from __future__ import annotations

from kafka_drain.data_files.rows import rows_of
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ProgressSlot, Shard
from kafka_drain.republish.sending.arrow_records import provenance, with_schema_ids
from kafka_drain.schemas.schema_ids import SchemaIds
from tests.kafka_drain.data_files.test_rows import batch_of


def test_provenance() -> None:
    """The headers name topic, partition and offset of the source."""
    source = TopicPartition("flights", 3)
    shard = Shard(0, source, "id", "copy", 3, Rows(), (), ProgressSlot("g", source))

    assert provenance(shard, 42) == [
        ("kafka-drain.topic", b"flights"),
        ("kafka-drain.partition", b"3"),
        ("kafka-drain.offset", b"42"),
    ]


def test_with_schema_ids() -> None:
    """Records are sent with the ids of their plan's map, by the topic that they came from."""
    shard = Shard(
        0, TopicPartition("t", 0), "", "u", 0, Rows(), (), ProgressSlot("g", TopicPartition("u", 0))
    )
    batch = batch_of([(b"\0\0\0\0\1k", b"\0\0\0\0\1v", None, 5, 0)])
    ids = SchemaIds({1: 2}, {}, frozenset({"t:key", "u:value"}))

    [found] = with_schema_ids(iter([batch]), shard, ids)

    assert list(rows_of(found)) == [(b"\0\0\0\0\1k", b"\0\0\0\0\2v", None, 5, 0)]
    assert list(with_schema_ids(iter([batch]), shard, None)) == [batch]

"""A header name with a NUL, which Kafka's C client cuts off there: no sign of another record."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upath import UPath

from kafka_drain.archive.receipts import SealedTail
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.records import read_records
from kafka_drain.kafka.single_records import read_single_records
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.committed_file import read_all
from kafka_drain.proof.content_checks import SegmentFiles
from kafka_drain.proof.rereading import compare_with_kafka
from kafka_drain.proof.rewritten_log import LogNow, LogVerdict, compare_tail
from tests.kafka_drain.made_archive import EPOCH
from tests.kafka_drain.raw_batches import mock_broker, send_raw

TP = TopicPartition("t", 0)
MS = 1_767_000_000_000


@pytest.mark.parametrize("name", ["ab", "a\0b"])
def test_record_is_the_archived_one(tmp_path: Path, name: str) -> None:
    """A log that wasn't touched is the archived one, whatever the client makes of a name."""
    producer, servers = mock_broker(TP)
    send_raw(servers, TP, b"k", b"v", [(name, b"1")], MS)
    config = KafkaConfig({"bootstrap.servers": servers})
    record = {
        "key": b"k",
        "value": b"v",
        "headers": [{"key": name, "value": b"1"}],
        "partition": 0,
        "offset": 0,
        "timestamp": EPOCH + timedelta(milliseconds=MS),
        "timestampType": 0,
    }
    path = tmp_path / "topic=t" / "file.parquet"
    path.parent.mkdir()
    table = pa.Table.from_pylist([record], schema=SCHEMA).drop_columns(["topic"])
    pq.write_table(table, str(path))
    read = read_all(path, "parquet", "t")

    # The newest archived record, as the receipt has it.
    [held] = read.contents
    seen = read_single_records(config, {TP: 0})[TP]
    found = compare_tail(
        SealedTail.of(held.last, held.last_hash), LogNow(first=0, end=1, record=seen)
    )
    assert found.verdict is not LogVerdict.REWRITTEN

    # The file, compared with Kafka because no note says enough.
    class Cluster:
        def records(self, tp: TopicPartition, span: OffsetRange, level: str) -> Any:
            return read_records(config, tp, OffsetRange(0, 1), level)

    file = CommittedFile("topic=t/file.parquet", 1, "", read.contents)
    segment = SegmentFiles(UPath(tmp_path), "parquet", [file])
    cluster: Any = Cluster()
    reread = compare_with_kafka(segment, cluster, lambda names: names, "read_uncommitted")
    assert (reread.changed, reread.gone) == ({}, 0)
    del producer

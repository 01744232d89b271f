"""Bloom filters on keys that real Spark writes when files are compacted, and a search with them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafka_drain.archive.files import archive_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.reader import bytes_to_read
from kafka_drain.data_files.records import RowBounds
from kafka_drain.errors import DataFileError
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.maintenance.compact import plan_compactions, run_compaction
from kafka_drain.offsets import TopicPartition
from kafka_drain.spark.engine import SparkRunner
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration

UNIQUE, REPEATED, NULL = (TopicPartition(name, 0) for name in ("unique", "repeated", "null"))
RECORDS, BATCH = 2_000, 500
#: From here on, a dictionary of one key is smaller than the keys.
DICTIONARY_PAYS = 2


def test_compaction_bloom_filters(tmp_path: Path, runner: SparkRunner) -> None:
    """Unique keys get a filter that rules out other keys; those that repeat need none.

    Nulls get one, because Parquet leaves it out only where a dictionary holds all keys. So does a
    row group of one record, whose dictionary is no smaller than its key: Spark samples
    where a file begins, so such a group comes now and then.
    """
    topics = [tp.topic for tp in (UNIQUE, REPEATED, NULL)]
    made = MadeArchive(tmp_path / "archive", {name: f"id-{name}" for name in topics})
    # Keys are offsets in decimal, unless they are given.
    for tp, key in ((UNIQUE, {}), (REPEATED, {"key": b"1"}), (NULL, {"key": None})):
        for start in range(0, RECORDS, BATCH):
            made.seal({tp: dense(start, start + BATCH)}, **key)
    made.open_generation()
    snapshot = made.archive.snapshot()
    pipeline = Pipeline(name="made", topics=topics, archive=str(made.root))
    for compaction in plan_compactions(snapshot, snapshot.generations[:1], 1 << 20):
        run_compaction(made.archive, compaction, pipeline, runner, run="tests")

    has_filter = {}
    for file in archive_files(made.archive.snapshot()):
        assert file.path.startswith("windows/compact")
        path = Path(str(made.root), file.path)
        [topic] = [name for name in topics if f"/topic={name}/" in file.path]
        metadata = pq.ParquetFile(path).metadata
        for group in range(metadata.num_row_groups):
            column = metadata.row_group(group).column(0)
            assert column.path_in_schema == "key"
            if topic == "repeated" and column.num_values < DICTIONARY_PAYS:
                continue
            has_filter.setdefault(topic, set()).add(column.bloom_filter_offset is not None)
        if topic == "unique":
            # Within the bounds of the statistics, so that only the filter rules them out.
            absent = [b"15x%d" % number for number in range(100)]
            index = file.sealed.index_sha256
            wanted = [RowBounds(keys=[key], index_sha256=index) for key in absent]
            read = [bytes_to_read(path, "parquet", 0, one) for one in wanted]
            assert sum(map(bool, read)) < 10
    assert has_filter == {"unique": {True}, "repeated": {False}, "null": {True}}
    matches = [*Search(made.archive, Criteria.of(keys=["1234"])).matches()]
    assert [str(match.position) for match in matches] == ["unique:1:0:1234"]
    assert len([*Search(made.archive, Criteria.of(keys=["1"]), limit=RECORDS * 2).matches()]) == (
        RECORDS + 1
    )

    # A zeroed byte in the filter of the record that was found.
    path = Path(str(made.root), matches[0].file)
    content, key = path.read_bytes(), Criteria.of(keys=["1234"])
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    # Spark 3.5 doesn't tell the length.
    end = column.bloom_filter_offset + (column.bloom_filter_length or 64)
    at = next(at for at in range(end - 1, column.bloom_filter_offset, -1) if content[at])
    path.write_bytes(content[:at] + b"\0" + content[at + 1 :])
    with pytest.raises(DataFileError, match="have other bytes than those that were sealed"):
        list(Search(made.archive, key).matches())

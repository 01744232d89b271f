"""Records of every kind through Kafka, Spark's files and back, byte for byte."""

from __future__ import annotations

import random
from datetime import datetime, timezone
from typing import Any

import pytest
from pyarrow import orc

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.proof.validation import validate_archive

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_123  # 2013-01-01 12:00:00.123 UTC, in milliseconds
LARGE = random.Random(1).randbytes(2 << 20)
RECORDS = [
    (b"key", b"value", None, NOON),
    (None, b"no key", [("a", b"1")], NOON + 1),
    (b"tombstone", None, [("why", b"deleted")], NOON + 2),
    (b"", b"", None, NOON + 3),
    (b"repeated", b"x", [("h", b"1"), ("h", b"2"), ("g", b"3"), ("h", b"1")], NOON - 86_400_000),
    (b"null header", b"x", [("n", None), ("e", b""), ("\u00e9\u20ac", b"\x00\xff")], NOON + 4),
    (b"\x00\xff\xfe", bytes(range(256)), None, NOON + 86_400_000),
    (b"large", LARGE, [("size", b"2 MiB")], NOON + 5),
    (None, None, None, 1),
]


@pytest.mark.parametrize("file_format", ["parquet", "avro", "json", "orc"])
def test_round_trip_in_each_format(
    file_format: str,
    archive_folder: str,
    drain: Any,
    cluster: Any,
    make_topic: Any,
    send: Any,
    read: Any,
    republish: Any,
) -> None:
    """Key, value, headers, timestamp, partition and order are equal after drain and republish."""
    source = make_topic(partitions=3, max_message_bytes=str(4 << 20))
    target = make_topic(partitions=3, max_message_bytes=str(4 << 20))
    send(source, RECORDS, partition=0)
    send(source, RECORDS[::-1], partition=2)
    pipeline = Pipeline(name="kinds", topics=[source], archive=archive_folder, format=file_format)

    result = drain(pipeline)
    archive = Archive.at(archive_folder)
    report = validate_archive(archive, cluster)
    sent = republish(archive, target)

    assert result["records"] == report.records == sent["records"] == 2 * len(RECORDS)
    assert report.complete
    assert not report.findings
    assert read(target) == read(source)


#: Around the second before 1970, in which ORC has no times.
AROUND_1970 = [-1_500, -1_000, -999, -500, -1, 1, 999, 1_000]


@pytest.mark.parametrize("partition_by", [["topic", "date"], []])
def test_orc_before_1970(
    partition_by: list[str],
    archive_folder: str,
    drain: Any,
    cluster: Any,
    make_topic: Any,
    send: Any,
    read: Any,
    republish: Any,
) -> None:
    """A foreign reader of ORC gets each time as it is, or none: never another one."""
    source, target = make_topic(1), make_topic(1)
    send(source, [(b"k", b"%d" % time, None, time) for time in AROUND_1970])
    pipeline = Pipeline(
        name="orc",
        topics=[source],
        archive=archive_folder,
        format="orc",
        partition_by=partition_by,
    )

    drain(pipeline)

    archive = Archive.at(archive_folder)
    files = [str(archive.root / file.path) for file in archive_files(archive.snapshot())]
    rows = [row for file in files for row in orc.read_table(file).to_pylist()]
    found = {row["timestampMillis"]: in_milliseconds(row["timestamp"]) for row in rows}
    assert found == {time: None if -1_000 < time < 0 else time for time in AROUND_1970}
    if partition_by:
        assert {"date=1969-12-31" in file for file in files} == {True, False}
        assert not any("HIVE_DEFAULT" in file for file in files)
    assert validate_archive(archive, cluster, deep=True).findings == []
    republish(archive, target)
    assert read(target) == read(source)


def in_milliseconds(time: datetime | None) -> int | None:
    """Return a time in UTC that pyarrow gives without its zone."""
    return time and round(time.replace(tzinfo=timezone.utc).timestamp() * 1000)

"""Finding records in what real drains, backfills, compactions and erasures have written."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.find import plan, search
from kafka_drain.find.as_republish import as_republish
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.intervals import Interval
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.erase import run_erasure
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.maintenance.maintain import run_maintenance
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.engine import SparkRunner

pytestmark = pytest.mark.integration

DAY = datetime(2026, 1, 10, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
#: Hours whose records are older than the generation: backfilled.
EARLY = (0, 1, 2)
#: Hours that are drained: the first two are compacted, the last one comes after.
DRAINED = (20, 21, 22)
#: Records of an hour in each of two partitions.
RECORDS = 2_000
#: Numbers of records that are erased, from the first backfilled window.
GONE = (7, 12)

Row = dict[str, Any]


def rows_of(hour: int) -> list[Row]:
    """The records of an hour; keys are unique, and scattered as hashes are."""
    rows = []
    first = [*EARLY, *DRAINED].index(hour) * 2 * RECORDS
    for number in range(first, first + 2 * RECORDS):
        digest = hashlib.sha256(b"%d" % number)
        value = {"id": number, "depot": {"name": f"n-{number % 13}"}, "pad": digest.hexdigest() * 2}
        rows.append(
            {
                "number": number,
                "partition": number % 2,
                "timestamp": int((DAY + hour * HOUR).timestamp() * 1000) + number - first,
                "key": None if number % 500 == 0 else digest.digest()[:16],
                "value": json.dumps(value).encode(),
                "headers": [("source", b"web" if number % 1000 == 1 else b"\xff")],
            }
        )
    return rows


@pytest.fixture(scope="module")
def made() -> list[tuple[Archive, list[Row]]]:
    """The archive of this module, once it is made."""
    return []


@pytest.fixture
def archive_and_rows(
    made: list[tuple[Archive, list[Row]]],
    tmp_path_factory: pytest.TempPathFactory,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    drain: Any,
    backfill: Callable[..., Any],
    cluster: KafkaCluster,
    runner: SparkRunner,
) -> tuple[Archive, list[Row]]:
    """An archive with windows, compacted files, an open generation and erased records.

    And the records that it should have, with their offsets.
    """
    if made:
        return made[0]
    topic = make_topic(2)
    start = DAY + DRAINED[0] * HOUR
    pipeline = Pipeline(
        name="found",
        topics=[topic],
        archive=str(tmp_path_factory.mktemp("found") / "archive"),
        source_options={
            "startingTimestamp": str(int(start.timestamp() * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        sink_options={
            "parquet.bloom.filter.enabled#key": True,
            "parquet.bloom.filter.expected.ndv#key": 2 * RECORDS,
        },
    )
    archive = Archive.at(pipeline.archive)
    rows: list[Row] = []
    ends = {0: 0, 1: 0}

    def send_hour(hour: int) -> None:
        for row in rows_of(hour):
            row["offset"] = ends[row["partition"]]
            ends[row["partition"]] += 1
            rows.append(row)
        for partition in ends:
            new = [row for row in rows[-2 * RECORDS :] if row["partition"] == partition]
            fields = ("key", "value", "headers", "timestamp")
            send(topic, [tuple(row[name] for name in fields) for row in new], partition)

    def validated() -> None:
        assert validate_archive(archive, cluster).complete

    for hour in EARLY:
        send_hour(hour)
    for hour in DRAINED[:2]:
        send_hour(hour)
        drain(pipeline)
        validated()
    run_maintenance(
        pipeline, cluster, runner, run="tests", clock=lambda: utc_now() + timedelta(days=10)
    )
    for hour in EARLY:
        backfill(pipeline, Interval(DAY + hour * HOUR, DAY + (hour + 1) * HOUR))
    keys = frozenset(rows[number]["key"] for number in GONE)
    request = ErasureRequest("req-1", "privacy@example.com", keys=keys)
    erased = run_erasure(pipeline, cluster, runner, request, run="tests", wait_seconds=0)
    assert erased["erased"] == len(GONE)
    send_hour(DRAINED[2])
    drain(pipeline)
    validated()
    made.append((archive, [row for row in rows if row["number"] not in GONE]))
    return made[0]


def places(rows: list[Row]) -> list[tuple[int, int]]:
    """Return partition and offset of records, in order."""
    return sorted((row["partition"], row["offset"]) for row in rows)


def found(archive: Archive, **given: Any) -> list[tuple[int, int]]:
    """Return partition and offset of what a search finds."""
    matches = Search(archive, Criteria.of(**given), limit=100_000).matches()
    return [(match.position.partition, match.position.offset) for match in matches]


def written(key: bytes) -> str:
    """Return a key as users write it."""
    return f"hex:{key.hex()}"


def bytes_read(work: Callable[[], Any]) -> tuple[Any, int]:
    """Do something; also return how many bytes this process has read with system calls."""

    def total() -> int:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        return int(dict(line.split(": ") for line in lines)["rchar"])

    before = total()
    answer = work()
    return answer, total() - before


def test_find_bloom_filters(
    archive_and_rows: tuple[Archive, list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drains, backfills, compactions and erasures write Bloom filters; a search opens one file.

    Of the others it reads the footers. Erased records aren't found, and no file is read for them.
    """
    archive, rows = archive_and_rows
    files = archive_files(archive.snapshot())
    owners = Counter(file.path.rpartition("/data/")[0].partition("_")[0] for file in files)
    assert owners.keys() >= {"generations/0002", "windows/compact", "windows/erase"}
    assert len(owners) == len(EARLY) - 1 + 3
    for file in files:
        metadata = pq.ParquetFile(f"{archive.root}/{file.path}").metadata
        for group in range(metadata.num_row_groups):
            column = metadata.row_group(group).column(0)
            assert column.path_in_schema == "key"
            assert column.bloom_filter_offset, file.path
    opened: list[str] = []
    read_records = search.read_records

    def noting(path: Any, *rest: Any, **named: Any) -> Any:
        opened.append(str(path))
        return read_records(path, *rest, **named)

    monkeypatch.setattr(search, "read_records", noting)
    keyed = [row for row in rows if row["key"]]
    wanted = keyed[:: len(keyed) // 24]
    for row in wanted:
        where, size = bytes_read(partial(found, archive, keys=[written(row["key"])]))
        assert where == places([row])
        # In files as small as these, the footers are half of what there is.
        assert size < sum(file.bytes for file in files)
    # A filter may be wrong once in a hundred times.
    assert len(wanted) <= len(opened) <= len(wanted) + 8
    assert len(set(opened)) >= len(files) / 2
    opened.clear()
    gone = [row for hour in (*EARLY, *DRAINED) for row in rows_of(hour) if row["number"] in GONE]
    assert found(archive, keys=[written(row["key"]) for row in gone]) == []
    assert len(opened) <= 2


def at(hours: float) -> str:
    """Return a time of the day as users write it."""
    return (DAY + hours * HOUR).isoformat()


def ms(hours: float) -> int:
    """Return a time of the day in milliseconds since 1970."""
    return int((DAY + hours * HOUR).timestamp() * 1000)


#: What is looked for, and whether a record of an hour matches.
WANTED: list[tuple[dict[str, Any], Callable[[Row], bool]]] = [
    ({}, lambda row: True),
    ({"headers": ["source=web"]}, lambda row: row["number"] % 1000 == 1),
    (
        {"headers": ["source=hex:ff"], "offset": "4990-5010", "partitions": ["1"]},
        lambda row: (
            row["partition"] == 1 and 4990 <= row["offset"] < 5010 and row["number"] % 1000 != 1
        ),
    ),
    ({"value_contains": '"id": 4711,'}, lambda row: row["number"] == 4711),
    ({"jsonpath": "$.id=20021"}, lambda row: row["number"] == 20021),
    (
        {"jsonpath": "$.depot.name=n-7", "from_time": at(1), "to_time": at(20)},
        lambda row: row["number"] % 13 == 7 and ms(1) <= row["timestamp"] < ms(20),
    ),
    (
        {"from_time": at(0.001), "to_time": at(21.001)},
        lambda row: ms(0.001) <= row["timestamp"] < ms(21.001),
    ),
    ({"from_time": at(22)}, lambda row: row["timestamp"] >= ms(22)),
    ({"partitions": ["1"], "offset": "7"}, lambda row: (row["partition"], row["offset"]) == (1, 7)),
]


def test_find_criteria(archive_and_rows: tuple[Archive, list[Row]]) -> None:
    """Each criterion finds what brute force finds: in windows, compacted files, drained files."""
    archive, rows = archive_and_rows
    [topic] = archive.snapshot().document.topics

    for given, is_wanted in WANTED:
        where = {"topics": [topic]} if "offset" in given else {}
        assert found(archive, **where, **given) == places(list(filter(is_wanted, rows))), given


def test_find_pages(archive_and_rows: tuple[Archive, list[Row]]) -> None:
    """Page by page, each record is there once, and as it was sent."""
    archive, rows = archive_and_rows
    sent = {(row["partition"], row["offset"]): row for row in rows}
    one, seen = Search(archive, Criteria.of(), limit=17_000), []
    while True:
        for match in one.matches():
            row = sent[match.position.partition, match.position.offset]
            seen.append(row)
            assert (match.key, match.value) == (row["key"], row["value"])
            assert (match.timestamp, match.headers) == (row["timestamp"], row["headers"])
            assert match.is_sealed
        if one.is_complete:
            break
        one = Search(archive, Criteria.of(), limit=17_000, after=one.through)
    assert len(seen) == len(rows)
    assert places(seen) == places(rows)


def test_find_scan(
    archive_and_rows: tuple[Archive, list[Row]], monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """A scan has to be asked for, and ends with how many records it has read, of how many."""
    archive, rows = archive_and_rows
    criteria = Criteria.of(value_contains="no such value")
    monkeypatch.setattr(plan, "SCAN_BYTES", 1_000_000)

    with pytest.raises(ConfigError, match=r"MB in .* files would have to be read"):
        list(Search(archive, criteria).matches())
    assert list(Search(archive, criteria, scan=True).matches()) == []
    assert f"{len(rows):,} of {len(rows):,} records" in said[-1]


def test_find_republish(
    archive_and_rows: tuple[Archive, list[Row]],
    republish: Callable[..., dict[str, Any]],
    read: Callable[[str], dict[int, list[Any]]],
    make_topic: Callable[..., str],
) -> None:
    """A republish with the fields that a search has given sends what it found, and no more."""
    archive, rows = archive_and_rows
    chosen = [row for row in rows if row["key"]][:: len(rows) // 20]
    one = Search(archive, Criteria.of(keys=[written(row["key"]) for row in chosen]))
    matches, target = list(one.matches()), make_topic(2)
    selected = as_republish(one.criteria, matches, is_all=one.is_complete)
    assert (selected.all, selected.cannot) == (selected.these, [])

    assert republish(archive, target, **selected.these)["records"] == len(chosen)
    sent = Counter(key for records in read(target).values() for key, *_ in records)
    assert sent == Counter(row["key"] for row in chosen)

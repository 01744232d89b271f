"""Files compared with what Kafka still holds: what differs, and what can't be said any more."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upath import UPath

from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import read_offsets, topic_of
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.xxhash64 import records_fingerprint
from kafka_drain.errors import DataFileError
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.content_checks import Reread
from kafka_drain.proof.rereading import BLOCK, SegmentFiles, compare_with_kafka
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import row

P0, P1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
Rows = Mapping[TopicPartition, Mapping[int, dict[str, Any]]]
#: Offsets at the start of one block, and around the start of the next: the rest has expired.
OFFSETS = [2, 3, 4, 7, 8, BLOCK - 1, BLOCK, BLOCK + 5]


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


def rows(tp: TopicPartition, offsets: Iterable[int] = OFFSETS, **changes: Any) -> dict[int, Any]:
    """The records of some offsets, in their order."""
    return {offset: row(tp, offset) | changes for offset in sorted(offsets)}


HELD: Rows = {P0: rows(P0)}


class Sides:
    """Files with some records, and Kafka with others.

    Attributes:
        held: What the files hold, unless they are written otherwise.
        in_kafka: What Kafka holds.
        same: The topics whose ids are still the archive's, at each time they are asked.
    """

    def __init__(self, root: Path, held: Rows, in_kafka: Rows) -> None:
        self.root = root
        self.held, self.in_kafka = held, in_kafka
        self.same: list[set[str]] = [{"t", "u"}, {"t", "u"}]
        self.asked: list[set[str]] = []
        self.files: list[CommittedFile] = []
        self.stable: int | None = None
        self.fingerprint: str | None = None
        self.read: list[tuple[TopicPartition, OffsetRange]] = []

    def write(
        self, name: str, records: Iterable[dict[str, Any]], drop: Iterable[str] = ("topic",)
    ) -> None:
        """Write a file without some columns, in the order of the given records."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(list(records), schema=SCHEMA).drop_columns(list(drop))
        pq.write_table(table, str(path))
        contents = tuple(read_offsets(path, "parquet", topic_of(name)))
        self.files.append(CommittedFile(name, 1, "", contents))

    def write_json(self, name: str, records: Iterable[dict[str, Any]]) -> None:
        """Write a file of JSON lines, which leave out what is null, as Spark's do."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as lines:
            for each in records:
                line = {
                    "key": None,
                    **{k: each[k] for k in ("partition", "offset", "timestampType")},
                    "timestamp": each["timestamp"].strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                    "headers": each["headers"],
                }
                if each["headers"]:
                    line["headers"] = [{"key": h["key"], "value": "MQ=="} for h in each["headers"]]
                lines.write(json.dumps({k: v for k, v in line.items() if v is not None}) + "\n")
        contents = tuple(read_offsets(path, "json", topic_of(name)))
        self.files.append(CommittedFile(name, 1, "", contents))

    def contents(self, tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
        """Answer for Kafka."""
        self.read.append((tp, span))
        return [each for offset, each in self.in_kafka[tp].items() if offset in span]

    def same_topics(self, names: set[str]) -> set[str]:
        self.asked.append(set(names))
        return self.same.pop(0) & names

    def compare(self, file_format: str = "parquet", level: str = "read_committed") -> Reread:
        """Compare both."""
        if not self.files:
            for tp, records in self.held.items():
                self.write(f"topic={tp.topic}/{tp.partition}.parquet", records.values())
        logs = {tp: Log(end=1 << 20, stable=self.stable) for tp in self.in_kafka}
        cluster: Any = FakeCluster(logs, contents=self.contents)
        segment = SegmentFiles(UPath(self.root), file_format, self.files)
        found = compare_with_kafka(segment, cluster, self.same_topics, level)
        self.fingerprint = found.fingerprint
        return replace(found, fingerprint=None)


def compare(root: Path, in_kafka: Mapping[int, dict[str, Any]], held: Rows = HELD) -> Reread:
    """Compare files with what Kafka holds of partition 0."""
    return Sides(root, held, {P0: in_kafka}).compare()


OTHER = {"value": b"other"}


@pytest.mark.parametrize(
    ("changed", "first", "rest"),
    [
        ([], None, []),
        ([2], 2, []),
        ([8], 8, []),
        ([4, 7], 4, []),
        ([BLOCK - 1], BLOCK - 1, []),
        ([BLOCK], BLOCK, None),
        ([BLOCK + 5], BLOCK + 5, None),
        ([7, BLOCK + 5], 7, [R(BLOCK, 2 * BLOCK)]),
        (OFFSETS, 2, [R(BLOCK, 2 * BLOCK)]),
    ],
)
def test_compare_changed(
    tmp_path: Path, changed: list[int], first: int | None, rest: list[OffsetRange] | None
) -> None:
    """The first offset that differs is found, with the blocks from there on that differ."""
    in_kafka = rows(P0) | rows(P0, changed, **OTHER)

    found = compare(tmp_path, in_kafka)

    if first is None:
        assert found == Reread()
    else:
        end = BLOCK if rest is not None else 2 * BLOCK
        assert found == Reread({P0: [R(first, end), *(rest or [])]})


COLUMNS = {
    "key": b"other",
    "value": None,
    "headers": [{"key": "other", "value": None}],
    "timestamp": row(P0, 99)["timestamp"],
    "timestampType": 1,
}


@pytest.mark.parametrize("column", COLUMNS)
def test_compare_each_column(tmp_path: Path, column: str) -> None:
    """A difference in any column is one."""
    in_kafka = rows(P0) | rows(P0, [8], **{column: COLUMNS[column]})

    assert compare(tmp_path, in_kafka) == Reread({P0: [R(8, BLOCK)]})


def test_compare_swapped(tmp_path: Path) -> None:
    """Two records at each other's offsets differ, though all are there."""
    in_kafka = rows(P0)
    in_kafka[3] = row(P0, 4) | {"offset": 3}
    in_kafka[4] = row(P0, 3) | {"offset": 4}

    assert compare(tmp_path, in_kafka) == Reread({P0: [R(3, BLOCK)]})


def test_compare_fingerprint(tmp_path: Path) -> None:
    """Kafka's records at the files' offsets are told by their fingerprint, unless one is gone."""
    other = {P0: rows(P0) | rows(P0, [8], **OTHER), P1: rows(P1)}
    held: Rows = {P0: rows(P0), P1: rows(P1)}
    sides = Sides(tmp_path / "0", held, other)
    gone = Sides(tmp_path / "1", held, {P0: rows(P0), P1: rows(P1, OFFSETS[1:])})
    sides.compare()
    gone.compare()

    every = pa.Table.from_pylist([*other[P0].values(), *other[P1].values()], schema=SCHEMA)
    assert sides.fingerprint == f"{records_fingerprint(every.to_batches(), None):016x}"
    assert gone.fingerprint is None


@pytest.mark.parametrize("gone", [[2], [4, 8], OFFSETS[:-1], OFFSETS])
def test_compare_gone(tmp_path: Path, gone: list[int]) -> None:
    """What Kafka no longer holds is counted; the rest is compared."""
    left = rows(P0, set(OFFSETS) - set(gone))

    assert compare(tmp_path, left) == Reread(gone=len(gone))
    if len(gone) < len(OFFSETS):
        end = 2 * BLOCK
        changed = left | rows(P0, [BLOCK + 5], **OTHER)
        found = compare(tmp_path / "changed", changed)
        assert found == Reread({P0: [R(BLOCK + 5, end)]}, len(gone))


def test_compare_more_in_kafka(tmp_path: Path) -> None:
    """What the files don't hold isn't compared: missing offsets are explained elsewhere."""
    more = rows(P0, [0, 1, 5, 6, 9, 100, BLOCK + 4, BLOCK + 6])
    in_kafka = dict(sorted((more | rows(P0)).items()))

    assert compare(tmp_path, in_kafka) == Reread()
    assert compare(tmp_path / "none", more) == Reread(gone=len(OFFSETS))


@pytest.mark.parametrize(("level", "gone"), [("read_committed", 2), ("read_uncommitted", 0)])
def test_compare_isolation_level(tmp_path: Path, level: str, gone: int) -> None:
    """Kafka is read as the drain reads it."""
    sides = Sides(tmp_path, HELD, HELD)
    sides.stable = BLOCK

    assert sides.compare(level=level) == Reread(gone=gone)


def test_compare_span(tmp_path: Path) -> None:
    """Kafka is read from the files' first offset to their last, once where all is equal."""
    sides = Sides(tmp_path, HELD, HELD)

    sides.compare()

    [(tp, span)] = sides.read
    assert (tp, span.start) == (P0, 2)


@pytest.mark.parametrize(
    ("same", "asked", "found"),
    [
        (
            [{"t", "u"}, {"t", "u"}],
            [{"t", "u"}, {"t", "u"}],
            Reread({P0: [R(4, BLOCK)], U0: [R(5, BLOCK)]}),
        ),
        # It was made again before, or in between: nothing that was read counts.
        ([{"u"}, {"u"}], [{"t", "u"}, {"u"}], Reread({U0: [R(5, BLOCK)]}, len(OFFSETS))),
        ([{"t", "u"}, {"u"}], [{"t", "u"}, {"t", "u"}], Reread({U0: [R(5, BLOCK)]}, len(OFFSETS))),
        ([{"t", "u"}, set()], [{"t", "u"}, {"t", "u"}], Reread(gone=len(OFFSETS) + 2)),
        ([set(), set()], [{"t", "u"}, set()], Reread(gone=len(OFFSETS) + 2)),
    ],
    ids=["same", "other before", "other after", "both after", "both before"],
)
def test_compare_topics(
    tmp_path: Path, same: list[set[str]], asked: list[set[str]], found: Reread
) -> None:
    """Only topics count whose ids are the archive's before and after the read."""
    held = {P0: rows(P0), U0: rows(U0, [5, 6])}
    in_kafka = {P0: rows(P0) | rows(P0, [4], **OTHER), U0: rows(U0, [5, 6], **OTHER)}
    sides = Sides(tmp_path, held, in_kafka)
    sides.same = list(same)

    assert sides.compare() == found
    assert sides.asked == asked
    assert {tp.topic for tp, _ in sides.read} == same[0]


def test_compare_partitions(tmp_path: Path) -> None:
    """One file may hold several partitions and topics, and one partition may be in several."""
    held = {P0: rows(P0), P1: rows(P1), U0: rows(U0)}
    in_kafka = held | {P1: rows(P1) | rows(P1, [7], **OTHER)}
    sides = Sides(tmp_path, held, in_kafka)
    everything = [each for records in held.values() for each in records.values()]
    sides.write("all/0.parquet", everything[::2], drop=())
    sides.write("all/1.parquet", everything[1::2], drop=())

    assert sides.compare() == Reread({P1: [R(7, BLOCK)]})


def test_compare_partitions_of_topic(tmp_path: Path) -> None:
    """The topic of a file's records may be named by its folder."""
    held = {P0: rows(P0), P1: rows(P1)}
    sides = Sides(tmp_path, held, held | {P0: rows(P0) | rows(P0, [7], **OTHER)})
    sides.write("topic=t/0.parquet", [*held[P1].values(), *held[P0].values()])

    assert sides.compare() == Reread({P0: [R(7, BLOCK)]})


def test_compare_file_of_other_topic(tmp_path: Path) -> None:
    """Files that hold nothing to compare aren't read again."""
    sides = Sides(tmp_path, {P0: rows(P0), U0: rows(U0)}, {P0: rows(P0), U0: rows(U0)})
    sides.write("topic=t/0.parquet", rows(P0).values())
    sides.write("topic=u/0.parquet", rows(U0).values())
    (tmp_path / "topic=u" / "0.parquet").write_bytes(b"")
    sides.same = [{"t"}, {"t"}]

    assert sides.compare() == Reread(gone=len(OFFSETS))


def test_compare_unreadable(tmp_path: Path) -> None:
    """A file that can't be read ends the comparison: nothing is said of its records."""
    sides = Sides(tmp_path, HELD, HELD)
    sides.write("topic=t/0.parquet", rows(P0).values())
    (tmp_path / "topic=t" / "0.parquet").write_bytes(b"PAR1")

    with pytest.raises(DataFileError):
        sides.compare()


@pytest.mark.parametrize("has_headers", [False, True])
def test_compare_headers(tmp_path: Path, has_headers: bool) -> None:
    """A drain without headers wrote no such column: then Kafka's headers aren't compared."""
    sides = Sides(tmp_path, HELD, HELD)
    bare = [each | {"headers": None} for each in rows(P0).values()]
    sides.write("topic=t/0.parquet", bare, ("topic", *(() if has_headers else ("headers",))))

    # The first record with headers is at offset 3, the last at the last.
    changed = {P0: [R(3, BLOCK), R(BLOCK, 2 * BLOCK)]}
    assert sides.compare() == (Reread(changed) if has_headers else Reread())


def test_compare_headers_of_second_file(tmp_path: Path) -> None:
    """One file tells for all of them, also one that is empty."""
    sides = Sides(tmp_path, HELD, HELD)
    sides.write("topic=t/empty.parquet", [])
    sides.write("topic=t/0.parquet", rows(P0).values())

    assert sides.compare() == Reread()


HEADERS = [{"key": "a", "value": b"1"}]


@pytest.mark.parametrize(
    ("held", "in_kafka", "found"),
    [
        ({}, {}, Reread()),
        # No record of the files has headers: the drain may not have read any.
        ({}, {3: HEADERS}, Reread()),
        ({7: HEADERS}, {7: HEADERS}, Reread()),
        ({7: HEADERS}, {3: HEADERS, 7: HEADERS}, Reread({P0: [R(3, BLOCK)]})),
        ({7: HEADERS}, {}, Reread({P0: [R(7, BLOCK)]})),
        ({BLOCK: HEADERS}, {3: HEADERS, BLOCK: HEADERS}, Reread({P0: [R(3, BLOCK)]})),
    ],
    ids=["none", "in Kafka", "equal", "more in Kafka", "in files", "in the second file"],
)
def test_compare_headers_json(
    tmp_path: Path, held: dict[int, Any], in_kafka: dict[int, Any], found: Reread
) -> None:
    """A JSON file has a column for headers only where a record has some."""
    plain = rows(P0, key=None, value=None, headers=None)
    ours, theirs = (
        plain | {o: plain[o] | {"headers": headers} for o, headers in given.items()}
        for given in (held, in_kafka)
    )
    sides = Sides(tmp_path, HELD, {P0: theirs})
    for name, wanted in (("0", range(BLOCK)), ("1", range(BLOCK, 2 * BLOCK))):
        sides.write_json(f"topic=t/{name}.json", (ours[o] for o in OFFSETS if o in wanted))

    assert sides.compare("json") == found


def test_compare_compacted_meanwhile(tmp_path: Path) -> None:
    """A record that differs and is gone at the second look leaves its whole block suspected."""
    sides = Sides(tmp_path, HELD, {P0: rows(P0) | rows(P0, [7], **OTHER)})
    first_look = sides.contents

    def contents(tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
        found = first_look(tp, span)
        return found if len(sides.read) == 1 else [each for each in found if each["offset"] != 7]

    sides.contents = contents  # type: ignore[method-assign]

    assert sides.compare() == Reread({P0: [R(0, BLOCK)]})


def test_compare_second_look(tmp_path: Path) -> None:
    """The second look reads the first differing block alone, where the files hold something."""
    sides = Sides(tmp_path, HELD, {P0: rows(P0) | rows(P0, [BLOCK + 5, BLOCK], **OTHER)})

    sides.compare()

    assert [span.start for _, span in sides.read] == [2, BLOCK]


@pytest.mark.parametrize(("left", "start"), [(OFFSETS[:6], BLOCK), (OFFSETS[:3], 7)])
def test_compare_file_lost_records(tmp_path: Path, left: list[int], start: int) -> None:
    """Records that a file has lost since its offsets were read differ from those in Kafka."""
    sides = Sides(tmp_path, HELD, HELD)
    sides.write("topic=t/0.parquet", rows(P0).values())
    [known] = sides.files
    sides.write("topic=t/0.parquet", rows(P0, left).values())
    sides.files = [known]

    blocks = [R(start, BLOCK)] if start < BLOCK else []
    assert sides.compare() == Reread({P0: [*blocks, R(BLOCK, 2 * BLOCK)]})

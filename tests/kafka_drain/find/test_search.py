"""Searches in archives: in every format, each match once and in order."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import read_records
from kafka_drain.data_files.records import SCHEMA, RowBounds
from kafka_drain.errors import ArchiveError, ConfigError, DataFileError, ManifestInvalidError
from kafka_drain.find import plan, search
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.plan import Position, parts_of
from kafka_drain.find.search import Match, Search, bounds_of, rows_inside
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain import golden
from tests.kafka_drain.data_files.test_reader import avro_bytes, json_line
from tests.kafka_drain.find.held_files import A0, A1, held
from tests.kafka_drain.golden import END, P0, P1, add_batch, golden_rows, row, sealed_copy
from tests.kafka_drain.made_archive import Batch, MadeArchive, dense
from tests.tables import each_of


def found(archive: Archive, **given: Any) -> list[tuple[int, int]]:
    """Return partition and offset of each match of the given criteria."""
    matches = Search(archive, Criteria.of(**given), limit=10_000).matches()
    return [(match.position.partition, match.position.offset) for match in matches]


def expected(wanted: Callable[[dict[str, Any]], bool], end: int = 60) -> list[tuple[int, int]]:
    """Return the same of the rows that were written."""
    rows = golden_rows() + [row(tp, offset) for tp in (P0, P1) for offset in range(END, end)]
    chosen = [(each["partition"], each["offset"]) for each in rows if wanted(each)]
    return sorted(chosen)


def test_search_unknown_topic(tmp_path: Path) -> None:
    """A misspelt topic, or an empty one, isn't one without such records."""
    archive = sealed_copy(tmp_path / "archive")
    archive.update_topics(archive.snapshot().document, {"quiet": "id-of-quiet"})

    assert found(archive, topics=["quiet"]) == []
    for topics, says in ((["flihgts", "flights"], "'flihgts'"), ([""], "''")):
        with pytest.raises(ArchiveError, match=f"no topic {says}; it has flights, quiet; correct"):
            found(archive, topics=topics)


def has_key(key: bytes, row: dict[str, Any]) -> bool:
    return bool(row["key"] == key)


def _with_formats(
    write_rows: Any, path: Path, file_format: str, rows: list[dict[str, Any]]
) -> None:
    """Write a data file, also in the formats that only this test needs."""
    if file_format in ("parquet", "orc"):
        write_rows(path, file_format, rows)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [{name: each[name] for name in each if name != "topic"} for each in rows]
    is_avro = file_format == "avro"
    path.write_bytes(avro_bytes(plain, "null") if is_avro else b"".join(map(json_line, plain)))


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "json"])
def test_search_formats(tmp_path: Path, file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the format, what Spark sealed and what isn't sealed yet is searched alike."""
    archive = sealed_copy(tmp_path / "archive")
    generation = golden.open_next(archive, file_format, ["topic"])
    with monkeypatch.context() as patch:
        patch.setattr(golden, "write_rows", partial(_with_formats, golden.write_rows))
        add_batch(generation, 0, END, 60, "topic=flights")

    key = next(each["key"] for each in golden_rows() if each["key"])
    assert found(archive) == expected(lambda each: True)
    for text, wanted in ((f"hex:{key.hex()}", key), ("key 50", b"key 50"), ("none", b"none")):
        assert found(archive, keys=[text]) == expected(partial(has_key, wanted))
    assert found(archive, headers=["a=45"]) == [(0, 45), (1, 45)]
    assert found(archive, value_contains="ue 5") == expected(
        lambda each: b"ue 5" in (each["value"] or b"")
    )
    assert found(archive, topics=["flights"], partitions=["1"], offset="40-45") == [
        (1, offset) for offset in range(40, 45)
    ]


def test_search_pages(tmp_path: Path) -> None:
    """Page by page, each match is there once, wherever a page ends."""
    archive = sealed_copy(tmp_path / "archive")
    criteria = Criteria.of(value_contains="1")
    whole = [match.position for match in Search(archive, criteria).matches()]

    for limit in (1, 3, len(whole) - 1, len(whole), len(whole) + 1):
        pages: list[Position] = []
        after = None
        while True:
            one = Search(archive, criteria, limit=limit, after=after)
            page = [match.position for match in one.matches()]
            assert len(page) <= limit
            pages += page
            if one.is_complete:
                break
            after = one.through
        assert pages == whole


def test_search_stopped(tmp_path: Path) -> None:
    """A search that is stopped between files says how far it got, and can go on there."""
    archive = sealed_copy(tmp_path / "archive")
    criteria = Criteria.of(value_contains="no such value")
    rounds, after, asked = 0, None, 0

    def is_second() -> bool:
        nonlocal asked
        asked += 1
        return asked % 2 == 0

    while True:
        one = Search(archive, criteria, after=after, should_stop=is_second)
        assert list(one.matches()) == []
        if one.is_complete:
            break
        assert one.through is not None
        assert after is None or one.through > after
        rounds, after = rounds + 1, one.through
    assert rounds > 3


class Interleaved(MadeArchive):
    """An archive with two files for each partition of a batch, whose offsets alternate."""

    def _write(
        self, folder: str, name: str, batch: Batch, columns: Mapping[str, Any]
    ) -> list[CommittedFile]:
        return [
            file
            for half in (0, 1)
            for file in super(Interleaved, self)._write(
                folder,
                f"{name}-{half}",
                {
                    tp: {n: ms for n, ms in rows.items() if n % 2 == half}
                    for tp, rows in batch.items()
                },
                columns,
            )
        ]


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """Two partitions in a file, then overlapping files of one, then a topic that was recreated."""
    made = Interleaved(tmp_path / "made", {"a": "old"})
    made.seal({A0: dense(0, 20), A1: dense(0, 20)}, together=True)
    made.seal({A0: dense(20, 40)})
    made.open_generation(a="new")
    made.seal({A0: dense(0, 5)})
    made.open_generation()
    return made


def positions(matches: list[Match]) -> list[tuple[int, int, int]]:
    return [
        (match.position.incarnation, match.position.partition, match.position.offset)
        for match in matches
    ]


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_search_order(made: MadeArchive, limit: int) -> None:
    """Records of overlapping files are in order, and those of a recreated topic apart."""
    matches: list[Match] = []
    after: Position | None = None
    while True:
        one = Search(made.archive, Criteria.of(value_contains="value"), limit=limit, after=after)
        matches += one.matches()
        if one.is_complete:
            break
        after = one.through

    assert positions(matches) == [
        *((1, 0, offset) for offset in range(40)),
        *((1, 1, offset) for offset in range(20)),
        *((2, 0, offset) for offset in range(5)),
    ]
    assert [match.topic_id for match in matches] == ["old"] * 60 + ["new"] * 5


@pytest.mark.parametrize("limit", [1, 3])
def test_search_not_ascending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Of a file whose rows aren't in offset order, each page has the lowest offsets left."""
    # The lowest offsets are in the last batch.
    monkeypatch.setattr(search, "read_records", partial(read_records, batch_bytes=1))
    made = MadeArchive(tmp_path / "made", {"a": "id"})
    made.seal({A0: dict(reversed(dense(0, 10).items()))})
    made.open_generation()

    after: Position | None = None
    for start in range(0, 10, limit):
        one = Search(made.archive, Criteria.of(), limit=limit, after=after)
        page = [match.position.offset for match in one.matches()]
        assert page == list(range(start, min(start + limit, 10)))
        after = one.through


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by each file that is read."""
    reads: list[str] = []

    def noting(path: Any, *rest: Any, **bounds: Any) -> Any:
        reads.append(Path(str(path)).name)
        return read_records(path, *rest, **bounds)

    monkeypatch.setattr(search, "read_records", noting)
    return reads


def test_search_reads_once(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with several partitions is read once, if few of its records match."""
    reads = reads_of(monkeypatch)
    matches = list(Search(made.archive, Criteria.of(keys=["3"])).matches())

    assert positions(matches) == [(1, 0, 3), (1, 1, 3), (2, 0, 3)]
    assert reads.count("part-all-0.parquet") == 1


def test_search_many_matches(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """If many of its records match, only those of the partition at hand are kept in memory."""
    reads = reads_of(monkeypatch)
    criteria = Criteria.of(partitions=["0", "1"], topics=["a"])
    one = Search(made.archive, criteria, limit=10, after=Position("a", 1, 0, 15))

    assert positions(list(one.matches())) == [(1, 0, offset) for offset in range(16, 26)]
    assert one._kept == {}
    assert reads.count("part-all-0.parquet") == 1


def test_search_ends_at_limit(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is read behind the last record that is wanted."""
    reads = reads_of(monkeypatch)
    list(Search(made.archive, Criteria.of(), limit=3).matches())

    assert reads == ["part-all-0.parquet"]


def test_search_path(tmp_path: Path) -> None:
    """A path is looked for in decoded values; text and bytes have none."""
    made = MadeArchive(tmp_path / "made", {"a": "id"})
    made.seal({A0: dense(0, 3)}, value=b'{"id": 7, "tags": ["x"]}')
    made.seal({A0: dense(3, 5)}, value=b"7")
    made.seal({A0: dense(5, 6)}, value=b"\xff\xfe")
    made.seal({A0: dense(6, 7)}, value=None)
    made.open_generation()

    assert found(made.archive, jsonpath="$.id=7") == [(0, 0), (0, 1), (0, 2)]
    assert found(made.archive, jsonpath="$.tags[0]=y") == []
    assert found(made.archive, jsonpath="$=7") == []
    assert found(made.archive, jsonpath="$") == [(0, 0), (0, 1), (0, 2)]


def test_search_refuses_scan(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being asked to, a search reads no more than a limit; what it rules out is free."""
    monkeypatch.setattr(plan, "SCAN_BYTES", 0)

    with pytest.raises(ConfigError, match="--scan"):
        found(made.archive, value_contains="x")
    assert found(made.archive, keys=["zzz"]) == []
    criteria = Criteria.of(value_contains="x")
    assert list(Search(made.archive, criteria, scan=True).matches()) == []


def with_zeroed_filter(archive: Archive) -> None:
    """Zero the Bloom filters of an archive's files."""
    for file in archive_files(archive.snapshot()):
        path = Path(str(archive.root), file.path)
        column = pq.ParquetFile(path).metadata.row_group(0).column(0)
        start, content = column.bloom_filter_offset, path.read_bytes()
        # Behind the header.
        zeroed = bytes(column.bloom_filter_length - 20)
        path.write_bytes(content[: start + 20] + zeroed + content[start + 20 + len(zeroed) :])


def test_search_damaged_filter(tmp_path: Path) -> None:
    """A damaged filter hides no record: its file is refused, or read if no receipt knows it."""
    made = MadeArchive(tmp_path / "filters", {"a": "id"})
    made.bloom_filters = {"key": {"ndv": 100, "fpp": 0.01}}
    made.seal({A0: dense(0, 100)})
    made.open_generation()
    assert found(made.archive, keys=["77"]) == [(0, 77)]
    with_zeroed_filter(made.archive)
    with pytest.raises(DataFileError, match=r"part-00000-0.parquet: .* other bytes .*--deep"):
        found(made.archive, keys=["77"])

    earlier = MadeArchive(tmp_path / "earlier", {"a": "id"})
    earlier.bloom_filters, earlier.notes_index = made.bloom_filters, False
    earlier.seal({A0: dense(0, 100)})
    earlier.open_generation()
    with_zeroed_filter(earlier.archive)
    assert found(earlier.archive, keys=["77"]) == [(0, 77)]


def test_search_unproven_refuses_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search says how much it reads only because an earlier release sealed no hash of it."""
    monkeypatch.setattr(plan, "SCAN_BYTES", 0)
    made = MadeArchive(tmp_path / "made", {"a": "id"})
    made.notes_index = False
    made.seal({A0: dense(0, 100)})
    made.open_generation()

    with pytest.raises(ConfigError, match=r"those of 1 files are in no receipt"):
        found(made.archive, keys=["none"])


def test_search_file_gone(made: MadeArchive) -> None:
    """A file that is gone is named; its records aren't silently left out."""
    [path] = Path(str(made.root)).rglob("part-00000-1-0.parquet")
    path.unlink()

    with pytest.raises(ManifestInvalidError, match=r"part-00000-1-0.parquet: doesn't exist"):
        found(made.archive, partitions=["0"])


def test_search_header_name_changed(tmp_path: Path) -> None:
    """A file whose changed bytes make a header's name no text is refused, and named."""
    made = MadeArchive(tmp_path / "made", {"a": "id"})
    [file] = made.seal({A0: dense(0, 5)}, headers=[{"key": "a-name", "value": b""}])
    made.open_generation()
    path = Path(str(made.root / file.path))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"a-name", b"\xff-name", 1))
    assert path.read_bytes() != content

    with pytest.raises(DataFileError, match=rf"^{file.path}: .*UTF8.*validate"):
        found(made.archive)


def test_match_to_dict(tmp_path: Path) -> None:
    """A match has all of its record, decoded, in JSON's types."""
    made = MadeArchive(tmp_path / "made", {"a": "id"})
    made.seal({A0: {7: 1_767_000_000_123, 8: None}}, headers=[{"key": "h", "value": b"\xff"}])
    made.open_generation()
    one = Search(made.archive, Criteria.of())
    [first, second] = [match.to_dict(one.payloads()) for match in one.matches()]

    assert json.loads(json.dumps(first)) == {
        "topic": "a",
        "topic_id": "id",
        "partition": 0,
        "offset": 7,
        "timestamp": "2025-12-29T09:20:00.123Z",
        "timestamp_type": "CreateTime",
        "key": "7",
        "key_format": "text",
        "key_schema": None,
        "value": "value",
        "value_format": "text",
        "value_schema": None,
        "headers": [{"name": "h", "value": "ff", "format": "hex"}],
        "file": "generations/0001/data/topic=a/part-00000-0.parquet",
        "sealed": True,
        "position": "a:1:0:7",
    }
    assert second["timestamp"] is None


def test_match_hides_payload(made: MadeArchive) -> None:
    """Keys, values and headers are in no log that shows a match."""
    [match, *_] = Search(made.archive, Criteria.of(keys=["3"])).matches()
    shown = repr(dataclasses.replace(match, key=b"secret", value=b"secret", headers=[("a", b"s")]))

    assert "secret" not in shown
    assert "headers" not in shown


ROWS: list[dict[str, Any]] = [
    {
        "key": None if n % 3 == 0 else b"k%d" % n,
        "value": None if n % 4 == 0 else b"v%d\xff" % n,
        "headers": None
        if n % 5 == 0
        else [{"key": "a", "value": b"%d" % (n % 2)}, {"key": "b", "value": None}] * (n % 3),
        "partition": 0,
        "offset": n,
    }
    for n in range(20)
]


def meets(row: dict[str, Any], criteria: Criteria) -> bool:
    """Say the same in Python's own words."""
    headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
    contains = criteria.value_contains
    return (
        (not criteria.keys or row["key"] in criteria.keys)
        and (contains is None or (row["value"] is not None and contains in row["value"]))
        and all(header in headers for header in criteria.headers)
    )


@each_of("cut", [slice(0, 20), slice(7, 16), slice(5, 6), slice(3, 3)])
@each_of(
    "given",
    [
        {},
        {"keys": ["k1", "k11", "none"]},
        {"keys": ["hex:6b31"]},
        {"value_contains": "v1"},
        {"value_contains": "hex:ff"},
        {"value_contains": "."},
        {"headers": ["a=1"]},
        {"headers": ["a="]},
        {"headers": ["b="]},
        {"headers": ["a=1", "a=0"]},
        {"headers": ["a=1"], "value_contains": "1", "keys": ["k1", "k7", "k11", "k13"]},
    ],
)
def test_rows_inside(given: dict[str, Any], cut: slice) -> None:
    """Exactly the rows are left that meet all criteria, in their order; nulls meet none."""
    criteria = Criteria.of(**given)
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
    found = rows_inside(batch.slice(cut.start, cut.stop - cut.start), criteria)

    expected = [row["offset"] for row in ROWS[cut] if meets(row, criteria)]
    assert found["offset"].to_pylist() == expected


@pytest.mark.parametrize(
    ("given", "after", "wanted"),
    [
        ({}, None, RowBounds()),
        ({"partitions": ["0"]}, None, RowBounds(0)),
        ({"topics": ["a"], "partitions": ["0"], "offset": "3-5"}, None, RowBounds(0, 3, 5)),
        ({"topics": ["a"], "partitions": ["0"], "offset": "3-9"}, 5, RowBounds(0, 6, 9)),
        ({"partitions": ["0"]}, 5, RowBounds(0, 6)),
        ({}, 5, RowBounds()),
        ({"keys": ["k"]}, None, RowBounds(keys=frozenset([b"k"]))),
        (
            {"from_time": "1970-01-01T00:00:00.010Z", "to_time": "1970-01-01T00:00:00.020Z"},
            None,
            RowBounds(from_ms=10, to_ms=20),
        ),
    ],
)
def test_bounds(given: dict[str, Any], after: int | None, wanted: RowBounds) -> None:
    """Bounds include every record that is looked for in a file, of whichever partition."""
    criteria = Criteria.of(**given)
    position = None if after is None else Position("a", 0, 0, after)
    file = held("file", (A0, 0, 9), (A1, 0, 9))

    assert bounds_of(parts_of([file], {}, criteria, position), criteria) == wanted


def test_bounds_ranges_of_one() -> None:
    """The bounds of two partitions are those of both; one without an end has none."""
    file = held("file", (A0, 0, 9), (A1, 5, 20))
    some = Criteria.of(topics=["a"], partitions=["0"], offset="3-5")
    [ranged] = parts_of([file], {}, some)
    whole = parts_of([file], {}, Criteria.of(partitions=["1"]))

    assert bounds_of([ranged, *whole], some) == RowBounds(None, 0, None)
    assert bounds_of([ranged, ranged], some) == RowBounds(0, 3, 5)


def test_search_topic_of_a_window(tmp_path: Path) -> None:
    """A topic that only a backfill has read is one of the archive's."""
    made = MadeArchive(tmp_path / "made", {"a": "id-a"})
    made.seal({A0: dense(0, 3)})
    made.open_generation()
    made.topic_ids["b"] = "id-b"
    made.seal_window("0_1", {TopicPartition("b", 0): dense(0, 2)})

    assert found(made.archive, topics=["b"]) == [(0, 0), (0, 1)]


def test_search_with_own_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are opened as the archive was: with its connection's login, not this machine's."""
    root = UPath(f"memory://{uuid.uuid4().hex}/archive")
    for path in golden.GOLDEN.rglob("*"):
        if path.is_file():
            target = root.joinpath(*path.relative_to(golden.GOLDEN).parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    monkeypatch.setattr("kafka_drain.storage.paths.locate", Mock(side_effect=AssertionError))

    assert found(Archive(root)) == expected(lambda each: True, end=END)


def test_refuse_invalid_time() -> None:
    """A changed time isn't a whole millisecond: the file is damaged, which isn't a traceback."""
    row = {"partition": 0, "offset": 0, "timestamp": 1}
    batch = pa.RecordBatch.from_pylist([row], schema=SCHEMA)

    with pytest.raises(DataFileError, match="times were changed"):
        search._refuse_invalid(batch)

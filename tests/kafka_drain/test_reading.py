"""An archive as one pyarrow dataset, against what its files hold."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile
from kafka_drain.archive.inspection import committed_files
from kafka_drain.archive.window import Window
from kafka_drain.errors import ArchiveError, ConfigError, ManifestInvalidError
from kafka_drain.events import sealed_summary, segment_events
from kafka_drain.offsets import TopicPartition
from kafka_drain.reading import archive_dataset, archive_paths, sealed_paths, segments_filter
from tests.kafka_drain.counting import calls_of
from tests.kafka_drain.golden import (
    END,
    GOLDEN,
    NOON,
    P0,
    P1,
    RECEIPTS,
    add_batch,
    golden_copy,
    open_next,
    row,
    seal,
    sealed_copy,
)
from tests.kafka_drain.made_archive import MadeArchive, dense

NAMES = ["key", "value", "headers", "partition", "offset", "timestamp", "timestampType", "topic"]


def rows_of(dataset: ds.Dataset, **options: Any) -> list[dict[str, Any]]:
    rows = dataset.to_table(**options).to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def offsets_of(dataset: ds.Dataset, **options: Any) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows_of(dataset, **options)]


def up_to(end: int, start: int = 0) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in (0, 1) for offset in range(start, end)]


def test_archive_dataset_golden() -> None:
    """Every row of every committed file is there once, with the topic of its folder."""
    dataset = archive_dataset(str(GOLDEN))
    rows = rows_of(dataset)

    assert dataset.schema.names == NAMES
    assert offsets_of(dataset) == up_to(END)
    written = pa.concat_tables(
        pq.read_table(str(path), partitioning=None) for path in sorted(GOLDEN.rglob("part-*"))
    ).to_pylist()
    expected = sorted(written, key=lambda row: (row["partition"], row["offset"]))
    assert [{name: row[name] for name in NAMES[:-1]} for row in rows] == [
        {name: row[name] for name in NAMES[:-1]} for row in expected
    ]
    assert {row["topic"] for row in rows} == {"flights"}


def test_archive_dataset_orphan(tmp_path: Path) -> None:
    """A file that the manifest doesn't list is no part of the archive."""
    archive = golden_copy(tmp_path / "archive")
    [path, *_] = sorted(Path(str(archive.root)).rglob("part-*"))
    path.with_name("part-00009-left.parquet").write_bytes(path.read_bytes())

    assert offsets_of(archive_dataset(archive)) == up_to(END)


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_archive_dataset_generations(tmp_path: Path, file_format: str) -> None:
    """Generations of another format and other folders make one schema, and each row is there."""
    archive = sealed_copy(tmp_path / "archive")
    generation = open_next(archive, file_format, ["topic", "date"])
    add_batch(generation, 0, END, 50, "topic=flights/date=2013-01-01")
    add_batch(generation, 1, 50, 60, "topic=flights/date=2013-01-02")

    dataset = archive_dataset(archive)

    exact = ["timestampMillis"] * (file_format == "orc")
    assert set(dataset.schema.names) == {*NAMES, *exact, "date"}
    assert dataset.schema.field("date").type == pa.string()
    assert offsets_of(dataset) == up_to(60)
    days = [None] * END + ["2013-01-01"] * 8 + ["2013-01-02"] * 10
    assert [found["date"] for found in rows_of(dataset)] == days * 2
    late = [{n: r[n] for n in NAMES} for r in rows_of(dataset) if r["date"]]
    assert late == [row(tp, offset) for tp in (P0, P1) for offset in range(END, 60)]


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_archive_dataset_filters(tmp_path: Path, file_format: str) -> None:
    """Rows are chosen by columns of files, folders and both formats alike."""
    archive = sealed_copy(tmp_path / "archive")
    generation = open_next(archive, file_format, ["topic", "date"])
    add_batch(generation, 0, END, 50, "topic=flights/date=2013-01-01")
    add_batch(generation, 1, 50, 60, "topic=flights/date=2013-01-02")
    dataset = archive_dataset(archive)

    def chosen(condition: ds.Expression) -> list[tuple[int, int]]:
        return offsets_of(dataset, filter=condition)

    assert chosen(ds.field("date") == "2013-01-02") == up_to(60, start=50)
    assert chosen(ds.field("date").is_null()) == up_to(END)
    assert chosen(ds.field("topic") == "flights") == up_to(60)
    assert chosen(ds.field("topic") == "other") == []
    assert chosen((ds.field("offset") >= 40) & (ds.field("partition") == 1)) == [
        (1, offset) for offset in range(40, 60)
    ]
    late = (ds.field("timestamp") >= NOON + timedelta(seconds=55)) & ds.field("date").is_valid()
    assert chosen(late) == up_to(60, start=55)
    assert dataset.to_table(columns=["date", "offset"]).schema.names == ["date", "offset"]
    assert dataset.count_rows() == 120


def test_archive_dataset_unsealed(tmp_path: Path) -> None:
    """What no receipt proves yet is there, and left out for those who say so."""
    archive = sealed_copy(tmp_path / "archive")
    add_batch(archive.generation(1), 14, END, 50)

    assert offsets_of(archive_dataset(archive)) == up_to(50)
    assert offsets_of(archive_dataset(archive, include_unsealed=False)) == up_to(END)
    seal(archive)
    assert offsets_of(archive_dataset(archive, include_unsealed=False)) == up_to(50)


def test_archive_paths(tmp_path: Path) -> None:
    """The files are those of the dataset: no orphan, and only what is proven for those who say so.

    Their records are counted by their receipts.
    """
    archive = sealed_copy(tmp_path / "archive")
    new = add_batch(archive.generation(1), 14, END, 50)
    new[0].with_name("part-00009-left.parquet").write_bytes(new[0].read_bytes())

    proven = archive_paths(str(archive.root), include_unsealed=False)

    assert offsets_of(ds.dataset(archive_paths(archive), partitioning="hive")) == up_to(50)
    assert offsets_of(ds.dataset(proven, partitioning="hive")) == up_to(END)
    files = committed_files(archive)
    assert [file["path"] for file in files] == archive_paths(archive)
    assert [file["records"] for file in files] == [3] * 28 + [None] * 2
    assert committed_files(archive, include_unsealed=False) == files[:28]


def test_archive_dataset_odd_topics(tmp_path: Path) -> None:
    """A topic that looks like a number stays text; a folder without a value is null."""
    archive = sealed_copy(tmp_path / "archive")
    generation = open_next(archive, "parquet", ["topic", "date"])
    add_batch(generation, 0, END, 50, "topic=007/date=__HIVE_DEFAULT_PARTITION__")

    rows = rows_of(archive_dataset(archive), filter=ds.field("topic") == "007")

    assert [(r["topic"], r["date"]) for r in rows] == [("007", None)] * 16


def test_archive_dataset_topic_in_files(tmp_path: Path) -> None:
    """Where folders don't name the topic, the files do."""
    archive = sealed_copy(tmp_path / "archive")
    generation = open_next(archive, "parquet", ["date"])
    for path in add_batch(generation, 0, END, 50, "date=2013-01-01"):
        table = pq.read_table(str(path), partitioning=None)
        size = path.stat().st_size
        pq.write_table(table.append_column("topic", pa.array(["flights"] * 8)), str(path))
        log = Path(str(generation.data)) / "_spark_metadata" / "0"
        log.write_text(log.read_text().replace(f": {size}", f": {path.stat().st_size}"))

    rows = rows_of(archive_dataset(archive), filter=ds.field("offset") >= END)

    assert [(r["topic"], r["date"]) for r in rows] == [("flights", "2013-01-01")] * 16


def test_archive_dataset_file_gone(tmp_path: Path) -> None:
    """A committed file that isn't there is an error, never rows that are missing unnoticed."""
    archive = golden_copy(tmp_path / "archive")
    sorted(Path(str(archive.root)).rglob("part-*"))[0].unlink()

    with pytest.raises(ManifestInvalidError, match="doesn't exist"):
        archive_dataset(archive).to_table()


def test_archive_dataset_receipt_damaged(tmp_path: Path) -> None:
    """A list of files that can't be whole makes no dataset."""
    archive = sealed_copy(tmp_path / "archive")
    path = archive.root / RECEIPTS / "000000000012.json"
    path.write_text(path.read_text().replace('"records":', '"Records":', 1))

    with pytest.raises(ManifestInvalidError, match="a receipt is damaged"):
        archive_dataset(archive)


@pytest.mark.parametrize("file_format", ["avro", "json"])
def test_archive_dataset_other_format(tmp_path: Path, file_format: str) -> None:
    """Files that pyarrow's datasets don't read are refused with what reads them."""
    archive = sealed_copy(tmp_path / "archive")
    add_batch(open_next(archive, file_format, ["topic"]), 0, END, 50)

    with pytest.raises(ConfigError, match=f"holds {file_format} files.*reader.read_archive"):
        archive_dataset(archive)


def test_archive_dataset_empty(tmp_path: Path) -> None:
    """An archive that holds nothing yet has the columns and no row."""
    archive = Archive.at(str(tmp_path / "archive"))
    archive.create(pipeline="p", cluster_id="c", topic_ids={"t": "1"}, source={"topics": ["t"]})

    dataset = archive_dataset(archive)

    assert dataset.schema.names == NAMES
    assert dataset.to_table().num_rows == dataset.count_rows() == 0


def test_archive_dataset_no_archive(tmp_path: Path) -> None:
    """A folder that is no archive is refused."""
    with pytest.raises(ArchiveError, match=r"without archive\.json"):
        archive_dataset(str(tmp_path))


def test_archive_dataset_fsspec() -> None:
    """An archive that fsspec leads to is read like a local one."""
    root = UPath(f"memory://{uuid.uuid4().hex}/archive")
    for path in GOLDEN.rglob("*"):
        if path.is_file():
            target = root.joinpath(*path.relative_to(GOLDEN).parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())

    assert offsets_of(archive_dataset(str(root))) == up_to(END)
    assert rows_of(archive_dataset(str(root))) == rows_of(archive_dataset(str(GOLDEN)))


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("part-0", {}),
        ("topic=a.b-c_d/part-0", {"topic": "a.b-c_d"}),
        ("date=2013-01-01/hour=05/part=1", {"date": "2013-01-01", "hour": "05"}),
        ("topic=a%3Ab%25/part-0", {"topic": "a:b%"}),
        ("date=__HIVE_DEFAULT_PARTITION__/part-0", {"date": None}),
    ],
)
def test_folder_values(path: str, values: dict[str, str | None]) -> None:
    """Folders below the data folder name columns, and no other name does."""
    window = Window(UPath("/x=1"), "a=b")
    file = ArchiveFile(f"{window.data_name}/{path}", 1, "parquet", window, {})

    assert file.folder_values == values


def test_segments_filter(tmp_path: Path) -> None:
    """What an asset's event tells of a segment is enough to read its records, and no others."""
    archive = sealed_copy(tmp_path / "archive")
    receipts = list(archive.generation(1).receipts())
    events = segment_events(receipts)

    for receipt, event in zip(receipts, events, strict=True):
        found = rows_of(archive_dataset(archive), filter=segments_filter([event]))
        assert len(found) == receipt.records
        for each in found:
            part = TopicPartition(each["topic"], each["partition"])
            assert receipt.starts[part] <= each["offset"] < receipt.ends[part]
    both = rows_of(archive_dataset(archive), filter=segments_filter(events))
    assert len(both) == sum(receipt.records for receipt in receipts)
    assert rows_of(archive_dataset(archive), filter=segments_filter([])) == []


@pytest.mark.parametrize(
    ("segments", "partitions", "holes", "step"),
    [
        (100, 1_000, False, 7),
        (1, 1_000, True, 7),
        (1, 10_000, True, 7),
        (200, 50, True, 7),
        (500, 1, True, 7),
        # All partitions begin alike, and what is looked up together ends differently.
        (3, 1_004, True, 0),
    ],
)
def test_segments_filter_with_many_ranges(
    segments: int, partitions: int, holes: bool, step: int
) -> None:
    """An event at its limits, and more ranges than that, take exactly their own records."""
    events: list[dict[str, Any]] = []
    held: dict[int, list[tuple[int, int]]] = {}
    for number in range(segments):
        offsets: dict[str, list[list[int]]] = {}
        for partition in range(partitions):
            start = step * partition + 20 * number
            end = start + (11 + partition % 5 if holes else 20)
            offsets[f"a-b-{partition}"] = [[start, end]]
            held.setdefault(partition, []).append((start, end))
        events.append({"offsets": offsets})
    at = [(p, edge) for p, ranges in held.items() for r in ranges for edge in r][:10_000]
    at = [(p, edge + near) for p, edge in at for near in (-1, 0) if edge + near >= 0]
    table = pa.table(
        {
            "topic": pa.array(["a-b", "a"] * len(at)),
            "partition": pa.array([p for p, _ in at for _ in "ab"], pa.int32()),
            "offset": pa.array([offset for _, offset in at for _ in "ab"], pa.int64()),
        }
    )

    found = ds.dataset(table).to_table(filter=segments_filter(events))

    expected = [
        (p, offset) for p, offset in at if any(start <= offset < end for start, end in held[p])
    ]
    assert set(found["topic"].to_pylist()) == {"a-b"}
    pairs = zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)
    assert sorted(pairs) == sorted(expected)


def test_segments_filter_of_a_topic_made_again(tmp_path: Path) -> None:
    """The segments of a topic that was made again are its own records, not the former topic's."""
    made = MadeArchive(tmp_path / "archive", {"t": "first"})
    made.seal({TopicPartition("t", 0): dense(0, 5)}, value=b"of the former topic")
    made.open_generation(t="second")
    made.seal({TopicPartition("t", 0): dense(0, 3)}, value=b"new")
    made.open_generation()

    [event] = segment_events(made.archive.generation(2).receipts())
    dataset = archive_dataset(made.archive, segments=iter([event]))
    found = rows_of(dataset, filter=segments_filter([event]))

    assert event["records"] == 3
    assert [row["value"] for row in found] == [b"new"] * 3
    # An event of an earlier release names no ids.
    older = {key: value for key, value in event.items() if key != "topics"}
    assert len(rows_of(archive_dataset(made.archive, segments=[older]))) == 8
    assert rows_of(archive_dataset(made.archive, segments=[])) == []


def test_archive_dataset_segment_bounds(tmp_path: Path) -> None:
    """The files that hold any offset of a segment are read, whole, and no other ones."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    for first in (0, 5, 10):
        made.seal({TopicPartition("t", 0): dense(first, first + 5)})
    made.open_generation()
    paths = archive_paths(made.archive)
    expected = {
        (0, 1): [0],
        (4, 5): [0],
        (5, 6): [1],
        (4, 6): [0, 1],
        (15, 16): [],
        (9, 99): [1, 2],
    }

    for (start, end), files in expected.items():
        for topic in ("t", "u"):
            asked = [{"offsets": {f"{topic}-0": [[start, end]]}}]
            dataset = archive_dataset(made.archive, segments=asked)
            found = [fragment.path for fragment in dataset.get_fragments()]
            assert found == [paths[n] for n in files if topic == "t"]


def test_archive_dataset_segments_beside_unsealed(tmp_path: Path) -> None:
    """A segment is sealed: committed files that no receipt proves yet aren't its own."""
    archive = sealed_copy(tmp_path / "archive")
    add_batch(archive.generation(1), 14, END, 50)
    asked = [{"offsets": {"flights-0": [[END - 1, 50]], "flights-1": [[END, 50]]}}]

    found = archive_dataset(archive, segments=asked)

    assert offsets_of(found, filter=segments_filter(asked)) == [(0, END - 1)]


def test_archive_dataset_encrypted(tmp_path: Path) -> None:
    """A dataset doesn't decrypt: it is refused before a reader sees what looks like damage."""
    archive = sealed_copy(tmp_path / "archive")
    (tmp_path / "archive" / "keys").mkdir()
    (tmp_path / "archive" / "keys" / f"{'0' * 16}.0001.json").write_text("{}")

    with pytest.raises(ConfigError, match=r"a dataset doesn't decrypt; use `kafka-drain find "):
        archive_dataset(archive)
    assert archive_paths(archive)


def test_sealed_paths_with_other_credentials(tmp_path: Path) -> None:
    """The receipts are read where the caller can; the paths are those that the run has told."""
    archive = sealed_copy(tmp_path / "archive")
    told = sealed_summary("s3://bucket/a/", [*archive.generation(1).receipts()])
    files = [path.removeprefix(f"{archive.root}/") for path in archive_paths(archive)]

    few = told | {"paths": told["paths"][:1]}

    assert sorted(sealed_paths(few, archive)) == sorted(f"s3://bucket/a/{file}" for file in files)


def test_archive_dataset_of_many_segments(tmp_path: Path) -> None:
    """The work for a segment doesn't grow with the number of files."""

    def work_for_segment(files: int) -> float:
        made = MadeArchive(tmp_path / f"archive-{files}", {"t": "1"})
        for batch in range(files):
            made.seal({TopicPartition("t", 0): dense(2 * batch, 2 * batch + 2)})
        made.open_generation()
        events = segment_events(made.archive.generation(1).receipts())

        def work(asked: list[dict[str, Any]]) -> int:
            return calls_of(lambda: archive_dataset(made.archive, segments=asked))

        # Segments that don't touch.
        few, many = events[::10], events[::2]
        assert len(rows_of(archive_dataset(made.archive, segments=many))) == files
        return (work(many) - work(few)) / (len(many) - len(few))

    # A comparison with each file would be at least 70 calls more.
    assert work_for_segment(100) - work_for_segment(30) < 20

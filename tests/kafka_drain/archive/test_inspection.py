"""What is said of an archive without its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files, inspect_archive
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.golden import END, P0, add_batch, open_next, row, seal_repair
from tests.kafka_drain.made_archive import MadeArchive, dense

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive with a generation without checkpoint, an empty one, and windows."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal({A: dense(3, 10), B: dense(0, 2)})
    made.seal({A: dense(10, 15), B: dense(2, 4)})
    made.open_generation()
    made.start_at({A: 15, B: 4})
    [lost, _] = made.seal_window("day", {A: dense(0, 3), B: dense(7, 9)})
    made.seal_window("repair_1", {A: dense(0, 3)}, [lost.path])
    return made


def test_inspect_archive(made: MadeArchive) -> None:
    """Without a checkpoint, a generation ends where its newest receipt does, or where it starts.

    Of a window, the files count that no later one replaces.
    """
    said = inspect_archive(made.archive)

    assert (said["archive"], said["pipeline"]) == (str(made.root), "made")
    assert said["cluster_id"] == made.cluster_id
    assert [generation["partitions"] for generation in said["generations"]] == [
        [
            {"topic": "t", "partition": 0, "start": 3, "end": 15, "offsets": 12},
            {"topic": "t", "partition": 1, "start": 0, "end": 4, "offsets": 4},
        ],
        [
            {"topic": "t", "partition": 0, "start": 15, "end": 15, "offsets": 0},
            {"topic": "t", "partition": 1, "start": 4, "end": 4, "offsets": 0},
        ],
    ]
    [first, second] = said["generations"]
    assert (first["generation"], second["generation"]) == (1, 2)
    assert (second["batches"], second["files"], second["bytes"]) == (0, 0, 0)
    [_, day] = [file for file in made.files() if file.owner.name == "windows/day"]
    [repair] = [file for file in made.files() if file.owner.name == "windows/repair_1"]
    assert sorted(said["windows"], key=lambda window: str(window["window"])) == [
        {"window": name, "format": "parquet", "files": 1, "bytes": size, "records": records}
        for name, size, records in (("day", day.bytes, 2), ("repair_1", repair.bytes, 3))
    ]


def test_committed_files_unsealed(archive: Archive) -> None:
    """Each file has its place and size; what no receipt proves yet is marked, or left out."""
    sealed = committed_files(archive)
    paths = add_batch(open_next(archive, "parquet", ["topic"]), 0, END, END + 3)

    found = committed_files(archive)

    assert committed_files(archive, include_unsealed=False) == sealed
    assert all(file["sealed"] and file["generation"] == 1 for file in sealed)
    assert sorted((f["path"], f["size"], f["generation"]) for f in found if not f["sealed"]) == [
        (str(path), path.stat().st_size, 2) for path in sorted(paths)
    ]
    assert {file["records"] for file in found if not file["sealed"]} == {None}


def test_committed_files_of_window(archive: Archive) -> None:
    """A window's file names its window, and has as many records as its receipt says."""
    path = seal_repair(archive, "repair_1", [row(P0, END + at) for at in range(3)], [])

    [found] = [file for file in committed_files(archive) if "generation" not in file]

    assert found == {
        "path": str(path),
        "size": path.stat().st_size,
        "window": "repair_1",
        "sealed": True,
        "records": 3,
    }

"""When the open generation is to be closed: by the length of its manifest, or by its age."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.offsets import TopicPartition
from kafka_drain.windows.roll import due_for_roll
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.tables import each_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
DAYS, LINES = 30, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where archives are, by the number of files in their open generation; not to be changed."""
    folder = tmp_path_factory.mktemp("due")
    for files in (0, 2, 4, 6):
        made = MadeArchive(folder / str(files), {"t": "id-1"})
        # Files of an earlier generation don't count.
        made.seal({T0: dense(0, 5), T1: dense(0, 5)})
        made.open_generation()
        for batch in range(files // 2):
            made.seal({tp: dense(5 + 5 * batch, 10 + 5 * batch) for tp in (T0, T1)})
    return folder


def opened_at(archive: Archive) -> datetime:
    """Return when the open generation was opened."""
    generation = archive.snapshot().open_generation
    assert generation is not None
    return datetime.fromisoformat(generation.document.opened_at)


@each_of(
    ("files", "age", "expected"),
    [
        (0, timedelta(), ""),
        # Closed for its age alone, an empty one would be closed each night.
        (0, timedelta(days=99), ""),
        (4, timedelta(), ""),
        (6, timedelta(), "its manifest has 6 lines, max_manifest_lines is 4"),
        (2, timedelta(days=DAYS, seconds=-1), ""),
        (2, timedelta(days=DAYS), "it was opened 30 days ago, max_generation_days is 30"),
        (2, timedelta(days=DAYS + 1), "it was opened 31 days ago, max_generation_days is 30"),
        (6, timedelta(days=DAYS), "its manifest has 6 lines, max_manifest_lines is 4"),
    ],
)
def test_due_for_roll(folder: Path, files: int, age: timedelta, expected: str) -> None:
    """A limit that is reached is named; without files, none is."""
    archive = Archive.at(str(folder / str(files)))
    pipeline = Pipeline(
        name="made",
        topics=["t"],
        archive=str(archive.root),
        max_manifest_lines=LINES,
        max_generation_days=DAYS,
    )

    assert due_for_roll(archive.snapshot(), pipeline, opened_at(archive) + age) == expected


def test_due_for_roll_nothing_drained(tmp_path: Path) -> None:
    """Before the first drain there is nothing to close."""
    archive = Archive.at(str(tmp_path))
    archive.create(pipeline="made", cluster_id="c", topic_ids={}, source={})
    pipeline = Pipeline(name="made", topics=["t"], archive=str(tmp_path))

    assert due_for_roll(archive.snapshot(), pipeline, datetime.now().astimezone()) == ""

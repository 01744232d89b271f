"""When the open generation is to be closed: by the length of its manifest, or by its age."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import CheckpointError, KafkaDrainError, LockedError
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import Level, level_of
from kafka_drain.windows import roll as rolling
from kafka_drain.windows.roll import due_for_roll, roll_between_drains
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


class Waiting:
    """A roll whose drains end after some time; seconds go by only while it sleeps."""

    def __init__(self, ends_at: float, error: KafkaDrainError) -> None:
        self.now, self.ends_at, self.error = 1000.0, 1000 + ends_at, error
        self.rolled: list[tuple[object, str]] = []
        self.leases: list[object] = []
        self.plan: Any = SimpleNamespace(lines=lambda: ["the plan"], discards=False)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @contextmanager
    def hold_lease(self, root: object, *, run: str) -> Iterator[str]:
        assert run == "nightly"
        self.leases.append(root)
        if isinstance(self.error, LockedError) and self.now < self.ends_at:
            raise self.error
        yield "the lease"

    def plan_roll(self, archive: object, cluster: object) -> object:
        assert cluster == "the cluster"
        if self.now < self.ends_at:
            raise self.error
        return self.plan

    def roll(self, plan: object, *, lease: str) -> None:
        self.rolled.append((plan, lease))


@pytest.mark.parametrize("error", [LockedError("a drain"), CheckpointError("not sealed")], ids=str)
@pytest.mark.parametrize(
    ("ends_at", "is_rolled"), [(0, True), (1, True), (100, True), (101, False), (1e9, False)]
)
def test_roll_between_drains(
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
    error: KafkaDrainError,
    ends_at: float,
    is_rolled: bool,
) -> None:
    """It is tried each second until the deadline, once more then; a line a minute says why not."""
    waiting = Waiting(ends_at, error)
    for name in ("hold_lease", "plan_roll", "roll"):
        monkeypatch.setattr(rolling, name, getattr(waiting, name))
    monkeypatch.setattr(rolling, "time", waiting)
    monkeypatch.setattr(rolling, "REPEAT_SECONDS", 60)
    archive: Any = SimpleNamespace(root="/a")
    cluster: Any = "the cluster"

    plan = roll_between_drains(archive, cluster, run="nightly", wait_seconds=100)

    assert plan is (waiting.plan if is_rolled else None)
    assert waiting.rolled == ([(waiting.plan, "the lease")] if is_rolled else [])
    assert waiting.leases == ["/a"] * (1 + int(min(ends_at, 100)))
    lines = [f"roll /a: waiting, for 1 min 40 s at most: {error}"] if ends_at else []
    lines += [f"roll /a: waiting, for 40 s at most: {error}"] if ends_at > 60 else []
    lines.append("the plan" if is_rolled else f"roll /a: WARNING skipped this time: {error}")
    assert said == lines
    if not is_rolled:
        assert level_of(said[-1]) is Level.WARNING

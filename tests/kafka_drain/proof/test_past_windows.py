"""Where the windows end that go on from an offset, and holes that Kafka explains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.journal.entries import Journal
from kafka_drain.archive.segment_overlaps import Hole
from kafka_drain.archive.soundness import SealedState
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.past_windows import findings_before_drain, past_windows
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import MadeArchive, dense

P0 = TopicPartition("orders", 0)
IDS = {"orders": "topic-1"}


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of read_uncommitted, with windows of offsets 3 to 6 and 8 to 10."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.seal_window("backfill_1", {P0: dense(3, 6)})
    made.seal_window("backfill_2", {P0: dense(8, 10)})
    path = Path(str(made.root)) / "archive.json"
    content = path.read_text().replace("read_committed", "read_uncommitted")
    path.write_text(content)
    return made


class Kafka:
    """Explains holes, with the reason that it is given for each first offset."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reasons: dict[int, GapReason] = {}
        self.levels: set[str] = set()
        self.ids: set[str] = set()
        monkeypatch.setattr("kafka_drain.proof.past_windows.explain_gaps", self.explain)

    def explain(self, missing: Any, *, identity: Any, **how: Any) -> list[Gap]:
        self.levels.add(how.get("isolation_level", "read_committed"))
        self.ids.update(identity.topics.values())
        [(tp, [hole])] = missing.items()
        reason = self.reasons.get(hole.start, GapReason.UNEXPLAINED)
        return [Gap(tp, hole, reason)]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    """What Kafka says of offsets."""
    return Kafka(monkeypatch)


def passed(made: MadeArchive, at: int, start: int = 0) -> int:
    cluster: Any = FakeCluster({P0: Log(start, 50)}, topic_ids=IDS)
    snapshot = made.archive.snapshot()
    return past_windows(snapshot, snapshot.fold.windows, cluster, P0, at, "topic-1")


def test_past_windows_holes(made: MadeArchive, kafka: Kafka) -> None:
    """Windows are passed up to the first hole that may hold records, as the archive reads them."""
    assert (passed(made, 0), passed(made, 3), passed(made, 4)) == (0, 6, 6)
    kafka.reasons[6] = GapReason.CONTROL
    assert (passed(made, 0), passed(made, 3), passed(made, 10)) == (0, 10, 10)
    kafka.reasons[0] = GapReason.CONTROL
    assert passed(made, 0) == 10
    assert kafka.levels == {"read_uncommitted"}
    assert kafka.ids == {"topic-1"}


def test_past_windows_expired(made: MadeArchive, kafka: Kafka) -> None:
    """What Kafka has deleted can't be drained either, so it is passed."""
    assert passed(made, 3, start=7) == 6
    assert passed(made, 3, start=8) == 10


def test_findings_before_drain(made: MadeArchive, kafka: Kafka) -> None:
    """A hole that Kafka explains is no finding; every other one stays."""
    holes = [
        Hole("generations/0002", "generations/0001", "topic-1", P0, OffsetRange(at, at + 1))
        for at in (20, 30)
    ]
    kafka.reasons[20] = GapReason.CONTROL
    findings = [hole.finding() for hole in holes]
    state = SealedState(made.archive.snapshot(), Journal(), findings, holes=holes)
    cluster: Any = FakeCluster({P0: Log(end=50)}, topic_ids=IDS)

    assert findings_before_drain(state, cluster) == [holes[1].finding()]
    assert findings_before_drain(replace(state, holes=[]), cluster) == state.findings
    assert kafka.levels == {"read_uncommitted"}

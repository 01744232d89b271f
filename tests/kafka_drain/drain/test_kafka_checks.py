"""What Kafka must still hold before a drain, and what is only warned of: on plain values."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from upath import UPath

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain import kafka_checks
from kafka_drain.drain.kafka_checks import (
    hidden_warnings,
    isolation_warnings,
    readable_offsets,
    refuse_expired,
    refuse_rewritten,
    refuse_truncated,
    refuse_unfinishable,
    retention_warnings,
    unread_files,
)
from kafka_drain.errors import DataLossError, OpenTransactionError
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.cluster import Topic
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.kafka_drain.fake_cluster import FakeCluster, Log

ROOT = UPath("/archives/a")
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def pipeline(**keys: Any) -> Pipeline:
    return Pipeline(name="p", topics=["t"], archive="/archives/a", **keys)


def test_refuse_truncated_beside_hidden() -> None:
    """Beside a partition that is only hidden by a transaction, the shorter log is data loss."""
    start, end = {P0: 10, P1: 10, P2: 10}, {P0: 8, P1: 7, P2: 10}

    with pytest.raises(DataLossError) as raised:
        refuse_truncated(ROOT, start, end, {P0: 2, P1: 2})

    assert "than what was drained: t-1 ends at 7, drained up to 10. Kafka" in str(raised.value)
    assert "kafka-drain roll /archives/a --rewritten" in str(raised.value)
    with pytest.raises(OpenTransactionError) as waits:
        refuse_truncated(ROOT, start, end, {P0: 2, P1: 3})
    assert "t-0 is readable up to 8, drained from 10, t-1 is readable up to 7" in str(waits.value)
    refuse_truncated(ROOT, start, start, {})


def test_refuse_unfinishable() -> None:
    """A planned batch needs a log that is as long, also where a transaction hides its end."""
    planned = {P0: 10, P1: 10, P2: 10}
    refuse_unfinishable(ROOT, planned, {P0: 10, P1: 8}, {P1: 2})

    with pytest.raises(DataLossError) as raised:
        refuse_unfinishable(ROOT, planned, {P0: 9, P1: 8}, {P1: 1})

    shown = "t-0 ends at 9, to be read up to 10, t-1 ends at 8, to be read up to 10. Kafka"
    assert shown in str(raised.value)
    assert "then `kafka-drain roll /archives/a`: the next generation" in str(raised.value)


def test_refuse_expired_in_part() -> None:
    """What isn't acknowledged to its last offset is named, with the words that acknowledge it."""
    start, first = {P0: 0, P1: 5, P2: 7}, {P0: 10, P1: 9, P2: 7}
    accepted = {P0: [OffsetRange(0, 10)], P1: [OffsetRange(5, 8)]}

    with pytest.raises(DataLossError) as raised:
        refuse_expired(pipeline(), start, first, accepted)

    assert str(raised.value).endswith("command line: --acknowledge-expired t:1:5-9")
    lost = "Kafka no longer holds offsets that haven't been drained yet: t-0 0 to 9, t-1 5 to 8"
    whole = accepted | {P1: [OffsetRange(5, 9)]}
    [said] = refuse_expired(pipeline(), start, first, whole)
    assert said.endswith("; acknowledged")
    careless = pipeline(source_options={"failOnDataLoss": "false"})
    [warned] = refuse_expired(careless, start, first, accepted)
    assert f"{warned}; acknowledged" == said
    assert warned.startswith(lost[:60])
    assert refuse_expired(pipeline(), start, start, {}) == []


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_readable_offsets(isolation: str) -> None:
    """Only a drain of committed records leaves offsets; the log's own end is asked for first."""
    asked: list[str] = []

    class Cluster(FakeCluster):
        def latest(
            self, partitions: Collection[TopicPartition], isolation_level: str
        ) -> dict[TopicPartition, int]:
            asked.append(isolation_level)
            return {P0: 7 if isolation_level == "read_committed" else 9, P1: 4}

    cluster: Any = Cluster({})
    options = {"kafka.isolation.level": isolation}

    found = readable_offsets(pipeline(source_options=options), cluster, [P0, P1])

    if isolation == "read_committed":
        assert found == ({P0: 7, P1: 4}, {P0: 2})
        assert asked == ["read_uncommitted", "read_committed"]
    else:
        assert found == ({P0: 9, P1: 4}, {})
        assert asked == ["read_uncommitted"]


def test_hidden_warnings() -> None:
    """All that is hidden is counted; only what stands still at its end is said to be stalled."""
    asked: list[tuple[float, float]] = []

    def seen(stands: bool) -> Any:
        def still(end: int, now: float) -> bool:
            asked.append((end, now))
            return stands

        return SimpleNamespace(stands_still_at=still)

    hidden, end = {P1: 2, P0: 1000, P2: 1}, {P0: 7, P1: 8, P2: 9}
    lines = hidden_warnings(hidden, end, {P0: seen(False), P1: seen(True)}, NOW)

    assert lines[0].startswith("1,003 offsets are in or after an open transaction")
    assert lines[0].endswith(": t-0 1,000, t-1 2, t-2 1")
    assert lines[1].startswith("STALLED: t-1 hasn't advanced")
    assert asked == [(7, NOW.timestamp()), (8, NOW.timestamp())]
    assert len(hidden_warnings(hidden, end, {}, NOW)) == 1
    assert hidden_warnings({}, end, {P1: seen(True)}, NOW) == []


def test_isolation_warnings_new_ends() -> None:
    """The last offset of each partition with something new is looked at, and no other."""
    asked: list[Any] = []

    def classify(_: object, ranges: dict[TopicPartition, list[OffsetRange]]) -> list[Gap]:
        asked.append(ranges)
        return [Gap(P0, OffsetRange(8, 9), reason) for reason in reasons]

    uncommitted = pipeline(source_options={"kafka.isolation.level": "read_uncommitted"})
    cluster: Any = FakeCluster({})
    start, end = {P0: 3, P1: 5}, {P2: 1, P1: 5, P0: 9}

    reasons = [GapReason.COMPACTED]
    assert isolation_warnings(uncommitted, cluster, start, end, classify) == []
    assert asked == [{P0: [OffsetRange(8, 9)], P2: [OffsetRange(0, 1)]}]
    for reason in (GapReason.CONTROL, GapReason.ABORTED, GapReason.OPEN):
        reasons = [reason]
        [line] = isolation_warnings(uncommitted, cluster, start, end, classify)
        assert "read_uncommitted and t has transactions" in line
    assert isolation_warnings(pipeline(), cluster, start, end, pytest.fail) == []


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("config", "warns"),
    [
        ({"retention.ms": str(HOUR_MS - 1)}, True),
        ({"retention.ms": "0"}, True),
        ({"retention.ms": str(HOUR_MS)}, False),
        ({"retention.ms": "-1"}, False),
        ({}, False),
        ({"retention.ms": "1", "cleanup.policy": "compact"}, False),
        ({"retention.ms": "1", "cleanup.policy": "compact,delete"}, True),
    ],
)
def test_retention_warnings(config: dict[str, str], warns: bool) -> None:
    """Only a topic that deletes records before the next drain is warned of."""
    cluster: Any = FakeCluster({P0: Log()}, configs={"t": config})
    topics = {"t": Topic("t", "id", (0,))}

    lines = retention_warnings(pipeline(schedule="@hourly"), cluster, topics, NOW)

    assert [line.startswith("EXPIRING: topic t keeps records") for line in lines] == [True] * warns
    assert retention_warnings(pipeline(schedule=None), cluster, topics, NOW) == []


@pytest.mark.parametrize("rewritten", ["", "sealed", "unsealed"])
def test_refuse_rewritten(monkeypatch: pytest.MonkeyPatch, rewritten: str) -> None:
    """Sealed and unsealed tails are compared, each with its own files; what can't be is told."""
    asked: list[Any] = []

    def compare(name: str) -> Any:
        def compared(*given: Any, **keys: Any) -> Any:
            assert given[:2] == (snapshot, cluster)
            asked.append((name, given[2:], keys))
            changed = {P1: "x", P0: "y"} if name == rewritten else {}
            return SimpleNamespace(rewritten=changed, not_compared=lambda: [f"not {name}"])

        return compared

    def first(*given: Any) -> tuple[Any, ...]:
        *asked_of, tp, tail, _ = given
        assert asked_of == [snapshot, cluster]
        begins.append((tp, tail))
        return ()

    begins: list[Any] = []
    monkeypatch.setattr(kafka_checks, "compare_sealed", compare("sealed"))
    monkeypatch.setattr(kafka_checks, "compare_with_logs", compare("unsealed"))
    monkeypatch.setattr(kafka_checks, "first_difference", first)
    monkeypatch.setattr(kafka_checks, "rewritten_text", lambda begins, _: f"in {[*begins]}")
    snapshot: Any = SimpleNamespace(root=ROOT)
    cluster: Any = "the cluster"
    tails: Any = {name: {P0: f"{name} 0", P1: f"{name} 1"} for name in ("sealed", "unsealed")}
    files: Any = ["a file"]

    def run() -> list[str]:
        return refuse_rewritten(
            snapshot, cluster, tails["sealed"], {P0: 1}, {P0: 9}, tails["unsealed"], files
        )

    if rewritten:
        with pytest.raises(DataLossError, match=r"kafka-drain roll /archives/a --rewritten"):
            run()
        assert begins == [(P0, f"{rewritten} 0"), (P1, f"{rewritten} 1")]
    else:
        assert run() == ["not sealed", "not unsealed"]
        assert asked == [
            ("sealed", (tails["sealed"], {P0: 1}, {P0: 9}), {}),
            ("unsealed", (tails["unsealed"], {P0: 1}, {P0: 9}), {"unsealed": files}),
        ]


def test_unread_files() -> None:
    """Files that couldn't be compared are counted, and one is named."""
    [line] = unread_files(ROOT, ["b", "a"])

    assert line.startswith("2 files that aren't sealed can't be read, such as a:")
    assert unread_files(ROOT, []) == []

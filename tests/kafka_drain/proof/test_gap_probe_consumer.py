"""Gaps, of which consumers of a log are asked whose every offset is known."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.errors import MachineError, SourceRecordError
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.fetch_size import BOUNDED
from kafka_drain.kafka.fetch_watch import FetchWatch
from kafka_drain.kafka.records import GROUP
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_probe
from kafka_drain.proof.gap_probe import classify_gaps
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.fake_message import FakeMessage

T, C = TopicPartition("t", 0), TopicPartition("c", 0)
R = OffsetRange
END, STABLE = 9, 8


class KnownLog:
    """What each partition holds, for the consumers that read it; each offset is a batch.

    Attributes:
        records: Offsets with a record, and whether it was committed.
        markers: Offsets with a transaction marker.
        damaged: The offset that a client names at a damaged batch, by the batch's.
        is_telling: Whether consumers log their fetches.
        configs: What consumers were made with.
        closed: Whether each closed consumer still read a partition.
    """

    def __init__(
        self,
        records: Mapping[int, bool],
        markers: Sequence[int] = (),
        damaged: Mapping[int, int] | None = None,
        *,
        is_telling: bool = True,
    ) -> None:
        self.records, self.markers, self.damaged = records, markers, damaged or {}
        self.is_telling = is_telling
        self.configs: list[Mapping[str, Any]] = []
        self.closed: list[bool] = []

    def consumer(self, config: Mapping[str, Any]) -> Consumer:
        self.configs.append(config)
        return Consumer(self, config)


class Consumer:
    """Reads a known log; a response is all of it, or a batch for one of the least size."""

    def __init__(self, log: KnownLog, config: Mapping[str, Any]) -> None:
        self._log = log
        self._is_committed = config["isolation.level"] == "read_committed"
        self._by_batch = config["fetch.message.max.bytes"] == 1
        self._logger = config.get("logger", logging.Logger("nobody"))
        self._version = self._polls = 0
        self._is_assigned = False

    def assign(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        [self._tp] = partitions
        self._at = self._fetched = self._tp.offset
        self._is_assigned = True
        self._version += 1

    def unassign(self) -> None:
        self._at = END
        self._is_assigned = False

    def close(self) -> None:
        self._log.closed.append(self._is_assigned)

    def poll(self, _: float) -> FakeMessage:
        self._polls += 1
        assert self._polls < 100, "it waits for what never comes"
        end = STABLE if self._is_committed else END
        for at in range(self._at, end):
            if at >= self._fetched:
                self._fetch(at)
            self._at = at + 1
            if at in self._log.damaged:
                return FakeMessage(self._log.damaged[at], KafkaError._BAD_MSG)
            if self._log.records.get(at, False) or (
                at in self._log.records and not self._is_committed
            ):
                return FakeMessage(at)
        return FakeMessage(end, KafkaError._PARTITION_EOF)

    def _fetch(self, start: int) -> None:
        there = [at for at in range(start, END) if at in {*self._log.records, *self._log.markers}]
        got = there[:1] if self._by_batch else there
        self._fetched = max(got, default=END) + 1
        if not self._log.is_telling or not got:
            return
        where = f"{self._tp.topic} [{self._tp.partition}]"
        markers = len([at for at in got if at in self._log.markers])
        for line in (
            f"Fetch topic {where} at offset {start} (leader epoch -1, v{self._version})",
            f"Enqueue {len(got)} message(s) (9 bytes) on {where} fetch queue (qlen 1, "
            f"v{self._version}, last_offset {got[-1]}, {markers} ctrl msgs)",
        ):
            self._logger.debug(line)


def ask(
    monkeypatch: pytest.MonkeyPatch,
    log: KnownLog,
    missing: Sequence[OffsetRange],
    *partitions: TopicPartition,
) -> list[Gap]:
    """Return why partitions that hold this log lack some offsets; topic c is compacted."""
    monkeypatch.setattr(gap_probe, "Consumer", log.consumer)
    cluster: Any = FakeCluster(
        {tp: Log(first=1, end=END, stable=STABLE) for tp in partitions},
        configs={"t": {"cleanup.policy": "delete"}, "c": {"cleanup.policy": "compact,delete"}},
    )
    return classify_gaps(cluster, {tp: list(missing) for tp in partitions})


#: Record 1 is lost, 2 and 8 aren't committed, at 4 is nothing between two markers.
MIXED = {1: True, 2: False, 6: True, 8: False}


def test_classify_gaps_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each consumer tells the end of a partition, hides no lost offset, and is closed.

    Those that get markers read nothing any more once they were asked.
    """
    log = KnownLog(MIXED, [3, 5, 7])

    ask(monkeypatch, log, [R(0, 6), R(7, 9)], T, C)

    assert len(log.configs) == 3
    for config in log.configs:
        kept = {name: value for name, value in BOUNDED.items() if name != "queued.min.messages"}
        assert config.items() >= kept.items()
        assert config["enable.partition.eof"] is True
        assert config["auto.offset.reset"] == "error"
        assert config["enable.auto.commit"] is False
        assert config["check.crcs"] is True
        assert config["group.id"] == GROUP
        assert config.keys() >= FetchWatch().settings.keys()
    assert log.closed == [False, False, True]


def test_classify_gaps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a gap, nothing is asked of Kafka."""
    log = KnownLog(MIXED)

    assert ask(monkeypatch, log, []) == []
    assert log.configs == []


@pytest.mark.parametrize("near", [1, 1000])
@pytest.mark.parametrize("order", [(T, C), (C, T)], ids=repr)
def test_classify_gaps_each_reason(
    monkeypatch: pytest.MonkeyPatch, order: Sequence[TopicPartition], near: int
) -> None:
    """Each offset of each partition has its reason, markers told from holes batch by batch."""
    monkeypatch.setattr(gap_probe._records_in, "__defaults__", (near,))
    log = KnownLog(MIXED, markers=[3, 5, 7])

    found = ask(monkeypatch, log, [R(0, 6), R(7, 9)], *order)

    for tp, absent in ((T, GapReason.UNEXPLAINED), (C, GapReason.COMPACTED)):
        assert sorted((gap.range, gap.reason) for gap in found if gap.tp == tp) == [
            (R(0, 1), GapReason.EXPIRED),
            (R(1, 2), GapReason.LOST),
            (R(2, 3), GapReason.ABORTED),
            (R(3, 4), GapReason.CONTROL),
            (R(4, 5), absent),
            (R(5, 6), GapReason.CONTROL),
            (R(7, 8), GapReason.CONTROL),
            (R(8, 9), GapReason.OPEN),
        ]
    for config in log.configs:
        # A consumer that skips what it can't read would find nothing where a record is.
        assert config["auto.offset.reset"] == "error"
        assert config["check.crcs"] is True
        assert config["enable.auto.commit"] is False
    # All partitions are read with the same ones.
    assert [config["isolation.level"] for config in log.configs] == [
        "read_committed",
        *["read_uncommitted"] * 2,
    ]


@pytest.mark.parametrize(
    ("tp", "reasons"),
    [
        (T, [GapReason.CONTROL, GapReason.UNEXPLAINED, GapReason.CONTROL]),
        (C, [GapReason.CONTROL, GapReason.COMPACTED]),
    ],
    ids=repr,
)
def test_classify_gaps_many_told_apart(
    monkeypatch: pytest.MonkeyPatch, tp: TopicPartition, reasons: list[GapReason]
) -> None:
    """Only of a compacted topic some gaps alone are read again: none of another may be a loss."""
    monkeypatch.setattr(gap_probe, "TOLD_APART", 1)
    log = KnownLog({1: True, 3: True, 7: True}, markers=[2, 5])

    found = ask(monkeypatch, log, [R(2, 3), R(4, 6)], tp)

    found.sort(key=lambda gap: gap.range)
    assert [gap.reason for gap in found] == reasons


@pytest.mark.parametrize("tp", [T, C], ids=repr)
def test_classify_gaps_nothing_said(monkeypatch: pytest.MonkeyPatch, tp: TopicPartition) -> None:
    """A client that doesn't say what it received makes no marker a loss, or compacted."""
    log = KnownLog({1: True}, markers=[2], is_telling=False)

    with pytest.raises(MachineError, match="doesn't say what it received of"):
        ask(monkeypatch, log, [R(2, 3)], tp)


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ([R(1, 2), R(6, 7)], 4),
        # The client doesn't say where it is: what is asked for is read by itself.
        ([R(1, 2), R(6, 7)], -1001),
        ([R(6, 7)], 4),
        # Nothing but the damaged batch comes after what is asked for.
        ([R(1, 2)], -1001),
        ([R(2, 4)], 4),
        ([R(2, 4), R(6, 7)], 4),
    ],
)
def test_classify_gaps_damage_elsewhere(
    monkeypatch: pytest.MonkeyPatch, missing: list[OffsetRange], told: int
) -> None:
    """A damaged batch among offsets that nobody asks for hides nothing of those behind it."""
    log = KnownLog({1: True, 2: True, 6: True}, markers=[3], damaged={4: told})

    found = ask(monkeypatch, log, missing, T)

    lost = [gap.range.start for gap in found if gap.reason == GapReason.LOST]
    assert lost == [each.start for each in missing]


@pytest.mark.parametrize("told", [4, -1001])
@pytest.mark.parametrize("missing", [[R(4, 5)], [R(1, 2), R(3, 7)]])
def test_classify_gaps_damaged(
    monkeypatch: pytest.MonkeyPatch, missing: list[OffsetRange], told: int
) -> None:
    """Of offsets with a damaged batch, nothing is known: that is no loss of the archive's."""
    log = KnownLog({1: True, 6: True}, damaged={4: told})

    with pytest.raises(SourceRecordError, match="t-0"):
        ask(monkeypatch, log, missing, T)

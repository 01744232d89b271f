"""An archive into which nothing was drained isn't complete, unless there was nothing to drain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.findings import Reason
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import is_first_drain_missing, validate_archive
from kafka_drain.storage.lease import hold_lease
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.tables import each_of


@pytest.mark.parametrize(
    ("waiting", "has_begun", "whole", "is_missing"),
    [
        (0, False, True, False),
        (0, True, True, False),
        (0, True, False, False),
        (5, True, True, True),
        (5, True, False, True),
        (5, False, True, True),
        # A drain that found nothing has just succeeded; the records came after it.
        (5, False, False, False),
        # What can't be told isn't counted as complete.
        (None, False, True, True),
        (None, True, False, True),
        (None, False, False, False),
    ],
)
def test_is_first_drain_missing(
    waiting: int | None, has_begun: bool, whole: bool, is_missing: bool
) -> None:
    """Whether a first drain is missing, by what is known."""
    about = {"has_begun": has_begun, "whole": whole}
    assert is_first_drain_missing(waiting, is_draining=False, **about) is is_missing
    # The first drain is running; whether it succeeds is said by itself.
    assert is_first_drain_missing(waiting, is_draining=True, **about) is False


def test_validate_nothing_drained(tmp_path: Path) -> None:
    """An archive without a batch isn't complete; one whose newest generation has none is."""
    made = MadeArchive(tmp_path / "archive", {"orders": "id"})

    report = validate_archive(made.archive, None)

    assert not report.complete
    assert [finding.reason for finding in report.findings] == [Reason.NOTHING_DRAINED]
    assert "what waits isn't known" in report.findings[0].detail
    drained: dict[TopicPartition, Any] = {TopicPartition("orders", 0): dense(0, 10)}
    made.seal(drained)
    made.open_generation()
    assert Reason.NOTHING_DRAINED not in {
        f.reason for f in validate_archive(made.archive, None).findings
    }


@each_of(
    ("logs", "waiting"),
    [
        ({0: 0}, None),
        ({0: 3}, "3 offsets wait in Kafka"),
        # It was added after the archive was begun.
        ({0: 0, 1: 7}, "7 offsets wait in Kafka"),
        # Its topic is gone.
        ({}, "what waits isn't known"),
    ],
)
def test_validate_nothing_drained_waiting(
    logs: dict[int, int], waiting: str | None, tmp_path: Path
) -> None:
    """What waits is that of all partitions that a drain would read."""
    made = MadeArchive(tmp_path / str(logs), {"orders": "id"})
    made.start_at({TopicPartition("orders", 0): 0})
    held = {TopicPartition("orders", number): Log(end=end) for number, end in logs.items()}
    cluster: Any = FakeCluster(held, id="cluster-1", topic_ids={"orders": "id"})

    found = [finding.detail for finding in validate_archive(made.archive, cluster).findings]

    assert found == ([] if waiting is None else [f"no batch is committed; {waiting}"])


def test_validate_first_drain_running(tmp_path: Path) -> None:
    """A validation beside the first drain doesn't miss it."""
    made = MadeArchive(tmp_path / "archive", {"orders": "id"})

    with hold_lease(made.root, run="drain"):
        assert validate_archive(made.archive, None).findings == []
    reasons = [finding.reason for finding in validate_archive(made.archive, None).findings]
    assert reasons == [Reason.NOTHING_DRAINED]

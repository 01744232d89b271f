"""Up to where a log has what was archived of a topic's incarnations."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka_drain.archive.incarnations import log_ends, offsets_in_log
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.kafka_drain.made_archive import MadeArchive

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


def opened(made: MadeArchive, topic_id: str, starts: dict[TopicPartition, int]) -> None:
    made.open_generation(t=topic_id)
    made.start_at(starts)


@pytest.mark.parametrize(
    ("second", "third", "ends"),
    [(13, 5, (5, 5)), (13, 27, (13, 27)), (0, 27, (0, 27)), (13, 0, (0, 0)), (9, 9, (9, 9))],
)
def test_log_ends(tmp_path: Path, second: int, third: int, ends: tuple[int, int]) -> None:
    """An incarnation ends where the next one starts, or any after it."""
    made = MadeArchive(tmp_path / "archive", {"t": "id", "u": "id-u"})
    opened(made, "id~2", {P0: second})
    opened(made, "id~2", {P0: second + 100})
    opened(made, "id~3", {P0: third})

    found = log_ends(made.archive.snapshot(), {"t": "id~3", "u": "id-u"}, [P0, P1, U0])

    assert found == {
        (P0, "id"): ends[0],
        (P0, "id~2"): ends[1],
        (P0, "id~3"): sys.maxsize,
        # Added later, or left out: what was archived before, if anything, is still in its log.
        (P1, "id"): sys.maxsize,
        (P1, "id~2"): sys.maxsize,
        (P1, "id~3"): sys.maxsize,
        (U0, "id-u"): sys.maxsize,
    }


def test_offsets_in_log() -> None:
    """Offsets of another topic, or behind the end, aren't the log's."""
    held = {
        (P0, "id"): [OffsetRange(0, 3), OffsetRange(5, 20), OffsetRange(30, 40)],
        (P0, "id~2"): [OffsetRange(13, 15)],
        (P0, "other"): [OffsetRange(0, 9)],
        (P1, "id"): [OffsetRange(7, 9)],
        (U0, "id-u"): [OffsetRange(0, 1)],
    }

    found = offsets_in_log(held, {(P0, "id"): 13, (P0, "id~2"): sys.maxsize, (P1, "id"): 7})

    assert found == {P0: [OffsetRange(0, 3), OffsetRange(5, 15)]}

"""What drains left of their batches, and of which batches it is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.content_checks import Taken
from kafka_drain.proof.fingerprints import BatchNote, notes_fit, parse_note

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Bounds = Mapping[TopicPartition, tuple[int, int]]


def note(bounds: Bounds | None) -> BatchNote:
    ranges = None if bounds is None else {tp: OffsetRange(*r) for tp, r in bounds.items()}
    return BatchNote(Taken(1, "0" * 16), ranges, {})


@pytest.mark.parametrize(
    ("notes", "fit"),
    [
        ([{P0: (2, 9), P1: (0, 4)}], True),
        # Batch after batch.
        ([{P0: (2, 5)}, {P0: (5, 9), P1: (0, 4)}], True),
        ([{P0: (2, 5), P1: (0, 4)}, {P0: (5, 9)}], True),
        ([{P0: (2, 5), P1: (0, 4)}, {}, {P0: (5, 9)}], True),
        # A topic that is gone by now.
        ([{P0: (2, 9), P1: (0, 4), TopicPartition("gone", 0): (0, 7)}], True),
        # Other offsets: of a batch from before a restore.
        ([{P0: (2, 8), P1: (0, 4)}], False),
        ([{P0: (2, 10), P1: (0, 4)}], False),
        ([{P0: (1, 9), P1: (0, 4)}], False),
        ([{P0: (3, 9), P1: (0, 4)}], False),
        ([{P0: (2, 9)}], False),
        ([{}], False),
        ([], False),
        ([{P0: (2, 5), P1: (0, 4)}, {P0: (6, 9)}], False),
        ([{P0: (2, 6), P1: (0, 4)}, {P0: (5, 9)}], False),
        ([{P0: (5, 9), P1: (0, 4)}, {P0: (2, 5)}], False),
        # An older release left nothing of it.
        ([None], True),
        ([None, {P0: (5, 9)}], True),
    ],
)
def test_notes_fit(notes: list[Bounds | None], fit: bool) -> None:
    """Notes fit when together they are of what the checkpoint says was read, each offset once."""
    read = {P0: OffsetRange(2, 9), P1: OffsetRange(0, 4)}

    assert notes_fit([note(each) for each in notes], read) is fit


def test_parse_note() -> None:
    """A note says what was read, of which offsets, and what Kafka had no longer."""
    skipped = [{"topic": "t", "partition": 0, "start": 2, "end": 4}]
    document = {
        "batch": 7,
        "records": 3,
        "fingerprint": "00000000000000ab",
        "by_partition": '{"t":{"0":2,"1":1}}',
        "start": '{"t":{"0":2}}',
        "end": '{"t":{"0":9,"1":4}}',
        "skipped": skipped,
    }

    assert parse_note(document) == BatchNote(
        Taken(3, "00000000000000ab", {P0: 2, P1: 1}),
        {P0: OffsetRange(2, 9), P1: OffsetRange(0, 4)},
        {P0: [OffsetRange(2, 4)]},
    )


def test_parse_note_older_release() -> None:
    """An older release left a number and a fingerprint."""
    document = {"batch": 7, "records": 0, "fingerprint": "f" * 16}

    assert parse_note(document) == BatchNote(Taken(0, "f" * 16), None, {})

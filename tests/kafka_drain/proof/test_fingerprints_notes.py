"""What drains left of their batches, and of which batches it is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.content_checks import Tally
from kafka_drain.proof.fingerprints import BatchNote, combined, notes_fit, parse_note
from tests.tables import each_of

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Bounds = Mapping[TopicPartition, tuple[int, int]]


def note(bounds: Bounds | None) -> BatchNote:
    ranges = None if bounds is None else {tp: OffsetRange(*r) for tp, r in bounds.items()}
    return BatchNote(Tally(1, "0" * 16), ranges, {})


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
        Tally(3, "00000000000000ab", {P0: 2, P1: 1}),
        {P0: OffsetRange(2, 9), P1: OffsetRange(0, 4)},
        {P0: [OffsetRange(2, 4)]},
    )


def test_parse_note_older_release() -> None:
    """An older release left a number and a fingerprint."""
    document = {"batch": 7, "records": 0, "fingerprint": "f" * 16}

    assert parse_note(document) == BatchNote(Tally(0, "f" * 16), None, {})


GOOD = {"records": 3, "fingerprint": "00000000000000ab"}


@pytest.mark.parametrize(
    ("more", "taken"),
    [
        ({"fingerprint": "0" * 16}, Tally(3, "0" * 16)),
        ({"fingerprint": "f" * 16}, Tally(3, "f" * 16)),
        ({"records": 0, "by_partition": "{}"}, Tally(0, "00000000000000ab", {})),
        ({"by_partition": '{"t":{"0":3,"1":0}}'}, Tally(3, "00000000000000ab", {P0: 3, P1: 0})),
    ],
)
def test_parse_note_limits(more: dict[str, object], taken: Tally) -> None:
    """The smallest and the largest values are valid."""
    found = parse_note(GOOD | more)

    assert found is not None
    assert found.taken == taken


@each_of(
    "more",
    [
        {"records": "3"},
        {"records": 3.0},
        {"records": True},
        {"records": -1},
        {"records": None},
        {"fingerprint": 7},
        {"fingerprint": None},
        {"fingerprint": "no number"},
        {"fingerprint": "-1"},
        {"fingerprint": "1" + "0" * 16},
        {"by_partition": 7},
        {"by_partition": "no JSON"},
        {"by_partition": "[]"},
        {"by_partition": '{"t":{"0":2}}'},
        {"by_partition": '{"t":{"0":4}}'},
        {"by_partition": '{"t":{"0":4,"1":-1}}'},
        {"by_partition": "{}"},
        {"end": '{"t":{"0":9}}'},
        {"start": '{"t":{"0":9}}', "end": '{"t":{"0":2}}'},
        {"start": "{}", "end": 7},
        {"start": "{}", "end": "no JSON"},
        {"skipped": 7},
        {"skipped": [7]},
        {"skipped": [{}]},
        {"skipped": [{"topic": "t", "partition": 0, "start": 4, "end": 2}]},
        {"skipped": {"topic": "t"}},
    ],
)
def test_parse_note_not_valid(more: dict[str, object]) -> None:
    """A note that contradicts itself, or is of another form, says nothing."""
    assert parse_note(GOOD) is not None
    assert parse_note(GOOD | more) is None


@pytest.mark.parametrize("missing", ["records", "fingerprint"])
def test_parse_note_lacks(missing: str) -> None:
    """What Spark read is always there."""
    assert parse_note({key: value for key, value in GOOD.items() if key != missing}) is None


def test_combined() -> None:
    """Several batches' notes say together what was read, and what Kafka had no longer."""
    ranges = {P0: OffsetRange(0, 9)}
    first = BatchNote(
        Tally(2, f"{1:016x}", {P0: 2}),
        {P0: OffsetRange(0, 4)},
        {P0: [OffsetRange(0, 1), OffsetRange(2, 3)]},
    )
    second = BatchNote(
        Tally(3, f"{2:016x}", {P0: 3}),
        {P0: OffsetRange(4, 9)},
        {P0: [OffsetRange(1, 2)], P1: [OffsetRange(5, 6)]},
    )

    assert combined([first, second], ranges) == BatchNote(
        Tally(5, f"{3:016x}", {P0: 5}),
        ranges,
        {P0: [OffsetRange(0, 3)], P1: [OffsetRange(5, 6)]},
    )
    assert combined([first], ranges) is None

"""Whether a window may replace files is decided by their records."""

from __future__ import annotations

import pytest

from kafka_drain.errors import DataLossError
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.content_checks import Reread, Tally
from kafka_drain.proof.replacement import (
    NAMED,
    Replacement,
    ReplacementMatch,
    judge_lost,
    judge_removed,
    refuse_unequal,
    rest_of,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FOUR, SIX = Tally(2, f"{4:016x}"), Tally(2, f"{6:016x}")


@pytest.mark.parametrize(
    ("sealed", "found", "match"),
    [
        (FOUR, [FOUR, SIX], ReplacementMatch.EQUAL),
        # The old records had no headers, because nobody asked for them.
        (FOUR, [SIX, FOUR], ReplacementMatch.EQUAL),
        (FOUR, [SIX, SIX], ReplacementMatch.CHANGED),
        (FOUR, [Tally(3, FOUR.fingerprint)], ReplacementMatch.CHANGED),
        (Tally(2, None), [FOUR, FOUR], ReplacementMatch.UNKNOWN),
        (None, [FOUR, FOUR], ReplacementMatch.UNKNOWN),
    ],
)
def test_judge_lost(sealed: Tally | None, found: list[Tally], match: ReplacementMatch) -> None:
    """Lost records are equal only if a receipt has their number and hash."""
    assert judge_lost(sealed, found) is match


@pytest.mark.parametrize(
    ("whole", "parts", "rest"),
    [
        (SIX, [], SIX),
        (Tally(5, f"{7:016x}"), [FOUR, Tally(1, f"{1:016x}")], Tally(2, f"{2:016x}")),
        (Tally(5, None), [FOUR], None),
        (SIX, [Tally(1, None)], None),
    ],
)
def test_rest_of(whole: Tally, parts: list[Tally], rest: Tally | None) -> None:
    """What is left of some records has what is left of their hash."""
    assert rest_of(whole, parts) == rest


def test_rest_of_fingerprints() -> None:
    """Fingerprints are 64 bits in hexadecimal, combined by XOR."""
    whole = Tally(9, "fedcba9876543210")
    parts = [Tally(1, "0f1e2d3c4b5a6978"), Tally(2, "00000000deadbeef")]

    assert rest_of(whole, parts) == Tally(
        6, f"{0xFEDCBA9876543210 ^ 0x0F1E2D3C4B5A6978 ^ 0xDEADBEEF:016x}"
    )


@pytest.mark.parametrize(
    ("accepted", "left"),
    [
        ({}, ("t:0:3-9", "t:1:5-6")),
        ({P0: [OffsetRange(3, 9)]}, ("t:1:5-6",)),
        ({P0: [OffsetRange(0, 5)], P1: [OffsetRange(5, 6)]}, ("t:0:5-9",)),
        ({P0: [OffsetRange(0, 50)], P1: [OffsetRange(0, 50)]}, ()),
    ],
)
def test_refuse_unequal(
    accepted: dict[TopicPartition, list[OffsetRange]], left: tuple[str, ...]
) -> None:
    """Each offset must be accepted; what isn't is named, with the option that accepts it."""
    found = Replacement(
        {P0: [OffsetRange(3, 7)]}, {P0: [OffsetRange(7, 9)], P1: [OffsetRange(5, 6)]}
    )

    assert found.names == ("t:0:3-9", "t:1:5-6")
    rest = found.but(accepted)
    assert (rest.names, rest.is_equal) == (left, not left)
    if left:
        with pytest.raises(DataLossError) as raised:
            refuse_unequal("w", rest, "; way out")
        assert all(f"--replace-changed {name}" in str(raised.value) for name in left)
        assert "Nothing was replaced or removed; way out." in str(raised.value)
    else:
        refuse_unequal("w", rest)


def test_refuse_unequal_reasons() -> None:
    """Offsets that hold other records are told from those of which nothing can be said."""
    found = Replacement({P0: [OffsetRange(3, 7)]}, {P1: [OffsetRange(5, 6)]})

    with pytest.raises(DataLossError) as raised:
        refuse_unequal("w", found)

    said = str(raised.value)
    assert "holds other records at t:0:3-7 than the archive" in said
    assert "the archived records of t:1:5-6 can't be compared" in said
    for part in (Replacement(found.changed), Replacement({}, found.unknown)):
        with pytest.raises(DataLossError) as raised:
            refuse_unequal("w", part)
        assert ("holds other records" in str(raised.value)) is bool(part.changed)
        assert ("can't be compared" in str(raised.value)) is bool(part.unknown)


def test_and_unknown() -> None:
    """What can't be compared is added to what is known to differ, of each partition."""
    found = Replacement({P0: [OffsetRange(3, 7)]}, {P0: [OffsetRange(8, 9)]})

    more = found.and_unknown({P0: [OffsetRange(9, 12)], P1: [OffsetRange(1, 2)]})

    assert more.changed == found.changed
    assert more.unknown == {P0: [OffsetRange(8, 12)], P1: [OffsetRange(1, 2)]}
    assert found.and_unknown({}) == found
    assert not Replacement().and_unknown({P1: [OffsetRange(1, 2)]}).is_equal


def test_refuse_unequal_many() -> None:
    """A message names a number of ranges, and says that there are more."""
    ranges = [OffsetRange(2 * n, 2 * n + 1) for n in range(NAMED + 5)]

    with pytest.raises(DataLossError, match="and 5 more ranges") as raised:
        refuse_unequal("w", Replacement({P0: ranges}))

    assert len(str(raised.value)) < 2500


@pytest.mark.parametrize(
    ("reread", "is_readable", "names"),
    [
        (Reread(), True, ()),
        (Reread({P0: [OffsetRange(4, 4096)]}), True, ("t:0:4-10",)),
        (Reread({P0: [OffsetRange(4, 4096)]}, gone=1), True, ("t:0:0-10", "t:1:5-7")),
        (Reread(gone=1), True, ("t:0:0-10", "t:1:5-7")),
        (Reread(), False, ("t:0:0-10", "t:1:5-7")),
    ],
)
def test_judge_removed(reread: Reread, is_readable: bool, names: tuple[str, ...]) -> None:
    """Files are removed unaccepted only if Kafka holds each of their records as it was."""
    held = [(P0, OffsetRange(0, 6)), (P0, OffsetRange(6, 10)), (P1, OffsetRange(5, 7))]

    assert judge_removed(held, reread, is_readable=is_readable).names == names

"""What a segment's files hold against what Spark read."""

from __future__ import annotations

from itertools import product

import pytest

from kafka_drain.content_checks import Content, Taken, compare_content, content_of
from kafka_drain.contents import CommittedFile, FileOffsets
from kafka_drain.offsets import OffsetRange, TopicPartition

A, B = "00000000000000aa", "00000000000000bb"


def table() -> dict[tuple[int | None, str | None, str | None, int], Content]:
    """Every combination of: more records or fewer, fingerprint of each side, offsets elsewhere.

    The difference is how many records the files hold more than Spark read; None when what Spark
    read isn't known.
    """
    found: dict[tuple[int | None, str | None, str | None, int], Content] = {}
    for difference, read, held, elsewhere in product(
        (None, -2, -1, 0, 1), (None, A), (None, A, B), (0, 1, 2, 9)
    ):
        case = (difference, read, held, elsewhere)
        if difference is None:
            found[case] = Content.UNKNOWN
        elif difference == 1:
            found[case] = Content.MORE
        elif difference < 0:
            found[case] = Content.UNKNOWN if elsewhere >= -difference else Content.FEWER
        elif None in (read, held):
            found[case] = Content.COUNTED
        else:
            found[case] = Content.EQUAL if read == held else Content.CHANGED
    return found


@pytest.mark.parametrize(("case", "expected"), list(table().items()), ids=repr)
def test_compare_content(
    case: tuple[int | None, str | None, str | None, int], expected: Content
) -> None:
    """Each combination of counts and fingerprints has one answer."""
    difference, read, held, elsewhere = case
    taken = None if difference is None else Taken(7, read)

    found = compare_content(taken, Taken(7 + (difference or 0), held), elsewhere=elsewhere)

    assert found is expected


def test_content_may_be_sealed() -> None:
    """Nothing that contradicts what Spark read is sealed."""
    assert {str(each): each.may_be_sealed for each in Content} == {
        "equal": True,
        "counted": True,
        "unknown": True,
        "changed": False,
        "fewer": False,
        "more": False,
    }


def held(records: int, fingerprint: str | None) -> CommittedFile:
    """Return a file with so many records."""
    content = FileOffsets(TopicPartition("t", 0), (OffsetRange(0, records),), records)
    return CommittedFile("p", 1, "sha", (content,), fingerprint=fingerprint)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], Taken(0, "0" * 16)),
        ([(3, A)], Taken(3, A)),
        ([(3, A), (4, B)], Taken(7, "0000000000000011")),
        ([(3, A), (4, None)], Taken(7, None)),
    ],
)
def test_content_of(files: list[tuple[int, str | None]], expected: Taken) -> None:
    """Counts add up and fingerprints are XORed; one that isn't known leaves the whole unknown."""
    assert content_of(held(*each) for each in files) == expected

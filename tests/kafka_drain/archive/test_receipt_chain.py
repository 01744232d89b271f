"""Which receipt may follow which."""

from __future__ import annotations

from itertools import product

import pytest

from kafka_drain.archive.receipt_chain import check_link
from kafka_drain.archive.receipts import FileSet, Receipt
from kafka_drain.findings import Finding, Reason

WHERE = "generations/0001/receipts/000000000007.json"
#: Hashes of two receipts; only their first twelve digits are shown.
A, B = "a" * 64, "b" * 64


def receipt(first: int, last: int, previous: str | None = None) -> Receipt:
    """A receipt of some batches."""
    return Receipt(
        pipeline="p",
        cluster_id="c",
        topics={},
        generation=1,
        first_batch=first,
        last_batch=last,
        sealed_at="",
        previous=previous,
        partitions=(),
        files=(),
        files_so_far=FileSet(),
    )


def link(
    first: int, previous: str | None, before: int | None, known: str | None
) -> list[tuple[Reason, str]]:
    """Check a receipt against one that ends at a batch; return what is found."""
    predecessor = receipt(0, before) if before is not None else None
    found = check_link(receipt(first, first + 1, previous), predecessor, known, WHERE)
    assert all(finding.subject == WHERE for finding in found)
    return [(finding.reason, finding.detail) for finding in found]


@pytest.mark.parametrize("first", [0, 1, 4, 5, 6, 7])
@pytest.mark.parametrize("before", [None, 0, 5])
def test_check_link_batches(first: int, before: int | None) -> None:
    """A receipt starts with the batch after its predecessor's last; the first one with batch 0."""
    found = link(first, A, before, A)

    ends = -1 if before is None else before
    detail = f"starts with batch {first}, but the previous receipt ends at {ends}"
    assert found == ([] if first == ends + 1 else [(Reason.RECEIPT_HOLE, detail)])


@pytest.mark.parametrize(("said", "known"), list(product((None, A, B), repeat=2)))
@pytest.mark.parametrize(("first", "before"), [(0, None), (6, 5)])
def test_check_link_hash(
    first: int, before: int | None, said: str | None, known: str | None
) -> None:
    """It names the hash of its predecessor, also of one in the previous generation."""
    found = link(first, said, before, known)

    words = [str(None) if sha is None else sha[:12] for sha in (said, known)]
    detail = f"was sealed after receipt {words[0]}, but the previous receipt is {words[1]}"
    assert found == ([] if said == known else [(Reason.RECEIPT_CHANGED, detail)])


def test_check_link_hole_first() -> None:
    """Where one is missing between two, that alone is told: the hash has to differ too."""
    assert [reason for reason, _ in link(9, A, 5, B)] == [Reason.RECEIPT_HOLE]


@pytest.mark.parametrize(
    ("forgotten", "previous", "is_excused"),
    [
        ({WHERE: A}, A, True),
        ({WHERE: B}, A, False),
        ({"generations/0001/receipts/000000000008.json": A}, A, False),
        ({}, A, False),
        # The first receipt of an archive names none, so that none is forgotten before it.
        ({}, None, False),
        ({WHERE: A}, None, False),
    ],
)
@pytest.mark.parametrize("first", [6, 9])
def test_check_link_forgotten(
    forgotten: dict[str, str], previous: str | None, is_excused: bool, first: int
) -> None:
    """A lost predecessor is excused that was given up by its hash, for this receipt alone."""
    own, before = receipt(first, first, previous), receipt(0, 5)

    found: list[Finding] = check_link(own, before, B, WHERE, forgotten)

    assert (found == []) is is_excused

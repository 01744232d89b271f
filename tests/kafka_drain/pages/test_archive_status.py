"""What pages show of an archive: each decision, for all that it may be asked."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest

from kafka_drain.pages.archive_status import (
    ACTIVE,
    ArchiveStatus,
    Ended,
    LastRun,
    ProofStatus,
    archive_status,
    cell_colour,
    ended_of,
    headline_kind,
    is_older,
    last_run,
    proof_of,
)
from tests.tables import each_of

ANY = object()
YES, NO = True, False
VERDICTS = (None, "findings", "complete", "a later release's word")
SUCCESS, FAILED, RUNNING, NONE = LastRun.SUCCESS, LastRun.FAILED, LastRun.RUNNING, LastRun.NONE

#: Readable, verdict, run that ended last, validated too early for it; words, colour, urgent.
STATUSES: list[tuple[tuple[Any, ...], tuple[str, str, bool]]] = [
    ((NO, ANY, ANY, ANY), ("unreadable", "bad", YES)),
    ((YES, None, NONE, ANY), ("not validated", "quiet", NO)),
    ((YES, None, RUNNING, ANY), ("not validated", "quiet", NO)),
    ((YES, None, SUCCESS, ANY), ("not validated", "warning", YES)),
    ((YES, None, FAILED, ANY), ("not validated, last run failed", "bad", YES)),
    ((YES, "findings", ANY, ANY), ("findings", "bad", YES)),
    ((YES, "a later release's word", ANY, ANY), ("a later release's word", "bad", YES)),
    ((YES, "complete", FAILED, YES), ("was complete, last run failed", "warning", YES)),
    ((YES, "complete", SUCCESS, YES), ("was complete, not validated since", "warning", YES)),
    ((YES, "complete", NONE, ANY), ("complete", "good", NO)),
    ((YES, "complete", RUNNING, ANY), ("complete", "good", NO)),
    ((YES, "complete", SUCCESS, NO), ("complete", "good", NO)),
    ((YES, "complete", FAILED, NO), ("complete", "good", NO)),
]


@each_of("seen", list(product((YES, NO), VERDICTS, LastRun, (YES, NO))))
@each_of("expires_soon", [YES, NO])
@each_of("has_unknown", [YES, NO])
def test_archive_status(seen: tuple[Any, ...], expires_soon: bool, has_unknown: bool) -> None:
    """An archive is green only when its last validation was complete, and no run ended since."""
    [(words, kind, is_urgent)] = [
        shown
        for wanted, shown in STATUSES
        if all(a is ANY or a == b for a, b in zip(wanted, seen, strict=True))
    ]
    is_readable, verdict, last, is_older = seen
    if kind == "good" and has_unknown:
        words, kind, is_urgent = "complete, some contents unknown", "warning", YES

    found = archive_status(
        is_readable=is_readable,
        verdict=verdict,
        last=last,
        is_older=is_older,
        expires_soon=expires_soon,
        has_unknown=has_unknown,
    )

    assert (found.words, found.kind) == (words, kind)
    assert found.is_urgent is (is_urgent or (kind == "good" and expires_soon))


@each_of("is_damaged, words", [(YES, "damaged"), (NO, "unreadable")])
@each_of("verdict", VERDICTS)
@each_of("last", LastRun)
def test_archive_status_unreadable(
    is_damaged: bool, words: str, verdict: str | None, last: LastRun
) -> None:
    """Of what can't be read, it is said whether its documents are damaged or nobody answers."""
    found = archive_status(
        is_readable=NO,
        is_damaged=is_damaged,
        verdict=verdict,
        last=last,
        is_older=NO,
        expires_soon=NO,
        has_unknown=NO,
    )

    assert (found.words, found.kind, found.rank) == (words, "bad", 1)


def test_archive_status_order() -> None:
    """What is wrong comes before what can't be read, and that before what may become wrong."""
    ranks = [
        archive_status(
            is_readable=is_readable,
            verdict=verdict,
            last=last,
            is_older=True,
            expires_soon=False,
            has_unknown=False,
        ).rank
        for is_readable, verdict, last in (
            (YES, "findings", SUCCESS),
            (NO, None, NONE),
            (YES, "complete", FAILED),
            (YES, None, NONE),
            (YES, "complete", NONE),
        )
    ]

    assert ranks == sorted(set(ranks)) == list(range(5))
    failed = archive_status(
        is_readable=YES,
        verdict=None,
        last=FAILED,
        is_older=NO,
        expires_soon=NO,
        has_unknown=NO,
    )
    assert failed.rank == 1


@each_of(
    "states",
    [s for n in range(4) for s in product(("success", "failed", "running", "queued"), repeat=n)],
)
def test_last_run(states: tuple[str, ...]) -> None:
    """What runs doesn't hide how the run before it ended."""
    ended = [state for state in states if state not in ACTIVE]

    assert last_run(states) == (ended[-1] if ended else RUNNING if states else NONE)


def minute(number: int | None) -> datetime | None:
    start = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
    return None if number is None else start + timedelta(minutes=number)


@pytest.mark.parametrize(
    ("at", "began", "ended", "was_validated", "older"),
    [
        # The run's own validation comes after all that it drains.
        (15, 0, 20, YES, NO),
        (0, 0, 20, YES, NO),
        (-5, 0, 20, YES, YES),
        (25, 0, 20, YES, NO),
        # One by hand while it drains proves only what was there.
        (5, 0, 20, NO, YES),
        (-5, 0, 20, NO, YES),
        (20, 0, 20, NO, NO),
        (25, 0, 20, NO, NO),
        # A run that never began may be failed by hand.
        (5, None, 20, NO, YES),
        (25, None, 20, NO, NO),
        # Where nobody knows, nothing is proven.
        (25, 0, None, NO, YES),
        (25, None, None, NO, YES),
        (25, None, 20, YES, YES),
        (25, 0, None, YES, NO),
    ],
)
def test_is_older(
    at: int, began: int | None, ended: int | None, was_validated: bool, older: bool
) -> None:
    """Only a validation after all that a run may have drained proves what it left."""
    validated_at = minute(at)
    assert validated_at

    found = is_older(
        validated_at, began=minute(began), ended=minute(ended), was_validated=was_validated
    )

    assert found is older


KINDS = ("good", "quiet", "warning", "bad")


@each_of("kinds", [k for n in range(4) for k in product(KINDS, repeat=n)])
def test_headline_kind(kinds: tuple[str, ...]) -> None:
    """All archives together are green only when each is, and there is one."""
    ranks = {"good": 4, "quiet": 3, "warning": 2, "bad": 0}

    found = headline_kind(ArchiveStatus("", kind, ranks[kind]) for kind in kinds)

    urgent = {"warning", "bad"}.intersection(kinds)
    assert found == ("bad" if urgent else "good" if set(kinds) == {"good"} else "quiet")


@each_of("has_unknown", [YES, NO])
@each_of("seen", list(product((YES, NO), VERDICTS, (YES, NO), (YES, NO))))
def test_proof_of(seen: tuple[bool, str | None, bool, bool], has_unknown: bool) -> None:
    """Sealed offsets are proven by a complete verdict, or by one that only names others.

    If it isn't known what Spark read of their records, no more than the offsets are.
    """
    is_readable, verdict, is_damaged, is_placed = seen
    if not is_readable or verdict is None:
        wanted = ProofStatus.UNPROVEN
    elif is_damaged:
        wanted = ProofStatus.DAMAGED
    elif verdict == "complete" or is_placed:
        wanted = ProofStatus.CONTENT_UNKNOWN if has_unknown else ProofStatus.PROVEN
    else:
        wanted = ProofStatus.UNPROVEN

    assert wanted == proof_of(
        is_readable=is_readable,
        verdict=verdict,
        is_damaged=is_damaged,
        is_placed=is_placed,
        has_unknown=has_unknown,
    )


@each_of(
    "gaps, has_records, proof, colour",
    [
        *(({}, records, ProofStatus.PROVEN, "covered") for records in (YES, NO)),
        ({"control": 2}, YES, ProofStatus.PROVEN, "covered"),
        ({"control": 2, "aborted": 3}, NO, ProofStatus.PROVEN, "aborted"),
        *(
            (gaps, records, proof, proof.value)
            for gaps, records, proof in product(
                ({}, {"control": 2}), (YES, NO), (ProofStatus.UNPROVEN, ProofStatus.CONTENT_UNKNOWN)
            )
        ),
        *(
            ({"control": 9, "expired": 1, "lost": 2}, records, proof, "lost")
            for records, proof in product(
                (YES, NO), (p for p in ProofStatus if p is not ProofStatus.DAMAGED)
            )
        ),
        ({"expired": 3, "lost": 2}, YES, ProofStatus.PROVEN, "expired"),
        *(
            (gaps, records, ProofStatus.DAMAGED, "damaged")
            for gaps, records in product(({}, {"control": 2}, {"lost": 2}), (YES, NO))
        ),
    ],
)
def test_cell_colour(
    gaps: dict[str, int], has_records: bool, proof: ProofStatus, colour: str
) -> None:
    """A cell is green only when it is proven, and no offset is lost."""
    assert cell_colour(gaps, has_records, proof) == colour


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("success", Ended(336_776, 100, False)),
        *((state, Ended(191_427, 56, True)) for state in sorted(ACTIVE)),
        *((state, Ended(191_427, 56, False)) for state in ("failed", "up_for_retry", "removed")),
    ],
)
def test_ended_of(state: str, wanted: Ended) -> None:
    """A task that has succeeded has done all; one that failed ended where it had got to."""
    assert ended_of(state, 191_427, 336_776, 56) == wanted

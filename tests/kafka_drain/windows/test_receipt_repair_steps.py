"""What becomes of what is sealed and isn't in order: every combination."""

from __future__ import annotations

from itertools import product

import pytest

from kafka_drain.archive.journal.entries import Tip
from kafka_drain.windows.receipt_repair import (
    FileState,
    RepairAction,
    hash_named,
    judge_sealed,
    may_be_sealed_entry,
    may_be_sealed_receipt,
)
from tests.tables import each_of

BOTH = (False, True)


@each_of("seen, is_named, has_copy, may_forget", list(product(FileState, BOTH, BOTH, BOTH)))
def test_judge_sealed(seen: FileState, is_named: bool, has_copy: bool, may_forget: bool) -> None:
    """Every combination: what is named comes back or stays to be restored, the rest is no proof."""
    step = judge_sealed(seen, is_named=is_named, has_copy=has_copy, may_forget=may_forget)

    if seen is FileState.SOUND:
        assert step is RepairAction.LEAVE
    elif is_named and has_copy:
        assert step is RepairAction.RESTORE
    elif is_named and not may_forget:
        assert step is RepairAction.REFUSE
    elif seen is FileState.UNREADABLE:
        assert step is RepairAction.SET_ASIDE
    else:
        assert step is RepairAction.LEAVE


@pytest.mark.parametrize(
    ("number", "known", "has_head", "expected"),
    [
        (1, 0, False, False),
        # Killed between the first entry and journal.json: a receipt knows that there was one.
        (1, 1, False, True),
        (1, 0, True, False),
        (1, 1, True, True),
        # journal.json is never more than one entry behind.
        (2, 0, False, True),
        (2, 1, False, True),
        (2, 1, True, False),
        (2, 2, True, True),
        (2, 3, True, True),
    ],
)
def test_may_be_sealed_entry(number: int, known: int, has_head: bool, expected: bool) -> None:
    """An entry that can't be read was never finished if nothing knows of it."""
    assert may_be_sealed_entry(number, known=known, has_head=has_head) is expected


A, B, C = (f"{number:012d}.json" for number in (3, 5, 7))


@each_of("name", [A, B, C])
@each_of("tip", [None, Tip(B, 2, "tip")])
@each_of("is_followed, is_open, is_sure", list(product(BOTH, BOTH, BOTH)))
def test_may_be_sealed_receipt(
    name: str, tip: Tip | None, is_followed: bool, is_open: bool, is_sure: bool
) -> None:
    """Only the newest receipt of the open generation is proven again without its hash.

    And only if the journal is whole, and names neither it nor one after it.
    """
    found = may_be_sealed_receipt(
        name, tip, is_followed=is_followed, is_open=is_open, is_sure=is_sure
    )

    is_before_tip = tip is not None and name == A
    assert found is not (is_open and is_sure and not is_followed and not is_before_tip)


@pytest.mark.parametrize("by_window", [None, "window"])
@pytest.mark.parametrize(
    ("tip", "following", "named"),
    [
        (None, ("", None), None),
        (None, (B, "next"), "next"),
        # Its successor was the first one after it was given up.
        (None, (B, None), None),
        (None, (A, "next"), None),
        (Tip(B, 2, "tip"), ("", None), "tip"),
        (Tip(B, 2, "tip"), (B, "next"), "tip"),
        (Tip(C, 2, "tip"), (B, "next"), "next"),
        (Tip(C, 2, "tip"), (A, "next"), None),
    ],
)
def test_hash_named(
    tip: Tip | None, following: tuple[str, str | None], named: str | None, by_window: str | None
) -> None:
    """The journal's word counts most, then that of the next receipt, then that of a window."""
    assert hash_named(B, tip, following, by_window) == (named or by_window)

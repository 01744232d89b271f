"""Decide what a repair does with sealed files that are damaged, and with files never sealed."""

from __future__ import annotations

from enum import Enum


class Seen(Enum):
    """The state in which a file was found."""

    SOUND = "is intact"
    MISSING = "is missing"
    CHANGED = "differs from what was sealed"
    UNREADABLE = "can't be read"


class Step(Enum):
    """The action to take."""

    LEAVE = "left as it is"
    RESTORE = "restored from its copy"
    SET_ASIDE = "moved aside"
    REFUSE = "to be restored by hand"


def judge_sealed(seen: Seen, *, is_named: bool, has_copy: bool, may_forget: bool) -> Step:
    """Decide what to do with a receipt, or with a document that receipts depend on.

    Args:
        seen: The state in which it was found.
        is_named: Whether anything records that it was sealed.
        has_copy: Whether the archive has a copy with the recorded hash.
        may_forget: Whether the user accepts that sealed files without a copy are forgotten, and
            nothing that is left was sealed after this one.
    """
    if seen is Seen.SOUND:
        return Step.LEAVE
    if is_named and has_copy:
        return Step.RESTORE
    if seen is Seen.UNREADABLE and (may_forget or not is_named):
        return Step.SET_ASIDE
    # A missing or changed file is forgotten when the journal is recreated.
    return Step.REFUSE if is_named and not may_forget else Step.LEAVE

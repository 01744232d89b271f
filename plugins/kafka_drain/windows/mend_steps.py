"""What a repair does with what was sealed and isn't in order, and with what never was. Decides."""

from __future__ import annotations

from enum import Enum

__all__ = ["Seen", "Step", "judge_sealed"]


class Seen(Enum):
    """How a file is found."""

    SOUND = "is in order"
    MISSING = "isn't there"
    CHANGED = "isn't the one that was sealed"
    UNREADABLE = "can't be read"


class Step(Enum):
    """What becomes of it."""

    LEAVE = "left as it is"
    RESTORE = "written back from its copy"
    SET_ASIDE = "set aside"
    REFUSE = "to be restored by hand"


def judge_sealed(seen: Seen, *, is_named: bool, has_copy: bool, may_forget: bool) -> Step:
    """Decide what becomes of a receipt, or of a document that decides how one is read.

    Args:
        seen: How it is found.
        is_named: Whether something says that it was sealed.
        has_copy: Whether the archive has a copy with the hash that is named.
        may_forget: Whether somebody has said that what has no copy is to be forgotten, and nothing
            that is left was sealed after it.
    """
    if seen is Seen.SOUND:
        return Step.LEAVE
    if is_named and has_copy:
        return Step.RESTORE
    if seen is Seen.UNREADABLE and (may_forget or not is_named):
        return Step.SET_ASIDE
    # What isn't there, or is another one, is forgotten where the journal is begun anew.
    return Step.REFUSE if is_named and not may_forget else Step.LEAVE

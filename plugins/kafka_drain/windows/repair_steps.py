"""Decide what a repair does with sealed files that are damaged, and with files never sealed."""

from __future__ import annotations

from enum import Enum

from kafka_drain.archive.journal.entries import Tip


class Seen(Enum):
    """The state in which a file was found."""

    SOUND = "is intact"
    MISSING = "is missing"
    CHANGED = "differs from what was sealed"
    UNREADABLE = "can't be read"
    COPIED = "is a copy of another folder"
    OLDER = "is older than the newest entries"


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


def may_be_sealed_entry(number: int, *, known: int, has_head: bool) -> bool:
    """Return whether anything may refer to the journal's newest entry, which can't be read.

    Args:
        known: Highest number of entries in journal.json, or at the sealing of a receipt.
        has_head: Whether there is a journal.json; without one, there can't be more than one entry.
    """
    return known >= number or (not has_head and number > 1)


def may_be_sealed_receipt(
    name: str, tip: Tip | None, *, is_followed: bool, is_open: bool, is_sure: bool
) -> bool:
    """Return whether a generation's receipt may have been sealed even if nothing has its hash.

    Args:
        name: The receipt.
        tip: The generation's newest receipt in the journal; None if that names none.
        is_followed: Whether a later receipt can be read.
        is_open: Whether drains append to the generation: then its batches can be sealed again.
        is_sure: Whether the journal names everything that was sealed.
    """
    return is_followed or (tip is not None and name < tip.name) or not (is_open and is_sure)


def hash_named(
    name: str, tip: Tip | None, following: tuple[str, str | None], by_window: str | None
) -> str | None:
    """Return the hash that a generation's receipt must have; None if nothing records it.

    Args:
        name: The receipt.
        tip: The generation's newest receipt in the journal; None if that names none.
        following: The predecessor that the next receipt refers to, and its hash.
        by_window: The hash in the receipt of a window that contains what was compacted.
    """
    if tip is not None and tip.name == name:
        return tip.sha256
    if following[0] == name and following[1] is not None:
        return following[1]
    return by_window

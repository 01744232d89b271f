"""Decide the locks of objects against deletion.

Opens nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

Mode = Literal["governance", "compliance"]


@dataclass(frozen=True, slots=True)
class Immutability:
    """The lock of an archive's new files.

    Attributes:
        mode: Whether somebody with a permission of its own can end a lock early (`governance`), or
            nobody (`compliance`).
        days: Days from the seal.
    """

    mode: Mode
    days: int

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.days:,} days in {self.mode} mode"

    def from_now(self, now: datetime) -> Retention:
        """Return the lock of a file that is sealed now; stores keep whole seconds."""
        return Retention(self.mode, _whole_second(now) + timedelta(days=self.days))


@dataclass(frozen=True, slots=True)
class Retention:
    """A lock on an object.

    Attributes:
        mode: Its mode, as in `Immutability`.
        until: Its end.
    """

    mode: Mode
    until: datetime


@dataclass(frozen=True, slots=True)
class ObjectLock:
    """An object's lock according to its store.

    Attributes:
        bytes: Its size.
        retention: The lock that it was given; it may be over.
        on_hold: Whether somebody holds it until they release it (a legal hold).
    """

    bytes: int
    retention: Retention | None = None
    on_hold: bool = False

    def is_locked(self, now: datetime) -> bool:
        """Return whether the store refuses to delete it now."""
        return self.on_hold or (self.retention is not None and self.retention.until > now)


@dataclass(frozen=True, slots=True)
class Locked:
    """Files that are locked.

    Attributes:
        files: Their number.
        ends: When the first of those with an end is free, and when the last; None if none has one.
        on_hold: Number of those that a hold keeps, which has no end.
    """

    files: int = 0
    ends: tuple[datetime, datetime] | None = None
    on_hold: int = 0

    @classmethod
    def of(cls, held: Iterable[ObjectLock], now: datetime) -> Locked:
        """Return the locks among some objects."""
        locked = [each for each in held if each.is_locked(now)]
        held_back = sum(each.on_hold for each in locked)
        ends = [
            each.retention.until
            for each in locked
            if each.retention is not None and each.retention.until > now
        ]
        return cls(len(locked), (min(ends), max(ends)) if ends else None, held_back)

    def __str__(self) -> str:
        """Return it in words, beginning with the number of files."""
        said = f"{self.files:,} files, "
        if self.ends is None:
            return f"{said}locked until a legal hold is released" if self.on_hold else said
        first, last = self.ends
        said += f"locked until {_minute(first)}"
        if last != first:
            said += f" (the last until {_minute(last)})"
        if self.on_hold:
            said += f"; {self.on_hold:,} of them also until a legal hold is released"
        return said

    @property
    def ends_at(self) -> str | None:
        """When the last is free, in ISO 8601; None if nothing is locked, or a hold has no end."""
        return None if self.ends is None or self.on_hold else self.ends[1].isoformat()


def to_set(held: ObjectLock, wanted: Retention, now: datetime) -> Retention | None:
    """Return the lock that a store has to be asked for; None if the object has it, or a longer one.

    No lock is made shorter or weaker: the bucket's own default may be stronger, and a store refuses
    it.

    Args:
        held: The object's lock in the store.
        wanted: The lock that it should have.
    """
    found = held.retention
    if found is None or found.until <= now:
        return wanted
    mode: Mode = "compliance" if "compliance" in (found.mode, wanted.mode) else "governance"
    asked = Retention(mode, max(found.until, wanted.until))
    return None if asked == found else asked


def weakened(before: Immutability | None, now: Immutability | None) -> str:
    """Return in words how an archive's new files are locked less than before; empty if they aren't.

    Args:
        before: The archive's lock.
        now: The pipeline's lock.
    """
    if before is None or before == now:
        return ""
    if now is None:
        return f"new files were locked for {before} until now, and aren't locked any more"
    if now.days < before.days or (now.mode, before.mode) == ("governance", "compliance"):
        return f"new files were locked for {before} until now, and are locked for {now} from now on"
    return ""


def _whole_second(moment: datetime) -> datetime:
    return datetime.fromtimestamp(math.ceil(moment.timestamp()), timezone.utc)


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"

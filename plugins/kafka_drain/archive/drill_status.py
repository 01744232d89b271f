"""Whether an archive's drills are as they should be. Opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING

from kafka_drain.progress import duration_text

if TYPE_CHECKING:
    from kafka_drain.archive.documents import DrillDocument

#: A clock may be ahead of another's by so much.
SKEW = timedelta(minutes=5)


class DrillState(str, Enum):
    """The state of an archive's drills."""

    OK = "ok"
    NEVER = "never"
    FAILED = "failed"
    TOO_OLD = "too_old"


def judge_drills(
    newest: str | None, age: timedelta | None, max_age: timedelta | None
) -> DrillState:
    """Judge an archive's drills.

    Args:
        newest: Verdict of the newest drill; None if there was none.
        age: Time since the start of the last one that passed; None if none did.
        max_age: Age from which that is too old; None for any.
    """
    if newest == "failed":
        return DrillState.FAILED
    if age is None:
        return DrillState.NEVER
    if max_age is not None and age > max_age:
        return DrillState.TOO_OLD
    return DrillState.OK


@dataclass(frozen=True)
class DrillStatus:
    """An archive's drills at one moment.

    Attributes:
        passed: The last one that passed.
        max_age: Age from which that is too old.
        now: The moment.
    """

    state: DrillState
    newest: DrillDocument | None
    passed: DrillDocument | None
    max_age: timedelta | None
    now: datetime

    @classmethod
    def of(
        cls, drills: Sequence[DrillDocument], max_age: timedelta | None, now: datetime
    ) -> DrillStatus:
        """Return the status of drills, given oldest first.

        One that is dated ahead of now may have been before the others: it hides no failure of
        theirs, nor their age.
        """
        known = [one for one in drills if datetime.fromisoformat(one.started_at) - now <= SKEW]
        is_failed = bool(drills) and drills[-1].verdict == "failed"
        newest = next(reversed(drills if is_failed or not known else known), None)
        by_age = (*(one for one in drills if one not in known), *known)
        passed = next((one for one in reversed(by_age) if one.verdict == "passed"), None)
        age = now - datetime.fromisoformat(passed.started_at) if passed else None
        state = judge_drills(newest.verdict if newest else None, age, max_age)
        return cls(state, newest, passed, max_age, now)

    @classmethod
    def of_their_own(cls, drills: Sequence[DrillDocument], now: datetime) -> DrillStatus:
        """Return the status of drills by the age that they say themselves, given oldest first.

        One at a terminal may say none, which is no word on that of the pipeline's drills.
        """
        ages = (one.max_age_days for one in reversed(drills) if one.max_age_days is not None)
        days = next(ages, None)
        return cls.of(drills, None if days is None else timedelta(days=days), now)

    @property
    def age(self) -> timedelta | None:
        """Time since the start of the last drill that passed."""
        return self.now - datetime.fromisoformat(self.passed.started_at) if self.passed else None

    @property
    def words(self) -> str:
        """The status in a sentence."""
        last = "no drill has passed yet"
        if self.age is not None:
            last = f"the last drill that passed was {duration_text(self.age.total_seconds())} ago"
        if self.state is DrillState.FAILED and self.newest is not None:
            why = self.newest.problems[0].detail if self.newest.problems else "see its result"
            return f"drill {self.newest.drill} failed: {why}; {last}"
        if self.state is DrillState.TOO_OLD and self.max_age is not None:
            return f"{last}, more than {duration_text(self.max_age.total_seconds())}"
        return last

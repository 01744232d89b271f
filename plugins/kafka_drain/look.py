"""What was seen of an archive, and whether it could be restored by that. Opens nothing.

It is judged when it is shown: a validation grows old meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kafka_drain.archive.drill_status import DrillStatus
from kafka_drain.archive.readiness import (
    Evidence,
    Readiness,
    judge_readiness,
    readiness_text,
    state_of,
)
from kafka_drain.sizing import STORED_LEAST, STORED_MOST, Between, restore_seconds

if TYPE_CHECKING:
    from kafka_drain.archive.documents import DrillDocument
    from kafka_drain.archive.scrubs import OldestRead

#: Age from which the last validation is too old, unless a user says otherwise.
MAX_AGE = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether an archive could be restored at one moment.

    Attributes:
        pipeline: Its name, by `archive.json`; None if that can't be read.
        why: What keeps it from being ready, the worst first.
        sentence: All of it in a sentence.
        refused: Why readers are refused; empty if they aren't.
        overview: Result of the last validation; None without one.
        drills: Its drills; None if they can't be read.
        restore: How long a restore of all records takes; None if unknown.
    """

    pipeline: str | None
    state: Readiness
    why: Sequence[str]
    sentence: str
    refused: str = ""
    overview: Mapping[str, Any] | None = None
    drills: DrillStatus | None = None
    restore: Between | None = None

    @classmethod
    def unread(cls, place: str, problem: str, *, is_damaged: bool) -> Judged:
        """Return the state of an archive that can't be read: nothing is known, or it is damaged."""
        state = Readiness.NOT_READY if is_damaged else Readiness.UNKNOWN
        return cls(None, state, [problem], f"{place}: {state.words}: {problem}")

    @property
    def text(self) -> str:
        """The sentence without the pipeline's name and the state, for where both stand already."""
        return self.sentence.partition(f": {self.state.words}: ")[2]

    @property
    def short(self) -> str:
        """The first part of that: the worst reason in a sentence, and the number of others."""
        if not self.why:
            return self.text.partition("; ")[0]
        more = f"; and {len(self.why) - 1:,} more" if len(self.why) > 1 else ""
        return self.why[0].partition(". ")[0] + more


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of an archive.

    Attributes:
        place: Its folder or URL.
        problem: Why its documents can't be read; empty if they can.
        is_damaged: Whether that is because of what is in them.
        pipeline: Its name, by `archive.json`.
        overview: Result of the last validation; None without one.
        drills: The newest drills, oldest first.
        refused: Why readers are refused; empty if they aren't.
        is_sealed: Whether readers get any sealed file.
        unsealed: Number of the files that readers get and that no receipt seals yet.
        read_again: How long before that the sealed files were read that weren't read for longest;
            None if nobody says.
    """

    place: str
    problem: str = ""
    is_damaged: bool = False
    pipeline: str = ""
    overview: Mapping[str, Any] | None = None
    drills: Sequence[DrillDocument] = ()
    refused: str = ""
    is_sealed: bool = False
    unsealed: int = 0
    read_again: OldestRead | None = None

    def judge(self, now: datetime, max_age: timedelta = MAX_AGE) -> Judged:
        """Return the state by what was seen.

        Args:
            now: The present time.
            max_age: Age from which a validation is too old.
        """
        if self.problem:
            return Judged.unread(self.place, self.problem, is_damaged=self.is_damaged)
        drills = DrillStatus.of_their_own(self.drills, now)
        evidence = Evidence(
            pipeline=self.pipeline,
            refused=self.refused,
            overview=self.overview,
            is_sealed=self.is_sealed,
            unsealed=self.unsealed,
            drills=drills,
            now=now,
            max_age=max_age,
            read_again=self.read_again,
        )
        found = judge_readiness(evidence)
        restore = _restore(self.overview) if self.overview and not self.refused else None
        return Judged(
            pipeline=self.pipeline,
            state=state_of(found),
            why=[text for _, text in found],
            sentence=readiness_text(evidence, found, restore.likely if restore else None),
            refused=self.refused,
            overview=self.overview,
            drills=drills,
            restore=restore,
        )


def _restore(overview: Mapping[str, Any]) -> Between | None:
    """Return how long a restore of all records takes on two cores; None without any record."""
    records = overview["records"]
    if not records:
        return None
    stored = overview["bytes"] / records * 2 / (STORED_LEAST + STORED_MOST)
    return restore_seconds(records, stored, max(1, overview["partitions"]))

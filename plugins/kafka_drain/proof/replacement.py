"""Decide whether a window may replace files: by their records, not by their number.

Plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from kafka_drain.config.offset_ranges import range_name
from kafka_drain.errors import DataLossError
from kafka_drain.offsets import OffsetRange, Ranges, TopicPartition, merge, subtract, within
from kafka_drain.proof.content_checks import Reread, Tally

#: Number of ranges that a message names.
NAMED = 20


class ReplacementMatch(Enum):
    """Comparison of the records that a window has read again with those that it replaces."""

    EQUAL = auto()
    CHANGED = auto()
    #: Nothing is left of the old records, and no receipt tells of exactly them.
    UNKNOWN = auto()


@dataclass(frozen=True)
class Replacement:
    """The offsets at which a window doesn't provably hold the records that it replaces.

    Attributes:
        changed: Offsets at which it holds another record, or none.
        unknown: Offsets whose old records can't be compared.
    """

    changed: Ranges = field(default_factory=dict)
    unknown: Ranges = field(default_factory=dict)

    @property
    def is_equal(self) -> bool:
        """Whether it holds each record that it replaces."""
        return not self.changed and not self.unknown

    def but(self, accepted: Ranges) -> Replacement:
        """Return the rest of it without the offsets that the user accepts."""
        return Replacement(_without(self.changed, accepted), _without(self.unknown, accepted))

    def and_unknown(self, more: Ranges) -> Replacement:
        """Return it with more offsets whose old records can't be compared."""
        unknown = {
            tp: merge([*self.unknown.get(tp, ()), *more.get(tp, ())])
            for tp in {*self.unknown, *more}
        }
        return Replacement(self.changed, unknown)

    @property
    def names(self) -> tuple[str, ...]:
        """The ranges, as `topic:partition:start-end`."""
        both = {
            tp: merge([*self.changed.get(tp, ()), *self.unknown.get(tp, ())]) for tp in self._all
        }
        return tuple(range_name(tp, r) for tp in sorted(both) for r in both[tp])

    @property
    def _all(self) -> set[TopicPartition]:
        return {*self.changed, *self.unknown}


def _without(ranges: Ranges, accepted: Ranges) -> dict[TopicPartition, list[OffsetRange]]:
    left = {
        tp: [rest for r in rs for rest in subtract(r, accepted.get(tp, ()))]
        for tp, rs in ranges.items()
    }
    return {tp: rs for tp, rs in left.items() if rs}


def judge_lost(sealed: Tally | None, found: Iterable[Tally]) -> ReplacementMatch:
    """Compare lost records, of which only a receipt tells, with those that were read again.

    Args:
        sealed: Their number and fingerprint; None if no receipt tells these of exactly them.
        found: Tallies of the records read again at their offsets: as they are, and without headers,
            which the old records may not have had because they weren't asked for.
    """
    if sealed is None or sealed.fingerprint is None:
        return ReplacementMatch.UNKNOWN
    same = any(
        (each.records, each.fingerprint) == (sealed.records, sealed.fingerprint) for each in found
    )
    return ReplacementMatch.EQUAL if same else ReplacementMatch.CHANGED


def rest_of(whole: Tally, parts: Iterable[Tally]) -> Tally | None:
    """Return records without parts of them; None if a fingerprint is unknown."""
    records, fingerprint = whole.records, whole.fingerprint
    if fingerprint is None:
        return None
    value = int(fingerprint, 16)
    for part in parts:
        if part.fingerprint is None:
            return None
        records -= part.records
        value ^= int(part.fingerprint, 16)
    return Tally(records, f"{value:016x}")


def judge_removed(
    held: Iterable[tuple[TopicPartition, OffsetRange]], reread: Reread, *, is_readable: bool
) -> Replacement:
    """Decide whether files may be removed because their offsets will be drained again.

    Args:
        held: Bounds of the files' offsets, by partition.
        reread: The files compared with what Kafka holds.
        is_readable: Whether all of the files could be read.
    """
    bounds: dict[TopicPartition, list[OffsetRange]] = {}
    for tp, r in held:
        bounds.setdefault(tp, []).append(r)
    whole = {tp: merge(ranges) for tp, ranges in bounds.items()}
    changed = {
        tp: [each for span in whole.get(tp, ()) for each in within(merge(ranges), span)]
        for tp, ranges in reread.changed.items()
    }
    # Which records Kafka no longer has, a comparison doesn't tell.
    return Replacement(changed, {} if is_readable and not reread.gone else whole)


def refuse_unequal(key: str, left: Replacement, way_out: str = "") -> None:
    """Refuse a window that doesn't provably hold the records that it would replace.

    Args:
        key: The window's name.
        left: The unequal offsets, without those that the user accepts.
        way_out: Another way out, if there is one; ends the error message.

    Raises:
        DataLossError: Names partitions and offsets, and how to accept them.
    """
    if left.is_equal:
        return
    found = []
    if left.changed:
        found.append(
            f"Kafka now holds other records at {named(Replacement(left.changed).names)} than the "
            "archive: the log was rewritten since, as after a restored disk, an unclean election "
            "or behind an address that leads to another cluster, and the archive may hold the only "
            "copy"
        )
    if left.unknown:
        found.append(
            f"the archived records of {named(Replacement(unknown=left.unknown).names)} can't be "
            "compared with Kafka's: files are lost or can't be read and no receipt has the hash of "
            "exactly these records, or Kafka no longer holds some; restore lost files from a copy"
        )
    accept = " ".join(f"--replace-changed {name}" for name in left.names[:NAMED])
    raise DataLossError(
        f"window {key}: {'; '.join(found)} (topic:partition:start-end). Nothing was replaced or "
        f"removed{way_out}. To have Kafka's records instead of the archived ones, name each range: "
        f"{accept}{' …' if len(left.names) > NAMED else ''}"
    )


def named(names: Sequence[str]) -> str:
    """Return the first of some ranges' names, and how many more there are."""
    more = f" and {len(names) - NAMED:,} more ranges" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"

"""The records found, as the fields of a republish that selects them. Opens nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_drain.config.offset_ranges import range_name
from kafka_drain.find.criteria import Criteria
from kafka_drain.offsets import OffsetRange, TopicPartition, merge

if TYPE_CHECKING:
    from kafka_drain.find.search import Match


@dataclass(frozen=True)
class AsRepublish:
    """The fields of `RepublishRequest` that select records, and the criteria they can't express.

    Attributes:
        these: Select the records that were found, and no others.
        all: Select all records that match, on whichever page; None if no fields do.
        cannot: Criteria that the fields can't express, in sentences.
    """

    these: dict[str, Any]
    all: dict[str, Any] | None
    cannot: list[str]


def as_republish(
    criteria: Criteria,
    matches: Sequence[Match],
    *,
    is_all: bool,
    recreated: Collection[str] = (),
) -> AsRepublish:
    """Translate the result of a search.

    Args:
        criteria: The search's criteria.
        matches: The records found.
        is_all: Whether nothing else matches.
        recreated: Topics that were deleted and created again while the archive was filled.
    """
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for match in matches:
        at = match.position
        tp = TopicPartition(at.topic, at.partition)
        found.setdefault(tp, []).append(OffsetRange(at.offset, at.offset + 1))
    these = {"offsets": [range_name(tp, r) for tp in found for r in merge(found[tp])]}
    cannot = []
    everything: dict[str, Any] | None = these if is_all else None
    if not is_all and not criteria.look_inside():
        everything = _fields_of(criteria)
    if everything is None:
        cannot.append(
            "There may be more records that match, and no fields select those: they would have to "
            "be found first, because a republish selects by topic, partition, offset and time only."
        )
    for topic in sorted({tp.topic for tp in found} & {*recreated}):
        cannot.append(
            f"{topic} was deleted and created again: the archive has records of both with the same "
            "offsets, and a republish refuses offsets that both have: select by time instead."
        )
    unsealed = sum(not match.is_sealed for match in matches)
    if unsealed:
        cannot.append(
            f"{unsealed:,} of these records are in files that aren't sealed yet: a republish "
            "refuses them, or leaves them out (sealed_only), until they are validated."
        )
    return AsRepublish(these, everything, cannot)


def _fields_of(criteria: Criteria) -> dict[str, Any]:
    fields = criteria.selection.to_dict()
    if "partitions" in fields:
        # The form has a line of text for each.
        fields["partitions"] = [str(number) for number in fields["partitions"]]
    return fields

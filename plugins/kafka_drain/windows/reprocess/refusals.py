"""Refuse a reprocess, before or after its start, if Kafka lacks offsets or files were replaced.

If it was started and can't finish any more, the message names the way out: abandon it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_drain.config.offset_ranges import range_name
from kafka_drain.errors import ArchiveError, DataLossError
from kafka_drain.republish.planning.follow import followers, has_sent
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.storage.paths import quoted

if TYPE_CHECKING:
    from kafka_drain.archive.snapshot import Snapshot
    from kafka_drain.kafka.cluster import KafkaCluster
    from kafka_drain.windows.reprocess.state import ReprocessPlan


def abandoning(root: object) -> str:
    """Return the command that abandons an unfinished reprocess."""
    return f"`kafka-drain reprocess {quoted(root)} --abandon --apply`"


def refuse_expired(plan: ReprocessPlan, cluster: KafkaCluster) -> None:
    """Refuse if Kafka no longer holds offsets that are still to be drained.

    Raises:
        DataLossError: Names the offsets.
    """
    waiting = [
        (tp, r) for group in plan.waiting.values() for tp, rs in group.ranges.items() for r in rs
    ]
    first = cluster.earliest({tp for tp, _ in waiting})
    gone = [range_name(tp, r) for tp, r in waiting if r.start < first[tp]]
    if gone:
        way_out = (
            f"End this reprocess with {abandoning(plan.archive.root)}, which keeps these files"
            if plan.begun
            else "Nothing was changed; reprocess from a later batch, time or offset"
        )
        raise DataLossError(
            f"the archive may be the only copy of {', '.join(gone[:5])}{' …' * (len(gone) > 5)}: "
            f"Kafka's earliest offset is later (topic:partition:start-end). {way_out}"
        )


def refuse_half_sent(plan: ReprocessPlan) -> None:
    """Refuse windows of whose segments a mirror has sent only some: it could never go on.

    Raises:
        ArchiveError: Names the mirror, and what to do.
    """
    for name, through in followers(plan.archive):
        for group in plan.groups.values():
            if len({has_sent(through, receipt) for receipt in group.receipts}) > 1:
                raise ArchiveError(
                    f"{plan.archive.root}: mirror {name} has sent only some of the segments, and "
                    "could never go on. Let it run first, or end it with "
                    f"{RepublishRun(plan.archive.root, name).abandoning}. Nothing was changed"
                )


def refuse_already_replaced(plan: ReprocessPlan, snapshot: Snapshot) -> None:
    """Refuse if another window has replaced files that an unfinished reprocess would replace.

    Raises:
        ArchiveError: Names the window, which belongs to a repair or to maintenance.
    """
    waiting = {path for group in plan.waiting.values() for path in group.replaces}
    for key, taken in snapshot.fold.taken(waiting).items() if waiting else ():
        if key not in plan.groups:
            raise ArchiveError(
                f"{plan.archive.root}: window {key} has replaced {len(taken):,} files, such "
                f"as {min(taken)}, since the reprocess was started: it can't replace them any "
                f"more. End it with {abandoning(plan.archive.root)}, and start again"
            )

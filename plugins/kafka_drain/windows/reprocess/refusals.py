"""What a reprocess refuses, before it begins and after: Kafka hasn't all of it, or files changed.

One that was begun and can't end any more names the way out: it is abandoned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_drain.config.offset_ranges import range_name
from kafka_drain.errors import ArchiveError, DataLossError

if TYPE_CHECKING:
    from kafka_drain.archive.snapshot import Snapshot
    from kafka_drain.kafka.cluster import KafkaCluster
    from kafka_drain.windows.reprocess.state import ReprocessPlan

__all__ = ["abandoning", "refuse_expired", "refuse_taken"]


def abandoning(root: object) -> str:
    """Return the command that ends a reprocess which can't."""
    return f"`kafka-drain reprocess {root} --abandon --apply`"


def refuse_expired(plan: ReprocessPlan, cluster: KafkaCluster) -> None:
    """Refuse when Kafka no longer holds what is still to be drained.

    Raises:
        DataLossError: Names what.
    """
    waiting = [
        (tp, r) for piece in plan.waiting.values() for tp, rs in piece.ranges.items() for r in rs
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
            f"Kafka's first offset is later (topic:partition:start-end). {way_out}"
        )


def refuse_taken(plan: ReprocessPlan, snapshot: Snapshot) -> None:
    """Refuse when another window stands for files that a begun reprocess would replace.

    Raises:
        ArchiveError: Names the window: a repair's, or one of maintenance.
    """
    waiting = {path for piece in plan.waiting.values() for path in piece.replaces}
    for other in snapshot.sealed if waiting else ():
        if other.key in plan.pieces:
            continue
        taken = waiting.intersection(other.receipt.replaces)
        if taken:
            raise ArchiveError(
                f"{plan.archive.root}: window {other.key} has taken the place of {len(taken):,} "
                f"files, such as {min(taken)}, since the reprocess was begun: it can't replace "
                f"them any more. End it with {abandoning(plan.archive.root)}, and begin anew"
            )

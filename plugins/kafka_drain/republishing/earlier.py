"""What earlier republishes of an archive sent: sent again, it would be in the target twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from upath import UPath

from kafka_drain.errors import ConfigError
from kafka_drain.republishing.plan import RepublishPlan
from kafka_drain.republishing.runs import list_runs
from kafka_drain.republishing.shards import Shard

__all__ = ["refuse_repeated", "sent"]


def sent(plan: RepublishPlan) -> list[dict[str, Any]]:
    """Return what a plan sends where, as its receipt keeps it."""
    return [
        {
            "source_topic": shard.source.topic,
            "source_topic_id": shard.topic_id,
            "source_partition": shard.source.partition,
            "ranges": [[first, end] for first, end in _spans(shard)],
            "from_ms": shard.rows.from_ms,
            "to_ms": shard.rows.to_ms,
            "records": shard.records,
            "target_topic": shard.target_topic,
            "target_topic_id": plan.target(shard.target_topic).id,
            "target_partition": shard.target_partition,
        }
        for shard in plan.shards
    ]


def _spans(shard: Shard) -> list[tuple[int, int]]:
    ranges = shard.rows.ranges
    if ranges is None:
        return [(shard.first, shard.end)]
    clipped = ((max(r.start, shard.first), min(r.end, shard.end)) for r in ranges)
    return [(first, end) for first, end in clipped if first < end]


def refuse_repeated(root: UPath, plan: RepublishPlan) -> None:
    """Refuse a plan of records that another run has sent, or is sending, to the same topic.

    Raises:
        ConfigError: Names the run and the records.
    """
    planned = sent(plan)
    # What a follower's runs have sent is told by their receipts, exactly (follow.py); the ranges
    # that are compared here may hold gaps, which a window fills later.
    follower = None if plan.through is None else plan.key.rpartition(".")[0]
    for key, is_done, entries in _earlier(root):
        if key == plan.key or key.rpartition(".")[0] == follower:
            continue
        for before in entries:
            for now in planned:
                if _overlap(before, now):
                    raise ConfigError(
                        f"run {key} {'has sent' if is_done else 'began to send'} records of "
                        f"{now['source_topic']}-{now['source_partition']} in offsets "
                        f"{now['ranges'][0][0]:,} to {now['ranges'][-1][1] - 1:,} to "
                        f"{now['target_topic']}: they would be there twice. "
                        + ("Choose " if is_done else "Name that run to go on with it, choose ")
                        + "other records or another topic, or say that they may be repeated. "
                        "Nothing was sent"
                    )


def _earlier(root: UPath) -> Iterator[tuple[str, bool, list[dict[str, Any]]]]:
    for run in list_runs(root):
        receipt = run.receipt()
        if receipt is not None:
            yield run.key, True, receipt["sent"]
        elif run.is_opened and (plan := run.plan()) is not None:
            yield run.key, False, sent(plan)


def _overlap(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    same = ("source_topic", "source_topic_id", "source_partition", "target_topic_id")
    if any(a[name] != b[name] for name in same):
        return False
    if not _meet(a["from_ms"], a["to_ms"], b["from_ms"], b["to_ms"]):
        return False
    return any(x[0] < y[1] and y[0] < x[1] for x in a["ranges"] for y in b["ranges"])


def _meet(a_from: int | None, a_to: int | None, b_from: int | None, b_to: int | None) -> bool:
    """Whether two times from … to share a moment; None is no bound."""
    before = a_to is not None and b_from is not None and a_to <= b_from
    after = b_to is not None and a_from is not None and b_to <= a_from
    return not (before or after)

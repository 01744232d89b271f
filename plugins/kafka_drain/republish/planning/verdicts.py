"""The verdict about a target that was read back. Plain values; opens nothing."""

from __future__ import annotations

from kafka_drain.republish.planning.plan import EXACTLY_ONCE


def is_exact(*, lost: int, duplicates: int, out_of_order: int) -> bool:
    """Return whether each planned record is there once, in its shard's order.

    Records of other producers, and records that Kafka has compacted since, make no difference.
    """
    return lost == duplicates == out_of_order == 0


def gets_receipt(delivery: str, *, lost: int, duplicates: int, out_of_order: int) -> bool:
    """Return whether a run gets its receipt; at least once allows duplicates and any order."""
    if delivery == EXACTLY_ONCE:
        return is_exact(lost=lost, duplicates=duplicates, out_of_order=out_of_order)
    return lost == 0

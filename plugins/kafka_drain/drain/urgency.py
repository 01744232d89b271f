"""Decide whether a drain should start now, beside its schedule. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_drain.config.watch import Watch
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import duration_text


@dataclass(frozen=True, slots=True)
class Backlog:
    """The offsets of a pipeline's topics in Kafka that aren't drained yet.

    Attributes:
        lag: Number of offsets that a drain would read.
        expired: By partition, the offsets that were deleted before they were drained.
        expiring: By partition, the offsets whose records are so old that Kafka may delete them
            within `hours_to_expiry`.
        reached_in: By partition, the seconds until Kafka deletes records that aren't drained, if
            its first offset keeps moving as fast as since the last validation; only where it moves.
        cut: By partition, the offsets that were drained, and that its log has lost at its end.
    """

    lag: int
    expired: Mapping[TopicPartition, int] = field(default_factory=dict)
    expiring: Mapping[TopicPartition, int] = field(default_factory=dict)
    reached_in: Mapping[TopicPartition, float] = field(default_factory=dict)
    cut: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DrainDecision:
    """Whether a drain should start.

    Attributes:
        is_due: Whether a limit is reached.
        starts: Whether to start a drain: it is due, and nothing speaks against it.
        reason: Why, in words.
    """

    is_due: bool
    starts: bool
    reason: str


def decide(backlog: Backlog, watch: Watch, busy: str = "") -> DrainDecision:
    """Decide whether a drain should start now.

    Args:
        backlog: Offsets that aren't drained yet.
        watch: The limits.
        busy: Why no other drain may start now, for example because one is running; empty if one
            may.
    """
    reasons = _reasons(backlog, watch)
    if not reasons:
        return DrainDecision(False, False, _quiet(backlog, watch))
    reason = "; ".join(reasons)
    if busy:
        return DrainDecision(True, False, f"{reason}; no drain is started: {busy}")
    return DrainDecision(True, True, reason)


def _reasons(backlog: Backlog, watch: Watch) -> list[str]:
    """Return each limit that is reached, in words."""
    reasons = []
    if backlog.cut:
        reasons.append(f"{_most(backlog.cut)} that were drained are gone from the end of its log")
    if backlog.expired:
        reasons.append(f"{_most(backlog.expired)} expired before they were drained")
    if watch.lag is not None and backlog.lag >= watch.lag:
        reasons.append(f"a lag of {backlog.lag:,} offsets reached the limit of {watch.lag:,}")
    if watch.hours_to_expiry is None:
        return reasons
    if backlog.expiring:
        within = f"within {watch.hours_to_expiry:g} h, by retention.ms"
        reasons.append(f"{_most(backlog.expiring)} expire {within}")
    soon = {
        tp: seconds
        for tp, seconds in backlog.reached_in.items()
        if seconds < watch.hours_to_expiry * 3600
    }
    if soon:
        tp = min(soon, key=lambda tp: (soon[tp], tp))
        reasons.append(
            f"at the rate of its deletions, Kafka reaches undrained offsets of {tp} in "
            f"{duration_text(soon[tp])}, which is less than {watch.hours_to_expiry:g} h"
        )
    return reasons


def _quiet(backlog: Backlog, watch: Watch) -> str:
    of = "" if watch.lag is None else f" of {watch.lag:,}"
    soon = watch.hours_to_expiry
    expires = "" if soon is None else f"; nothing expires within {soon:g} h"
    return f"a lag of {backlog.lag:,}{of} offsets{expires}"


def _most(offsets: Mapping[TopicPartition, int]) -> str:
    """Return the number of offsets, and the partition that has most of them."""
    tp = min(offsets, key=lambda tp: (-offsets[tp], tp))
    others = f" and {len(offsets) - 1} more" if len(offsets) > 1 else ""
    return f"{sum(offsets.values()):,} offsets of {tp}{others}"

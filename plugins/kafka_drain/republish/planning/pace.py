"""Whether a plan's records can be sent in their own time. Opens nothing."""

from __future__ import annotations

from kafka_drain.errors import ConfigError
from kafka_drain.republish.planning.plan import RepublishPlan

#: Maximum number of source partitions: each has a writer, and one process has all of them.
MAX_PACED = 64


def refuse_unpaced(plan: RepublishPlan) -> None:
    """Refuse a plan whose writers couldn't follow one clock.

    Raises:
        ConfigError: When Spark sends it, or source partitions wait for each other.
    """
    if plan.engine == "spark":
        raise ConfigError(
            "pace needs engine worker, as Spark's tasks don't share a clock, and may wait for each "
            "other; this run is one of engine spark. Leave out pace, or plan a new run with "
            "engine worker"
        )
    sources = {shard.source for shard in plan.shards}
    waiting = sum(len({shard.source for shard in chain}) - 1 for chain in plan.chains)
    if waiting or len(sources) > MAX_PACED:
        most = f"{MAX_PACED} source partitions, and of 16 to a target partition"
        raise ConfigError(
            f"pace needs a writer for each source partition; the plan has {len(sources):,} source "
            f"partitions, {waiting:,} of which would wait for others. Expected at most {most}; "
            "send in parts (topics or partitions), or leave out pace"
        )

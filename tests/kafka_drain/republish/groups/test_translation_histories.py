"""50 groups in each of many histories of runs: the plan against what really lies where."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.translation import TranslationPlan
from tests.brute_force import read_by_group
from tests.kafka_drain.republish.groups.histories import History, history

GROUPS = 25


def untold(made: History, committed: dict[TopicPartition, int]) -> set[TopicPartition]:
    """Return the partitions without an offset, of topics of which the group has one."""
    topics = {tp.topic for tp in committed}
    return {tp for tp in made.sources if tp.topic in topics and tp not in committed}


def later(made: History, read: set[TopicPartition]) -> set[TopicPartition]:
    """Return where later records of the partitions that the group reads may go.

    A topic of which no run has sent a record isn't known to lead to the target.
    """
    shards = [shard for run in made.runs for shard in run.require_plan().shards]
    topics = {shard.source.topic for shard in shards}
    committed = {tp for tp in read if tp.topic in topics}
    if set(made.placements.values()) == {"original"}:
        return {TopicPartition("copy", tp.partition) for tp in committed} & made.log.keys()
    return set(made.log) if committed else set()


def check(made: History, committed: dict[TopicPartition, int], plan: TranslationPlan) -> int:
    """Compare a plan with what the group will read; return how many records it reads again."""
    unread = untold(made, committed) - set(plan.left_alone)
    read = read_by_group(made.origins, plan.after, committed, unread)

    assert read.skipped == set()
    assert later(made, set(committed)) <= plan.after.keys()
    assert read.again <= plan.read_again
    if not plan.is_bound:
        assert read.again == plan.read_again
    return read.again


@pytest.mark.parametrize("block", range(10))
def test_history(block: int, tmp_path: Path) -> None:
    """No group skips a record, and each reads again what the plan says, or at most that."""
    for seed in range(10 * block, 10 * block + 10):
        made = history(seed, tmp_path / str(seed))
        finished = [run for run in made.runs if run.offset_map() is not None]
        for number in range(GROUPS if finished else 0):
            committed = made.committed()
            run = made.random.choice(finished)
            if not {tp.topic for tp in committed} & made.topics():
                with pytest.raises(ConfigError, match="expected some of those that run"):
                    made.translate(run, committed)
                continue
            try:
                check(made, committed, made.translate(run, committed))
            except Exception as error:
                raise AssertionError(f"seed {seed}, group {number}: {committed}") from error

"""A reprocess is planned from the archive as it was checked: on the golden archive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import plan_from, plan_reprocess
from kafka_drain.windows.reprocess.state import ReprocessPlan
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.golden import END, P0, P1, add_batch, golden_cluster, open_next

CUT = Cut(batch=(1, 13))


def drain_next(archive: Archive) -> None:
    """Roll, drain a batch and seal it, as another process does."""
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, 50)
    assert validate_archive(archive, golden_cluster()).receipts_written == 1


class Meanwhile(FakeCluster):
    """A cluster that is asked while another process drains."""

    def __init__(self, archive: Archive) -> None:
        golden = golden_cluster()
        super().__init__(golden.logs, id=golden.id, topic_ids=golden.topic_ids)
        self._archive = archive
        # Shared with the copies that count topics as an archive does.
        self._drained: list[Archive] = []

    @property
    def has_drained(self) -> bool:
        return bool(self._drained)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if not self.has_drained:
            self._drained.append(self._archive)
            drain_next(self._archive)
        return super().earliest(partitions)


def assert_all(plan: ReprocessPlan, archive: Archive) -> None:
    """Assert that a plan closes the second generation, and covers its only batch."""
    assert plan.closes == 2
    *_, newest = plan.groups.values()
    assert newest.ranges == {P0: [OffsetRange(END, 50)], P1: [OffsetRange(END, 50)]}
    [receipt] = archive.snapshot().generations[1].receipts()
    assert sorted(newest.replaces) == sorted(file.path for file in receipt.files)


def test_plan_reprocess_drained_meanwhile(archive: Archive, pipeline: Pipeline) -> None:
    """What another process has drained until Kafka answered is reprocessed as well."""
    cluster: Any = Meanwhile(archive)

    plan = plan_reprocess(pipeline, cluster, CUT, offsets_per_group=1)

    assert cluster.has_drained
    assert_all(plan, archive)


def test_plan_from_sealed_meanwhile(archive: Archive, pipeline: Pipeline) -> None:
    """Where the first look was at a moving archive, the plan is made from the second one.

    Made from receipts of the first and files of the second, it would leave out the newest batch.
    """
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, 50)
    begun = archive.snapshot()
    assert [len(generation.receipt_names()) for generation in begun.generations] == [3, 0]
    assert validate_archive(archive, golden_cluster()).receipts_written == 1  # type: ignore[arg-type]

    plan = plan_from(begun, pipeline, begun.document.topics, CUT, 1)

    assert_all(plan, archive)

"""Where the next generation starts, and topics that it leaves out: the golden archive, and more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive import Archive
from kafka_drain.errors import CheckpointError, ConfigError, DataLossError
from kafka_drain.offsets import TopicPartition
from kafka_drain.pipeline import Pipeline
from kafka_drain.preflight import DrainPlan, preflight
from kafka_drain.rolling import RollPlan, never_sealed, plan_roll, roll
from kafka_drain.validation import validate_archive
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import (
    END,
    P0,
    P1,
    add_batch,
    golden_cluster,
    sealed_copy,
)

G0 = TopicPartition("gone", 0)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An archive whose open generation has drained topic `gone` too, to 7; all is sealed."""
    archive = sealed_copy(tmp_path / "archive")
    archive.update_topics({"gone": "id-of-gone"})
    generation = archive.generation(2)
    generation.write(
        starting_offsets={P0: END, P1: END, G0: 7},
        file_format="parquet",
        partition_by=["topic"],
        topic_ids=archive.document()["topics"],
        reason="rollover",
    )
    return archive


def cluster_with(**logs: Log) -> Any:
    """The golden archive's cluster, with one-partition topics beside."""
    golden = golden_cluster()
    beside = {TopicPartition(name, 0): log for name, log in logs.items()}
    return FakeCluster({**golden.logs, **beside}, id=golden.id, topic_ids=golden.topic_ids)


def plan_drain(archive: Archive, cluster: FakeCluster, *topics: str) -> DrainPlan:
    document, any_cluster = archive.document(), cluster
    pipeline = Pipeline(
        name=document["pipeline"],
        topics=list(topics),
        archive=str(archive.root),
        partition_by=["topic"],
    )
    return preflight(pipeline, any_cluster)  # type: ignore[arg-type]


def do(plan: RollPlan) -> None:
    roll(plan, lambda line: None)


def test_plan_roll_topic_deleted(archive: Archive) -> None:
    """A topic that doesn't exist any more locks no other; what was drained of it stays sealed."""
    cluster = cluster_with()
    files = archive.generation(1).list_data_files()
    with pytest.raises(CheckpointError, match=r"gone-0, .* `kafka-drain roll .*--leave-out gone`"):
        plan_drain(archive, cluster, "flights")

    plan = plan_roll(archive, cluster)
    do(plan)

    assert plan.starting_offsets == {P0: END, P1: END}
    assert "topic gone doesn't exist any more" in plan.reason
    assert "leaves out gone-0" in plan.lines()[1]
    assert plan_drain(archive, cluster, "flights").start == {P0: END, P1: END}
    assert archive.generation(1).list_data_files() == files
    assert validate_archive(archive, cluster, deep=True).findings == []


def test_plan_roll_leave_out(archive: Archive) -> None:
    """A topic that a pipeline no longer names is left out when it is said."""
    cluster = cluster_with(gone=Log(end=9))

    assert plan_roll(archive, cluster).starting_offsets == {P0: END, P1: END, G0: 7}
    do(plan_roll(archive, cluster, ["gone"]))

    assert plan_drain(archive, cluster, "flights").start == {P0: END, P1: END}


def test_plan_roll_leave_out_unknown(archive: Archive) -> None:
    """What the generation doesn't drain can't be left out of the next one."""
    with pytest.raises(ConfigError, match=r"nope.* flights-0, flights-1, gone-0"):
        plan_roll(archive, cluster_with(gone=Log(end=9)), ["nope"])


def test_preflight_left_out_and_named_again(archive: Archive) -> None:
    """A topic that is named again goes on where it was drained to: no record is there twice."""
    cluster = cluster_with(gone=Log(end=9))
    do(plan_roll(archive, cluster, ["gone"]))

    plan = plan_drain(archive, cluster, "flights", "gone")

    assert plan.start == plan.starting_offsets == {P0: END, P1: END, G0: 7}


def test_preflight_named_again_in_a_drained_generation(archive: Archive) -> None:
    """Spark would read a topic that is named again from its beginning; a roll makes it go on."""
    cluster = cluster_with(gone=Log(end=9))
    do(plan_roll(archive, cluster, ["gone"]))
    add_batch(archive.generation(3), 0, END, 50)
    validate_archive(archive, cluster)

    with pytest.raises(CheckpointError, match=r"gone-0 to 7, .*`kafka-drain roll"):
        plan_drain(archive, cluster, "flights", "gone")
    do(plan_roll(archive, cluster))

    assert plan_drain(archive, cluster, "flights", "gone").start == {P0: 50, P1: 50, G0: 7}


def test_preflight_left_out_and_made_again(archive: Archive) -> None:
    """A topic of the same name that is made after it was left out is drained from its beginning."""
    do(plan_roll(archive, cluster_with()))
    cluster = cluster_with(gone=Log(end=3))
    cluster.topic_ids |= {"gone": "new-id"}

    assert plan_drain(archive, cluster, "flights", "gone").start[G0] == 0


def test_plan_roll_topic_deleted_unsealed(archive: Archive) -> None:
    """Files that no receipt seals may be the only copy of a topic that is gone: no roll."""
    generation = archive.generation(2)
    add_batch(generation, 0, END, 50)
    # Damaged, so that validation can't seal it.
    (Path(str(generation.checkpoint)) / "offsets" / "0").unlink()

    with pytest.raises(DataLossError, match=r"only copy .*gone-0"):
        plan_roll(archive, cluster_with())


@pytest.mark.parametrize(
    ("recreated", "last_read", "expected"),
    [
        ([], None, False),
        ([], 3, False),
        ([], 4, False),
        (["a"], None, True),
        (["a"], 3, True),
        (["a"], 4, False),
    ],
)
def test_never_sealed(recreated: list[str], last_read: int | None, expected: bool) -> None:
    """Unsealed batches stand in a roll's way unless nobody can say which topic they are of."""
    assert never_sealed(recreated, last_read, last_sealed=3) is expected

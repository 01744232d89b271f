"""How Kafka's partitions are shared out among tasks, without a JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.spark.splitting import LEAST_PIECE
from kafka_drain_spark import kafka_source
from kafka_drain_spark.kafka_source import find_internal_topics, merged, with_splits

SPLIT = [{"minPartitions": "3"}, {"maxRecordsPerPartition": "9"}]
SPARK: Any = object()


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The sessions that were asked for their number of cores, of which each has four."""
    sessions: list[object] = []

    def cores_of(spark: object) -> int:
        sessions.append(spark)
        return 4

    monkeypatch.setattr(kafka_source, "cores_of", cores_of)
    return sessions


@pytest.mark.parametrize(
    ("options", "sizes", "pieces"),
    [
        ({}, [8 * LEAST_PIECE], "8"),
        # Each core has a large partition already.
        ({}, [8 * LEAST_PIECE] * 4, None),
        ({"maxOffsetsPerTrigger": str(8 * LEAST_PIECE)}, [80 * LEAST_PIECE], "8"),
        # A limit above everything there is changes nothing.
        ({"maxOffsetsPerTrigger": str(80 * LEAST_PIECE)}, [8 * LEAST_PIECE], "8"),
    ],
)
def test_with_splits(options: dict[str, str], sizes: list[int], pieces: str | None) -> None:
    """A large partition is split by what one batch reads of it, beside the other options."""
    options = {"subscribe": "t", **options}

    assert with_splits(SPARK, options, sizes) == options | (
        {"minPartitions": pieces} if pieces else {}
    )


@pytest.mark.parametrize("options", SPLIT)
def test_with_splits_kept(options: dict[str, str]) -> None:
    """A pipeline's own setting for splitting stays as it is."""
    assert with_splits(SPARK, options, [80 * LEAST_PIECE]) == options


@pytest.mark.parametrize(
    ("options", "sizes"),
    [({}, []), ({}, [0, 0]), ({}, [LEAST_PIECE]), ({"maxOffsetsPerTrigger": "5"}, [10**9])],
)
def test_with_splits_small(asked: list[object], options: dict[str, str], sizes: list[int]) -> None:
    """Nothing small is split, and no server is asked for its cores because of it."""
    assert with_splits(SPARK, options, sizes) == options
    assert asked == []


@pytest.mark.parametrize(
    ("options", "sizes", "per_task", "tasks"),
    [
        ({}, [1] * 6400, None, 200),
        ({}, [1] * 65, None, 8),
        ({}, [1] * 6400, 64, 100),
        # Few partitions: each has a task, unless the pipeline says otherwise.
        ({}, [1] * 64, None, None),
        ({}, [1] * 16, 2, 8),
        *((options, [1] * 6400, None, None) for options in SPLIT),
    ],
)
def test_merged(
    asked: list[object],
    options: dict[str, str],
    sizes: list[int],
    per_task: int | None,
    tasks: int | None,
) -> None:
    """Many small partitions are read by few tasks, unless the pipeline splits them itself."""
    coalesced: list[int] = []
    records: Any = SimpleNamespace(sparkSession=SPARK, coalesce=coalesced.append)

    found = merged(records, options, sizes, per_task)

    assert coalesced == ([tasks] if tasks else [])
    assert (found is records) is (tasks is None)
    assert asked == ([SPARK] if tasks else [])


@pytest.mark.parametrize(
    ("options", "is_set"),
    [
        ({"subscribe": "t"}, False),
        ({"subscribe": "t,__consumer_offsets"}, True),
        ({"assign": '{"__transaction_state":[0]}'}, True),
        ({"subscribePattern": "__consumer_offsets"}, False),
    ],
)
def test_find_internal_topics(options: dict[str, str], is_set: bool) -> None:
    """Spark finds an internal topic that is named only with a setting of its own."""
    conf: dict[str, str] = {}
    session: Any = SimpleNamespace(conf=SimpleNamespace(set=conf.__setitem__))

    find_internal_topics(session, options)

    name = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    assert conf == ({name: "true"} if is_set else {})

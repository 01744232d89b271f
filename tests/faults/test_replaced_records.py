"""A log that holds other records than it did: what was archived of it isn't replaced unseen."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.receipts import Receipt
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import DataLossError
from kafka_drain.findings import errors
from kafka_drain.intervals import Interval
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.sealing import Identity
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.job_spec import WindowSpec, write_private
from kafka_drain.windows.backfill import finish_backfill, open_backfill
from kafka_drain.windows.backfill_plan import plan_backfill
from kafka_drain.windows.repair import finish_repair
from kafka_drain.windows.repair_plan import plan_repair
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import (
    finish_group,
    finish_reprocess,
    open_reprocess,
    plan_reprocess,
    prepare_group,
)
from kafka_drain.windows.window_jobs import WindowJob, open_window, prepare_window
from tests.brokers import SHORT_LIVED
from tests.conftest import Drain
from tests.integration.command_line import listing

pytestmark = pytest.mark.integration

NOON = 1_768_046_400_000  # 2026-01-10 12:00 UTC, in milliseconds
HOUR = Interval(
    datetime(2026, 1, 10, 12, tzinfo=timezone.utc), datetime(2026, 1, 10, 13, tzinfo=timezone.utc)
)
RECORDS, FIRST_CHANGED, LAST = 20, 13, 19
#: The values that a topic had, and that it has.
OLD = [f"old-{n}" for n in range(RECORDS)]
NEW = [f"new-{n}" if FIRST_CHANGED <= n < LAST else f"old-{n}" for n in range(RECORDS)]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker for this module."""
    properties = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
    folder = tmp_path_factory.mktemp("rewritten") / "kafka"
    with LocalKafka(folder, properties=properties, java_options=SHORT_LIVED) as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap_servers(local: LocalKafka) -> str:
    """Its address, for everything in this module."""
    return local.bootstrap_servers


@pytest.fixture(scope="module")
def cluster(bootstrap_servers: str) -> KafkaCluster:
    """The same broker, as the product sees it."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))


def records(name: str, start: int, end: int) -> list[Any]:
    """Return records that tell what log they are of."""
    return [(b"k", f"{name}-{n}".encode(), None, NOON + n) for n in range(start, end)]


def values_in(archive: Archive) -> list[str]:
    """Return the values that readers get, by offset."""
    files = [str(archive.root / file.path) for file in archive_files(archive.snapshot())]
    table = ds.dataset(files).to_table(columns=["offset", "value"]).sort_by("offset")
    return [value.decode() for value in table["value"].to_pylist()]


def rewrite(local: LocalKafka, cluster: KafkaCluster, send: Any, topics: list[str]) -> None:
    """Cut the logs of some topics, and fill them with others up to where they ended.

    Their last records are what they were.
    """
    local.kill_node(1)
    for topic in topics:
        [segment] = (local.folder / "node-1" / "data" / f"{topic}-0").glob("*.log")
        # Within the second of two batches of the same size.
        os.truncate(segment, segment.stat().st_size * 3 // 4)
    local.start_node(1)
    for topic in topics:
        tp = TopicPartition(topic, 0)
        end = cluster.latest([tp], "read_committed")[tp]
        assert 0 < end <= FIRST_CHANGED
        send(topic, [*records("old", end, FIRST_CHANGED), *records("new", FIRST_CHANGED, LAST)])
        send(topic, records("old", LAST, RECORDS))


@pytest.fixture
def drained(spark: Any, tmp_path: Path) -> Iterator[Callable[..., WindowJob]]:
    """Drain a window as the command does, but in the shared Spark session."""
    from kafka_drain_spark.window import run_window

    with ExitStack() as folders:

        def run(prepare: Callable[[Path], WindowJob]) -> WindowJob:
            folder = Path(folders.enter_context(tempfile.TemporaryDirectory()))
            job = prepare(folder)
            spec = WindowSpec.read(folder / "window.json")
            write_private(job.result_path, run_window(spark, spec))
            return job

        yield run


def test_log_rewritten(
    tmp_path: Path,
    local: LocalKafka,
    cluster: KafkaCluster,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    drain: Drain,
    backfill: Any,
    drained: Callable[..., WindowJob],
) -> None:
    """Neither reprocess nor a forced backfill nor a repair puts other records in place of archived.

    The log is rewritten in its middle, after each was planned. Where the user accepts that, range
    by range, Kafka's records are taken, and the receipt says so.
    """
    archives, pipelines = {}, {}
    for name in ("reprocess", "backfill", "repair"):
        folder = str(tmp_path / name)
        options = {"startingOffsets": "latest"} if name == "backfill" else {}
        topic = make_topic(1)
        pipelines[name] = Pipeline(name="p", topics=[topic], archive=folder, source_options=options)
        archives[name] = Archive.at(folder)
        for start in (0, RECORDS // 2):
            send(topic, records("old", start, start + RECORDS // 2))
        drain(pipelines[name])
    backfill(pipelines["backfill"], HOUR)
    for archive in archives.values():
        assert validate_archive(archive, cluster).complete
    topics = {name: (pipeline.topics or [""])[0] for name, pipeline in pipelines.items()}
    [lost] = [file.path for file in archive_files(archives["repair"].snapshot())]
    (tmp_path / "repair" / lost).unlink()
    reprocess = plan_reprocess(pipelines["reprocess"], cluster, Cut(batch=(1, 0)))
    open_reprocess(reprocess, cluster, run="tests")
    forced = plan_backfill(pipelines["backfill"], cluster, HOUR, force=True)
    repair = plan_repair(archives["repair"], validate_archive(archives["repair"], cluster))

    rewrite(local, cluster, send, list(topics.values()))
    [key] = reprocess.groups
    window = open_window(
        repair.archive,
        repair.window_key,
        repair.ranges,
        pipeline=pipelines["repair"],
        replaces=repair.replaces,
    )
    jobs = {
        "reprocess": drained(
            lambda folder: prepare_group(reprocess, key, pipelines["reprocess"], cluster, folder)
        ),
        "backfill": drained(
            lambda folder: open_backfill(forced, pipelines["backfill"], cluster, folder)
        ),
        "repair": drained(
            lambda folder: prepare_window(
                window, repair.ranges, pipeline=pipelines["repair"], cluster=cluster, folder=folder
            )
        ),
    }
    identity = Identity("p", cluster.cluster_id(), archives["repair"].snapshot().document.topics)
    finish: dict[str, Callable[..., Receipt]] = {
        "reprocess": partial(finish_group, reprocess, jobs["reprocess"], cluster),
        "backfill": partial(finish_backfill, forced, jobs["backfill"], cluster),
        "repair": partial(finish_repair, jobs["repair"], cluster, identity),
    }
    # Of a lost file, only its receipt tells that some of its records are others now.
    differing = dict.fromkeys(jobs, f"{FIRST_CHANGED}-{LAST}") | {"repair": f"0-{RECORDS}"}
    before = {name: listing(tmp_path / name) for name in jobs}

    for name, seal in finish.items():
        where = f"{topics[name]}:0:{differing[name]}"
        with pytest.raises(DataLossError, match=f"other records at {where} than the archive"):
            seal(run="tests")
        assert listing(tmp_path / name) == before[name], "something was removed, or sealed"
        with pytest.raises(DataLossError, match="other records"):
            seal(
                run="tests",
                replaceable=parse_ranges("accepted", [f"{topics[name]}:0:0-{FIRST_CHANGED}"]),
            )
    assert values_in(archives["reprocess"]) == values_in(archives["backfill"]) == OLD

    for name, seal in finish.items():
        where = f"{topics[name]}:0:{differing[name]}"
        assert seal(run="tests", replaceable=parse_ranges("accepted", [where])).changed == (where,)
    finish_reprocess(reprocess, run="tests")
    for name, archive in archives.items():
        assert values_in(archive) == NEW, name
        assert errors(validate_archive(archive, None, deep=True).findings) == []

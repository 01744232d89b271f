"""The arms of `republish.py` without Spark: a bare loop, and the worker engine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer

from benchmarks.process_tree import Cost, Meter
from kafka_drain.archive.archive import Archive
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.engines.select import Engines
from kafka_drain.republish.engines.worker_main import VerifyJob
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import Republish, RepublishEngine, plan_republish
from kafka_drain.republish.sending.shard_sender import SendJob
from kafka_drain.republish.verifying.matching import PartitionMatch
from kafka_drain.republish.verifying.verify import summarize, target_partitions, verify_partition

__all__ = ["bare", "checked", "planned", "sent", "worker"]


#: The key of pseudonyms.
HASH_KEY = b"a key of pseudonyms, for a measurement"


def planned(
    archive: str,
    servers: str,
    target: str,
    change: Mapping[str, Any] | None = None,
) -> Republish:
    """Plan a republish to an empty topic, with fields of a request that say what is changed."""
    return plan_republish(
        Archive.at(archive),
        KafkaCluster(KafkaConfig({"bootstrap.servers": servers})),
        RepublishRequest(
            target_topic=target,
            engine="worker",
            run_name=target,
            **(change or {}),
        ),
        hash_key=HASH_KEY,
        now=utc_now(),
        apply=True,
    )


def checked(plan: RepublishPlan, archive: str, servers: str) -> None:
    """Compare the target's content with the files.

    Raises:
        RuntimeError: If they differ.
    """
    settings = {"bootstrap.servers": servers}
    matches = {tp: verify_partition(archive, plan, settings, tp) for tp in target_partitions(plan)}
    verification, _ = summarize(plan, matches)
    if not verification.is_exact:
        raise RuntimeError("\n".join(verification.lines()))


@dataclass
class Sending:
    """An engine that measures only the cost of sending, without opening and verifying."""

    engine: RepublishEngine
    pid: int

    def __call__(
        self, plan: RepublishPlan, groups: list[list[SendJob]], tick: Callable[[], None]
    ) -> None:
        """Send a plan."""
        with Meter(self.pid) as self.meter:
            self.engine(plan, groups, tick)

    def verify(
        self, plan: RepublishPlan, jobs: list[VerifyJob]
    ) -> dict[TopicPartition, PartitionMatch]:
        """Verify target partitions."""
        return self.engine.verify(plan, jobs)


def sent(republish: Republish, engine: RepublishEngine, pid: int) -> Cost:
    """Run a republish, which verifies itself, and return the cost of sending.

    The seconds cover opening and sending.
    """
    sending = Sending(engine, pid)
    seconds = float(republish.execute(sending, utc_now)["seconds"])
    return replace(sending.meter.cost, seconds=seconds, process_seconds=seconds)


def worker(
    archive: str,
    servers: str,
    target: str,
    change: Mapping[str, Any] | None = None,
) -> Cost:
    """Send with the worker engine and its default number of processes."""
    began = time.perf_counter()
    republish = planned(archive, servers, target, change)
    pipeline = Pipeline(name="none", topics=["none"], archive="/none")
    with Engines(archive, republish.cluster, pipeline, Path(archive), _no_spark) as engines:
        cost = sent(republish, engines, os.getpid())
    if change is None:
        return cost
    return replace(cost, process_seconds=time.perf_counter() - began)


def bare(archive: str, servers: str, target: str) -> Cost:
    """Send with a typical handwritten loop that keeps all fields."""
    plan = planned(archive, servers, target).plan
    with Meter(os.getpid()) as meter:
        _send_by_hand(plan, archive, servers, target)
    checked(plan, archive, servers)
    return meter.cost


def _send_by_hand(plan: RepublishPlan, archive: str, servers: str, target: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 128 << 10,
        }
    )
    for shard in plan.shards:
        for file in shard.files:
            for batch in pq.ParquetFile(f"{archive}/{file.path}").iter_batches(50_000):
                _produce(producer, target, batch)
    while producer.flush(10):
        pass


def _produce(producer: Producer, target: str, batch: pa.RecordBatch) -> None:
    times = batch["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    rows = zip(
        batch["key"].to_pylist(),
        batch["value"].to_pylist(),
        batch["headers"].to_pylist(),
        times.to_pylist(),
        batch["partition"].to_pylist(),
        strict=True,
    )
    for key, value, headers, timestamp, partition in rows:
        pairs = [(header["key"], header["value"]) for header in headers] if headers else None
        while True:
            try:
                producer.produce(
                    target, value, key, partition=partition, timestamp=timestamp, headers=pairs
                )
                break
            except BufferError:
                producer.poll(0.005)
    producer.poll(0)


def _no_spark(*_: Any) -> None:
    raise RuntimeError("the worker engine needs no Spark")

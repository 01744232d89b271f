"""The worker engine: files to Kafka in this process, with confluent-kafka's idempotent producer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_drain.errors import DeliveryError, SourceRecordError
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.progress import Progress
from kafka_drain.republishing.plan import RepublishPlan, Shard
from kafka_drain.republishing.shard_reader import read_shard

__all__ = ["republish_in_worker"]

PROGRESS_SECONDS = 2.0

PRODUCER_SETTINGS = {
    "enable.idempotence": True,
    "linger.ms": 50,
    "batch.size": 1 << 20,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 256 << 10,
}


class Deliveries:
    """Counts what Kafka acknowledged and what it refused, and timestamps that weren't kept."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.failed = 0
        self.first_error = ""
        self.timestamps_replaced = 0

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        """Take in one delivery report."""
        if error is None:
            self.acknowledged += 1
            return
        self.failed += 1
        self.first_error = self.first_error or (
            f"{message.topic()}-{message.partition()}: {error.str()}"
        )


def republish_in_worker(
    plan: RepublishPlan, cluster: KafkaCluster, say: Callable[[str], None]
) -> dict[str, Any]:
    """Send a plan's records, shard by shard, each in offset order.

    Args:
        plan: What to send where.
        cluster: The target.
        say: Takes lines of progress.

    Returns:
        records (acknowledged by Kafka), timestamps_replaced (records whose timestamp is 0, which
        librdkafka can't send), seconds, records_per_second.

    Raises:
        DeliveryError: When Kafka didn't acknowledge each record. Those that it did are there.
        SourceRecordError: When a record is larger than the target topic takes.
        DataFileError: When a file can't be read.
    """
    producer = Producer(
        {
            **cluster.config.for_librdkafka(),
            **PRODUCER_SETTINGS,
            "message.max.bytes": _largest_message(plan, cluster),
            "log_level": 3,
        }
    )
    deliveries = Deliveries()
    progress = Progress("records", plan.records)
    sent = 0
    shown = time.monotonic()
    for shard in plan.shards:
        for batch in read_shard(plan.archive.root, shard):
            sent += send_batch(producer, shard, batch, deliveries)
            _refuse_failures(deliveries, sent)
            if time.monotonic() - shown >= PROGRESS_SECONDS:
                shown = time.monotonic()
                say(f"republish {plan.pipeline}: {progress.line(deliveries.acknowledged)}")
    # Each record ends in a report: acknowledged, or failed after message.timeout.ms.
    while producer.flush(PROGRESS_SECONDS):
        say(f"republish {plan.pipeline}: {progress.line(deliveries.acknowledged)}")
    _refuse_failures(deliveries, sent)
    if not deliveries.acknowledged == sent == plan.records:
        raise DeliveryError(
            f"Kafka acknowledged {deliveries.acknowledged:,} of {sent:,} records sent, the plan "
            f"has {plan.records:,}; run it again into an empty topic"
        )
    say(f"republish {plan.pipeline}: {progress.line(sent)}")
    if deliveries.timestamps_replaced:
        say(
            f"republish {plan.pipeline}: WARNING {deliveries.timestamps_replaced:,} records have "
            "timestamp 0, which Kafka's client replaces by the time of sending"
        )
    return {
        "records": deliveries.acknowledged,
        "timestamps_replaced": deliveries.timestamps_replaced,
        "seconds": round(progress.seconds, 1),
        "records_per_second": round(sent / progress.seconds),
    }


def send_batch(
    producer: Producer, shard: Shard, batch: pa.RecordBatch, deliveries: Deliveries
) -> int:
    """Queue a batch's records in order and return how many."""
    milliseconds = batch["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    # librdkafka takes 0 for "now" (rd_kafka_producev), so that 1970 can't be kept.
    deliveries.timestamps_replaced += pc.sum(pc.equal(milliseconds, 0)).as_py() or 0
    rows = zip(
        batch["key"].to_pylist(),
        batch["value"].to_pylist(),
        batch["headers"].to_pylist(),
        milliseconds.to_pylist(),
        batch["offset"].to_pylist(),
        strict=True,
    )
    for key, value, headers, timestamp, offset in rows:
        pairs = [(header["key"], header["value"]) for header in headers or ()]
        while True:
            try:
                producer.produce(
                    shard.target_topic,
                    value=value,
                    key=key,
                    partition=shard.source.partition,
                    on_delivery=deliveries,
                    timestamp=timestamp,
                    headers=pairs,
                )
                break
            except BufferError:
                # The queue is full: wait for acknowledgements.
                producer.poll(0.1)
            except KafkaException as error:
                raise _refused_record(error.args[0], shard, offset) from error
    producer.poll(0)
    return int(batch.num_rows)


def _refused_record(error: KafkaError, shard: Shard, offset: int) -> SourceRecordError:
    return SourceRecordError(
        f"the record at offset {offset} of {shard.source} can't be sent to "
        f"{shard.target_topic}: {error.str()}; where it is too large, raise the target topic's "
        "max.message.bytes. Records before it were sent"
    )


def _refuse_failures(deliveries: Deliveries, sent: int) -> None:
    if deliveries.failed:
        raise DeliveryError(
            f"Kafka refused {deliveries.failed:,} of {sent:,} records, the first: "
            f"{deliveries.first_error}; {deliveries.acknowledged:,} were acknowledged and are in "
            "the target"
        )


def _largest_message(plan: RepublishPlan, cluster: KafkaCluster) -> int:
    """Return the largest message that the target topics take, in bytes."""
    targets = {shard.target_topic for shard in plan.shards}
    limits = (int(cluster.topic_config(t).get("max.message.bytes", 0)) for t in targets)
    return max(1_000_000, *limits)

"""Republish with Spark, the caller's side: spec, application, result.

Exactly once: each shard is a task that runs the same function as the worker engine. At least once:
Spark's own Kafka sink sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_drain import errors
from kafka_drain.archive.keys import refuse_encrypted
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.topic_watch import TopicWatch
from kafka_drain.kafka.topics import REQUEST_OVERHEAD, largest_batch, request_bytes
from kafka_drain.republish.planning.binding import watch_targets
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.sending.memory import ALLOCATION
from kafka_drain.republish.sending.shard_sender import SendJob
from kafka_drain.spark.job import SparkJob
from kafka_drain.spark.job_spec import HASH_KEY, SendSpec, SinkSpec, write_private
from kafka_drain.spark.submit import kafka_options, prepare_application
from kafka_drain.storage.paths import hadoop_path, locate

# Spark's own sink sent twice as many records per second with these (measured, 100 B values).
PRODUCER_SETTINGS = {
    "kafka.linger.ms": "50",
    "kafka.buffer.memory": str(128 << 20),
    "kafka.compression.type": "lz4",
}

# KAFKA-19479: a batch that is too large for the broker is split, and flush() doesn't wait for its
# parts, so Spark would report success before they are rejected or lost. Half of the broker's limit
# leaves room for batches that compress less than the client expects.
BATCH_BYTES = 512 << 10

# Two attempts of one task would fence each other.
NO_SPECULATION = {"spark.speculation": "false"}


@dataclass(frozen=True)
class RepublishJob(SparkJob):
    """A republish job that is ready to run."""

    what = "republish"

    targets: TopicWatch

    def watch(self) -> TopicWatch:
        """Return the target topics."""
        return self.targets

    def result(self) -> dict[str, Any]:
        """Read the result that the Spark job wrote.

        Raises:
            KafkaDrainError: The error that a shard failed with.
            SparkJobError: When the job failed otherwise, or ended without a result.
        """
        result = super().result()
        if "shard_error" in result:
            raise getattr(errors, result["shard_error"])(result["message"])
        return result


def prepare_send(
    plan: RepublishPlan,
    groups: list[list[SendJob]],
    pipeline: Pipeline,
    cluster: KafkaCluster,
    folder: Path,
) -> RepublishJob:
    """Write the spec of an exactly-once republish on Spark's executors.

    Args:
        groups: The plan's shards as jobs; each group is a task.
        pipeline: Provides Spark's configuration and memory.
        cluster: The target.
        folder: A private folder of this run (mode 0700) for the spec and the secrets.

    Raises:
        MachineError: When Java or pyspark is missing.
    """
    spec_path, result_path = folder / "republish.json", folder / "result.json"
    secrets_path = folder / "secrets.json"
    change = groups[0][0].change
    secrets = dict(groups[0][0].settings)
    if change is not None and change.key:
        secrets[HASH_KEY] = change.key.hex()
    write_private(secrets_path, secrets)
    SendSpec(
        run=plan.pipeline,
        groups=[[_without_secrets(job) for job in jobs] for jobs in groups],
        records=plan.records,
        log_levels=pipeline.log_levels,
        result_path=str(result_path),
        secrets_path=str(secrets_path),
    ).write(spec_path)
    application = prepare_application(
        f"republish_{plan.pipeline}",
        kind="send",
        spec_path=spec_path,
        pipeline=pipeline,
        folder=folder,
        needs_connector=False,
        fixed=NO_SPECULATION
        | {f"spark.executorEnv.{name}": value for name, value in ALLOCATION.items()},
    )
    return RepublishJob(application, result_path, watch_targets(cluster, plan))


def _without_secrets(job: SendJob) -> dict[str, Any]:
    written = {**job.to_dict(), "settings": {}}
    if written["change"] is not None:
        written["change"] |= {"key": ""}
    return written


def prepare_sink(
    plan: RepublishPlan, root: str, pipeline: Pipeline, cluster: KafkaCluster, folder: Path
) -> RepublishJob:
    """Write the spec of an at-least-once republish with Spark's Kafka sink.

    Args:
        pipeline: Provides Spark's configuration, jars and memory.
        cluster: The target.
        folder: A private folder of this run (mode 0700) for the spec and the secrets.

    Raises:
        ConfigError: When the archive has encrypted files.
        MachineError: When Java, pyspark or a jar is missing.
    """
    refuse_encrypted(locate(root), "Spark's Kafka sink isn't given keys for; use another engine")
    connection, secrets_path = kafka_options(cluster.config, folder)
    spec_path, result_path = folder / "republish.json", folder / "result.json"
    limits = [largest_batch(cluster.topic_config(target.topic)) for target in plan.targets]
    SinkSpec(
        run=plan.pipeline,
        sources=_sources(plan, root),
        targets={shard.source.topic: shard.target_topic for shard in plan.shards},
        partitions=sorted({str(shard.source) for shard in plan.shards}),
        records=plan.records,
        writer_options={
            **PRODUCER_SETTINGS,
            "kafka.batch.size": str(min(BATCH_BYTES, min(limits) // 2)),
            "kafka.max.request.size": str(request_bytes(limits) + REQUEST_OVERHEAD),
            **connection,
        },
        log_levels=pipeline.log_levels,
        result_path=str(result_path),
        secrets_path=secrets_path,
    ).write(spec_path)
    application = prepare_application(
        f"republish_{plan.pipeline}",
        kind="sink",
        spec_path=spec_path,
        pipeline=pipeline,
        folder=folder,
        fixed=NO_SPECULATION,
    )
    return RepublishJob(application, result_path, watch_targets(cluster, plan))


def _sources(plan: RepublishPlan, root: str) -> list[dict[str, Any]]:
    """Return the files grouped by data folder and format."""
    folder = hadoop_path(locate(root))
    folders: dict[str, dict[str, Any]] = {}
    for path, file_format in sorted(
        {(file.path, file.file_format) for shard in plan.shards for file in shard.files}
    ):
        data_folder = "/".join([folder, *path.split("/")[:2], "data"])
        source = folders.setdefault(
            data_folder, {"data_folder": data_folder, "file_format": file_format, "files": []}
        )
        source["files"].append(f"{folder}/{path}")
    return list(folders.values())

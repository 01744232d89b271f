"""The Spark engine, from the caller's side: spec, application, result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_drain.errors import SparkJobError
from kafka_drain.job_spec import RepublishSpec, read_result
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.pipeline import Pipeline
from kafka_drain.republishing.plan import RepublishPlan
from kafka_drain.spark_submit import SparkApplication, kafka_options, prepare_application

__all__ = ["RepublishJob", "finish_republish", "prepare_republish"]

# Spark's own sink took twice as many records a second with these (measured, 100 B values).
PRODUCER_SETTINGS = {
    "kafka.linger.ms": "50",
    "kafka.batch.size": str(1 << 20),
    "kafka.buffer.memory": str(128 << 20),
    "kafka.compression.type": "lz4",
}


@dataclass(frozen=True)
class RepublishJob:
    """A republish that is ready to be submitted."""

    application: SparkApplication
    result_path: Path


def prepare_republish(
    plan: RepublishPlan, pipeline: Pipeline, cluster: KafkaCluster, folder: Path
) -> RepublishJob:
    """Write the job spec of a plan and put together what spark-submit needs.

    Args:
        plan: What to send where.
        pipeline: Where Spark's configuration, jars and memory come from.
        cluster: The target.
        folder: A private folder of this run (mode 0700); the spec and the secrets go there.

    Raises:
        MachineError: When Java, pyspark or a jar is missing.
    """
    connection, secrets_path = kafka_options(cluster.config, folder)
    spec_path = folder / "republish.json"
    result_path = folder / "result.json"
    limits = [
        int(cluster.topic_config(topic).get("max.message.bytes", 0))
        for topic in {shard.target_topic for shard in plan.shards}
    ]
    RepublishSpec(
        run=plan.pipeline,
        sources=_sources(plan),
        topic=plan.target_topic,
        records=plan.records,
        partitions=len(plan.shards),
        writer_options={
            **PRODUCER_SETTINGS,
            "kafka.max.request.size": str(max(1 << 20, *limits)),
            **connection,
        },
        log_levels=pipeline.log_levels,
        result_path=str(result_path),
        secrets_path=secrets_path,
    ).write(spec_path)
    application = prepare_application(
        f"republish_{plan.pipeline}",
        application="republish",
        spec_path=spec_path,
        pipeline=pipeline,
        folder=folder,
    )
    return RepublishJob(application, result_path)


def _sources(plan: RepublishPlan) -> list[dict[str, Any]]:
    """Return the files by data folder, each folder with one format."""
    folders: dict[str, dict[str, Any]] = {}
    for path, file_format in sorted(
        {(file.path, file.file_format) for shard in plan.shards for file in shard.files}
    ):
        data_folder = str(plan.archive.root.joinpath(*path.split("/")[:2], "data"))
        source = folders.setdefault(
            data_folder, {"data_folder": data_folder, "file_format": file_format, "files": []}
        )
        source["files"].append(str(plan.archive.root / path))
    return list(folders.values())


def finish_republish(job: RepublishJob) -> dict[str, Any]:
    """Read what the Spark job wrote.

    Raises:
        SparkJobError: When the job failed, or ended without a result.
    """
    result = read_result(job.result_path)
    if result is None:
        raise SparkJobError(
            "spark-submit ended before the republish wrote a result; the reason is in the log above"
        )
    if "error" in result:
        raise SparkJobError(f"the republish failed in Spark: {result['error']}")
    return result

"""Run several drains one after another in one Spark session, with the duration of each."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.arms import run_command
from benchmarks.process_tree import Cost
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.group import finish_group, open_group, raise_failures
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.spark.client_mode import run_environment

__all__ = ["run_session"]


def run_session(pipelines: Sequence[Pipeline], servers: str, nowhere: str = "") -> dict[str, Cost]:
    """Drain pipelines as a group does.

    Args:
        pipelines: The pipelines, in order.
        servers: Bootstrap servers of the broker.
        nowhere: A topic to read to nowhere twice afterwards; empty for none.

    Returns:
        The cost of each query by the pipeline's name (and `nowhere 1`, `nowhere 2`); all figures
        but the seconds are those of the whole session.

    Raises:
        RuntimeError: If the application failed.
        KafkaDrainError: If a drain failed.
    """
    clusters = {"kafka_default": KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))}
    with (
        tempfile.TemporaryDirectory() as private,
        open_group(pipelines, clusters, Path(private), run="benchmark") as group,
    ):
        raise_failures(group)
        assert group.application is not None
        application = replace(
            group.application,
            path=Path(__file__).with_name("session_application.py"),
            arguments=[f"{private}/nowhere", servers, nowhere, *map(str, group.application.specs)],
        )
        environment = run_environment(application, "local[2]")
        printed, cost = run_command(application.command("local[2]"), environment)
        finish_group(group)
        raise_failures(group)
    seconds: dict[str, float] = json.loads(printed.splitlines()[-1])
    return {name: replace(cost, seconds=taken) for name, taken in seconds.items()}

"""Several drains one after the other in one Spark session, each with its seconds."""

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
from kafka_drain.spark.runner import run_environment

__all__ = ["run_session"]


def run_session(pipelines: Sequence[Pipeline], servers: str, nowhere: str = "") -> dict[str, Cost]:
    """Drain pipelines as a group does.

    Args:
        pipelines: The pipelines, in their order.
        servers: The broker.
        nowhere: A topic that is then read to nowhere, twice; none when empty.

    Returns:
        A cost for each query by the pipeline's name (`nowhere 1` and `nowhere 2`); but for its
        seconds it is that of the whole session.

    Raises:
        RuntimeError: When the application failed.
        KafkaDrainError: When a drain failed.
    """
    clusters = {"kafka_default": KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))}
    with (
        tempfile.TemporaryDirectory() as private,
        open_group(pipelines, clusters, Path(private), run="benchmark", say=print) as group,
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

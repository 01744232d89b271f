"""Groups of pipelines that share one Spark application, and the settings they must agree on."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.storage.s3 import scheme_of

#: Settings that must be equal: the group has a single Spark application with one configuration.
SHARED = (
    *("schedule", "spark_conn_id", "spark_conf", "log_levels", "jars", "driver_memory"),
    *("archive_conn_id", "encryption"),
)


def check_group(pipelines: Sequence[Pipeline]) -> None:
    """Refuse pipelines that can't share a Spark application.

    Raises:
        ConfigError: When the group is empty, two pipelines have the same name or archive, or a
            setting differs that must be equal; names the key and both values.
    """
    if not pipelines:
        raise ConfigError("a group of drains needs at least one pipeline")
    first = pipelines[0]
    for key in ("name", "archive"):
        values = [getattr(pipeline, key) for pipeline in pipelines]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ConfigError(f"two pipelines of a group have the {key} {twice[0]!r}")
    for pipeline in pipelines[1:]:
        if scheme_of(first.archive) != scheme_of(pipeline.archive):
            raise ConfigError(
                f"pipelines {first.name} and {pipeline.name} can't share a Spark application: "
                f"their archives are {first.archive} and {pipeline.archive}, but the way a "
                "checkpoint is written is a single setting; make two groups"
            )
        for key in SHARED:
            ours, theirs = getattr(first, key), getattr(pipeline, key)
            if ours != theirs:
                raise ConfigError(
                    f"pipelines {first.name} and {pipeline.name} can't share a Spark application: "
                    f"{key} is {ours!r} and {theirs!r}; make them equal, or make two groups"
                )

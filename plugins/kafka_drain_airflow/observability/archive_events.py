"""Asset events (Airflow 2: dataset events) of an archive, for the DAGs that are scheduled on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.common.compat.sdk import Asset, AssetAlias
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from kafka_drain.config.pipeline import Pipeline

#: Entries of an asset's extra: the pipeline, by which the pages find the archive, and the
#: connection with which they open it.
PIPELINE, CONN_ID = "kafka_drain_pipeline", "archive_conn_id"


def archive_asset(pipeline: Pipeline) -> Asset:
    """Return the asset of a pipeline's archive (Airflow 2: dataset).

    As an outlet of a `ValidateManifestOperator`, it gets an event from each validation, and the
    archive is listed in Airflow's UI. As a DAG's schedule, it starts a run after each.
    """
    archive, conn_id = pipeline.archive, pipeline.archive_conn_id
    uri = archive if "://" in archive else f"file://{archive}"
    extra: dict[str, Any] = {PIPELINE: pipeline.name} | ({CONN_ID: conn_id} if conn_id else {})
    return Asset(uri, extra=extra)


def validated_alias() -> AssetAlias:
    """Return the outlet for mapped validations: each adds an event for its own archive's asset."""
    return AssetAlias("kafka_drain_validated")


def replaced_alias(pipeline: Pipeline) -> AssetAlias:
    """Return the outlet for tasks that sometimes replace or delete files of the archive.

    It is an alias because an asset as outlet would get an event from every run of these tasks.
    """
    return AssetAlias(f"{pipeline.name}_replaced")


def tell_validated(
    outlets: Sequence[Any], context: Any, pipeline: Pipeline, extra: dict[str, Any]
) -> None:
    """Attach a validation's result to the events of its outlets.

    Args:
        outlets: The task's outlets; an alias gets an event for the archive's asset.
        context: The task's context.
        pipeline: The pipeline that owns the archive.
        extra: The result, as JSON types.
    """
    for outlet in outlets if "outlet_events" in context else ():
        if isinstance(outlet, AssetAlias):
            _add(context, outlet, pipeline, extra)
        else:
            context["outlet_events"][outlet].extra = extra


def tell_replaced(
    outlets: Sequence[Any], context: Any, pipeline: Pipeline, figures: dict[str, Any]
) -> None:
    """Emit an event for an archive's asset that reports replaced files and no new segments.

    Args:
        outlets: The task's outlets; only the alias is used.
        context: The task's context.
        pipeline: The pipeline that owns the archive.
        figures: The result of the task, as JSON types.
    """
    for outlet in outlets if "outlet_events" in context else ():
        if isinstance(outlet, AssetAlias):
            _add(context, outlet, pipeline, {**figures, "segments": []})


class HashableDict(dict[str, Any]):
    """A dict that never changes, whose values are hashable."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def hashable(value: Any) -> Any:
    """Return a value of JSON types that has a hash, and is the same text as JSON."""
    if isinstance(value, dict):
        return HashableDict({key: hashable(each) for key, each in value.items()})
    return tuple(map(hashable, value)) if isinstance(value, list | tuple) else value


def _add(context: Any, alias: AssetAlias, pipeline: Pipeline, extra: dict[str, Any]) -> None:
    # Airflow 2.11 puts the entries of an alias's events into a set; after the task has succeeded, a
    # list there would make it fail, and run again.
    kept = extra if AIRFLOW_V_3_0_PLUS else hashable(extra)
    context["outlet_events"][alias].add(archive_asset(pipeline), extra=kept)

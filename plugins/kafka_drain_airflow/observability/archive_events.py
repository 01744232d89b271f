"""Asset events (Airflow 2: dataset events) of an archive, for the DAGs that are scheduled on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.common.compat.sdk import Asset, AssetAlias

from kafka_drain.config.pipeline import Pipeline

#: Entry of an asset's extra: the connection with which the pages open the archive.
CONN_ID = "archive_conn_id"


def archive_asset(pipeline: Pipeline) -> Asset:
    """Return the asset of a pipeline's archive, for which each validation emits an event."""
    archive, conn_id = pipeline.archive, pipeline.archive_conn_id
    uri = archive if "://" in archive else f"file://{archive}"
    return Asset(uri, extra={CONN_ID: conn_id}) if conn_id else Asset(uri)


def replaced_alias(pipeline: Pipeline) -> AssetAlias:
    """Return the outlet for tasks that sometimes replace or delete files of the archive.

    It is an alias because an asset as outlet would get an event from every run of these tasks.
    """
    return AssetAlias(f"{pipeline.name}_replaced")


def tell_validated(outlets: Sequence[Any], context: Any, extra: dict[str, Any]) -> None:
    """Attach a validation's result to the events of its outlets."""
    for outlet in outlets if "outlet_events" in context else ():
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
            extra = {**figures, "segments": []}
            context["outlet_events"][outlet].add(archive_asset(pipeline), extra=extra)

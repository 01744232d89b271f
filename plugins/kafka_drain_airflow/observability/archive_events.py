"""What the DAGs that run on an archive are told: events of its asset (Airflow 2's datasets)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.common.compat.sdk import Asset, AssetAlias

from kafka_drain.config.pipeline import Pipeline

__all__ = ["archive_asset", "replaced_alias", "tell_replaced", "tell_validated"]


def archive_asset(pipeline: Pipeline) -> Asset:
    """Return the asset of a pipeline's archive: each validation's event is of it."""
    archive = pipeline.archive
    return Asset(archive if "://" in archive else f"file://{archive}")


def replaced_alias(pipeline: Pipeline) -> AssetAlias:
    """Return the outlet of tasks that replace or delete files of the archive, and often don't.

    An asset as outlet would get an event from each of their runs.
    """
    return AssetAlias(f"{pipeline.name}_replaced")


def tell_validated(outlets: Sequence[Any], context: Any, extra: dict[str, Any]) -> None:
    """Let the events of a validation's outlets have what it has found."""
    for outlet in outlets if "outlet_events" in context else ():
        context["outlet_events"][outlet].extra = extra


def tell_replaced(
    outlets: Sequence[Any], context: Any, pipeline: Pipeline, figures: dict[str, Any]
) -> None:
    """Let an archive's asset have an event that sealed nothing new, and says which files changed.

    Args:
        outlets: The task's; of them the alias.
        context: The task's.
        pipeline: Whose archive.
        figures: What was done, as JSON types.
    """
    for outlet in outlets if "outlet_events" in context else ():
        if isinstance(outlet, AssetAlias):
            extra = {**figures, "segments": []}
            context["outlet_events"][outlet].add(archive_asset(pipeline), extra=extra)

"""Asset events (Airflow 2: dataset events) of an archive, for the DAGs that are scheduled on it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

from airflow.providers.common.compat.sdk import Asset, AssetAlias
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError

#: Entries of an asset's extra: the pipeline, by which the pages find the archive, and the
#: connection with which they open it.
PIPELINE, CONN_ID = "kafka_drain_pipeline", "archive_conn_id"
#: The connections that the commands on its page name.
KAFKA, SPARK, REGISTRY = "kafka_conn_id", "spark_conn_id", "registry_conn_id"


def archive_asset(pipeline: Pipeline) -> Asset:
    """Return the asset of a pipeline's archive (Airflow 2: dataset).

    As an outlet of a `ValidateManifestOperator`, it gets an event from each validation, and the
    archive is listed in Airflow's UI. As a DAG's schedule, it starts a run after each.
    """
    named = {
        CONN_ID: pipeline.archive_conn_id,
        KAFKA: pipeline.kafka_conn_id,
        SPARK: pipeline.spark_conn_id,
        REGISTRY: pipeline.schemas_conn_id,
    }
    connections = {name: conn_id for name, conn_id in named.items() if conn_id}
    uri = archive_uri(pipeline.archive)
    if len(uri) > _LONGEST:
        raise ConfigError(
            f"pipeline {pipeline.name!r}: the archive's path makes an asset URI of {len(uri):,} "
            f"characters, in which each other than ASCII's takes 6 to 12: {uri[:60]}…; accepted: "
            f"{_LONGEST:,}. Shorten the path"
        )
    return Asset(uri, extra={PIPELINE: pipeline.name, **connections})


def archive_uri(archive: str) -> str:
    """Return the URI of an archive's asset: characters that would end its path are encoded.

    Airflow cuts a URI's fragment off, sorts its query, and takes ASCII only; before 3.1 or so, it
    cuts off what is before an @. What it takes as it is stays as it is.
    """
    scheme, found, path = ("", "", archive) if archive[:1] == "/" else archive.partition("://")
    place, separator, path = quote(path, safe=_AS_IT_IS).partition("/")
    if "@" in place and not _keeps_user():
        place = place.replace("@", "%40")
    return f"{scheme if found else 'file'}://{place}{separator}{path}"


@cache
def _keeps_user() -> bool:
    """Return whether this Airflow keeps what is before an @, such as a container of Azure's."""
    return "@" in Asset("abfss://container@account/archive").uri


def archive_of(uri: str) -> str:
    """Return the archive whose asset has a URI; see `archive_uri`."""
    return unquote(uri.removeprefix("file://"))


#: Airflow's limit (`airflow.models.asset`).
_LONGEST = 1_500

#: Printable characters of ASCII but those that begin a query, a fragment or an encoded byte.
_AS_IT_IS = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "#?%")


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


def last_event(context: Any, pipeline: Pipeline) -> datetime | None:
    """Return the time of the archive asset's newest event; None without one, or outside of Airflow.

    Its first one is that of a validation. `airflow db clean` removes old ones.
    """
    accessors = context.get("inlet_events")
    if accessors is None:
        return None
    asset = archive_asset(pipeline)
    if AIRFLOW_V_3_0_PLUS:
        events = type(accessors)([asset])[asset]
        if hasattr(events, "limit"):
            events = events.ascending(False).limit(1)
        return _newest(events)
    from airflow.utils.session import create_session

    with create_session() as session:
        return _newest(type(accessors)([asset], session=session)[asset])


def _newest(events: Sequence[Any]) -> datetime | None:
    return events[-1].timestamp if len(events) else None


def refuse_lost(context: Any, pipeline: Pipeline, *, is_meant: bool) -> None:
    """Refuse a drain that would begin an archive where Airflow knows of one.

    Args:
        is_meant: Whether a new archive is to be begun.

    Raises:
        ArchiveError: Says what to check.
    """
    from kafka_drain.archive.archive import Archive
    from kafka_drain.drain.preflight import refuse_lost_archive
    from kafka_drain.storage.paths import require_reachable

    archive = Archive.at(pipeline.archive)
    require_reachable(archive.root)
    is_there = archive.exists or archive.has_lost_document
    refuse_lost_archive(
        pipeline.name,
        str(archive.root),
        is_there=is_there,
        # Asked only then: it is a question to Airflow's API.
        validated_at=None if is_there else last_event(context, pipeline),
        is_meant=is_meant,
    )


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

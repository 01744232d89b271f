"""What Airflow knows of an archive: a drain doesn't begin one anew where one was validated."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError
from kafka_drain_airflow.observability.archive_events import archive_asset, last_event, refuse_lost

pytestmark = pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 asks its database")

AT = datetime(2026, 1, 31, tzinfo=timezone.utc)


def accessors(events: Sequence[Any]) -> Any:
    """Return what a task's context has: it makes another one for whatever asset."""

    class Accessors:
        def __init__(self, inlets: Sequence[Any]) -> None:
            self.inlets = inlets

        def __getitem__(self, asset: Any) -> Sequence[Any]:
            assert self.inlets == [asset]
            return events if asset.uri.endswith("known") else ()

    return Accessors([])


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(name="t", topics=["t"], archive=str(tmp_path / "known"))


def test_last_event(pipeline: Pipeline) -> None:
    """The newest event counts; without any, or outside of a task, nothing is known."""
    context = {"inlet_events": accessors([SimpleNamespace(timestamp=AT)])}
    other = Pipeline(name="t", topics=["t"], archive="/archives/other")

    assert archive_asset(pipeline).uri.endswith("known")
    assert last_event(context, pipeline) == AT
    assert last_event(context, other) is None
    assert last_event({}, pipeline) is None


def test_refuse_lost(pipeline: Pipeline) -> None:
    """Refused is a known archive that isn't there, unless a new one is meant."""
    context = {"inlet_events": accessors([SimpleNamespace(timestamp=AT)])}

    with pytest.raises(ArchiveError, match=r"known holds no archive, .* last at 2026-01-31"):
        refuse_lost(context, pipeline, is_meant=False)
    refuse_lost(context, pipeline, is_meant=True)
    refuse_lost({}, pipeline, is_meant=False)
    Archive.at(pipeline.archive).create(pipeline="t", cluster_id="c", topic_ids={}, source={})
    refuse_lost(context, pipeline, is_meant=False)

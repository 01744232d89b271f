"""The pipeline that a reprocess is planned for."""

from __future__ import annotations

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from tests.kafka_drain.golden import golden_pipeline


@pytest.fixture
def pipeline(archive: Archive) -> Pipeline:
    """That of a copy of the golden archive, sealed."""
    return golden_pipeline(archive)

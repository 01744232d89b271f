"""The archive that plans of followers, and of targets, start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_drain.made_archive import MadeArchive


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of topic t, of which nothing is sealed yet."""
    return MadeArchive(tmp_path / "archive", {"t": "1"})

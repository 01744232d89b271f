"""Archives that tests of several modules start from, each made once and copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from tests.kafka_drain.archives import make_sealed
from tests.kafka_drain.golden import sealed_copy


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A copy of the golden archive, sealed."""
    return sealed_copy(tmp_path / "archive")


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The golden archive, sealed; no test changes it."""
    return sealed_copy(tmp_path_factory.mktemp("golden") / "archive")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with everything that is sealed; not to be changed."""
    folder = tmp_path_factory.mktemp("made") / "archive"
    make_sealed(folder)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(made, tmp_path / "archive")

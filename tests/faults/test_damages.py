"""Hundreds of damages and copies in the wrong place: every reader is right, or refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_drain.proof.damages import Made, make, refuse_wrong

pytestmark = [pytest.mark.integration, pytest.mark.soak]

MANY, PARTS = 800, 8


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The archive; no test changes it."""
    return make(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize("part", range(PARTS))
def test_damages(made: Made, tmp_path: Path, part: int) -> None:
    """None is read wrong, and none is green that readers refuse."""
    refuse_wrong(made, tmp_path, range(part * MANY // PARTS, (part + 1) * MANY // PARTS))

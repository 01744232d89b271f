"""Single damages and copies in the wrong place: every reader is right, or refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_drain.proof.damages import READERS, Made, make, read_by, refuse_wrong, validate_by


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The archive; no test changes it."""
    return make(tmp_path_factory.mktemp("made"))


def test_undamaged(made: Made) -> None:
    """Without a damage, every reader is right, and both validations are green."""
    assert {read_by(name, made, made.root) for name in READERS} == {"right"}
    assert {validate_by(made.root, scope) for scope in ("open", "all")} == {"green"}


def test_damages(made: Made, tmp_path: Path) -> None:
    """Of a few damages, none is read wrong, and none is green that readers refuse."""
    refuse_wrong(made, tmp_path, range(12))

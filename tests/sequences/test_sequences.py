"""Random sequences of what happens to a topic and its archive: no record lost, none twice."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.sequences.sequence import Sequence
from tests.sequences.topic import Topic, hurry_cleaner

pytestmark = pytest.mark.integration

STEPS = 10


# `make soak` runs many more; every fifth topic is compacted.
@pytest.mark.parametrize("seed", [0, 4])
def test_sequence(seed: int, spark: Any, bootstrap_servers: str, tmp_path: Path) -> None:
    """Whatever happens, readers get each record once, and a green verdict is true."""
    chance = random.Random(seed)
    calm = hurry_cleaner(bootstrap_servers, "100")
    try:
        topic = Topic(bootstrap_servers, f"s-{uuid.uuid4().hex[:8]}", seed % 5 == 4, chance)
        Sequence(spark, topic, tmp_path / "archive", chance).run(STEPS)
    finally:
        calm()

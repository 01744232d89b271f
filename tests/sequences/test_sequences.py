"""Random histories on the real broker and the real Spark: no record lost, none twice."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.histories.history import History, draw
from tests.sequences.topic import Topic, hurry_cleaner
from tests.sequences.world import BrokerWorld

pytestmark = pytest.mark.integration

STEPS = 10


# `make soak` runs many more; every fifth topic is compacted.
@pytest.mark.parametrize("seed", [0, 4])
def test_sequence(seed: int, spark: Any, bootstrap_servers: str, tmp_path: Path) -> None:
    """Whatever happens, readers get each record once, and a green verdict is true."""
    chance = random.Random(seed)
    calm = hurry_cleaner(bootstrap_servers, "100")
    try:
        topic = Topic(
            f"s-{uuid.uuid4().hex[:8]}",
            is_compacted=seed % 5 == 4,
            chance=random.Random(seed),
            bootstrap=bootstrap_servers,
        )
        world = BrokerWorld(spark, topic, tmp_path / "archive")
        history = History(world, random.Random(), starts_late=chance.random() < 0.3)
        history.run(draw(world, chance, STEPS), end=seed)
    finally:
        calm()

"""What maintenance and a reprocess say of archives that they can't read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import TerminalError
from kafka_drain.maintenance.maintain import plan_maintenance
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import plan_reprocess
from tests.kafka_drain.golden import RECEIPTS, golden_cluster, golden_pipeline, sealed_copy


def reprocess(pipeline: Pipeline) -> object:
    cluster: Any = golden_cluster()
    return plan_reprocess(pipeline, cluster, Cut(batch=(1, 0)))


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        # The newest is asked whether a roll is due, all of them what a reprocess replaces.
        (plan_maintenance, "000000000013.json"),
        (reprocess, "000000000011.json"),
    ],
)
def test_plan_receipt_damaged(
    tmp_path: Path, plan: Callable[[Pipeline], object], name: str
) -> None:
    """A damaged receipt is named, and no retry can help."""
    archive = sealed_copy(tmp_path / "archive")
    pipeline = golden_pipeline(archive)
    receipt = Path(str(archive.root), RECEIPTS, name)
    receipt.write_bytes(receipt.read_bytes().replace(b'"records":', b'"Records":', 1))

    with pytest.raises(TerminalError, match=f"generations/0001/receipts/{name}:? is damaged"):
        plan(pipeline)

"""What was erased doesn't come back by a window, though Kafka still has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.offsets import OffsetRange
from kafka_drain.spark.job_spec import WindowSpec
from kafka_drain.windows import window_jobs
from kafka_drain.windows.window_jobs import open_window, prepare_window
from tests.kafka_drain.fake_cluster import fake_application
from tests.kafka_drain.made_archive import MadeArchive
from tests.kafka_drain.maintenance.test_erase import TP, cluster, erase, made, pipeline_of

__all__ = ["made"]


@pytest.mark.parametrize("is_erased", [False, True])
@pytest.mark.parametrize(
    ("ranges", "erased"),
    [
        ([OffsetRange(0, 40)], [(3, 4), (12, 14), (35, 36)]),
        ([OffsetRange(0, 13), OffsetRange(20, 30)], [(3, 4), (12, 14)]),
        ([OffsetRange(20, 30)], []),
    ],
)
def test_prepare_window_erased(
    made: MadeArchive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ranges: list[OffsetRange],
    erased: list[tuple[int, int]],
    is_erased: bool,
) -> None:
    """A window's job leaves out the erased ones of its offsets, whatever it is drained for."""
    monkeypatch.setattr(window_jobs, "prepare_application", fake_application)
    if is_erased:
        erase(made.root)
    pipeline, target = pipeline_of(made.root), {TP: ranges}
    window = open_window(made.archive, "repair_1", target, pipeline=pipeline, replaces=[])
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    source: Any = cluster()

    job = prepare_window(window, target, pipeline=pipeline, cluster=source, folder=folder)

    expected = erased if is_erased else []
    spec = WindowSpec.read(folder / "window.json")
    assert [(row["start"], row["end"]) for row in spec.erased] == expected
    assert job.erased == ({TP: [OffsetRange(*pair) for pair in expected]} if expected else {})

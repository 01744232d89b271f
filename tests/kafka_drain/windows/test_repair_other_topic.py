"""What somebody has accepted of a topic says nothing of another one that has its name now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.findings import errors
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange
from kafka_drain.proof import gap_explanation
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.windows import window_jobs
from kafka_drain.windows.repair import RepairRequest, run_repair
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.golden import P0, row
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.windows.test_repair import Spark


def test_run_repair_accepted_of_other_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted as lost of a topic that was made again since, the same offsets aren't of the new."""

    def application(name: str, *, spec_path: Path, **given: Any) -> SparkApplication:
        made = fake_application(name, spec_path=spec_path, **given)
        return replace(made, arguments=[str(spec_path)])

    monkeypatch.setattr(window_jobs, "prepare_application", application)
    made = MadeArchive(tmp_path / "made", {"flights": "id-1"})
    [old] = made.seal({P0: dense(0, 10)})
    made.seal({P0: dense(10, 20)})
    made.open_generation(flights="id-2")
    [first] = made.seal({P0: dense(0, 10)})
    [second] = made.seal({P0: dense(10, 20)})
    made.open_generation()
    for file in (old, second):
        (made.root / file.path).unlink()

    def lost(_: object, asked: dict[Any, list[OffsetRange]]) -> list[Gap]:
        return [Gap(tp, r, GapReason.LOST) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", lost)
    logs: Any = FakeCluster({P0: Log(end=20)}, topic_ids=made.topic_ids)
    pipeline = Pipeline(
        name="made", topics=["flights"], archive=str(made.root), partition_by=["topic"]
    )
    spark = Spark([row(P0, offset) for offset in range(10, 20)])
    # That Kafka no longer has anything of the deleted topic is accepted.
    asked = RepairRequest(
        made.archive,
        logs,
        acknowledged={P0: [OffsetRange(0, 10)]},
        replaceable={P0: [OffsetRange(10, 20)]},
    )
    run_repair(asked, lambda: pipeline, spark, run="test")
    report = run_repair(asked, lambda: pipeline, spark, run="test")
    assert errors(report.findings) == []

    def gone(_: object, asked: dict[Any, list[OffsetRange]]) -> list[Gap]:
        return [Gap(tp, r, GapReason.EXPIRED) for tp, ranges in asked.items() for r in ranges]

    (made.root / first.path).unlink()
    monkeypatch.setattr(gap_explanation, "classify_gaps", gone)
    logs = FakeCluster({P0: Log(10, 20)}, topic_ids=made.topic_ids)
    report = run_repair(RepairRequest(made.archive, logs), lambda: pipeline, spark, run="test")

    # Of these, nobody has said a word.
    assert [str(finding.reason) for finding in errors(report.findings)] == [
        "file_missing",
        "offset_missing",
    ]

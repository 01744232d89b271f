"""A drain of 100,000 partitions, planned and proven, and its republish, planned: without a broker.

Real code on a synthetic archive, with a simulated Kafka that responds at no cost: one drain of all
partitions is sealed, and a second one, of 1,000 of them, is to be proven.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.marks import Mark, Say
from benchmarks.processes import measured
from benchmarks.synthetic import TOPIC, Linker, SyntheticArchive, SyntheticCluster
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.soundness import check_sealed_state
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import compile_spec
from kafka_drain.drain.preflight import preflight
from kafka_drain.kafka.cluster import Topic
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import plan_republish

__all__ = ["measure_planned"]

SIZES = (1_000, 10_000, 100_000)
#: Files of the second drain, each of another partition.
NEW_FILES = 1_000


class Cluster(SyntheticCluster):
    """Also holds an empty target topic with as many partitions."""

    def topic_names(self) -> list[str]:
        """Return both topics."""
        return [TOPIC, "restored"]

    def topics(self, names: Any, needed: Any = ("DESCRIBE",)) -> dict[str, Topic]:
        """Describe them; the target has an id of its own."""
        found = super().topics(names, needed)
        return {
            name: topic if name == TOPIC else Topic(name, "synthetic-target", topic.partitions)
            for name, topic in found.items()
        }

    def topic_config(self, name: str) -> dict[str, str]:
        """Return a topic's settings."""
        return {**super().topic_config(name), "max.message.bytes": "1048588"}


def partitions(count: int) -> tuple[TopicPartition, ...]:
    """Return the partitions of a topic."""
    return tuple(TopicPartition(TOPIC, number) for number in range(count))


def make(folder: str, count: int) -> dict[str, Any]:
    """Write the archive."""
    # Nothing here has to survive a power cut.
    os.fsync = lambda opened: None  # type: ignore[assignment]
    root = Path(folder)
    root.mkdir(parents=True)
    link = Linker(root / "template.parquet", with_crc=False)
    archive = SyntheticArchive(root, link.size, link, partitions(count))
    archive.add_generation(1, sealed=1, files=count, unsealed=1, new_files=NEW_FILES)
    made = Archive.at(folder)
    # As a drain leaves them, so that a republish needn't look for large records.
    write_topic_settings(made.root, {TOPIC: TopicSettings(count, 1, 1_048_588, {})})
    note_sealed(made.root, check_sealed_state(made.snapshot()).there)
    return {}


def _pipeline(folder: str) -> Pipeline:
    return Pipeline(name="synthetic", topics=[TOPIC], archive=folder, partition_by=["topic"])


def plan_drain(folder: str, count: int) -> str:
    """Check and plan a drain."""
    plan = preflight(_pipeline(folder), SyntheticCluster(partitions(count)))
    if len(plan.start) != count:
        raise RuntimeError(f"{len(plan.start)} partitions are planned, expected {count}")
    return ""


def write_spec(folder: str, count: int) -> str:
    """Plan a drain and write its job spec."""
    cluster, pipeline = SyntheticCluster(partitions(count)), _pipeline(folder)
    plan = preflight(pipeline, cluster)
    assert plan.generation is not None
    with tempfile.TemporaryDirectory() as private:
        spec = compile_spec(pipeline, plan, plan.generation, cluster, Path(private))
        spec.write(Path(private) / "drain.json")
        return f"{(Path(private) / 'drain.json').stat().st_size / 1e6:,.1f} MB"


def prove(folder: str, count: int) -> str:
    """Prove and seal the second drain."""
    report = validate_archive(Archive.at(folder), SyntheticCluster(partitions(count)), scope="open")
    if not report.complete or report.receipts_written != 1:
        raise RuntimeError(f"{folder}: {report.findings}")
    receipts = Path(folder, "generations", "0001", "receipts")
    return f"receipt {max(receipts.iterdir()).stat().st_size / 1e6:,.1f} MB"


def prove_again(folder: str, count: int) -> str:
    """Validate everything with nothing new."""
    report = validate_archive(Archive.at(folder), SyntheticCluster(partitions(count)), scope="all")
    if not report.complete:
        raise RuntimeError(f"{folder}: {report.findings}")
    return ""


def plan_restore(folder: str, count: int) -> str:
    """Plan a republish of everything."""
    planned = plan_republish(
        Archive.at(folder),
        Cluster(partitions(count)),
        RepublishRequest(target_topic="restored"),
        now=datetime.now(timezone.utc),
        apply=False,
    )
    if len(planned.plan.shards) != count:
        raise RuntimeError(f"{len(planned.plan.shards)} shards are planned, expected {count}")
    return f"plan {len(planned.plan.to_bytes()) / 1e6:,.1f} MB"


QUESTIONS: dict[str, Callable[[str, int], str]] = {
    "checks and plan of a drain": plan_drain,
    "the same, and its job spec": write_spec,
    "proof of 1,000 new files, and their receipt": prove,
    "validation of everything, with nothing new": prove_again,
    "plan of a republish": plan_restore,
}


def measure_planned(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Ask each question once at each size, regardless of rounds."""
    points: list[dict[str, str]] = []
    figures: dict[str, Any] = {"sizes": {}}
    for count in SIZES:
        root = str(folder / str(count))
        measured(make, root, count)
        figures["sizes"][str(count)] = {}
        for name, question in QUESTIONS.items():
            run = measured(question, root, count)
            shown = f"{run.cpu_seconds:.1f} s, {run.peak_mib:,.0f} MiB"
            shown += f", {run.answer}" if run.answer else ""
            figures["sizes"][str(count)][name] = run.to_dict()
            points.append({"what": name, "size": f"{count:,} partitions", "measured": shown})
            say(f"planned: {name}, {count:,} partitions: {shown}")
    figures["points"] = sorted(points, key=lambda point: list(QUESTIONS).index(point["what"]))
    return figures, []

"""Republishes with the real command, whose processes are killed and paused at random moments."""

from __future__ import annotations

import json
import random
import shutil
import uuid
from pathlib import Path

import pytest

from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from tests.faults.conftest import Sealed
from tests.faults.injection import wait_for
from tests.faults.republishing import (
    Run,
    alter_topic,
    audit,
    make_target,
    read_topic,
    torment,
    torment_executors,
    total,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def archive(sealed: Sealed, tmp_path: Path) -> Path:
    """A copy of the archive."""
    return Path(shutil.copytree(sealed.folder, tmp_path / "archive"))


def test_republish_killed_and_paused(
    sealed: Sealed,
    archive: Path,
    bootstrap_servers: str,
    tmp_path: Path,
) -> None:
    """However often attempts are killed or paused and resumed, all is sent once and in order."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails

    def make_run(nth: int) -> Run:
        target = make_target(bootstrap_servers, f"t-{uuid.uuid4().hex[:8]}", 2)
        return Run(archive, bootstrap_servers, target, tmp_path)

    runs = torment(
        make_run,
        sealed.records,
        kills=5,
        zombies=2,
        chance=random.Random(seed),
    )

    targets = [read_topic(bootstrap_servers, run.target) for run in runs]
    found = total(audit(sealed.content, target) for target in targets)
    assert found.records == len(runs) * sealed.records
    assert found.is_exact, found


@pytest.mark.cluster
def test_republish_executors_killed(
    sealed: Sealed,
    archive: Path,
    spark_workers: tuple[str, list[int]],
    bootstrap_servers: str,
    packed_python: Path,
    tmp_path: Path,
) -> None:
    """The shards of killed executors move to others, which send the remaining records once.

    Their Python is the one that the application ships.
    """
    master, workers = spark_workers
    target = make_target(bootstrap_servers, f"t-{uuid.uuid4().hex[:8]}", 2)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails

    torment_executors(
        Run(archive, bootstrap_servers, target, tmp_path),
        sealed.records,
        master=master,
        workers=workers,
        kills=2,
        chance=random.Random(seed),
        packed=packed_python,
    )

    found = audit(sealed.content, read_topic(bootstrap_servers, target))
    assert found.records == sealed.records
    assert found.is_exact, found


def test_republish_at_least_once_task_tried_again(
    sealed: Sealed, archive: Path, cluster: KafkaCluster, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Spark's sink sends a retried task's records again; verify counts and reports them."""
    # The last record of partition 0 has no key, which a compacted topic refuses: its task fails.
    name = f"t-{uuid.uuid4().hex[:8]}"
    target = make_target(bootstrap_servers, name, 2, max_message_bytes="100000")
    run = Run(archive, bootstrap_servers, target, tmp_path)
    run.arguments = ("--delivery", "at_least_once", "--master", "local[2,1000]", "--json")
    tp = TopicPartition(target, 0)
    try:
        attempt = run.start()
        plans = archive / "republish"
        wait_for(lambda: any(plans.glob("*/plan.json")) or attempt.ended(), "the plan")
        alter_topic(bootstrap_servers, target, "cleanup.policy", "compact")

        def was_tried_again() -> bool:
            assert not attempt.ended(), attempt.tail()
            return cluster.latest([tp], "read_committed")[tp] > len(sealed.content[0])

        wait_for(was_tried_again, "a task's second try", patience=120)
        alter_topic(bootstrap_servers, target, "cleanup.policy", "delete")
        run.finish(attempt)
    finally:
        run.close()

    [receipt] = (archive / "republish").glob("*/receipt.json")
    found = json.loads(receipt.read_text())
    in_target = read_topic(bootstrap_servers, target)
    copies = sum(map(len, in_target.values())) - sealed.records
    assert copies > 0
    assert not found["exactly_once"]
    assert not found["verification"]["is_exact"]
    assert (found["verification"]["lost"], found["verification"]["twice"]) == (0, copies)
    assert f"{copies:,} are duplicates" in attempt.log.read_text()

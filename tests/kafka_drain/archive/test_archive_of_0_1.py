"""An archive of release 0.1: this release validates it, drains on and republishes it."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import CheckpointError, ConfigError
from kafka_drain.findings import errors, summary
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import Scope, validate_archive
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import Republish, plan_republish
from kafka_drain.storage.sealed_json import seal
from kafka_drain.windows.roll import plan_roll, roll
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import END, P0, P1, add_batch, golden_cluster, note_batch

DATA = Path(__file__).parents[2] / "data"

#: Where its third generation starts; what is drained to the second one by then.
DRAINED = END + 12
NOW = datetime(2026, 1, 3, tzinfo=timezone.utc)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A copy of the archive: two generations, a repair, three republishes, an unsealed batch."""
    return Archive.at(str(shutil.copytree(DATA / "archive_0_1", tmp_path / "archive")))


def target_cluster() -> Any:
    """The cluster that the archive was republished to."""
    topics = ("copy", "mirror", "later", "new")
    logs = {TopicPartition(topic, p): Log(end=5) for topic in topics for p in (0, 1)}
    return FakeCluster(
        logs, id="elsewhere", configs={topic: {"retention.ms": "-1"} for topic in topics}
    )


def planned(archive: Archive, run: str, **more: Any) -> Republish:
    """Plan a republish to a topic, which gives the run its name."""
    now = more.pop("now", NOW)
    request = RepublishRequest(run_name=run, target_topic=run, **more)
    return plan_republish(archive, target_cluster(), request, now=now, apply=True)


@pytest.mark.parametrize("scope", ["open", "all"])
@pytest.mark.parametrize("deep", [False, True])
def test_validate(archive: Archive, scope: Scope, deep: bool) -> None:
    """What was proven stays proven; what was only drained is sealed now, once."""
    for written in (1, 0):
        report = validate_archive(archive, golden_cluster(), scope=scope, deep=deep)  # type: ignore[arg-type]
        assert (errors(report.findings), report.receipts_written) == ([], written)
        # Of what it had sealed, in both generations, nobody knows what Spark had read.
        unknown = 1 if scope == "open" and not deep else 2
        # Its open generation was copied without the id of Spark's query.
        assert summary(report.findings) == {
            "content_unknown": unknown,
            "file_replaced": 1,
            "note_unreadable": 1,
        }


def test_archive_files(archive: Archive) -> None:
    """Readers get the files that release 0.1 gave them."""
    found = [{"path": f.path, "records": f.records} for f in archive_files(archive.snapshot())]

    assert found == json.loads((DATA / "archive_0_1.files.json").read_text())


def test_drain_on(archive: Archive) -> None:
    """Drains go on where release 0.1 ended; as the copy was moved, in a generation of their own."""
    document = archive.snapshot().document
    pipeline = Pipeline(
        name=document.pipeline,
        topics=list(document.topics),
        archive=str(archive.root),
        partition_by=["topic"],
    )
    cluster: Any = golden_cluster()
    validate_archive(archive, cluster)
    with pytest.raises(CheckpointError, match="was moved"):
        preflight(pipeline, cluster)

    roll(plan_roll(archive, cluster))

    plan = preflight(pipeline, cluster)
    assert plan.start == {P0: DRAINED, P1: DRAINED}
    opened = archive.generation(3)
    paths = add_batch(opened, 0, DRAINED, DRAINED + 4)
    note_batch(opened, 0, paths, DRAINED, DRAINED + 4)
    for written in (1, 0):
        report = validate_archive(archive, cluster, deep=True)
        assert (errors(report.findings), report.receipts_written) == ([], written)
    assert sum(f.records or 0 for f in archive_files(archive.snapshot())) == 2 * (DRAINED + 4)


def test_republish(archive: Archive) -> None:
    """A republish sends everything that is sealed; a follower what it hasn't sent."""
    validate_archive(archive, golden_cluster())  # type: ignore[arg-type]

    assert planned(archive, "new").plan.records == 2 * DRAINED
    follower = planned(archive, "mirror", follow=True, delivery="at_least_once")
    assert follower.plan.records == 2 * 3


def test_republish_begun(archive: Archive) -> None:
    """A run that release 0.1 has planned or ended is that run, also for this release."""
    written = json.loads(next(archive.root.glob("republish/later-*/plan.json")).read_text())
    soon = datetime.fromisoformat(written["created_at"]) + timedelta(hours=1)

    assert planned(archive, "later", now=soon).plan.created_at == written["created_at"]
    ended = planned(archive, "copy", delivery="at_least_once")
    assert ended.run.receipt() is not None
    with pytest.raises(ConfigError, match="started with"):
        planned(archive, "copy")


def test_republish_begun_with_fast_transactions(archive: Archive) -> None:
    """A run that was begun with `--transactions fast` is that run, asked for without it."""
    [path] = archive.root.glob("republish/later-*/plan.json")
    written = json.loads(path.read_text())
    del written["sha256"]
    older = {**written, "transactions": "fast"}
    older["request"] = {**written["request"], "transactions": "fast"}
    path.write_bytes(seal(older))
    soon = datetime.fromisoformat(written["created_at"]) + timedelta(hours=1)

    plan = planned(archive, "later", now=soon).plan

    assert (plan.created_at, plan.transactions) == (written["created_at"], "fast")

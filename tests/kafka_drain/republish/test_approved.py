"""A republish that was seen is the one that is carried out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_drain.archive import frozen_plans
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plan import FrozenPlan
from kafka_drain.archive.frozen_plans import freeze, list_plans
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.errors import ArchiveError, ConfigError, PlanChangedError
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.approved import freeze_republish, plan_approved
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import Republish
from tests.kafka_drain.archive.test_frozen_plan import frozen as other_plan
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import (
    END,
    P0,
    add_batch,
    note_batch,
    open_next,
    row,
    seal,
    seal_repair,
)
from tests.kafka_drain.made_archive import NOW
from tests.kafka_drain.republish.planning.test_planner import cluster_with

LATER = NOW + timedelta(hours=1)


def frozen_in(archive: Archive, cluster: FakeCluster | None = None, **asked: Any) -> FrozenPlan:
    request = RepublishRequest(**{"target_topic": "copy", **asked})
    here: Any = cluster or cluster_with(copy=2)
    return freeze_republish(archive, here, request, now=NOW)[1]


def approved(
    archive: Archive,
    plan: FrozenPlan | str,
    cluster: FakeCluster | None = None,
    *,
    now: Any = LATER,
    apply: bool = True,
) -> Republish:
    here: Any = cluster or cluster_with(copy=2)
    plan_id = plan if isinstance(plan, str) else plan.id
    return plan_approved(archive, here, plan_id, now=now, apply=apply)[0]


def drain_more(archive: Archive) -> None:
    """Three more offsets of each partition are drained and sealed."""
    generation = open_next(archive, "parquet", ["topic"])
    note_batch(generation, 0, add_batch(generation, 0, END, END + 3), END, END + 3)
    seal(archive)


def test_plan_approved_sends_what_was_seen(archive: Archive) -> None:
    """What was drained since isn't sent, whatever the request selects now."""
    plan = frozen_in(archive, partitions=[0, 1], provenance=True, records_per_second=5)
    drain_more(archive)

    run = approved(archive, plan)

    assert (run.plan.records, run.plan.provenance) == (84, True)
    assert [(shard.first, shard.end) for shard in run.plan.shards] == [(0, END), (0, END)]
    assert run.request.records_per_second == 5
    assert run.plan.created_at.startswith("2026-01-01T01")


@pytest.mark.parametrize("transactions", ["strict", "fast"])
def test_plan_approved_of_older_release(
    archive: Archive, transactions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that 0.2 froze names its transactions: what was seen is sent, as today."""
    plan = frozen_in(archive)
    older = replace(plan, asked={**plan.asked, "transactions": transactions})
    monkeypatch.setattr(frozen_plans, "read_plan", lambda *_: older)

    run = approved(archive, older)

    assert (run.plan.records, run.plan.transactions) == (84, "strict")


def test_plan_approved_one_run(archive: Archive) -> None:
    """A plan has one run; another plan of the same request has another one."""
    plan, same = frozen_in(archive), frozen_in(archive)
    here: Any = cluster_with(copy=2)
    request = RepublishRequest(target_topic="copy")
    other = freeze_republish(archive, here, request, now=LATER)[1]

    assert plan == same
    assert approved(archive, plan).run.key == approved(archive, plan).run.key
    assert approved(archive, plan).run.key != approved(archive, other).run.key


def test_freeze_republish_lifetime(archive: Archive) -> None:
    """A plan can be started for as long as is asked for, or for a day."""
    here: Any = cluster_with(copy=2)
    request = RepublishRequest(target_topic="copy")
    short = freeze_republish(archive, here, request, now=NOW, lifetime=LATER - NOW)[1]

    assert datetime.fromisoformat(short.expires_at) == LATER
    assert datetime.fromisoformat(frozen_in(archive).expires_at) == NOW + timedelta(days=1)


def test_freeze_republish_sends_nothing(archive: Archive) -> None:
    """Freezing writes the plan and the archive's id, and nothing else anywhere."""
    root = Path(str(archive.root))
    write_topic_settings(archive.root, {"flights": TopicSettings(2, 1, config={})})
    before, cluster = {p for p in root.rglob("*") if p.is_file()}, cluster_with()
    plan = frozen_in(archive, cluster, create_target=True)

    new = {p for p in root.rglob("*") if p.is_file()} - before
    assert {str(p.relative_to(root)) for p in new} == {"identity.json", f"plans/{plan.id}.json"}
    assert cluster.topic_names() == []
    assert "copy (2 partitions, to be created)" in plan.text


def test_plan_approved_checks_only(archive: Archive) -> None:
    """Without apply, the plan is only compared: no topic is created."""
    write_topic_settings(archive.root, {"flights": TopicSettings(2, 1, config={})})
    cluster = cluster_with()
    plan = frozen_in(archive, cluster, create_target=True)

    assert approved(archive, plan, cluster, apply=False).plan.records == 84
    assert cluster.topic_names() == []
    assert all(target.id for target in approved(archive, plan, cluster).plan.targets)
    # As after a try that was killed when it had created the topic.
    assert approved(archive, plan, cluster).plan.records == 84


def refused(archive: Archive, plan: FrozenPlan, **how: Any) -> str:
    with pytest.raises(PlanChangedError) as error:
        approved(archive, plan, **how)
    assert not (archive.root / "republish").exists()
    return str(error.value)


def test_plan_approved_files_replaced(archive: Archive) -> None:
    """A file that was replaced since is named: the person has seen another one."""
    plan = frozen_in(archive)
    files = sorted(archive.generation(1).list_data_files())
    path = next(f for f in files if "part-00000" in f)
    name = f"{archive.generation(1).data_name}/{path}"
    held = pq.read_table(str(archive.root / name)).to_pylist()
    rows = [each | {"topic": "flights"} for each in held]
    seal_repair(archive, "repair_20260101T000000Z", rows, [name])

    assert f"1 file was replaced or removed, such as {name}" in refused(archive, plan)


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (cluster_with(copy=3), "topic copy went from 2 to 3 partitions"),
        (
            FakeCluster(
                {TopicPartition("copy", p): Log(end=8) for p in (0, 1)},
                id="elsewhere",
                configs={"copy": {"retention.ms": "-1"}},
            ),
            "the offsets of topic copy grew by 6",
        ),
        (
            FakeCluster(
                {TopicPartition("copy", p): Log(end=5) for p in (0, 1)},
                id="elsewhere",
                topic_ids={"copy": "new"},
                configs={"copy": {"retention.ms": "-1"}},
            ),
            "topic copy was recreated",
        ),
        (
            FakeCluster(
                {TopicPartition("copy", p): Log(end=5) for p in (0, 1)},
                id="third",
                configs={"copy": {"retention.ms": "-1"}},
            ),
            "Kafka cluster elsewhere became third",
        ),
    ],
)
def test_plan_approved_target_changed(archive: Archive, cluster: FakeCluster, said: str) -> None:
    """A target that isn't what was seen is refused, before anything is written."""
    assert said in refused(archive, frozen_in(archive), cluster=cluster)


def test_plan_approved_expired(archive: Archive) -> None:
    """An expired plan isn't started."""
    plan = frozen_in(archive)

    assert "had to be started by 2026-01-02T00:00" in refused(
        archive, plan, now=NOW + timedelta(days=1)
    )


def test_plan_approved_other_archive(archive: Archive, golden: Archive, tmp_path: Path) -> None:
    """A plan that was copied to another archive is refused there."""
    plan = frozen_in(archive)
    other = Archive.at(str(shutil.copytree(str(golden.root), tmp_path / "other")))
    other.identify()
    shutil.copytree(str(archive.root / "plans"), str(other.root / "plans"))

    assert f"in archive {archive.identity()}, but this is" in refused(other, plan)


def test_plan_approved_other_kind(archive: Archive) -> None:
    """A plan of maintenance sends nothing."""
    plan = freeze(archive.root, other_plan(kind="maintain"), NOW)

    assert "it is a maintain of pipeline" in refused(archive, plan)


def test_plan_approved_unlike_written(archive: Archive) -> None:
    """A plan whose content isn't a republish's is refused, as by another release's."""
    plan = frozen_in(archive)
    strange = freeze(archive.root, other_plan(seen=dict(plan.seen) | {"shards": 1}), NOW)

    with pytest.raises(ArchiveError, match="isn't as it was written"):
        approved(archive, strange)


@pytest.mark.parametrize("asked", [{"run_name": "mine"}, {"follow": True}])
def test_freeze_republish_named(archive: Archive, asked: dict[str, Any]) -> None:
    """A named run and a mirror have plans of their own."""
    with pytest.raises(ConfigError, match=f"{next(iter(asked))} can't be set for a plan"):
        frozen_in(archive, **asked)
    assert list_plans(archive.root) == []


def test_plan_text(archive: Archive) -> None:
    """The text says what a person wants to know, and of the selected times only."""
    text = frozen_in(archive, to_time="2013-01-01T12:00:00.010Z").text

    assert text.startswith("### Send 20 records of golden to Kafka\n")
    assert "2013-01-01T12:00:00.000Z to 2013-01-01T12:00:00.009Z" in text
    assert "| flights-0 | copy-0 | 0 to 9 | 10 |" in text
    assert "copy (2 partitions, holds up to 10 records)" in text
    assert text.endswith("can't be taken back.")


def test_plan_text_from_time(archive: Archive) -> None:
    """The text has the times of the selected records, of each partition and of all."""
    text = frozen_in(archive, from_time="2013-01-01T12:00:00.010Z").text
    whole = frozen_in(archive).text

    assert "| timestamps | 2013-01-01T12:00:00.010Z to " in text
    assert "unknown" not in text + whole
    for number in (0, 1):
        [row] = [line for line in text.splitlines() if line.startswith(f"| flights-{number} |")]
        assert "| 2013-01-01T12:00:00.010Z to " in row
    assert "| timestamps | 2013-01-01T12:00:00.000Z to " in whole


def test_plan_text_bounded(archive: Archive) -> None:
    """The text of the largest archive fits an XCom: its rows and cells are bounded."""
    topics = {f"flights-{'x' * 200}-{n:03d}": "copy" for n in range(200)}
    rename = {"flights": "copy", **topics}
    known = archive.snapshot().document.topics | dict.fromkeys(topics, "id")
    archive.update_topics(archive.snapshot().document, known)

    assert len(frozen_in(archive, rename=rename).text) < 5_000


def test_frozen_document_is_json(archive: Archive) -> None:
    """The document names files, offsets and targets, for any reader."""
    plan = frozen_in(archive)
    document = json.loads((archive.root / "plans" / f"{plan.id}.json").read_text())

    assert document["seen"]["records"] == 84
    assert document["seen"]["targets"][0]["topic"] == "copy"
    assert row(P0, 0)["topic"] == document["seen"]["shards"][0]["topic"]


def test_plan_approved_with_key(archive: Archive, tmp_path: Path) -> None:
    """A key that is there for all plans stands in for its file, and hurts none without a change."""
    here: Any = cluster_with(copy=2)
    key, file = b"a secret key of pseudonyms, long", tmp_path / "key"
    file.write_bytes(key)

    def records_of(plan: FrozenPlan) -> int:
        how: Any = {"now": LATER, "apply": False, "hash_key": key}
        return plan_approved(archive, here, plan.id, **how)[0].plan.records

    assert records_of(frozen_in(archive)) == 84
    hashed = frozen_in(archive, hash_fields=["key"], hash_key_file=str(file))
    file.unlink()
    assert records_of(hashed) == 84

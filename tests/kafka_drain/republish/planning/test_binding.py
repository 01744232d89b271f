"""What a run is bound to: the cluster and the topics by their ids, not by their names."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import (
    ArchiveError,
    AuthorizationError,
    ConfigError,
    ManifestInvalidError,
    TopicError,
)
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.binding import Binding, refuse_other_target
from kafka_drain.republish.planning.documents import ReceiptJson
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.previous_runs import sent
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import plan_republish
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import sealed_copy
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.republish.planning.test_previous_runs import plan_of
from tests.kafka_drain.republish.receipts import receipt_of
from tests.tables import each_of

CLUSTER = {"unknown": "", "same": "here", "other": "elsewhere"}
TOPIC: dict[str, tuple[str, str | None]] = {
    # What is bound, and what is seen; None where there is no such topic.
    "same": ("1", "1"),
    "made again": ("1", "2"),
    "gone": ("1", None),
    "unknown": ("", "2"),
    "unknown and gone": ("", None),
}


@each_of("cluster, one, two", list(product(CLUSTER, TOPIC, TOPIC)))
def test_contradicted_by(cluster: str, one: str, two: str) -> None:
    """Another cluster, another topic of the name, or none: each is named, the cluster first."""
    bound = Binding(CLUSTER[cluster], {"one": TOPIC[one][0], "two": TOPIC[two][0]})
    there = {"one": TOPIC[one][1], "two": TOPIC[two][1]}
    seen = Binding("here", {topic: id for topic, id in there.items() if id is not None})

    found = bound.contradicted_by(seen)

    words = {
        "made again": "topic {} with id 1, which has been recreated since: its id is now 2",
        "gone": "topic {} with id 1, which doesn't exist",
        "unknown and gone": "topic {}, which doesn't exist",
    }
    if cluster == "other":
        assert found == "sends to Kafka cluster elsewhere, but this is here"
    elif one in words:
        assert found == f"sends to {words[one].format('one')}"
    elif two in words:
        assert found == f"sends to {words[two].format('two')}"
    else:
        assert found is None


def test_binding_of_plan_and_receipt() -> None:
    """A receipt binds a run as its plan does, also one that an older release wrote."""
    plan = plan_of("run", target_id="7")

    assert Binding.of_plan(plan) == Binding(plan.cluster_id, {"copy": "7"})
    receipt: dict[str, Any] = {"cluster_id": plan.cluster_id, "sent": sent(plan)}
    assert Binding.of_receipt(receipt) == Binding.of_plan(plan)
    del receipt["cluster_id"], receipt["sent"][0]["target_topic_id"]
    assert Binding.of_receipt(receipt) == Binding("", {"copy": ""})
    assert Binding.from_dict(Binding.of_plan(plan).to_dict()) == Binding.of_plan(plan)


def test_binding_plus() -> None:
    """The newer one knows better, but for what it doesn't know."""
    older = Binding("c", {"a": "1", "b": "1", "d": ""})
    newer = Binding("", {"b": "2", "a": "", "e": ""})

    assert older.plus(newer) == Binding("c", {"a": "1", "b": "2", "d": "", "e": ""})


def test_refuse_other_target_says_what_to_do() -> None:
    """The error names the run, both ids, and how to begin anew."""
    cluster: Any = FakeCluster({TopicPartition("copy", 0): Log()}, id="c", topic_ids={"copy": "2"})
    same = Binding("c", {"copy": "2"})

    refuse_other_target(cluster, same, "run", said="Nothing was sent")
    refuse_other_target(cluster, Binding("", {"copy": "2"}), "run", said="Nothing was sent")

    with pytest.raises(TopicError, match=r"run r sends to topic copy with id 1.* 2\. Nothing was"):
        refuse_other_target(cluster, Binding("c", {"copy": "1"}), "r", said="Nothing was sent")
    with pytest.raises(TopicError, match=r"cluster b, but this is c\..* name another run \(--run;"):
        refuse_other_target(cluster, Binding("b", {"copy": "2"}), "r", said="Nothing was sent")


def receipt_of_plan(plan: RepublishPlan) -> ReceiptJson:
    return receipt_of(
        key=plan.key,
        cluster_id=plan.cluster_id,
        sent=sent(plan),
        request=dict(plan.request),
        through=plan.through,
    )


@pytest.fixture
def sealed(tmp_path: Path) -> Archive:
    """An archive that a real drain made."""
    return sealed_copy(tmp_path / "archive")


def cluster_of(**more: Any) -> Any:
    logs = {TopicPartition("copy", p): Log() for p in range(2)}
    return FakeCluster(logs, configs={"copy": {"retention.ms": "-1"}}, **more)


def planned(sealed: Archive, cluster: Any, **more: Any) -> Any:
    now, apply = more.pop("at", NOW), more.pop("apply", True)
    request = RepublishRequest(**{"target_topic": "copy", "run_name": "r", **more})
    return plan_republish(sealed, cluster, request, now=now, apply=apply)


def test_plan_republish_of_older_release(sealed: Archive) -> None:
    """A run that an older release planned goes on under the names that it has in Kafka."""
    begun = planned(sealed, cluster_of(), apply=False)
    assert begun.plan.archive_id == ""
    begun.run.write_plan(begun.plan)
    sealed.identify()

    again = planned(sealed, cluster_of())

    assert again.plan.kafka_name == again.plan.key
    assert again.plan.attempts.group == f"kafka-drain-republish-{again.plan.key}-attempts"
    assert {shard.progress.group for shard in again.plan.shards} == {
        f"kafka-drain-republish-{again.plan.key}-0"
    }


def test_plan_republish_names_in_kafka(sealed: Archive, tmp_path: Path) -> None:
    """Runs of one name in two archives share no group and no transactional id."""
    other = sealed_copy(tmp_path / "other")
    mine, theirs = (planned(archive, cluster_of()).plan for archive in (sealed, other))

    assert mine.key == theirs.key
    assert mine.kafka_name != theirs.kafka_name
    assert mine.attempts.group != theirs.attempts.group
    assert mine.shards[0].progress.group != theirs.shards[0].progress.group
    assert planned(sealed, cluster_of()).plan.kafka_name == mine.kafka_name


def test_plan_republish_of_other_archive(sealed: Archive) -> None:
    """A run's folder in another archive than its own is refused, and both ids are named."""
    begun = planned(sealed, cluster_of())
    begun.run.write_plan(replace(begun.plan, archive_id="f" * 32))

    with pytest.raises(ArchiveError, match=rf"id f{{32}}, .* {sealed.identity()}; restore"):
        planned(sealed, cluster_of())


def test_plan_republish_never_opened(sealed: Archive) -> None:
    """A run that never opened is planned again when that is long ago, or its files are gone."""
    begun = planned(sealed, cluster_of())
    first = begun.run.write_plan(begun.plan)
    [path, *_] = [Path(str(sealed.root), f.path) for s in first.shards for f in s.files]

    assert planned(sealed, cluster_of(), at=NOW + timedelta(days=3)).plan == first
    later = planned(sealed, cluster_of(), at=NOW + timedelta(days=3, seconds=1))
    assert later.replaced == first
    assert datetime.fromisoformat(later.plan.created_at) > NOW
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(ManifestInvalidError):
        # Planned again, from what is there.
        planned(sealed, cluster_of())
    begun.run.mark_opened(PLAN)
    assert planned(sealed, cluster_of(), at=NOW + timedelta(days=300)).plan == first
    path.write_bytes(content)


def test_plan_republish_abandoned(sealed: Archive) -> None:
    """A run that was abandoned doesn't go on."""
    begun = planned(sealed, cluster_of())
    begun.run.write_plan(begun.plan)
    begun.run.abandon(NOW)

    with pytest.raises(ConfigError, match="was abandoned and what it sent is unknown"):
        planned(sealed, cluster_of())


def test_republish_planned_otherwise_meanwhile(sealed: Archive) -> None:
    """Of two calls with one run's name and two requests, the one that plans later is refused."""
    mine = planned(sealed, cluster_of())
    theirs = planned(sealed, cluster_of(), provenance=True)
    theirs.run.write_plan(theirs.plan)

    with pytest.raises(ConfigError, match=r"started with .*'provenance': True.*, this request is"):
        mine.execute(None, lambda: NOW)  # type: ignore[arg-type]


def two_targets(*topics: str) -> Any:
    return FakeCluster(
        {TopicPartition(topic, 0): Log() for topic in topics},
        configs={topic: {"retention.ms": "-1"} for topic in topics},
    )


def test_plan_republish_follow_target_gone(tmp_path: Path) -> None:
    """A mirror of two topics goes on with the one whose target wasn't deleted, and says so."""
    made = MadeArchive(tmp_path / "archive", {"a": "1", "b": "2"})
    made.seal_window("0_1", {TopicPartition(t, 0): dense(0, 5) for t in "ab"})

    def mirrored(cluster: Any, **more: Any) -> Any:
        return planned(made.archive, cluster, target_topic="{topic}.copy", follow=True, **more)

    def end(republish: Any) -> None:
        plan = republish.run.write_plan(republish.plan)
        republish.run.write_receipt(receipt_of_plan(plan))

    end(mirrored(two_targets("a.copy", "b.copy")))
    only_a = two_targets("a.copy")

    [note] = [note for note in mirrored(only_a).plan.notes if "WARNING" in note]
    assert (
        "sends to topic b.copy with id id-of-b.copy, which doesn't exist; this one has no" in note
    )
    made.seal_window("1_2", {TopicPartition("a", 0): dense(5, 9)})
    found = mirrored(only_a)
    assert [shard.target_topic for shard in found.plan.shards] == ["a.copy"]
    assert found.plan.through["bound"]["topics"].keys() == {"a.copy", "b.copy"}
    end(found)
    made.seal_window("2_3", {TopicPartition("b", 0): dense(5, 9)})
    with pytest.raises(TopicError, match=r"b\.copy with id id-of-b\.copy, which doesn't exist"):
        mirrored(only_a)
    elsewhere = two_targets("a.copy", "b.copy")
    elsewhere.id = "elsewhere"
    with pytest.raises(TopicError, match="this is elsewhere"):
        mirrored(elsewhere)


@pytest.mark.parametrize(
    "gone",
    ["generations/0001/receipts/000000000012.json", "generations/0001/receipts/000000000013.json"],
)
def test_plan_republish_follow_receipt_gone(tmp_path: Path, gone: str) -> None:
    """A follower sends nothing while a receipt is gone: it would pass its records over for good."""
    archive = sealed_copy(tmp_path / "archive")
    cluster = FakeCluster(
        {TopicPartition("copy", p): Log() for p in range(2)},
        configs={"copy": {"retention.ms": "-1"}},
    )
    (archive.root / gone).unlink()

    for _ in range(2):
        with pytest.raises(ManifestInvalidError, match="receipt_missing"):
            planned(archive, cluster, follow=True)
    assert not (archive.root / "republish").exists()


@pytest.mark.parametrize("is_ended", [False, True])
def test_plan_republish_begun_without_target(sealed: Archive, is_ended: bool) -> None:
    """What an older release began without a target goes on with `{topic}`, which means the same."""
    cluster = FakeCluster(
        {TopicPartition(t, p): Log() for t in sealed.snapshot().document.topics for p in range(2)},
        configs={t: {"retention.ms": "-1"} for t in sealed.snapshot().document.topics},
    )
    begun = planned(sealed, cluster, target_topic=None, follow=True)
    plan = begun.run.write_plan(begun.plan)
    if is_ended:
        begun.run.write_receipt(receipt_of_plan(plan) | {"cluster_id": "cluster-1"})

    planned(sealed, cluster, target_topic="{topic}", follow=True)
    with pytest.raises(ConfigError, match="started with"):
        planned(sealed, cluster, follow=True)


@pytest.mark.parametrize("apply", [True, False])
@pytest.mark.parametrize("is_ended", [False, True])
@pytest.mark.parametrize("follows", [False, True])
def test_plan_republish_target_made_again(
    sealed: Archive, apply: bool, is_ended: bool, follows: bool
) -> None:
    """Begun or ended, followed or not, dry or not: the target is looked at before all else."""
    begun = planned(sealed, cluster_of(), follow=follows)
    plan = begun.run.write_plan(begun.plan)
    if is_ended:
        begun.run.write_receipt(receipt_of_plan(plan))
    again = cluster_of(topic_ids={"copy": "again"})

    planned(sealed, cluster_of(), follow=follows, apply=apply)
    for cluster, says in ((again, "id is now again"), (cluster_of(id="elsewhere"), "is elsewhere")):
        with pytest.raises(TopicError, match=says):
            planned(sealed, cluster, follow=follows, apply=apply)


def test_refuse_other_target_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that this user may not describe isn't gone."""
    logs = {TopicPartition("copy", 0): Log()}
    cluster: Any = FakeCluster(logs, id="c", allowed={"copy": set()})
    monkeypatch.setattr(cluster, "topic_names", list)

    with pytest.raises(AuthorizationError, match="DESCRIBE on topic copy"):
        refuse_other_target(cluster, Binding("c", {"copy": "1"}), "r", said="Nothing was sent")

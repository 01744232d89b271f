"""What a republish refuses before its first or its next record, and what it waits for."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from demo.broker import KafkaCluster as LocalKafka
from demo.broker.ports import HOST, free_ports
from kafka_drain.clock import utc_now
from kafka_drain.errors import (
    ArchiveError,
    AuthorizationError,
    KafkaDrainError,
    ManifestInvalidError,
    ProgressError,
    SourceRecordError,
    TopicError,
)
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning import planner
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.runs import RepublishRun, run_key
from kafka_drain.republish.planning.shards import PREFIX
from kafka_drain.republish.sending import shard_sender as sending
from kafka_drain.republish.sending.shard_sender import SendJob, send_shard
from kafka_drain.storage.sealed_json import seal
from tests.faults.injection import NOON, wait_for
from tests.faults.republish_case import Case, Stopped, Tapped, tap
from tests.faults.republishing import alter_topic, make_target
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration

#: Records per transaction here; each shard takes several transactions.
SMALL = 400


@pytest.fixture(autouse=True)
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shard takes several transactions."""
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", SMALL)
    monkeypatch.setattr(sending, "STEP", 100)


@pytest.fixture
def admin(own_kafka: LocalKafka) -> AdminClient:
    """A client for changes to the broker that tests may change."""
    return AdminClient({"bootstrap.servers": own_kafka.bootstrap_servers, "log_level": 0})


def stop_after_first_shard(plan: RepublishPlan, groups: list[list[SendJob]], tick: object) -> None:
    """Send one shard of two, and stop the attempt."""
    send_shard(groups[0][0])
    raise Stopped


@pytest.fixture
def half_sent(case: Case) -> Case:
    """A run whose first attempt ended after one of its two shards."""
    with pytest.raises(Stopped):
        case.run(stop_after_first_shard)
    return case


def refused(case: Case, error: type[KafkaDrainError], match: str, **options: Any) -> None:
    """The attempt is refused, and so is the next; nothing more is in the target."""
    before = case.visible("read_uncommitted")
    for _ in range(2):
        with pytest.raises(error, match=match):
            case.run(**options)
    assert case.visible("read_uncommitted") == before
    assert RepublishRun(case.archive.root, run_key(case.name or case.target)).receipt() is None


# 49


@pytest.fixture
def second_broker(own_kafka: LocalKafka, half_sent: Case, tmp_path: Path) -> LocalKafka:
    """A broker that joins the tests' broker; its folder says which cluster it belongs to.

    A run took place before, so that Kafka's internal topics are on the broker that stays.
    """
    folder = tmp_path / "second"
    folder.mkdir()
    shutil.copy(own_kafka.folder / "cluster.json", folder)
    first = (own_kafka.folder / "node-1" / "server.properties").read_text().splitlines()
    voters = next(line for line in first if line.startswith("controller.quorum.voters="))
    port, *_ = free_ports(1, avoid=())
    return LocalKafka(
        folder,
        port=port,
        properties={
            **own_kafka.properties,
            "node.id": "2",
            "process.roles": "broker",
            "controller.quorum.voters": voters.partition("=")[2],
            "listeners": f"PLAINTEXT://{HOST}:{port}",
        },
    )


def knows(broker: LocalKafka, topic: str) -> bool:
    """Return whether a broker knows a topic; a new client asks no other."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    return topic in client.list_topics(timeout=20).topics


def send_one(bootstrap: str, topic: str) -> str:
    """Send a record without retries; return Kafka's error."""
    refusals: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "retries": 0, "log_level": 0})

    def delivered(error: KafkaError | None, _: object) -> None:
        refusals.append("none" if error is None else error.name())

    producer.produce(topic, b"x", partition=0, on_delivery=delivered)
    assert producer.flush(20) == 0
    return refusals[0]


def test_republish_replicas_lost(
    case: Case, second_broker: LocalKafka, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With too few in-sync replicas a run waits, and resumes when it may."""
    case.target = f"{case.target}-replicated"
    seen: list[Any] = []
    waiting: list[Future[None]] = []

    def in_sync() -> list[int]:
        topic = admin.list_topics(timeout=20).topics.get(case.target)
        partitions = topic.partitions.values() if topic else ()
        return sorted({replica for found in partitions for replica in found.isrs})

    def demand_less(tapped: Tapped) -> None:
        try:
            seen.extend([send_one(case.bootstrap, case.target), len(tapped) > 0])
        finally:
            alter_topic(case.bootstrap, case.target, "min.insync.replicas", "1")

    with second_broker, ThreadPoolExecutor(1) as pool:
        topic = NewTopic(
            case.target,
            num_partitions=2,
            replica_assignment=[[1, 2], [1, 2]],
            config={"retention.ms": "-1", "min.insync.replicas": "2"},
        )
        admin.create_topics([topic])[case.target].result(30)
        wait_for(lambda: in_sync() == [1, 2], "both replicas")
        # Each broker learns of a topic by itself, and the run may ask either.
        wait_for(lambda: knows(second_broker, case.target), "the second broker's word of the topic")
        with pytest.raises(Stopped):
            case.run(stop_after_first_shard)
        second_broker.stop_node(1)
        wait_for(lambda: in_sync() == [1], "a replica's loss")
        # A client that knew both brokers may keep looking for a controller on the one that left.
        case.cluster = KafkaCluster(case.cluster.config)

        def hook(tapped: Tapped, call: str, has_ended: bool) -> None:
            if call == "commit" and not has_ended and not waiting:
                waiting.append(pool.submit(demand_less, tapped))

        tap(monkeypatch, hook)
        result = case.run()
        waiting[0].result(30)

    assert seen == ["NOT_ENOUGH_REPLICAS", True]
    assert result["verification"]["is_exact"]
    assert case.audit().is_exact


# 50


@pytest.fixture
def allow_only(admin: AdminClient) -> Iterator[Callable[..., None]]:
    """Allow everyone only some operations on a resource, until the end of the test."""
    made: list[AclBinding] = []

    def allow(
        resource: ResourceType, name: str, *operations: AclOperation, user: str = "User:*"
    ) -> None:
        pattern = ResourcePatternType.PREFIXED
        for operation in operations:
            acl = AclBinding(resource, name, pattern, user, "*", operation, AclPermissionType.ALLOW)
            made.append(acl)
            admin.create_acls([acl])[acl].result(30)
            wait_for(lambda acl=acl: acl in described(), "the ACL")  # type: ignore[misc]

    def described() -> list[AclBinding]:
        anything = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # means any
            ResourcePatternType.ANY,
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found: list[AclBinding] = admin.describe_acls(anything).result(30)
        return found

    yield allow
    for acl in made:
        which = AclBindingFilter(
            acl.restype,
            acl.name,
            acl.resource_pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        admin.delete_acls([which])[which].result(30)
    wait_for(lambda: not described(), "the ACLs' end")


@pytest.mark.parametrize(
    ("resource", "named"),
    [
        (ResourceType.TRANSACTIONAL_ID, "WRITE and DESCRIBE on TransactionalId kafka-drain-rep"),
        (ResourceType.GROUP, r"READ on Group kafka-drain-republish- \(prefixed\)"),
    ],
    ids=["transactional-id", "group"],
)
def test_republish_acl_missing(
    case: Case, allow_only: Callable[..., None], resource: ResourceType, named: str
) -> None:
    """Without an ACL for its transactional ids or groups a run fails early, and names it."""
    allow_only(resource, PREFIX, AclOperation.ALL, user="User:somebody-else")

    with pytest.raises(AuthorizationError, match=named):
        case.run()

    assert case.ends() == [0, 0]
    assert not case.planned().run.is_opened


def test_republish_acl_of_topic_missing(case: Case, allow_only: Callable[..., None]) -> None:
    """Without write access to the target a run fails before it is planned, and names it."""
    allow_only(
        ResourceType.TOPIC,
        case.target,
        *(AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
    )
    ends = case.ends()

    with pytest.raises(AuthorizationError, match=f"may not WRITE on topic {case.target}"):
        case.run()

    assert case.ends() == ends == [0, 0]
    assert not (Path(str(case.archive.root)) / "republish").exists()


# 52


def test_republish_progress_deleted(half_sent: Case, admin: AdminClient) -> None:
    """A run whose progress was deleted is refused, as its position is unknown."""
    group = half_sent.planned().plan.shards[0].progress.group
    admin.delete_consumer_groups([group])[group].result(30)

    refused(
        half_sent,
        ProgressError,
        "Kafka holds no progress of run .*, which was opened before.* --abandon \\S+ --apply",
    )


def test_republish_progress_deleted_meanwhile(
    case: Case, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress that disappears between two transactions ends the run; it doesn't start over."""
    group = case.planned().plan.shards[0].progress.group
    inits = itertools.count(1)

    def hook(_: Tapped, call: str, has_ended: bool) -> None:
        if call == "init" and not has_ended and next(inits) == 2:
            admin.delete_consumer_groups([group])[group].result(30)

    tap(monkeypatch, hook)
    with pytest.raises(ProgressError, match="is missing, expected it at"):
        case.run()

    assert case.visible("read_uncommitted") == SMALL
    refused(case, ProgressError, "which was opened before")


# 53


def test_republish_file_changed_on_retry(half_sent: Case) -> None:
    """A data file changed between two attempts is refused because of its fingerprint."""
    root = Path(str(half_sent.archive.root))
    changed = []
    for path in {f.path for shard in half_sent.planned().plan.shards for f in shard.files}:
        content = bytearray((root / path).read_bytes())
        content[len(content) // 2] ^= 1
        (root / path).write_bytes(content)
        changed.append(path)

    refused(half_sent, ManifestInvalidError, "|".join(map(re.escape, changed)))


def plan_file(case: Case) -> Path:
    """Return the path of the plan."""
    return Path(str(case.planned().run.folder)) / "plan.json"


def test_republish_plan_damaged(half_sent: Case) -> None:
    """A plan with a changed byte is refused."""
    path = plan_file(half_sent)
    before = half_sent.visible("read_uncommitted")
    path.write_bytes(path.read_bytes().replace(b'"original"', b'"Original"'))

    with pytest.raises(ArchiveError, match=r"plan.json was changed"):
        half_sent.run()

    assert half_sent.visible("read_uncommitted") == before


def test_republish_plan_replaced(half_sent: Case) -> None:
    """Another plan under the same name is refused: by what was opened, and by the progress."""
    path = plan_file(half_sent)
    document = json.loads(path.read_bytes())
    del document["sha256"]
    path.write_bytes(seal(document | {"created_at": utc_now().isoformat()}))

    refused(half_sent, ArchiveError, "started with another plan than plan.json")
    path.with_name("opened.json").unlink()
    refused(half_sent, ProgressError, "of 2 writers of run .*, 0 of them for this plan")


# 54


def made_again(admin: AdminClient, bootstrap: str, topic: str) -> None:
    """Recreate a topic under the same name."""
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=20).topics, "the deletion")
    make_target(bootstrap, topic, 2)


def test_republish_target_made_again_between(half_sent: Case, admin: AdminClient) -> None:
    """A target recreated between two attempts is refused because of its id."""
    made_again(admin, half_sent.bootstrap, half_sent.target)

    refused(
        half_sent,
        TopicError,
        f"topic {half_sent.target} with id .*, which has been recreated since",
    )

    assert half_sent.ends() == [0, 0]


def test_republish_target_made_again_meanwhile(
    case: Case, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target recreated in mid-run is refused, because the records sent before are gone."""
    commits = itertools.count(1)

    def hook(_: Tapped, call: str, has_ended: bool) -> None:
        if call == "commit" and has_ended and next(commits) == 2:
            made_again(admin, case.bootstrap, case.target)

    tap(monkeypatch, hook)
    with pytest.raises((TopicError, ProgressError), match=r"another .* was made|recreated"):
        case.run()

    refused(case, TopicError, f"topic {case.target} with id .*, which has been recreated since")


def test_republish_header_name_with_nul(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header's name that the client would cut off is refused before the first transaction."""
    made = MadeArchive(tmp_path / "nul", {"nul": "id-nul"})
    of = TopicPartition("nul", 0)
    made.seal_window("0_1", {of: dense(0, SMALL, NOON)})
    with_nul = [{"key": "a\0b", "value": b"1"}]
    made.seal_window("1_2", {of: dense(SMALL, SMALL + 1, NOON)}, columns={"headers": with_nul})
    case = replace(case, archive=made.archive)

    refused(case, SourceRecordError, rf"offset {SMALL} of nul-0 has .* NUL .*nothing was sent")
    assert case.visible("read_uncommitted") == 0
    # A plan that was made without the check: found while sending.
    monkeypatch.setattr(planner, "refuse_nul", lambda *_, **__: None)
    with pytest.raises(SourceRecordError, match=rf"offset {SMALL} of nul-0 .*was aborted"):
        case.run()
    assert case.visible("read_committed") == SMALL

"""`python -m demo recovery`: a cluster is destroyed, and everything comes back from the archive.

Cluster A runs Kafka 4.0.0, cluster B 4.4.0. Only the archive's folder outlives A.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from rich.table import Table

from demo.broker import KafkaCluster
from demo.content import TopicContent, read_topic
from demo.flights import PARTITIONS, flight_records, produce
from demo.output import DemoFailed, console, say, step

__all__ = ["run"]

#: The topics, with the settings that they have on cluster A.
TOPICS: Mapping[str, Mapping[str, str]] = {
    "flights": {"retention.ms": "-1", "max.message.bytes": "2000000"},
    "carriers": {
        "retention.ms": "-1",
        "segment.ms": "3600000",
        "message.timestamp.type": "LogAppendTime",
    },
}
FLIGHTS, CARRIERS, NEW = 60_000, 16, 100
GROUP = "billing"
USER = "billing-app"
_RIGHTS = (
    (ResourceType.TOPIC, "flights", AclOperation.READ),
    (ResourceType.GROUP, GROUP, AclOperation.READ),
)
_BROKER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_NAME = "restore-1"


@dataclass(frozen=True)
class Seen:
    """What a cluster holds.

    Attributes:
        content: The records of each topic.
        config: What is set on each topic.
        next_values: The values that the group reads next, by partition.
        rights: Number of ACLs.
    """

    content: Mapping[str, TopicContent]
    config: Mapping[str, Mapping[str, str]]
    next_values: Mapping[int, bytes | None]
    rights: int


def run(folder: Path) -> None:
    """Run the demo from an empty folder.

    Raises:
        DemoFailed: If something on cluster B isn't as it was on cluster A.
    """
    home = folder / "recovery"
    shutil.rmtree(home, ignore_errors=True)
    archive = home / "archive"
    began = time.monotonic()
    with ExitStack() as stack:
        a = KafkaCluster(home / "a", properties=_BROKER, version="4.0.0")
        with step("1. Start cluster A, Kafka 4.0.0"):
            stack.enter_context(a)
            servers = a.bootstrap_servers
        with step(f"2. Fill its topics {' and '.join(TOPICS)}; group {GROUP!r} reads some flights"):
            _fill(servers)
            read_on_a = _read_some(servers)
            before = _look(servers)
        with step("3. Drain with Spark, and validate, which describes the cluster"):
            topics = [word for topic in TOPICS for word in ("--topic", topic)]
            _kafka_drain("drain", archive, servers, *topics, "--master", "local[2]")
            _kafka_drain("validate", archive, servers)
        with step("4. Destroy cluster A: kill its process, remove its data"):
            a.kill_node(1)
            shutil.rmtree(a.folder)
            lost = time.monotonic()
        b = KafkaCluster(home / "b", properties=_BROKER, version="4.4.0")
        with step("5. Start an empty cluster B, Kafka 4.4.0"):
            stack.enter_context(b)
            servers = b.bootstrap_servers
        with step("6. Restore topics, settings and ACLs from the archive"):
            _kafka_drain("plan-recovery", archive, servers, "--apply", "topics,configs,acls")
        with step("7. Republish the records, exactly once, and read them back"):
            how = ("--same-topics", "--run-name", _NAME, "--apply")
            _kafka_drain("republish", archive, servers, *how)
        with step(f"8. Translate group {GROUP!r} with the archive alone"):
            named = ("--run", _NAME, "--group", GROUP, "--from-archive", "--apply")
            group = _kafka_drain("translate-group", archive, servers, *named)
            took = time.monotonic() - lost
        with step("9. Set back what only the restore needed, and look at what is left"):
            accepted = ("--apply", "configs", "--accept-lower-safety")
            _kafka_drain("plan-recovery", archive, servers, *accepted)
            plan = _kafka_drain("plan-recovery", archive, servers)
            after = _look(servers)
        with step(f"10. {NEW} new flights arrive on B, and the group reads on"):
            _send_new(servers)
            read = _read_rest(servers)
    rest = before.content["flights"].total - read_on_a + NEW
    rows = [
        *_rows(before, after),
        ("records that the group reads on B", f"{rest:,}", f"{read:,}"),
        ("records that it reads again", "0", f"{group['read_again']:,}"),
    ]
    _show(rows, plan, took, time.monotonic() - began)


def _rows(before: Seen, after: Seen) -> list[tuple[str, str, str]]:
    rows = []
    for topic in TOPICS:
        was, now = before.content[topic], after.content[topic]
        rows += [
            (f"{topic}: partitions", str(len(was.records)), str(len(now.records))),
            (
                f"{topic}: settings",
                _settings(topic, before.config[topic]),
                _settings(topic, after.config[topic]),
            ),
            (f"{topic}: records", f"{was.total:,}", f"{now.total:,}"),
            (f"{topic}: content", was.hash[:16], now.hash[:16]),
        ]
    same = before.next_values == after.next_values
    where = f"{sum(value is not None for value in before.next_values.values())} records"
    return [
        *rows,
        ("group: next record of each partition", where, where if same else "others"),
        ("ACLs", str(before.rights), str(after.rights)),
    ]


def _settings(topic: str, config: Mapping[str, str]) -> str:
    """Return the settings that the demo chose; on B, those of A's brokers are the topic's own."""
    return " ".join(f"{name}={config.get(name)}" for name in sorted(TOPICS[topic]))


def _show(
    rows: list[tuple[str, str, str]], plan: Mapping[str, Any], took: float, whole: float
) -> None:
    table = Table("what", "on A", "on B", "", title="From a destroyed cluster to another one")
    for what, was, now in rows:
        table.add_row(what, was, now, "equal" if was == now else "DIFFERS")
    console.print()
    console.print(table)
    console.print("left to do by hand:")
    for row in plan["rows"]:
        if row["action"] not in ("leave", "done"):
            console.print(f"  {row['kind']} {row['name']}: {row['note']}", markup=False)
    for part, note in plan["not_compared"].items():
        console.print(f"  {part}: {note}", markup=False)
    console.print(
        "content: SHA-256 over key, value, headers and timestamp of each record, in order, "
        f"partition by partition\nfrom the loss of A to the group's offsets on B: {took:.0f} s; "
        f"{whole:.0f} s in total"
    )
    if any(was != now for _, was, now in rows):
        raise DemoFailed("cluster B differs from what cluster A was")


def _fill(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    partitions = {"flights": PARTITIONS, "carriers": 1}
    new = [NewTopic(name, partitions[name], 1, config=dict(c)) for name, c in TOPICS.items()]
    rights = [
        AclBinding(
            *(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*"),
            *(operation, AclPermissionType.ALLOW),
        )
        for kind, name, operation in _RIGHTS
    ]
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    user = UserScramCredentialUpsertion(USER, credential, b"known to A alone")
    asked: list[dict[Any, Any]] = [admin.create_topics(new), admin.create_acls(rights)]
    for future in [f for futures in asked for f in futures.values()]:
        future.result(20)
    for future in admin.alter_user_scram_credentials([user]).values():
        future.result(20)
    produce(servers, "flights", islice(flight_records(), FLIGHTS))
    # One record for each carrier, the first that flies.
    carriers = {record.key: record for record in islice(flight_records(), FLIGHTS)}
    produce(servers, "carriers", islice(iter(carriers.values()), CARRIERS))


def _consumer(servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )


def _read_some(servers: str) -> int:
    """Read a part of each partition with the group, and commit where it stands.

    Returns:
        The number of records.
    """
    consumer = _consumer(servers)
    read = 0
    try:
        for partition in range(PARTITIONS):
            at = TopicPartition("flights", partition, 0)
            _, end = consumer.get_watermark_offsets(at, timeout=20)
            consumer.assign([at])
            found = 0
            while found < end // 3:
                found += len(consumer.consume(end // 3 - found, timeout=1))
            here = [TopicPartition("flights", partition, found)]
            consumer.commit(offsets=here, asynchronous=False)
            read += found
    finally:
        consumer.close()
    return read


def _read_rest(servers: str) -> int:
    """Read with the group until nothing is left; return the number of records."""
    consumer = _consumer(servers)
    found = 0
    try:
        partitions = [TopicPartition("flights", p) for p in range(PARTITIONS)]
        consumer.assign(consumer.committed(partitions, timeout=20))
        while messages := consumer.consume(10_000, timeout=2):
            found += len(messages)
    finally:
        consumer.close()
    return found


def _next_values(servers: str) -> dict[int, bytes | None]:
    consumer = _consumer(servers)
    found: dict[int, bytes | None] = {}
    try:
        partitions = [TopicPartition("flights", p) for p in range(PARTITIONS)]
        for at in consumer.committed(partitions, timeout=20):
            consumer.assign([at])
            message = consumer.poll(5)
            found[at.partition] = message.value() if message is not None else None
    finally:
        consumer.close()
    return found


def _send_new(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(NEW):
        producer.produce("flights", b"new %d" % number, partition=number % PARTITIONS)
    if producer.flush(30):
        raise DemoFailed("the new flights weren't acknowledged within 30 seconds")


def _look(servers: str) -> Seen:
    from kafka_drain.kafka.client_config import KafkaConfig
    from kafka_drain.kafka.describing import ClusterDescriber

    state = ClusterDescriber(KafkaConfig({"bootstrap.servers": servers})).describe([*TOPICS])
    return Seen(
        {topic: read_topic(servers, topic) for topic in TOPICS},
        {topic.name: topic.config for topic in state.settings.topics or ()},
        _next_values(servers),
        len(state.settings.acls or ()),
    )


def _kafka_drain(command: str, archive: Path, servers: str, *arguments: str) -> dict[str, Any]:
    """Run a command in a process of its own, show what it says, and return its answer."""
    given = [command, str(archive), "--bootstrap-servers", servers, "--json", *arguments]
    ended = subprocess.run(
        [sys.executable, "-m", "kafka_drain.cli", *given],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    for line in ended.stderr.splitlines()[-6:]:
        say(line)
    if ended.returncode != 0:
        raise DemoFailed(f"kafka-drain {command} ended with {ended.returncode}")
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer

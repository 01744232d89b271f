"""Many groups over five runs in windows with late records, committed and read on a real broker."""

from __future__ import annotations

import argparse
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.cli.commands import translate_group
from kafka_drain.intervals import time_text
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.runs import RepublishRun
from tests.brute_force import Origin, read_by_group
from tests.kafka_drain.made_archive import MadeArchive

pytestmark = pytest.mark.integration

UNDONE = 5
NOON, HOUR = 1_767_009_600_000, 3_600_000
RECORDS = 120
LATER = "later"

Message = Origin | str


def rows(random: Random) -> dict[int, int]:
    """Rows of a partition over four hours: gaps in their offsets, and every tenth one is late."""
    found: dict[int, int] = {}
    offset = random.randint(0, 50)
    for number in range(RECORDS):
        # Nobody has a timestamp of another partition: equal records count together.
        at = number * 4 * HOUR // RECORDS + random.randint(0, 999)
        found[offset] = NOON + (random.randint(0, at) if random.random() < 0.1 else at)
        offset += 1 + (random.randint(1, 3) if random.random() < 0.1 else 0)
    return found


def read_all(servers: str, group: str, topic: str, partitions: int) -> dict[int, list[Any]]:
    """Read all partitions from where a group is committed, as its consumers would start."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            # Without an offset, everything so far is skipped.
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    consumer.assign([KafkaTopicPartition(topic, number) for number in range(partitions)])
    found: dict[int, list[Any]] = {number: [] for number in range(partitions)}
    waiting, deadline = set(found), time.monotonic() + 60
    try:
        while waiting:
            assert time.monotonic() < deadline, f"{group} wasn't done within a minute"
            message = consumer.poll(1)
            if message is None:
                continue
            error, partition = message.error(), message.partition() or 0
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                waiting.discard(partition)
                continue
            found[partition].append(message)
    finally:
        consumer.close()
    return found


def origin_of(message: Any) -> Message:
    """Return where a record came from, by its headers; of other records, the value."""
    headers = dict(message.headers() or [])
    if "kafka-drain.topic" not in headers:
        return str(message.value().decode())
    source = TopicPartition(
        headers["kafka-drain.topic"].decode(), int(headers["kafka-drain.partition"])
    )
    return Origin(source, int(headers["kafka-drain.offset"]))


@pytest.mark.parametrize(
    ("placement", "partitions", "count"), [("original", 5, 10), ("key", 3, 50)]
)
def test_groups_over_5_runs(
    placement: str,
    partitions: int,
    count: int,
    tmp_path: Path,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    republish: Callable[..., dict[str, Any]],
    cluster: KafkaCluster,
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No group skips a record, and each reads again what the command says; undo restores."""
    random, groups = Random(25), ConsumerGroups(cluster.config)
    source, target = make_topic(partitions=4), make_topic(partitions=partitions)
    made = MadeArchive(
        tmp_path / "archive", {source: cluster.topics([source])[source].id}, cluster.cluster_id()
    )
    # The last partition is empty.
    records = {TopicPartition(source, number): rows(random) for number in range(3)}
    made.seal_window("0_1", records)

    def run(name: str, *hours: int | None, **more: Any) -> None:
        bounds = zip(("from_time", "to_time"), hours, strict=False)
        times = {key: time_text(NOON + at * HOUR) for key, at in bounds if at is not None}
        republish(
            made.archive, target, run_name=name, placement=placement, provenance=True,
            **times, **more,
        )  # fmt: skip

    send(target, [(None, b"other", [], NOON)] * 3, 0)
    run("hour-2", 1, 2)
    run("hour-1", None, 1)
    with monkeypatch.context() as patch:
        # Killed when everything was sent, before it was verified.
        patch.setattr(
            RepublishRun, "write_offset_map", lambda *_: (_ for _ in ()).throw(SystemExit)
        )
        with pytest.raises(SystemExit):
            run("hour-3", 2, 3)
    run("hour-4", 3, None)
    run("hour-3", 2, 3)
    send(target, [(None, b"other", [], NOON)] * 3, 1)
    run("again", offsets=[f"{source}:1:40-80"], repeat=True)

    runs = ["hour-1", "hour-2", "hour-3", "hour-4", "again"]
    planned: list[tuple[str, dict[TopicPartition, int], dict[str, Any]]] = []
    for number in range(count):
        group = f"g-{uuid.uuid4().hex[:8]}"
        committed = {
            tp: random.randint(0, max(records.get(tp, {0: 0})) + 2)
            for tp in (TopicPartition(source, each) for each in range(4))
            if random.random() > 0.2
        } or {TopicPartition(source, 0): 7}
        groups.commit(group, {tp: Committed(at) for tp, at in committed.items()})
        options = ["--run", random.choice(runs), "--group", group]
        if number < UNDONE:
            check_undo(made, groups, target, partitions, options, bootstrap_servers, capsys)
        answer = translate(made, bootstrap_servers, capsys, *options, "--apply")
        assert answer["result"] == "applied"
        planned.append((group, committed, answer))
    for number in range(partitions):
        send(target, [(None, LATER.encode(), [], NOON)], number)

    everything = read_from_start(bootstrap_servers, target, partitions)
    log = {
        tp: {at: found for at, found in there.items() if isinstance(found, Origin)}
        for tp, there in everything.items()
    }
    assert sum(map(len, log.values())) > 3 * RECORDS
    for group, committed, answer in planned:
        left_alone = {TopicPartition(e["topic"], e["partition"]) for e in answer["left_alone"]}
        unread = records.keys() - committed.keys() - left_alone
        got = read_all(bootstrap_servers, group, target, partitions)
        after = {
            TopicPartition(target, number): messages[0].offset()
            for number, messages in got.items()
            if messages
        }
        read = read_by_group(log, after, committed, unread)
        assert (read.skipped, read.again) == (set(), answer["read_again"]), answer["summary"]
        assert not answer["is_bound"]
        # Later records of the partitions that it reads may be there.
        expected = range(partitions) if placement == "key" else {tp.partition for tp in committed}
        assert {TopicPartition(target, number) for number in expected} <= after.keys()
        assert [origin_of(messages[-1]) for messages in got.values() if messages] == (
            [LATER] * len(after)
        )


def read_from_start(
    servers: str, topic: str, partitions: int
) -> dict[TopicPartition, dict[int, Message]]:
    """Return where each record is."""
    group = f"g-{uuid.uuid4().hex[:8]}"

    starts = {TopicPartition(topic, number): Committed(0) for number in range(partitions)}
    ConsumerGroups(KafkaConfig({"bootstrap.servers": servers})).commit(group, starts)
    return {
        TopicPartition(topic, number): {each.offset(): origin_of(each) for each in messages}
        for number, messages in read_all(servers, group, topic, partitions).items()
    }


def translate(
    made: MadeArchive, servers: str, capsys: pytest.CaptureFixture[str], *options: str
) -> dict[str, Any]:
    """Run the command and return its answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    translate_group.add_arguments(parser)
    given = [str(made.archive.root), "--json", "--bootstrap-servers", servers, *options]
    capsys.readouterr()
    assert translate_group.run(parser.parse_args(given)) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def check_undo(
    made: MadeArchive,
    groups: ConsumerGroups,
    target: str,
    partitions: int,
    options: list[str],
    servers: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Apply and undo: what the group had committed before is there again."""
    group = options[-1]
    tps = [TopicPartition(target, number) for number in range(partitions)]
    before = {tp: Committed(number, f"before {number}") for number, tp in enumerate(tps)}
    groups.commit(group, before)
    translate(made, servers, capsys, *options, "--apply")
    assert groups.committed(group, tps) != before
    translate(made, servers, capsys, *options, "--undo", "--apply")
    assert groups.committed(group, tps) == before

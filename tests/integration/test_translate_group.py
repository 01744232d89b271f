"""`translate-group` with real consumer groups: plan, apply, read on, undo."""

from __future__ import annotations

import argparse
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.cli import console
from kafka_drain.cli.commands import translate_group
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    GroupError,
    GroupInUseError,
    KafkaUnavailableError,
    TopicError,
)
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import heard_by
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.verifying.offset_map import Block, OffsetMap, PartitionMap
from tests.kafka_drain.republish.planning.test_previous_runs import plan_of

pytestmark = pytest.mark.integration

RUN = "restore-1"
#: Source records 0 to 9 are 20 to 29 in the target.
SHIFT, RECORDS = 20, 10


class Restored:
    """A republished source topic of two partitions, and a command that translates groups."""

    def __init__(self, root: Path, source: str, target: str, cluster: KafkaCluster) -> None:
        self.archive = Archive.at(str(root))
        self.source, self.target, self.cluster = source, target, cluster
        self.cluster_id = cluster.cluster_id()
        self.group = f"g-{uuid.uuid4().hex[:8]}"
        self.groups = ConsumerGroups(cluster.config)
        self.run = RepublishRun(self.archive.root, RUN)
        self.source_id = cluster.topics([source])[source].id
        self.archive.create(
            pipeline="orders",
            cluster_id=self.cluster_id,
            topic_ids={source: self.source_id},
            source={"topics": [source]},
        )
        self.write_map(self.run)

    def write_map(self, run: RepublishRun, **changes: Any) -> None:
        facts: dict[str, Any] = {
            "run": run.key,
            "pipeline": "orders",
            "cluster_id": self.cluster_id,
            "partitions": tuple(
                PartitionMap(
                    TopicPartition(self.source, partition),
                    self.source_id,
                    TopicPartition(self.target, partition),
                    (Block(0, RECORDS, SHIFT, SHIFT + RECORDS, RECORDS),),
                )
                for partition in (0, 1)
            ),
        }
        if run.plan() is None:
            run.write_plan(plan_of(run.key))
        run.write_offset_map(OffsetMap(**(facts | changes)).to_bytes())

    def commit(self, *offsets: int | None, topic: str | None = None, metadata: str = "") -> None:
        """Commit offsets of partitions 0, 1, …; None for no offset."""
        self.groups.commit(
            self.group,
            {
                TopicPartition(topic or self.source, partition): Committed(offset, metadata)
                for partition, offset in enumerate(offsets)
                if offset is not None
            },
        )

    def committed(self, topic: str, group: str | None = None) -> dict[int, int]:
        tps = [TopicPartition(topic, partition) for partition in (0, 1)]
        found = self.groups.committed(group or self.group, tps)
        return {tp.partition: at.offset for tp, at in found.items()}

    def records(self, group: str | None = None) -> GroupRecords:
        return GroupRecords(self.run.folder, group or self.group)

    def translate(self, *arguments: str) -> int:
        """Run the command."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--json", action="store_true")
        translate_group.add_arguments(parser)
        servers = self.cluster.config.bootstrap_servers
        given = [] if "--group" in arguments else ["--group", self.group]
        asked = [str(self.archive.root), "--bootstrap-servers", servers, *given, *arguments]
        with heard_by(console.say):
            return translate_group.run(parser.parse_args(asked))


@pytest.fixture
def restored(
    tmp_path: Path,
    cluster: KafkaCluster,
    make_topic: Callable[..., str],
    send: Callable[..., None],
) -> Restored:
    """A topic with ten records per partition, and a target that holds them after twenty others."""
    source, target = make_topic(), make_topic()
    for partition in (0, 1):
        values = [f"{partition}-{n}".encode() for n in range(RECORDS)]
        now = int(time.time() * 1000)
        send(source, [(None, value, [], now) for value in values], partition)
        others = [b"other"] * SHIFT
        send(target, [(None, value, [], now) for value in [*others, *values]], partition)
    return Restored(tmp_path / "archive", source, target, cluster)


@contextmanager
def consumer(servers: str, group: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
    """A consumer that is in its group when the body starts, and has left when it ends."""
    joined: list[Any] = []
    member = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    member.subscribe([topic], on_assign=lambda _, partitions: joined.extend(partitions))
    try:
        deadline = time.monotonic() + 60
        while not joined:
            assert time.monotonic() < deadline, f"{group} got no partitions within a minute"
            member.poll(0.1)
        yield member
    finally:
        member.close()


def take(servers: str, group: str, topic: str, count: int) -> list[str]:
    """Read more with a group, commit, and return what was read."""
    member = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    member.subscribe([topic])
    found: list[str] = []
    deadline = time.monotonic() + 60
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{found} within a minute, not {count} records"
            message = member.poll(0.5)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
                member.commit(message=message, asynchronous=False)
    finally:
        member.close()
    return sorted(found)


def test_dry_run_changes_nothing(restored: Restored, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --apply the plan is shown, and neither the group nor the archive changes."""
    restored.commit(7, 10)
    assert restored.translate("--json") == 0

    answer = json.loads(capsys.readouterr().out)
    assert [
        (row["source_partition"], row["committed"], row["offset"], row["current"], row["note"])
        for row in answer["rows"]
    ] == [(0, 7, 27, None, "exact"), (1, 10, 30, None, "exact")]
    assert (answer["result"], answer["run"]) == ("planned", RUN)
    assert restored.committed(restored.target) == {}
    assert restored.records().all() == []


def test_group_goes_on_in_target(
    restored: Restored, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group reads its unread source records from the target, once, and nothing else."""
    first = take(bootstrap_servers, restored.group, restored.source, 13)
    assert restored.translate("--apply") == 0
    rest = take(bootstrap_servers, restored.group, restored.target, 7)

    assert sorted(first + rest) == sorted(f"{p}-{n}" for p in (0, 1) for n in range(RECORDS))
    assert restored.target in capsys.readouterr().out


def test_apply_twice(restored: Restored, capsys: pytest.CaptureFixture[str]) -> None:
    """A second apply changes nothing and says so."""
    restored.commit(7, 10)
    restored.translate("--apply")
    assert restored.translate("--apply", "--json") == 0

    said = capsys.readouterr()
    assert "already committed, applied at" in said.err
    assert restored.committed(restored.target) == {0: 27, 1: 30}
    assert len(restored.records().all()) == 1


def test_apply_after_reading_on(
    restored: Restored, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Repeating an apply later doesn't reset a group that has read on."""
    restored.commit(7, 7)
    restored.translate("--apply")
    take(bootstrap_servers, restored.group, restored.target, 6)
    assert restored.translate("--apply") == 0

    assert "has read on since" in capsys.readouterr().err
    assert restored.committed(restored.target) == {0: 30, 1: 30}


def test_apply_killed_before_commit(restored: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    """An apply killed after writing its record is completed by the next one from that record."""
    restored.commit(7, 10)
    restored.commit(5, 6, topic=restored.target)
    with monkeypatch.context() as patch:
        patch.setattr(ConsumerGroups, "commit", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            restored.translate("--apply")
    (begun,) = restored.records().all()
    assert not begun.is_applied
    assert restored.translate("--apply") == 0

    (ended,) = restored.records().all()
    assert ended.is_applied
    assert restored.committed(restored.target) == {0: 27, 1: 30}
    assert restored.translate("--undo", "--apply") == 0
    assert restored.committed(restored.target) == {0: 5, 1: 6}


def test_apply_killed_then_moved(restored: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is unknown whether an apply happened and the group has moved, it is refused."""
    restored.commit(7, 10)
    with monkeypatch.context() as patch:
        patch.setattr(ConsumerGroups, "commit", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            restored.translate("--apply")
    restored.commit(29, 29, topic=restored.target)

    with pytest.raises(GroupError, match=r"was started at .* is at 29; apply committed 27"):
        restored.translate("--apply")
    assert restored.committed(restored.target) == {0: 29, 1: 29}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_refused_while_group_reads(
    restored: Restored, bootstrap_servers: str, protocol: str
) -> None:
    """While the group has a member, apply and undo are refused, naming client and host."""
    group = f"{restored.group}-to"
    restored.commit(7, 10)
    with consumer(bootstrap_servers, group, restored.target, protocol):
        assert restored.translate("--to-group", group) == 0
        with pytest.raises(GroupInUseError, match=r"1 member: billing at 127\.0\.0\.1") as caught:
            restored.translate("--to-group", group, "--apply")
        # The broker also refuses, for the moment between check and commit.
        with pytest.raises(GroupInUseError, match="has members by now"):
            restored.groups.commit(group, {TopicPartition(restored.target, 0): Committed(1)})
        with pytest.raises(GroupInUseError, match="has members by now"):
            restored.groups.delete(group)
    assert "Nothing was changed" in str(caught.value)
    assert restored.records(group).all() == []
    assert restored.translate("--to-group", group, "--apply") == 0
    with (
        consumer(bootstrap_servers, group, restored.target, protocol),
        pytest.raises(GroupInUseError, match="--undo needs a group without active members"),
    ):
        restored.translate("--to-group", group, "--undo", "--apply")

    assert restored.committed(restored.target, group) == {0: 27, 1: 30}


def test_source_group_still_reads(
    restored: Restored, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group that still reads the source is named: what it reads now is read twice."""
    restored.commit(7, 10)
    with consumer(bootstrap_servers, restored.group, restored.source):
        assert restored.translate("--to-group", f"{restored.group}-to") == 0

    assert "1 member: billing at 127.0.0.1 in the source" in capsys.readouterr().err


def test_undo_puts_back(restored: Restored, capsys: pytest.CaptureFixture[str]) -> None:
    """Undo restores each offset with its metadata; a second undo changes nothing."""
    restored.commit(7, 10)
    restored.commit(3, 4, topic=restored.target, metadata="noted")
    restored.translate("--apply")
    assert restored.translate("--undo", "--apply") == 0
    assert restored.translate("--undo", "--apply") == 0

    tps = [TopicPartition(restored.target, partition) for partition in (0, 1)]
    assert restored.groups.committed(restored.group, tps) == {
        tps[0]: Committed(3, "noted"),
        tps[1]: Committed(4, "noted"),
    }
    assert restored.committed(restored.source) == {0: 7, 1: 10}
    assert "was already undone" in capsys.readouterr().err
    (record,) = restored.records().all()
    assert record.is_applied
    assert record.is_undone


def with_metadata(restored: Restored, topic: str) -> dict[int, Committed]:
    tps = [TopicPartition(topic, partition) for partition in (0, 1)]
    return {tp.partition: at for tp, at in restored.groups.committed(restored.group, tps).items()}


def test_metadata(restored: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed with an offset goes along, killed and undone as well."""
    restored.commit(7, 10, metadata="AgAAAXgVs6wA")
    restored.commit(27, 30, topic=restored.target, metadata="of others")
    with monkeypatch.context() as patch:
        patch.setattr(ConsumerGroups, "commit", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            restored.translate("--apply")
    assert restored.translate("--apply") == 0

    there = {0: Committed(27, "AgAAAXgVs6wA"), 1: Committed(30, "AgAAAXgVs6wA")}
    assert with_metadata(restored, restored.target) == there
    # The group's own consumers commit the same offsets: theirs counts.
    restored.commit(27, 30, topic=restored.target, metadata="later")
    assert restored.translate("--apply") == 0
    assert with_metadata(restored, restored.target) == {
        0: Committed(27, "later"),
        1: Committed(30, "later"),
    }
    assert restored.translate("--undo", "--apply") == 0
    assert with_metadata(restored, restored.target) == {
        0: Committed(27, "of others"),
        1: Committed(30, "of others"),
    }
    (record,) = restored.records().all()
    assert set(record.metadata.values()) == {"AgAAAXgVs6wA"}


def test_metadata_too_large(restored: Restored) -> None:
    """Metadata that the target's brokers don't take is an error that says what to do."""
    restored.commit(7, 10)
    tp = TopicPartition(restored.target, 0)

    with pytest.raises(GroupError, match=r"raise offset\.metadata\.max\.bytes .* --offsets-file"):
        restored.groups.commit(restored.group, {tp: Committed(1, "x" * 5_000)})


def test_undo_step_by_step(restored: Restored) -> None:
    """Two applies are undone one by one, newest first."""
    restored.commit(2, 2, topic=restored.target)
    restored.commit(7, 10)
    restored.translate("--apply")
    restored.commit(9, 10)
    restored.translate("--apply")
    assert restored.committed(restored.target) == {0: 29, 1: 30}

    restored.translate("--undo", "--apply")
    assert restored.committed(restored.target) == {0: 27, 1: 30}
    restored.translate("--undo", "--apply")
    assert restored.committed(restored.target) == {0: 2, 1: 2}


def test_undo_killed_before_mark(restored: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    """An undo killed after restoring the offsets is completed by the next one."""
    restored.commit(7, 10)
    restored.commit(3, 4, topic=restored.target)
    restored.translate("--apply")
    with monkeypatch.context() as patch:
        patch.setattr(GroupRecords, "mark_undone", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            restored.translate("--undo", "--apply")
    assert restored.records().newest_open() is not None
    assert restored.translate("--undo", "--apply") == 0

    assert restored.records().newest_open() is None
    assert restored.committed(restored.target) == {0: 3, 1: 4}


def test_undo_refused_after_reading_on(restored: Restored, bootstrap_servers: str) -> None:
    """A group that has read on since apply keeps its offsets."""
    restored.commit(7, 10)
    restored.translate("--apply")
    take(bootstrap_servers, restored.group, restored.target, 1)

    with pytest.raises(
        GroupError, match="-0 is at 28; apply committed 27, before that it was no offset"
    ):
        restored.translate("--undo", "--apply")
    assert restored.committed(restored.target) == {0: 28, 1: 30}


def test_undo_deletes_new_group(restored: Restored) -> None:
    """A group created by apply is deleted by undo."""
    group = f"{restored.group}/new"
    restored.commit(7, 10)
    restored.translate("--to-group", group, "--apply")
    assert restored.groups.describe(group).exists
    assert restored.translate("--to-group", group, "--undo", "--apply") == 0

    assert not restored.groups.describe(group).exists
    assert restored.translate("--to-group", group, "--undo", "--apply") == 0


def test_undo_keeps_new_group_with_others(
    restored: Restored, make_topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A group created by apply that has read another topic since isn't deleted."""
    other = make_topic()
    target_group, restored.group = restored.group, f"{restored.group}-from"
    restored.commit(7, 10)
    restored.translate("--to-group", target_group, "--apply")
    restored.group, from_group = target_group, restored.group
    restored.commit(1, 1, topic=other)

    arguments = ("--group", from_group, "--to-group", target_group, "--undo", "--apply")
    assert restored.translate(*arguments) == 1
    assert restored.committed(other) == {0: 1, 1: 1}
    assert f"--delete-offsets --topic {restored.target}:0,1" in capsys.readouterr().err
    # Until these are deleted, it isn't as before.
    assert restored.translate(*arguments) == 1


def test_undo_of_new_partition(restored: Restored, capsys: pytest.CaptureFixture[str]) -> None:
    """A partition that had no offset keeps apply's; the rest is restored, and reported."""
    restored.commit(7, 10)
    restored.commit(3, None, topic=restored.target)
    restored.translate("--apply")
    capsys.readouterr()
    assert restored.translate("--undo", "--apply", "--json") == 1

    said = capsys.readouterr()
    assert restored.committed(restored.target) == {0: 3, 1: 30}
    assert f"--group {restored.group} --delete-offsets --topic {restored.target}:1" in said.err
    assert json.loads(said.out)["left"] == [{"topic": restored.target, "partition": 1}]
    assert restored.records().newest_open() is None


def test_undo_nothing_applied(restored: Restored) -> None:
    """An undo without an apply is refused."""
    with pytest.raises(GroupError, match="nothing was applied to group"):
        restored.translate("--undo", "--apply")


def delete_before(servers: str, topic: str, offset: int) -> None:
    """Delete the records of partition 0 before an offset."""
    from confluent_kafka import TopicPartition as KafkaTopicPartition

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    for future in admin.delete_records([KafkaTopicPartition(topic, 0, offset)]).values():
        future.result(20)


def test_in_place_beside_originals(
    restored: Restored, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a topic was republished into itself, remaining originals aren't skipped."""
    restored.write_map(
        restored.run,
        partitions=(
            PartitionMap(
                TopicPartition(restored.target, 0),
                "",
                TopicPartition(restored.target, 0),
                (Block(0, 10, 20, 30, 10),),
            ),
        ),
    )
    restored.commit(4, topic=restored.target)
    restored.translate("--json")

    (row,) = json.loads(capsys.readouterr().out)["rows"]
    # Originals 10 to 19 are unread; of the copies, the first four were read as originals.
    assert (row["offset"], row["note"]) == (10, "4 records are read again")


def test_in_place(
    restored: Restored, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a topic was republished into itself, offsets aren't translated twice."""
    delete_before(bootstrap_servers, restored.target, 20)
    restored.write_map(
        restored.run,
        partitions=(
            PartitionMap(
                TopicPartition(restored.target, 0),
                "",
                TopicPartition(restored.target, 0),
                (Block(0, 10, 20, 30, 10),),
            ),
        ),
    )
    restored.commit(4, topic=restored.target)
    restored.translate("--apply")
    restored.translate("--apply", "--json")

    assert restored.committed(restored.target) == {0: 24}
    assert "offsets from before" in capsys.readouterr().err
    restored.translate("--undo", "--apply")
    assert restored.committed(restored.target) == {0: 4}
    restored.translate("--apply")
    assert restored.committed(restored.target) == {0: 24}


def test_offsets_file(restored: Restored, tmp_path: Path) -> None:
    """Offsets can come from a file if the source cluster is gone, which isn't queried then."""
    file = tmp_path / "offsets.csv"
    file.write_text(f'"{restored.source}",0,8\n"{restored.source}",1,9\n"elsewhere",0,3\n')
    document = restored.archive.snapshot().document
    (restored.archive.root / "archive.json").write_text(
        json.dumps(document.content() | {"cluster_id": "gone"})
    )
    with pytest.raises(ConfigError, match=r"expected the drained cluster gone"):
        restored.translate()
    assert restored.translate("--offsets-file", str(file), "--apply") == 0

    assert restored.committed(restored.target) == {0: 28, 1: 29}


def test_group_never_read(restored: Restored, make_topic: Callable[..., str]) -> None:
    """A group without offsets for the source is refused, naming those that it has."""
    with pytest.raises(
        ConfigError, match="has no committed offsets, expected some of those that run"
    ):
        restored.translate()
    other = make_topic()
    restored.commit(5, topic=other)
    with pytest.raises(ConfigError, match=f"has committed offsets of {other}-0, expected"):
        restored.translate()


def test_source_made_again(restored: Restored) -> None:
    """Offsets of a recreated source topic count other records, and are refused."""
    restored.commit(7, 10)
    restored.source_id = "another"
    restored.write_map(restored.run)

    with pytest.raises(TopicError, match="recreated after it was drained"):
        restored.translate()


def test_target_shorter(restored: Restored) -> None:
    """New offsets beyond the target's end are refused, as if the topic was recreated."""
    restored.commit(7, 10)
    restored.write_map(
        restored.run,
        partitions=(
            PartitionMap(
                TopicPartition(restored.source, 0),
                restored.source_id,
                TopicPartition(restored.target, 0),
                (Block(0, 10, 100, 110, 10),),
            ),
        ),
    )

    with pytest.raises(TopicError, match=r"-0: new offset 107 is beyond the end 30; .*recreated"):
        restored.translate("--apply")


def test_target_expired(restored: Restored, bootstrap_servers: str) -> None:
    """New offsets below the target's log start are refused, as retention has deleted them."""
    restored.commit(7, 10)
    delete_before(bootstrap_servers, restored.target, 29)

    with pytest.raises(TopicError, match=r"-0: new offset 27 is below the start 29; .*retention"):
        restored.translate("--apply")


def test_target_partition_missing(restored: Restored) -> None:
    """A target topic with fewer partitions than the run wrote to was recreated."""
    restored.commit(7, 10)
    restored.write_map(
        restored.run,
        partitions=(
            PartitionMap(
                TopicPartition(restored.source, 0),
                restored.source_id,
                TopicPartition(restored.target, 5),
                (Block(0, 10, 0, 10, 10),),
            ),
        ),
    )

    with pytest.raises(
        TopicError, match=r"2 partitions, expected .* partition 5; it was recreated"
    ):
        restored.translate()


def test_other_cluster(restored: Restored) -> None:
    """A cluster to which the run didn't republish is refused."""
    restored.write_map(restored.run, cluster_id="another")

    with pytest.raises(ConfigError, match=f"is cluster {restored.cluster_id}, expected .* another"):
        restored.translate()


def test_run_chosen(restored: Restored) -> None:
    """Without --run there must be exactly one run with a map; otherwise they are listed."""
    restored.commit(7, 10)
    with pytest.raises(ConfigError, match=rf"'other' has no offset map .* last: {RUN}; give one"):
        restored.translate("--run", "other")
    restored.write_map(RepublishRun(restored.archive.root, "restore-2"))
    with pytest.raises(ConfigError, match=r"no --run was given .* last: restore-1, restore-2;"):
        restored.translate()

    assert restored.translate("--run", "restore-2") == 0


def test_no_run(tmp_path: Path, restored: Restored) -> None:
    """Without any offset map, the message names the command for one; a non-archive is reported."""
    (restored.run.folder / "offset-map.json").unlink()
    with pytest.raises(ConfigError, match="newest last: none; verify a republish first"):
        restored.translate()
    restored.archive = Archive(UPath(tmp_path / "nothing"))
    with pytest.raises(ArchiveError, match="doesn't exist"):
        restored.translate()


def test_map_changed(restored: Restored) -> None:
    """A map with a changed byte isn't used."""
    path = restored.run.folder / "offset-map.json"
    path.write_text(path.read_text().replace("orders", "others"))

    with pytest.raises(ArchiveError, match=r"offset-map.json was changed"):
        restored.translate()


def test_no_broker() -> None:
    """If no broker responds, the error comes within the time limit."""
    groups = ConsumerGroups(KafkaConfig({"bootstrap.servers": "127.0.0.1:1"}), 1.0)
    refused = "no response from Kafka at 127.0.0.1:1 within 1 s: 127.0.0.1:1 refuses connections"

    with pytest.raises(KafkaUnavailableError, match=refused):
        groups.describe("g")
    with pytest.raises(KafkaUnavailableError, match=refused):
        groups.committed("g", [TopicPartition("t", 0)])


def test_commit_to_missing_topic(restored: Restored) -> None:
    """A commit for a topic that doesn't exist is refused as such."""
    with pytest.raises(TopicError, match=r"a topic that Kafka at .* doesn't have") as caught:
        restored.groups.commit(restored.group, {TopicPartition("no-such", 0): Committed(1)})
    assert isinstance(caught.value.__cause__, KafkaException)

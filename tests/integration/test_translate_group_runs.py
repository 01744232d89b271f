"""`translate-group` on real runs: several into one topic, by time and by key, finished or not."""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands import translate_group
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.intervals import time_text
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.runs import RepublishRun
from tests.integration.test_translate_group import take

pytestmark = pytest.mark.integration

ONE, TWO = 1_357_041_600_000, 1_357_045_200_000  # 12:00 and 13:00 UTC on 2013-01-01
RECORDS = 100
#: In a partition of 100 records, late ones and those at the end belong to the hour from 13:00.
LATE = [*range(20), *range(96, 100)]


class Drained:
    """A drained topic, and a group that has read some of it."""

    def __init__(self, archive: Archive, topic: str, cluster: KafkaCluster) -> None:
        self.archive, self.topic, self.cluster = archive, topic, cluster
        self.group = f"g-{uuid.uuid4().hex[:8]}"
        self.groups = ConsumerGroups(cluster.config)

    def commit(self, *offsets: int) -> None:
        tps = [TopicPartition(self.topic, partition) for partition in range(len(offsets))]
        self.groups.commit(self.group, dict(zip(tps, map(Committed, offsets), strict=True)))

    def translate(self, run: str) -> None:
        """Run the command, with --apply."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--json", action="store_true")
        translate_group.add_arguments(parser)
        where = [str(self.archive.root), "--json", "--apply", "--run", run, "--group", self.group]
        servers = ["--bootstrap-servers", self.cluster.config.bootstrap_servers]
        assert translate_group.run(parser.parse_args([*where, *servers])) == 0


@pytest.fixture
def drained(
    tmp_path: Path, make_topic: Any, send: Any, drain: Any, cluster: KafkaCluster
) -> Callable[[int], Drained]:
    """Create, fill and drain a topic with some partitions."""

    def make(partitions: int) -> Drained:
        topic = make_topic(partitions=partitions)
        for partition in range(partitions):
            send(
                topic,
                [
                    (
                        b"key %d" % (n % 11),
                        b"%d-%d" % (partition, n),
                        None,
                        (TWO if n in LATE else ONE) + n,
                    )
                    for n in range(RECORDS)
                ],
                partition,
            )
        pipeline = Pipeline(name="drained", topics=[topic], archive=str(tmp_path / "archive"))
        drain(pipeline)
        archive = Archive.at(pipeline.archive)
        assert validate_archive(archive, cluster).complete
        return Drained(archive, topic, cluster)

    return make


def values(offsets: Any, partition: int = 0) -> list[str]:
    return [f"{partition}-{n}" for n in offsets]


@pytest.mark.parametrize("named", ["12:00", "13:00"])
def test_group_across_hours_with_late_records(
    named: str,
    drained: Callable[[int], Drained],
    make_topic: Any,
    republish: Any,
    bootstrap_servers: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After an hourly backfill with late records, a group reads everything it hadn't read.

    The late records make holes in the range of one hour's run, which the other run fills.
    """
    source, target = drained(1), make_topic(partitions=1)
    hours = {"12:00": (ONE, TWO), "13:00": (TWO, TWO + 3_600_000)}
    for run, (start, end) in hours.items():
        times = {"from_time": time_text(start), "to_time": time_text(end)}
        republish(source.archive, target, run_name=run, **times)
    source.commit(40)
    capsys.readouterr()
    source.translate(named)

    (row,) = json.loads(capsys.readouterr().out)["rows"]
    # In the target: 20 to 95 and a marker, then 0 to 19 and 96 to 99.
    assert (row["offset"], row["note"]) == (20, "20 records are read again")
    assert row["read_again"] == 20
    read = take(bootstrap_servers, source.group, target, 80)
    assert read == sorted(values([*range(40, 96), *LATE]))


def test_group_by_key_that_read_all(
    drained: Callable[[int], Drained],
    make_topic: Any,
    send: Any,
    republish: Any,
    bootstrap_servers: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With placement by key, a group that had read everything resumes at the target's end."""
    source, target = drained(2), make_topic(partitions=3)
    republish(source.archive, target, run_name="by-key", placement="key")
    source.commit(RECORDS, RECORDS)
    capsys.readouterr()
    source.translate("by-key")

    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["note"] for row in rows} == {"exact"}
    reached = sorted({row["target_partition"] for row in rows})
    assert len(reached) > 1
    for partition in reached:
        send(target, [(None, b"after-%d" % partition, [], ONE)], partition)
    read = take(bootstrap_servers, source.group, target, len(reached))
    assert read == [f"after-{partition}" for partition in reached]


def test_group_beside_run_that_has_not_ended(
    drained: Callable[[int], Drained],
    make_topic: Any,
    republish: Any,
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a run sent before it was killed counts from where the run started."""
    source, target = drained(1), make_topic(partitions=1)
    first, second = ([f"{source.topic}:0:{r}"] for r in ("0-30", "30-100"))
    with monkeypatch.context() as patch:
        patch.setattr(
            RepublishRun, "write_offset_map", lambda *_: (_ for _ in ()).throw(SystemExit)
        )
        with pytest.raises(SystemExit):
            republish(source.archive, target, run_name="killed", offsets=first)
    republish(source.archive, target, run_name="second", offsets=second)
    source.commit(10)
    capsys.readouterr()
    source.translate("second")

    said = capsys.readouterr()
    (row,) = json.loads(said.out)["rows"]
    assert row["offset"] == 0
    assert "up to 10 records are read again" in row["note"]
    assert "no map says where killed" in said.err
    assert take(bootstrap_servers, source.group, target, RECORDS) == sorted(values(range(RECORDS)))

"""A cut-over between two real clusters: from the mirror to the hand-over, and back."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import CutOverDocument
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.cut_over.request import CutOverRequest, mirror_request
from kafka_drain.cut_over.run import CutOver
from kafka_drain.cut_over.steps import STEPS, CutOverStep
from kafka_drain.errors import CutOverError, KafkaUnavailableError, LagError, TopicError
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.signing import Signer
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_state import ASKED
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups, offsets_of
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.cluster_capture import describe_with
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.engines.select import Engines
from tests.faults.injection import wait_for
from tests.faults.republishing import read_topic
from tests.integration.command_line import Ended, kafka_drain
from tests.integration.test_translate_group import take

pytestmark = pytest.mark.integration

RECORDS, PARTITIONS, READ = 40, 2, 10


def no_spark(*_: object) -> None:
    """The worker sends; no application is started."""
    raise AssertionError("a cut-over starts no Spark application here")


@dataclass
class Move:
    """A drained topic whose group has read a part of it, and the cluster that both move to."""

    archive: Archive
    pipeline: Pipeline
    topic: str
    group: str
    source: KafkaCluster
    target: KafkaCluster
    drain: Callable[..., Any]
    key: Path | None = None
    #: What happens while the source is watched.
    meanwhile: Callable[[], object] = field(default=lambda: None)

    @property
    def tps(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]

    def cut_over(self) -> CutOver:
        mirror = mirror_request("move")
        return CutOver(
            self.archive,
            self.pipeline,
            self.source,
            self.target,
            CutOverRequest("move", mirror, (), max_lag=5, quiet_seconds=1),
            "tests",
            utc_now,
            None if self.key is None else Signer(SigningKey.read(self.key)),
            lambda seconds: (self.meanwhile(), None)[1],
        )

    def take(self, step: CutOverStep) -> CutOverDocument:
        root = str(self.archive.root)
        engines = Engines(root, self.target, self.pipeline, Path("/nowhere"), no_spark, 1)
        return self.cut_over().take(step, engines)

    def refused(self, step: CutOverStep, error: type[Exception] = CutOverError) -> str:
        """Take a step that is refused; return why."""
        with pytest.raises(error) as raised:
            self.take(step)
        newest = self.cut_over().history()[-1]
        assert (newest.step, newest.verdict) == (step.value, "refused")
        assert newest.problems
        return str(raised.value)

    def produce(self, *texts: str, at: KafkaCluster | None = None) -> None:
        """A producer sends to the source, or to another cluster."""
        servers = (at or self.source).config.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        for n, text in enumerate(texts):
            producer.produce(self.topic, text.encode(), partition=n % PARTITIONS)
        assert producer.flush(30) == 0

    def drained(self) -> None:
        """Drain and validate, as the DAG's tasks do."""
        self.drain(self.pipeline)
        describe = describe_with(self.source.config, ASKED)
        assert validate_archive(self.archive, self.source, describe=describe).complete

    def commit(self, offset: int) -> None:
        """The group has read up to an offset of each partition, at the source."""
        at = {tp: Committed(offset) for tp in self.tps}
        ConsumerGroups(self.source.config).commit(self.group, at)

    def committed(self, cluster: KafkaCluster) -> list[int]:
        """Return what the group has committed, by partition."""
        found = offsets_of(ConsumerGroups(cluster.config).committed(self.group, self.tps))
        return [found[tp] for tp in sorted(found)]

    def through(self, last: CutOverStep) -> None:
        """Take all steps up to one; each passes."""
        for step in STEPS[: STEPS.index(last) + 1]:
            if step is CutOverStep.LAST_DRAIN:
                self.drained()
            assert self.take(step).verdict == "passed"

    def command(self, *arguments: str) -> Ended:
        """Run the command with this cut-over's arguments."""
        return kafka_drain("cut-over", *self.arguments(), *arguments)

    def arguments(self) -> list[str]:
        return [
            str(self.archive.root),
            *("--bootstrap-servers", self.source.config.bootstrap_servers),
            *("--to-bootstrap", self.target.config.bootstrap_servers),
            *("--run-name", "move", "--quiet-seconds", "0.1"),
            *(("--evidence-key", str(self.key)) if self.key else ()),
        ]

    def sign(self, folder: Path) -> None:
        """From now on, with a new key, each step is signed."""
        self.key = folder / "key"
        SigningKey.create(self.key)

    def verified(self) -> list[tuple[str, Any]]:
        """Verify all evidence offline, and with one byte changed in vain; return what it says."""
        said = []
        for path in sorted(Path(str(self.archive.root), "evidence").glob("*/*.json")):
            verify = ("verify-evidence", path, "--public-key", f"{self.key}.pub", "--json")
            done = kafka_drain(*verify)
            assert done.code == 0, done.err
            signed = json.loads(done.out)
            for file, digest in signed["files"].items():
                content = Path(str(self.archive.root), file).read_bytes()
                assert hashlib.sha256(content).hexdigest() == digest
            said.append((signed["kind"], signed["document"]))
            content = path.read_bytes()
            path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
            refused = kafka_drain(*verify)
            assert (refused.code, "was changed" in refused.err) == (1, True)
            path.write_bytes(content)
        return said


@pytest.fixture
def move(
    tmp_path: Path, make_topic: Any, drain: Any, cluster: KafkaCluster, other_cluster: KafkaCluster
) -> Move:
    """Fill and drain a topic; its group has read ten records of each partition."""
    topic, group = make_topic(partitions=PARTITIONS), f"g-{uuid.uuid4().hex[:8]}"
    pipeline = Pipeline(name="moved", topics=[topic], archive=str(tmp_path / "archive"))
    archive = Archive.at(pipeline.archive)
    made = Move(archive, pipeline, topic, group, cluster, other_cluster, drain)
    made.produce(*values(0, RECORDS))
    made.commit(READ)
    made.drained()
    return made


def values(first: int, end: int) -> list[str]:
    """Return the values of some records of each partition, as they are produced in turn."""
    return [f"{partition}-{n}" for n in range(first, end) for partition in range(PARTITIONS)]


def contents(cluster: KafkaCluster, topic: str) -> dict[int, list[Any]]:
    """Return what consumers read: key, value, headers, timestamp, by partition, in order."""
    return read_topic(cluster.config.bootstrap_servers, topic)


def test_cut_over_whole(move: Move, tmp_path: Path) -> None:
    """What was in A is in B, and the group goes on at the right record; each step is signed.

    On the way: a mirror that lags, a producer that doesn't stop, one that comes back after it was
    off, a consumer that is still active, and one that reads on after it was translated.
    """
    move.sign(tmp_path)
    move.produce(*values(RECORDS, RECORDS + 5))
    assert "lacks 10 offsets, expected at most 5" in move.refused(CutOverStep.MIRROR, LagError)
    move.drained()
    assert move.take(CutOverStep.MIRROR).lag == 0
    at = RECORDS + 5

    move.meanwhile = lambda: move.produce(*values(at, at + 1))
    assert f"{move.topic}-0: 1" in move.refused(CutOverStep.PRODUCERS_OFF)
    move.meanwhile = lambda: None
    assert sum(row.offset for row in move.take(CutOverStep.PRODUCERS_OFF).ends) == 2 * (at + 1)
    # A producer is on again: it is seen before anything else is done.
    move.produce(*values(at + 1, at + 2))
    assert "turn them off" in move.refused(CutOverStep.LAST_DRAIN)
    assert "step last_drain has to pass first" in move.refused(CutOverStep.LAST_MIRROR)
    move.take(CutOverStep.PRODUCERS_OFF)
    assert f"{move.topic}-1: 2" in move.refused(CutOverStep.LAST_DRAIN)
    move.drained()
    move.take(CutOverStep.LAST_DRAIN)
    assert move.take(CutOverStep.LAST_MIRROR).records == 2 * (at + 2)

    reader = Consumer(
        {"bootstrap.servers": move.source.config.bootstrap_servers, "group.id": move.group}
    )
    reader.subscribe([move.topic])
    wait_for(lambda: reader.poll(0.2) is not None, "the consumer's first record")
    assert f"group {move.group} is STABLE with 1 member" in move.refused(CutOverStep.GROUPS)
    assert move.committed(move.target) == []
    reader.close()
    move.commit(20)
    [row] = move.take(CutOverStep.GROUPS).groups or []
    assert (row.group, row.read_again) == (move.group, 0)
    move.commit(21)
    assert f"at 21 of {move.topic}-0 at the source" in move.refused(CutOverStep.VERIFY)
    [row] = move.take(CutOverStep.GROUPS).groups or []
    assert row.read_again == 0
    move.take(CutOverStep.VERIFY)
    # Until the end, a producer that comes back is seen.
    move.produce(*values(at + 2, at + 3))
    assert "turn them off" in move.refused(CutOverStep.HAND_OVER)
    move.take(CutOverStep.PRODUCERS_OFF)
    move.drained()
    for step in STEPS[2:]:
        assert move.take(step).verdict == "passed"

    # Taken again it does nothing; no other step can be taken, and there is no way back.
    count = len(move.cut_over().history())
    assert move.take(CutOverStep.HAND_OVER) == move.cut_over().history()[-1]
    assert len(move.cut_over().history()) == count
    assert "handed over" in move.refused(CutOverStep.MIRROR)
    with pytest.raises(CutOverError, match="no way back"):
        move.cut_over().go_back(apply=True)
    was, now = contents(move.source, move.topic), contents(move.target, move.topic)
    assert now == was
    assert sum(map(len, now.values())) == 2 * (at + 3)
    assert move.committed(move.source) == [21, 21]
    move.produce("new", at=move.target)
    expected = sorted([*values(21, at + 3), "new"])
    read = take(move.target.config.bootstrap_servers, move.group, move.topic, len(expected))
    assert read == expected
    signed = move.verified()
    seen = [document for kind, document in signed if kind == "cut-over"]
    assert seen == [document.content() for document in move.cut_over().history()]
    mirrored = [document["records"] for kind, document in signed if kind == "republish"]
    assert sum(mirrored) == 2 * (at + 3)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_cut_over_back(step: CutOverStep, move: Move) -> None:
    """From each step there is a way back, and then a way on: the group is where it was."""
    move.through(step)
    before = contents(move.source, move.topic)
    planned = move.command("--back")
    assert planned.code == 0, planned.err
    is_translated = step in (CutOverStep.GROUPS, CutOverStep.VERIFY)
    assert move.committed(move.target) == ([READ, READ] if is_translated else [])
    back = move.cut_over().go_back(apply=True)

    assert back is not None
    assert f"topic {move.topic} keeps {2 * RECORDS} records at the target" in back.notes
    # At the source, nothing has changed; at the target, no group is left.
    assert contents(move.source, move.topic) == before
    assert move.committed(move.source) == [READ, READ]
    assert move.committed(move.target) == []
    assert not ConsumerGroups(move.target.config).describe(move.group).exists
    if step is not CutOverStep.MIRROR:
        assert "step mirror has to pass first" in move.refused(CutOverStep.PRODUCERS_OFF)
    # The producers are on again, and the group reads on at the source.
    move.produce(*values(RECORDS, RECORDS + 3))
    move.commit(READ + 5)
    move.drained()
    move.through(CutOverStep.HAND_OVER)
    assert contents(move.target, move.topic) == contents(move.source, move.topic)
    assert move.committed(move.target) != []
    read = take(move.target.config.bootstrap_servers, move.group, move.topic, 1)
    assert read[0].endswith(f"-{READ + 5}")


KILLED = """
import os, signal, sys
from kafka_drain.{module} import {owner} as owner
before = owner.{name}
def killed(*arguments, **more):
    if not {early}:
        before(*arguments, **more)
    os.kill(os.getpid(), signal.SIGKILL)
owner.{name} = killed
from kafka_drain.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("step", "module", "owner", "name", "early"),
    [
        (CutOverStep.MIRROR, "republish.run", "Republish", "_send", False),
        (CutOverStep.MIRROR, "republish.run", "Republish", "_seal", False),
        (CutOverStep.PRODUCERS_OFF, "cut_over", "run", "moved", True),
        (CutOverStep.LAST_DRAIN, "cut_over", "run", "write_step", True),
        (CutOverStep.LAST_MIRROR, "republish.run", "Republish", "_seal", True),
        (CutOverStep.GROUPS, "kafka.consumer_groups", "ConsumerGroups", "commit", True),
        (CutOverStep.GROUPS, "kafka.consumer_groups", "ConsumerGroups", "commit", False),
        (CutOverStep.VERIFY, "cut_over", "run", "misplaced_groups", False),
        (CutOverStep.HAND_OVER, "cut_over", "run", "write_step", True),
        (CutOverStep.HAND_OVER, "cut_over", "run", "write_step", False),
    ],
)
def test_cut_over_killed(
    step: CutOverStep, module: str, owner: str, name: str, early: bool, move: Move, tmp_path: Path
) -> None:
    """A step that is killed is taken again, signed, and nothing is sent or skipped twice."""
    at = STEPS.index(step)
    if at:
        move.through(STEPS[at - 1])
    if step is CutOverStep.LAST_MIRROR:
        # Something is left to send.
        move.produce(*values(RECORDS, RECORDS + 2))
        move.through(CutOverStep.MIRROR)
        move.take(CutOverStep.PRODUCERS_OFF)
        move.produce(*values(RECORDS + 2, RECORDS + 3))
        move.take(CutOverStep.PRODUCERS_OFF)
        move.drained()
        move.take(CutOverStep.LAST_DRAIN)
    if step is CutOverStep.LAST_DRAIN:
        move.drained()
    move.sign(tmp_path)
    script = KILLED.format(module=module, owner=owner, name=name, early=early)
    arguments = ["cut-over", *move.arguments(), "--step", step.value.replace("_", "-"), "--apply"]
    killed = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    again = move.command("--step", step.value.replace("_", "-"), "--apply")
    assert again.code == 0, again.err
    newest = move.cut_over().history()[-1].content()
    assert newest["step"] == step.value
    assert ("cut-over", newest) in move.verified()
    for later in STEPS[at + 1 :]:
        if later is CutOverStep.LAST_DRAIN:
            move.drained()
        assert move.take(later).verdict == "passed"
    assert contents(move.target, move.topic) == contents(move.source, move.topic)
    assert move.committed(move.target) == [READ, READ]


def test_cut_over_target_changed(move: Move) -> None:
    """Records that others send to the target, or delete there, are found before the hand-over."""
    move.through(CutOverStep.GROUPS)
    move.produce("foreign", at=move.target)
    said = move.refused(CutOverStep.VERIFY)
    assert f"{move.topic}-0 has 1 records after the mirror's last one" in said
    assert "go back" in said
    assert "begins at" not in said
    # Its futures end with the client.
    admin = AdminClient({"bootstrap.servers": move.target.config.bootstrap_servers})
    deleted = KafkaTopicPartition(move.topic, 1, 3)
    admin.delete_records([deleted])[deleted].result(30)
    said = move.refused(CutOverStep.VERIFY)
    assert f"{move.topic}-1 begins at 3, the mirror's first record is 0" in said


def test_cut_over_target_recreated(move: Move) -> None:
    """A target topic that was recreated is refused; nothing is noted."""
    move.through(CutOverStep.GROUPS)
    count = len(move.cut_over().history())
    settings = move.target.topic_settings(move.topic)
    move.target.delete_topic(move.topic)
    move.target.create_topic(move.topic, settings)
    with pytest.raises(TopicError, match="recreated"):
        move.take(CutOverStep.VERIFY)
    assert len(move.cut_over().history()) == count


@pytest.mark.parametrize("down", ["source", "target"])
def test_cut_over_broker_down(down: str, move: Move) -> None:
    """While a cluster is down no step passes, nothing is noted, and the step can be taken later."""
    move.through(CutOverStep.PRODUCERS_OFF)
    count = len(move.cut_over().history())
    gone = KafkaCluster(
        KafkaConfig({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1_000})
    )
    there = getattr(move, down)
    setattr(move, down, gone)
    for step in STEPS:
        with pytest.raises(KafkaUnavailableError):
            move.take(step)
    setattr(move, down, there)
    assert len(move.cut_over().history()) == count
    move.drained()
    assert move.take(CutOverStep.LAST_DRAIN).verdict == "passed"


def test_cut_over_checklist(move: Move) -> None:
    """The command shows the checklist, takes a step only with --apply, and names a bad one."""
    shown = move.command("--json")
    assert shown.code == 0, shown.err
    states = {name: step["state"] for name, step in json.loads(shown.out)["steps"].items()}
    assert (states.pop("mirror"), set(states.values())) == ("next", {"waiting"})
    assert move.command("--step", "mirror").code == 0
    assert move.cut_over().history() == []
    assert move.command("--step", "mirror", "--apply").code == 0
    assert [d.step for d in move.cut_over().history()] == ["mirror"]
    refused = move.command("--step", "verify", "--apply")
    assert refused.code == 1
    assert "step producers_off has to pass first" in refused.err
    assert move.command("--step", "verified").code == 2
    same = replace(move, target=move.source)
    assert "two clusters" in same.command("--step", "mirror", "--apply").err

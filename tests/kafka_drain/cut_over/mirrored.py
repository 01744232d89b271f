"""A topic with a mirror in another cluster, and a group in both, without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafka_drain.archive.documents import CutOverDocument
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.cut_over.looking import Mirror, look_at_mirror
from kafka_drain.cut_over.request import CutOverRequest, mirror_request
from kafka_drain.cut_over.run import CutOver
from kafka_drain.cut_over.steps import CutOverStep
from kafka_drain.errors import GroupInUseError
from kafka_drain.evidence.signing import Signer
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.consumer_groups import Committed, Group, Member
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.group_records import GroupRecord, GroupRecords
from kafka_drain.republish.planning.follow import follower_key, next_run, through_now
from kafka_drain.republish.planning.previous_runs import sent
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.verifying.offset_map import Block, OffsetMap, PartitionMap
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.republish.planning.test_previous_runs import plan_of
from tests.kafka_drain.republish.receipts import receipt_of

T0 = TopicPartition("t", 0)
C0 = TopicPartition("copy", 0)
FOLLOWER = follower_key("move")

#: What a run's comparison found: nothing.
EXACT: dict[str, Any] = {
    "is_exact": True,
    "lost": 0,
    "twice": 0,
    "foreign": 0,
    "out_of_order": 0,
    "compacted": 0,
    "partitions": [],
}

Offsets = dict[TopicPartition, Committed]


class FakeGroups:
    """The groups of a cluster: what they have committed, and who is in them."""

    def __init__(self) -> None:
        self.offsets: dict[str, Offsets] = {}
        self.members: dict[str, tuple[Member, ...]] = {}

    def describe(self, group: str) -> Group:
        members = self.members.get(group, ())
        state = "STABLE" if members else "EMPTY" if group in self.offsets else "DEAD"
        return Group(group, state, members)

    def idle(self, group: str, what: str) -> Group:
        found = self.describe(group)
        if not found.is_idle:
            raise GroupInUseError(f"group {group} {found.who()}; {what} needs it without members")
        return found

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> Offsets:
        held = self.offsets.get(group, {})
        return {tp: held[tp] for tp in partitions if tp in held}

    def all_committed(self, group: str) -> Offsets:
        return dict(self.offsets.get(group, {}))

    def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        self.idle(group, "commit")
        if offsets:
            self.offsets[group] = self.offsets.get(group, {}) | dict(offsets)

    def delete(self, group: str) -> None:
        self.idle(group, "delete")
        self.offsets.pop(group, None)


@dataclass
class Move:
    """An archive of ten records of topic t, and the cluster that its mirror has them in."""

    made: MadeArchive
    source: FakeCluster
    target: FakeCluster
    groups: dict[str, FakeGroups] = field(default_factory=dict)
    #: What happens while the source is watched.
    meanwhile: Any = lambda: None
    now: datetime = NOW
    sent: int = 0
    signer: Signer | None = None
    #: For how long the source was watched.
    paused: list[float] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path) -> Move:
        made = MadeArchive(folder / "archive", {"t": "id-1"})
        made.seal({T0: dense(0, 10)})
        source = FakeCluster({T0: Log(end=10)}, topic_ids={"t": "id-1"})
        target = FakeCluster(
            {C0: Log(end=0), TopicPartition("copy", 1): Log()},
            id="target",
            topic_ids={"copy": "copy-id"},
            contents=lambda tp, span: [
                {"topic": tp.topic, "partition": tp.partition, "offset": at}
                for at in range(span.start, min(span.end, target.logs[tp].end))
            ],
        )
        source.config, target.config = (
            KafkaConfig({"bootstrap.servers": f"{name}:9092"}) for name in ("source", "target")
        )
        return cls(made, source, target)

    def groups_of(self, config: KafkaConfig) -> FakeGroups:
        """Take the place of `ConsumerGroups`."""
        return self.groups.setdefault(config.bootstrap_servers, FakeGroups())

    def at(self, cluster: FakeCluster) -> FakeGroups:
        return self.groups_of(cluster.config)

    def end_at(self, cluster: FakeCluster, tp: TopicPartition, **log: Any) -> None:
        """Let a partition begin or end elsewhere."""
        cluster.logs[tp] = replace(cluster.logs[tp], **log)

    def mirror(
        self, behind: int = 0, *, is_compared: bool = True, **verification: Any
    ) -> RepublishRun:
        """Send what is sealed since the last run, as one run of the mirror that has ended.

        Args:
            behind: Number of offsets in the target that aren't the mirror's, before the run.
            is_compared: Whether the run has read its records back.
        """
        run, since = next_run(self.made.archive, FOLLOWER)
        through = through_now(self.made.archive.snapshot(), since)
        sealed = [
            content for file in self.made.files() if file.sealed for content in file.sealed.contents
        ]
        first, end = self.sent, max(content.last for content in sealed) + 1
        plan = plan_of(run.key, first, end, source=T0, topic_id="id-1", through=through)
        [target] = plan.targets
        plan = replace(
            plan, cluster_id="target", targets=(replace(target, start=(first + behind, 0)),)
        )
        run.write_plan(plan)
        run.mark_opened(plan)
        block = Block(first, end, first + behind, end + behind, end - first)
        maps = (PartitionMap(T0, "id-1", C0, (block,)),)
        run.write_offset_map(OffsetMap(run.key, "made", "target", maps).to_bytes())
        found = {**EXACT, "records": end - first, **verification} if is_compared else None
        run.write_receipt(
            receipt_of(
                key=run.key,
                cluster_id="target",
                records=end - first,
                sent=sent(plan),
                through=through,
                verification=found,
            )
        )
        self.sent = end
        self.end_at(self.target, C0, end=end + behind)
        return run

    def mirrored(self) -> Mirror:
        return look_at_mirror(self.made.archive, FOLLOWER)

    def translate(
        self, run: RepublishRun, at: int = 4, group: str = "g", *, is_applied: bool = True
    ) -> GroupRecord:
        """Let a group have an offset at the source, and in the target the same."""
        records, plan = GroupRecords(run.folder, group), self.translation(run, at, group)
        record = records.write(plan, {}, group_existed=False)
        self.at(self.source).offsets[group] = {T0: Committed(at)}
        if is_applied:
            self.at(self.target).offsets[group] = {C0: Committed(at)}
            records.mark_applied(record)
        return record

    @staticmethod
    def translation(run: RepublishRun, at: int = 4, group: str = "g") -> Any:
        """Return what a translation's plan says of a group."""
        return SimpleNamespace(
            run=run.key,
            cluster_id="target",
            group=group,
            to_group=group,
            committed={T0: at},
            after={C0: at},
            metadata={},
            read_again=0,
            summary=lambda: "planned",
            notes=("a note",),
        )

    def cut_over(self, **request: Any) -> CutOver:
        asked: dict[str, Any] = {"groups": ("g",), "max_lag": 2, "quiet_seconds": 5}
        source: Any = self.source
        target: Any = self.target
        return CutOver(
            self.made.archive,
            Pipeline(name="made", topics=["t"], archive=str(self.made.root)),
            source,
            target,
            CutOverRequest("move", mirror_request("move"), **asked | request),
            "tests",
            lambda: self.now,
            signer=self.signer,
            pause=self.pause,
        )

    def pause(self, seconds: float) -> None:
        """Let happen what happens meanwhile."""
        self.paused.append(seconds)
        self.meanwhile()

    def take(self, step: CutOverStep, **request: Any) -> CutOverDocument:
        """Take a step, later than the one before."""
        self.now = self.now.replace(microsecond=self.now.microsecond + 1)
        return self.cut_over(**request).take(step, nobody)

    def through(self, last: CutOverStep) -> None:
        """Take all steps up to one; each passes."""
        for step in CutOverStep:
            assert self.take(step).verdict == "passed"
            if step is last:
                return


def nobody(*_: object) -> None:
    """Takes the place of the engine, which the mirror's runs don't ask."""


nobody.verify = lambda *_: {}  # type: ignore[attr-defined]

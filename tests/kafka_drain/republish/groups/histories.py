"""Random republish runs into one target, with a log of what really lies where in it.

The runs' folders hold what real runs leave: plans, and maps that `match_partition` has made by
reading the target back. Their records are sent by windows of time, so late ones leave holes, or by
offsets; with partitions kept or chosen; interleaved with other runs and with other producers;
killed in mid-run, and resumed or not; and a compacted target loses what has a later record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.cluster_documents import Moment
from kafka_drain.data_files.content_hash import content_hash
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.groups.archived import ArchivedOffsets
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.groups.planning import plan_group, read_map
from kafka_drain.republish.groups.translation import TranslationPlan
from kafka_drain.republish.planning.placement import fixed_partition, partition_of_key
from kafka_drain.republish.planning.plan import RepublishPlan, Target
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ProgressSlot, Shard, ShardFile
from kafka_drain.republish.verifying.match_types import Actual
from kafka_drain.republish.verifying.match_types import Record as Hashed
from kafka_drain.republish.verifying.matching import match_partition
from kafka_drain.republish.verifying.verify import summarize, target_partitions
from tests.brute_force import Origin
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.republish.receipts import receipt_of

HOME, AWAY = "cluster", "other-cluster"


@dataclass(frozen=True)
class Entry:
    """A record: what it says, and where it came from; None for another producer's."""

    key: bytes
    value: bytes
    timestamp: int
    origin: Origin | None = None

    def hashed(self, offset: int) -> Hashed:
        content = content_hash(self.key, self.value, None)
        return content, self.timestamp, offset, content_hash(self.key, None, None)


@dataclass
class Run:
    """A run that is under way: what it has yet to send, by shard."""

    plan: RepublishPlan
    folder: RepublishRun
    queues: list[list[tuple[TopicPartition, Entry]]]
    is_killed: bool


@dataclass
class History:
    """Sources, target and runs.

    Attributes:
        sources: Records by partition and offset, as far as the archive has them.
        ends: End of each source partition.
        log: What the target holds, by partition and offset.
        runs: The runs that have sent.
    """

    random: Random
    root: UPath
    sources: dict[TopicPartition, dict[int, Entry]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    log: dict[TopicPartition, dict[int, Entry]] = field(default_factory=dict)
    target_ends: dict[TopicPartition, int] = field(default_factory=dict)
    runs: list[RepublishRun] = field(default_factory=list)
    is_compacted: bool = False

    @property
    def origins(self) -> dict[TopicPartition, dict[int, Origin]]:
        """What lies where, without other producers' records."""
        return {
            tp: {at: entry.origin for at, entry in log.items() if entry.origin is not None}
            for tp, log in self.log.items()
        }

    @property
    def placements(self) -> dict[str, str | int]:
        """Placement by run."""
        return {run.key: run.require_plan().placement for run in self.runs}

    def topics(self) -> set[str]:
        """Return the topics whose records are known to lead to the target."""
        maps = [read_map(each) for each in self.runs if each.offset_map() is not None]
        begun = [each.require_plan() for each in self.runs if each.offset_map() is None]
        return {tp.topic for each in maps for tp in each.sources()} | {
            shard.source.topic for plan in begun for shard in plan.shards
        }

    def cluster(self) -> Any:
        logs = {tp: Log(0, end) for tp, end in self.target_ends.items()}
        return FakeCluster(logs, id=AWAY, topic_ids={tp.topic: "copy-id" for tp in logs})

    def translate(self, run: RepublishRun, committed: dict[TopicPartition, int]) -> TranslationPlan:
        """Plan a group's offsets as the command does, with the archive's offsets."""
        nothing: Any = NoGroups()
        moment = Moment(
            number=1, previous=None, cluster_id=HOME, asked_at="", answered_at="",
            parts={}, groups=None, settings=None,
        )  # fmt: skip
        return plan_group(
            Archive(self.root),
            run,
            read_map(run),
            self.cluster(),
            nothing,
            GroupRecords(run.folder, "g"),
            group="g",
            to_group="g",
            archived=ArchivedOffsets(moment, committed, {}),
        )

    def committed(self) -> dict[TopicPartition, int]:
        """Draw a group: offsets at, between, before and after records; none in some partitions."""
        random = self.random
        share = random.choice([0.0, 0.0, 0.3, 0.6])
        found = {
            tp: random.choice([0, end, random.randint(0, end + 2), random.randint(0, end + 2)])
            for tp, end in self.ends.items()
            if random.random() >= share
        }
        return found


class NoGroups:
    """A cluster's groups: there are none."""

    def committed(self, *_: object) -> dict[TopicPartition, Any]:
        return {}

    def describe(self, group: str) -> Any:
        return type("Group", (), {"is_idle": True})()


def history(seed: int, folder: Path) -> History:
    """Make up sources and up to five runs, and leave their folders in an archive."""
    random = Random(seed)
    made = History(random, UPath(folder))
    Archive(made.root).create(
        pipeline="orders", cluster_id=HOME, topic_ids={}, source={"topics": ["a", "b"]}
    )
    made.is_compacted = random.random() < 0.3
    _fill_sources(made)
    partitions = random.randint(1, 4)
    usual: str | int = _any_of(random, "original", "original", "key", random.randrange(partitions))
    if usual == "original":
        partitions = max(partitions, 1 + max(tp.partition for tp in made.sources))
    made.log = {TopicPartition("copy", p): {} for p in range(partitions)}
    made.target_ends = dict.fromkeys(made.log, 0)
    _send_others(made)
    under_way: list[Run] = []
    windows = _windows(random)
    for number, window in enumerate(windows):
        placement = usual
        if random.random() < 0.1:
            placement = _any_of(random, "key", random.randrange(partitions))
        is_killed = random.random() < 0.15
        run = _open(made, number, window, placement, is_killed)
        if run is not None:
            under_way.append(run)
        if random.random() < 0.7 or number == len(windows) - 1:
            # Otherwise, the next run starts before these have ended.
            _send(made, under_way)
            under_way = []
            _send_others(made)
            _compact(made)
    return made


def _fill_sources(made: History) -> None:
    random = made.random
    longest = random.choice([4, 12, 40])
    for topic, most in (("a", 3), ("b", 2)):
        for partition in range(random.randint(topic == "a", most)):
            tp = TopicPartition(topic, partition)
            offset = random.choice([0, 0, random.randint(0, 20)])
            records: dict[int, Entry] = {}
            for _ in range(random.choice([0, longest, random.randint(1, longest)])):
                # Markers of transactions, and what the source's compaction has removed.
                offset += random.choice([0, 0, 0, 0, 1, random.randint(0, 5)])
                is_late = random.random() < 0.15
                key = b"k%d" % random.randint(0, 5)
                # Some records are equal to others.
                value = b"v%d" % random.choice([0, random.randint(0, 3), random.getrandbits(30)])
                time = random.randint(0, 99) if is_late else min(99, 3 * len(records))
                records[offset] = Entry(key, value, 1 + time, Origin(tp, offset))
                offset += 1
            made.sources[tp] = records
            made.ends[tp] = offset + random.randint(0, 1)


def _windows(random: Random) -> list[Rows]:
    """Return which rows each run sends: windows of time in any order, maybe offsets at the end."""
    cuts = sorted(random.sample(range(1, 99), random.randint(0, 4)))
    bounds = [None, *cuts, None]
    found = [Rows(from_ms=start, to_ms=end) for start, end in pairwise(bounds)]
    if random.random() < 0.3:
        random.shuffle(found)
    if random.random() < 0.3:
        at = random.randint(0, 30)
        found[-1] = Rows(ranges=(OffsetRange(at, at + random.randint(1, 20)),))
    return found


def _open(
    made: History, number: int, chosen: Rows, placement: str | int, is_killed: bool
) -> Run | None:
    """Plan a run and open it; None if it has no records."""
    shards: list[Shard] = []
    queues = []
    partitions = len(made.log)
    for source, records in made.sources.items():
        sent = [
            entry
            for offset, entry in records.items()
            if chosen.all_of(offset, offset, entry.timestamp, entry.timestamp)
        ]
        if not sent:
            continue
        # A file holds records of other windows, too.
        file = ShardFile("f", "parquet", 1, "", min(records), max(records), len(sent), True)
        fixed = fixed_partition(placement, source.partition)
        slot = ProgressSlot(f"g-{len(shards)}", TopicPartition("copy", 0))
        shards.append(Shard(len(shards), source, "id", "copy", fixed, chosen, (file,), slot))
        queues.append([(_target(entry, fixed, partitions), entry) for entry in sent])
    if not shards:
        return None
    ends = tuple(made.target_ends.values())
    target = Target("copy", "copy-id", partitions, ends, made.is_compacted)
    plan = replace(
        PLAN,
        key=f"run-{number}",
        created_at=f"2026-01-01T00:00:0{number}+00:00",
        cluster_id=AWAY,
        placement=placement,
        shards=tuple(shards),
        targets=(target,),
    )
    run = RepublishRun(made.root, plan.key)
    run.write_plan(plan)
    run.mark_opened(plan)
    made.runs.append(run)
    return Run(plan, run, queues, is_killed)


def _target(entry: Entry, fixed: int | None, partitions: int) -> TopicPartition:
    source = entry.origin.tp.partition if entry.origin else 0
    number = partition_of_key(entry.key, partitions, source) if fixed is None else fixed
    return TopicPartition("copy", number)


def _send(made: History, runs: list[Run]) -> None:
    """Let some runs send at the same time, in transactions; then verify those that have ended."""
    random = made.random
    queues = [queue for run in runs for queue in run.queues]
    for run in runs:
        if run.is_killed:
            for queue in run.queues:
                del queue[random.randint(0, len(queue)) :]
    while any(queues):
        queue = random.choice([queue for queue in queues if queue])
        if random.random() < 0.1:
            # An attempt is killed: consumers don't get what it has sent, and it's sent again.
            made.target_ends[queue[0][0]] += random.randint(1, 4)
        taken = queue[: random.randint(1, 6)]
        del queue[: len(taken)]
        for tp, entry in taken:
            _append(made, tp, entry)
        for tp in {tp for tp, _ in taken}:
            made.target_ends[tp] += random.randint(0, 1)
    for run in runs:
        if not run.is_killed:
            if random.random() < 0.5:
                _compact(made)
            _verify(made, run)


def _append(made: History, tp: TopicPartition, entry: Entry) -> None:
    made.log[tp][made.target_ends[tp]] = entry
    made.target_ends[tp] += 1


def _send_others(made: History) -> None:
    """Other producers' records; some are equal to those of the archive."""
    random = made.random
    for tp in made.log:
        for _ in range(random.choice([0, 0, 0, random.randint(0, 5)])):
            value = b"v0" if random.random() < 0.1 else b"other %d" % random.getrandbits(30)
            _append(made, tp, Entry(b"k%d" % random.randint(0, 5), value, 1))


def _compact(made: History) -> None:
    """Remove what has a later record of its key; the newest records aren't compacted yet."""
    if not made.is_compacted or made.random.random() < 0.3:
        return
    for tp, log in made.log.items():
        until = made.random.randint(0, made.target_ends[tp])
        last = {entry.key: at for at, entry in log.items() if at < until}
        for at in [at for at, entry in log.items() if at < until and last[entry.key] > at]:
            del log[at]


def _verify(made: History, run: Run) -> None:
    """Read the target back as verify does, and leave map and receipt if the run is exact."""
    plan = run.plan
    starts = plan.starts()
    matches = {}
    for tp in target_partitions(plan):
        there = [entry.hashed(at) for at, entry in made.log[tp].items() if at >= starts[tp]]
        expected = {
            shard.number: _reader(made, shard, tp)
            for shard in plan.shards
            if shard.target_partition in (None, tp.partition)
        }
        actual: Actual = lambda _, there=there: iter([there])  # type: ignore[misc]  # noqa: E731
        matches[tp] = match_partition(expected, actual, is_compacted=made.is_compacted)
    verification, offset_map = summarize(plan, matches)
    if not verification.gets_receipt(plan.delivery):
        # Others' records may hide what compaction has removed.
        return
    run.folder.write_offset_map(offset_map.to_bytes())
    run.folder.write_receipt(receipt_of(key=run.folder.key, verification=verification.to_dict()))


def _reader(made: History, shard: Shard, tp: TopicPartition) -> Any:
    records = made.sources[shard.source]

    def read() -> Iterator[Hashed]:
        for offset, entry in records.items():
            is_sent = shard.rows.all_of(offset, offset, entry.timestamp, entry.timestamp)
            if is_sent and _target(entry, shard.target_partition, len(made.log)) == tp:
                yield entry.hashed(offset)

    return read


def _any_of(random: Random, *placements: str | int) -> str | int:
    return random.choice(placements)

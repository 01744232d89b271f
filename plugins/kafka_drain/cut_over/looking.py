"""Observations of a cut-over: the source's ends, the target's records, the groups' places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.cut_over.steps import missing_in
from kafka_drain.drain.preflight import check_identity, find_partitions
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import ConsumerGroups, offsets_of
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.groups.group_records import GroupRecord, GroupRecords
from kafka_drain.republish.groups.planning import read_map
from kafka_drain.republish.planning.follow import new_files, next_run, runs_of, through_now
from kafka_drain.republish.planning.runs import RepublishRun


@dataclass(frozen=True)
class SourceState:
    """The source, as a step saw it.

    Attributes:
        ends: The end of each partition, behind open transactions too.
        undrained: Number of its offsets that no receipt covers.
    """

    ends: Mapping[TopicPartition, int]
    undrained: Mapping[TopicPartition, int]


def look_at_source(snapshot: Snapshot, pipeline: Pipeline, cluster: KafkaCluster) -> SourceState:
    """Compare the source's ends with the archive's receipts.

    Raises:
        ArchiveError: When the archive belongs to another cluster.
        TopicError: When a topic is missing, or was recreated.
    """
    cluster = cluster.counting(snapshot.topics_now)
    topics, partitions = find_partitions(pipeline, cluster)
    check_identity(snapshot, pipeline, cluster.cluster_id(), topics)
    ends = cluster.latest(partitions, "read_uncommitted")
    held = sealed_ends(snapshot)
    return SourceState(ends, missing_in(held, cluster.earliest(partitions), ends))


def sealed_ends(snapshot: Snapshot) -> dict[TopicPartition, int]:
    """Return up to where drains are sealed."""
    generation = snapshot.open_generation
    if generation is None:
        return {}
    receipt = generation.last_receipt()
    return {**generation.starting_offsets, **(receipt.ends if receipt else {})}


@dataclass(frozen=True)
class Mirror:
    """The records sent by a mirror's finished runs.

    Attributes:
        runs: The runs, oldest first.
        records: Number of records that they sent and compared.
        unsent: Number of sealed files that none of them has sent.
        lacks: Number of records in these files.
        inexact: Runs whose comparison found something.
        foreign: Number of other producers' records among theirs, by run.
    """

    runs: Sequence[RepublishRun]
    records: int
    unsent: int
    lacks: int
    inexact: tuple[str, ...]
    foreign: Mapping[str, int]


def look_at_mirror(archive: Archive, follower: str) -> Mirror:
    """Read the receipts of a mirror, and compare them with the archive.

    Raises:
        ManifestInvalidError: When something that was sent isn't sealed any more.
    """
    runs, records = list[RepublishRun](), 0
    inexact, foreign = list[str](), dict[str, int]()
    for run in runs_of(archive, follower):
        receipt = run.receipt()
        if receipt is None:
            continue
        runs.append(run)
        records += receipt["records"]
        verification = receipt["verification"]
        if verification is None or not verification["is_exact"]:
            inexact.append(run.key)
        elif verification["foreign"]:
            foreign[run.key] = verification["foreign"]
    snapshot, (_, since) = archive.snapshot(), next_run(archive, follower)
    unsent = new_files(snapshot, since, through_now(snapshot, since))
    lacks = sum(file.records or 0 for file in unsent)
    return Mirror(runs, records, len(unsent), lacks, tuple(inexact), foreign)


def changes_of_target(cluster: KafkaCluster, mirror: Mirror) -> list[str]:
    """Return the differences between the target and the records that a mirror left there.

    Each run has read its records back and compared them. Since then, records may have been deleted
    or added, which the partitions' ends show.
    """
    firsts, lasts = dict[TopicPartition, int](), dict[TopicPartition, int]()
    found = [f"{run}: {count:,} records of others" for run, count in mirror.foreign.items()]
    for run in mirror.runs:
        starts, parts = run.require_plan().starts(), read_map(run).partitions
        for tp, start in starts.items():
            lasts.setdefault(tp, start)
        # Its comparison began at its start, and that of the run before ended at its last record.
        before = {tp: (lasts[tp], starts[tp]) for tp in {part.target for part in parts}}
        found += [
            f"{tp} has {count:,} records of others before run {run.key}"
            for tp, count in _records_of_others(cluster, before)
        ]
        for part in parts:
            # Several source partitions may lead to it, and the first of them needn't begin it.
            start = part.blocks[0].target_start
            firsts[part.target] = min(firsts.get(part.target, start), start)
            lasts[part.target] = max(lasts[part.target], part.blocks[-1].target_end)
    begins, ends = cluster.earliest(lasts), cluster.latest(lasts, "read_uncommitted")
    for tp, last in sorted(lasts.items()):
        first = firsts.get(tp, begins[tp])
        if begins[tp] > first:
            found.append(f"{tp} begins at {begins[tp]:,}, the mirror's first record is {first:,}")
        if ends[tp] < last:
            found.append(f"{tp} ends at {ends[tp]:,}, the mirror's last record is {last - 1:,}")
        elif added := _records_in(cluster, tp, OffsetRange(last, ends[tp])):
            found.append(f"{tp} has {added:,} records after the mirror's last one")
    return found


def _records_of_others(
    cluster: KafkaCluster, between: Mapping[TopicPartition, tuple[int, int]]
) -> Iterator[tuple[TopicPartition, int]]:
    """Yield partitions that have records between two offsets, and their number."""
    begins = cluster.earliest(between)
    spans = {
        tp: OffsetRange(max(last, begins[tp]), start)
        for tp, (last, start) in sorted(between.items())
        if max(last, begins[tp]) < start
    }
    # The replica that is asked may be behind.
    stable = cluster.latest(spans, "read_committed")
    following = cluster.single_records(
        {tp: span.start for tp, span in spans.items()},
        "read_committed",
        ends={tp: min(stable[tp], span.end) for tp, span in spans.items()},
    )
    for tp, span in spans.items():
        if tp in following and following[tp].offset < span.end:
            yield tp, _records_in(cluster, tp, span)


def _records_in(cluster: KafkaCluster, tp: TopicPartition, span: OffsetRange) -> int:
    """Count records; a commit's own offset isn't one."""
    return sum(batch.num_rows for batch in cluster.records(tp, span, "read_committed"))


def active_groups(names: Iterable[str], source: KafkaCluster, target: KafkaCluster) -> list[str]:
    """Describe the groups that are active, in either cluster."""
    found = []
    for where, cluster in (("source", source), ("target", target)):
        groups = ConsumerGroups(cluster.config)
        described = map(groups.describe, names)
        found += [f"group {g.name} {g.who()} at the {where}" for g in described if not g.is_idle]
    return found


def newest_record(runs: Sequence[RepublishRun], group: str) -> GroupRecord | None:
    """Return the newest record of a group's translation that wasn't undone."""
    records = (GroupRecords(run.folder, group).newest_open() for run in reversed(runs))
    return next((record for record in records if record is not None), None)


def misplaced_groups(
    names: Iterable[str],
    runs: Sequence[RepublishRun],
    source: KafkaCluster,
    target: KafkaCluster,
) -> list[str]:
    """Return groups whose offsets differ from the translated ones, in either cluster."""
    found = []
    mirrored = {part.source.topic for run in runs for part in read_map(run).partitions}
    described = source.topics(source.existing(mirrored))
    there = [TopicPartition(name, p) for name, topic in described.items() for p in topic.partitions]
    for name in names:
        record = newest_record(runs, name)
        if record is None or not record.is_applied:
            found.append(f"group {name} wasn't translated")
            continue
        for where, cluster, expected, asked in (
            ("source", source, record.sources, {*record.sources, *there}),
            ("target", target, record.after, {*record.after}),
        ):
            now = offsets_of(ConsumerGroups(cluster.config).committed(name, sorted(asked)))
            found += [
                f"group {name} is at {now.get(tp, 'no offset')} of {tp} at the {where}, it was "
                f"translated with{f' {expected[tp]}' if tp in expected else 'out an offset there'}"
                for tp in sorted(asked)
                if now.get(tp) != expected.get(tp)
            ]
    return found

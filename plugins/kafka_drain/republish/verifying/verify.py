"""Verify: read the target's new records back and compare them with the files, record by record.

The records that `read_committed` consumers get from each target partition, since the plan was made,
are matched with the shards' records (`matching`). This proves count, order and content, and shows
where each source offset went (`offset_map`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.content_hash import digest_of, digest_text
from kafka_drain.data_files.reader import as_client_reads
from kafka_drain.data_files.rows import columns_of
from kafka_drain.errors import TopicError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import is_other_topic
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing.change import Change, Changer
from kafka_drain.republish.planning.placement import PARTITIONERS, partition_of_key
from kafka_drain.republish.planning.plan import EXACTLY_ONCE, RepublishPlan
from kafka_drain.republish.planning.shards import Shard
from kafka_drain.republish.sending.arrow_records import provenance, with_schema_ids
from kafka_drain.republish.sending.memory import little_garbage_collection
from kafka_drain.republish.sending.shard_reader import read_shard
from kafka_drain.republish.verifying.matching import PartitionMatch, match_partition
from kafka_drain.republish.verifying.offset_map import (
    Block,
    OffsetMap,
    PartitionMap,
    offset_in_chain,
    place_and_offset,
)
from kafka_drain.republish.verifying.records import ExpectedRecords, Expecting, Records
from kafka_drain.republish.verifying.result import Verification, VerifiedPartition, change_found
from kafka_drain.republish.verifying.target_reader import TargetReader, target_client

#: Longest delay of reading by open transactions of other producers, or Kafka itself.
END_TIMEOUT_SECONDS = 120.0

#: Kafka may compact the target between two reads of it, whose results then don't fit together.
PASSES = 3

#: Number of a shard's records held as Python objects; shards of one target are read together.
SLICE_ROWS = 5_000

#: Number of target partitions that one client reads at most, and number of clients below which each
#: partition gets one of its own: groups of equal size keep all processes busy to the end.
TOGETHER, CLIENTS = 100, 32

_PLANNED: Mapping[TopicPartition, int] = MappingProxyType({})


def summarize(
    plan: RepublishPlan, matches: Mapping[TopicPartition, PartitionMatch]
) -> tuple[Verification, OffsetMap]:
    """Combine the results of `verify_partition` for each of `target_partitions`.

    Returns:
        The verification, and where each source offset went, which is complete if all is exact.
    """
    shards = {shard.number: shard for shard in plan.shards}
    mapped = sorted(
        (number, tp, blocks)
        for tp, match in matches.items()
        for number, blocks in match.mappings.items()
    )
    offset_map = OffsetMap(
        run=plan.key,
        pipeline=plan.pipeline,
        cluster_id=plan.cluster_id,
        partitions=tuple(
            PartitionMap(shards[number].source, shards[number].topic_id, tp, blocks)
            for number, tp, blocks in mapped
        ),
    )
    found = tuple(VerifiedPartition(tp, matches[tp]) for tp in sorted(matches))
    changes = {number: seen for match in matches.values() for number, seen in match.changes.items()}
    is_exact = all(match.is_exact for match in matches.values())
    return Verification(found, change_found(plan, changes, is_exact=is_exact)), offset_map


def target_partitions(plan: RepublishPlan) -> list[TopicPartition]:
    """Return the target partitions that some shard sends to."""
    by_key = {shard.target_topic for shard in plan.shards if shard.target_partition is None}
    fixed = {(shard.target_topic, shard.target_partition) for shard in plan.shards}
    return [tp for tp in plan.starts() if tp.topic in by_key or (tp.topic, tp.partition) in fixed]


def verified_together(plan: RepublishPlan) -> list[tuple[TopicPartition, ...]]:
    """Return the target partitions in groups of one topic that one client reads in sequence.

    Few partitions are read side by side, each with a client of its own.
    """
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in target_partitions(plan):
        by_topic.setdefault(tp.topic, []).append(tp)
    return [
        tuple(tps[at : at + size])
        for tps in by_topic.values()
        for size in [min(TOGETHER, 1 + len(tps) // CLIENTS)]
        for at in range(0, len(tps), size)
    ]


def verify_partition(
    root: str,
    plan: RepublishPlan,
    settings: Mapping[str, Any],
    tp: TopicPartition,
    start: int | None = None,
    end_timeout_seconds: float = END_TIMEOUT_SECONDS,
    change: Change | None = None,
) -> PartitionMatch:
    """Compare a target partition with the records of its shards.

    See `verify_partitions`.

    Args:
        root: The archive: a folder, or a URL.
        settings: librdkafka settings for the target cluster.
        tp: The target partition.
        start: Lowest offset that its new records can have; None for the one in the plan.
        end_timeout_seconds: Longest wait for records that read_committed consumers don't get yet,
            or for Kafka.
        change: The plan's change, with its function and key; None if it has none.
    """
    starts = {} if start is None else {tp: start}
    [(_, match)] = verify_partitions(
        root, plan, settings, [tp], starts, end_timeout_seconds, change
    )
    return match


def verify_partitions(
    root: str,
    plan: RepublishPlan,
    settings: Mapping[str, Any],
    tps: Collection[TopicPartition],
    starts: Mapping[TopicPartition, int] = _PLANNED,
    end_timeout_seconds: float = END_TIMEOUT_SECONDS,
    change: Change | None = None,
) -> Iterator[tuple[TopicPartition, PartitionMatch]]:
    """Compare target partitions with the records of their shards.

    Reads each up to its current high watermark, one after another, with one client.

    Args:
        root: The archive: a folder, or a URL.
        settings: librdkafka settings for the target cluster.
        tps: Target partitions of one topic.
        starts: Lowest offset that their new records can have, where not the one in the plan.
        end_timeout_seconds: Longest wait for records that read_committed consumers don't get yet,
            or for Kafka.
        change: The plan's change, with its function and key; None if it has none.

    Yields:
        Each partition with what was found.

    Raises:
        TopicError: When the target was recreated after the plan was made.
        TransientError: When another producer's transaction stays open.
        KafkaUnavailableError: When Kafka doesn't answer.
        ManifestInvalidError: When a file has other bytes than the plan says.
        DataFileError: When a file can't be read.
    """
    [topic] = {tp.topic for tp in tps}
    target = plan.target(topic)
    cluster = KafkaCluster(KafkaConfig(settings))
    found_id = cluster.topics([topic])[topic].id
    if is_other_topic(target.id, found_id):
        raise TopicError(
            f"topic {topic} can't be verified: it has id {found_id}, expected {target.id}; it "
            "was recreated after the plan was made, and what had been sent to it is gone"
        )
    log_starts, ends = cluster.earliest(tps), cluster.latest(tps, "read_uncommitted")
    senders = _senders(plan, tps)
    with closing(target_client(cluster, target.partitions)) as client, little_garbage_collection():
        for tp in tps:
            start = starts.get(tp, target.start[tp.partition])
            reader = TargetReader(
                cluster,
                tp,
                first=max(start, log_starts[tp]),
                end=ends[tp],
                with_keys=target.is_compacted,
                timeout_seconds=end_timeout_seconds,
                client=client,
            )
            match = _matched(root, plan, tp, reader, senders[tp], change)
            if log_starts[tp] > start and match.lost:
                note = (
                    f"Kafka has deleted the records below offset {log_starts[tp]:,}, but the run's "
                    f"start at {start:,}: deleted records count as lost"
                )
                match = replace(match, notes=(*match.notes, note))
            yield tp, match


def _matched(
    root: str,
    plan: RepublishPlan,
    tp: TopicPartition,
    reader: TargetReader,
    chains: Mapping[int, Sequence[Shard]],
    change: Change | None,
) -> PartitionMatch:
    """Compare a target partition with the chains that send to it."""
    target = plan.target(tp.topic)
    changer = None if change is None else change.open()
    seen: dict[int, tuple[int, int, str]] = {}
    for _ in range(PASSES if target.is_compacted else 1):
        match = match_partition(
            {
                number: _expected(root, plan, chain, tp, len(chains), changer, seen)
                for number, chain in chains.items()
            },
            reader.read,
            compare_timestamps=plan.keeps_timestamps,
            is_compacted=target.is_compacted,
        )
        if match.is_exact:
            break
    return replace(match, mappings=_by_shard(match.mappings, chains), changes=seen)


def _senders(
    plan: RepublishPlan, tps: Collection[TopicPartition]
) -> dict[TopicPartition, dict[int, list[Shard]]]:
    """Return the shards of each chain that send to partitions, by number of the first shard."""
    found: dict[TopicPartition, dict[int, list[Shard]]] = {tp: {} for tp in tps}
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in tps:
        by_topic.setdefault(tp.topic, []).append(tp)
    for chain in plan.chains:
        of_chain: dict[TopicPartition, list[Shard]] = {}
        for shard in chain:
            if shard.target_partition is None:
                reached = by_topic.get(shard.target_topic, [])
            else:
                reached = [TopicPartition(shard.target_topic, shard.target_partition)]
            for tp in reached:
                of_chain.setdefault(tp, []).append(shard)
        for tp in of_chain.keys() & found.keys():
            found[tp][of_chain[tp][0].number] = of_chain[tp]
    return found


def _expected(
    root: str,
    plan: RepublishPlan,
    chain: Sequence[Shard],
    tp: TopicPartition,
    chains: int,
    changer: Changer | None,
    seen: dict[int, tuple[int, int, str]],
) -> Expecting:
    """Return a function that reads a chain's records for a target partition.

    Args:
        chain: The chain's shards that send to the partition.
        tp: The target partition.
        chains: Number of chains that are read side by side and share the memory.
        changer: Applies the drops and changes on the way; None for none.
        seen: Gets what that made of each shard, once it has been read to its end.
    """
    target = plan.target(tp.topic)
    by_key = plan.placement in PARTITIONERS
    slice_rows = max(1, SLICE_ROWS // -(-chains // 4))

    def read() -> Iterator[Records]:
        for place, shard in enumerate(chain):
            source, begin = shard.source.partition, offset_in_chain(place, 0)
            batches = read_shard(root, shard, sharers=chains)
            if changer is not None:
                batches = _changed(batches, shard, changer, seen)
            for batch in with_schema_ids(batches, shard, plan.translation):
                # Only Spark's sink sends a header name with a NUL.
                batch = batch if plan.delivery == EXACTLY_ONCE else as_client_reads(batch)
                for at in range(0, batch.num_rows, slice_rows):
                    keys, values, headers, times, offsets = columns_of(batch.slice(at, slice_rows))
                    if plan.provenance:
                        headers = [
                            [*(held or ()), *provenance(shard, offset)]
                            for held, offset in zip(headers, offsets, strict=True)
                        ]
                    places = [begin + offset for offset in offsets]
                    sent = Records(keys, values, headers, times, places, target.is_compacted)
                    if by_key:
                        sent = sent.chosen(
                            [
                                partition_of_key(key, target.partitions, source, plan.placement)
                                == tp.partition
                                for key in keys
                            ]
                        )
                    yield sent

    return lambda: ExpectedRecords(read())


def _changed(
    batches: Iterator[pa.RecordBatch],
    shard: Shard,
    changer: Changer,
    seen: dict[int, tuple[int, int, str]],
) -> Iterator[pa.RecordBatch]:
    """Yield a shard's records as they are sent, and note the effect of the change at the end."""
    dropped = changed = digest = 0
    for batch in batches:
        result = changer.apply(batch, shard.source)
        dropped += result.dropped
        changed += pc.sum(result.changed).as_py() or 0
        digest += digest_of(columns_of(result.batch))
        yield result.batch
    seen[shard.number] = (dropped, changed, digest_text(digest))


def _by_shard(
    mappings: Mapping[int, tuple[Block, ...]], chains: Mapping[int, Sequence[Shard]]
) -> dict[int, tuple[Block, ...]]:
    """Return the blocks of each shard, given those of each chain."""
    found: dict[int, list[Block]] = {}
    for number, blocks in mappings.items():
        for block in blocks:
            place, start = place_and_offset(block.source_start)
            end = start + block.source_end - block.source_start
            shard = chains[number][place].number
            found.setdefault(shard, []).append(block._replace(source_start=start, source_end=end))
    return {number: tuple(blocks) for number, blocks in found.items()}

"""Verify: read the target's new records back and compare them with the files, record by record.

The records that `read_committed` consumers get from each target partition, since the plan was made,
are matched with the shards' records (`matching`). This proves count, order and content, and shows
where each source offset went (`offset_map`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.content_hash import content_hash
from kafka_drain.data_files.rows import rows_of
from kafka_drain.errors import TopicError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing.change import Change, Changer
from kafka_drain.republish.changing.digest import digest_of, digest_text
from kafka_drain.republish.planning.placement import BY_KEY, partition_of_key
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.shards import Shard
from kafka_drain.republish.sending.arrow_records import provenance, with_schema_ids
from kafka_drain.republish.sending.garbage_collection import little_garbage_collection
from kafka_drain.republish.sending.shard_reader import read_shard
from kafka_drain.republish.verifying.match_types import Expected, Record
from kafka_drain.republish.verifying.matching import PartitionMatch, match_partition
from kafka_drain.republish.verifying.offset_map import (
    Block,
    OffsetMap,
    PartitionMap,
    offset_in_chain,
    place_and_offset,
)
from kafka_drain.republish.verifying.result import (
    Verification,
    VerifiedPartition,
    change_found,
)
from kafka_drain.republish.verifying.target_reader import TargetReader, key_hash

#: How long open transactions of other producers, or Kafka itself, may delay reading.
END_TIMEOUT_SECONDS = 120.0

#: Kafka may compact the target between two reads of it, whose results then don't fit together.
PASSES = 3

#: Number of a shard's records held as Python objects; shards of one target are read together.
SLICE_ROWS = 5_000


def summarize(
    plan: RepublishPlan, matches: Mapping[TopicPartition, PartitionMatch]
) -> tuple[Verification, OffsetMap]:
    """Combine what `verify_partition` found in each of `target_partitions`.

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


def verify_partition(
    root: str,
    plan: RepublishPlan,
    settings: Mapping[str, Any],
    tp: TopicPartition,
    start: int | None = None,
    end_timeout_seconds: float = END_TIMEOUT_SECONDS,
    change: Change | None = None,
) -> PartitionMatch:
    """Compare what a target partition holds with what the shards should have put there.

    Reads up to the current high watermark. All arguments can be pickled.

    Args:
        root: The archive: a folder, or a URL.
        plan: What was sent.
        settings: librdkafka settings for the target cluster.
        tp: The target partition.
        start: Lowest offset that its new records can have; None for the one in the plan.
        end_timeout_seconds: How long to wait for records that read_committed consumers don't get
            yet, or for Kafka.
        change: The plan's change, with its function and key; None if it has none.

    Raises:
        TopicError: When the target was recreated after the plan was made.
        TransientError: When another producer's transaction stays open.
        KafkaUnavailableError: When Kafka doesn't answer.
        ManifestInvalidError: When a file has other bytes than the plan says.
        DataFileError: When a file can't be read.
    """
    target = plan.target(tp.topic)
    cluster = KafkaCluster(KafkaConfig(settings))
    found_id = cluster.topics([tp.topic])[tp.topic].id
    if found_id != target.id:
        raise TopicError(
            f"topic {tp.topic} can't be verified: it has id {found_id}, expected {target.id}; it "
            "was recreated after the plan was made, and what had been sent to it is gone"
        )
    start = target.start[tp.partition] if start is None else start
    log_start = cluster.earliest([tp])[tp]
    reader = TargetReader(
        cluster,
        tp,
        first=max(start, log_start),
        end=cluster.latest([tp], "read_uncommitted")[tp],
        with_keys=target.is_compacted,
        timeout_seconds=end_timeout_seconds,
    )
    chains = _senders(plan, tp)
    changer = None if change is None else change.open()
    seen: dict[int, tuple[int, int, str]] = {}
    with little_garbage_collection():
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
    match = replace(match, mappings=_by_shard(match.mappings, chains), changes=seen)
    if log_start > start and match.lost:
        note = (
            f"Kafka has deleted the records below offset {log_start:,}, but the run's start at "
            f"{start:,}: deleted records count as lost"
        )
        match = replace(match, notes=(*match.notes, note))
    return match


def _senders(plan: RepublishPlan, tp: TopicPartition) -> dict[int, list[Shard]]:
    """Return the shards of each chain that send to a partition, by number of the first shard."""
    found = {}
    for chain in plan.chains:
        if chain[0].target_topic == tp.topic:
            senders = [s for s in chain if s.target_partition in (None, tp.partition)]
            if senders:
                found[senders[0].number] = senders
    return found


def _expected(
    root: str,
    plan: RepublishPlan,
    chain: Sequence[Shard],
    tp: TopicPartition,
    chains: int,
    changer: Changer | None,
    seen: dict[int, tuple[int, int, str]],
) -> Expected:
    """Return a function that reads what a chain should have put into a target partition.

    Args:
        root: The archive.
        plan: What was sent.
        chain: The chain's shards that send to the partition.
        tp: The target partition.
        chains: Number of chains that are read side by side and share the memory.
        changer: What is dropped and changed on the way; None for nothing.
        seen: Gets what that made of each shard, once it has been read to its end.
    """
    target = plan.target(tp.topic)
    by_key = plan.placement == BY_KEY
    slice_rows = max(1, SLICE_ROWS // -(-chains // 4))

    def read() -> Iterator[Record]:
        for place, shard in enumerate(chain):
            source, begin = shard.source.partition, offset_in_chain(place, 0)
            batches = read_shard(root, shard, sharers=chains)
            if changer is not None:
                batches = _changed(batches, shard, changer, seen)
            for batch in with_schema_ids(batches, shard, plan.translation):
                for at in range(0, batch.num_rows, slice_rows):
                    rows = rows_of(batch.slice(at, slice_rows))
                    for key, value, headers, timestamp, offset in rows:
                        if (
                            by_key
                            and partition_of_key(key, target.partitions, source) != tp.partition
                        ):
                            continue
                        sent = headers
                        if plan.provenance:
                            sent = (headers or []) + provenance(shard, offset)
                        hashed = key_hash(key) if target.is_compacted else 0
                        yield content_hash(key, value, sent), timestamp, begin + offset, hashed

    return read


def _changed(
    batches: Iterator[pa.RecordBatch],
    shard: Shard,
    changer: Changer,
    seen: dict[int, tuple[int, int, str]],
) -> Iterator[pa.RecordBatch]:
    """Yield a shard's records as they are sent, and note at the end what became of them."""
    dropped = changed = digest = 0
    for batch in batches:
        result = changer.apply(batch, shard.source)
        dropped += result.dropped
        changed += pc.sum(result.changed).as_py() or 0
        digest += digest_of(result.batch)
        yield result.batch
    seen[shard.number] = (dropped, changed, digest_text(digest))


def _by_shard(
    mappings: Mapping[int, tuple[Block, ...]], chains: Mapping[int, Sequence[Shard]]
) -> dict[int, tuple[Block, ...]]:
    """Return where each shard's records are, given where each chain's records are."""
    found: dict[int, list[Block]] = {}
    for number, blocks in mappings.items():
        for block in blocks:
            place, start = place_and_offset(block.source_start)
            end = start + block.source_end - block.source_start
            shard = chains[number][place].number
            found.setdefault(shard, []).append(block._replace(source_start=start, source_end=end))
    return {number: tuple(blocks) for number, blocks in found.items()}

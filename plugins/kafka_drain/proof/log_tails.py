"""The newest archived records of partitions, read from the archive, and compared with Kafka's.

Receipts have their hashes. Those of earlier releases don't: then the records are read from the
files that these receipts name, as many as `FILES`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

from kafka_drain.archive.erasures import read_erasures
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import (
    Receipt,
    ReceiptError,
    SealedContent,
    SealedFile,
    SealedTail,
)
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.config.source_options import INTERNAL_TOPICS
from kafka_drain.errors import ArchiveError, DataFileError, DataLossError, KeyUnavailableError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.rewritten_log import (
    Comparison,
    FirstRewritten,
    LogNow,
    Verdict,
    compare_tails,
    find_first,
)

#: Generations that are looked at, from the newest back, for a partition's newest record.
GENERATIONS = 8
#: Receipts of an earlier release whose files are looked at, from the newest back.
RECEIPTS = 50
#: Files that are read, each for one partition's newest record, where receipts have no hash of it.
FILES = 64
#: Archived records of a partition among which its first rewritten one is looked for.
SEARCHED = 200_000

Offsets = Mapping[TopicPartition, int]
Tails = Mapping[TopicPartition, SealedTail]


def archived_tails(
    snapshot: Snapshot, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, SealedTail]:
    """Return the newest sealed record of partitions, as the open generation counts their topics.

    Args:
        snapshot: The archive.
        partitions: The partitions; one without a sealed record is left out.
    """
    open_generation = snapshot.open_generation
    if open_generation is None:
        return {}
    ids = snapshot.topic_ids(open_generation)
    found: dict[TopicPartition, SealedTail] = {}
    left = set(partitions)
    unread = FILES
    for generation in _backward(snapshot, open_generation):
        receipt = _newest(generation)
        if receipt is None:
            continue
        here = {
            part.tp: part
            for part in receipt.partitions
            if part.tp in left and receipt.topics.get(part.tp.topic) == ids.get(part.tp.topic)
        }
        found |= {tp: part.tail for tp, part in here.items() if part.tail is not None}
        untold = {tp for tp, p in here.items() if p.tail is None and p.records_so_far}
        if untold:
            last = _of_files(generation, untold)
            for tp, (file, offset) in sorted(last.items()):
                known = unread > 0
                unread -= known
                found[tp] = (
                    read_tail(generation, file, tp, offset) if known else SealedTail.of(offset)
                )
        left -= found.keys()
        if not left:
            break
    return found


def _backward(snapshot: Snapshot, newest: SnapshotGeneration) -> Iterator[Generation]:
    """Yield the open generation, and those before it, even if the snapshot leaves them out."""
    yield newest
    for number in islice(range(newest.number - 1, 0, -1), GENERATIONS - 1):
        yield Generation(snapshot.root, number)


def _newest(generation: Generation) -> Receipt | None:
    """Return a generation's newest receipt; None if it has none that is intact."""
    # Validation reports a damaged one; without it, less is compared.
    with suppress(ReceiptError, FileNotFoundError):
        return generation.last_receipt()
    return None


def _of_files(
    generation: Generation, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[SealedFile, int]]:
    """Return the file with the newest record of each partition, from the newest receipts."""
    found: dict[TopicPartition, tuple[SealedFile, int]] = {}
    for name in reversed(generation.receipt_names()[-RECEIPTS:]):
        left = set(partitions) - found.keys()
        if not left:
            break
        try:
            receipt = generation.read_receipt(name)
        except ReceiptError:
            continue
        here: dict[TopicPartition, tuple[SealedFile, int]] = {}
        for file in receipt.files:
            for content in file.contents:
                if content.tp in left and content.last >= here.get(content.tp, (file, 0))[1]:
                    here[content.tp] = (file, content.last)
        found |= here
    return found


def read_tail(
    generation: Generation, file: SealedFile, tp: TopicPartition, offset: int
) -> SealedTail:
    """Read a record from a file; its hash is unknown if it can't be read, or isn't there."""
    hashes = _hashes(generation, file.path, tp, OffsetRange(offset, offset + 1))
    return SealedTail.of(offset, hashes.get(offset))


def unsealed_tails(
    generation: Generation, file_format: str, files: Iterable[SinkFile]
) -> dict[TopicPartition, SealedTail]:
    """Return the newest record of partitions in files that are committed, but not sealed yet.

    Of the newest `FILES`; one that can't be read is left out: validation reports it.

    Args:
        generation: The generation that owns them.
        file_format: Their format.
        files: The files, as the manifest lists them.
    """
    # Not at the top: few drains need pyarrow, and importing it takes longer than their checks do.
    from kafka_drain.data_files.reader import read_offsets, topic_of

    newest: dict[TopicPartition, tuple[int, str]] = {}
    by_age = sorted(files, key=lambda file: file.modified)
    for file in by_age[-FILES:]:
        path = f"{generation.data_name}/{file.path}"
        with suppress(DataFileError, OSError):
            for held in read_offsets(generation.root / path, file_format, topic_of(path)):
                newest[held.tp] = max((held.last, path), newest.get(held.tp, (0, "")))
    found: dict[TopicPartition, SealedTail] = {}
    for tp, (offset, path) in newest.items():
        hashes = _hashes(generation, path, tp, OffsetRange(offset, offset + 1))
        found[tp] = SealedTail.of(offset, hashes.get(offset))
    return found


def _hashes(
    generation: Generation, name: str, tp: TopicPartition, span: OffsetRange
) -> dict[int, str]:
    """Return the hashes of a partition's records in a file, by offset; none if it can't be read.

    It may have been replaced, erased from, or be encrypted: the archive's findings say so.
    """
    # Not at the top: few drains need pyarrow, and importing it takes longer than their checks do.
    from kafka_drain.data_files.reader import read_records, topic_of
    from kafka_drain.data_files.records import Wanted
    from kafka_drain.data_files.xxhash64 import record_hashes

    topic = topic_of(name)
    found: dict[int, str] = {}
    wanted = Wanted(tp.partition, span.start, span.end)
    try:
        file_format = generation.read_document().format
        for batch in read_records(generation.root / name, file_format, 4 << 20, wanted):
            for found_topic, rows, hashes in record_hashes(batch, topic):
                if (found_topic or "") != tp.topic:
                    continue
                places = zip(
                    rows["partition"].to_pylist(), rows["offset"].to_pylist(), hashes, strict=True
                )
                found |= {
                    at: f"{value:016x}"
                    for number, at, value in places
                    if number == tp.partition and at in span
                }
    except (ArchiveError, DataFileError, KeyUnavailableError, OSError):
        return {}
    return found


def compare_with_logs(
    cluster: KafkaCluster, tails: Tails, first: Offsets, end: Offsets
) -> Comparison:
    """Compare archived records with what Kafka has at their offsets.

    Args:
        cluster: The cluster that they were drained from.
        tails: The archived records.
        first: The first offset that Kafka has, by partition.
        end: The high watermark, by partition.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    there = {tp: tail for tp, tail in tails.items() if tp in first and tp in end}
    asked = {tp: tail.offset for tp, tail in there.items() if first[tp] <= tail.offset < end[tp]}
    seen = cluster.single_records(asked)
    missing = {tp.topic for tp, at in asked.items() if tp not in seen or seen[tp].offset != at}
    if missing:
        # Records may have expired in the meantime.
        first = {**first, **cluster.earliest([tp for tp in asked if tp.topic in missing])}
    compacted = {name for name in missing if _is_compacted(cluster, name)}
    return compare_tails(
        there,
        {tp: LogNow(first[tp], end[tp], seen.get(tp), tp.topic in compacted) for tp in there},
    )


def _is_compacted(cluster: KafkaCluster, topic: str) -> bool:
    return topic in INTERNAL_TOPICS or "compact" in cluster.topic_config(topic).get(
        "cleanup.policy", ""
    )


def rewritten_logs(
    snapshot: Snapshot, cluster: KafkaCluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where each rewritten log begins to differ from the archive.

    A log that is shorter than what was drained counts. Where the offset isn't known exactly, it is
    the log's first: some records are then archived twice.

    Args:
        snapshot: The archive.
        cluster: The cluster that it was drained from.
        partitions: The partitions.

    Raises:
        DataLossError: When that might bring back records that were erased.
    """
    tails = archived_tails(snapshot, partitions)
    first, end = cluster.earliest(tails), cluster.latest(tails, "read_uncommitted")
    compared = compare_with_logs(cluster, tails, first, end)
    found = {}
    for tp, tail in tails.items():
        if tp in compared.rewritten or tail.offset >= end[tp]:
            begins = first_rewritten(snapshot, cluster, tp, tail)
            if not begins.is_exact and read_erasures(snapshot.root):
                raise DataLossError(
                    f"{tp} was rewritten {begins}: where it begins isn't known exactly, so that "
                    f"the next generation of {snapshot.root} would start at the beginning of the "
                    "log, and bring back records that were erased from the archive. Drain to "
                    "another archive"
                )
            found[tp] = max(first[tp], min(begins.offset, end[tp]) if begins.is_exact else 0)
    return found


def first_rewritten(
    snapshot: Snapshot, cluster: KafkaCluster, tp: TopicPartition, tail: SealedTail
) -> FirstRewritten:
    """Find the first rewritten offset of a partition whose newest archived record is rewritten.

    First among the newest records of files, then among the records of one file. Only the newest
    receipts are searched, and so many records.

    Args:
        snapshot: The archive.
        cluster: The cluster.
        tp: The partition.
        tail: Its newest archived record.
    """
    first = cluster.earliest([tp])[tp]
    end = cluster.latest([tp], "read_uncommitted")[tp]

    def compare(archived: SealedTail) -> Verdict:
        if archived.offset >= end:
            return Verdict.REWRITTEN
        found = compare_with_logs(cluster, {tp: archived}, {tp: first}, {tp: end})
        epoch = found.epochs.get((tp, archived.offset), -1)
        if tail.leader_epoch is not None and epoch > tail.leader_epoch:
            # The same record, sent again: epochs only rise along a log.
            return Verdict.REWRITTEN
        return found.verdict_of(tp)

    files = [each for each in _files_of(snapshot, tp) if each[2].last <= tail.offset]
    last = {each[2].last: each for each in files}
    lasts = [*(SealedTail.of(at) for at in sorted(last) if at < tail.offset), tail]

    def compare_file(archived: SealedTail) -> Verdict:
        if archived.offset == tail.offset:
            return Verdict.REWRITTEN
        generation, file, _ = last[archived.offset]
        return compare(read_tail(generation, file, tp, archived.offset))

    found = find_first(lasts, compare_file)
    before = max((each.offset for each in lasts if each.offset < found.offset), default=-1)
    span = OffsetRange(max(before + 1, found.offset + 1 - SEARCHED), found.offset + 1)
    hashes: dict[int, str] = {}
    for generation, file, content in files:
        if content.first < span.end and content.last >= span.start:
            hashes |= _hashes(generation, file.path, tp, span)
    is_read = found.offset in hashes
    hashes.setdefault(found.offset, "")
    within = find_first(
        [SealedTail.of(at, value) for at, value in sorted(hashes.items())],
        lambda archived: (
            Verdict.REWRITTEN if archived.offset == found.offset else compare(archived)
        ),
    )
    is_first = found.is_exact and is_read and within.offset == min(hashes)
    is_first = is_first and span.start == before + 1
    return FirstRewritten(within.offset, within.is_exact or is_first)


def _files_of(
    snapshot: Snapshot, tp: TopicPartition
) -> Iterator[tuple[Generation, SealedFile, SealedContent]]:
    """Yield the sealed files with records of a partition, from the newest receipts."""
    newest = snapshot.open_generation
    if newest is None:
        return
    topic_id = snapshot.topic_ids(newest).get(tp.topic)
    left = RECEIPTS
    for generation in _backward(snapshot, newest):
        for name in reversed(generation.receipt_names()):
            if not left:
                return
            left -= 1
            try:
                receipt = generation.read_receipt(name)
            except ReceiptError:
                continue
            if receipt.topics.get(tp.topic) != topic_id:
                continue
            for file in receipt.files:
                for content in file.contents:
                    if content.tp == tp:
                        yield generation, file, content

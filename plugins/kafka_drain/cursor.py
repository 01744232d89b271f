"""A cursor over an archive for each of its consumers: what is sealed, and they haven't loaded yet.

What is remembered are offsets, not files: those that a compaction, a repair, a reprocess or an
erasure has written again are never new. A batch that wasn't acknowledged is given again, with the
same id and the same offsets, in the files that hold them by then.

A consumer's state is the newest file in `cursors/<consumer>`. Each change of it is a new file with
the next number, which only one of many processes can create.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow.dataset as ds
from pydantic import model_validator

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import VersionedDocument
from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.archive.fold import Partition, held_by
from kafka_drain.archive.format import Version
from kafka_drain.archive.index import Query
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.soundness import refuse_unsound
from kafka_drain.config.offset_ranges import range_name
from kafka_drain.errors import ArchiveError, ConfigError, LockedError
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, subtract, within, without
from kafka_drain.reading import archive_dataset, segments_filter
from kafka_drain.storage.lease_store import NumberedFiles
from kafka_drain.storage.typed_json import Row

__all__ = ["Batch", "BatchFile", "acknowledge", "new_files", "take"]

#: The folder with a folder for each consumer, in the archive or in the folder of its state.
FOLDER = "cursors"

_CONSUMER = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")

Offsets = dict[Partition, list[OffsetRange]]


class CursorRow(Row):
    """Offsets of a partition.

    Attributes:
        topic_id: Id of the topic that they belong to.
        start: The first offset.
        end: End of the offsets, exclusive.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    @model_validator(mode="after")
    def _is_range(self) -> CursorRow:
        OffsetRange(self.start, self.end)
        return self


class PendingRow(Row):
    """A batch that was taken, and not acknowledged.

    Attributes:
        batch: Its id.
        offsets: Its offsets, sorted and disjoint for each partition.
    """

    batch: str
    offsets: list[CursorRow]


class CursorDocument(VersionedDocument):
    """`cursors/<consumer>/<number>.json`: what a consumer has loaded; the highest number counts.

    Attributes:
        consumer: Its name.
        loaded: The offsets of acknowledged batches, sorted and disjoint for each partition.
        acknowledged: Id of the batch that was acknowledged last; None for none.
        pending: The batch that was taken and isn't acknowledged; None for none.
    """

    format_version: Version
    consumer: str
    loaded: list[CursorRow]
    acknowledged: str | None
    pending: PendingRow | None


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file that holds records of a batch.

    Attributes:
        path: Its absolute path or URL.
        offsets: The batch's offsets that it may hold, by partition.
        records: Number of its records; None if it also holds some that aren't of the batch.
    """

    path: str
    offsets: Mapping[TopicPartition, Sequence[OffsetRange]]
    records: int | None

    @property
    def is_whole(self) -> bool:
        """Whether all its records are of the batch."""
        return self.records is not None


@dataclass(frozen=True, slots=True)
class Batch:
    """Sealed records that a consumer hasn't acknowledged.

    Attributes:
        id: Identifies its offsets, for ever; a load that has committed it skips it.
        files: The files that hold its records now; none if all of them were deleted since.
        segments: Its offsets, as in the event of an archive's asset.
        is_repeated: Whether it was taken before.
    """

    archive: Archive
    id: str
    files: tuple[BatchFile, ...]
    segments: tuple[Mapping[str, Any], ...]
    is_repeated: bool

    def dataset(self) -> ds.Dataset:
        """Return exactly its records, as `archive_dataset` does.

        Raises:
            ConfigError: When the files are Avro or JSON, or encrypted.
        """
        found = archive_dataset(self.archive, include_unsealed=False, segments=self.segments)
        return found.filter(segments_filter(self.segments))


def sealed_offsets(
    newest: Iterable[Receipt], covered: Iterable[Mapping[Partition, Sequence[OffsetRange]]]
) -> Offsets:
    """Return all offsets that are sealed.

    Args:
        newest: The newest receipt of each generation, which says where the generation starts.
        covered: The offsets that windows cover, and what the index has.
    """
    found: Offsets = {}
    for key, ranges in (each for held in covered for each in held.items()):
        found.setdefault(key, []).extend(ranges)
    for receipt in newest:
        for part in receipt.partitions:
            key = part.tp, receipt.topics.get(part.topic, "")
            found.setdefault(key, []).append(OffsetRange(part.start_so_far, part.range.end))
    return {key: merge(ranges) for key, ranges in found.items()}


def next_offsets(sealed: Offsets, loaded: Offsets) -> Offsets:
    """Return the offsets of the next batch: all that are sealed and not loaded, of one topic id.

    Of a topic that was deleted and created again, the same offset is another record. A filter by
    offsets can't tell them apart, so each id of such a name has a batch of its own, without other
    topics: in a file with one of them, there may be records of another id.
    """
    ids: dict[str, set[str]] = {}
    for tp, topic_id in sealed:
        ids.setdefault(tp.topic, set()).add(topic_id)
    every = {key: without(sealed[key], loaded.get(key, ())) for key in sorted(sealed)}
    new = {key: ranges for key, ranges in every.items() if ranges}
    once = {key: ranges for key, ranges in new.items() if len(ids[key[0].topic]) == 1}
    first = next(((tp.topic, topic_id) for tp, topic_id in new), None)
    return once or {
        (tp, topic_id): ranges
        for (tp, topic_id), ranges in new.items()
        if (tp.topic, topic_id) == first
    }


def batch_id(scope: Sequence[str], offsets: Offsets) -> str:
    """Return a batch's id: the same for the same offsets, also if the cursor's state was lost.

    Args:
        scope: Cluster, pipeline and consumer.
    """
    content = json.dumps([*scope, [row.content() for row in _rows(offsets)]], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def after(state: CursorDocument, batch: str) -> CursorDocument:
    """Return the state after a batch is acknowledged; the same if it was acknowledged last.

    Raises:
        ConfigError: When another batch is pending, or none.
    """
    pending = state.pending
    if pending is not None and pending.batch == batch:
        loaded = _offsets(state.loaded)
        for key, ranges in _offsets(pending.offsets).items():
            loaded[key] = merge([*loaded.get(key, ()), *ranges])
        change = {"loaded": _rows(loaded), "acknowledged": batch, "pending": None}
        return state.model_copy(update=change)
    if state.acknowledged == batch:
        return state
    waits = "none is pending" if pending is None else f"{pending.batch} is pending"
    raise ConfigError(
        f"batch {batch!r} of consumer {state.consumer} can't be acknowledged: {waits}. Acknowledge "
        "the id of the batch that `take` returned last; nothing was changed"
    )


def batch_file(root: str, file: ArchiveFile, wanted: Offsets) -> BatchFile | None:
    """Return what a sealed file may hold of some offsets; None for nothing."""
    offsets: dict[TopicPartition, list[OffsetRange]] = {}
    is_whole = True
    for each in file.sealed.contents if file.sealed is not None else ():
        span = OffsetRange(each.first_offset, each.last_offset + 1)
        own = wanted.get((each.tp, file.topic_ids.get(each.topic, "")), ())
        if parts := within(own, span):
            offsets[each.tp] = parts
        is_whole &= not subtract(span, parts)
    if not offsets:
        return None
    return BatchFile(f"{root.rstrip('/')}/{file.path}", offsets, file.records if is_whole else None)


def take(archive: str | Archive, consumer: str, *, state: str | None = None) -> Batch | None:
    """Return the batch that a consumer is to load; the same until it is acknowledged.

    The first batch of a consumer is all that is sealed.

    Args:
        archive: The archive, or its folder: a path or a URL that fsspec knows.
        consumer: A name for what loads: letters, digits and `._-`, at most 100.
        state: Folder for the cursor, for an archive that can't be written; None for the archive.

    Returns:
        None if nothing is new.

    Raises:
        ArchiveError: When the folder isn't an archive or can't be written, the state is damaged, or
            the archive no longer has all of the batch that waits to be acknowledged.
        ConfigError: When the name isn't one.
        LockedError: When another process took a batch for the consumer at the same moment.
        ManifestInvalidError: When manifest or receipts are damaged.
    """
    archive, files = _open(archive, consumer, state)
    version, known = _read(files, consumer)
    sound = refuse_unsound(archive.snapshot(), query=Query())
    left = sound.snapshot.skipped
    # Which files have a batch is asked of all, also of what the index says enough of here.
    snapshot = sound.snapshot if left is None else archive.snapshot()
    covered = [held_by(sound.windows), *([left.index.covered] if left is not None else [])]
    sealed = sealed_offsets(sound.newest.values(), covered)
    if known.pending is not None:
        offsets = _offsets(known.pending.offsets)
        _refuse_unsealed(archive, consumer, known.pending.batch, offsets, sealed)
        return _batch(archive, snapshot, known.pending.batch, offsets, is_repeated=True)
    offsets = next_offsets(sealed, _offsets(known.loaded))
    if not offsets:
        return None
    document = snapshot.document
    name = batch_id((document.cluster_id, document.pipeline, consumer), offsets)
    batch = _batch(archive, snapshot, name, offsets, is_repeated=False)
    pending = PendingRow(batch=name, offsets=_rows(offsets))
    if archive.own is not None:
        archive.identify()
    _write(files, known.model_copy(update={"pending": pending}), version)
    return batch


def acknowledge(
    archive: str | Archive, consumer: str, batch: str, *, state: str | None = None
) -> None:
    """Note that a batch is loaded, after the load has committed; it won't be given again.

    Once more does nothing.

    Args:
        archive: As in `take`.
        consumer: As in `take`.
        batch: Its id.
        state: As in `take`.

    Raises:
        ArchiveError: When the folder can't be written, or the state is damaged.
        ConfigError: When the batch is neither pending nor the one that was acknowledged last.
        LockedError: When another process has changed the cursor at the same moment.
    """
    _, files = _open(archive, consumer, state)
    version, known = _read(files, consumer)
    new = after(known, batch)
    if new is not known:
        _write(files, new, version)


@contextmanager
def new_files(
    archive: str | Archive, consumer: str, *, state: str | None = None
) -> Iterator[Batch | None]:
    """Take a batch, and acknowledge it when the block ends without an error; see `take`."""
    batch = take(archive, consumer, state=state)
    yield batch
    if batch is not None:
        acknowledge(archive, consumer, batch.id, state=state)


def _open(
    archive: str | Archive, consumer: str, state: str | None
) -> tuple[Archive, NumberedFiles]:
    if not _CONSUMER.fullmatch(consumer):
        raise ConfigError(
            f"consumer {consumer!r}: expected a name of at most 100 letters, digits and ._-, which "
            "begins with a letter or digit"
        )
    if not isinstance(archive, Archive):
        archive = Archive.at(archive)
    archive.require()
    if state is not None:
        archive = archive.keeping_state_in(state)
    return archive, NumberedFiles(archive.state / FOLDER / consumer)


def _read(files: NumberedFiles, consumer: str) -> tuple[str | None, CursorDocument]:
    stored = files.read()
    if stored is None:
        return None, CursorDocument(
            format_version=1, consumer=consumer, loaded=[], acknowledged=None, pending=None
        )
    document = CursorDocument.parse(files.path, stored.content)
    if document.consumer != consumer:
        raise ArchiveError(
            f"{files.path} has the state of consumer {document.consumer!r}, expected {consumer!r}; "
            "restore it from a copy"
        )
    return stored.version, document


def _write(files: NumberedFiles, document: CursorDocument, version: str | None) -> None:
    if not files.replace(document.content(), version):
        raise LockedError(
            f"another process has changed the cursor {files.path} meanwhile; nothing was changed. "
            "Let one task at a time use a consumer's name; a retry may help"
        )


def _refuse_unsealed(
    archive: Archive, consumer: str, name: str, offsets: Offsets, sealed: Offsets
) -> None:
    """Refuse a batch of which the archive no longer has all: its load would be taken for whole."""
    gone = [
        range_name(tp, r)
        for (tp, topic_id), ranges in offsets.items()
        for r in without(ranges, sealed.get((tp, topic_id), ()))
    ]
    if gone:
        raise ArchiveError(
            f"{archive.root}: {', '.join(gone[:5])} of batch {name!r} of consumer {consumer} isn't "
            "sealed any more: this is an older copy, or a roll lets the offsets be drained again. "
            "Restore the archive, or wait until a validation has sealed them. If the load has "
            "committed the batch, acknowledge it. Nothing was changed"
        )


def _batch(
    archive: Archive, snapshot: Snapshot, name: str, offsets: Offsets, *, is_repeated: bool
) -> Batch:
    live = archive_files(snapshot, offsets={tp: ranges for (tp, _), ranges in offsets.items()})
    found = (batch_file(str(archive.root), file, offsets) for file in live)
    segment = {
        "offsets": {str(tp): [[r.start, r.end] for r in rs] for (tp, _), rs in offsets.items()},
        "topics": {tp.topic: topic_id for tp, topic_id in offsets},
    }
    files = tuple(file for file in found if file is not None)
    return Batch(archive, name, files, (segment,), is_repeated)


def _rows(offsets: Offsets) -> list[CursorRow]:
    return [
        CursorRow(
            topic=tp.topic, topic_id=topic_id, partition=tp.partition, start=r.start, end=r.end
        )
        for (tp, topic_id), ranges in sorted(offsets.items())
        for r in ranges
    ]


def _offsets(rows: Iterable[CursorRow]) -> Offsets:
    found: Offsets = {}
    for row in rows:
        key = TopicPartition(row.topic, row.partition), row.topic_id
        found.setdefault(key, []).append(OffsetRange(row.start, row.end))
    return {key: merge(ranges) for key, ranges in found.items()}

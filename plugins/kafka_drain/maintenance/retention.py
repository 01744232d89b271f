"""Retention: delete files whose newest record is older than a number of days, and seal that.

A record may be dated after it was drained: microseconds sent as milliseconds, a wrong clock. Such a
date keeps a file until then, which the plan says; with `max_future_days`, it counts as the drain's.

First, the receipt of a window without files is written: it names the files and their offsets, and
from then on readers skip them. Then the files are deleted. The receipts that proved them stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.closed_segments import read_closed
from kafka_drain.archive.files import ArchiveFile
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.receipts import Receipt, SealedContent, records_of
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.archive.window import Window
from kafka_drain.clock import now_text
from kafka_drain.data_files.reader import read_offsets, topic_of
from kafka_drain.errors import DataFileError, ManifestInvalidError
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.intervals import from_iso, in_utc, milliseconds, time_text
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.proof.sealing import Identity, seal_deletion
from kafka_drain.storage.paths import quoted
from kafka_drain.windows.rewrite_groups import FileGroup
from kafka_drain.windows.window_jobs import freeze_window, seal_superseding

#: Number of files named that have a record dated after its drain.
NAMED = 5

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Deletion:
    """Files of the same topics that are past their retention.

    Attributes:
        before_ms: All of their records are older than this (Unix ms), or were drained before it and
            are dated later than `max_future_days` allows.
    """

    files: Sequence[ArchiveFile]
    topic_ids: dict[str, str]
    before_ms: int

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(file.bytes for file in self.files)

    @property
    def records(self) -> dict[TopicPartition, int]:
        """The number of records in the files, by partition."""
        return records_of(file.sealed for file in self.files if file.sealed)

    @property
    def dated_later(self) -> dict[str, SealedContent]:
        """Files' records, by path, that are dated later and count as of the time of their drain."""
        latest = {
            file.path: newest_in_future(file.sealed.contents, self.before_ms - 1)
            for file in self.files
            if file.sealed
        }
        return {path: content for path, content in latest.items() if content is not None}

    def line(self) -> str:
        """Return a line of text for the user that describes the deletion."""
        text = (
            f"{len(self.files):,} files, {self.bytes:,} bytes, {sum(self.records.values()):,} "
            f"records, all before {time_text(self.before_ms)}"
        )
        later = self.dated_later
        return text + (
            f"; of these, {_number(len(later), 'file')} by the time of the drain "
            f"(max_future_days), with records dated later: {_named(later)}"
            if later
            else ""
        )


def plan_deletions(
    snapshot: Snapshot,
    generations: Iterable[SnapshotGeneration],
    days: int,
    now: datetime,
    max_future_days: int | None = None,
) -> list[Deletion]:
    """Plan the deletion of old files in closed generations and windows, without changing anything.

    Args:
        snapshot: The archive.
        generations: Its closed generations.
        days: A file is too old if its newest record is older than this, as with `retention.ms`.
        max_future_days: A record dated more than this after its drain counts as of the time of the
            drain; None for no bound.

    Raises:
        ReceiptError: When a receipt is damaged.
    """
    before_ms = milliseconds(now - timedelta(days=days))
    by_topics: dict[tuple[tuple[str, str], ...], list[ArchiveFile]] = {}
    for file, drained_ms in _closed_files(snapshot, generations):
        assert file.sealed is not None
        if is_too_old(counted(file.sealed.contents, drained_ms, max_future_days), before_ms):
            by_topics.setdefault(tuple(sorted(file.topic_ids.items())), []).append(file)
    return [Deletion(files, dict(ids), before_ms) for ids, files in by_topics.items()]


def held_by_future(
    snapshot: Snapshot,
    generations: Iterable[SnapshotGeneration],
    days: int,
    now: datetime,
    max_future_days: int | None = None,
) -> list[str]:
    """Name the files that retention keeps because a record is dated later than now, or its drain.

    Takes and raises what `plan_deletions` does.
    """
    now_ms, before_ms = milliseconds(now), milliseconds(now - timedelta(days=days))
    latest, records = dict[str, SealedContent](), 0
    for file, drained_ms in _closed_files(snapshot, generations):
        assert file.sealed is not None
        contents = counted(file.sealed.contents, drained_ms, max_future_days)
        if newest := held_back(contents, drained_ms, before_ms, now_ms):
            latest[file.path] = newest
            records += file.records or 0
    if not latest:
        return []
    offer = (
        "max_future_days bounds that"
        if max_future_days is None
        else f"max_future_days is {max_future_days:,}"
    )
    return [
        f"{_number(len(latest), 'file')} with {_number(records, 'record')}, which retention_days "
        "can't delete before the newest record, dated in the future or after its drain, is that "
        f"old ({offer}): {_named(latest)}"
    ]


def _closed_files(
    snapshot: Snapshot, generations: Iterable[SnapshotGeneration]
) -> list[tuple[ArchiveFile, int]]:
    """Return the sealed files of closed generations and windows, and when each was drained."""
    closed = read_closed(snapshot, generations)
    receipts = [receipt for segments in closed for receipt in segments.receipts]
    drained = drained_times([*receipts, *(window.receipt for window in snapshot.fold.windows)])
    # A repair's file appears in all segments that may have records in it.
    found = {file.path: file for segments in closed for file in segments.files}
    return [(file, drained[file.path]) for file in found.values()]


def drained_times(receipts: Iterable[Receipt]) -> dict[str, int]:
    """Return by file when its records had been drained for sure (Unix ms).

    That is when its receipt was sealed; or an earlier one, if that says a later time: a clock that
    was set back makes no file older. What was rewritten counts from when that was sealed.
    """
    found, latest = dict[str, int](), 0
    for receipt in sorted(receipts, key=lambda each: each.journal):
        latest = max(latest, milliseconds(in_utc(from_iso(receipt.sealed_at))))
        found |= dict.fromkeys((file.path for file in receipt.files), latest)
    return found


def counted(
    contents: Iterable[SealedContent], drained_ms: int, max_future_days: int | None
) -> list[SealedContent]:
    """Return a file's contents with the newest times that count.

    Args:
        drained_ms: When they had been drained (Unix ms).
        max_future_days: A later time than this after the drain counts as the drain's; None for no
            bound.
    """
    if max_future_days is None:
        return list(contents)
    latest = drained_ms + max_future_days * DAY_MS
    return [
        replace(content, last_timestamp=drained_ms)
        if content.last_timestamp is not None and content.last_timestamp > latest
        else content
        for content in contents
    ]


def held_back(
    contents: Sequence[SealedContent], drained_ms: int, before_ms: int, now_ms: int
) -> SealedContent | None:
    """Return the latest wrong date that keeps a file; None if there is none.

    It is dated later than now; or later than its drain, by whose time the file were too old.

    Args:
        contents: The file's contents, with the times that count.
        drained_ms: When they had been drained (Unix ms).
        before_ms: Time before which a record is too old.
        now_ms: The current time.
    """
    if newest := newest_in_future(contents, now_ms):
        return newest
    if is_too_old(contents, before_ms) or not is_too_old(
        counted(contents, drained_ms, 0), before_ms
    ):
        return None
    return newest_in_future(contents, drained_ms)


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _named(latest: Mapping[str, SealedContent]) -> str:
    """Name the first files, by path, with the record dated the latest in each."""
    shown = [
        f"{path} ({content.tp}: {time_text(content.last_timestamp or 0)})"
        for path, content in sorted(latest.items())[:NAMED]
    ]
    return ", ".join(shown) + (" …" if len(latest) > NAMED else "")


def newest_in_future(contents: Iterable[SealedContent], now_ms: int) -> SealedContent | None:
    """Return the file's record dated the latest after a time; None if there is none."""
    future = [
        (content.last_timestamp, content)
        for content in contents
        if content.last_timestamp is not None and content.last_timestamp > now_ms
    ]
    return max(future, key=lambda each: each[0])[1] if future else None


def without_locked(
    deletions: Iterable[Deletion], locked: Collection[str]
) -> tuple[list[Deletion], list[str]]:
    """Leave out the files that the store refuses to delete: they would be deleted for readers only.

    Args:
        deletions: Deletions past their retention.
        locked: The files that the store locks.

    Returns:
        The deletions that can be made now, and the paths of the files left out.
    """
    found, left = list[Deletion](), list[str]()
    for deletion in deletions:
        left += [file.path for file in deletion.files if file.path in locked]
        if files := [file for file in deletion.files if file.path not in locked]:
            found.append(replace(deletion, files=files))
    return found, left


def is_too_old(contents: Sequence[SealedContent], before_ms: int) -> bool:
    """Return whether the newest record of a file, of any partition, is before a time.

    A file with a partition whose records have no timestamp is never too old: Kafka uses -1, or any
    negative number, for none.
    """
    return bool(contents) and all(
        content.last_timestamp is not None and 0 <= content.last_timestamp < before_ms
        for content in contents
    )


def seal_deletions(archive: Archive, deletions: Iterable[Deletion], *, run: str) -> list[Receipt]:
    """Seal the deletion of files, so that readers skip them; deletes nothing yet.

    Raises:
        ManifestInvalidError: When the offsets of a file can't be read from it.
        LockedError: When another run has replaced some of the files in the meantime.
    """
    return [_seal(archive, deletion, run=run) for deletion in deletions]


def _seal(archive: Archive, deletion: Deletion, *, run: str) -> Receipt:
    ranges, snapshot = _held(archive, deletion.files), archive.snapshot()
    window = Window(archive.root, f"retention_{snapshot.next_number:04d}")
    paths = sorted(file.path for file in deletion.files)
    freeze_window(
        window,
        ranges,
        kind=WindowKind.RETENTION,
        replaces=paths,
        file_format=deletion.files[0].file_format,
        partition_by=[],
        before=time_text(deletion.before_ms),
        replaced=FileGroup(ranges, paths, deletion.bytes, deletion.records).replaced(),
    )
    document = snapshot.document
    receipt = seal_deletion(
        [Gap(tp, r, GapReason.DELETED) for tp in sorted(ranges) for r in ranges[tp]],
        identity=Identity(document.pipeline, document.cluster_id, deletion.topic_ids),
        window=window.key,
        replaces=paths,
        sealed_at=now_text(),
    )
    return seal_superseding(archive, window, receipt, run=run)


def _held(
    archive: Archive, files: Iterable[ArchiveFile]
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the exact offsets in the files."""
    held: dict[TopicPartition, list[OffsetRange]] = {}
    for file in files:
        assert file.sealed is not None
        if all(content.is_dense for content in file.sealed.contents):
            for content in file.sealed.contents:
                held.setdefault(content.tp, []).append(OffsetRange(content.first, content.last + 1))
            continue
        try:
            for found in read_offsets(
                archive.root / file.path, file.file_format, topic_of(file.path)
            ):
                held.setdefault(found.tp, []).extend(found.ranges)
        except (DataFileError, FileNotFoundError) as error:
            place = quoted(archive.root)
            raise ManifestInvalidError(
                f"{file.path} can't be read ({error}); run `kafka-drain validate {place}` and "
                f"`kafka-drain repair {place} --apply` first. Nothing was deleted"
            ) from error
    return {tp: merge(ranges) for tp, ranges in held.items()}

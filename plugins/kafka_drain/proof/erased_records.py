"""Find the records in an archive's files that its erasures name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upath import UPath

from kafka_drain.archive.erasure_withdrawal import ways_out
from kafka_drain.archive.erasures import Erasure, in_force, read_erasures
from kafka_drain.archive.files import ArchiveFile
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import ReceiptError
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.window import Window
from kafka_drain.errors import (
    ArchiveError,
    DataFileError,
    KeyUnavailableError,
    ManifestInvalidError,
)
from kafka_drain.offsets import OffsetRange, Ranges, TopicPartition, count, merge
from kafka_drain.progress import Progress, Ticker
from kafka_drain.storage.paths import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_drain.proof.erasure_selection import Named

#: What to do about files whose master key can't be had.
LOST_KEY = (
    "Let this process reach the master key. If it is lost for good, nobody can read these records "
    "any more, and retention_days deletes them without it"
)


@dataclass(frozen=True)
class FoundRecords:
    """Records in a file that erasures name.

    Attributes:
        ranges: Their offsets, sorted and disjoint for each partition.
        records: Their number by erasure's number; one that several name counts for each of them.
    """

    file: ArchiveFile
    ranges: Ranges
    records: Mapping[int, int]

    @property
    def number(self) -> int:
        """The number of different records."""
        return sum(count(ranges) for ranges in self.ranges.values())


def to_search(
    snapshot: Snapshot, files: Iterable[ArchiveFile], erasures: Sequence[Erasure]
) -> list[tuple[ArchiveFile, list[Erasure]]]:
    """Return the files that may hold records of erasures, each with these.

    Left out are files that an erasure was carried out on, or whose receipts rule it out.

    Args:
        snapshot: The archive.

    Raises:
        ReceiptError: When a receipt is damaged.
    """
    # Not at the top: pyarrow takes longer to import than most archives take to list.
    from kafka_drain.proof.erasure_selection import Named

    files = list(files)
    if not files or not erasures:
        return []
    names = _receipts_after(snapshot, {file.owner.name for file in files}, erasures)
    named = {erasure.number: Named(erasure.document) for erasure in erasures}
    found = []
    for file in files:
        due = [
            erasure
            for erasure in erasures
            if not _is_searched(file, names, erasure) and _may_be_in(named[erasure.number], file)
        ]
        if due:
            found.append((file, due))
    return found


def _receipts_after(
    snapshot: Snapshot, owners: Collection[str], erasures: Iterable[Erasure]
) -> dict[str, str]:
    """Return the receipt of each file of some generations that an erasure wasn't carried out on."""
    names: dict[str, str] = {}
    for generation in snapshot.generations:
        if generation.name not in owners:
            continue
        searched = [
            erasure.done.generations.get(str(generation.number), "") if erasure.done else ""
            for erasure in erasures
        ]
        for name in generation.receipt_names():
            if name > min(searched):
                names |= {file.path: name for file in generation.read_receipt(name).files}
    return names


def _is_searched(file: ArchiveFile, names: Mapping[str, str], erasure: Erasure) -> bool:
    if file.sealed is None:
        return False
    if isinstance(file.owner, Window):
        return erasure.has_searched(file.owner.key, "")
    assert isinstance(file.owner, Generation)
    return file.path not in names or erasure.has_searched(str(file.owner.number), names[file.path])


def _may_be_in(named: Named, file: ArchiveFile) -> bool:
    if file.sealed is None:
        return True
    return any(
        named.may_be_in(content, file.topic_ids.get(content.topic, ""))
        for content in file.sealed.contents
    )


def find_records(
    root: UPath, wanted: Sequence[tuple[ArchiveFile, Sequence[Erasure]]]
) -> Iterator[FoundRecords]:
    """Yield the files that hold records of erasures, with these records.

    Args:
        wanted: The files, each with the erasures whose records are looked for.

    Raises:
        ManifestInvalidError: When a file can't be read.
        KeyUnavailableError: When its master key can't be had; says what to do.
    """
    ticker = Ticker(f"erase {root}", Progress("files", len(wanted)))
    for number, (file, erasures) in enumerate(wanted, start=1):
        try:
            found = _of_file(root, file, erasures)
        except (DataFileError, FileNotFoundError) as error:
            raise ManifestInvalidError(
                f"{file.path} can't be read ({error}); run `kafka-drain validate {quoted(root)}` "
                f"and `kafka-drain repair {quoted(root)} --apply` first. Nothing was changed"
            ) from error
        except KeyUnavailableError as error:
            raise KeyUnavailableError(
                f"{file.path} can't be searched: {error}. {LOST_KEY}. Nothing was changed"
            ) from error
        if found.ranges:
            yield found
        ticker.at(number)


def _of_file(root: UPath, file: ArchiveFile, erasures: Sequence[Erasure]) -> FoundRecords:
    from kafka_drain.proof.erasure_selection import Named

    named = {erasure.number: Named(erasure.document) for erasure in erasures}
    columns = list(dict.fromkeys(name for each in named.values() for name in each.columns))
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    records = dict.fromkeys(named, 0)
    for batch, topic in _batches(root, file, columns):
        topic_id = file.topic_ids.get(topic, "")
        masks = {number: each.rows(batch, topic, topic_id) for number, each in named.items()}
        for number, mask in masks.items():
            records[number] += mask.true_count
        _add(ranges, batch, topic, list(masks.values()))
    return FoundRecords(file, {tp: merge(rs) for tp, rs in sorted(ranges.items())}, records)


def _batches(
    root: UPath, file: ArchiveFile, columns: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, str]]:
    """Yield a file's rows with the given columns, and the topic of each batch."""
    import pyarrow.compute as pc

    from kafka_drain.data_files.reader import read_columns, topic_of

    path, topic = root / file.path, topic_of(file.path)
    needed = ["partition", "offset", *columns] + ["topic"] * (topic is None)
    for batch in read_columns(path, file.file_format, needed):
        if topic is not None:
            yield batch, topic
            continue
        names = batch["topic"].fill_null("")
        for name in sorted(pc.unique(names).to_pylist()):
            yield batch.filter(pc.equal(names, name)), name


def _add(
    ranges: dict[TopicPartition, list[OffsetRange]],
    batch: pa.RecordBatch,
    topic: str,
    masks: Sequence[pa.BooleanArray],
) -> None:
    """Add the offsets of the rows that any mask names."""
    for mask in masks:
        if mask.true_count:
            rows = batch.filter(mask)
            for partition, offset in zip(
                rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True
            ):
                tp = TopicPartition(topic, partition)
                own = ranges.setdefault(tp, [])
                # Not an object for each record, where a whole file is erased.
                if own and own[-1].end == offset:
                    own[-1] = OffsetRange(own[-1].start, offset + 1)
                else:
                    own.append(OffsetRange(offset, offset + 1))


def refuse_unerased(snapshot: Snapshot, files: Iterable[ArchiveFile]) -> None:
    """Refuse to send files with records that an erasure names and that aren't erased yet.

    Raises:
        ArchiveError: Names the erasure; nothing was sent.
        ManifestInvalidError: When a receipt is damaged, or a file can't be read.
    """
    erasures = in_force(read_erasures(snapshot.root))
    try:
        wanted = to_search(snapshot, files, erasures)
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{snapshot.root}: a receipt is damaged ({error}); run `kafka-drain validate "
            f"{quoted(snapshot.root)}` to see which"
        ) from error
    for found in find_records(snapshot.root, wanted):
        named = [erasure for erasure in erasures if found.records.get(erasure.number)]
        later = " (drained after it)" if all(each.done for each in named) else ""
        raise ArchiveError(
            f"{found.file.path} holds {found.number:,} records that {', '.join(map(str, named))} "
            f"names and that aren't erased yet{later}. {ways_out(snapshot, named[0])}. Nothing was "
            "sent"
        )

"""Asset events: the sealed segments that a run publishes, its events and its summary.

Each segment is published at least once, if a run that ended between its note and its success is
retried or cleared: whether its event was sent is known to Airflow alone. The notes are in the
archive's folder `told`: `generations.json` says which receipts of generations were published,
`windows/<key>.json` that a window was. A run that is retried or cleared publishes the same segments
again, also if other runs have published theirs since; of generations, if it is among the last
`RUNS` that published any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ToldDocument, ToldRow, ToldWindowDocument
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import SnapshotGeneration
from kafka_drain.offsets import OffsetRange, merge
from kafka_drain.proof.sealed_files import readable_receipts

#: Number of newest segments that get their own entry in an event; fewer if that would exceed
#: RANGES partition ranges. Older ones are combined, one entry for each generation.
SEGMENTS = 100
RANGES = 100_000

#: Number of earlier runs whose segments are noted, so that they can be cleared.
RUNS = 500

#: Number of files, and of topics, that a summary names.
FILES = 100
TOPICS = 100
_OF_TOPIC = ("partitions", "offsets", "records")

Event = dict[str, Any]


@dataclass(frozen=True)
class Publication:
    """The part of an archive's generations that a run is to publish.

    Attributes:
        run: The run's id; None for a run that isn't repeated.
        before: The newest receipt published before the run, by the generation's number.
        earlier: The other runs that have published any, oldest first, and what this run has
            published before they did.
    """

    archive: Archive
    run: str | None
    before: dict[str, str]
    earlier: Sequence[ToldRow] = ()

    def receipts(self, sealed: Sequence[Receipt] = ()) -> Iterator[Receipt]:
        """Yield the receipts to publish, oldest first.

        Damaged receipts are skipped: validation reports them as findings. Generations before the
        newest published one are closed: of these, only what this run has sealed is published, now
        or before it was cleared.

        Args:
            sealed: The receipts that this run has sealed.
        """
        newest = max(map(int, self.before), default=0)
        for generation in self.archive.snapshot().generations:
            told = self.before.get(str(generation.number), "")
            yield from readable_receipts(generation, self._again(generation))
            if generation.number < newest:
                own = (found for found in sealed if found.generation == generation.number)
                yield from (found for found in own if found.name > told)
            else:
                names = [name for name in generation.receipt_names() if name > told]
                yield from readable_receipts(generation, names)

    def _again(self, generation: SnapshotGeneration) -> list[str]:
        """Return the names of a generation's receipts that this run has published before others."""
        number = str(generation.number)
        own = [
            (row.before.get(number, ""), row.told[number])
            for row in self.earlier
            if row.run == self.run and number in row.told
        ]
        names = generation.receipt_names() if own else ()
        return [name for name in names if any(after < name <= last for after, last in own)]

    def note(self, told: Iterable[Receipt]) -> None:
        """Note the given receipts as published.

        Args:
            told: The receipts, oldest first.

        Raises:
            ArchiveError: When the folder isn't writable.
        """
        now = dict(self.before)
        for receipt in told:
            number = str(receipt.generation)
            now[number] = max(receipt.name, now.get(number, ""))
        more = {"earlier": list(self.earlier[-RUNS:])} if self.earlier else {}
        ToldDocument(run=self.run, before=self.before, told=now, **more).write(_path(self.archive))


def begin_publication(archive: Archive, run: str | None) -> Publication:
    """Begin a run's publication. Must be called before the run seals anything.

    An archive without a note, such as one of an older release, gets one here: segments sealed
    before count as published, or as another run's. If the note can't be read, everything is
    published again.

    Raises:
        ArchiveError: When the folder isn't writable.
    """
    path = _path(archive)
    if not path.is_file():
        sealed = {str(g.number): g.receipt_names() for g in archive.snapshot().generations}
        newest = {number: names[-1] for number, names in sealed.items() if names}
        ToldDocument(run=run, before=newest, told=newest).create(path)
    document = ToldDocument.read_note(path)
    if document is None:
        return Publication(archive, run, {})
    if run is not None and document.run == run:
        return Publication(archive, run, document.before, document.earlier or ())
    return Publication(archive, run, document.told, document.rows())


def unpublished_windows(
    archive: Archive, receipts: Iterable[Receipt], run: str | None
) -> list[Receipt]:
    """Return the receipts of windows that no other run has published, according to the notes."""
    return [receipt for receipt in receipts if not _is_published(archive, receipt, run)]


def _is_published(archive: Archive, receipt: Receipt, run: str | None) -> bool:
    note = ToldWindowDocument.read_note(_window_path(archive, receipt))
    if note is None:
        return False
    return note.sha256 == receipt.sha256 and (run is None or note.run != run)


def note_windows(archive: Archive, receipts: Iterable[Receipt], run: str | None) -> None:
    """Note that windows were published.

    Raises:
        ArchiveError: When the folder isn't writable.
    """
    for receipt in receipts:
        note = ToldWindowDocument(run=run, sha256=receipt.sha256)
        note.write(_window_path(archive, receipt))


def _path(archive: Archive) -> UPath:
    return archive.root / "told" / "generations.json"


def _window_path(archive: Archive, receipt: Receipt) -> UPath:
    return archive.root / "told" / "windows" / f"{receipt.window}.json"


def segment_events(sealed: Iterable[Receipt]) -> list[Event]:
    """Return the entries of an asset event about sealed segments, oldest first; none is left out.

    Returns:
        receipts (the number that the entry covers; 1 unless there are very many), receipt (the
        newest one's file, relative to the archive), sha256 (that receipt's own), generation (None
        for a window), window (None for a generation's segment), first_batch, last_batch, sealed_at,
        records, files (count), bytes, partitions (number with new offsets) and offsets: ranges by
        `topic-partition`, each with first and end (exclusive), and topics: their ids by name. A
        generation's segment has one range for each, a window may have more.
    """
    events = [_event(receipt) for receipt in sealed]
    widest = max((event["partitions"] for event in events), default=0)
    own = min(SEGMENTS, max(RANGES // max(widest, 1), 1))
    older: dict[tuple[int | None, str | None], Event] = {}
    for event in events[:-own]:
        key = (event["generation"], event["window"])
        older[key] = _together(older[key], event) if key in older else event
    return [*older.values(), *events[-own:]]


def _event(receipt: Receipt) -> Event:
    drained: dict[str, list[list[int]]] = {}
    for part in receipt.partitions:
        if len(part.range):
            drained.setdefault(str(part.tp), []).append([part.range.start, part.range.end])
    return {
        "receipts": 1,
        "receipt": receipt.where,
        "sha256": receipt.sha256,
        "generation": receipt.generation,
        "window": receipt.window or None,
        "first_batch": receipt.first_batch,
        "last_batch": receipt.last_batch,
        "sealed_at": receipt.sealed_at,
        "records": receipt.records,
        "files": len(receipt.files),
        "bytes": sum(file.bytes for file in receipt.files),
        "partitions": len(drained),
        "offsets": drained,
        "topics": {part.topic: receipt.topics.get(part.topic, "") for part in receipt.partitions},
    }


def _together(older: Event, newer: Event) -> Event:
    """Combine two entries of the same generation; the newer one's hash proves both."""
    offsets = dict(older["offsets"])
    for name, ranges in newer["offsets"].items():
        whole = merge(OffsetRange(start, end) for start, end in [*offsets.get(name, ()), *ranges])
        offsets[name] = [[r.start, r.end] for r in whole]
    sums = {key: older[key] + newer[key] for key in ("receipts", "records", "files", "bytes")}
    return {
        **newer,
        **sums,
        "first_batch": older["first_batch"],
        "partitions": len(offsets),
        "offsets": offsets,
        "topics": older["topics"] | newer["topics"],
    }


def sealed_summary(archive: str, sealed: Sequence[Receipt]) -> dict[str, Any]:
    """Return a summary of sealed segments as JSON types, small enough for an XCom.

    Args:
        archive: The archive's path or URL.
        sealed: The receipts of the segments, oldest first.

    Returns:
        archive, segments, records, offsets, files (count) and bytes; topics: partitions (number
        with new offsets), offsets and records of the first hundred topics by name; topics_left_out;
        paths: the first hundred files, as absolute paths or URLs; and receipts, which name all
        files: for each generation and window, the first and the last receipt, relative to the
        archive, and how many they are. `kafka_drain.reading.sealed_paths` returns all files.
    """
    topics: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_OF_TOPIC, 0))
    partitions = set()
    for receipt in sealed:
        for part in receipt.partitions:
            if len(part.range):
                of_topic = topics[part.topic]
                of_topic["partitions"] += part.tp not in partitions
                of_topic["offsets"] += len(part.range)
                of_topic["records"] += part.records
                partitions.add(part.tp)
    files = [file for receipt in sealed for file in receipt.files]
    return {
        "archive": archive,
        "segments": len(sealed),
        "records": sum(receipt.records for receipt in sealed),
        "offsets": sum(of_topic["offsets"] for of_topic in topics.values()),
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
        "topics": {name: topics[name] for name in sorted(topics)[:TOPICS]},
        "topics_left_out": max(len(topics) - TOPICS, 0),
        "paths": [f"{archive.rstrip('/')}/{file.path}" for file in files[:FILES]],
        "receipts": _receipts(sealed),
    }


def _receipts(sealed: Sequence[Receipt]) -> list[dict[str, Any]]:
    entries: dict[tuple[int | None, str], dict[str, Any]] = {}
    for receipt in sealed:
        new = {"first": receipt.where, "last": receipt.where, "receipts": 0}
        entry = entries.setdefault((receipt.generation, receipt.window), new)
        entry["last"] = receipt.where
        entry["receipts"] += 1
    return list(entries.values())

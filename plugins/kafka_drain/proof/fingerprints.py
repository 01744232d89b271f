"""The order-independent fingerprint of a segment's records: XOR of the xxHash64 of each record.

Spark computes it during the drain from what it read from Kafka, before writing anything to a file:
`bit_xor(xxhash64(topic, partition, offset, timestamp, timestampType, key, value, headers))`. The
drain records it next to the generation's receipts; validation compares the files with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from upath import UPath

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.window import range_rows, ranges_of
from kafka_drain.data_files.reader import read_records, topic_of
from kafka_drain.data_files.xxhash64 import records_fingerprint
from kafka_drain.offsets import (
    OffsetRange,
    TopicPartition,
    from_spark_json,
    merge,
    ranges_between,
)
from kafka_drain.proof.content_checks import Taken, together
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.storage.json_files import read_note, write_document

__all__ = [
    "BatchNote",
    "file_fingerprint",
    "note_name",
    "noted_content",
    "notes_fit",
    "parse_note",
    "write_fingerprints",
]

BATCH_BYTES = 32 << 20

Ranges = Mapping[TopicPartition, Sequence[OffsetRange]]


@dataclass(frozen=True, slots=True)
class BatchNote:
    """A drain's note on one batch, or the combined notes of several.

    Attributes:
        taken: What Spark read.
        ranges: The offsets that were read; None in a note written by an older release.
        skipped: Offsets that Kafka no longer had when the drain started.
    """

    taken: Taken
    ranges: Mapping[TopicPartition, OffsetRange] | None
    skipped: Ranges


def note_name(generation: Generation, batch: int) -> str:
    """Return the path of a batch's note, relative to the archive."""
    return f"{generation.name}/fingerprints/{batch:012d}.json"


def write_fingerprints(
    generation: Generation, batches: Iterable[Mapping[str, Any]], skipped: Ranges | None = None
) -> None:
    """Write a note with the fingerprint that Spark computed for each batch.

    Args:
        generation: The generation of the batches.
        batches: For each batch its `batch` id, `records`, `fingerprint`, `start` and `end`; the
            last two are offsets in Spark's JSON form.
        skipped: Offsets that Kafka no longer had when the drain started.
    """
    more = {"skipped": range_rows(skipped)} if skipped else {}
    for batch in batches:
        write_document(generation.root / note_name(generation, batch["batch"]), {**batch, **more})


def file_fingerprint(root: UPath, path: str, file_format: str) -> int:
    """Read all records in a file, given relative to the archive, and return their fingerprint.

    Raises:
        DataFileError: When it isn't a file of the format.
        OSError: When it is missing or can't be read.
    """
    return records_fingerprint(read_records(root / path, file_format, BATCH_BYTES), topic_of(path))


def noted_content(generation: Generation, part: Segment) -> BatchNote | None:
    """Return what Spark read of a segment, according to the drains' notes.

    Returns:
        None when a drain was killed before it could write its note, when a note can't be read (a
        power cut may have left an empty file), or when a note describes another batch with the same
        number: the checkpoint and manifest have since been restored to an older batch.
    """
    notes: list[BatchNote] = []
    for batch in range(part.first_batch, part.last_batch + 1):
        found = read_note(generation.root / note_name(generation, batch), "records", "fingerprint")
        note = parse_note(found) if found is not None else None
        if note is None:
            return None
        notes.append(note)
    if not notes_fit(notes, part.ranges):
        return None
    skipped: dict[TopicPartition, list[OffsetRange]] = {}
    for note in notes:
        for tp, ranges in note.skipped.items():
            skipped[tp] = merge([*skipped.get(tp, []), *ranges])
    return BatchNote(together(note.taken for note in notes), part.ranges, skipped)


def parse_note(document: Mapping[str, Any]) -> BatchNote | None:
    """Parse a batch's note; return None when it isn't valid."""
    records, fingerprint = document.get("records"), document.get("fingerprint")
    if type(records) is not int or records < 0 or not isinstance(fingerprint, str):
        return None
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        ranges = None
        if "end" in document:
            start, end = from_spark_json(document["start"]), from_spark_json(document["end"])
            ranges = {tp: r for tp, r in ranges_between(start, end) if len(r)}
        value = int(fingerprint, 16)
        skipped = ranges_of(document.get("skipped", []))
        if 0 <= value < 1 << 64:
            return BatchNote(Taken(records, f"{value:016x}"), ranges, skipped)
    return None


def notes_fit(notes: Sequence[BatchNote], ranges: Mapping[TopicPartition, OffsetRange]) -> bool:
    """Return whether the notes cover exactly the offsets that the batches read, each once.

    Notes of an older release don't record their offsets and are accepted without this check.

    Args:
        notes: The note of each batch, oldest first.
        ranges: What the batches read together, according to the checkpoint.
    """
    known = [note.ranges for note in notes if note.ranges is not None]
    if len(known) < len(notes):
        return True
    for tp, wanted in ranges.items():
        at = wanted.start
        for found in (note[tp] for note in known if tp in note):
            if found.start != at:
                return False
            at = found.end
        if at != wanted.end:
            return False
    return True

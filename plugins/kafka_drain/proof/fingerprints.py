"""The order-independent fingerprint of a segment's records: XOR of the xxHash64 of each record.

Spark computes it during the drain from what it read from Kafka, before writing anything to a file:
`bit_xor(xxhash64(topic, partition, offset, timestamp, timestampType, key, value, headers))`. The
drain notes it for each batch, in the generation's folder `fingerprints`; validation compares the
files with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from upath import UPath

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.window import ranges_of
from kafka_drain.offsets import (
    OffsetRange,
    Ranges,
    TopicPartition,
    from_spark_json,
    merge,
    ranges_between,
)
from kafka_drain.proof.content_checks import Tally, together
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.storage.json_files import read_note, write_document


@dataclass(frozen=True, slots=True)
class BatchNote:
    """A drain's note on one batch, or the combined notes of several.

    Attributes:
        taken: The records that Spark read.
        ranges: The offsets that were read; None in a note written by an older release.
        skipped: Offsets that Kafka no longer had when the drain started.
    """

    taken: Tally
    ranges: Mapping[TopicPartition, OffsetRange] | None
    skipped: Ranges


def combined(
    notes: Sequence[BatchNote], ranges: Mapping[TopicPartition, OffsetRange]
) -> BatchNote | None:
    """Combine the notes of a segment's batches, oldest first; None unless they fit it.

    Args:
        notes: The note of each batch.
        ranges: Offsets of all the batches, according to the checkpoint.
    """
    if not notes_fit(notes, ranges):
        return None
    skipped: dict[TopicPartition, list[OffsetRange]] = {}
    for note in notes:
        for tp, parts in note.skipped.items():
            skipped[tp] = merge([*skipped.get(tp, []), *parts])
    return BatchNote(together(note.taken for note in notes), ranges, skipped)


def parse_note(document: Mapping[str, Any]) -> BatchNote | None:
    """Parse a batch's note; return None when it isn't valid."""
    records, fingerprint = document.get("records"), document.get("fingerprint")
    if type(records) is not int or records < 0 or not isinstance(fingerprint, str):
        return None
    with suppress(ValueError, TypeError, KeyError):
        by_partition = None
        if "by_partition" in document:
            by_partition = from_spark_json(document["by_partition"])
            numbers = by_partition.values()
            if sum(numbers) != records or any(number < 0 for number in numbers):
                return None
        ranges = None
        if "end" in document:
            start, end = from_spark_json(document["start"]), from_spark_json(document["end"])
            ranges = {tp: r for tp, r in ranges_between(start, end) if len(r)}
        value = int(fingerprint, 16)
        skipped = ranges_of(document.get("skipped", []))
        if 0 <= value < 1 << 64:
            return BatchNote(Tally(records, f"{value:016x}", by_partition), ranges, skipped)
    return None


def notes_fit(notes: Sequence[BatchNote], ranges: Mapping[TopicPartition, OffsetRange]) -> bool:
    """Return whether the notes cover exactly the offsets that the batches read, each once.

    Notes of an older release don't record their offsets and are accepted without this check.

    Args:
        notes: The note of each batch, oldest first.
        ranges: Offsets of all the batches, according to the checkpoint.
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


def notes_folder(generation: Generation) -> UPath:
    """Return the folder of a generation's notes, one for each batch."""
    return generation.folder / "fingerprints"


def note_name(generation: Generation, batch: int) -> str:
    """Return the path of a batch's note, relative to the archive."""
    return f"{generation.name}/fingerprints/{batch:012d}.json"


def write_notes(generation: Generation, notes: Iterable[Mapping[str, Any]]) -> None:
    """Write notes of the records that Spark read in each batch.

    Args:
        generation: The generation of the batches.
        notes: For each batch its `batch` id, `records` and `fingerprint`; `by_partition` (number of
            records), `start` and `end` in Spark's JSON form of offsets; and `skipped`, the offsets
            that Kafka no longer had when the drain started.
    """
    for note in notes:
        write_document(generation.root / note_name(generation, note["batch"]), dict(note))


def is_noted(generation: Generation, batch: int) -> bool:
    """Return whether a batch has a readable note."""
    return _note(generation, batch) is not None


def _note(generation: Generation, batch: int) -> BatchNote | None:
    found = read_note(generation.root / note_name(generation, batch), "records", "fingerprint")
    return parse_note(found) if found is not None else None


def noted_content(generation: Generation, part: Segment) -> BatchNote | None:
    """Return the content that Spark read of a segment, according to the drains' notes.

    Returns:
        None when a drain was killed before it could write its note, when a note can't be read (a
        power cut may have left an empty file), or when a note describes another batch with the same
        number: the checkpoint and manifest have since been restored to an older batch.
    """
    notes: list[BatchNote] = []
    for batch in range(part.first_batch, part.last_batch + 1):
        note = _note(generation, batch)
        if note is None:
            return None
        notes.append(note)
    return combined(notes, part.ranges)

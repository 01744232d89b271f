"""The order-independent fingerprint of a segment's records: XOR of the xxHash64 of each record.

Spark computes it during the drain from what it read from Kafka, before writing anything to a file:
`bit_xor(xxhash64(topic, partition, offset, timestamp, timestampType, key, value, headers))`. The
drain records it next to the generation's receipts, in notes that are parsed here; validation
compares the files with it. `note_files.py` reads and writes the notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kafka_drain.archive.window import ranges_of
from kafka_drain.offsets import OffsetRange, TopicPartition, from_spark_json, merge, ranges_between
from kafka_drain.proof.content_checks import Taken, together

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


def combined(
    notes: Sequence[BatchNote], ranges: Mapping[TopicPartition, OffsetRange]
) -> BatchNote | None:
    """Combine the notes of a segment's batches, oldest first; None unless they fit it.

    Args:
        notes: The note of each batch.
        ranges: What the batches read together, according to the checkpoint.
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
            return BatchNote(Taken(records, f"{value:016x}", by_partition), ranges, skipped)
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

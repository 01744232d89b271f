"""Read and write the drains' notes of what Spark read of each batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.window import range_rows
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.fingerprints import BatchNote, combined, parse_note
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.storage.json_files import read_note, write_document

__all__ = ["note_name", "noted_content", "write_fingerprints"]

Ranges = Mapping[TopicPartition, Sequence[OffsetRange]]


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
    return combined(notes, part.ranges)

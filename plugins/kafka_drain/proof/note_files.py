"""Read and write the drains' notes of what Spark read of each batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from upath import UPath

from kafka_drain.archive.generation import Generation
from kafka_drain.proof.fingerprints import BatchNote, combined, parse_note
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.storage.json_files import read_note, write_document


def notes_folder(generation: Generation) -> UPath:
    """Return the folder of a generation's notes, one for each batch."""
    return generation.folder / "fingerprints"


def note_name(generation: Generation, batch: int) -> str:
    """Return the path of a batch's note, relative to the archive."""
    return f"{generation.name}/fingerprints/{batch:012d}.json"


def write_notes(generation: Generation, notes: Iterable[Mapping[str, Any]]) -> None:
    """Write what Spark read of each batch.

    Args:
        generation: The generation of the batches.
        notes: For each batch its `batch` id, `records` and `fingerprint`; `by_partition` (number of
            records), `start` and `end` in Spark's JSON form of offsets; and `skipped`, the offsets
            that Kafka no longer had when the drain started.
    """
    for note in notes:
        write_document(generation.root / note_name(generation, note["batch"]), dict(note))


def is_noted(generation: Generation, batch: int) -> bool:
    """Return whether a readable note says what Spark read of a batch."""
    return _note(generation, batch) is not None


def _note(generation: Generation, batch: int) -> BatchNote | None:
    found = read_note(generation.root / note_name(generation, batch), "records", "fingerprint")
    return parse_note(found) if found is not None else None


def noted_content(generation: Generation, part: Segment) -> BatchNote | None:
    """Return what Spark read of a segment, according to the drains' notes.

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

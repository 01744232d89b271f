"""The files that the manifest commits, read for what they hold. Readers ignore all others."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_drain.archive import Generation
from kafka_drain.data_files import DataFileError, read_offsets, topic_of
from kafka_drain.findings import Finding, Reason
from kafka_drain.manifest import Manifest, SinkFile
from kafka_drain.offset_checks import Held
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import Progress

__all__ = ["read_committed_files"]

PROGRESS_SECONDS = 2.0


def read_committed_files(
    generation: Generation, manifest: Manifest, file_format: str, say: Callable[[str], None]
) -> tuple[list[Held], list[Finding]]:
    """Look at each committed file: is it there, has it its size, which offsets does it hold?

    Args:
        generation: Whose files.
        manifest: Which files.
        file_format: Their format.
        say: Takes a line of progress every two seconds.

    Returns:
        What the readable files hold, and what is wrong with the others.
    """
    held: list[Held] = []
    findings: list[Finding] = []
    progress = Progress("files", len(manifest.files))
    shown = time.monotonic()
    for number, sink_file in enumerate(manifest.files.values(), start=1):
        found = _read_file(generation, sink_file, file_format, held)
        if found is not None:
            findings.append(found)
        if time.monotonic() - shown >= PROGRESS_SECONDS:
            shown = time.monotonic()
            say(f"validate: {progress.line(number)}")
    return held, findings


def _read_file(
    generation: Generation, sink_file: SinkFile, file_format: str, held: list[Held]
) -> Finding | None:
    where = f"{generation.data_name}/{sink_file.path}"
    path = generation.data / sink_file.path
    try:
        size = path.stat().st_size
        if size != sink_file.size:
            detail = f"{size:,} bytes, the manifest says {sink_file.size:,}"
            return Finding(Reason.FILE_SIZE, where, detail)
        for offsets in read_offsets(path, file_format, topic_of(sink_file.path)):
            held.append(
                Held(
                    tp=TopicPartition(offsets.topic, offsets.partition),
                    path=where,
                    ranges=offsets.ranges,
                    records=offsets.records,
                    duplicates=offsets.duplicates,
                    batch=sink_file.batch,
                    ascending=offsets.ascending,
                )
            )
    except FileNotFoundError:
        return Finding(Reason.FILE_MISSING, where, f"listed in manifest file {sink_file.log}")
    except DataFileError as error:
        return Finding(Reason.FILE_CORRUPT, where, str(error))
    return None

"""Compare what a repair has read again with what Spark read, in batches that aren't sealed yet.

Kafka may have other records at these offsets by now: its log was rewritten since.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_drain.archive.generation_state import read_state
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.errors import DataLossError
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.committed_file import read_file
from kafka_drain.proof.content_checks import Tally, content_of
from kafka_drain.proof.fingerprints import noted_content
from kafka_drain.proof.offset_checks import segments, without_held
from kafka_drain.proof.replaced_files import RecordComparison
from kafka_drain.proof.replacement import Replacement, ReplacementMatch, judge_lost, named, rest_of
from kafka_drain.storage.paths import quoted


def refuse_other_records(snapshot: Snapshot, receipt: Receipt, file_format: str) -> None:
    """Refuse a repair's window that has other records than Spark read at these offsets.

    Args:
        snapshot: The archive.
        receipt: The window's receipt, which isn't sealed yet.
        file_format: The format of its files.

    Raises:
        DataLossError: Names the offsets, and the ways on.
        DataFileError: When a file of the window can't be read.
    """
    others = compare_with_read(snapshot, receipt, file_format)
    if not others:
        return
    raise DataLossError(
        f"window {receipt.window}: Kafka now holds other records at "
        f"{named(Replacement(others).names)} (topic:partition:start-end) than Spark read there, in "
        "batches that aren't sealed yet: the log was rewritten since, as after an unclean "
        "election, or another file of the "
        "batch isn't as it was written. Nothing was replaced. Restore the files from a copy, or "
        f"run `kafka-drain roll {quoted(snapshot.root)} --leave-unsealed`: the next generation "
        "drains what Kafka has now"
    )


def compare_with_read(
    snapshot: Snapshot, receipt: Receipt, file_format: str
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets of unsealed batches at which a window has other records than Spark read.

    What is left of a batch's files and the window must together be what its note says. With fewer
    records, such as after an accepted loss, that can't be told: validation says so.

    Args:
        snapshot: The archive.
        receipt: The window's receipt, which isn't sealed yet.

    Raises:
        DataFileError: When a file of the window can't be read.
    """
    generation = snapshot.open_generation
    if generation is None:
        return {}
    state = read_state(snapshot, generation)
    parts = segments(
        state.sealed_ends, state.checkpoint, state.last_committed, state.last_sealed + 1
    )
    compared = RecordComparison(snapshot.root, receipt, file_format, {})
    known: list[tuple[Tally, dict[TopicPartition, list[OffsetRange]]]] = []
    for part in parts:
        ranges = {tp: [span] for tp, span in part.ranges.items()}
        if not compared.of_window(ranges):
            continue
        note = noted_content(generation, part)
        numbers = range(part.first_batch, part.last_batch + 1)
        files = [file for file in state.new if file.batch is None or file.batch in numbers]
        if note is None or None in {file.batch for file in files}:
            continue
        kept = [f for f in files if f"{generation.data_name}/{f.path}" not in receipt.replaces]
        held = _read_all(snapshot, generation, kept)
        rest = rest_of(note.taken, (content_of([file]) for file in held or ()))
        if held is not None and rest is not None:
            known.append((rest, compared.of_window(without_held(ranges, held))))
    sums = compared.sums([ranges for _, ranges in known])
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for (rest, ranges), each in zip(known, sums, strict=True):
        is_same = judge_lost(rest, each.taken()) is ReplacementMatch.EQUAL
        for tp, own in ranges.items() if each.records >= rest.records and not is_same else ():
            found.setdefault(tp, []).extend(own)
    return found


def _read_all(
    snapshot: Snapshot, generation: SnapshotGeneration, listed: Iterable[SinkFile]
) -> list[CommittedFile] | None:
    """Read files of a generation; return None if one isn't as it was written."""
    file_format = generation.document.format
    found = [read_file(str(snapshot.root), generation.data_name, f, file_format) for f in listed]
    read = [each for each in found if isinstance(each, CommittedFile)]
    return read if len(read) == len(found) else None

"""Spark's checkpoint of one streaming query, parsed without Spark. Opens nothing.

`offsets/<batch>` (Spark's `OffsetSeqLog`) is written before a batch runs and holds its end offsets;
`commits/<batch>` (`CommitLog`) is written after it. Both keep the last
`spark.sql.streaming.minBatchesToRetain` (100) batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import Offsets, TopicPartition, from_spark_json

VERSION = "v1"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The contents of a checkpoint.

    Attributes:
        ends: End offsets per partition of each batch that is still kept.
        commits: Batch ids that were committed and are still kept.
    """

    ends: Mapping[int, dict[TopicPartition, int]] = field(default_factory=dict)
    commits: frozenset[int] = frozenset()

    @property
    def last_offsets(self) -> int | None:
        """Highest batch id with end offsets; None if there is none."""
        return max(self.ends, default=None)

    @property
    def last_commit(self) -> int | None:
        """Highest committed batch id; None if there is none."""
        return max(self.commits, default=None)


def batch_id(name: str) -> int | None:
    """Return the batch id in a checkpoint file's name; None for other files."""
    return int(name) if name.isascii() and name.isdigit() else None


def parse_offsets(
    content: bytes, where: str
) -> tuple[dict[TopicPartition, int] | None, list[Finding]]:
    """Parse a file of `offsets/`: a version, a JSON line of metadata, a JSON line per source.

    Returns:
        The end offsets of the batch, or None if they can't be read, and the problems in the file.
    """
    lines = content.decode("utf-8", errors="replace").rstrip("\n").split("\n")
    try:
        if lines[0] != VERSION or len(lines) != 3:
            raise ValueError(f"expected {VERSION}, metadata and one source, got {len(lines)} lines")
        _check_batch_metadata(lines[1])
        return from_spark_json(lines[2]), []
    except (ValueError, RecursionError) as error:
        return None, [Finding(Reason.CHECKPOINT_CORRUPT, where, str(error))]


def parse_commit(content: bytes, where: str) -> list[Finding]:
    """Check a file of `commits/`: a version and a line of JSON."""
    lines = content.decode("utf-8", errors="replace").rstrip("\n").split("\n")
    try:
        if lines[0] != VERSION or len(lines) != 2:
            raise ValueError(f"expected {VERSION} and a line of JSON, got {len(lines)} lines")
        _numbers(_object(lines[1]), "nextBatchWatermarkMs")
    except (ValueError, RecursionError) as error:
        return [Finding(Reason.CHECKPOINT_CORRUPT, where, str(error))]
    return []


def parse_metadata(content: bytes, where: str) -> list[Finding]:
    """Check the file `metadata`, which holds the query id."""
    try:
        query_id = _object(content.decode()).get("id")
        if not isinstance(query_id, str) or not query_id:
            raise ValueError(f"expected the query id, got {query_id!r}")
    except (ValueError, RecursionError) as error:
        return [Finding(Reason.CHECKPOINT_CORRUPT, where, str(error))]
    return []


def parse_initial_offsets(content: bytes, where: str, starting_offsets: Offsets) -> list[Finding]:
    """Check `sources/0/0`, where the Kafka source keeps the starting offsets of the query.

    Args:
        content: A zero byte, a line with the version, and a line of JSON.
        where: The file, relative to the archive.
        starting_offsets: Starting offsets of the generation.
    """
    lines = content.removeprefix(b"\0").decode("utf-8", errors="replace").split("\n", 1)
    try:
        if lines[0] != VERSION or len(lines) != 2:
            raise ValueError(f"expected {VERSION} and the offsets, got {content[:40]!r}")
        initial = from_spark_json(lines[1])
    except (ValueError, RecursionError) as error:
        return [Finding(Reason.CHECKPOINT_CORRUPT, where, str(error))]
    for tp, offset in sorted(initial.items()):
        if offset != starting_offsets.get(tp):
            planned = starting_offsets.get(tp, "nothing of it")
            detail = f"{tp} starts at offset {offset}, generation.json says {planned}"
            return [Finding(Reason.CHECKPOINT_CORRUPT, where, detail)]
    return []


def _check_batch_metadata(line: str) -> None:
    """Check the line of `OffsetSeqMetadata`, which Spark reads before the offsets."""
    found = _object(line)
    _numbers(found, "batchWatermarkMs", "batchTimestampMs")
    conf = found.get("conf", {})
    if not isinstance(conf, dict) or not all(isinstance(value, str) for value in conf.values()):
        raise ValueError(f"expected the session's configuration as strings, got {str(conf)[:40]!r}")


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, got {text[:40]!r}")
    return found


def _numbers(found: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if type(found.get(key, 0)) is not int:
            raise ValueError(f"expected a whole number as {key}, got {found[key]!r}")


def find_holes(batches: Iterable[int], folder: str) -> list[Finding]:
    """Find batch ids that are missing between the lowest and the highest one."""
    seen = set(batches)
    if not seen:
        return []
    return [
        Finding(Reason.CHECKPOINT_HOLE, folder, f"there is no file for batch {batch}")
        for batch in range(min(seen), max(seen) + 1)
        if batch not in seen
    ]


def refuse_backward(
    ends: Mapping[int, dict[TopicPartition, int]], starting_offsets: Offsets, folder: str
) -> tuple[dict[int, dict[TopicPartition, int]], list[Finding]]:
    """Find batches that end before they start: the offsets that they read are unknown.

    Args:
        ends: End offsets of each batch; empty for an unreadable one.
        starting_offsets: Starting offsets of the generation.
        folder: The folder of the offsets, relative to the archive.

    Returns:
        The end offsets, emptied for those batches, and the findings.
    """
    kept: dict[int, dict[TopicPartition, int]] = {}
    findings: list[Finding] = []
    start = starting_offsets
    for batch in sorted(ends):
        end = ends[batch]
        backward = [tp for tp in sorted(end) if end[tp] < start.get(tp, 0)]
        if backward:
            tp = backward[0]
            detail = f"{tp} ends at offset {end[tp]}, before its start {start.get(tp, 0)}"
            findings.append(Finding(Reason.CHECKPOINT_CORRUPT, f"{folder}/{batch}", detail))
            end = {}
        kept[batch] = end
        # A partition that a batch doesn't name stays where it is.
        start = {**start, **end}
    return kept, findings


def compare_with_receipts(
    checkpoint: Checkpoint, sealed_ends: Mapping[int, Offsets], folder: str
) -> list[Finding]:
    """Find sealed batches whose end offsets in the checkpoint differ from their receipts.

    Args:
        sealed_ends: End offsets of sealed segments, by their last batch.
        folder: The checkpoint's folder relative to the archive.
    """
    return [
        Finding(
            Reason.CHECKPOINT_CORRUPT,
            f"{folder}/offsets/{batch}",
            "has other end offsets than the receipt of its batch",
        )
        for batch, end in sorted(checkpoint.ends.items())
        # An unreadable file already has its own finding.
        if end and batch in sealed_ends and end != _of_topics(sealed_ends[batch], end)
    ]


def _of_topics(sealed: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """Return the sealed ends of the topics that a batch names, without one deleted before it."""
    topics = {tp.topic for tp in end}
    return {tp: at for tp, at in sealed.items() if tp.topic in topics}


def compare_with_manifest(
    checkpoint: Checkpoint, last_batch: int | None, folder: str
) -> list[Finding]:
    """Compare the checkpoint with the manifest's last batch.

    Only one difference is normal: the manifest may be one batch ahead of the commits if the driver
    was killed between the two; Spark then skips that batch in the next run.

    Args:
        last_batch: The manifest's highest batch id; None if it has no batch.
        folder: The checkpoint's folder relative to the archive.
    """
    # Spark plans a batch only after it has committed the previous one.
    done = max(
        -1 if checkpoint.last_commit is None else checkpoint.last_commit,
        -1 if checkpoint.last_offsets is None else checkpoint.last_offsets - 1,
    )
    if last_batch is None:
        if done < 0:
            return []
        detail = f"the checkpoint committed batch {done}, but the manifest has no batch"
        return [Finding(Reason.MANIFEST_MISSING, folder, detail)]
    if checkpoint.last_offsets is None:
        detail = f"the manifest ends with batch {last_batch}, but the checkpoint has no offsets"
        return [Finding(Reason.CHECKPOINT_MISSING, folder, detail)]
    if done > last_batch:
        detail = f"the checkpoint committed batch {done}, but the manifest ends with {last_batch}"
        return [Finding(Reason.MANIFEST_BEHIND, folder, detail)]
    committed = -1 if checkpoint.last_commit is None else checkpoint.last_commit
    if last_batch > checkpoint.last_offsets or last_batch > committed + 1:
        detail = (
            f"the manifest ends with batch {last_batch}, but the checkpoint with offsets of "
            f"{checkpoint.last_offsets} and commit {committed if committed >= 0 else 'none'}"
        )
        return [Finding(Reason.MANIFEST_AHEAD, folder, detail)]
    return []

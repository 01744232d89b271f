"""Summarize what a run has sealed, for the tasks after it: bounded, however much that is.

Opens nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from kafka_drain.archive.receipts import Receipt

#: Number of files, and of topics, that a summary names.
FILES = 100
TOPICS = 100


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


_OF_TOPIC = ("partitions", "offsets", "records")


def _receipts(sealed: Sequence[Receipt]) -> list[dict[str, Any]]:
    entries: dict[tuple[int | None, str], dict[str, Any]] = {}
    for receipt in sealed:
        new = {"first": receipt.where, "last": receipt.where, "receipts": 0}
        entry = entries.setdefault((receipt.generation, receipt.window), new)
        entry["last"] = receipt.where
        entry["receipts"] += 1
    return list(entries.values())

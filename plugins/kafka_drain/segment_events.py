"""What is told of segments that were just sealed: enough to read them, and to hold them to it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from kafka_drain.receipts import Receipt

__all__ = ["segment_events"]

#: An event tells of so many segments, the newest, and of so many partitions of each.
SEGMENTS = 100
PARTITIONS = 1_000


def segment_events(sealed: Sequence[Receipt]) -> list[dict[str, Any]]:
    """Return what an asset's event says of sealed segments, oldest first.

    Returns:
        receipt (its file, relative to the archive), sha256 (the receipt's own), generation (None
        for a window), window (None for a generation's segment), first_batch, last_batch,
        sealed_at, records, files (how many), bytes, partitions (how many had something new) and
        offsets: ranges by `topic-partition`, each with first and end (not part of it), of at most
        1,000 partitions. A generation's segment has one range of each, a window may have more.
    """
    return [_event(receipt) for receipt in sealed[-SEGMENTS:]]


def _event(receipt: Receipt) -> dict[str, Any]:
    drained: dict[str, list[list[int]]] = {}
    for part in receipt.partitions:
        if len(part.range):
            drained.setdefault(str(part.tp), []).append([part.range.start, part.range.end])
    return {
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
        "offsets": dict(islice(drained.items(), PARTITIONS)),
    }

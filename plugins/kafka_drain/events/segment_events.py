"""Describe newly sealed segments for events: enough to read the data and to verify it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_drain.archive.receipts import Receipt
from kafka_drain.offsets import OffsetRange, merge

#: Number of newest segments that get their own entry in an event; fewer if that would exceed
#: RANGES partition ranges. Older ones are combined, one entry for each generation.
SEGMENTS = 100
RANGES = 100_000

Event = dict[str, Any]


def segment_events(sealed: Iterable[Receipt]) -> list[Event]:
    """Return what an asset event says about sealed segments, oldest first; none is left out.

    Returns:
        receipts (the number that the entry covers; 1 unless there are very many), receipt (the
        newest one's file, relative to the archive), sha256 (that receipt's own), generation (None
        for a window), window (None for a generation's segment), first_batch, last_batch, sealed_at,
        records, files (count), bytes, partitions (number with new offsets) and offsets: ranges by
        `topic-partition`, each with first and end (exclusive). A generation's segment has one
        range for each, a window may have more.
    """
    events = [_event(receipt) for receipt in sealed]
    widest = max((event["partitions"] for event in events), default=0)
    own = min(SEGMENTS, max(RANGES // max(widest, 1), 1))
    older: dict[tuple[int | None, str | None], Event] = {}
    for event in events[:-own]:
        key = (event["generation"], event["window"])
        older[key] = _together(older[key], event) if key in older else event
    return [*older.values(), *events[-own:]]


def _event(receipt: Receipt) -> Event:
    drained: dict[str, list[list[int]]] = {}
    for part in receipt.partitions:
        if len(part.range):
            drained.setdefault(str(part.tp), []).append([part.range.start, part.range.end])
    return {
        "receipts": 1,
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
        "offsets": drained,
    }


def _together(older: Event, newer: Event) -> Event:
    """Combine two entries of the same generation; the newer one's hash proves both."""
    offsets = dict(older["offsets"])
    for name, ranges in newer["offsets"].items():
        whole = merge(OffsetRange(start, end) for start, end in [*offsets.get(name, ()), *ranges])
        offsets[name] = [[r.start, r.end] for r in whole]
    sums = {key: older[key] + newer[key] for key in ("receipts", "records", "files", "bytes")}
    return {
        **newer,
        **sums,
        "first_batch": older["first_batch"],
        "partitions": len(offsets),
        "offsets": offsets,
    }

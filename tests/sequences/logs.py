"""What happens to a partition's log on the disk of a broker that is stopped.

Kafka has to survive it: no transaction is left open, and an index that doesn't fit is made again.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

__all__ = ["cut_log", "remove_segment"]

#: First offset, length of what follows, leader epoch, magic byte, checksum, attributes.
_BATCH = struct.Struct(">qiibIh")
_LENGTH_STARTS = 12
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


@dataclass(frozen=True)
class Batch:
    """A record batch on disk.

    Attributes:
        segment: The file that it is in.
        position: Where it starts in there.
        first: Its first offset.
        attributes: Its attributes, as in Kafka's format.
    """

    segment: Path
    position: int
    first: int
    attributes: int

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)


def cut_log(partition: Path, earliest: int, chance: random.Random) -> int | None:
    """Take the end off a log, up to any batch that no transaction spans.

    Args:
        partition: Its folder.
        earliest: The first offset that Kafka still has; the log doesn't get shorter than that.
        chance: Decides where.

    Returns:
        The first offset that is gone; None if there was nothing to cut.
    """
    batches = list(_batches(partition))
    places = []
    is_open = False
    for batch in batches:
        if not is_open and batch.first >= earliest:
            places.append(batch)
        if batch.is_transactional:
            is_open = not batch.is_control
    if not places:
        return None
    place = chance.choice(places[-10:])
    os.truncate(place.segment, place.position)
    for suffix in ("index", "timeindex", "txnindex"):
        place.segment.with_suffix(f".{suffix}").unlink(missing_ok=True)
    for path in partition.iterdir():
        if path.stem.isdigit() and int(path.stem) > int(place.segment.stem):
            path.unlink()
    return place.first


def remove_segment(partition: Path, earliest: int, chance: random.Random) -> tuple[int, int] | None:
    """Remove a segment between two others, without transaction markers.

    Returns:
        Its first offset and that of the next one with records; None if there is no such segment.
    """
    found = groupby(_batches(partition), lambda batch: batch.segment)
    segments = [(path, list(batches)) for path, batches in found]
    between = [
        (path, batches, after[0].first)
        for (path, batches), (_, after) in pairwise(segments[1:])
        if batches[0].first >= earliest and not any(batch.is_control for batch in batches)
    ]
    if not between:
        return None
    path, batches, end = chance.choice(between)
    for file in partition.glob(f"{path.stem}.*"):
        file.unlink()
    return batches[0].first, end


def _batches(partition: Path) -> Iterator[Batch]:
    """Yield the batches of all segments, in order."""
    for segment in sorted(partition.glob("*.log")):
        content = segment.read_bytes()
        position = 0
        # Some brokers make the file longer in advance, with zeros.
        while position + _BATCH.size <= len(content):
            first, length, _, _, _, attributes = _BATCH.unpack_from(content, position)
            if length <= 0:
                break
            yield Batch(segment, position, first, attributes)
            position += _LENGTH_STARTS + length

"""What a reprocess drains again, in which pieces, and which files each piece stands for.

    cut        the first segment that is drained again: by batch, time or offsets
    pieces     runs of segments from there on, each drained into a window of its own
    replaces   the files that readers take of these segments now, of whatever owner

Plain arithmetic.

Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_drain.archive.receipts import Receipt, SealedFile
from kafka_drain.errors import ConfigError, TopicError
from kafka_drain.intervals import milliseconds, parse_time, time_text
from kafka_drain.offsets import TopicPartition
from kafka_drain.windows.rewrite_groups import Piece, split_pieces

__all__ = ["OFFSETS_A_PIECE", "Cut", "comparable_receipts", "parse_cut", "plan_pieces"]

#: So many offsets are drained at once; what is sealed needs not be drained again after a kill.
OFFSETS_A_PIECE = 10_000_000


@dataclass(frozen=True)
class Cut:
    """Where a reprocess starts; exactly one of the three is given.

    Attributes:
        batch: A generation's number, and a batch id in it.
        time_ms: The segment with the first record of this time or later: milliseconds since 1970.
        offsets: The segment with the first of these offsets.
    """

    batch: tuple[int, int] | None = None
    time_ms: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def is_reached(self, receipt: Receipt) -> bool:
        """Whether a segment is the first to be drained again, or behind it."""
        if self.batch is not None:
            return (receipt.generation or 0, receipt.last_batch) >= self.batch
        if self.time_ms is not None:
            return any(
                part.last_timestamp is not None and part.last_timestamp >= self.time_ms
                for part in receipt.partitions
            )
        return any(
            part.range.end > self.offsets.get(part.tp, part.range.end)
            for part in receipt.partitions
        )

    def __str__(self) -> str:
        if self.batch is not None:
            return f"batch {self.batch[1]} of generation {self.batch[0]}"
        if self.time_ms is not None:
            return f"timestamp {time_text(self.time_ms)}"
        return ", ".join(f"{tp} offset {offset}" for tp, offset in sorted(self.offsets.items()))


def parse_cut(
    from_batch: str | int | None,
    from_time: str | None,
    from_offsets: Collection[str],
    *,
    newest_generation: Callable[[], int],
) -> Cut | None:
    """Understand where a reprocess is to start; None when nothing is said.

    Args:
        from_batch: `7` for a batch of the newest generation, `1:7` for one of the first.
        from_time: An ISO 8601 time; UTC where it names no zone.
        from_offsets: `topic:partition:offset` each.
        newest_generation: Returns its number; called when it is needed.

    Raises:
        ConfigError: When more than one is given, or one can't be understood.
    """
    # Batch 0 is one, also as a number.
    batch = "" if from_batch is None else str(from_batch).strip()
    if sum(map(bool, (batch, from_time, from_offsets))) > 1:
        raise ConfigError("from_batch, from_time and from_offsets exclude each other; give one")
    if batch:
        match = re.fullmatch(r"(?:(\d+):)?(\d+)", batch)
        if match is None:
            raise ConfigError(
                f"from_batch = {from_batch!r} is not acceptable; accepted: a batch id of the "
                "newest generation, such as 7, or generation and batch id, such as 1:7"
            )
        generation = int(match[1]) if match[1] else newest_generation()
        return Cut(batch=(generation, int(match[2])))
    if from_time:
        return Cut(time_ms=milliseconds(parse_time("from_time", from_time)))
    offsets: dict[TopicPartition, int] = {}
    for text in from_offsets:
        match = re.fullmatch(r"([\w.-]+):(\d+):(\d+)", text.strip())
        if match is None:
            raise ConfigError(
                f"from_offsets = {text!r} is not acceptable; accepted: topic:partition:offset"
            )
        offsets[TopicPartition(match[1], int(match[2]))] = int(match[3])
    return Cut(offsets=offsets) if offsets else None


def comparable_receipts(
    receipts: Sequence[Receipt], topic_ids: Mapping[str, str], cut: Cut
) -> Sequence[Receipt]:
    """Return the newest receipts, as far back as they count in the offsets that Kafka has now.

    Raises:
        TopicError: When the cut lies before them.
    """
    start = len(receipts)
    while start and topic_ids.items() >= receipts[start - 1].topics.items():
        start -= 1
    reached = next((r for r in receipts[:start] if cut.is_reached(r)), None)
    if reached is not None:
        other = receipts[start - 1]
        names = sorted(n for n, topic_id in other.topics.items() if topic_ids.get(n) != topic_id)
        raise TopicError(
            f"{', '.join(names)} was made again, or is no longer drained, since batch "
            f"{other.last_batch} of generation {other.generation}: its offsets can't be drained "
            "again; start behind that batch"
        )
    return receipts[start:]


def plan_pieces(
    receipts: Sequence[Receipt],
    files: Iterable[SealedFile],
    cut: Cut,
    offsets_a_piece: int = OFFSETS_A_PIECE,
) -> list[Piece]:
    """Put the segments from a cut on together to pieces.

    Args:
        receipts: Of all generations that count in the same offsets, oldest first.
        files: The sealed files that readers take.
        cut: Where to start.
        offsets_a_piece: A piece ends with the segment that reaches so many offsets.

    Raises:
        ConfigError: When no segment is reached.
    """
    first = next((n for n, receipt in enumerate(receipts) if cut.is_reached(receipt)), None)
    if first is None:
        raise ConfigError(f"nothing is sealed from {cut} on; there is nothing to reprocess")
    return split_pieces(receipts, files, first, lambda receipt: receipt.offsets, offsets_a_piece)

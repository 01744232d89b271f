"""What batches read and files hold, drawn at random: the segments, files and rows of archives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from hypothesis import strategies as st

from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.metadata_log.checkpoint import Checkpoint
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.proof.offset_checks import Segment, segments

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def contents_of(tp: TopicPartition, offsets: Sequence[int]) -> FileOffsets:
    """Describe rows of one partition as `read_offsets` does; a time is ten times the offset."""
    twice = sorted(offset for offset, times in Counter(offsets).items() if times > 1)
    return FileOffsets(
        tp=tp,
        ranges=tuple(merge(OffsetRange(offset, offset + 1) for offset in offsets)),
        records=len(offsets),
        duplicates=tuple(twice[:10]),
        ascending=all(a < b for a, b in pairwise(offsets)),
        first_timestamp=min(offsets) * 10,
        last_timestamp=max(offsets) * 10,
    )


def held(
    tp: TopicPartition, path: str, offsets: Sequence[int], batch: int | None = None
) -> CommittedFile:
    """Describe a file by its rows."""
    return CommittedFile(path, 1, "", (contents_of(tp, offsets),) if offsets else (), batch)


def offsets_in(ranges: Iterable[OffsetRange]) -> set[int]:
    """Return every single offset of some ranges."""
    return {offset for r in ranges for offset in range(r.start, r.end)}


@st.composite
def parts_read(draw: st.DrawFn) -> list[Segment]:
    """Draw what batches read of two partitions; the first may stand for several."""
    start = {A: draw(st.integers(0, 5)), B: draw(st.integers(0, 5))}
    ends: dict[int, dict[TopicPartition, int]] = {}
    at = start
    purged = draw(st.integers(0, 2))
    for batch in range(purged, purged + draw(st.integers(1, 4))):
        at = {tp: offset + draw(st.integers(0, 6)) for tp, offset in at.items()}
        ends[batch] = at
    return segments(start, Checkpoint(ends), max(ends))


@st.composite
def archives(draw: st.DrawFn) -> tuple[list[Segment], list[CommittedFile], list[list[int]]]:
    """Draw batches of two partitions, and files that mostly hold what the batches read."""
    parts = draw(parts_read())
    files: list[CommittedFile] = []
    rows: list[list[int]] = []
    damage = st.lists(st.integers(0, 30), max_size=2)
    for part in parts:
        for tp, read in part.ranges.items():
            kept = [offset for offset in range(read.start, read.end) if draw(st.booleans())]
            taken = draw(st.one_of(st.just(list(range(read.start, read.end))), st.just(kept)))
            offsets = draw(st.permutations(taken + draw(st.one_of(st.just([]), damage))))
            cut = draw(st.integers(0, len(offsets)))
            for piece in (offsets[:cut], offsets[cut:]):
                if piece:
                    known = st.sampled_from([part.last_batch, None])
                    files.append(held(tp, f"file{len(files)}", piece, draw(known)))
                    rows.append(piece)
    return parts, files, rows

"""The offset map: a translated consumer skips nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.verifying.match_types import Record
from kafka_drain.republish.verifying.matching import match_partition
from kafka_drain.republish.verifying.offset_map import (
    Block,
    OffsetMap,
    PartitionMap,
    join_blocks,
    offset_in_chain,
    originals_map,
)
from kafka_drain.storage.sealed_json import SealError, seal

SOURCE, TARGET, OTHER = TopicPartition("s", 0), TopicPartition("t", 0), TopicPartition("t", 1)


def mapped(*blocks: Block, topic_id: str = "id", target: TopicPartition = TARGET) -> PartitionMap:
    return PartitionMap(SOURCE, topic_id, target, blocks)


def offset_map(*partitions: PartitionMap) -> OffsetMap:
    return OffsetMap("run", "flights", "cluster", partitions)


def translated(*blocks: Block, offset: int) -> int:
    return offset_map(mapped(*blocks)).translate(SOURCE, offset)[TARGET]


EXACT = Block(10, 20, 110, 120, 10)
JOINED = Block(30, 40, 130, 136, 5)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, 110),  # before the first block
        (10, 110),
        (13, 113),  # inside an exact block
        (19, 119),
        (20, 130),  # between blocks
        (30, 130),
        (39, 130),  # inside joined blocks
        (40, 136),  # after the last
        (1_000, 136),
    ],
)
def test_translate_offset(offset: int, expected: int) -> None:
    """An offset becomes the record's own, or one before it, or the end."""
    assert translated(EXACT, JOINED, offset=offset) == expected


def test_translate_same_gap_on_both_sides() -> None:
    """Joined blocks that span as many offsets on both sides are not exact."""
    assert translated(Block(0, 10, 0, 10, 5), offset=7) == 0


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (2, 52),  # in the run before
        (9, 110),  # it has read the run before
        (13, 113),
        (40, 136),  # all is read
    ],
)
def test_translate_mirror(offset: int, expected: int) -> None:
    """A group that is behind the last run of a mirror goes on in the one before."""
    before = offset_map(mapped(Block(0, 5, 50, 55, 5), Block(6, 9, 60, 63, 3)))

    found = offset_map(mapped(EXACT, JOINED)).joined([before])

    assert found.translate(SOURCE, offset) == {TARGET: expected}


def test_translate_later_run_of_earlier_records() -> None:
    """Where a later run sent earlier records, none that wasn't read is skipped: some come again."""
    first_sent = offset_map(mapped(Block(100, 200, 0, 100, 100)))
    chosen = offset_map(mapped(Block(0, 100, 100, 200, 100)))

    assert chosen.joined([first_sent]).translate(SOURCE, 50) == {TARGET: 0}
    assert chosen.joined([first_sent]).translate(SOURCE, 150) == {TARGET: 50}


@pytest.mark.parametrize(("end", "expected"), [(20, 113), (21, 10), (40, 10)])
def test_translate_repeated(end: int, expected: int) -> None:
    """What a run has sent again counts where that run sent it; holes of its extent don't."""
    before = offset_map(mapped(Block(10, end, 0, end - 10, end - 10)))

    joined = offset_map(mapped(EXACT, JOINED)).joined([before])

    assert joined.translate(SOURCE, 13) == {TARGET: expected}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.permutations(range(5)), st.data())
def test_translate_joined_property(sizes: list[int], order: list[int], data: st.DataObject) -> None:
    """However runs are ordered in the target, each record that wasn't read lies behind."""
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    place, maps = 0, {}
    target: dict[int, int] = {}
    for run in (run for run in order if run < len(sizes)):
        maps[run] = offset_map(
            mapped(
                Block(starts[run], starts[run] + sizes[run], place, place + sizes[run], sizes[run])
            )
        )
        target |= {starts[run] + n: place + n for n in range(sizes[run])}
        place += sizes[run]
    chosen = data.draw(st.sampled_from(sorted(maps)))
    joined = maps[chosen].joined([maps[run] for run in maps if run != chosen])
    offset = data.draw(st.integers(0, sum(sizes)))

    goes_on = joined.translate(SOURCE, offset)[TARGET]

    assert all(at >= goes_on for source, at in target.items() if source >= offset)
    if offset == sum(sizes):
        assert goes_on == place


@pytest.mark.parametrize(
    ("first", "offset", "expected"),
    [
        (0, 4, 10),  # originals 10 to 19 are unread
        (0, 12, 12),
        (15, 4, 15),  # some of them were deleted
        (20, 4, 24),  # all were, so that the copies are what is left
        (20, 10, 30),
    ],
)
def test_originals_in_place(first: int, offset: int, expected: int) -> None:
    """Of a partition that was republished into itself, no original that is unread is skipped."""
    copied = offset_map(mapped(Block(0, 10, 20, 30, 10), target=SOURCE))
    originals = originals_map(copied, {SOURCE: OffsetRange(first, 30)})

    assert copied.joined([originals]).translate(SOURCE, offset) == {SOURCE: expected}


def test_translate_several_targets() -> None:
    """A source partition whose records went to several has an offset in each."""
    both = offset_map(mapped(EXACT), mapped(JOINED, target=OTHER))

    assert both.translate(SOURCE, 12) == {TARGET: 112, OTHER: 130}
    assert both.sources() == [SOURCE]


def test_translate_unknown_source() -> None:
    """A partition that the run sent nothing of goes nowhere."""
    assert offset_map(mapped(EXACT)).translate(TopicPartition("s", 1), 12) == {}


def test_translate_topic_made_again() -> None:
    """Offsets of a topic that was made again are those of its last life."""
    lives = offset_map(
        mapped(EXACT, topic_id="first"),
        mapped(EXACT, topic_id="first", target=OTHER),
        mapped(JOINED, topic_id="second"),
    )

    assert lives.translate(SOURCE, 12) == {TARGET: 130}


def test_join_blocks_bounded() -> None:
    """Neighbours are joined to a thousand records at most, long ones are left as they are."""
    small = [Block(2 * at, 2 * at + 1, at, at + 1, 1) for at in range(1_500)]
    long = Block(5_000, 7_000, 5_000, 7_000, 2_000)

    joined = join_blocks([*small, long])

    assert [block.records for block in joined] == [1_000, 500, 2_000]
    assert joined[0] == Block(0, 1_999, 0, 1_000, 1_000)
    assert joined[-1] is long


def test_join_blocks_of_shards() -> None:
    """Blocks are joined within a shard only, never with those of the next one in its chain."""
    start = offset_in_chain(1, 0)
    first = [Block(0, 1, 0, 1, 1), Block(2, 3, 1, 2, 1)]
    second = [Block(start, start + 1, 2, 3, 1), Block(start + 2, start + 3, 3, 4, 1)]

    joined = join_blocks([*first, *second])

    assert joined == [Block(0, 3, 0, 2, 2), Block(start, start + 3, 2, 4, 2)]


def test_offset_map_read_back() -> None:
    """A map comes back from its file as it was written."""
    written = offset_map(mapped(EXACT, JOINED), mapped(JOINED, target=OTHER))

    content = written.to_bytes()

    assert OffsetMap.parse(content) == written
    assert json.loads(content)["partitions"][0] == {
        "source_topic": "s",
        "source_partition": 0,
        "source_topic_id": "id",
        "target_topic": "t",
        "target_partition": 0,
        "blocks": [[10, 20, 110, 120, 10], [30, 40, 130, 136, 5]],
    }


def test_offset_map_changed() -> None:
    """A map with a changed byte, or of another format, is refused."""
    content = offset_map(mapped(EXACT)).to_bytes()

    with pytest.raises(SealError):
        OffsetMap.parse(content.replace(b"110", b"111"))
    with pytest.raises(ValueError, match="format version 2"):
        OffsetMap.parse(seal({"format_version": 2}))


@given(
    places=st.lists(
        st.tuples(st.integers(0, 1), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=40
    ),
    joins=st.booleans(),
)
def test_translate_skips_nothing(places: list[tuple[int, int, int]], joins: bool) -> None:
    """Every record that a consumer hasn't read is at the translated offset or after it."""
    at = [0, 0]
    shards: list[list[Record]] = [[], []]
    target: list[Record] = []
    for number, (shard, source_gap, target_gap) in enumerate(places):
        at[shard] += source_gap
        place = target[-1][2] + target_gap if target else 5
        shards[shard].append((number, 1, at[shard], 0))
        target.append((number, 1, place, 0))

    found = match_partition(
        {0: lambda: iter(shards[0]), 1: lambda: iter(shards[1])}, lambda _: iter([target])
    )

    assert found.is_exact
    for shard, blocks in found.mappings.items():
        kept = join_blocks(blocks) if joins else blocks
        there = {record[0]: record[2] for record in target}
        whole = mapped(*kept)
        for offset in range(max(record[2] for record in shards[shard]) + 2):
            unread = [there[record[0]] for record in shards[shard] if record[2] >= offset]
            goes_on = whole.translate(offset)
            assert all(goes_on <= place for place in unread)
            if not joins:
                # Not before it either: nothing is read twice.
                assert goes_on == min(unread, default=whole.blocks[-1].target_end)

"""Groups across runs that interleave: the translation against a model that knows every record."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.translation import TranslationPlan, plan_translation
from kafka_drain.republish.verifying.offset_map import Block, OffsetMap, PartitionMap, join_blocks

SOURCES = [TopicPartition("s", 0), TopicPartition("s", 1), TopicPartition("r", 0)]
TARGETS = [TopicPartition("t", 0), TopicPartition("t", 1)]
#: How a run's places are known: record by record, in joined blocks, or not at all.
WHOLE, JOINED, BEGUN = "whole", "joined", "begun"

Record = tuple[TopicPartition, int]


@dataclass
class Model:
    """What lies where in the target, record by record, and the runs' maps of it."""

    log: dict[TopicPartition, dict[int, Record]] = field(
        default_factory=lambda: {target: {} for target in TARGETS}
    )
    ends: Counter[TopicPartition] = field(default_factory=Counter)
    maps: list[OffsetMap] = field(default_factory=list)

    def send(self, records: list[tuple[Record, TopicPartition, int]], known: str) -> None:
        """Let a run send records, each with its target and so many offsets between."""
        blocks: dict[tuple[TopicPartition, TopicPartition], list[Block]] = {}
        starts = dict(self.ends)
        for (source, offset), target, gap in records:
            place = self.ends[target] + gap
            self.ends[target] = place + 1
            self.log[target][place] = source, offset
            found = blocks.setdefault((source, target), [])
            if found and found[-1].source_end == offset and found[-1].target_end == place:
                last = found.pop()
                joined = last.source_start, offset + 1, last.target_start, place + 1
                found.append(Block(*joined, last.records + 1))
            else:
                found.append(Block(offset, offset + 1, place, place + 1, 1))
        if known == JOINED:
            blocks = {pair: join_blocks(found) for pair, found in blocks.items()}
        if known == BEGUN:
            # As `started_map`: the shard's extent, and the target's end when the plan was made.
            for (source, target), found in blocks.items():
                start = starts.get(target, 0)
                count = sum(block.records for block in found)
                extent = found[0].source_start, found[-1].source_end
                blocks[source, target] = [Block(*extent, start, start, count)]
        self.maps.append(
            OffsetMap(
                f"run-{len(self.maps)}",
                "orders",
                "cluster",
                tuple(
                    PartitionMap(source, "id", target, tuple(found))
                    for (source, target), found in sorted(blocks.items())
                ),
            )
        )

    def joined(self, chosen: int) -> OffsetMap:
        others = [other for at, other in enumerate(self.maps) if at != chosen]
        return self.maps[chosen].joined(others)

    def read_from(self, after: dict[TopicPartition, int]) -> Counter[Record]:
        """Return what a group reads that goes on at some offsets, each record as often."""
        return Counter(
            record
            for target, start in after.items()
            for place, record in self.log[target].items()
            if place >= start
        )


def translate(model: Model, chosen: int, committed: dict[TopicPartition, int]) -> TranslationPlan:
    return plan_translation(
        model.joined(chosen), group="g", to_group="g", committed=committed, source_ends=None
    )


@st.composite
def runs(draw: st.DrawFn, *, known: tuple[str, ...] = (WHOLE, JOINED, BEGUN)) -> Model:
    """Some runs that interleave in source offsets, by partition or by key, with gaps."""
    model = Model()
    is_by_key = draw(st.booleans())
    sources = draw(st.lists(st.sampled_from(SOURCES), min_size=1, max_size=3, unique=True))
    offsets = st.integers(0, 24)
    for _ in range(draw(st.integers(1, 4))):
        queues = {
            source: sorted(draw(st.sets(offsets, min_size=source == sources[0], max_size=10)))
            for source in sources
        }
        order = [source for source, queue in queues.items() for _ in queue]
        sent = []
        for source in draw(st.permutations(order)):
            offset = queues[source].pop(0)
            # A key's partition is the same in each run.
            number = offset % 7 % 2 if is_by_key else source.partition
            sent.append(((source, offset), TARGETS[number], draw(st.integers(0, 2))))
        model.send(sent, draw(st.sampled_from(known)))
    return model


def drawn_offsets(data: st.DataObject, model: Model, chosen: int) -> dict[TopicPartition, int]:
    there = model.joined(chosen).sources()
    some = data.draw(st.sets(st.sampled_from(there), min_size=1))
    return {tp: data.draw(st.integers(0, 26)) for tp in sorted(some)}


def unread_of(
    model: Model, committed: dict[TopicPartition, int], plan: TranslationPlan
) -> set[Record]:
    """Return the records that the group hasn't read, of partitions that the plan has rows of."""
    pairs = {(row.source, row.target) for row in plan.rows}
    return {
        record
        for target, log in model.log.items()
        for record in log.values()
        if (record[0], target) in pairs and record[1] >= committed.get(record[0], 0)
    }


@settings(max_examples=200, deadline=None)
@given(runs(), st.data())
def test_nothing_unread_is_skipped(model: Model, data: st.DataObject) -> None:
    """Whatever runs interleave, and whichever is named, a group reads all that it hasn't read."""
    chosen = data.draw(st.integers(0, len(model.maps) - 1))
    committed = drawn_offsets(data, model, chosen)
    plan = translate(model, chosen, committed)

    assert unread_of(model, committed, plan) <= set(model.read_from(plan.after))


@settings(max_examples=200, deadline=None)
@given(runs(), st.data())
def test_read_again_is_counted(model: Model, data: st.DataObject) -> None:
    """No more records are read again than the plan says; as many where each place is known."""
    chosen = data.draw(st.integers(0, len(model.maps) - 1))
    committed = drawn_offsets(data, model, chosen)
    plan = translate(model, chosen, committed)
    sources = {row.source for row in plan.rows}
    pairs = {(row.source, row.target) for row in plan.rows}
    read = Counter(
        {
            record: sum(
                place >= start and found == record
                for target, start in plan.after.items()
                if (record[0], target) in pairs
                for place, found in model.log[target].items()
            )
            for record in model.read_from(plan.after)
            if record[0] in sources
        }
    )
    again = read.total() - len(unread_of(model, committed, plan))
    said = sum(row.read_again for row in plan.rows)

    assert again <= said
    if not any("up to" in row.note for row in plan.rows):
        assert again == said
    assert all(("read again" in row.note) == (row.read_again > 0) for row in plan.rows)


@settings(max_examples=200, deadline=None)
@given(runs(known=(WHOLE,)), st.data())
def test_goes_on_at_first_unread(model: Model, data: st.DataObject) -> None:
    """Where each place is known, the group goes on at a record that it hasn't read, or the end."""
    chosen = data.draw(st.integers(0, len(model.maps) - 1))
    committed = drawn_offsets(data, model, chosen)
    plan = translate(model, chosen, committed)
    for target, start in plan.after.items():
        sources = {row.source for row in plan.rows if row.target == target}
        places = {at for at, (source, _) in model.log[target].items() if source in sources}
        unread = {
            at
            for at in places
            if (record := model.log[target][at])[1] >= committed.get(record[0], 0)
        }
        assert start in unread | {max(places) + 1}


@settings(max_examples=200, deadline=None)
@given(runs(known=(WHOLE, JOINED)), st.data())
def test_all_read_goes_to_end(model: Model, data: st.DataObject) -> None:
    """A group that has read everything goes on at the end, by key too, and reads nothing again."""
    chosen = data.draw(st.integers(0, len(model.maps) - 1))
    plan = translate(model, chosen, dict.fromkeys(SOURCES, 25))

    assert plan.after == {target: max(log) + 1 for target, log in model.log.items() if log}
    assert {row.read_again for row in plan.rows} == {0}


def test_late_records_between_runs() -> None:
    """A run of late records leaves holes, which are another run's: none of those is skipped."""
    model = Model()
    (source, target) = SOURCES[0], TARGETS[0]
    late, rest = [*range(20), *range(96, 100)], range(20, 96)
    model.send([((source, offset), target, 0) for offset in rest], WHOLE)
    model.send([((source, offset), target, 0) for offset in late], WHOLE)
    (row,) = translate(model, chosen=1, committed={source: 40}).rows

    # 56 unread ones of the first run, then 20 that were read and 4 that weren't.
    assert (row.offset, row.note) == (20, "20 records are read again")


def test_begun_run_counts_from_its_begin() -> None:
    """What a run has sent that hasn't ended may lie anywhere behind its begin."""
    model = Model()
    (source, target) = SOURCES[0], TARGETS[0]
    model.send([((source, offset), target, 0) for offset in range(10)], BEGUN)
    model.send([((source, offset), target, 0) for offset in range(10, 20)], WHOLE)
    (behind,) = translate(model, chosen=1, committed={source: 5}).rows
    (after,) = translate(model, chosen=1, committed={source: 10}).rows

    assert (behind.offset, behind.read_again) == (0, 5)
    assert "up to 5 records are read again" in behind.note
    assert (after.offset, after.note) == (10, "up to 10 records are read again")


@pytest.mark.parametrize(("at", "expected"), [(12, 22), (17, 27), (20, 30), (2, 2)])
def test_repeated_by_named_run(at: int, expected: int) -> None:
    """What the named run has sent again counts where it sent it, and only that."""
    model = Model()
    (source, target) = SOURCES[0], TARGETS[0]
    model.send([((source, offset), target, 0) for offset in range(20)], WHOLE)
    model.send([((source, offset), target, 0) for offset in range(10, 20)], WHOLE)

    assert translate(model, chosen=1, committed={source: at}).after == {target: expected}

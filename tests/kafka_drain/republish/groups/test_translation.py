"""A group's offsets in the target, from its offsets in the source; no broker."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from kafka_drain.errors import (
    ArchiveError,
    AuthorizationError,
    ConfigError,
    KafkaUnavailableError,
    TopicError,
)
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups, Group, Member
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.groups.translation import (
    Contribution,
    TranslationPlan,
    check_held,
    parse_offsets,
    plan_translation,
    untouched,
    with_metadata,
)
from kafka_drain.republish.verifying.offset_map import Block, OffsetMap, PartitionMap
from tests.kafka_drain.fake_admin import FakeAdmin, FakeClient

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

#: Every record of a source partition: its offset, and where it went.
Sent = dict[TopicPartition, list[tuple[int, TopicPartition, int]]]


def mapped(*partitions: PartitionMap) -> OffsetMap:
    return OffsetMap("run-1", "orders", "cluster", partitions)


def part(
    source: TopicPartition, target: TopicPartition, *blocks: tuple[int, int, int, int, int]
) -> PartitionMap:
    return PartitionMap(source, f"id-{source.topic}", target, tuple(Block(*b) for b in blocks))


def plan(
    offset_map: OffsetMap, committed: dict[TopicPartition, int], **more: object
) -> TranslationPlan:
    return plan_translation(
        offset_map,
        group="g",
        to_group="g",
        committed=committed,
        **more,  # type: ignore[arg-type]
    )


ONE = mapped(part(A0, T0, (10, 20, 100, 110, 10), (30, 40, 111, 121, 10)))


@pytest.mark.parametrize(
    ("committed", "expected", "note"),
    [
        (0, 100, "before the first republished record, offset 10"),
        (9, 100, "before the first republished record, offset 10"),
        (10, 100, "exact"),
        (15, 105, "exact"),
        (25, 111, "exact"),
        (39, 120, "exact"),
        (40, 121, "exact"),
        (41, 121, "after the last republished record, offset 39"),
    ],
)
def test_plan_says_how_exact(committed: int, expected: int, note: str) -> None:
    """A row says whether its offset is exact, or why it can't be."""
    (row,) = plan(ONE, {A0: committed}).rows

    assert (expected, note) == (row.offset, row.note)


@pytest.mark.parametrize(
    ("committed", "is_original", "expected"),
    [
        # Partition 1 of the source is empty; the group has committed there, too.
        ({A0: 15, A1: 0}, True, {T1: 7}),
        ({A0: 15, A1: 3}, True, {T1: 7}),
        # It hasn't: auto.offset.reset decides there, as it did in the source.
        ({A0: 15}, True, {}),
        # By key, later records may go to any partition.
        ({A0: 15}, False, {T1: 7}),
        # Offsets of another topic say nothing.
        ({B0: 4}, True, {}),
        ({B0: 4}, False, {}),
    ],
)
def test_untouched(
    committed: dict[TopicPartition, int], is_original: bool, expected: dict[TopicPartition, int]
) -> None:
    """A partition that got no record gets an offset, so that no later record is skipped there."""
    starts = {T1: 7, TopicPartition("other", 1): 9}

    rows = untouched(ONE, committed, starts, is_original=is_original)

    assert {row.target: row.offset for row in rows} == expected
    assert all(row.read_again == 0 for row in rows)


def test_untouched_first_of_several() -> None:
    """A partition has one row, of the first source partition that leads there."""
    t2 = TopicPartition("t", 2)
    note = "got no record: from where the run started"

    assert untouched(ONE, {A1: 2, A0: 15}, {t2: 9, T1: 7}, is_original=False) == [
        Contribution(A0, 15, T1, 7, 7, note),
        Contribution(A0, 15, t2, 9, 9, note),
    ]


@pytest.mark.parametrize(
    ("committed", "is_original", "after", "left_alone"),
    [
        # Each in its own partition: a-1 is left to auto.offset.reset, in the target too.
        ({A0: 8}, True, {T0: 8}, (A1,)),
        # A later record of a-0 may go anywhere.
        ({A0: 8}, False, {T0: 8, T1: 20}, ()),
        ({A0: 8, A1: 3}, True, {T0: 8, T1: 23}, ()),
        # An offset in a partition without records says that the group reads the topic.
        ({TopicPartition("a", 2): 0}, True, {}, (A0, A1)),
        ({TopicPartition("a", 2): 0}, False, {T0: 0, T1: 20}, ()),
    ],
)
def test_plan_unread_partitions(
    committed: dict[TopicPartition, int],
    is_original: bool,
    after: dict[TopicPartition, int],
    left_alone: tuple[TopicPartition, ...],
) -> None:
    """Partitions of a topic that the group reads are left alone only if they share with none."""
    offset_map = mapped(part(A0, T0, (0, 10, 0, 10, 10)), part(A1, T1, (0, 10, 20, 30, 10)))
    planned = plan(offset_map, committed, is_original=is_original)

    assert (planned.after, planned.left_alone) == (after, left_alone)
    assert planned.committed == committed
    assert any("auto.offset.reset" in note for note in planned.notes) is bool(left_alone)
    assert planned.to_dict()["left_alone"] == [
        {"topic": "a", "partition": tp.partition} for tp in left_alone
    ]


@pytest.mark.parametrize("is_left_alone", [True, False])
@pytest.mark.parametrize(
    ("again", "is_bound", "says"),
    [
        (0, False, "exact: no record is read again, none is skipped"),
        (1, False, "1 record is read again; none is skipped"),
        (1, True, "at most 1 record is read again; none is skipped"),
        (1234, False, "1,234 records are read again; none is skipped"),
        (1234, True, "at most 1,234 records are read again; none is skipped"),
    ],
)
def test_plan_summary(again: int, is_bound: bool, is_left_alone: bool, says: str) -> None:
    """One line says what the group reads again and skips, and doesn't say more than is known."""
    rows = (Contribution(A0, 0, T0, 0, 0, ""), Contribution(A1, 0, T0, 0, 0, "", again, is_bound))
    left_alone = (A1,) if is_left_alone else ()
    planned = TranslationPlan("run", "cluster", "g", "h", {}, rows, left_alone)

    besides = ", except where the group has no committed offset" if is_left_alone else ""
    assert planned.summary() == planned.to_dict()["summary"] == says + besides
    assert (planned.read_again, planned.is_bound) == (again, is_bound)


@pytest.mark.parametrize(
    ("again", "maybe", "says"),
    [
        (0, 1, "up to 1 may be read again; none is skipped"),
        (0, 1234, "up to 1,234 may be read again; none is skipped"),
        (2, 3, "2 records are read again, and up to 3 more may be read again; none is skipped"),
    ],
)
def test_plan_summary_outdated(again: int, maybe: int, says: str) -> None:
    """Where the group may have read on since, nothing is called exact."""
    rows = (Contribution(A0, 0, T0, 0, 0, "", again, may_be_read_again=maybe),)

    assert TranslationPlan("run", "cluster", "g", "h", {}, rows).summary() == says


@pytest.mark.parametrize(
    ("committed", "maybe", "note"),
    [
        (5, 20, "before the first republished record, offset 10; up to 20 records may be read"),
        (15, 15, "up to 15 records may be read again: drained after the offset was noted"),
        (39, 1, "up to 1 record may be read again"),
        (40, 0, "exact"),
    ],
)
def test_plan_outdated(committed: int, maybe: int, note: str) -> None:
    """With records that were drained after the offset was noted, each partition says how many."""
    (row,) = plan(ONE, {A0: committed}, is_outdated=True).rows

    assert row.may_be_read_again == maybe
    assert note in row.note
    assert ("exact" in row.note) is (maybe == 0)


def test_plan_outdated_joined() -> None:
    """Of a block of joined records that isn't read to its end, all may be read again."""
    offset_map = mapped(part(A0, T0, (0, 1000, 0, 900, 800), (1000, 1010, 900, 910, 10)))

    rows = [plan(offset_map, {A0: at}, is_outdated=True).rows[0] for at in (999, 1000)]

    assert [row.may_be_read_again for row in rows] == [810, 10]


def test_with_metadata() -> None:
    """Metadata goes along where partitions belong to each other; elsewhere it is named."""
    a2, t2 = TopicPartition("a", 2), TopicPartition("t", 2)
    offset_map = mapped(
        part(A0, T0, (0, 10, 50, 60, 10)),
        # Not where the group was: it starts with the whole block.
        part(A1, T1, (0, 1000, 0, 900, 800)),
        part(a2, t2, (0, 10, 0, 10, 10)),
    )
    committed = {A0: 8, A1: 7, a2: 3}

    planned = with_metadata(plan(offset_map, committed), {A0: "time 9", A1: "x" * 3})

    assert planned.metadata == {T0: "time 9"}
    (note,) = planned.notes
    assert "'xxx' of a-1 (the group continues before that offset)" in note
    assert with_metadata(plan(offset_map, committed), {A0: "time 9"}).notes == ()


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([(A0, T0), (A1, T0)], "t-0 has records of other partitions, too"),
        ([(A0, T0), (A0, T1)], "its records are in several partitions"),
    ],
)
def test_with_metadata_of_several(
    parts: list[tuple[TopicPartition, TopicPartition]], why: str
) -> None:
    """Metadata of one partition isn't that of several, and none is committed without a word."""
    blocks = [
        part(source, to, (0, 10, 20 * n, 20 * n + 10, 10)) for n, (source, to) in enumerate(parts)
    ]

    planned = with_metadata(plan(mapped(*blocks), {A0: 10, A1: 10}), {A0: "m"})

    assert planned.metadata == {}
    assert [f"'m' of a-0 ({why})" in note for note in planned.notes] == [True]


@pytest.mark.parametrize(
    ("compacted", "is_bound"), [((), False), (("other",), False), (("t", "other"), True)]
)
def test_plan_compacted(compacted: tuple[str, ...], is_bound: bool) -> None:
    """Of what a compacted target held, some may be gone: a number of records is a bound."""
    offset_map = mapped(part(A0, T0, (0, 10, 50, 60, 10)), part(A1, T0, (0, 10, 20, 30, 10)))
    row, other = plan(offset_map, {A0: 8, A1: 0}, compacted=compacted).rows

    assert (row.read_again, row.is_bound) == (8, is_bound)
    assert ("up to 8" in row.note) is is_bound
    assert (other.read_again, other.is_bound) == (0, False)


def test_plan_inexact_block() -> None:
    """Inside a block of joined records the group goes back to its start; the row says how far."""
    offset_map = mapped(part(A0, T0, (0, 1000, 0, 900, 800)))

    assert [(row.offset, row.note) for row in plan(offset_map, {A0: 7}).rows] == [
        (0, "up to 7 records are read again")
    ]
    assert "up to 800 records" in plan(offset_map, {A0: 999}).rows[0].note


def test_plan_lowest_of_sources() -> None:
    """Where two source partitions lead to one target partition, the lowest offset counts."""
    offset_map = mapped(
        part(A0, T0, (0, 10, 0, 10, 10)),
        part(A1, T0, (0, 10, 20, 30, 10)),
        part(A1, T1, (10, 20, 0, 10, 10)),
    )
    planned = plan(offset_map, {A0: 8, A1: 15})

    assert planned.after == {T0: 8, T1: 5}
    assert ["partition lags" in row.note for row in planned.rows] == [False, True, False]
    assert any("nothing is skipped" in note for note in planned.notes)


def test_plan_unread_partition_that_shares() -> None:
    """A partition without an offset holds the group back where it shares a target partition."""
    offset_map = mapped(
        part(A0, T0, (0, 10, 50, 60, 10)),
        part(A1, T0, (0, 10, 20, 30, 10)),
        part(B0, T0, (0, 10, 0, 10, 10)),
    )
    planned = plan(offset_map, {A0: 8})

    # The group doesn't read topic b at all.
    assert planned.after == {T0: 20}
    assert [(row.source, row.committed) for row in planned.rows] == [(A0, 8), (A1, None)]


def test_plan_unread_partition_alone() -> None:
    """A partition without an offset gets none in the target either, and that is said."""
    offset_map = mapped(part(A0, T0, (0, 10, 0, 10, 10)), part(A1, T1, (0, 10, 0, 10, 10)))
    planned = plan(offset_map, {A0: 8})

    assert planned.after == {T0: 8}
    assert any("a-1" in note and "auto.offset.reset" in note for note in planned.notes)


@pytest.mark.parametrize(("committed", "lag"), [(20, "20"), (35, "20"), (50, "10")])
def test_plan_names_lag(committed: int, lag: str) -> None:
    """What the source holds behind the run's end, and the group hasn't read, is named."""
    planned = plan(ONE, {A0: committed}, source_ends={A0: 60})

    assert [f"lag of {lag}:" in note for note in planned.notes] == [True]
    assert plan(ONE, {A0: 60}, source_ends={A0: 60}).notes == ()


@pytest.mark.parametrize(
    ("committed", "seen"),
    [({}, "has no committed offsets"), ({B0: 3}, "has committed offsets of b-0")],
)
def test_plan_nothing_committed(committed: dict[TopicPartition, int], seen: str) -> None:
    """A group that never read what was republished is refused, and what it has is named."""
    with pytest.raises(
        ConfigError, match=rf"{seen}, expected some of those that run run-1 read: a-0"
    ):
        plan(ONE, committed)


def test_plan_of_run_without_records() -> None:
    """The message doesn't name an empty list of partitions, and says how the group starts."""
    said = r"run run-1 sent no record.*auto\.offset\.reset=earliest"
    with pytest.raises(ConfigError, match=said):
        plan(mapped(), {A0: 3})


def test_plan_last_life() -> None:
    """Of a topic that was made again, the last life's records decide what is exact."""
    earlier = PartitionMap(A0, "old", T0, (Block(0, 99, 0, 99, 99),))
    later = PartitionMap(A0, "new", T0, (Block(0, 5, 99, 104, 5),))
    (row,) = plan(mapped(earlier, later), {A0: 50}).rows

    assert (row.offset, row.note) == (104, "after the last republished record, offset 4")


def test_plan_document() -> None:
    """A plan says for each pair of partitions where the group goes on and what it reads again."""
    offset_map = mapped(part(A0, T0, (0, 10, 50, 60, 10)), part(A1, T0, (0, 10, 20, 30, 10)))
    planned = plan_translation(
        offset_map, group="g", to_group="h", committed={A0: 8, T0: 3}
    ).with_current({T0: 7, A0: 9})

    assert planned.committed == {A0: 8}
    assert planned.to_dict() == {
        "run": "run-1",
        "cluster_id": "cluster",
        "group": "g",
        "to_group": "h",
        "summary": "8 records are read again; none is skipped",
        "read_again": 8,
        "may_be_read_again": 0,
        "is_bound": False,
        "rows": [
            {
                "source_topic": "a",
                "source_partition": 0,
                "committed": 8,
                "target_topic": "t",
                "target_partition": 0,
                "translated": 58,
                "offset": 20,
                "current": 7,
                "read_again": 8,
                "may_be_read_again": 0,
                "metadata": "",
                "is_bound": False,
                "note": "8 records are read again; another source partition lags",
            },
            {
                "source_topic": "a",
                "source_partition": 1,
                "committed": None,
                "target_topic": "t",
                "target_partition": 0,
                "translated": 20,
                "offset": 20,
                "current": 7,
                "read_again": 0,
                "may_be_read_again": 0,
                "metadata": "",
                "is_bound": False,
                "note": "no committed offset: from the first republished record",
            },
        ],
        "left_alone": [],
        "notes": [
            "no record of t was sent to these targets, where group g has offsets, too: none is "
            "committed there, so auto.offset.reset decides, and by default skips what arrives "
            "before the first consumer does; set them with kafka-consumer-groups.sh "
            "--reset-offsets --to-earliest",
            "several source partitions lead to one target partition: the group continues at the "
            "first record that it hasn't read from any of them, so that nothing is skipped; it "
            "reads some records again",
        ],
    }
    assert [row.current for row in planned.with_current({}).rows] == [None, None]


@pytest.mark.parametrize(
    ("again", "says"),
    [
        (0, "exact"),
        (1, "1 record is read again; another source partition lags"),
        (2, "2 records are read again; another source partition lags"),
        (1234, "1,234 records are read again; another source partition lags"),
    ],
)
def test_plan_says_read_again(again: int, says: str) -> None:
    """The records behind the offset of a partition that lags are counted."""
    block = (0, 2000, 0, 2000, 2000)
    offset_map = mapped(part(A0, T0, block), part(A1, T0, block))
    row, _ = plan(offset_map, {A0: 1500, A1: 1500 - again}).rows

    assert (row.read_again, row.note) == (again, says)
    assert (row.translated, row.offset) == (1500, 1500 - again)


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("may_be_repeated", [True, False])
@pytest.mark.parametrize("is_repeated", [True, False])
@pytest.mark.parametrize("lags", [True, False])
def test_plan_says_up_to(
    is_exact: bool, may_be_repeated: bool, is_repeated: bool, lags: bool
) -> None:
    """A number of records is a bound if it is unknown which were read, or which count."""
    block = Block(0, 10, 10, 20, 10) if is_exact else Block(0, 11, 10, 20, 10)
    source = PartitionMap(A0, "id", T0, (block,), is_repeated, may_be_repeated)
    # All of it was read; the other partition lags behind it, or goes on after it.
    other = part(A1, T0, (0, 10, 0, 10, 10) if lags else (0, 10, 30, 40, 10))
    row, _ = plan(mapped(source, other), {A0: 11, A1: 0}).rows

    assert row.read_again == (10 if lags else 0)
    is_known = is_exact and (is_repeated or not may_be_repeated)
    says = "10 records are read again" if is_known else "up to 10 records are read again"
    assert (says in row.note.split("; ")) is lags
    assert ("read again" in row.note) is lags


def test_plan_up_to_of_what_is_read_again() -> None:
    """A block that isn't read again makes no number a bound."""
    exact, joined = (0, 10, 20, 30, 10), (50, 60, 0, 5, 5)
    offset_map = mapped(
        PartitionMap(A0, "id", T0, (Block(*joined),)),
        PartitionMap(A0, "id", T0, (Block(*exact),)),
        part(A1, T0, (0, 10, 10, 20, 10)),
    )
    row, _ = plan(offset_map, {A0: 60, A1: 0}).rows

    assert row.note == "10 records are read again; another source partition lags"


@pytest.mark.parametrize(
    ("committed", "note"),
    [
        (0, "before the first republished record, offset 1,000"),
        (999, "before the first republished record, offset 1,000"),
        (1000, "exact"),
        (1005, "exact"),
        (2010, "exact"),
        (2011, "after the last republished record, offset 2,009"),
    ],
)
def test_plan_extent_of_all_targets(committed: int, note: str) -> None:
    """Whether an offset is among the records is a question to all targets and blocks together."""
    offset_map = mapped(
        part(A0, T0, (1005, 1010, 0, 5, 5), (2000, 2005, 5, 10, 5)),
        part(A0, T1, (1000, 1005, 0, 5, 5), (2005, 2010, 5, 10, 5)),
    )

    assert [row.note for row in plan(offset_map, {A0: committed}).rows] == [note, note]


def test_plan_notes() -> None:
    """Lag and partitions that are left alone are named, each with its offsets."""
    whole = part(A0, T0, (0, 1010, 0, 1010, 1010))
    offset_map = mapped(whole, part(B0, T1, (0, 10, 10, 20, 10)))
    planned = plan(offset_map, {A0: 1500, B0: 4}, source_ends={A0: 3000, A1: 99, B0: 11})

    assert planned.notes == (
        "a-0: lag of 1,500: offsets 1,500 to 2,999 of the source were neither republished nor read "
        "by the group",
        "b-0: lag of 1: offsets 10 to 10 of the source were neither republished nor read by the "
        "group",
    )
    assert plan(mapped(whole, part(A1, T1, (0, 10, 0, 10, 10))), {A0: 9}).notes == (
        "no committed offset for a-1: none is committed in the target either, and the consumers' "
        "auto.offset.reset decides",
    )
    assert plan(ONE, {A0: 5}, source_ends={B0: 99}).notes == ()
    # Nothing of a-1 was sent.
    assert plan(ONE, {A0: 40, A1: 5}, source_ends={A1: 7}).notes == (
        "a-1: lag of 2: offsets 5 to 6 of the source were neither republished nor read by the "
        "group",
    )


@pytest.mark.parametrize(("count", "more"), [(1, ""), (9, ""), (10, ""), (11, " …"), (12, " …")])
def test_plan_lists_some(count: int, more: str) -> None:
    """Ten partitions are named, in order, and that there are more."""
    sources = [TopicPartition("s", number) for number in range(count)]
    offset_map = mapped(*(part(source, T0, (0, 1, 0, 1, 1)) for source in reversed(sources)))
    named = ", ".join(f"s-{number}" for number in range(min(count, 10))) + more

    with pytest.raises(ConfigError) as caught:
        plan(offset_map, {})
    assert str(caught.value) == (
        "group g has no committed offsets, expected some of those that run run-1 read: "
        f"{named}; correct --group or --run"
    )
    with pytest.raises(ConfigError, match=rf"^group g has committed offsets of {named}, expected"):
        plan(ONE, dict.fromkeys(reversed(sources), 0))


@st.composite
def sent_and_committed(draw: st.DrawFn) -> tuple[OffsetMap, Sent, dict[TopicPartition, int]]:
    """Some records sent by key from two source partitions, mapped record by record."""
    ends = {T0: draw(st.integers(0, 5)), T1: draw(st.integers(0, 5))}
    sent: Sent = {A0: [], A1: []}
    following = {A0: draw(st.integers(0, 3)), A1: draw(st.integers(0, 3))}
    for source, target, gap in draw(
        st.lists(
            st.tuples(st.sampled_from([A0, A1]), st.sampled_from([T0, T1]), st.integers(0, 2)),
            min_size=1,
            max_size=20,
        )
    ):
        offset = following[source] + gap
        following[source] = offset + 1
        sent[source].append((offset, target, ends[target]))
        ends[target] += draw(st.integers(1, 2))
    blocks: dict[tuple[TopicPartition, TopicPartition], list[Block]] = {}
    for source, records in sent.items():
        for offset, target, at in records:
            blocks.setdefault((source, target), []).append(Block(offset, offset + 1, at, at + 1, 1))
    offset_map = mapped(
        *(PartitionMap(s, "id", t, tuple(found)) for (s, t), found in sorted(blocks.items()))
    )
    some = draw(st.sets(st.sampled_from(offset_map.sources()), min_size=1))
    return offset_map, sent, {tp: draw(st.integers(0, 50)) for tp in sorted(some)}


@given(sent_and_committed())
def test_plan_skips_nothing(
    case: tuple[OffsetMap, Sent, dict[TopicPartition, int]],
) -> None:
    """No record that the group hasn't read lies before the offset that it goes on at."""
    offset_map, sent, committed = case
    after = plan(offset_map, committed).after

    for source, records in sent.items():
        for offset, target, at in records:
            if target in after and offset >= committed.get(source, 0):
                assert at >= after[target]


@given(sent_and_committed())
def test_plan_no_lower_than_needed(
    case: tuple[OffsetMap, Sent, dict[TopicPartition, int]],
) -> None:
    """The group goes on at a record that it hasn't read, or where some partition's records end."""
    offset_map, sent, committed = case
    for target, start in plan(offset_map, committed).after.items():
        unread = {
            at
            for source, records in sent.items()
            for offset, to, at in records
            if to == target and offset >= committed.get(source, 0)
        }
        ends = {
            max(at for _, to, at in records if to == target) + 1
            for records in sent.values()
            if any(to == target for _, to, _ in records)
        }
        assert start in unread | ends


@pytest.mark.parametrize(("start", "end"), [(5, 9), (5, 5)])
@pytest.mark.parametrize("offset", [0, 4, 5, 6, 9, 10, 5000])
def test_check_held(start: int, end: int, offset: int) -> None:
    """The target holds offsets from its start up to its end, where the next record will be."""
    if start <= offset <= end:
        check_held({T0: offset}, {T0: start}, {T0: end})
    else:
        place = f"beyond the end {end}" if offset > end else f"below the start {start}"
        with pytest.raises(TopicError, match=rf"^t-0: new offset {offset:,} is {place}; expected"):
            check_held({T0: offset}, {T0: start}, {T0: end})


@pytest.mark.parametrize(("count", "more"), [(1, ""), (10, ""), (11, " …")])
def test_check_held_lists_some(count: int, more: str) -> None:
    """Ten offsets that the target doesn't hold are named, and that there are more."""
    targets = [TopicPartition("t", number) for number in range(count)]
    named = "; ".join(f"{tp}: new offset 1 is below the start 2,000" for tp in targets[:10])

    with pytest.raises(TopicError) as caught:
        check_held(
            dict.fromkeys(targets, 1), dict.fromkeys(targets, 2000), dict.fromkeys(targets, 3000)
        )

    assert str(caught.value).startswith(f"{named}{more}; expected offsets that")


def test_check_held_names_all() -> None:
    """Offsets outside of what the target holds are refused, all of them at once."""
    check_held({T0: 5, T1: 9}, {T0: 5, T1: 0}, {T0: 5, T1: 9})

    with pytest.raises(TopicError, match="recreated") as caught:
        check_held({T0: 4, T1: 10}, {T0: 5, T1: 0}, {T0: 5, T1: 9})

    assert "t-0: new offset 4 is below the start 5" in str(caught.value)
    assert "t-1: new offset 10 is beyond the end 9" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "a,0,5\na,1,7\n",
        '"a",0,5\r\n"a",1,7\r\n',
        "\ufeffa,0,5\n\na,1,7",
        '"g","a",0,5\n"other","a",0,9\ng,a,1,7\n',
        "a,0,5\na,0,5\na,1,7\n",
        "other,a,1,8\ng,a,0,5\n,,\ng, a , 1 , 7 \n",
    ],
)
def test_parse_offsets_accepts(text: str) -> None:
    """What kafka-consumer-groups.sh exports is read, of one group and of all."""
    assert parse_offsets(text, "g", "offsets.csv") == {A0: 5, A1: 7}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,0,5\nGROUP TOPIC PARTITION\n", r"offsets.csv line 2 is 'GROUP TOPIC PARTITION', exp"),
        ("a,0,-1\n", "line 1 is 'a,0,-1'"),
        ("a,0,1.5\n", "line 1"),
        ("a,zero,1\n", "line 1"),
        ("a,0\n", "line 1"),
        ("a,0,5\n\na,1\n", "line 3 is 'a,1'"),
        ("g,a,0,5,9\n", "line 1 is 'g,a,0,5,9'"),
        ("g,a,0,5,9,9\n", "line 1"),
        ("0\n", "line 1"),
        ("a,0,5x\n", "line 1"),
        ("a,x0,5\n", "line 1"),
        ("a,0,٣\n", "line 1"),
        ("a,0,5\na,0,6\n", "line 2 has offset 6 for a-0, but an earlier line has 5"),
        ("", "has no offsets of group g, only blanks"),
        ("y,a,0,5\nx,a,0,5\n", "^offsets.csv has no offsets of group g, only those of x, y$"),
        ("\n".join(f"{c},a,0,5" for c in "lkjihfedcba"), "of a, b, c, d, e, f, h, i, j, k$"),
    ],
)
def test_parse_offsets_refuses(text: str, message: str) -> None:
    """Any other file is refused with its line and what is expected."""
    with pytest.raises(ConfigError, match=message):
        parse_offsets(text, "g", "offsets.csv")


def test_records_round_trip(tmp_path: Path) -> None:
    """A record is read as it was written, with the metadata that was there before."""
    records = GroupRecords(UPath(tmp_path), "g")
    planned = plan(ONE, {A0: 15})
    written = records.write(planned, {T0: Committed(3, "noted")}, group_existed=True)

    assert [written] == records.all()
    assert records.all()[0].sources == {A0: 15}
    assert {T0: Committed(3, "noted")} == records.all()[0].before
    assert records.all()[0].after == {T0: 105}
    assert not records.all()[0].is_applied


def test_records_newest_open(tmp_path: Path) -> None:
    """The newest record that isn't undone counts, and each undo leads to the one before."""
    records = GroupRecords(UPath(tmp_path), "g")
    written = [records.write(plan(ONE, {A0: at}), {}, group_existed=False) for at in (11, 12, 13)]
    records.mark_applied(written[2])

    assert records.newest_open() == written[2]
    assert [record.is_applied for record in records.all()] == [False, False, True]
    for record in reversed(written):
        assert records.newest_open() == record
        records.mark_undone(record)
        records.mark_undone(record)
    assert records.newest_open() is None


def test_records_of_other_groups(tmp_path: Path) -> None:
    """Groups whose names begin alike, or hold what no file name may, don't see each other."""
    for group in ("g", "g-20260101T000000000000Z", "g/../x", "gé %2F"):
        records = GroupRecords(UPath(tmp_path), group)
        assert records.all() == []
        records.write(plan(ONE, {A0: 15}), {}, group_existed=False)
        assert [group] == [record.group for record in records.all()]
    assert [path.name for path in tmp_path.iterdir()] == ["groups"]
    assert len(list((tmp_path / "groups").iterdir())) == 4


@pytest.mark.parametrize(
    "change",
    [{"format_version": 9}, {"offsets": [{"topic": "t"}]}, {"offsets": None}, {"sources": [1]}],
)
def test_records_changed(tmp_path: Path, change: dict[str, object]) -> None:
    """A record that was changed is refused by name, before anything is put back."""
    records = GroupRecords(UPath(tmp_path), "g")
    path = records.write(plan(ONE, {A0: 15}), {}, group_existed=False).path
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(ArchiveError, match=path.name):
        records.all()


def test_record_moved(tmp_path: Path) -> None:
    """Each partition has to be as before or as apply leaves it; what isn't is named."""
    records = GroupRecords(UPath(tmp_path), "g")
    offset_map = mapped(part(A0, T0, (0, 10, 0, 10, 10)), part(A1, T1, (0, 10, 0, 10, 10)))
    record = records.write(plan(offset_map, {A0: 4, A1: 4}), {T0: Committed(9)}, group_existed=True)

    for current in ({T0: 9}, {T0: 4, T1: 4}, {T0: 9, T1: 4}, {T0: 4}):
        assert record.is_between(current)
    assert not record.is_between({T1: 4})
    assert record.moved({T0: 4, T1: 5}) == [
        "t-1 is at 5; apply committed 4, before that it was no offset"
    ]


def test_group_who() -> None:
    """Who keeps a group busy is named with client id and host."""
    group = Group("g", "STABLE", (Member("billing", "/10.0.0.1"), Member("billing", "/10.0.0.2")))

    assert group.who() == "is STABLE with 2 members: billing at 10.0.0.1, billing at 10.0.0.2"
    assert not group.is_idle
    assert not Group("g", "PREPARING_REBALANCING").is_idle
    assert Group("g", "EMPTY").is_idle
    assert not Group("g", "DEAD").exists
    untold = Group("g", "UNTOLD")
    assert (untold.exists, untold.is_idle) == (True, False)
    assert untold.who().endswith("(such as streams or share), so it may have members")


@pytest.mark.parametrize(("listed", "state"), [([], "DEAD"), (["g"], "UNTOLD")])
@pytest.mark.parametrize("is_refused", [True, False])
def test_group_of_other_type(listed: list[str], state: str, is_refused: bool) -> None:
    """A group that isn't described is dead only if the broker doesn't list it either."""
    dead = SimpleNamespace(members=[], state=ConsumerGroupState.DEAD)
    client = FakeClient(dead, *[KafkaError.GROUP_ID_NOT_FOUND] * is_refused)
    client.groups = listed
    groups = ConsumerGroups(FakeAdmin(client, 5.0).config, 5.0)
    groups.admin = FakeAdmin(client, 5.0)

    assert groups.describe("g") == Group("g", state)


def asked(*codes: int, timeout: float = 5.0) -> ConsumerGroups:
    empty = SimpleNamespace(members=[], state=ConsumerGroupState.EMPTY)
    admin = FakeAdmin(FakeClient(empty, *codes), timeout)
    groups = ConsumerGroups(admin.config, timeout)
    groups.admin = admin
    return groups


def test_groups_wait_for_coordinator() -> None:
    """A coordinator that starts or moves is asked again, until the time is over."""
    passing = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)

    assert asked(*passing).describe("g") == Group("g", "EMPTY")
    with pytest.raises(KafkaUnavailableError, match="no response about group g from Kafka at k:1"):
        asked(*passing * 9, timeout=0.3).describe("g")


def test_groups_name_missing_acl() -> None:
    """What Kafka's ACLs forbid is named with the ACL that is missing."""
    refused = KafkaError.GROUP_AUTHORIZATION_FAILED

    with pytest.raises(AuthorizationError, match="the ACL DESCRIBE on Group g"):
        asked(refused).describe("g")
    with pytest.raises(AuthorizationError, match="the ACL DESCRIBE on each topic"):
        asked(KafkaError.TOPIC_AUTHORIZATION_FAILED).describe("g")


def test_plan_names_topics_without_records() -> None:
    """Topics of a group of which no record was sent aren't passed over."""
    assert any("no record of b was sent" in note for note in plan(ONE, {A0: 15, B0: 0}).notes)
    assert not any("no record of" in note for note in plan(ONE, {A0: 15}).notes)

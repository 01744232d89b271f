"""The plan: what is written is what is read, and one changed byte is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.output import Level, level_of
from kafka_drain.republish.planning.plan import RepublishPlan, Target
from kafka_drain.republish.planning.runs import run_key
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ProgressSlot, Shard, ShardFile
from kafka_drain.storage.sealed_json import SealError, seal
from tests.tables import each_of

number = st.integers(0, 1 << 62)
text = st.text(max_size=6)
partition = st.builds(TopicPartition, text, st.integers(0, 1000))
times = st.none() | st.integers(-(1 << 50), 1 << 50)
# Kafka's offsets end before 2^63.
length = st.integers(0, (1 << 62) - 1)
ranges = st.lists(st.builds(lambda a, n: OffsetRange(a, a + n), number, length)).map(tuple)
files = st.builds(ShardFile, text, text, number, text, number, number, number, st.booleans())
shards = st.builds(
    Shard,
    number,
    partition,
    text,
    text,
    st.none() | number,
    st.builds(Rows, st.none() | ranges, times, times),
    st.lists(files, min_size=1, max_size=3).map(tuple),
    st.builds(ProgressSlot, text, partition),
)
documents = st.dictionaries(text, st.none() | st.booleans() | number | text | st.lists(text))
# In the order in which they are written.
bindings = st.builds(
    lambda id, topics: {"cluster_id": id, "topics": topics}, text, st.dictionaries(text, text)
)
throughs = st.builds(
    lambda generations, windows, bound: {"generations": generations, "windows": windows, **bound},
    st.dictionaries(text, text),
    st.lists(text),
    st.just({}) | bindings.map(lambda bound: {"bound": bound}),
)
plans = st.builds(
    RepublishPlan,
    run=text,
    key=text,
    created_at=text,
    pipeline=text,
    cluster_id=text,
    request=documents,
    delivery=text,
    transactions=text,
    engine=text,
    placement=text | number,
    provenance=st.booleans(),
    targets=st.lists(
        st.builds(Target, text, text, number, st.lists(number).map(tuple), st.booleans())
    ).map(tuple),
    shards=st.lists(shards, max_size=3).map(tuple),
    size=number,
    timestamps_replaced=number,
    span_ms=st.none() | number,
    notes=st.lists(text).map(tuple),
    through=st.none() | throughs,
    archive_id=text,
    schema_ids=st.none()
    | st.builds(
        lambda ids, kept, counts: {
            "map": "dr",
            "ids": ids,
            "guids": {},
            "kept": kept,
            "counts": [
                {"topic": "t", "part": "key", "translated": count, "without": count}
                for count in counts
            ],
        },
        st.dictionaries(number.map(str), number),
        st.lists(text),
        st.lists(number, max_size=2),
    ),
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FILES = (
    ShardFile("a", "parquet", 5_000_000, "", 10, 19, 10, True),
    ShardFile("b", "parquet", 2_500_000, "", 5, 40, 2_990, True),
)
PLAN = RepublishPlan(
    run="my run",
    key="my-run-0",
    created_at="2026-01-01T00:00:00.000+00:00",
    pipeline="p",
    cluster_id="c",
    request={"target_topic": "copy"},
    delivery="exactly_once",
    transactions="strict",
    engine="worker",
    placement="original",
    provenance=False,
    targets=(Target("copy", "id", 2, (7, 0)), Target("other", "id2", 1, (3,), True)),
    shards=(
        Shard(0, T0, "1", "copy", 0, Rows(), FILES, ProgressSlot("g", TopicPartition("copy", 0))),
        Shard(1, T1, "1", "other", None, Rows(), FILES[:1], ProgressSlot("g", T1)),
    ),
    size=7_500_000,
    notes=("a note",),
)


@given(plans)
def test_plan_to_bytes_property(plan: RepublishPlan) -> None:
    """A plan that was written is read as what it was, and written again as the same bytes."""
    content = plan.to_bytes()
    read = RepublishPlan.parse(content)

    assert plan == read
    assert content == read.to_bytes()
    assert read.sha256 == json.loads(content)["sha256"]


OTHERS: dict[str, Any] = {
    "span_ms": 60_000,
    "through": {"generations": {}, "windows": []},
    "schema_ids": {"map": "dr", "ids": {"1": 2}, "guids": {}, "kept": [], "counts": []},
    "change": {
        "filter": ["key=a"], "mask": ["$.a"], "hash": [], "drop_headers": [], "mark": False,
        "function": {"name": "m:f", "sha256": "0", "python": "3.12"}, "key_id": None,
        "selected": 3, "dropped": 1, "changed": 2, "schemas": [],
        "shards": [{"dropped": 1, "changed": 2, "digest": "0"}],
    },
}  # fmt: skip


@each_of("field", [f.name for f in fields(RepublishPlan) if f.compare])
def test_plan_to_bytes_each_field(field: str) -> None:
    """Each field is part of the plan's hash: another value makes another plan."""
    value = getattr(PLAN, field)
    other: Any = {
        str: lambda: f"{value}x",
        bool: lambda: not value,
        int: lambda: value + 1,
        dict: dict,
        tuple: lambda: value[:-1],
        type(None): lambda: OTHERS[field],
    }[type(value)]()
    changed = replace(PLAN, **{field: other})

    hashes = {RepublishPlan.parse(plan.to_bytes()).sha256 for plan in (PLAN, changed)}

    assert len(hashes) == 2


@given(st.data())
def test_plan_changed_byte(data: st.DataObject) -> None:
    """One changed byte, wherever it is, is refused."""
    content = bytearray(PLAN.to_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))

    with pytest.raises(SealError):
        RepublishPlan.parse(bytes(content))


@given(st.integers(0, len(PLAN.to_bytes()) - 1))
def test_plan_cut_off(length: int) -> None:
    """A plan of which the end is missing is refused."""
    with pytest.raises(SealError):
        RepublishPlan.parse(PLAN.to_bytes()[:length])


def test_plan_other_format() -> None:
    """A plan of a newer release is refused by its version."""
    with pytest.raises(ValueError, match="format version 5"):
        RepublishPlan.parse(seal({"format_version": 5}))


def test_plan_version_1() -> None:
    """A plan of a release without archive ids is read, and keeps its names in Kafka."""
    document = json.loads(replace(PLAN, archive_id="").to_bytes())
    del document["archive_id"], document["sha256"]

    read = RepublishPlan.parse(seal(document | {"format_version": 1}))

    assert read == replace(PLAN, archive_id="")
    assert read.kafka_name == read.key


def test_plan_kafka_name() -> None:
    """What a run has in Kafka is named for its archive too, in few enough characters."""
    key = run_key("n" * 99) + ".000001"
    plan = replace(PLAN, key=key, archive_id="0123456789abcdef" * 2)

    assert plan.kafka_name == f"{key}-0123456789ab"
    assert plan.attempts.group == f"kafka-drain-republish-{key}-0123456789ab-attempts"
    assert len(plan.attempts.group) < 140


def test_plan_transactional_name() -> None:
    """Two plans of one run's name in copies of one archive share no transactional id."""
    plans = [replace(PLAN, archive_id="0" * 32, sha256=digit * 64) for digit in "ab"]

    assert [plan.transactional_name for plan in plans] == [
        f"my-run-0-{'0' * 12}-{digit * 12}" for digit in "ab"
    ]
    assert replace(PLAN, archive_id="", sha256="a" * 64).transactional_name == "my-run-0"


def test_plan_counts() -> None:
    """A plan counts records by shard, and a file that two shards share once."""
    assert (PLAN.records, PLAN.files) == (3_010, 2)
    first = PLAN.shards[0]
    assert (first.records, first.first, first.end) == (3_000, 10, 41)


def test_plan_starts() -> None:
    """The run's records begin where each target partition ended."""
    copy = TopicPartition("copy", 1)

    assert {TopicPartition("copy", 0): 7, copy: 0, TopicPartition("other", 0): 3} == PLAN.starts()


def test_plan_attempts_beside_progress() -> None:
    """Attempts are counted in a group of their own, on a partition that holds progress."""
    attempts, progress = PLAN.attempts, PLAN.shards[0].progress

    assert attempts.tp == progress.tp
    assert attempts.group != progress.group
    assert attempts.group.startswith("kafka-drain-republish-my-run-0")


@given(plans.filter(lambda plan: plan.records), st.lists(st.floats(1, 1e9), min_size=2))
def test_plan_seconds_property(plan: RepublishPlan, limits: list[float]) -> None:
    """A lower limit never makes a run shorter, and no limit is the shortest."""
    seconds = [plan.seconds(limit) for limit in sorted(limits)]

    assert all(slow >= fast for slow, fast in pairwise(seconds))
    assert plan.seconds() <= min(seconds)
    assert plan.seconds() == plan.seconds(1e12, 1e12)


def test_plan_seconds() -> None:
    """The slower one of both limits counts."""
    assert PLAN.seconds(records_per_second=10) == 301
    assert PLAN.seconds(bytes_per_second=7_500) == 1_000
    assert PLAN.seconds(10, 7_500) == 1_000
    assert PLAN.seconds() == 0.25


@pytest.mark.parametrize(
    ("span_ms", "pace", "says"),
    [
        (7_200_000, 1, "about 2 h 0 min (pace 1; from the first timestamp to the last: 2 h 0 min)"),
        (7_200_000, 10, "about 12 min 0 s (pace 10; "),
        (1_767_000_000_000, 0.5, "about 40,902 days 18 h (pace 0.5; "),
        (0, 1, "about 0 s (pace 1; "),
        (None, 1, "about 0 s (pace 1; from the first timestamp to the last: unknown)"),
        (7_200_000, 0, "about 0 s"),
    ],
)
def test_plan_takes_paced(span_ms: int | None, pace: float, says: str) -> None:
    """With a pace, sending takes as long as the timestamps span, scaled."""
    assert replace(PLAN, span_ms=span_ms).takes(0, 0, pace).startswith(says)


def test_plan_lines() -> None:
    """People read what goes where, how long it takes, and what they should know."""
    lines = PLAN.lines()

    assert lines[0] == "republish p: 3,010 records of 2 files (7.5 MB), about 0 s"
    assert "run my-run-0, exactly_once, engine worker, placement original" in lines[1]
    assert lines[2:] == [
        "republish p: a note",
        "  t-0 -> copy-0: offsets 10 to 40, 3,000 records",
        "  t-1 -> other by key: offsets 10 to 19, 10 records",
    ]
    noted = replace(PLAN, notes=("a note", "WARNING sent before")).lines()[2:4]
    assert [level_of(line) for line in noted] == [Level.PLAIN, Level.WARNING]


def test_plan_summary() -> None:
    """The summary is JSON, without the files."""
    summary = replace(PLAN, sha256="abc").summary()

    assert json.loads(json.dumps(summary)) == summary
    assert (summary["plan"], summary["records"], summary["files"]) == ("abc", 3_010, 2)
    assert summary["shards"][1] == {
        "source": "t-1",
        "target": "other by key",
        "first_offset": 10,
        "last_offset": 19,
        "records": 10,
        "files": 1,
    }


def test_plan_format_chained() -> None:
    """Only a plan whose shards share a progress is of the format that older releases refuse."""
    slot = ProgressSlot("g", TopicPartition("copy", 0))
    first, *others = PLAN.shards
    chained = replace(PLAN, shards=tuple(replace(s, progress=slot) for s in PLAN.shards))

    assert others
    assert first.progress not in [shard.progress for shard in others]
    assert json.loads(PLAN.to_bytes())["format_version"] == 1
    assert [len(chain) for chain in PLAN.chains] == [1] * len(PLAN.shards)
    assert json.loads(chained.to_bytes())["format_version"] == 2
    assert RepublishPlan.parse(chained.to_bytes()).chains == [chained.shards]
    assert chained.slots == [slot]

"""What has changed between a plan that was seen and the same plan made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.planning.changes import Outline, changes
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ProgressSlot
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.tables import each_of

SEEN = Outline.of(PLAN)
[SHARD, *OTHERS] = SEEN.shards
[TARGET, *OTHER_TARGETS] = SEEN.targets
FILE = SHARD.files[0]


def shard(**values: Any) -> Outline:
    return replace(SEEN, shards=(replace(SHARD, **values), *OTHERS))


def file(**values: Any) -> Outline:
    """The plan with another first file, in all partitions that have it."""
    shards = [
        replace(
            each,
            files=tuple(replace(f, **values) if f.path == FILE.path else f for f in each.files),
        )
        for each in SEEN.shards
    ]
    return replace(SEEN, shards=tuple(shards))


def without(path: str) -> Outline:
    left = [replace(s, files=tuple(f for f in s.files if f.path != path)) for s in SEEN.shards]
    return replace(SEEN, shards=tuple(left))


def target(**values: Any) -> Outline:
    return replace(SEEN, targets=(replace(TARGET, **values), *OTHER_TARGETS))


FUNCTION = {"name": "m:f", "sha256": "0", "python": "3.12"}
CHANGE: Any = {"function": FUNCTION, "key_id": "1", "shards": []}


@pytest.mark.parametrize(
    ("seen", "now", "said"),
    [
        (CHANGE, CHANGE, []),
        (CHANGE, None, ["what is left out and changed became something else"]),
        (None, CHANGE, ["what is left out and changed became something else"]),
        (
            CHANGE,
            {**CHANGE, "function": {**FUNCTION, "sha256": "1"}},
            ["the function that changes records became another one"],
        ),
        (CHANGE, {**CHANGE, "key_id": "2"}, ["the key of the pseudonyms became another one"]),
        (
            CHANGE,
            {**CHANGE, "shards": [{}]},
            ["what is left out and changed became something else"],
        ),
    ],
)
def test_changes_of_change(seen: Any, now: Any, said: list[str]) -> None:
    """Another function, key or result is another plan."""
    assert changes(replace(SEEN, change=seen), replace(SEEN, change=now), may_grow=False) == said


GROWN = tuple(end + 5 for end in TARGET.start)
#: The plan made again, and what is said; for a target that producers may write to, the last one.
CASES: dict[str, tuple[Outline, str, str]] = {
    "same": (SEEN, "", ""),
    "other names of the progress": (
        shard(progress=ProgressSlot("other", TopicPartition("t", 9))), "", "",
    ),
    "cluster": (replace(SEEN, cluster_id="other"), "became other", "became other"),
    "file gone": (without(FILE.path), f"such as {FILE.path}", f"such as {FILE.path}"),
    "file gone from a partition": (shard(files=SHARD.files[1:]), "the selected", "the selected"),
    "file rewritten": (file(sha256="e" * 64), "replaced or removed", "replaced or removed"),
    "fewer records": (file(records=FILE.records - 1), "the selected records", "the selected"),
    "other rows": (
        shard(rows=Rows((OffsetRange(0, 1),), None, None)), "the selected records", "the selected",
    ),
    "other topic id": (shard(topic_id="other"), "the selected records", "the selected"),
    "other partition": (shard(target_partition=7), "the selected records", "the selected"),
    "partition gone": (replace(SEEN, shards=()), "replaced or removed", "replaced"),
    "recreated": (target(id="other"), "was recreated", "was recreated"),
    "more partitions": (
        target(partitions=9, start=(*TARGET.start, *(0,) * 9)), "to 9 partitions", "to 9",
    ),
    "target gone": (
        replace(SEEN, targets=tuple(OTHER_TARGETS)), "gets no records any more", "gets no records",
    ),
    "compacted since": (
        target(is_compacted=True), "one that Kafka compacts", "one that Kafka compacts",
    ),
    "grown": (target(start=GROWN), f"grew by {5 * len(GROWN):,}", ""),
    "other schema ids": (replace(SEEN, schema_ids={"map": "other"}), "schema ids", "schema ids"),
}  # fmt: skip


@each_of("may_grow", [False, True])
@each_of("case", CASES)
def test_changes(case: str, may_grow: bool) -> None:
    """Whatever changes which records go where is said; nothing else is."""
    now, said, said_if_growing = CASES[case]
    expected = said_if_growing if may_grow else said

    found = changes(SEEN, now, may_grow=may_grow)

    assert [expected in text for text in found] == [True] * bool(expected)


def test_changes_created_by_first_try() -> None:
    """A topic that the plan was to create, and a killed try has, is as it was planned."""
    planned = replace(SEEN, targets=(replace(TARGET, id="", start=(0,) * TARGET.partitions),))
    created = replace(planned, targets=(replace(planned.targets[0], id="new"),))
    used = replace(created, targets=(replace(created.targets[0], start=(1,) * TARGET.partitions),))
    compacted = replace(created, targets=(replace(created.targets[0], is_compacted=True),))

    assert changes(planned, created, may_grow=False) == []
    # Like its source.
    assert changes(planned, compacted, may_grow=False) == []
    assert changes(planned, used, may_grow=False) != []


def test_changes_several() -> None:
    """All changes are said at once, files first."""
    now = replace(target(id="other"), shards=())
    said: list[Callable[[str], bool]] = [
        lambda text: "replaced or removed" in text,
        lambda text: "was recreated" in text,
    ]

    assert [
        is_it(text) for is_it, text in zip(said, changes(SEEN, now, may_grow=False), strict=True)
    ]

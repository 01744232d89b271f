"""Tests of verify: which partitions one client reads, and what is expected in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kafka_drain.data_files.content_hash import digest_of, digest_text
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.rows import columns_of
from kafka_drain.errors import TopicError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.placement import PARTITIONERS, partition_of_key
from kafka_drain.republish.planning.plan import Target
from kafka_drain.republish.planning.shards import Shard
from kafka_drain.republish.sending.arrow_records import provenance
from kafka_drain.republish.verifying import verify
from kafka_drain.republish.verifying.matching import PartitionMatch
from kafka_drain.republish.verifying.offset_map import Block
from kafka_drain.republish.verifying.records import Records
from kafka_drain.republish.verifying.verify import (
    CLIENTS,
    PASSES,
    TOGETHER,
    verified_together,
    verify_partitions,
)
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import NOW
from tests.kafka_drain.republish.planning.test_plan import PLAN


def plan(**partitions: int) -> Any:
    """A plan whose shards send to all partitions of some topics."""
    tps = [TopicPartition(name, n) for name, count in partitions.items() for n in range(count)]
    shards = [SimpleNamespace(target_topic=t.topic, target_partition=t.partition) for t in tps]
    return SimpleNamespace(shards=shards, starts=lambda: dict.fromkeys(tps, 0))


@pytest.mark.parametrize(
    ("partitions", "sizes"),
    [
        ({}, set()),
        ({"t": 1}, {1}),
        ({"t": CLIENTS - 1}, {1}),
        ({"t": CLIENTS}, {2}),
        ({"t": 100}, {4}),
        ({"t": 10_000}, {TOGETHER}),
        ({"t": 2, "u": CLIENTS}, {1, 2}),
    ],
)
def test_verified_together(partitions: dict[str, int], sizes: set[int]) -> None:
    """Few partitions have a client each; thousands share some, each with those of one topic."""
    groups = verified_together(plan(**partitions))

    assert {len(group) for group in groups} == sizes
    assert all(len({tp.topic for tp in group}) == 1 for group in groups)
    assert list(chain(*groups)) == list(plan(**partitions).starts())


def test_senders() -> None:
    """A partition gets its own shards and those that keys spread, under the first one's number.

    Whatever a plan sends elsewhere, to partitions of another group or topic, isn't expected there.
    """
    tps = [TopicPartition("copy", 0), TopicPartition("copy", 1)]
    targets = [("copy", 0), ("copy", 1), ("copy", None), ("copy", 2), ("other", None), ("other", 0)]
    shards = [
        SimpleNamespace(number=number, target_topic=topic, target_partition=partition)
        for number, (topic, partition) in enumerate([*targets, ("copy", None), ("copy", 1)])
    ]
    chains = [shards[:2], *([shard] for shard in shards[2:6]), shards[6:]]
    plan: Any = SimpleNamespace(chains=chains)

    found = verify._senders(plan, tps)

    assert {
        tp: {number: [shard.number for shard in part] for number, part in parts.items()}
        for tp, parts in found.items()
    } == {tps[0]: {0: [0], 2: [2], 6: [6]}, tps[1]: {1: [1], 2: [2], 6: [6, 7]}}


AT = int(NOW.timestamp() * 1000)
COPY, COPY_1 = TopicPartition("copy", 0), TopicPartition("copy", 1)
Row = tuple[bytes | None, bytes, Any]


class Verified:
    """A plan that sends the files' records to topic copy, and what is there.

    Attributes:
        plan: The plan; partition 0 of copy begins with offset 7.
        files: Batches of records in each shard's files: offset, key and value.
        there: What each read of a partition gives: key, value and headers, from `first` on.
        first: The offset of the first of them.
        headers: Headers of the records in the files.
        asked: How the target was read.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.plan = replace(PLAN, shards=PLAN.shards[:1])
        self.files: dict[int, list[list[tuple[int, bytes | None, bytes]]]]
        self.files = {0: [[(3, b"a", b"x"), (5, b"b", b"y")], [(6, b"c", b"z")]]}
        self.there: dict[TopicPartition, list[list[Row]]] = {
            COPY: [[(b"a", b"x", None), (b"b", b"y", None), (b"c", b"z", None)]], COPY_1: [[]]
        }  # fmt: skip
        self.first = 7
        self.headers: Any = None
        self.asked: list[Any] = []
        self.cluster = FakeCluster({COPY: Log(end=10), COPY_1: Log()}, topic_ids={"copy": "id"})
        verified = self

        class Reader:
            def __init__(self, _: object, tp: TopicPartition, **asked: Any) -> None:
                self.tp, self.with_keys = tp, asked["with_keys"]
                self.left = list(verified.there[tp])
                verified.asked.append((tp, asked["first"], asked["end"], asked["with_keys"]))

            def read(self, _: Callable[[], bool]) -> Iterator[Records]:
                rows = self.left.pop(0) if len(self.left) > 1 else self.left[0]
                offsets = range(verified.first, verified.first + len(rows))
                yield Records(
                    [key for key, _, _ in rows],
                    [value for _, value, _ in rows],
                    [headers for _, _, headers in rows],
                    [AT] * len(rows),
                    offsets,
                    self.with_keys,
                )

        def read_shard(_: str, shard: Shard, *, sharers: int) -> Iterator[pa.RecordBatch]:
            for batch in self.files[shard.number]:
                yield batch_of(batch, self.headers)

        patch.setattr(verify, "KafkaCluster", lambda _: self.cluster)
        patch.setattr(verify, "target_client", lambda *_: SimpleNamespace(close=lambda: None))
        patch.setattr(verify, "TargetReader", Reader)
        patch.setattr(verify, "read_shard", read_shard)

    def target(self, **changes: Any) -> None:
        """Change the plan's target."""
        changed: Target = replace(self.plan.targets[0], **changes)
        self.plan = replace(self.plan, targets=(changed,))

    def verify(self, tps: Sequence[TopicPartition] = (COPY,), **how: Any) -> list[PartitionMatch]:
        """Compare the partitions."""
        settings = {"bootstrap.servers": "a:1"}
        found = dict(verify_partitions("", self.plan, settings, tps, **how))
        assert list(found) == list(tps)
        return list(found.values())


def batch_of(
    rows: Sequence[tuple[int, bytes | None, bytes]], headers: Any = None
) -> pa.RecordBatch:
    """A batch of records of a file."""
    same = {"timestamp": NOW, "headers": headers}
    columns = [{"offset": at, "key": k, "value": v, **same} for at, k, v in rows]
    return pa.RecordBatch.from_pylist(columns, schema=SCHEMA)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> Verified:
    """A plan of which everything has arrived."""
    return Verified(monkeypatch)


def counts(match: PartitionMatch) -> tuple[int, int, int]:
    return match.expected, match.lost, match.unplanned


def test_verify_exact(verified: Verified) -> None:
    """Everything is expected, from where the partition ended when the plan was made."""
    [match] = verified.verify()

    assert (match.is_exact, counts(match), match.notes) == (True, (3, 0, 0), ())
    assert verified.asked == [(COPY, 7, 10, False)]
    # Sources go on where the archive has gaps.
    assert match.mappings == {0: (Block(3, 4, 7, 8, 1), Block(5, 7, 8, 10, 2))}


def test_verify_target_recreated(verified: Verified) -> None:
    """Of a topic that was made again, nothing is compared."""
    verified.cluster.topic_ids = {"copy": "again"}

    with pytest.raises(TopicError, match="topic copy can't be verified: it has id again, expected"):
        verified.verify()

    assert verified.asked == []


@pytest.mark.parametrize(
    ("log_start", "lost", "starts", "first", "is_noted"),
    [
        (0, 0, {}, 7, False),
        (0, 1, {}, 7, False),
        (7, 1, {}, 7, False),
        (8, 0, {}, 8, False),
        (8, 1, {}, 8, True),
        (4, 1, {COPY: 2}, 4, True),
        (0, 1, {COPY: 2}, 2, False),
        (0, 1, {COPY_1: 2}, 7, False),
    ],
)
def test_verify_from(
    verified: Verified,
    log_start: int,
    lost: int,
    starts: dict[TopicPartition, int],
    first: int,
    is_noted: bool,
) -> None:
    """Read is what the run may have sent and Kafka still has; what retention took is said."""
    verified.cluster.logs[COPY] = Log(first=log_start, end=10)
    verified.first = first
    verified.there[COPY] = [verified.there[COPY][0][lost:]]

    [match] = verified.verify(starts=starts)

    assert verified.asked == [(COPY, first, 10, False)]
    assert match.lost == lost
    notes = [note for note in match.notes if "Kafka has deleted the records below" in note]
    assert bool(notes) is is_noted


def test_verify_to_end(verified: Verified) -> None:
    """Read is up to the end of the log, also past an open transaction."""
    verified.cluster.logs[COPY] = Log(end=10, stable=8)

    verified.verify()

    assert verified.asked == [(COPY, 7, 10, False)]


@pytest.mark.parametrize(("start", "first"), [(None, 7), (0, 0), (2, 2), (8, 8)])
def test_verify_partition_from(verified: Verified, start: int | None, first: int) -> None:
    """One partition is read from a given offset on, which may be 0, or the plan's."""
    verified.first = 8

    match = verify.verify_partition("", verified.plan, {"bootstrap.servers": "a:1"}, COPY, start)

    assert match.is_exact
    assert verified.asked == [(COPY, first, 10, False)]


@pytest.mark.parametrize("has_provenance", [True, False])
@pytest.mark.parametrize("is_sent", [True, False])
def test_verify_provenance(verified: Verified, has_provenance: bool, is_sent: bool) -> None:
    """A record without its origin, or with one that nobody asked for, isn't what was sent."""
    verified.plan = replace(verified.plan, provenance=has_provenance)
    verified.headers = [{"key": "h", "value": b"1"}]
    [shard], [rows] = verified.plan.shards, verified.there[COPY]
    verified.there[COPY] = [
        [
            (key, value, [("h", b"1"), *(provenance(shard, at) if is_sent else [])])
            for (key, value, _), at in zip(rows, (3, 5, 6), strict=True)
        ]
    ]

    [match] = verified.verify()

    assert match.is_exact is (is_sent is has_provenance)
    assert match.lost == (0 if match.is_exact else 3)


@pytest.mark.parametrize("placed", [*PARTITIONERS, "original"])
def test_verify_by_key(verified: Verified, placed: str) -> None:
    """Of what keys spread, each partition is to have its own, by the plan's count of them."""
    keys: list[bytes | None] = [*(b"%d" % number for number in range(20)), None]
    is_spread = placed in PARTITIONERS
    # Of which records without a key have their place.
    source = TopicPartition("t", 1)
    shard = replace(
        verified.plan.shards[0], source=source, target_partition=None if is_spread else 0
    )
    verified.plan = replace(verified.plan, shards=(shard,), placement=placed)
    verified.files = {0: [[(at, key, b"v") for at, key in enumerate(keys)]]}
    places = [partition_of_key(key, 2, 1, placed) if is_spread else 0 for key in keys]
    for tp in (COPY, COPY_1):
        sent = [key for key, to in zip(keys, places, strict=True) if to == tp.partition]
        verified.there[tp] = [[(key, b"v", None) for key in sent]]
    # Added after the plan was made.
    verified.cluster.logs[TopicPartition("copy", 2)] = Log()

    matches = verified.verify([COPY, COPY_1])

    assert [match.is_exact for match in matches] == [True, True]
    assert [match.expected for match in matches] == [places.count(0), places.count(1)]


@pytest.mark.parametrize("is_compacted", [True, False])
@pytest.mark.parametrize("better_at", range(1, PASSES + 2))
def test_verify_compacted_meanwhile(verified: Verified, is_compacted: bool, better_at: int) -> None:
    """A compacted target is read again, a few times, if two reads don't fit together."""
    verified.target(is_compacted=is_compacted)
    asked: list[bool] = []
    [exact] = verified.verify()
    given = [replace(exact, lost=1)] * (better_at - 1) + [exact]

    def match_partition(*_: Any, is_compacted: bool, **__: Any) -> PartitionMatch:
        asked.append(is_compacted)
        return given.pop(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "match_partition", match_partition)
        [match] = verified.verify()

    most = PASSES if is_compacted else 1
    assert asked == [is_compacted] * min(better_at, most)
    assert match.is_exact is (better_at <= most)
    assert {how[3] for how in verified.asked} == {is_compacted}


def test_verify_chain_mapped_by_shard(verified: Verified) -> None:
    """Of incarnations that were sent one after the other, each one's offsets are mapped."""
    [shard] = verified.plan.shards
    verified.plan = replace(verified.plan, shards=(shard, replace(shard, number=1, topic_id="2")))
    verified.files = {0: [[(3, b"a", b"x"), (4, b"b", b"y")]], 1: [[(0, b"c", b"z")]]}

    [match] = verified.verify()

    assert match.is_exact
    assert match.mappings == {0: (Block(3, 5, 7, 9, 2),), 1: (Block(0, 1, 9, 10, 1),)}


def test_verify_changed(verified: Verified) -> None:
    """Compared is what a change makes of the files, and its effect on each shard is counted."""
    results = [
        (batch_of([(3, b"a", b"x")]), 1, [True]),
        (batch_of([]), 1, []),
        (batch_of([(7, b"b", b"y"), (8, b"c", b"z")]), 0, [False, True]),
    ]
    verified.files[0].append([(7, b"q", b"q")])
    applied: list[Any] = []

    def apply(batch: pa.RecordBatch, source: TopicPartition) -> Any:
        made, dropped, changed = results[len(applied)]
        applied.append((batch.num_rows, source))
        return SimpleNamespace(batch=made, dropped=dropped, changed=pa.array(changed, pa.bool_()))

    change: Any = SimpleNamespace(open=lambda: SimpleNamespace(apply=apply))

    [match] = verified.verify(change=change)

    assert match.is_exact
    assert applied == [(2, TopicPartition("t", 0)), *[(1, TopicPartition("t", 0))] * 2]
    digest = sum(digest_of(columns_of(made)) for made, _, _ in results)
    assert match.changes == {0: (2, 2, digest_text(digest))}


def test_verify_compacted_away(verified: Verified) -> None:
    """What Kafka has compacted away counts as that, if a later record of its key is there."""
    verified.target(is_compacted=True)
    verified.files = {0: [[(3, b"a", b"x"), (4, b"b", b"y"), (5, b"a", b"z")]]}
    verified.there[COPY] = [[(b"a", b"z", None)]]

    [match] = verified.verify()

    assert (match.compacted, match.lost) == (1, 1)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_verify_timestamps(verified: Verified, delivery: str) -> None:
    """A delivery that keeps timestamps is held to them, and no other one."""
    verified.plan = replace(verified.plan, delivery=delivery)
    later = pa.array([NOW.replace(year=NOW.year + 1)] * 2, SCHEMA.field("timestamp").type)
    change: Any = SimpleNamespace(
        open=lambda: SimpleNamespace(
            apply=lambda batch, _: SimpleNamespace(
                batch=batch.set_column(
                    batch.schema.names.index("timestamp"),
                    SCHEMA.field("timestamp"),
                    later.slice(0, batch.num_rows),
                ),
                dropped=0,
                changed=pa.array([False] * batch.num_rows),
            )
        )
    )

    [match] = verified.verify(change=change)

    assert match.lost == (3 if delivery == "exactly_once" else 0)


def test_verify_schema_ids(verified: Verified) -> None:
    """Compared is what has the target's schema ids, which the records were sent with."""
    ids: Any = {"map": "dr", "ids": {"5": 105}, "guids": {}, "kept": [], "counts": []}
    verified.plan = replace(verified.plan, schema_ids=ids)
    verified.files = {0: [[(3, b"a", b"\0\0\0\0\5x")]]}
    verified.there[COPY] = [[(b"a", b"\0\0\0\0\x69x", None)]]

    [match] = verified.verify()

    assert match.is_exact


def test_target_partitions() -> None:
    """Verified is where shards send to: a topic's partitions all, if keys choose among them."""
    fixed, _ = PLAN.shards
    assert verify.target_partitions(PLAN) == [COPY, TopicPartition("other", 0)]

    spread = replace(PLAN, shards=(replace(fixed, target_partition=None),))

    assert verify.target_partitions(spread) == [COPY, COPY_1]


@pytest.mark.parametrize("lost", [0, 1])
def test_summarize(verified: Verified, lost: int) -> None:
    """All partitions count, and each block is of the source and topic that its shard names."""
    [of_copy] = verified.verify()
    of_other = replace(of_copy, lost=lost, mappings={1: (Block(0, 9, 3, 12, 9),)}, changes={})
    of_copy = replace(of_copy, changes={0: (1, 2, "0")})
    other = TopicPartition("other", 0)
    planned = {"dropped": 1, "changed": 2, "digest": "0"}
    change: Any = {"dropped": 2, "changed": 4, "shards": [planned, planned]}
    shards = (PLAN.shards[0], replace(PLAN.shards[1], topic_id="2"))
    plan = replace(PLAN, shards=shards, change=change)

    verification, offset_map = verify.summarize(plan, {other: of_other, COPY: of_copy})

    assert [found.tp for found in verification.partitions] == [COPY, other]
    assert verification.lost == lost
    assert [
        (part.source, part.source_topic_id, part.target, part.blocks)
        for part in offset_map.partitions
    ] == [
        (TopicPartition("t", 0), "1", COPY, of_copy.mappings[0]),
        (TopicPartition("t", 1), "2", other, of_other.mappings[1]),
    ]
    assert (offset_map.run, offset_map.cluster_id) == (PLAN.key, PLAN.cluster_id)
    # The second shard wasn't seen to its end, which counts only if all records are there.
    assert verification.change is not None
    assert verification.change.others == (() if lost else (TopicPartition("t", 1),))

"""Spark's checkpoint: its files, and how it agrees with the manifest."""

from __future__ import annotations

import pytest

from kafka_drain.findings import Finding, Reason
from kafka_drain.metadata_log.checkpoint import (
    Checkpoint,
    batch_id,
    compare_with_manifest,
    compare_with_receipts,
    find_holes,
    parse_commit,
    parse_initial_offsets,
    parse_metadata,
    parse_offsets,
    refuse_backward,
)
from kafka_drain.offsets import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

METADATA = b'{"batchWatermarkMs":0,"batchTimestampMs":1767225600000,"conf":{}}'


def checkpoint_of(offsets: range, commits: range) -> Checkpoint:
    return Checkpoint({batch: {T0: batch} for batch in offsets}, frozenset(commits))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0", 0),
        ("17", 17),
        (".17.crc", None),
        ("17.tmp", None),
        ("-1", None),
        ("", None),
        ("²", None),
        ("٣", None),
    ],
)
def test_batch_id(name: str, expected: int | None) -> None:
    """Only a plain number names a batch."""
    assert expected == batch_id(name)


# parse_offsets, parse_commit


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_parse_offsets(end: bytes) -> None:
    """A batch's end is the third line."""
    content = b"v1\n" + METADATA + b'\n{"t":{"1":7,"0":3}}' + end

    assert parse_offsets(content, "offsets/0") == ({T0: 3, T1: 7}, [])


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"", "got 1 lines"),
        (b"\0\0\0", "got 1 lines"),
        (b"v1", "got 1 lines"),
        (b"v1\n" + METADATA, "got 2 lines"),
        (b"v2\n" + METADATA + b'\n{"t":{"0":3}}', "expected v1"),
        (b"v1\n" + METADATA + b'\n{"t":{"0":3}}\n{"u":{"0":3}}', "got 4 lines"),
        (b'v1\n{"batch\n{"t":{"0":3}}', "Unterminated"),
        (b"v1\n" + METADATA + b'\n{"t":{"0":', "Expecting value"),
        (b"v1\n" + METADATA + b"\n-", "Expecting value"),
        (b"v1\n" + METADATA + b"\n[3]", "expected"),
        (b"v1\n" + METADATA + b"\n\xff\xfe", "Expecting value"),
        (b"v1\n" + METADATA + b"\n" + b"[" * 100_000, "recursion"),
    ],
)
def test_parse_offsets_unreadable(content: bytes, detail: str) -> None:
    """A file that Spark doesn't write is one finding at its path."""
    end, findings = parse_offsets(content, "offsets/4")

    assert end is None
    assert [(f.reason, f.where) for f in findings] == [(Reason.CHECKPOINT_CORRUPT, "offsets/4")]
    assert detail in findings[0].detail


@pytest.mark.parametrize("content", [b'v1\n{"nextBatchWatermarkMs":0}', b"v1\n{}\n"])
def test_parse_commit(content: bytes) -> None:
    """A commit is a version and a line of JSON."""
    assert parse_commit(content, "commits/0") == []


#: JSON may be nested without end.
NESTED = b"v1\n" + b"[" * 100_000


@pytest.mark.parametrize(
    "content", [b"", b"v1", b"v2\n{}", b"v1\n{}\n{}", b"v1\n{", b"v1\n\xff", NESTED]
)
def test_parse_commit_unreadable(content: bytes) -> None:
    """A file that Spark doesn't write is one finding at its path."""
    assert [(finding.reason, finding.where) for finding in parse_commit(content, "commits/4")] == [
        (Reason.CHECKPOINT_CORRUPT, "commits/4")
    ]


@pytest.mark.parametrize(
    ("metadata", "detail"),
    [
        (b"[]", "expected a JSON object"),
        (b'{"batchWatermarkMs":"0"}', "expected a whole number as batchWatermarkMs"),
        (b'{"batchTimestampMs":true}', "expected a whole number as batchTimestampMs"),
        (b'{"conf":[]}', "configuration as strings"),
        (b'{"conf":{"a":1}}', "configuration as strings"),
    ],
)
def test_parse_offsets_metadata(metadata: bytes, detail: str) -> None:
    """Spark reads the metadata before the offsets: what it can't read is found."""
    end, findings = parse_offsets(b"v1\n" + metadata + b'\n{"t":{"0":3}}', "offsets/4")

    assert end is None
    assert [detail in finding.detail for finding in findings] == [True]


# parse_metadata, parse_initial_offsets


def test_parse_metadata() -> None:
    """The query's id is all that is needed."""
    assert parse_metadata(b'{"id":"a1"}', "metadata") == []


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b"{}", b'{"id":""}', b'{"id":1}', b"[" * 100_000]
)
def test_parse_metadata_unreadable(content: bytes) -> None:
    """A file without a query's id is one finding at its path."""
    [finding] = parse_metadata(content, "metadata")

    assert (finding.reason, finding.where) == (Reason.CHECKPOINT_CORRUPT, "metadata")


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b'\0v1\n{"t":{"0":3,"1":0}}', None),
        (b'v1\n{"t":{"0":3}}', None),
        (b"", "expected v1 and the offsets"),
        (b"\0v1", "expected v1 and the offsets"),
        (b'\0v2\n{"t":{"0":3}}', "expected v1 and the offsets"),
        (b"\0\xff\xfe\n{}", "expected v1 and the offsets"),
        (b"\0v1\n{", "Expecting"),
        (b"\0v1\n" + b"[" * 100_000, "recursion"),
        (b'\0v1\n{"t":{"0":4}}', "t-0 starts at offset 4, generation.json says 3"),
        (b'\0v1\n{"t":{"0":3,"2":7}}', "t-2 starts at offset 7, generation.json says nothing"),
    ],
)
def test_parse_initial_offsets(content: bytes, detail: str | None) -> None:
    """The query starts where its generation does; what differs or isn't readable is found."""
    findings = parse_initial_offsets(content, "sources/0/0", {T0: 3, T1: 0})

    assert [detail is not None and detail in found.detail for found in findings] == (
        [] if detail is None else [True]
    )


# compare_with_receipts


def test_compare_with_receipts() -> None:
    """Ends that differ from a receipt's are found, for the topics that the batch names."""
    other = TopicPartition("u", 0)
    checkpoint = Checkpoint({0: {T0: 3}, 1: {T0: 5}, 2: {}, 3: {T0: 8}, 4: {T0: 9, T1: 1}})
    sealed = {0: {T0: 4}, 1: {T0: 5, other: 7}, 2: {T0: 6}, 4: {T0: 9}}

    findings = compare_with_receipts(checkpoint, sealed, "checkpoint")

    assert [(finding.reason, finding.where) for finding in findings] == [
        (Reason.CHECKPOINT_CORRUPT, "checkpoint/offsets/0"),
        (Reason.CHECKPOINT_CORRUPT, "checkpoint/offsets/4"),
    ]


# find_holes


@pytest.mark.parametrize(
    ("batches", "holes"),
    [([], []), ([7], []), ([3, 5, 4], []), ([0, 2], [1]), ([100, 103, 105], [101, 102, 104])],
)
def test_find_holes(batches: list[int], holes: list[int]) -> None:
    """Batches between the lowest and the highest are missed; older ones are purged in order."""
    assert [
        Finding(Reason.CHECKPOINT_HOLE, "offsets", f"there is no file for batch {batch}")
        for batch in holes
    ] == find_holes(batches, "offsets")


# compare_with_manifest


def test_checkpoint_last() -> None:
    """The last batches are by number; without files there is none."""
    assert (
        checkpoint_of(range(10), range(9)).last_offsets,
        checkpoint_of(range(10), range(9)).last_commit,
    ) == (9, 8)
    assert (Checkpoint().last_offsets, Checkpoint().last_commit) == (None, None)


@pytest.mark.parametrize(
    ("offsets", "commits", "last_batch"),
    [
        pytest.param(range(0), range(0), None, id="nothing yet"),
        pytest.param(range(1), range(0), None, id="killed in the first batch"),
        pytest.param(range(1), range(0), 0, id="killed before the first commit"),
        pytest.param(range(6), range(6), 5, id="all agree"),
        pytest.param(range(6), range(5), 5, id="killed between manifest and commit"),
        pytest.param(range(7), range(6), 5, id="killed in a batch"),
        pytest.param(range(150, 251), range(150, 250), 250, id="old batches purged"),
    ],
)
def test_compare_with_manifest_in_order(
    offsets: range, commits: range, last_batch: int | None
) -> None:
    """What a kill at any moment leaves behind is in order."""
    assert compare_with_manifest(checkpoint_of(offsets, commits), last_batch, "checkpoint") == []


@pytest.mark.parametrize(
    ("offsets", "commits", "last_batch", "reason"),
    [
        pytest.param(range(1), range(1), None, Reason.MANIFEST_MISSING, id="manifest gone"),
        pytest.param(range(0), range(1), None, Reason.MANIFEST_MISSING, id="both nearly gone"),
        pytest.param(range(0), range(0), 3, Reason.CHECKPOINT_MISSING, id="checkpoint gone"),
        pytest.param(range(0), range(4), 3, Reason.CHECKPOINT_MISSING, id="offsets gone"),
        pytest.param(range(6), range(6), 4, Reason.MANIFEST_BEHIND, id="manifest one behind"),
        pytest.param(range(6), range(6), 0, Reason.MANIFEST_BEHIND, id="manifest far behind"),
        pytest.param(range(4), range(4), 4, Reason.MANIFEST_AHEAD, id="offsets one behind"),
        pytest.param(range(4), range(4), 9, Reason.MANIFEST_AHEAD, id="checkpoint restored"),
        pytest.param(range(6), range(4), 5, Reason.MANIFEST_AHEAD, id="two commits lost"),
        pytest.param(range(6), range(0), 5, Reason.MANIFEST_AHEAD, id="all commits lost"),
    ],
)
def test_compare_with_manifest_contradiction(
    offsets: range, commits: range, last_batch: int | None, reason: Reason
) -> None:
    """Each contradiction has its reason."""
    findings = compare_with_manifest(checkpoint_of(offsets, commits), last_batch, "checkpoint")

    assert [(reason, "checkpoint")] == [(finding.reason, finding.where) for finding in findings]


@pytest.mark.parametrize(
    ("offsets", "commits", "last_batch"), [(range(9), range(6), 5), (range(2), range(0), None)]
)
def test_compare_with_manifest_planned_twice(
    offsets: range, commits: range, last_batch: int | None
) -> None:
    """Two batches planned and neither written: Spark would run only the second one."""
    assert compare_with_manifest(checkpoint_of(offsets, commits), last_batch, "checkpoint")


def test_compare_with_manifest_detail() -> None:
    """A finding tells the batches of both sides."""
    (finding,) = compare_with_manifest(checkpoint_of(range(4), range(0)), 9, "checkpoint")

    assert "batch 9" in finding.detail
    assert "offsets of 3 and commit none" in finding.detail


def test_refuse_backward_in_order() -> None:
    """Batches that end where they start or later stay as they are."""
    ends = {4: {T0: 5}, 5: {T0: 5, T1: 0}, 6: {}, 7: {T0: 9, T1: 3}}

    assert refuse_backward(ends, {T0: 2}, "offsets") == (ends, [])


def test_refuse_backward_before_its_start() -> None:
    """A batch that ends before its start can't be used, and is named with both offsets."""
    kept, findings = refuse_backward({0: {T0: 3}, 1: {T0: 2}, 2: {T0: 8}}, {T0: 1}, "offsets")

    assert kept == {0: {T0: 3}, 1: {}, 2: {T0: 8}}
    assert findings == [
        Finding(Reason.CHECKPOINT_CORRUPT, "offsets/1", "t-0 ends at offset 2, before its start 3")
    ]


@pytest.mark.parametrize("unknown", [{}, {T0: 2}], ids=["unreadable", "backward"])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("first", [0, 1])
def test_refuse_backward_after_unknown_ends(
    unknown: dict[TopicPartition, int], batches: int, first: int
) -> None:
    """A batch after some of unknown ends starts at the last known ones, or at the generation's."""
    ends = {0: {T0: 5}} if first else {}
    last = first + batches
    ends |= dict.fromkeys(range(first, last), unknown) | {last: {T0: 4}, last + 1: {T0: 5}}

    kept, findings = refuse_backward(ends, {T0: 5}, "offsets")

    assert kept == {**ends, **{batch: {} for batch in range(first, last + 1)}}
    assert findings[-1] == Finding(
        Reason.CHECKPOINT_CORRUPT,
        f"offsets/{last}",
        "t-0 ends at offset 4, before its start 5",
    )


def test_refuse_backward_unnamed_meanwhile() -> None:
    """A partition that a batch doesn't name stays where it is: a later one can't begin it again."""
    ends = {0: {T0: 10, T1: 5}, 1: {T0: 11}, 2: {T0: 12, T1: 3}, 3: {T0: 12, T1: 5}}

    kept, findings = refuse_backward(ends, {}, "offsets")

    assert kept == {**ends, 2: {}}
    assert findings == [
        Finding(Reason.CHECKPOINT_CORRUPT, "offsets/2", "t-1 ends at offset 3, before its start 5")
    ]

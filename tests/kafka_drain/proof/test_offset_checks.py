"""Offsets in files against offsets that were drained, against multisets of single offsets."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.findings import Finding, Reason
from kafka_drain.metadata_log.checkpoint import Checkpoint
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.proof.gap_explanation import explain_gaps
from kafka_drain.proof.offset_checks import (
    Segment,
    check_duplicates,
    check_offsets,
    missing_offsets,
    segments,
    without_held,
)
from kafka_drain.proof.sealing import Identity
from tests.kafka_drain.drained import A, B, archives, held, offsets_in


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


def named_in(findings: list[Finding]) -> set[int]:
    """Return the offsets of all ranges that come first in the findings' details."""
    found = [re.search(r"holds \[(\d+), (\d+)\)", finding.detail) for finding in findings]
    return {offset for match in found if match for offset in range(int(match[1]), int(match[2]))}


# segments


def test_segments_each_batch() -> None:
    """Each batch reads from the end of the one before; the first one from the start."""
    checkpoint = Checkpoint({0: {A: 15, B: 3}, 1: {A: 15, B: 9}})

    assert [
        Segment(0, 0, {A: R(10, 15), B: R(0, 3)}),
        Segment(1, 1, {A: R(15, 15), B: R(3, 9)}),
    ] == segments({A: 10, B: 0}, checkpoint, last_batch=1)


def test_segments_purged_batches() -> None:
    """What forgotten batches read together with the oldest known one is one segment."""
    checkpoint = Checkpoint({8: {A: 30}, 7: {A: 20}})

    found = segments({A: 5}, checkpoint, last_batch=8)

    assert [Segment(0, 7, {A: R(5, 20)}), Segment(8, 8, {A: R(20, 30)})] == found
    assert [segment.name for segment in found] == ["batches 0 to 7", "batch 8"]


def test_segments_added_partition() -> None:
    """A partition that a later batch is the first to know was read from 0."""
    checkpoint = Checkpoint({0: {A: 5}, 1: {A: 8, B: 4}})

    assert [Segment(0, 0, {A: R(2, 5)}), Segment(1, 1, {A: R(5, 8), B: R(0, 4)})] == segments(
        {A: 2}, checkpoint, last_batch=1
    )


def test_segments_unreadable_end() -> None:
    """A batch whose end can't be read belongs to the next batch's segment."""
    checkpoint = Checkpoint({0: {A: 5}, 1: {}, 2: {A: 9}, 3: {A: 12}})

    assert [
        Segment(0, 0, {A: R(0, 5)}),
        Segment(1, 2, {A: R(5, 9)}),
        Segment(3, 3, {A: R(9, 12)}),
    ] == segments({A: 0}, checkpoint, last_batch=3)


def test_segments_planned_batch() -> None:
    """A batch that was planned and not committed isn't a segment."""
    checkpoint = Checkpoint({0: {A: 5}, 1: {A: 9}})

    assert [Segment(0, 0, {A: R(0, 5)})] == segments({A: 0}, checkpoint, last_batch=0)


def test_segments_empty_checkpoint() -> None:
    """Without batches there is no segment."""
    assert segments({A: 0}, Checkpoint(), last_batch=3) == []


# check_offsets, check_duplicates, missing_offsets


def test_check_offsets_intact() -> None:
    """Files that hold each drained offset once are in order."""
    parts = [Segment(0, 0, {A: R(0, 4)}), Segment(1, 1, {A: R(4, 8)})]
    files = [held(A, "x", [0, 1], 0), held(A, "y", [3, 2], 0), held(A, "z", [4, 5, 6, 7], 1)]

    assert check_offsets(parts, files) == []
    assert missing_offsets(parts, files) == []


def test_check_offsets_other_batch() -> None:
    """A file with another batch's offsets is found though the generation read them."""
    parts = [Segment(0, 0, {A: R(0, 4)}), Segment(1, 1, {A: R(4, 8)})]

    assert [
        Finding(Reason.OFFSET_OUTSIDE, "x", "holds [4, 6) of t-0; batch 0 read [0, 4)")
    ] == check_offsets(parts, [held(A, "x", [3, 4, 5], 0)])


@pytest.mark.parametrize("batch", [0, None])
def test_check_offsets_forgotten_batch(batch: int | None) -> None:
    """A file whose batch's own range is forgotten is held against the whole generation."""
    parts = [Segment(0, 6, {A: R(2, 4)}), Segment(7, 7, {A: R(4, 8)})]

    assert [
        Finding(
            Reason.OFFSET_OUTSIDE, "x", "holds [1, 2), [8, 10) of t-0; the generation read [2, 8)"
        )
    ] == check_offsets(parts, [held(A, "x", [1, 2, 7, 8, 9], batch)])


def test_check_offsets_other_partition() -> None:
    """A file of a partition that was never drained is found."""
    findings = check_offsets([Segment(0, 0, {A: R(0, 4)})], [held(B, "x", [0], 0)])

    assert [finding.reason for finding in findings] == [Reason.OFFSET_OUTSIDE]
    assert findings[0].detail.endswith("read nothing")


def test_check_offsets_partition_before_added() -> None:
    """A file of a batch that didn't know its partition yet holds offsets it never read."""
    parts = [Segment(0, 0, {A: R(0, 4)}), Segment(1, 1, {A: R(4, 8), B: R(0, 5)})]

    assert [
        Finding(Reason.OFFSET_OUTSIDE, "x", "holds [0, 5) of t-1; batch 0 read nothing")
    ] == check_offsets(parts, [held(B, "x", [0, 1, 2, 3, 4], 0)])


def test_check_offsets_many_outside() -> None:
    """The first three ranges are shown, the others are counted."""
    findings = check_offsets([Segment(0, 0, {A: R(0, 1)})], [held(A, "x", [2, 4, 6, 8, 10], 0)])

    assert "holds [2, 3), [4, 5), [6, 7) and 2 more of t-0" in findings[0].detail


def test_check_duplicates_within_file() -> None:
    """Offsets that a file holds twice are named."""
    assert [
        Finding(Reason.OFFSET_DUPLICATE, "x", "holds offset 3, 5 of t-0 more than once")
    ] == check_duplicates([held(A, "x", [3, 3, 4, 5, 5, 5])])


def test_check_duplicates_between_files() -> None:
    """Offsets that two files hold are named with both paths."""
    assert [
        Finding(Reason.OFFSET_DUPLICATE, "y", "holds [3, 5) of t-0, which x also holds")
    ] == check_duplicates([held(A, "y", [3, 4, 5]), held(A, "x", [0, 1, 2, 3, 4])])


def test_check_duplicates_partitions_apart() -> None:
    """The same offsets of two partitions or topics are no duplicates."""
    other = TopicPartition("u", 0)
    files = [held(tp, str(tp), [0, 1]) for tp in (A, B, other)]

    assert check_duplicates(files) == []


def test_check_duplicates_long_range_behind() -> None:
    """A long range is remembered while shorter ones inside it go by."""
    files = [held(A, "long", list(range(20))), held(A, "a", [2, 3]), held(A, "b", [15])]

    findings = check_duplicates(files)

    assert {"a", "b"} == {finding.where for finding in findings}
    assert all("which long also holds" in finding.detail for finding in findings)


def test_missing_offsets_by_segment() -> None:
    """Missing offsets are told by segment and partition, also where no file holds any."""
    parts = [Segment(0, 3, {A: R(0, 4), B: R(0, 2)}), Segment(4, 4, {A: R(4, 8), B: R(2, 2)})]
    files = [held(A, "x", [1, 2]), held(A, "y", [3, 4, 7, 9])]

    assert [
        (parts[0], A, [R(0, 1)]),
        (parts[0], B, [R(0, 2)]),
        (parts[1], A, [R(5, 7)]),
    ] == missing_offsets(parts, files)


@given(archives())
def test_checks_property(
    archive: tuple[list[Segment], list[CommittedFile], list[list[int]]],
) -> None:
    """The verdict is the one of counting every single row."""
    parts, files, rows = archive
    read = {tp: offsets_in([part.ranges[tp] for part in parts]) for tp in (A, B)}
    own = {part.last_batch: part for part in parts if part.first_batch == part.last_batch}
    rows_of = {
        tp: [r for f, r in zip(files, rows, strict=True) if f.contents[0].tp == tp] for tp in (A, B)
    }
    outside = {
        file.path
        for file, offsets in zip(files, rows, strict=True)
        if set(offsets)
        - (
            offsets_in([own[file.batch].ranges[file.contents[0].tp]])
            if file.batch in own
            else read[file.contents[0].tp]
        )
    }
    expected = {
        "within": {f.path for f, o in zip(files, rows, strict=True) if len(set(o)) < len(o)},
        "outside": outside,
        "missing": {tp: read[tp] - {o for offsets in rows_of[tp] for o in offsets} for tp in read},
    }
    shared = {
        tp: {o for o, n in Counter(o for r in rows_of[tp] for o in set(r)).items() if n > 1}
        for tp in read
    }

    findings = check_offsets(parts, files)
    missing: dict[TopicPartition, set[int]] = {A: set(), B: set()}
    for _, tp, ranges in missing_offsets(parts, files):
        missing[tp] |= offsets_in(ranges)
    double = [f for f in findings if f.reason is Reason.OFFSET_DUPLICATE]

    assert expected == {
        "within": {f.where for f in double if "more than once" in f.detail},
        "outside": {f.where for f in findings if f.reason is Reason.OFFSET_OUTSIDE},
        "missing": missing,
    }
    for tp, offsets in shared.items():
        between = [f for f in double if f" of {tp}, which " in f.detail]
        assert offsets == named_in(between)


def shown_in(findings: list[Finding], tp: TopicPartition) -> set[int]:
    """Return the offsets that findings of a partition name, single ones and ranges."""
    found: set[int] = set()
    for finding in findings:
        holds, _, of = finding.detail.removeprefix("holds ").partition(f" of {tp}")
        if of:
            assert " more" not in holds
            ranges = re.findall(r"\[(\d+), (\d+)\)", holds)
            found |= offsets_in(R(int(start), int(end)) for start, end in ranges)
            if holds.startswith("offset "):
                found |= {int(text) for text in holds.removeprefix("offset ").split(", ")}
    return found


explained = st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 25), st.integers(1, 12)))


@settings(max_examples=3 * settings.default.max_examples)
@given(archives(), explained)
def test_verdict_property(
    archive: tuple[list[Segment], list[CommittedFile], list[list[int]]],
    windows: list[tuple[TopicPartition, int, int]],
) -> None:
    """An archive is complete exactly when a set of every single offset says so.

    The exact offsets that are twice, outside or missing are named, and what a window holds isn't
    missing.
    """
    parts, files, rows = archive
    read = {tp: offsets_in(part.ranges[tp] for part in parts) for tp in (A, B)}
    own = {part.last_batch: part for part in parts if part.first_batch == part.last_batch}
    times: dict[TopicPartition, Counter[int]] = {A: Counter(), B: Counter()}
    outside: dict[TopicPartition, set[int]] = {A: set(), B: set()}
    for file, offsets in zip(files, rows, strict=True):
        tp = file.contents[0].tp
        times[tp].update(offsets)
        part = own.get(-1 if file.batch is None else file.batch)
        outside[tp] |= set(offsets) - (offsets_in([part.ranges[tp]]) if part else read[tp])
    twice = {tp: {offset for offset, n in times[tp].items() if n > 1} for tp in read}
    beside: dict[TopicPartition, list[OffsetRange]] = {A: [], B: []}
    for tp, start, length in windows:
        beside[tp].append(R(start, start + length))
    missing = {tp: read[tp] - set(times[tp]) - offsets_in(beside[tp]) for tp in read}

    findings = check_offsets(parts, files)
    lost: dict[TopicPartition, list[OffsetRange]] = {A: [], B: []}
    for _, tp, ranges in missing_offsets(parts, files):
        lost[tp] += ranges
    gaps = explain_gaps(
        {tp: merge(ranges) for tp, ranges in lost.items()},
        identity=Identity("p", "c", {}),
        cluster=None,
        windows={tp: merge(ranges) for tp, ranges in beside.items()},
        acknowledged={},
    )

    harmful = [gap for gap in gaps if not gap.harmless]
    assert (not findings and not harmful) == (
        not any((*twice.values(), *outside.values(), *missing.values()))
    )
    for tp in read:
        double = [f for f in findings if f.reason is Reason.OFFSET_DUPLICATE]
        beyond = [f for f in findings if f.reason is Reason.OFFSET_OUTSIDE]
        assert shown_in(double, tp) == twice[tp]
        assert shown_in(beyond, tp) == outside[tp]
        assert offsets_in(gap.range for gap in harmful if gap.tp == tp) == missing[tp]
        assert sum(len(gap.range) for gap in gaps if gap.tp == tp) == len(read[tp] - set(times[tp]))


def test_without_held() -> None:
    """What of some ranges no file holds, by partition; a partition without any isn't named."""
    ranges = {A: [R(0, 4), R(6, 9)], B: [R(0, 3)], TopicPartition("u", 0): [R(5, 7)]}
    files = [held(A, "x", [0, 1, 7]), held(B, "y", [0, 1, 2]), held(A, "z", [4, 5])]

    assert without_held(ranges, files) == {
        A: [R(2, 4), R(6, 7), R(8, 9)],
        TopicPartition("u", 0): [R(5, 7)],
    }
    assert without_held(ranges, []) == ranges


@pytest.mark.parametrize(
    ("offsets", "shown"),
    [
        ([0, 2, 4], "[0, 1), [2, 3), [4, 5)"),
        ([0, 2, 4, 6], "[0, 1), [2, 3), [4, 5) and 1 more"),
        ([0, 2, 4, 6, 8], "[0, 1), [2, 3), [4, 5) and 2 more"),
    ],
)
def test_check_offsets_outside_shown(offsets: list[int], shown: str) -> None:
    """Three ranges are named, and how many more there are."""
    [finding] = check_offsets([Segment(0, 0, {B: R(0, 1)})], [held(A, "x", offsets, 0)])

    assert finding.detail == f"holds {shown} of t-0; batch 0 read nothing"

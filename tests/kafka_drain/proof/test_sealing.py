"""From segments to receipts, against sums over every single offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.receipt_chain import check_link
from kafka_drain.archive.receipts import (
    FILE_NOTES,
    FileSet,
    KafkaBounds,
    Receipt,
    SealedTail,
    parse_receipt,
)
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.findings import Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.proof.offset_checks import Segment, check_offsets, missing_offsets
from kafka_drain.proof.sealing import Identity, seal_deletion, seal_segment, seal_window
from tests.kafka_drain.drained import A, B, contents_of, held, offsets_in, parts_read

IDENTITY = Identity("p", "c", {"t": "id of t", "u": "id of u"})
REASONS = [GapReason.CONTROL, GapReason.ABORTED, GapReason.WINDOW, GapReason.EXPIRED]
#: Where an offset can be: in one of three files, or nowhere for a reason.
PLACES: list[int | GapReason] = [0, 1, 2, *REASONS]


@dataclass
class Batch:
    """A segment, and where each of its offsets is.

    Attributes:
        part: The segment.
        places: File number or reason by offset, of each partition.
        files: The files; one may hold both partitions.
        gaps: What is in no file.
    """

    part: Segment
    places: dict[TopicPartition, dict[int, int | GapReason]]
    files: list[CommittedFile] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in (0, 1, 2):
            here = {tp: self.at(tp, number) for tp in self.places}
            contents = tuple(contents_of(tp, offsets) for tp, offsets in here.items() if offsets)
            if contents:
                path = f"batch {self.part.last_batch} file {number}"
                size = sum(map(len, here.values())) * 100
                self.files.append(CommittedFile(path, size, "ab", contents, self.part.last_batch))
        for tp in self.places:
            for reason in REASONS:
                for r in merge(OffsetRange(o, o + 1) for o in self.at(tp, reason)):
                    self.gaps.append(Gap(tp, r, reason, reason is GapReason.EXPIRED))

    def at(self, tp: TopicPartition, place: int | GapReason) -> list[int]:
        """Return the offsets that are in a file, or missing for a reason."""
        return [o for o, where in self.places.get(tp, {}).items() if where is place]

    def kept(self, tp: TopicPartition) -> list[int]:
        """Return the offsets that are in a file."""
        return [o for o, where in self.places[tp].items() if not isinstance(where, GapReason)]


@st.composite
def chains(draw: st.DrawFn) -> list[Batch]:
    """Draw batches of two partitions that are complete: each offset in a file or explained."""
    return [
        Batch(
            part,
            {
                tp: {offset: draw(st.sampled_from(PLACES)) for offset in sorted(offsets_in([r]))}
                for tp, r in part.ranges.items()
            },
        )
        for part in draw(parts_read())
    ]


def seal(batches: Sequence[Batch], **changes: Any) -> list[Receipt]:
    """Seal batches one after the other; receipts as they are read again."""
    receipts: list[Receipt] = []
    for batch in batches:
        before = receipts[-1] if receipts else None
        options: dict[str, Any] = {
            "identity": IDENTITY,
            "generation": 1,
            "before": before,
            "previous": before.sha256 if before else None,
            "bounds": {A: KafkaBounds(0, 50, 60)},
            "fingerprint": "ff",
            "acknowledged": [],
            "sealed_at": "now",
        }
        receipt = seal_segment(batch.part, batch.files, batch.gaps, **(options | changes))
        receipts.append(parse_receipt(receipt.to_bytes()))
    return receipts


# seal_segment


@given(chains())
def test_seal_segment_property(batches: list[Batch]) -> None:
    """A receipt says of its batch, and of all up to it, what counting each offset says."""
    receipts = seal(batches)
    listed: list[tuple[str, int]] = []
    records: Counter[TopicPartition] = Counter()
    gaps: dict[TopicPartition, Counter[GapReason]] = {A: Counter(), B: Counter()}
    for batch, receipt in zip(batches, receipts, strict=True):
        listed += [(file.path, file.bytes) for file in batch.files]
        assert check_offsets([batch.part], batch.files) == []
        assert (receipt.first_batch, receipt.last_batch) == (
            batch.part.first_batch,
            batch.part.last_batch,
        )
        assert receipt.files_so_far == FileSet().plus(listed)
        assert [file.path for file in receipt.files] == sorted(file.path for file in batch.files)
        assert receipt.offsets == sum(len(places) for places in batch.places.values())
        assert receipt.records == sum(len(batch.kept(tp)) for tp in batch.places)
        assert receipt.ends == {tp: r.end for tp, r in batch.part.ranges.items()}
        for sealed in receipt.partitions:
            tp, kept = sealed.tp, batch.kept(sealed.tp)
            records[tp] += len(kept)
            gaps[tp].update(w for w in batch.places[tp].values() if isinstance(w, GapReason))
            assert sealed.range == batch.part.ranges[tp]
            assert sealed.records == len(kept)
            assert (sealed.first, sealed.last) == (min(kept, default=None), max(kept, default=None))
            assert sealed.first_timestamp == (min(kept) * 10 if kept else None)
            assert sealed.last_timestamp == (max(kept) * 10 if kept else None)
            assert {reason: offsets_in(rs) for reason, rs in sealed.gaps.items()} == {
                reason: set(batch.at(tp, reason)) for reason in REASONS if batch.at(tp, reason)
            }
            assert sealed.start_so_far == batches[0].part.ranges[tp].start
            assert sealed.records_so_far == records[tp]
            assert sealed.gaps_so_far == gaps[tp]
            end = batch.part.ranges[tp].end
            assert sealed.records_so_far + sum(sealed.gaps_so_far.values()) == (
                end - sealed.start_so_far
            )


@given(chains())
def test_seal_segment_holds_what_is_missing(batches: list[Batch]) -> None:
    """What a receipt's files and gaps hold together is what was drained, none of it twice."""
    for batch, receipt in zip(batches, seal(batches), strict=True):
        missing = {tp: offsets_in(rs) for _, tp, rs in missing_offsets([batch.part], batch.files)}
        for sealed in receipt.partitions:
            explained = [r for ranges in sealed.gaps.values() for r in ranges]
            assert offsets_in(explained) == missing.get(sealed.tp, set())
            inside = [c for file in receipt.files for c in file.contents if c.tp == sealed.tp]
            assert sum(content.records for content in inside) == sealed.records
            assert len(sealed.range) == sealed.records + sum(len(r) for r in explained)


@given(chains())
def test_check_link_property(batches: list[Batch]) -> None:
    """A chain as it was sealed is whole; with a receipt left out or another one, it isn't."""
    receipts = seal(batches)
    others = seal(batches, sealed_at="later")
    before, previous = None, None
    for number, receipt in enumerate(receipts):
        assert receipt.previous == previous
        assert check_link(receipt, before, previous, "w") == []
        if before is not None:
            [changed] = check_link(receipt, others[number - 1], others[number - 1].sha256, "w")
            assert changed.reason is Reason.RECEIPT_CHANGED
            earlier = receipts[number - 2] if number > 1 else None
            [hole] = check_link(receipt, earlier, earlier.sha256 if earlier else None, "w")
            assert hole.reason is Reason.RECEIPT_HOLE
        before, previous = receipt, receipt.sha256


def chain(*ends: int) -> list[Receipt]:
    """Seal batches of one partition without gaps."""
    starts = (0, *ends)
    return seal(
        [
            Batch(
                Segment(batch, batch, {A: OffsetRange(starts[batch], end)}),
                {A: dict.fromkeys(range(starts[batch], end), 0)},
            )
            for batch, end in enumerate(ends)
        ]
    )


def test_check_link_first() -> None:
    """The first receipt of a generation follows the last one of the generation before."""
    [first] = chain(3)
    second = replace(first, previous="ab" * 32)

    assert check_link(second, None, "ab" * 32, "w") == []
    [found] = check_link(second, None, "cd" * 32, "w")
    assert (found.reason, found.where) == (Reason.RECEIPT_CHANGED, "w")
    assert (
        "was sealed after receipt abababababab, but the previous receipt is cdcdcdcdcdcd"
        in found.detail
    )


def test_check_link_hole() -> None:
    """The batches that nobody vouches for are named."""
    first, _, third = chain(3, 5, 9)

    [found] = check_link(third, first, first.sha256, "w")

    assert found.reason is Reason.RECEIPT_HOLE
    assert found.detail == "starts with batch 2, but the previous receipt ends at 0"


def test_check_link_twice() -> None:
    """A receipt that seals what the one before has sealed is found."""
    first, second = chain(3, 5)

    [found] = check_link(first, second, second.sha256, "w")

    assert found.reason is Reason.RECEIPT_HOLE


def test_seal_segment_topics() -> None:
    """A receipt names whose it is, the ids of its own topics, and what Kafka holds of them."""
    [receipt] = chain(3)

    assert (receipt.pipeline, receipt.cluster_id) == ("p", "c")
    assert receipt.topics == {"t": "id of t"}
    assert [part.kafka for part in receipt.partitions] == [KafkaBounds(0, 50, 60)]
    assert (receipt.generation, receipt.window, receipt.name) == (1, "", "000000000000.json")


def test_seal_segment_partition_added() -> None:
    """A partition that a later batch is the first to read starts there."""
    first = Batch(Segment(0, 0, {A: OffsetRange(0, 2)}), {A: {0: 0, 1: 0}})
    second = Batch(
        Segment(1, 1, {A: OffsetRange(2, 3), B: OffsetRange(0, 1)}), {A: {2: 0}, B: {0: 1}}
    )

    _, receipt = seal([first, second])

    assert {p.tp: (p.start_so_far, p.records_so_far) for p in receipt.partitions} == {
        A: (0, 3),
        B: (0, 1),
    }
    assert [part.kafka for part in receipt.partitions] == [KafkaBounds(0, 50, 60), None]


def test_seal_segment_tail() -> None:
    """The newest archived record is a batch's own, else the receipt's before it, else an older one.

    One that the archive had before all of them is known of the first partition.
    """
    batches = [
        Batch(Segment(0, 0, {A: OffsetRange(5, 7)}), {A: {5: REASONS[0], 6: REASONS[1]}}),
        Batch(Segment(1, 1, {A: OffsetRange(7, 9)}), {A: {7: 0, 8: 0}}),
        Batch(
            Segment(2, 2, {A: OffsetRange(9, 10), B: OffsetRange(0, 1)}),
            {A: {9: REASONS[0]}, B: {0: REASONS[0]}},
        ),
        Batch(
            Segment(3, 3, {A: OffsetRange(10, 10), B: OffsetRange(1, 3)}),
            {A: {}, B: {1: 0, 2: REASONS[0]}},
        ),
    ]
    [file] = batches[1].files
    batches[1].files = [replace(file, contents=(replace(file.contents[0], last_hash="cd"),))]
    older, newer, first = SealedTail.of(4, "ab", 1), SealedTail.of(8, "cd", 3), SealedTail.of(1)

    receipts = seal(batches, tails={A: older}, epochs={(A, 7): 2, (A, 8): 3})

    assert [{part.tp: part.tail for part in receipt.partitions} for receipt in receipts] == [
        {A: older},
        {A: newer},
        {A: newer, B: None},
        {A: newer, B: first},
    ]


# seal_window


@pytest.mark.parametrize("file_of_all", [True, False])
def test_seal_window_ranges(file_of_all: bool) -> None:
    """Each range of a window is proven by itself, also two of one partition in one file."""
    ranges = [(A, OffsetRange(0, 3)), (A, OffsetRange(10, 14)), (B, OffsetRange(5, 6))]
    files = (
        [held(A, "x", [0, 2, 10, 11, 12]), held(B, "y", [5])]
        if file_of_all
        else [held(A, "x1", [0, 2]), held(A, "x2", [12, 10, 11]), held(B, "y", [5])]
    )
    gaps = [
        Gap(A, OffsetRange(1, 2), GapReason.CONTROL),
        Gap(A, OffsetRange(13, 14), GapReason.ABORTED),
    ]

    receipt = seal_window(
        ranges,
        files,
        gaps,
        identity=IDENTITY,
        window="w",
        replaces=["lost"],
        fingerprint=None,
        sealed_at="now",
    )

    assert parse_receipt(receipt.to_bytes()) == receipt
    assert [(p.tp, p.range, p.records, p.first, p.last) for p in receipt.partitions] == [
        (A, OffsetRange(0, 3), 2, 0, 2),
        (A, OffsetRange(10, 14), 3, 10, 12),
        (B, OffsetRange(5, 6), 1, 5, 5),
    ]
    assert [dict(part.gaps) for part in receipt.partitions] == [
        {GapReason.CONTROL: (OffsetRange(1, 2),)},
        {GapReason.ABORTED: (OffsetRange(13, 14),)},
        {},
    ]
    assert (receipt.offsets, receipt.records) == (8, 6)
    assert (receipt.generation, receipt.previous, receipt.replaces) == (None, None, ("lost",))
    assert receipt.files_so_far == FileSet().plus((file.path, 1) for file in files)


def test_seal_window_names() -> None:
    """A window's receipt says whose it is, what it replaces and rewrites, and what was accepted.

    It has the id of a topic, too, of which it has accepted losses only.
    """
    receipt = seal_window(
        [(A, OffsetRange(0, 1))],
        [held(A, "x", [0])],
        [],
        identity=IDENTITY,
        window="w",
        replaces=["old"],
        fingerprint="ff",
        sealed_at="today",
        acknowledged=["u:0:5-6"],
        provenance={"a receipt": "its hash"},
    )

    assert (receipt.pipeline, receipt.cluster_id, receipt.window) == ("p", "c", "w")
    assert (receipt.fingerprint, receipt.sealed_at, receipt.replaces) == ("ff", "today", ("old",))
    assert (receipt.acknowledged, receipt.topics) == (("u:0:5-6",), dict(IDENTITY.topics))
    assert receipt.provenance == {"a receipt": "its hash"}


def test_seal_deletion() -> None:
    """The receipt of deleted files has no files, and a row for each gap that they leave."""
    ranges = [OffsetRange(7, 9), OffsetRange(1, 4)]
    gaps = [Gap(A, each, GapReason.DELETED) for each in ranges]

    receipt = seal_deletion(
        gaps, identity=IDENTITY, window="w", replaces=["gone"], sealed_at="today"
    )

    assert parse_receipt(receipt.to_bytes()) == receipt
    assert (receipt.pipeline, receipt.cluster_id, receipt.window) == ("p", "c", "w")
    assert (receipt.generation, receipt.sealed_at) == (None, "today")
    assert (receipt.replaces, receipt.topics) == (("gone",), {"t": "id of t"})
    assert (receipt.files, receipt.files_so_far, receipt.records) == ((), FileSet(), 0)
    assert [(part.tp, part.range, dict(part.gaps)) for part in receipt.partitions] == [
        (A, each, {GapReason.DELETED: (each,)}) for each in ranges
    ]


def test_seal_segment_file_notes() -> None:
    """A receipt keeps what is known of a file: its size, hashes, records, order and times."""
    file = replace(
        held(A, "x", [0, 2, 1]),
        sha256="ab",
        bytes=7,
        nul_header_names=False,
        fingerprint="0f",
        index_sha256="cd",
    )
    batch = Batch(Segment(0, 0, {A: OffsetRange(0, 3)}), {A: {}})
    batch.files = [file]

    [receipt] = seal([batch])

    [sealed] = receipt.files
    assert (sealed.path, sealed.bytes, sealed.sha256) == ("x", 7, "ab")
    for name in FILE_NOTES:
        assert getattr(sealed, name) == getattr(file, name)
    [content] = sealed.contents
    assert (content.tp, content.first, content.last, content.records) == (A, 0, 2, 3)
    assert (content.first_timestamp, content.last_timestamp, content.ascending) == (0, 20, False)

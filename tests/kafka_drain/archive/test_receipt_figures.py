"""Figures of receipts that contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_drain.archive.receipt_figures import contradiction
from kafka_drain.archive.receipts import FileSet, Receipt, SealedPartition, SoFar, parse_receipt
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.sealing import Identity, seal_deletion, seal_segment, seal_window
from tests.kafka_drain.drained import contents_of
from tests.tables import each_of

P0 = TopicPartition("t", 0)
IDENTITY = Identity("p", "c", {"t": "id"})
R = OffsetRange


def sealed(before: Receipt | None = None, *gaps: Gap, **changes: Any) -> Receipt:
    """Seal the ten offsets after a receipt's, without those of the gaps."""
    start = before.partitions[0].end if before else 0
    missing = {offset for gap in gaps for offset in range(gap.range.start, gap.range.end)}
    held = [offset for offset in range(start, start + 10) if offset not in missing]
    batch = before.last_batch + 1 if before else 0
    path = f"generations/0001/data/topic=t/part-{batch}"
    return seal_segment(
        Segment(batch, batch, {P0: R(start, start + 10)}),
        [CommittedFile(path, 7, "", (contents_of(P0, held),), batch)],
        gaps,
        identity=IDENTITY,
        generation=1,
        before=before,
        previous=before.sha256 if before else None,
        bounds={},
        fingerprint=None,
        acknowledged=changes.pop("acknowledged", ()),
        sealed_at="2026-01-01T00:00:00+00:00",
    )


FIRST = sealed()
SECOND = sealed(FIRST, Gap(P0, R(12, 14), GapReason.CONTROL), Gap(P0, R(15, 16), GapReason.ABORTED))


#: A receipt with a single record.
THIRD_OF_ONE = sealed(SECOND, Gap(P0, R(21, 30), GapReason.CONTROL))


def part(receipt: Receipt, **changes: Any) -> Receipt:
    """Change the only partition of a receipt."""
    return replace(receipt, partitions=(replace(receipt.partitions[0], **changes),))


def gaps(**ranges: tuple[OffsetRange, ...]) -> Callable[[Receipt], Receipt]:
    return lambda receipt: part(receipt, gaps={GapReason(k): v for k, v in ranges.items()})


def totals(**changes: Any) -> Callable[[Receipt], Receipt]:
    def change(receipt: Receipt) -> Receipt:
        so_far: SoFar = receipt.partitions[0].so_far
        return part(receipt, so_far=replace(so_far, **changes))

    return change


WRONG: dict[str, Callable[[Receipt], Receipt]] = {
    "has 8 records and 3 missing offsets of t-0": lambda r: part(r, records=8),
    "has 7 records and 2 missing offsets of t-0": gaps(control=(R(12, 14),)),
    "gives two reasons for one offset of t-0": gaps(control=(R(12, 14),), aborted=(R(13, 14),)),
    "seals t-0 with offsets that are lost": gaps(control=(R(12, 14),), lost=(R(15, 16),)),
    "seals t-0 with offsets that are open": gaps(control=(R(12, 14),), open=(R(15, 16),)),
    "which nobody accepted": gaps(control=(R(12, 14),), expired=(R(15, 16),)),
    "as unexplained, which nobody accepted": gaps(control=(R(12, 14),), unexplained=(R(15, 16),)),
    "starts t-0 at 9": lambda r: part(r, start=9, records=8),
    "other totals of t-0": totals(records=16),
    "other totals of t-0 ": totals(start=1),
    "other totals of t-0  ": totals(gaps={}),
    "another total of files": lambda r: replace(r, files_so_far=FileSet(2, 14, 3)),
    "twice": lambda r: replace(r, files=r.files * 2, partitions=()),
    "has first_offset 11 of t-0, but its files have 10": lambda r: part(r, first_offset=11),
    "has last_offset 18 of t-0": lambda r: part(r, last_offset=18),
    "has first_timestamp 99 of t-0, but its files have 100": lambda r: part(r, first_timestamp=99),
    "has last_timestamp None of t-0": lambda r: part(r, last_timestamp=None),
    "isn't in generations/0001/data": lambda r: replace(
        r, files=(replace(r.files[0], path="generations/0002/data/part-1"),)
    ),
    "but its files have 6": lambda r: replace(r, files=(_with_records(r, 6),)),
    "has 7 records of t-0 10 to 12 in": lambda r: replace(r, files=(_with_last(r, 12),)),
    "has 4 records of t-0 10 to 12 in": lambda r: replace(r, files=(_with_last(r, 12, records=4),)),
    "names the window w": lambda r: replace(r, window="w"),
    "is of another pipeline or cluster": lambda r: replace(r, cluster_id="another"),
    "has another id of topic t than": lambda r: replace(r, topics={"t": "another"}),
    "has 0 records of t-1, but its files have 7": lambda r: replace(
        r, files=(*r.files, _of_partition(r, 1))
    ),
    "has t-1 10 to 19 in": lambda r: replace(r, files=(_of_partition(r, 1), *r.files)),
    "and no record of 13": lambda r: replace(r, files=(_in_two(r, (6, 10, 19), (1, 13, 14)),)),
    "has 0 records of t-0 16 to 16 in": lambda r: replace(
        r, files=(_in_two(r, (7, 10, 19), (0, 16, 16)),)
    ),
    "which it didn't drain": lambda r: replace(r, files=(_with_last(r, 20),)),
}


def _with_records(receipt: Receipt, records: int) -> Any:
    [file] = receipt.files
    return replace(file, contents=(replace(file.contents[0], records=records),))


def _in_two(receipt: Receipt, *parts: tuple[int, int, int]) -> Any:
    [file] = receipt.files
    [content] = file.contents
    contents = (
        replace(content, records=n, first_offset=first, last_offset=last)
        for n, first, last in parts
    )
    return replace(file, contents=tuple(contents))


def _with_last(receipt: Receipt, last: int, **changes: Any) -> Any:
    [file] = receipt.files
    return replace(file, contents=(replace(file.contents[0], last_offset=last, **changes),))


def _of_partition(receipt: Receipt, partition: int) -> Any:
    [file] = receipt.files
    return replace(file, contents=(replace(file.contents[0], partition=partition),))


@each_of("told", WRONG)
def test_contradiction(told: str) -> None:
    """Whatever figure of a receipt is wrong, arithmetic says so, without reading a file."""
    changed = WRONG[told](SECOND)

    assert any(told.strip() in each for each in _all(changed)), [*_all(changed)]


def _all(receipt: Receipt) -> list[str]:
    from kafka_drain.archive.receipt_figures import _contradictions

    return [*_contradictions(receipt, FIRST)]


def test_contradiction_none() -> None:
    """What the writers of receipts seal agrees with itself."""
    expired = Gap(P0, R(23, 25), GapReason.EXPIRED, acknowledged=True)
    third = sealed(SECOND, expired, acknowledged=["t:0:23-25"])

    assert contradiction(FIRST) == contradiction(SECOND, FIRST) == contradiction(SECOND) == ""
    assert contradiction(third, SECOND) == ""
    assert parse_receipt(third.to_bytes()) == third
    # Earlier releases left a topic out that was deleted before Spark planned the batch.
    assert contradiction(SECOND, replace(FIRST, topics={**FIRST.topics, "gone": "id"})) == ""
    nothing = part(sealed(THIRD_OF_ONE), start=30)
    assert contradiction(THIRD_OF_ONE, SECOND) == contradiction(nothing) == ""
    assert "other totals of t-0" in contradiction(totals(records=16)(SECOND), FIRST)
    # Only of a generation's first receipt, the totals are known without the one before it.
    assert contradiction(totals(records=16)(SECOND)) == ""
    assert "other totals of t-0" in contradiction(totals(records=16)(FIRST))
    assert "another total of files" in contradiction(replace(FIRST, files_so_far=FileSet(1, 8, 3)))


def test_contradiction_windows() -> None:
    """A window may have a partition in several ranges, also next to each other."""
    more: dict[str, Any] = {"identity": IDENTITY, "window": "w", "replaces": [], "sealed_at": ""}
    file = CommittedFile("windows/w/data/1/part-0", 1, "", (contents_of(P0, range(10)),))
    ranges = [[(P0, R(0, 10))], [(P0, R(0, 5)), (P0, R(5, 10))]]
    for each in ranges:
        assert contradiction(seal_window(each, [file], [], fingerprint=None, **more)) == ""
    window = seal_window(ranges[0], [file], [], fingerprint=None, **more)
    for told, wrong in {
        "names batches": replace(window, last_batch=1),
        "a receipt before it": replace(window, previous="f" * 64),
        "other totals of t-0": totals(records=9)(window),
        "another total of files": replace(window, files_so_far=FileSet(2, 1, 0)),
    }.items():
        assert told in contradiction(wrong)
    deleted = [Gap(P0, R(0, 5), GapReason.DELETED), Gap(P0, R(7, 9), GapReason.DELETED)]

    assert contradiction(seal_deletion(deleted, **more)) == ""
    # A compaction has the gaps of the receipts that it names, which say what was accepted.
    gap = Gap(P0, R(10, 12), GapReason.EXPIRED)
    compacted = seal_window(
        [(P0, R(0, 12))], [file], [gap], fingerprint=None, provenance={"a": "b"}, **more
    )
    assert contradiction(compacted) == ""
    assert "nobody accepted" in contradiction(replace(compacted, provenance={}))


def test_contradiction_partition_added() -> None:
    """A partition that a batch reads first has no totals before."""
    new = SealedPartition.of(
        *(TopicPartition("t", 1), R(0, 0), 0, None, None, None, None, {}, None, 0, 0, {})
    )

    assert contradiction(replace(SECOND, partitions=(*SECOND.partitions, new)), FIRST) == ""


@pytest.mark.parametrize("name", ["offsets", "records"])
def test_parse_receipt_sums(name: str) -> None:
    """The sums of a receipt's partitions are its own."""
    from kafka_drain.storage.sealed_json import seal
    from kafka_drain.storage.typed_json import parse_object

    document = parse_object(FIRST.to_bytes())
    del document["sha256"]

    with pytest.raises(ValueError, match="but its partitions have"):
        parse_receipt(seal(document | {name: 11}))

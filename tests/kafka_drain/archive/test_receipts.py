"""Receipts as bytes, and sets of files as one number."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.receipts import (
    FileSet,
    KafkaBounds,
    Receipt,
    ReceiptError,
    SealedContent,
    SealedFile,
    SealedPartition,
    parse_receipt,
    records_of,
    unknown_files,
)
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.storage.sealed_json import seal

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SMALL = Receipt(
    pipeline="p\u00e9",
    cluster_id="c",
    topics={"t": "id"},
    generation=1,
    first_batch=0,
    last_batch=7,
    sealed_at="2013-01-01T12:00:00.000+00:00",
    previous="0" * 64,
    partitions=(
        SealedPartition.of(
            tp=A,
            range=OffsetRange(0, 5),
            records=4,
            first=0,
            last=3,
            first_timestamp=1,
            last_timestamp=2,
            gaps={GapReason.CONTROL: (OffsetRange(4, 5),)},
            kafka=KafkaBounds(0, 5, 6),
            start_so_far=0,
            records_so_far=4,
            gaps_so_far={GapReason.CONTROL: 1},
        ),
    ),
    files=(SealedFile("f", 9, "ab", (SealedContent.of(A, 0, 3, 4, 1, 2),)),),
    files_so_far=FileSet().plus([("f", 9)]),
    fingerprint="00000000000000ff",
    acknowledged=("t:0:4-5",),
)
BYTES = SMALL.to_bytes()

text = st.text(max_size=6)
number = st.integers(0, 1 << 62)
names = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789._-", min_size=1, max_size=8)
hexadecimal = st.text("0123456789abcdef", min_size=64, max_size=64)
partition = st.builds(TopicPartition, names, st.integers(0, 1000))
time = st.none() | st.integers(-1, 1 << 50)
reason = st.sampled_from(list(GapReason))


@st.composite
def ranges(draw: st.DrawFn) -> OffsetRange:
    start = draw(number)
    return OffsetRange(start, start + draw(st.integers(0, 1 << 40)))


contents = st.builds(
    lambda tp, span, *rest: SealedContent.of(tp, span.start, span.end, *rest),
    *(partition, ranges(), number, time, time, st.booleans()),
)
partitions = st.builds(
    lambda so_far, range, **rest: SealedPartition.of(
        range=range, start_so_far=min(so_far, range.start), **rest
    ),
    tp=partition,
    range=ranges(),
    records=number,
    first=st.none() | number,
    last=st.none() | number,
    first_timestamp=time,
    last_timestamp=time,
    gaps=st.dictionaries(reason, st.lists(ranges(), max_size=3).map(tuple), max_size=3),
    kafka=st.none() | st.builds(KafkaBounds, number, number, number),
    so_far=number,
    records_so_far=number,
    gaps_so_far=st.dictionaries(reason, number, max_size=3),
)
files = st.builds(
    SealedFile,
    text,
    number,
    hexadecimal,
    st.lists(contents, max_size=3).map(tuple),
    nul_header_names=st.none() | st.booleans(),
    index_sha256=st.none() | hexadecimal,
)
receipts = st.builds(
    Receipt,
    pipeline=text,
    cluster_id=text,
    topics=st.dictionaries(names, text, max_size=3),
    generation=st.none() | number,
    first_batch=number,
    last_batch=number,
    sealed_at=text,
    previous=st.none() | hexadecimal,
    partitions=st.lists(partitions, max_size=3).map(tuple),
    files=st.lists(files, max_size=3).map(tuple),
    files_so_far=st.builds(FileSet, number, number, st.integers(0, (1 << 128) - 1)),
    fingerprint=st.none() | text,
    acknowledged=st.lists(text, max_size=2).map(tuple),
    window=text,
    replaces=st.lists(text, max_size=2).map(tuple),
)


# to_bytes, parse_receipt


@given(receipts)
def test_parse_receipt_round_trip(receipt: Receipt) -> None:
    """What is read is what was sealed, and its hash is the one that the bytes end in."""
    content = receipt.to_bytes()
    parsed = parse_receipt(content)

    assert parsed == receipt
    assert parsed.to_bytes() == content
    assert content.endswith(b',"sha256":"%s"}\n' % parsed.sha256.encode())
    assert content.count(b"\n") == 1


def as_documented(receipt: Receipt) -> dict[str, Any]:
    """Return what docs/format.md says that a receipt's file holds, key by key and in order."""
    so_far = receipt.files_so_far
    return {
        "format_version": 1,
        **{k: getattr(receipt, k) for k in ("pipeline", "cluster_id", "topics", "generation")},
        **{k: getattr(receipt, k) for k in ("window", "first_batch", "last_batch", "sealed_at")},
        **{k: getattr(receipt, k) for k in ("previous", "offsets", "records", "fingerprint")},
        **{k: getattr(receipt, k) for k in ("acknowledged", "replaces", "provenance", "journal")},
        "partitions": [
            {
                "topic": part.tp.topic,
                "partition": part.tp.partition,
                "start": part.range.start,
                "end": part.range.end,
                "records": part.records,
                "first_offset": part.first,
                "last_offset": part.last,
                "first_timestamp": part.first_timestamp,
                "last_timestamp": part.last_timestamp,
                "gaps": {r.value: [[g.start, g.end] for g in gs] for r, gs in part.gaps.items()},
                "kafka": part.kafka
                and {
                    "earliest": part.kafka.earliest,
                    "last_stable": part.kafka.last_stable,
                    "high_watermark": part.kafka.high_watermark,
                },
                "so_far": {
                    "start": part.start_so_far,
                    "records": part.records_so_far,
                    "gaps": {reason.value: n for reason, n in part.gaps_so_far.items()},
                },
            }
            for part in receipt.partitions
        ],
        "files": [
            {
                "path": file.path,
                "bytes": file.bytes,
                "sha256": file.sha256,
                "contents": [
                    {
                        "topic": content.tp.topic,
                        "partition": content.tp.partition,
                        "first_offset": content.first,
                        "last_offset": content.last,
                        "records": content.records,
                        "first_timestamp": content.first_timestamp,
                        "last_timestamp": content.last_timestamp,
                        "ascending": content.ascending,
                    }
                    for content in file.contents
                ],
                # Earlier releases didn't look, so nor does a receipt of theirs say it.
                **(
                    {}
                    if file.nul_header_names is None
                    else {"nul_header_names": file.nul_header_names}
                ),
                **({} if file.index_sha256 is None else {"index_sha256": file.index_sha256}),
            }
            for file in receipt.files
        ],
        "files_so_far": {
            "files": so_far.files,
            "bytes": so_far.bytes,
            "digest": f"{so_far.digest:032x}",
        },
    }


@given(receipts)
def test_to_bytes_as_documented(receipt: Receipt) -> None:
    """A receipt's bytes are those of earlier releases, which wrote it key by key."""
    assert receipt.to_bytes() == sealed(as_documented(receipt))


def test_to_bytes_readable() -> None:
    """A receipt is plain JSON that says what was drained, and anybody can check its hash."""
    document = json.loads(BYTES)

    assert (document["format_version"], document["offsets"], document["records"]) == (1, 5, 4)
    [part] = document["partitions"]
    assert (part["start"], part["end"], part["gaps"]) == (0, 5, {"control": [[4, 5]]})
    body = BYTES[: BYTES.rindex(b',"sha256":')]
    assert document["sha256"] == hashlib.sha256(body).hexdigest()


def test_to_bytes_unsealed_hash() -> None:
    """The hash that a receipt was read with doesn't go into its bytes again."""
    assert replace(SMALL, sha256="x" * 64).to_bytes() == BYTES


def is_read(content: bytes) -> bool:
    try:
        parse_receipt(content)
    except ReceiptError:
        return False
    return True


def test_parse_receipt_bit_changed() -> None:
    """Each changed bit is found, be it in the text, in the hash or in what is around it."""
    missed = []
    for position in range(len(BYTES)):
        for bit in range(8):
            damaged = bytearray(BYTES)
            damaged[position] ^= 1 << bit
            if is_read(bytes(damaged)):
                missed.append((position, bit))

    assert is_read(BYTES)
    assert missed == []


def test_parse_receipt_cut() -> None:
    """A receipt that ends too early, lacks a byte or has one more is found."""
    cut = [BYTES[:at] for at in range(len(BYTES))]
    shorter = [BYTES[:at] + BYTES[at + 1 :] for at in range(len(BYTES))]
    longer = [BYTES[:at] + b" " + BYTES[at:] for at in range(len(BYTES) + 1)]

    assert [damaged for damaged in (*cut, *shorter, *longer) if is_read(damaged)] == []


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 500, BYTES + b"\n", BYTES + BYTES])
def test_parse_receipt_something_else(content: bytes) -> None:
    """A file that isn't one receipt is named as damaged."""
    with pytest.raises(ReceiptError):
        parse_receipt(content)


def sealed(document: dict[str, Any]) -> bytes:
    """Seal a document as a receipt is sealed."""
    document.pop("sha256", None)
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
    return body + b',"sha256":"%s"}\n' % hashlib.sha256(body).hexdigest().encode()


def test_parse_receipt_sealed_by_hand() -> None:
    """The format is what the module says it is: sealed by other code, it is read."""
    assert parse_receipt(sealed(json.loads(BYTES))) == SMALL


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": 2},
        {"format_version": "1"},
        {"partitions": None},
        {"partitions": [{}]},
        {"files_so_far": {"files": 1, "bytes": 2, "digest": "no number"}},
    ],
)
def test_parse_receipt_other_format(change: dict[str, Any]) -> None:
    """A receipt that is whole, and of another release, is refused and not guessed at."""
    content = sealed(json.loads(BYTES) | change)

    with pytest.raises(ReceiptError, match="isn't a receipt known to this release"):
        parse_receipt(content)


def test_parse_receipt_unknown_reason() -> None:
    """A reason of gaps that this release doesn't know is refused: nobody can tell if it harms."""
    content = sealed(json.loads(BYTES.replace(b'"control"', b'"gremlins"')))

    with pytest.raises(ReceiptError, match="gremlins"):
        parse_receipt(content)


def test_receipt_of_segment() -> None:
    """A receipt tells its file, its place among others, its offsets, and what was drained again."""
    part = SMALL.partitions[0]
    other = replace(part, partition=1, start=3, end=9, records=2)
    receipt = replace(SMALL, partitions=(part, other))
    window = replace(SMALL, generation=None, window="w", replaces=("old",))

    assert receipt.where == "generations/0001/receipts/000000000007.json"
    assert window.where == "windows/w/receipt.json"
    assert (receipt.position, window.position) == ((1, 7), (0, 7))
    assert (receipt.starts, receipt.ends) == ({A: 0, B: 3}, {A: 5, B: 9})
    assert (receipt.offsets, receipt.records) == (11, 6)
    # A compaction keeps the records, a repair has read them again.
    assert window.drained_again == ("old",)
    assert replace(window, provenance={"a receipt": "its hash"}).drained_again == ()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({A: [OffsetRange(4, 9)]}, True),
        ({A: [OffsetRange(5, 9)]}, False),
        ({A: [OffsetRange(5, 9)], B: [OffsetRange(0, 1)]}, False),
        ({}, False),
    ],
)
def test_receipt_covers(wanted: dict[TopicPartition, list[OffsetRange]], expected: bool) -> None:
    """A segment covers offsets of its own partitions, up to its end."""
    assert SMALL.covers(wanted) is expected


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "expected"),
    [(0, 1, False), (0, 2, True), (2, 3, True), (3, 9, False)],
)
def test_receipt_covers_time(from_ms: int, to_ms: int, expected: bool) -> None:
    """A segment has records from its first time to its last one; without times, none are known."""
    part = SMALL.partitions[0]
    unknown = replace(part, partition=1, first_timestamp=None, last_timestamp=None)

    for parts in ((part,), (unknown, part)):
        assert replace(SMALL, partitions=parts).covers_time(from_ms, to_ms) is expected
    assert not replace(SMALL, partitions=(unknown,)).covers_time(from_ms, to_ms)


def test_records_of() -> None:
    """The records of files are counted by partition, over all files."""
    both = SealedFile("g", 9, "ab", (SealedContent.of(A, 4, 4, 1), SealedContent.of(B, 0, 9, 3)))

    assert records_of([*SMALL.files, both]) == {A: 5, B: 3}


def test_unknown_files() -> None:
    """Without a fingerprint, it isn't known what Spark read of the files with records."""
    empty = SealedFile("g", 9, "ab", (SealedContent.of(A, 4, 4, 0),))
    receipt = replace(SMALL, files=(*SMALL.files, empty))

    assert unknown_files(receipt) == []
    assert unknown_files(replace(receipt, fingerprint=None)) == [*SMALL.files]


@pytest.mark.parametrize("pair", [[0], [0, 1, 2], [0, "5"], [0, True], {"0": 5}, None])
def test_parse_receipt_no_range(pair: object) -> None:
    """Offsets that aren't two numbers are refused, though they are sealed."""
    document = json.loads(BYTES)
    document["partitions"][0]["gaps"] = {"control": [pair]}

    with pytest.raises(ReceiptError):
        parse_receipt(sealed(document))


def test_receipt_names_sort() -> None:
    """The names of receipts sort as their batches do."""
    found = [replace(SMALL, last_batch=batch).name for batch in (0, 9, 10, 99, 100, 10**11)]

    assert all(a < b for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("first", "last", "records", "dense"), [(3, 3, 1, True), (3, 5, 3, True), (3, 5, 2, False)]
)
def test_sealed_content_dense(first: int, last: int, records: int, dense: bool) -> None:
    """A file without holes holds as many records as offsets lie between its first and last."""
    assert SealedContent.of(A, first, last, records).is_dense == dense


def _numbers(**changes: int) -> bytes:
    """The small receipt with other numbers, sealed again."""
    document = json.loads(BYTES)
    del document["sha256"]
    [part], [file] = document["partitions"], document["files"]
    for key, value in changes.items():
        place = {"bytes": file, "so_far": part["so_far"], "end": part}.get(key, file["contents"][0])
        place["start" if key == "so_far" else key] = value
    return seal(document)


@pytest.mark.parametrize("number", [1 << 63, 10**30])
@pytest.mark.parametrize("key", ["end", "so_far", "bytes", "first_offset", "last_offset"])
def test_parse_receipt_numbers_of_no_kafka(key: str, number: int) -> None:
    """A receipt with numbers that nothing can count is damaged; reading it is no crash."""
    with pytest.raises(ReceiptError):
        parse_receipt(_numbers(**{key: number}))


@pytest.mark.parametrize(
    "changes", [{"so_far": 6}, {"so_far": -1}, {"first_offset": 4}, {"first_offset": -1}]
)
def test_parse_receipt_ranges_that_end_before_they_start(changes: dict[str, int]) -> None:
    """So is one whose offsets end before they start: no check of it can be made."""
    with pytest.raises(ReceiptError):
        parse_receipt(_numbers(**changes))


# FileSet

listings = st.dictionaries(text, st.integers(0, 1 << 40), min_size=1, max_size=8).map(
    lambda files: list(files.items())
)


@given(listings, st.randoms(use_true_random=False), st.integers(0, 8))
def test_file_set_order_free(
    listing: list[tuple[str, int]], chance: random.Random, cut: int
) -> None:
    """The order of files doesn't matter, nor whether they came at once or one after the other."""
    shuffled = list(listing)
    chance.shuffle(shuffled)

    expected = FileSet().plus(listing)
    assert FileSet().plus(shuffled) == FileSet().plus(shuffled[:cut]).plus(shuffled[cut:])
    assert FileSet().plus(shuffled) == expected
    assert (expected.files, expected.bytes) == (len(listing), sum(size for _, size in listing))
    assert 0 <= expected.digest < 1 << 128


@given(listings, st.data())
def test_file_set_changed(listing: list[tuple[str, int]], data: st.DataObject) -> None:
    """Another size, another path, a missing or an additional file makes another set."""
    at = data.draw(st.integers(0, len(listing) - 1))
    path, size = listing[at]
    others = listing[:at] + listing[at + 1 :]
    expected = FileSet().plus(listing)

    assert FileSet().plus(others) != expected
    assert FileSet().plus([*others, (path, size + 1)]) != expected
    assert FileSet().plus([*others, (path + "x", size)]) != expected
    assert FileSet().plus([*listing, (path, size)]) != expected
    assert FileSet().plus([*listing, ("another", 0)]) != expected


def test_file_set_swapped_sizes() -> None:
    """Two files that have swapped their sizes are another set, of as many files and bytes."""
    one, other = FileSet().plus([("a", 1), ("b", 2)]), FileSet().plus([("a", 2), ("b", 1)])

    assert (one.files, one.bytes) == (other.files, other.bytes)
    assert one != other


def test_file_set_path_and_size_apart() -> None:
    """Where the path ends and the size starts can't be mistaken."""
    assert FileSet().plus([("a1", 1)]) != FileSet().plus([("a", 11)])

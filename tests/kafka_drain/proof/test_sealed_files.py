"""What is wrong with sealed files, and of which of them only the offsets are proven."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import (
    FileSet,
    Receipt,
    SealedContent,
    SealedFile,
    SealedPartition,
)
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.sealed_files import (
    DEEP,
    Deep,
    SealedCheck,
    check_all_sealed,
    check_listed_sealed,
    damage_of,
    has_unknown_content,
    lost_ranges,
    unknown_contents,
)
from tests.kafka_drain.golden import sealed_copy, state_of
from tests.kafka_drain.made_archive import MadeArchive, dense

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def file(path: str, *contents: SealedContent, size: int = 1, sha256: str = "") -> SealedFile:
    return SealedFile(path, size, sha256, contents)


def receipt(*files: SealedFile, batch: int = 0, fingerprint: str | None = None) -> Receipt:
    """A receipt of some files; without a fingerprint, unless one is given."""
    return Receipt(
        pipeline="p",
        cluster_id="c",
        topics={},
        generation=1,
        first_batch=batch,
        last_batch=batch,
        sealed_at="",
        previous=None,
        partitions=(),
        files=files,
        files_so_far=FileSet(),
        fingerprint=fingerprint,
    )


def content(tp: TopicPartition, first: int, last: int, records: int) -> SealedContent:
    return SealedContent.of(tp, first, last, records)


FULL, HOLEY = content(P0, 0, 4, 5), content(P0, 0, 4, 3)
EMPTY = content(P0, 0, 0, 0)


@pytest.mark.parametrize(
    ("files", "fingerprint", "again", "is_unknown"),
    [
        ((file("a", FULL),), None, (), True),
        ((file("a", FULL),), "ff", (), False),
        # The fingerprint of no record is known, and it isn't missing.
        ((file("a", FULL),), "", (), False),
        ((file("a", FULL),), None, ("a",), False),
        ((file("a", FULL),), None, ("b",), True),
        ((file("a", FULL), file("b", FULL)), None, ("a",), True),
        ((file("a", FULL), file("b", FULL)), None, ("a", "b"), False),
        # Nothing can be wrong with what isn't there.
        ((), None, (), False),
        ((file("a"),), None, (), False),
        ((file("a", EMPTY),), None, (), False),
        ((file("a", EMPTY, FULL),), None, (), True),
        ((file("a", EMPTY), file("b", FULL)), None, ("b",), False),
    ],
)  # fmt: skip
def test_has_unknown_content(
    files: Sequence[SealedFile], fingerprint: str | None, again: Sequence[str], is_unknown: bool
) -> None:
    """Only offsets are proven of records without a fingerprint, unless they were drained again."""
    assert has_unknown_content(receipt(*files, fingerprint=fingerprint), again) is is_unknown


@pytest.mark.parametrize(("number", "more"), [(1, ""), (5, ""), (6, ", …"), (9, ", …")])
def test_unknown_contents(number: int, more: str) -> None:
    """One warning for all receipts: with the number of their records, and some of their names."""
    generation = Generation(UPath("/archive"), 3)
    receipts = [receipt(file("a", FULL), file("b", HOLEY), batch=n) for n in range(number)]

    [found] = unknown_contents(generation, receipts)

    batches = ", ".join(map(str, range(min(number, 5))))
    assert found == Finding(
        Reason.CONTENT_UNKNOWN,
        "generations/0003/receipts",
        f"{8 * number} records of {number} sealed segments can't be verified: it isn't known what "
        f"Spark read; up to batch {batches}{more}",
    )


def test_unknown_contents_none() -> None:
    """Nothing is said where everything is known."""
    assert unknown_contents(Generation(UPath("/archive"), 1), []) == []


BYTES = b"records"
SEALED = file("a", size=len(BYTES), sha256=hashlib.sha256(BYTES).hexdigest())
OTHER = b"Records"


@pytest.mark.parametrize(
    ("there", "listed", "deep", "reason"),
    [
        (BYTES, len(BYTES), True, None),
        (BYTES, len(BYTES), False, None),
        (OTHER, len(BYTES), True, Reason.FILE_CHANGED),
        # Bytes are read on demand only.
        (OTHER, len(BYTES), False, None),
        *((BYTES, size, deep, Reason.FILE_SIZE) for size in (0, 6, 8) for deep in (True, False)),
        *((BYTES, None, deep, Reason.FILE_MISSING) for deep in (True, False)),
        # It has gone since it was listed.
        (None, len(BYTES), True, Reason.FILE_MISSING),
        (None, len(BYTES), False, None),
    ],
)
def test_damage_of(
    tmp_path: Path, there: bytes | None, listed: int | None, deep: bool, reason: Reason | None
) -> None:
    """A sealed file has to be there, with its size; when asked for, with its bytes."""
    if there is not None:
        (tmp_path / "a").write_bytes(there)

    found = damage_of(UPath(tmp_path), SEALED, listed, deep=deep)

    assert (found and found.reason) == reason
    assert found is None or found.subject == "a"


DETAILS = {
    "missing": (None, "sealed by a receipt, but missing"),
    "size": (1_234_567, "1,234,567 bytes; its receipt says 7"),
    "changed": (len(BYTES), "its SHA-256 doesn't match its receipt"),
    "unreadable": (len(BYTES), "can't be read: "),
}


@pytest.mark.parametrize("what", DETAILS)
def test_damage_of_detail(tmp_path: Path, what: str) -> None:
    """What is wrong is told, with what was expected."""
    size, detail = DETAILS[what]
    path = tmp_path / "a"
    if what == "unreadable":
        path.mkdir()
    else:
        path.write_bytes(OTHER)

    found = damage_of(UPath(tmp_path), SEALED, size, deep=True)

    assert found is not None
    assert found.subject == "a"
    assert found.detail.startswith(detail)
    assert what != "unreadable" or found.reason is Reason.FILE_CHANGED


def sealed(
    *files: SealedFile,
    ranges: Sequence[tuple[TopicPartition, int, int]],
    gaps: dict[GapReason, tuple[OffsetRange, ...]] | None = None,
) -> Receipt:
    """A receipt that proves some ranges, with gaps in the first."""
    parts = [
        SealedPartition.of(
            tp,
            OffsetRange(start, end),
            0,
            None,
            None,
            None,
            None,
            gaps or {} if number == 0 else {},
            None,
            start,
            0,
            {},
        )
        for number, (tp, start, end) in enumerate(ranges)
    ]
    return replace(receipt(*files), partitions=tuple(parts))


def R(*bounds: tuple[int, int]) -> list[OffsetRange]:
    return [OffsetRange(start, end) for start, end in bounds]


#: A lost file that says it holds 3 of offsets 0 to 9, and a dense one.
LOST, DENSE = file("lost", content(P0, 0, 9, 3)), file("lost", content(P0, 0, 9, 10))


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        # A dense file held each offset from its first to its last.
        (sealed(DENSE, ranges=[(P0, 0, 10)]), {P0: R((0, 10))}),
        (sealed(DENSE, ranges=[(P0, 0, 10)], gaps={GapReason.CONTROL: (OffsetRange(3, 5),)}),
         {P0: R((0, 10))}),
        # Of others, what nothing else accounts for.
        (sealed(LOST, ranges=[(P0, 0, 10)]), {P0: R((0, 10))}),
        (sealed(LOST, ranges=[(P0, 0, 10)], gaps={GapReason.CONTROL: (OffsetRange(3, 5),),
                                                  GapReason.ABORTED: (OffsetRange(7, 8),)}),
         {P0: R((0, 3), (5, 7), (8, 10))}),
        # A window's offsets may be several ranges: it never held what is between them.
        (sealed(LOST, ranges=[(P0, 0, 2), (P0, 6, 10)]), {P0: R((0, 2), (6, 10))}),
        (sealed(LOST, ranges=[(P0, 0, 10), (P1, 0, 10)]), {P0: R((0, 10))}),
        # Gaps of another partition say nothing.
        (sealed(LOST, ranges=[(P1, 0, 10), (P0, 0, 10)],
                gaps={GapReason.CONTROL: (OffsetRange(3, 5),)}), {P0: R((0, 10))}),
        # It held records of two partitions.
        (sealed(file("lost", content(P0, 0, 4, 5), content(P1, 2, 3, 2)),
                ranges=[(P0, 0, 5), (P1, 2, 4)]), {P0: R((0, 5)), P1: R((2, 4))}),
    ],
    ids=["dense", "dense beside gap", "holey", "gaps", "window", "two partitions",
         "gap elsewhere", "file of two"],
)  # fmt: skip
def test_lost_ranges(
    tmp_path: Path, own: Receipt, expected: dict[TopicPartition, list[OffsetRange]]
) -> None:
    """Of a lost file, those offsets are missing that its receipt doesn't place elsewhere."""
    assert lost_ranges(UPath(tmp_path), [(own.files[0], own)], "parquet") == expected


def test_lost_ranges_together(tmp_path: Path) -> None:
    """What several files held is merged, partition by partition."""
    first = sealed(file("a", content(P0, 0, 4, 5)), ranges=[(P0, 0, 5)])
    second = sealed(file("b", content(P0, 5, 9, 5)), ranges=[(P0, 5, 10)])

    found = lost_ranges(
        UPath(tmp_path), ((own.files[0], own) for own in (second, first)), "parquet"
    )

    assert found == {P0: R((0, 10))}


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of a topic."""
    return MadeArchive(tmp_path / "archive", {"t": "id"})


def interleaved(made: MadeArchive) -> Receipt:
    """Seal two files of partition 0 whose offsets alternate, and one of partition 1."""
    made.seal({P0: dense(0, 10), P1: dense(0, 10)})
    generation = made.archive.generation(1)
    rows = dense(0, 10)
    odd, even = (
        made.write(f"{generation.data_name}/{name}", {P0: {o: rows[o] for o in offsets}})[0]
        for name, offsets in (("odd", [1, 3, 9]), ("even", [0, 2, 8]))
    )
    files = tuple(
        SealedFile(
            f.path, f.bytes, f.sha256, (content(P0, f.contents[0].first, f.contents[0].last, 3),)
        )
        for f in (odd, even)
    )
    [own] = generation.receipts()
    beside = [f for f in own.files if f.contents[0].partition == 1]
    return replace(own, files=(*files, *beside))


def test_lost_ranges_beside_others(made: MadeArchive) -> None:
    """What the segment's other files hold isn't missing, unless they are lost as well."""
    own = interleaved(made)
    odd, even, _ = own.files

    alone = lost_ranges(made.root, [(odd, own)], "parquet")
    both = lost_ranges(made.root, [(odd, own), (even, own)], "parquet")

    # From its first offset to its last, 1 to 9.
    assert alone == {P0: R((1, 2), (3, 8), (9, 10))}
    assert both == {P0: R((0, 10))}


def test_lost_ranges_beside_gaps(made: MadeArchive) -> None:
    """Gaps and all other files count together, also after one that can't be read."""
    own = interleaved(made)
    odd, even, beside = own.files
    [part, *others] = own.partitions
    part = replace(part, gaps={GapReason.CONTROL: (OffsetRange(4, 7),)})
    torn = replace(even, path="torn")
    own = replace(own, files=(odd, torn, even, beside), partitions=(part, *others))

    assert lost_ranges(made.root, [(odd, own)], "parquet") == {
        P0: R((1, 2), (3, 4), (7, 8), (9, 10))
    }


@pytest.mark.parametrize("how", ["gone", "torn"])
def test_lost_ranges_beside_unreadable(made: MadeArchive, how: str) -> None:
    """A neighbour that can't be read holds nothing, though nobody has found that yet."""
    own = interleaved(made)
    odd, even, _ = own.files
    path = made.root / even.path
    path.unlink()
    if how == "torn":
        path.write_bytes(b"PAR1")

    assert lost_ranges(made.root, [(odd, own)], "parquet") == {P0: R((1, 10))}


def test_lost_ranges_far_neighbour(made: MadeArchive) -> None:
    """Files are read only where their offsets touch those of the lost one."""
    own = interleaved(made)
    far = file("not there", content(P0, 10, 12, 2), content(P1, 0, 9, 3))
    before = file("nor there", content(P0, 0, 0, 1))
    own = replace(own, files=(*own.files, far, before))

    assert lost_ranges(made.root, [(own.files[0], own)], "parquet") == {
        P0: R((1, 2), (3, 8), (9, 10))
    }


# whole generations


@pytest.fixture
def chain(made: MadeArchive) -> MadeArchive:
    """Three receipts, each of a file of partition 0 and one of partition 1."""
    for batch in range(3):
        rows = dense(10 * batch, 10 * batch + 10)
        made.seal({P0: rows, P1: rows})
    relinked(made)
    return made


def relinked(made: MadeArchive, **changes: Any) -> None:
    """Link the receipts by their hashes, with the given changes to all."""
    generation = made.archive.generation(1)
    previous = None
    for name in generation.receipt_names():
        path = generation.root / generation.receipt_where(name)
        own = replace(generation.read_receipt(name), previous=previous, **changes)
        path.write_bytes(own.to_bytes())
        previous = generation.read_receipt(name).sha256


def path_of(made: MadeArchive, batch: int, partition: int) -> str:
    """Return the path of a file of `chain`."""
    [found] = [f.path for f in made.files() if f.path.endswith(f"-{partition:05d}-{batch}.parquet")]
    return found


def name_of(batch: int) -> str:
    return f"generations/0001/receipts/{batch:012d}.json"


def checked(made: MadeArchive, previous: str | None = None, **how: Any) -> SealedCheck:
    """Check all receipts of the generation."""
    [generation] = made.archive.snapshot().generations
    listing = generation.list_data_files()
    deep = how.pop("deep", False)
    options: dict[str, Any] = {"deep": deep if isinstance(deep, Deep) else Deep(deep), **how}
    return check_all_sealed(generation, listing, previous, **options)


def told(check: SealedCheck) -> list[tuple[Reason, str]]:
    """Return what was found, except the warning that the receipts have no fingerprint."""
    found = [f for f in check.findings if f.reason is not Reason.CONTENT_UNKNOWN]
    return [(f.reason, str(f.subject)) for f in found]


def test_check_all_sealed(chain: MadeArchive) -> None:
    """Of what is whole nothing is found, and the next receipt has to name the last one."""
    [generation] = chain.archive.snapshot().generations

    found = checked(chain, deep=True)

    assert told(found) == []
    assert found.findings == unknown_contents(generation, list(generation.receipts()))
    assert (found.receipts, found.damaged) == (3, [])
    assert found.last_hash == list(generation.receipts())[-1].sha256
    assert not found.has_corrupt_receipt
    assert found.chain_is_whole


def test_check_all_sealed_none(made: MadeArchive) -> None:
    """Where nothing is sealed yet, the previous generation's last hash counts on."""
    found = checked(made, "hash")

    assert (found.findings, found.receipts, found.last_hash) == ([], 0, "hash")


def test_check_all_sealed_previous(chain: MadeArchive) -> None:
    """The first receipt names the last one of the previous generation."""
    found = checked(chain, "hash")

    assert told(found) == [(Reason.RECEIPT_CHANGED, name_of(0))]
    assert (found.chain_is_whole, found.has_corrupt_receipt) == (False, False)


@pytest.mark.parametrize("forgotten", [False, True])
def test_check_all_sealed_receipt_gone(chain: MadeArchive, forgotten: bool) -> None:
    """One that is missing is a hole, unless it was given up."""
    generation = chain.archive.generation(1)
    _, second, third = generation.receipts()
    (chain.root / name_of(1)).unlink()

    found = checked(chain, forgotten={name_of(2): second.sha256} if forgotten else {})

    assert told(found) == ([] if forgotten else [(Reason.RECEIPT_HOLE, name_of(2))])
    assert found.chain_is_whole is forgotten
    assert (found.receipts, found.last_hash) == (2, third.sha256)


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_check_all_sealed_receipt_corrupt(chain: MadeArchive, batch: int) -> None:
    """What follows one that can't be read isn't blamed for it; all others are still compared."""
    last = list(chain.archive.generation(1).receipts())[-1]
    lost = path_of(chain, (batch + 1) % 3, 0)
    (chain.root / name_of(batch)).write_bytes(b"{}")
    (chain.root / lost).unlink()

    found = checked(chain)

    assert set(told(found)) == {
        (Reason.RECEIPT_CORRUPT, name_of(batch)),
        (Reason.FILE_MISSING, lost),
    }
    assert (found.chain_is_whole, found.has_corrupt_receipt) == (False, True)
    assert found.last_hash == last.sha256 or batch == 2


def test_check_all_sealed_receipt_replaced(chain: MadeArchive) -> None:
    """After one that can't be read, the links of the later ones count again."""
    generation = chain.archive.generation(1)
    chain.seal({P0: dense(30, 40)})
    (chain.root / name_of(1)).write_bytes(b"{}")
    assert len(generation.receipt_names()) == 4

    assert told(checked(chain)) == [(Reason.RECEIPT_CORRUPT, name_of(1))]


@pytest.mark.parametrize(("what", "deep"), list(product(("gone", "size", "bytes"), (True, False))))
@pytest.mark.parametrize("is_superseded", [False, True])
def test_check_all_sealed_files(
    chain: MadeArchive, what: str, deep: bool, is_superseded: bool
) -> None:
    """Each damaged file is found, with its receipt; those that a window replaces may be gone."""
    path = path_of(chain, 1, 1)
    damage(chain.root / path, what)

    found = checked(chain, deep=deep, superseded={path} if is_superseded else ())

    reasons = {"gone": Reason.FILE_MISSING, "size": Reason.FILE_SIZE, "bytes": Reason.FILE_CHANGED}
    is_found = not is_superseded and (deep or what != "bytes")
    assert told(found) == ([(reasons[what], path)] if is_found else [])
    assert [(f.path, r.last_batch) for f, r in found.damaged] == [(path, 1)] * is_found
    assert found.chain_is_whole


def damage(path: UPath, what: str) -> None:
    """Remove a file, shorten it, or change a byte in its middle."""
    content = path.read_bytes()
    path.unlink()
    if what == "size":
        path.write_bytes(content[:-1])
    elif what == "bytes":
        at = len(content) // 2
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def test_check_all_sealed_drained_again(chain: MadeArchive) -> None:
    """Receipts whose records a window has drained again are no longer named."""
    again = {path_of(chain, 0, 0), path_of(chain, 0, 1), path_of(chain, 1, 0)}

    [found] = checked(chain, drained_again=again).findings

    assert found.detail.startswith("40 records of 2 sealed segments")
    assert found.detail.endswith("up to batch 1, 2")


@pytest.mark.parametrize(
    ("fingerprint", "deep", "superseded", "is_found"),
    [
        ("00", True, False, True),
        ("00", False, False, False),
        (None, True, False, False),
        # Half of a segment has no fingerprint of its own.
        ("00", True, True, False),
    ],
)
def test_check_all_sealed_fingerprint(
    chain: MadeArchive, fingerprint: str | None, deep: bool, superseded: bool, is_found: bool
) -> None:
    """A deep check also compares each segment's records with what Spark read."""
    relinked(chain, fingerprint=fingerprint)
    replaced = {path_of(chain, batch, 0) for batch in range(3)} if superseded else set()

    found = checked(chain, deep=deep, superseded=replaced)

    expected = [(Reason.CONTENT_CHANGED, name_of(batch)) for batch in range(3)]
    assert told(found) == (expected if is_found else [])


def test_check_all_sealed_named(chain: MadeArchive) -> None:
    """Of the files and segments that are named, all bytes are read, and of no others."""
    relinked(chain, fingerprint="00")
    for batch in range(3):
        damage(chain.root / path_of(chain, batch, 1), "bytes")
    file = path_of(chain, 0, 1)

    found = checked(chain, deep=Deep(named=frozenset({file, name_of(2)})))

    # Half of a segment has no fingerprint of its own: without its damaged file, the first has none.
    assert told(found) == [(Reason.FILE_CHANGED, file), (Reason.CONTENT_CHANGED, name_of(2))]


def test_check_all_sealed_fingerprint_of_damaged(chain: MadeArchive) -> None:
    """Of a segment with a damaged file, the file alone is told."""
    relinked(chain, fingerprint="00")
    path = path_of(chain, 1, 0)
    damage(chain.root / path, "bytes")

    assert set(told(checked(chain, deep=True))) == {
        (Reason.CONTENT_CHANGED, name_of(0)),
        (Reason.FILE_CHANGED, path),
        (Reason.CONTENT_CHANGED, name_of(2)),
    }


def test_check_all_sealed_fingerprint_equal(tmp_path: Path) -> None:
    """What Spark read is what its files hold; a wrong fingerprint is told with both."""
    archive = sealed_copy(tmp_path / "archive")
    [generation] = archive.snapshot().generations
    *_, last = generation.receipts()
    assert last.fingerprint

    def findings() -> list[Finding]:
        check = check_all_sealed(
            archive.snapshot().generations[0], generation.list_data_files(), None, deep=DEEP
        )
        return [f for f in check.findings if f.reason is Reason.CONTENT_CHANGED]

    assert findings() == []
    path = archive.root / last.where
    path.write_bytes(replace(last, fingerprint="0" * 16).to_bytes())
    assert findings() == [
        Finding(
            Reason.CONTENT_CHANGED,
            last.where,
            f"its files' records have fingerprint {last.fingerprint}; Spark read {'0' * 16}",
        )
    ]


# only what the manifest lists


@pytest.mark.parametrize("what", ["none", "gone", "size", "bytes"])
def test_check_listed_sealed(tmp_path: Path, what: str) -> None:
    """Without reading receipts, a sealed file of the manifest is missed, or known by its size."""
    archive = sealed_copy(tmp_path / "archive")
    state = state_of(archive.generation(1))
    receipts = list(archive.generation(1).receipts())
    lost = receipts[-1].files[-1].path
    if what != "none":
        damage(archive.root / lost, what)

    found = check_listed_sealed(state, archive.generation(1).list_data_files(), "before")

    reasons = {"gone": [(Reason.FILE_MISSING, lost)], "size": [(Reason.FILE_SIZE, lost)]}
    assert told(found) == reasons.get(what, [])
    damaged = [(lost, receipts[-1].last_batch)] if what in reasons else []
    assert [(f.path, r.last_batch) for f, r in found.damaged] == damaged
    assert (found.receipts, found.last_hash) == (len(receipts), receipts[-1].sha256)


def test_check_listed_sealed_reads_no_receipt(tmp_path: Path) -> None:
    """However many receipts there are, none is read while all files are there."""
    archive = sealed_copy(tmp_path / "archive")
    state = state_of(archive.generation(1))
    names = state.generation.receipt_names()
    for name in names[:-1]:
        (archive.root / state.generation.receipt_where(name)).unlink()

    found = check_listed_sealed(state, state.generation.list_data_files(), None)

    assert (found.findings, found.receipts) == ([], len(names))


def test_check_listed_sealed_receipt_corrupt(tmp_path: Path) -> None:
    """A damaged receipt, which is found elsewhere, doesn't end the search for a lost file's."""
    archive = sealed_copy(tmp_path / "archive")
    generation = archive.generation(1)
    state = state_of(generation)
    first, *_, last = generation.receipts()
    lost = last.files[-1].path
    (archive.root / lost).unlink()
    (archive.root / first.where).write_bytes(b"")

    found = check_listed_sealed(state, generation.list_data_files(), None)

    assert told(found) == [(Reason.FILE_MISSING, lost)]


def test_check_listed_sealed_nothing_sealed(tmp_path: Path) -> None:
    """Where nothing is sealed yet, the previous generation's last hash counts on."""
    archive = sealed_copy(tmp_path / "archive")
    generation = archive.generation(1)
    for name in generation.receipt_names():
        (archive.root / generation.receipt_where(name)).unlink()

    found = check_listed_sealed(state_of(generation), generation.list_data_files(), "before")

    assert (found.findings, found.receipts, found.last_hash) == ([], 0, "before")


@pytest.mark.parametrize("again", [False, True])
def test_check_listed_sealed_unknown(tmp_path: Path, again: bool) -> None:
    """Of the newest receipts, those without a fingerprint are named, unless drained again."""
    archive = sealed_copy(tmp_path / "archive")
    generation = archive.generation(1)
    newest = [replace(r, fingerprint=None) for r in list(generation.receipts())[-2:]]
    drained_again = {f.path for r in newest for f in r.files} if again else set()

    found = check_listed_sealed(
        state_of(generation), generation.list_data_files(), None, newest, drained_again
    )

    expected: Iterable[Finding] = [] if again else unknown_contents(generation, newest)
    assert found.findings == list(expected)

"""Windows whose receipt, plan and replaced files contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kafka_drain.archive.documents import WindowPlan
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.window_figures import Accounts, contradicts_plan
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.sealing import Identity, seal_deletion, seal_segment, seal_window
from tests.kafka_drain.drained import contents_of
from tests.tables import each_of

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDENTITY = Identity("p", "c", {"t": "id"})
R = OffsetRange
COMPACTED = Gap(P0, R(4, 6), GapReason.COMPACTED)
HELD = [0, 1, 2, 3, 6, 7, 8, 9]
OLD = "generations/0001/data/topic=t/part-0"


def drained() -> Receipt:
    """Seal offsets 0 to 9 of a partition, without two that Kafka compacted, in one file."""
    return seal_segment(
        Segment(0, 0, {P0: R(0, 10)}),
        [CommittedFile(OLD, 7, "5e", (contents_of(P0, HELD),), 0)],
        [COMPACTED],
        identity=IDENTITY,
        generation=1,
        before=None,
        previous=None,
        bounds={},
        fingerprint=None,
        acknowledged=(),
        sealed_at="",
    )


@dataclass(frozen=True)
class Sealed:
    """A window with its plan."""

    kind: WindowKind
    receipt: Receipt
    plan: WindowPlan


def window(kind: str, *gaps: Gap, **plan: Any) -> Sealed:
    """Seal the same offsets in a window, without those of the gaps."""
    gone = {offset for gap in gaps for offset in range(gap.range.start, gap.range.end)}
    held = [offset for offset in HELD if offset not in gone]
    name = f"{kind}_0001"
    sealed: dict[str, Any] = {"identity": IDENTITY, "window": name, "replaces": [OLD]}
    receipt = seal_window(
        [(P0, R(0, 10))],
        [CommittedFile(f"windows/{name}/data/1/part-0", 5, "", (contents_of(P0, held),))],
        [COMPACTED, *gaps],
        fingerprint=None,
        sealed_at="",
        **sealed,
    )
    if kind == "retention":
        gaps = tuple(Gap(P0, r, GapReason.DELETED) for r in (R(0, 4), R(6, 10)))
        receipt = seal_deletion(gaps, sealed_at="", **sealed)
    document = {
        "kind": kind,
        "ranges": [
            {"topic": "t", "partition": 0, "start": r.start, "end": r.end}
            for r in (part.range for part in receipt.partitions)
        ],
        "replaces": [OLD],
        "format": "parquet",
        "replaced": {"files": 1, "bytes": 7, "records": [_counted(8)]},
        **plan,
    }
    return Sealed(WindowKind(kind), receipt, WindowPlan.model_validate(document))


def _counted(records: int, partition: int = 0) -> dict[str, Any]:
    return {"topic": "t", "partition": partition, "records": records}


def erasure(*gaps: Gap, records: tuple[int, ...] = (2,), **plan: Any) -> Sealed:
    rows = [{"erasure": 1, "request": "r", "by": "b", "records": each} for each in records]
    return window("erase", *gaps, erasures=rows, **plan)


def changed(sealed: Sealed, **changes: Any) -> Sealed:
    return replace(sealed, receipt=replace(sealed.receipt, **changes))


def problem(sealed: Sealed, *receipts: Receipt) -> str:
    """Return what a window doesn't account for, having looked at receipts."""
    accounts = Accounts([sealed])
    for receipt in receipts:
        accounts.look(receipt)
    found = dict(accounts.unaccounted(())) | dict(accounts.not_covered())
    assert set(found) <= {sealed.receipt.where}
    return found.get(sealed.receipt.where, "")


ERASED = Gap(P0, R(2, 4), GapReason.ERASED)
UNACCOUNTED: dict[str, Callable[[], Sealed]] = {
    "counts": lambda: window(
        "compact", replaced={"files": 2, "bytes": 7, "records": [_counted(8)]}
    ),
    "plan counts": lambda: window(
        "compact", replaced={"files": 1, "bytes": 8, "records": [_counted(8)]}
    ),
    "records than its plan counts": lambda: window(
        "reprocess", replaced={"files": 1, "bytes": 7, "records": [_counted(8, 1)]}
    ),
    "replaces 8 records of t-0 by 6, and says that 0 are gone": lambda: window(
        "compact", Gap(P0, R(2, 4), GapReason.DELETED)
    ),
    "it is erased, which nobody said": lambda: window("compact", ERASED),
    "it is control, which nobody said": lambda: erasure(Gap(P0, R(2, 4), GapReason.CONTROL)),
    "erased 2 records, but its plan says [1]": lambda: erasure(ERASED, records=(1,)),
    "erased 2 records, but its plan says [3]": lambda: erasure(ERASED, records=(3,)),
    "another SHA-256": lambda: erasure(ERASED, hashes={OLD: "another"}),
    "of which its plan has another SHA-256, or none": lambda: erasure(
        ERASED, hashes={f"{OLD}x": "5e"}
    ),
    "by 0, and says that 4 are gone": lambda: _deleted(R(0, 4)),
    "which has records of another topic t": lambda: changed(
        window("compact"), topics={"t": "another"}
    ),
    "without having its offset 9 of t-0": lambda: changed(
        window("compact"), partitions=(replace(window("compact").receipt.partitions[0], end=9),)
    ),
}


def _deleted(*ranges: OffsetRange) -> Sealed:
    """Delete all, and say it of some."""
    sealed = window("retention")
    parts = tuple(p for p in sealed.receipt.partitions if p.range in ranges)
    left = tuple(replace(p, gaps={}) for p in sealed.receipt.partitions if p.range not in ranges)
    return changed(sealed, partitions=parts + left)


@each_of("told", UNACCOUNTED)
def test_accounts_wrong(told: str) -> None:
    """A record of a replaced file that is neither held nor gone for a reason is told."""
    assert told in problem(UNACCOUNTED[told](), drained())


def test_accounts_right() -> None:
    """What maintenance seals accounts for all records; without the receipts, nobody can tell."""
    right = [
        window("compact"),
        window("reprocess"),
        window("reprocess", Gap(P0, R(2, 4), GapReason.COMPACTED)),
        window("retention"),
        window("repair", Gap(P0, R(2, 4), GapReason.COMPACTED)),
        window("compact", replaced=None),
        erasure(ERASED),
        erasure(ERASED, records=(1, 2)),
        erasure(ERASED, hashes={OLD: "5e"}),
    ]
    for sealed in right:
        assert problem(sealed, drained()) == ""
    assert problem(window("repair")) == ""
    assert problem(window("compact")) == f"replaces {OLD}, which no receipt tells of"


def test_accounts_named() -> None:
    """What was erased before is no erasure of this window; a receipt that it names says so."""
    [file] = window("erase", ERASED).receipt.files
    path = "windows/erase_0000/data/1/part-0"
    before = changed(
        window("erase", ERASED), window="erase_0000", files=(replace(file, path=path),)
    )
    again = erasure(ERASED, records=(0,), replaced=None)
    provenance = {before.receipt.where: before.receipt.sha256}
    again = changed(again, replaces=(path,), provenance=provenance)

    assert problem(again, before.receipt) == ""
    assert problem(changed(again, provenance={before.receipt.where: "another"}), before.receipt)
    gone = {**provenance, "windows/erase_0009/receipt.json": "hash"}
    named = changed(again, provenance=gone)
    assert "is made from windows/erase_0009" in problem(named, before.receipt)
    accounts = Accounts([named])
    accounts.look(before.receipt)
    assert list(accounts.unaccounted({"windows/erase_0009"})) == []
    assert "its plan says" in problem(erasure(ERASED, records=(0,)), drained())


PLANS: dict[str, Callable[[], Sealed]] = {
    "replaces other files than its receipt": lambda: window("compact", replaces=[]),
    "replaces a file twice": lambda: changed(
        window("compact", replaces=[OLD, OLD]), replaces=(OLD, OLD)
    ),
    "has nothing of t-0, but its receipt [0, 10)": lambda: window("repair", ranges=[]),
    "has [0, 11) of t-0": lambda: window("repair", ranges=[_range(0, 11)]),
    "has [0, 9) of t-0": lambda: window("backfill", ranges=[_range(0, 9)]),
    "says topic t has id 'another'": lambda: window("backfill", topics={"t": "another"}),
    "says topic t has no id": lambda: window("backfill", topics={"u": "another"}),
    "says topic t has no id, but its receipt says 'id'": lambda: window("backfill", topics={}),
}


def _range(start: int, end: int) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "start": start, "end": end}


@each_of("told", PLANS)
def test_contradicts_plan(told: str) -> None:
    """A receipt has the files and the ranges of its plan."""
    sealed = PLANS[told]()

    assert told in contradicts_plan(sealed.receipt, sealed.plan, sealed.kind)


def test_contradicts_plan_not() -> None:
    """The order doesn't matter; a backfill may have less than was planned."""
    for sealed in (
        window("compact"),
        window("retention"),
        window("backfill", ranges=[_range(0, 20), _range(30, 30)]),
        window("backfill", topics={"t": "id", "u": "another"}),
    ):
        assert contradicts_plan(sealed.receipt, sealed.plan, sealed.kind) == ""

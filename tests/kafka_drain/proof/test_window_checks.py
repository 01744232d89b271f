"""What sealed windows hold, and which of them vouch for the files that they replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.journal.entries import Noted
from kafka_drain.archive.receipts import FileSet, Receipt, SealedContent, SealedFile
from kafka_drain.archive.window import Window
from kafka_drain.config.offset_ranges import range_name
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.errors import DataLossError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.sealed_files import DEEP, NOT_DEEP, Deep
from kafka_drain.proof.sealing import Identity
from kafka_drain.proof.validation import validate_archive
from kafka_drain.proof.window_checks import (
    CheckedWindows,
    LeftToWindows,
    check_accounts,
    check_files,
    check_windows,
    refuse_fewer,
)
from tests.kafka_drain.archives import offsets_of, sealed_files, write_window
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import P0 as GOLDEN_P0
from tests.kafka_drain.golden import golden_cluster, sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense

P0, P1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
REPAIR, BACKFILL = "repair_1", "20260101T000000Z_20260101T010000Z"


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive with two sealed batches of two partitions."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    for batch in range(2):
        rows = dense(10 * batch, 10 * batch + 10)
        made.seal({P0: rows, P1: rows})
    return made


def sealed(
    made: MadeArchive, key: str, start: int, end: int, replaces: Sequence[str] = (), **plan: Any
) -> str:
    """Seal a window with offsets of partition 0; return its file's path."""
    [file] = made.seal_window(key, {P0: dense(start, end)}, replaces, **plan)
    return file.path


def drained(made: MadeArchive) -> list[str]:
    """Return the generation's files of partition 0."""
    return [f.path for f in made.files() if "part-00000" in f.path and f.path.startswith("gen")]


def checked(made: MadeArchive, *, deep: bool = False) -> CheckedWindows:
    return check_windows(made.archive.snapshot(), deep=Deep(deep))


def keys(found: CheckedWindows) -> list[str]:
    """Return the names of the windows that are whole."""
    return [window.key for window in found.held.whole.windows]


def lose(made: MadeArchive, *paths: str) -> None:
    for path in paths:
        (made.root / path).unlink()


# which windows are whole


def test_check_windows_none(made: MadeArchive) -> None:
    """Without windows, nothing is held and nothing replaced."""
    found = checked(made)

    assert (found.findings, found.figures, keys(found)) == ([], [], [])
    assert (found.held.replaced, found.held.superseded) == (frozenset(), frozenset())


def test_check_windows(made: MadeArchive) -> None:
    """Windows that are as they were sealed hold their offsets, and vouch for what they replace."""
    first, second = drained(made)
    own = sealed(made, REPAIR, 0, 10, [first], kind="repair")
    sealed(made, BACKFILL, 30, 40, kind="backfill")
    sealed(made, "reprocess_0001_0001", 10, 20, [second], kind="reprocess")

    found = checked(made, deep=True)

    assert found.findings == []
    assert keys(found) == [BACKFILL, REPAIR, "reprocess_0001_0001"]
    assert found.held.replaced == {first, second}
    # A repair replaces what was damaged.
    assert found.held.superseded == {second}
    assert found.held.drained_again == {first, second}
    assert found.held.damaged == []
    figures = {each.key: each for each in found.figures}
    assert set(figures) == set(keys(found))
    assert [file.path for file in figures[REPAIR].receipt.files] == [own]
    assert all(not each.damaged for each in found.figures)


DAMAGE: dict[str, tuple[Callable[[bytes], bytes | None], Reason, bool]] = {
    "gone": (lambda content: None, Reason.FILE_MISSING, False),
    "short": (lambda content: content[:-1], Reason.FILE_SIZE, False),
    "changed": (lambda content: content[:9] + b"!" + content[10:], Reason.FILE_CHANGED, True),
}


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("what", DAMAGE)
def test_check_windows_damaged(made: MadeArchive, what: str, deep: bool) -> None:
    """A damaged window holds nothing, and vouches for nothing; bytes are read on demand."""
    first, second = drained(made)
    lost = sealed(made, REPAIR, 0, 10, [first], kind="repair")
    sealed(made, "repair_2", 10, 20, [second], kind="repair")
    change, reason, only_deep = DAMAGE[what]
    content = change((made.root / lost).read_bytes())
    lose(made, lost)
    if content is not None:
        (made.root / lost).write_bytes(content)

    found = checked(made, deep=deep)

    if only_deep and not deep:
        assert (found.findings, keys(found)) == ([], [REPAIR, "repair_2"])
        return
    assert [(f.reason, f.subject) for f in found.findings] == [(reason, lost)]
    assert keys(found) == ["repair_2"]
    assert found.held.replaced == found.held.drained_again == {second}
    [(window, offsets)] = found.held.damaged
    assert (window.key, offsets) == (REPAIR, {P0: [OffsetRange(0, 10)]})
    assert [[file.path for file in each.damaged] for each in found.figures] == [[lost], []]


def test_check_windows_repaired(made: MadeArchive) -> None:
    """A damaged window that was repaired in turn is no damage, and its files are excused."""
    first, _ = drained(made)
    lost = sealed(made, REPAIR, 0, 10, [first], kind="repair")
    sealed(made, "repair_2", 0, 10, [lost], kind="repair")
    lose(made, lost)

    found = checked(made)

    [finding] = found.findings
    assert (finding.reason, finding.subject) == (Reason.FILE_REPLACED, lost)
    assert finding.detail.startswith("file_missing: ")
    assert finding.detail.endswith("; a window replaces it")
    assert keys(found) == [REPAIR, "repair_2"]
    assert found.held.replaced == {first, lost}
    assert found.held.damaged == []


def test_check_windows_superseded(made: MadeArchive) -> None:
    """A window whose files are all superseded holds nothing any more; they may be gone."""
    lost = sealed(made, REPAIR, 20, 30, kind="repair")
    sealed(made, "reprocess_0001_0001", 20, 30, [lost], kind="reprocess")
    lose(made, lost)

    found = checked(made)

    assert (found.findings, keys(found)) == ([], ["reprocess_0001_0001"])
    assert found.held.damaged == []


def test_check_windows_compacted(made: MadeArchive) -> None:
    """A compaction, which names receipts, keeps records as they are; others read them again."""
    first, second = drained(made)
    sealed(made, REPAIR, 0, 10, [first], kind="repair")
    sealed(made, "compact_0001", 10, 20, [second], kind="compact")
    path = made.root / "windows" / "compact_0001" / "receipt.json"
    receipt = replace(Window(made.root, "compact_0001").read_receipt(), provenance={"r": "sha"})
    path.write_bytes(receipt.to_bytes())

    found = checked(made)

    assert found.held.replaced == {first, second}
    assert found.held.drained_again == {first}


@pytest.mark.parametrize("lost", [False, True])
def test_check_windows_figures(made: MadeArchive, lost: bool) -> None:
    """A window's figures say what it replaces, according to its plan, if that is there."""
    replaced = {"files": 1, "bytes": 5, "records": []}
    sealed(made, "compact_0001", 0, 10, drained(made)[:1], kind="compact", replaced=replaced)
    sealed(made, REPAIR, 20, 30, kind="repair")
    if lost:
        lose(made, "windows/compact_0001/plan.json")

    found = {each.key: each.replaced for each in checked(made).figures}

    assert found == {"compact_0001": None if lost else replaced, REPAIR: None}


def test_check_windows_unreadable_receipt(made: MadeArchive) -> None:
    """A window without a readable receipt holds nothing: it has a finding elsewhere."""
    sealed(made, REPAIR, 20, 30, kind="repair")
    (made.root / "windows" / REPAIR / "receipt.json").write_bytes(b"")

    found = checked(made)

    assert (found.findings, found.figures, keys(found)) == ([], [], [])


# what they hold


def test_held_by_windows(made: MadeArchive) -> None:
    """Windows hold offsets of a topic with the same id only."""
    sealed(made, REPAIR, 0, 10, kind="repair")
    sealed(made, "repair_2", 5, 20, kind="repair")
    held = checked(made).held

    same, other = Identity("made", "c", {"t": "id"}), Identity("made", "c", {"t": "new"})

    assert held.ranges(same) == {P0: [R(0, 20)]}
    assert held.ranges(other) == {}
    assert [window.key for window in held.of_same_topics(same)] == [REPAIR, "repair_2"]
    assert held.of_same_topics(other) == ()


@pytest.mark.parametrize(
    ("topics", "accepted"),
    [
        ({"t": "id", "u": "id-u"}, {P0: [R(28, 30)], U0: [R(8, 10)]}),
        # A topic that was made again, beside one that wasn't.
        ({"t": "new", "u": "id-u"}, {U0: [R(8, 10)]}),
        ({"t": "id", "u": "new"}, {P0: [R(28, 30)]}),
        ({"t": "new", "u": "new"}, {}),
    ],
)
def test_held_by_windows_accepted(
    made: MadeArchive, topics: dict[str, str], accepted: dict[TopicPartition, list[OffsetRange]]
) -> None:
    """A loss that was accepted of a topic isn't one of a topic that was made again since."""
    made.topic_ids |= {"u": "id-u"}
    lost = [Gap(P0, R(28, 30), GapReason.EXPIRED), Gap(U0, R(8, 10), GapReason.EXPIRED)]
    made.seal_window(
        REPAIR,
        {P0: dense(20, 28), U0: dense(0, 8)},
        gaps=lost,
        acknowledged=tuple(range_name(gap.tp, gap.range) for gap in lost),
    )

    assert checked(made).held.accepted(Identity("made", "c", topics)) == accepted


def test_without_replaced(made: MadeArchive) -> None:
    """Readers skip the files that a window replaces; each gets a warning."""
    first, second = drained(made)
    sealed(made, REPAIR, 0, 10, [first], kind="repair")
    files = [CommittedFile(path, 1, "", ()) for path in (first, second)]

    left, found = checked(made).held.without_replaced(iter(files))

    assert left == files[1:]
    assert found == [Finding(Reason.FILE_REPLACED, first, "a window replaces it")]


def test_excuse(made: MadeArchive) -> None:
    """Damage to a replaced file is a warning; whatever else is found stays."""
    first, second = drained(made)
    sealed(made, REPAIR, 0, 10, [first], kind="repair")
    excuse = checked(made).held.excuse
    damage = {Reason.FILE_MISSING, Reason.FILE_SIZE, Reason.FILE_CORRUPT, Reason.FILE_CHANGED}

    for reason in Reason:
        replaced, other = (Finding(reason, path, "7 bytes", 3) for path in (first, second))
        detail = f"{reason}: 7 bytes; a window replaces it"
        excused = Finding(Reason.FILE_REPLACED, first, detail, 3)
        assert excuse(replaced) == (excused if reason in damage else replaced)
        assert excuse(other) == other


def test_check_files_superseded(made: MadeArchive) -> None:
    """Of a window's files, those are looked at that no other window supersedes."""
    made.seal_window(BACKFILL, {P0: dense(20, 30), P1: dense(20, 30)})
    window = Window(made.root, BACKFILL)
    receipt = window.read_receipt()
    first, second = (file.path for file in receipt.files)
    lose(made, first, second)

    def found(*superseded: str) -> list[str]:
        findings = check_files(window, receipt, deep=NOT_DEEP, superseded=superseded)
        return [str(finding.subject) for finding in findings]

    assert [str(f.subject) for f in check_files(window, receipt, deep=DEEP)] == [first, second]
    assert found() == [first, second]
    assert found(first) == [second]
    assert found(first, second) == []


# refuse_fewer


def window_receipt(**records: int) -> Receipt:
    """A window's receipt of two files with some records of each partition, half and half."""
    parts = {tp: records[f"p{tp.partition}"] for tp in (P0, P1) if f"p{tp.partition}" in records}
    files = [
        SealedFile(
            name, 1, "", tuple(SealedContent.of(tp, 0, 99, n // 2) for tp, n in parts.items())
        )
        for name in ("a", "b")
    ]
    return Receipt(
        pipeline="p",
        cluster_id="c",
        topics={},
        generation=None,
        window="w",
        first_batch=0,
        last_batch=0,
        sealed_at="",
        previous=None,
        partitions=(),
        files=tuple(files),
        files_so_far=FileSet(),
    )


@pytest.mark.parametrize(
    ("held", "fewer"),
    [
        ({}, ""),
        ({P0: 1_000}, ""),
        ({P0: 1_001}, "t-0 1,000 instead of 1,001"),
        ({P0: 999, P1: 6}, ""),
        # More of one partition don't make up for those missing of another.
        ({P0: 900, P1: 7}, "t-1 6 instead of 7"),
        ({P1: 7, P0: 2_000}, "t-0 1,000 instead of 2,000, t-1 6 instead of 7"),
        ({TopicPartition("u", 0): 1}, "u-0 0 instead of 1"),
        ({TopicPartition("u", 0): 0}, ""),
    ],
)
def test_refuse_fewer(made: MadeArchive, held: dict[TopicPartition, int], fewer: str) -> None:
    """A window with fewer records of a partition than the intact files never replaces them."""
    receipt = window_receipt(p0=1_000, p1=6)
    own = Window(made.root, "w")
    if not fewer:
        refuse_fewer(own, receipt, held)
        return
    with pytest.raises(DataLossError) as raised:
        refuse_fewer(own, receipt, held, "; leave it")

    assert str(raised.value) == (
        "window w: Kafka has fewer records than the files that the window would replace: "
        f"{fewer}. Kafka has compacted the topic since, so the files are the only copy of the "
        "other records. Nothing was replaced; leave it"
    )


def test_refuse_fewer_many(made: MadeArchive) -> None:
    """The message names five partitions, and is a sentence without a way out."""
    held = {TopicPartition("u", partition): 1 for partition in range(7)}

    with pytest.raises(DataLossError) as raised:
        refuse_fewer(Window(made.root, "w"), window_receipt(), held)

    assert str(raised.value).count(" instead of ") == 5
    assert str(raised.value).endswith("Nothing was replaced")


def all_expired(_: object, missing: Mapping[TopicPartition, Sequence[OffsetRange]]) -> list[Gap]:
    return [Gap(tp, r, GapReason.EXPIRED) for tp, ranges in missing.items() for r in ranges]


@pytest.mark.parametrize("is_accepted", [True, False])
def test_validate_accepted_by_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_accepted: bool
) -> None:
    """What was given up of a lost file, when the rest was drained again, stays accepted."""
    archive = sealed_copy(tmp_path / "archive")
    [lost, *_] = sealed_files(archive.generation(1), GOLDEN_P0)
    first, *rest = offsets_of([lost])
    (archive.root / lost.path).unlink()
    receipt = write_window(archive, "repair_20130102T000000Z", {GOLDEN_P0: rest}, replaces=[lost])
    accepted = (range_name(GOLDEN_P0, OffsetRange(first, first + 1)),) if is_accepted else ()
    receipt = replace(receipt, acknowledged=accepted)
    assert Window(archive.root, "repair_20130102T000000Z").write_receipt(receipt.sealed())
    monkeypatch.setattr("kafka_drain.proof.gap_explanation.classify_gaps", all_expired)

    for scope in ("all", "open"):
        report = validate_archive(archive, golden_cluster(), scope=scope)  # type: ignore[arg-type]

        found = {str(finding.reason) for finding in report.findings}
        offsets = "offset_expired" if is_accepted else "offset_missing"
        lost = {"receipt_contradicts"} if scope == "all" and not is_accepted else set()
        assert found == {"file_replaced", offsets} | lost
        assert report.complete is is_accepted


# What a window replaces, it has the offsets of: a forged or misplaced one may not hide records.


def contradictions(made: MadeArchive, *, whole: bool) -> list[str]:
    """Return what contradicts receipts, if those of generations are read or not."""
    accounts = checked(made).accounts
    for generation in made.archive.snapshot().generations if whole else ():
        for receipt in generation.receipts():
            accounts.look(receipt)
    found = check_accounts(accounts, made.archive.snapshot().journal.noted, whole=whole)
    assert {finding.reason for finding in found} <= {Reason.RECEIPT_CONTRADICTS}
    return [f"{finding.subject}: {finding.detail}" for finding in found]


@pytest.mark.parametrize("whole", [False, True])
def test_check_accounts_replacing_others(made: MadeArchive, whole: bool) -> None:
    """A window that replaces a window's file without having its offsets is a finding."""
    other = sealed(made, BACKFILL, 20, 30)
    sealed(made, REPAIR, 0, 10, [*drained(made)[:1], other])

    assert contradictions(made, whole=whole) == [
        f"windows/{REPAIR}/receipt.json: replaces {other} without having its offset 20 of t-0"
    ]


def test_check_accounts_replacing_drained(made: MadeArchive) -> None:
    """Those of a generation's files are compared where all receipts are read."""
    first, second = drained(made)[:2]
    sealed(made, REPAIR, 0, 10, [first, second])

    assert contradictions(made, whole=False) == []
    [found] = contradictions(made, whole=True)
    assert found.endswith(f"replaces {second} without having its offset 10 of t-0")


def test_check_accounts_own_file(made: MadeArchive) -> None:
    """A window that replaces its own file would have no records."""
    own = f"windows/{REPAIR}/data/topic=t/part-00000-{REPAIR}.parquet"
    assert sealed(made, REPAIR, 0, 10, [own]) == own

    [found] = contradictions(made, whole=False)
    assert found.endswith(f"replaces {own}, which is its own")


def test_check_accounts_removed(made: MadeArchive) -> None:
    """Files of which no receipt tells are unaccounted for, unless the journal has it as removed."""
    gone = "windows/compact_0001/data/1/part-0"
    sealed(made, "compact_0002", 0, 10, [gone], kind="compact")

    assert contradictions(made, whole=False) == []
    [found] = contradictions(made, whole=True)
    assert found.endswith(f"replaces {gone}, which no receipt tells of")
    accounts = checked(made).accounts
    for noted in (
        Noted(documents={"windows/compact_0001/receipt.json": "removed"}),
        Noted(forgotten={"windows/compact_0001/receipt.json": "f" * 64}),
    ):
        assert check_accounts(accounts, noted, whole=True) == []


def test_validate_with_plan_of_another_window(made: MadeArchive) -> None:
    """Another window's plan in a window's place is a finding, and not a crash."""
    counted = {"files": 1, "bytes": 1, "records": [{"topic": "u", "partition": 7, "records": 1}]}
    sealed(made, "compact_0001", 0, 10, drained(made)[:1], kind="compact", replaced=counted)

    report = validate_archive(made.archive, None, writes=False)

    assert report.windows


def receipt_of(window: str, span: OffsetRange, left: Sequence[OffsetRange], topic_id: str) -> Any:
    """A receipt with a range of partition 0, some offsets of which a window is said to hold."""
    gaps = {GapReason.WINDOW: tuple(left)} if left else {}
    part = SimpleNamespace(tp=P0, range=span, gaps=gaps)
    return SimpleNamespace(window=window, topics={"t": topic_id}, partitions=[part])


@pytest.mark.parametrize(
    ("windows", "uncovered"),
    [
        ([], [R(3, 7)]),
        ([("w", R(3, 7), [], "id")], []),
        ([("w", R(0, 5), [], "id"), ("w_2", R(6, 9), [], "id")], [R(5, 6)]),
        # Another incarnation of the topic.
        ([("w", R(3, 7), [], "id~2")], [R(3, 7)]),
        # Another segment's receipt, and a window that leaves them to another one itself.
        ([("", R(3, 7), [], "id")], [R(3, 7)]),
        ([("w", R(0, 20), [R(4, 7)], "id")], [R(4, 7)]),
    ],
)
def test_left_to_windows(windows: list[Any], uncovered: list[OffsetRange]) -> None:
    """What a receipt leaves to windows has to be in one, of the same incarnation of the topic."""
    left = LeftToWindows()
    for each in [("", R(0, 10), [R(3, 7)], "id"), *windows]:
        left.look(receipt_of(*each))

    assert left.uncovered() == ({(P0, "id"): uncovered} if uncovered else {})


def test_validate_accepted_left_to_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was accepted of a window that is gone stays accepted."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal({P0: dense(0, 10)}, gaps=[Gap(P0, R(10, 20), GapReason.WINDOW)])
    made.open_generation()
    monkeypatch.setattr("kafka_drain.proof.gap_explanation.classify_gaps", all_expired)
    cluster: Any = FakeCluster({P0: Log(first=20, end=20)}, topic_ids={"t": "id"})

    def is_missing(accepted: Any) -> bool:
        report = validate_archive(made.archive, cluster, acknowledged=accepted)
        return Reason.OFFSET_MISSING in {f.reason for f in report.findings}

    assert [is_missing(each) for each in ({}, {P0: [R(10, 20)]}, {})] == [True, False, False]

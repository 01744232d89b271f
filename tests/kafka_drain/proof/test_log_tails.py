"""The newest archived records, of archives made by hand, compared with a fake cluster's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.fold import Fold
from kafka_drain.archive.receipts import SealedTail
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.errors import (
    ArchiveError,
    DataFileError,
    DataLossError,
    KeyUnavailableError,
    KmsUnavailableError,
    SourceRecordError,
)
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.identity import SeenRecord
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import log_tails, sealing
from kafka_drain.proof.log_tails import (
    archived_tails,
    compare_sealed,
    compare_with_logs,
    first_rewritten,
    newest_records_in,
    rewritten_logs,
    unsealed_tails,
)
from kafka_drain.proof.rewritten_log import FirstRewritten, LogVerdict
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import EPOCH, Batch, MadeArchive, dense

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST_MS = 1_767_000_000_000
COMPACTED = {"t": {"cleanup.policy": "compact"}}

Contents = Callable[[TopicPartition, OffsetRange], list[dict[str, Any]]]


def as_archived(rewritten_from: int | None = None, without: tuple[int, ...] = ()) -> Contents:
    """Return what Kafka holds: the archived records up to an offset, and others from there on."""

    def contents(tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
        return [
            {
                "key": b"%d" % offset,
                "value": b"value" if rewritten_from is None or offset < rewritten_from else b"new",
                "topic": tp.topic,
                "partition": tp.partition,
                "offset": offset,
                "timestamp": EPOCH + timedelta(milliseconds=FIRST_MS + offset),
                "timestampType": 0,
            }
            for offset in range(span.start, span.end)
            if offset not in without
        ]

    return contents


def cluster_of(contents: Contents, *, end: int = 40, **changes: Any) -> FakeCluster:
    logs = {A: Log(first=changes.pop("first", 0), end=end), B: Log(end=end)}
    return FakeCluster(logs, topic_ids={"t": "id-of-t"}, contents=contents, **changes)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeArchive:
    """An archive of an earlier release, whose receipts don't have the newest records."""
    monkeypatch.setattr(sealing, "_tail_of", lambda *_: None)
    return MadeArchive(tmp_path / "archive", {"t": "id-of-t"})


def compare(made: MadeArchive, cluster: FakeCluster) -> dict[TopicPartition, LogVerdict]:
    """Return the verdict on each partition that has an archived record."""
    tails = archived_tails(made.archive.snapshot(), [A, B])
    bounds = cluster.earliest(tails), cluster.latest(tails, "read_uncommitted")
    found = compare_with_logs(made.archive.snapshot(), cluster, tails, *bounds)  # type: ignore[arg-type]
    return {tp: found.verdict_of(tp) for tp in tails}


def test_compare_earlier_release(made: MadeArchive) -> None:
    """The newest record of each partition is read from its file, wherever it lies."""
    made.seal({A: dense(0, 10, FIRST_MS), B: dense(0, 5, FIRST_MS)})
    made.seal({A: dense(10, 20, FIRST_MS)})

    tails = archived_tails(made.archive.snapshot(), [A, B])

    assert {tp: tail.offset for tp, tail in tails.items()} == {A: 19}
    assert compare(made, cluster_of(as_archived())) == {A: LogVerdict.SAME}
    assert compare(made, cluster_of(as_archived(19))) == {A: LogVerdict.REWRITTEN}
    assert compare(made, cluster_of(as_archived(20))) == {A: LogVerdict.SAME}


@pytest.mark.parametrize(
    ("rewritten_from", "verdict"),
    [
        # Kafka's newest record before the archive's is the archive's.
        (None, LogVerdict.SAME),
        (13, LogVerdict.SAME),
        (12, LogVerdict.REWRITTEN),
        (0, LogVerdict.REWRITTEN),
    ],
)
@pytest.mark.parametrize("is_in_window", [False, True])
def test_compare_compacted(
    made: MadeArchive, rewritten_from: int | None, verdict: LogVerdict, *, is_in_window: bool
) -> None:
    """Where the newest record was compacted, the newest that Kafka has before it tells."""
    if is_in_window:
        made.start_at({A: 20, B: 20})
        made.seal_window("day", {A: dense(0, 20, FIRST_MS)})
    else:
        made.seal({A: dense(0, 10, FIRST_MS)})
        made.seal({A: dense(10, 20, FIRST_MS)})
    left = as_archived(rewritten_from, without=tuple(range(13, 25)))

    assert compare(made, cluster_of(left, configs=COMPACTED)) == {A: verdict}
    nothing = as_archived(rewritten_from, without=tuple(range(40)))
    assert compare(made, cluster_of(nothing, configs=COMPACTED)) == {A: LogVerdict.UNKNOWN}


@given(st.sets(st.integers(0, 99)), st.integers(0, 99), st.integers(0, 100))
def test_newest_records_in_property(there: set[int], start: int, length: int) -> None:
    """The newest record of a range is found, in few requests, and none outside of it."""
    span = OffsetRange(start, start + length)
    requests = []

    class Log:
        def single_records(
            self, asked: dict[TopicPartition, int], ends: Any
        ) -> dict[Any, SeenRecord]:
            requests.append(asked)
            assert ends == {A: span.end}
            later = [offset for offset in there if offset >= asked[A]]
            return {A: SeenRecord(min(later), frozenset(), None)} if later else {}

    found = newest_records_in(Log(), {A: span})  # type: ignore[arg-type]

    newest = max((offset for offset in there if offset in span), default=None)
    assert (found[A].offset if found else None) == newest
    assert len(requests) <= 12


def test_compare_in_earlier_generation(made: MadeArchive) -> None:
    """A generation that has sealed nothing yet goes on where the one before it ended."""
    made.seal({A: dense(0, 20, FIRST_MS)}, together=True)
    made.open_generation()

    assert compare(made, cluster_of(as_archived(13))) == {A: LogVerdict.REWRITTEN}
    made.open_generation(t="id of a topic made again")
    assert compare(made, cluster_of(as_archived(13))) == {}


def test_compare_in_windows(made: MadeArchive) -> None:
    """Before the start of the first generation, backfilled windows have the newest record."""
    made.start_at({A: 20, B: 20})
    made.seal_window("first", {A: dense(0, 10, FIRST_MS), B: dense(0, 20, FIRST_MS)})
    made.seal_window("second", {A: dense(10, 20, FIRST_MS)})

    assert compare(made, cluster_of(as_archived(13))) == {
        A: LogVerdict.REWRITTEN,
        B: LogVerdict.REWRITTEN,
    }
    assert compare(made, cluster_of(as_archived(20))) == {A: LogVerdict.SAME, B: LogVerdict.SAME}


def test_compare_in_windows_and_generations(made: MadeArchive) -> None:
    """Whatever is newer; a window that replaces files of a generation has nothing newer."""
    made.start_at({A: 5})
    made.seal({A: dense(5, 10, FIRST_MS)})
    made.open_generation()
    made.start_at({A: 20})
    made.seal_window("first", {A: dense(10, 15, FIRST_MS)})

    assert archived_tails(made.archive.snapshot(), [A])[A].offset == 14
    made.seal({A: dense(20, 30, FIRST_MS)})
    made.seal_window("second", {A: dense(15, 20, FIRST_MS)})
    assert archived_tails(made.archive.snapshot(), [A])[A].offset == 29


def test_compare_in_replaced_window(made: MadeArchive) -> None:
    """Records are read from the files that readers get, such as a compaction's."""
    made.start_at({A: 20})
    [replaced] = made.seal_window("first", {A: dense(0, 20, FIRST_MS)})
    made.seal_window("second", {A: dense(0, 20, FIRST_MS)}, replaces=[replaced.path])
    (made.root / replaced.path).unlink()

    assert compare(made, cluster_of(as_archived(13))) == {A: LogVerdict.REWRITTEN}
    assert compare(made, cluster_of(as_archived(20))) == {A: LogVerdict.SAME}


@pytest.mark.parametrize("is_lost", [False, True])
def test_compare_in_replaced_file(made: MadeArchive, is_lost: bool) -> None:
    """Where an erasure rewrote the file, and a roll went on within it, readers' file is read."""
    rows = dense(0, 20, FIRST_MS)
    [replaced] = made.seal({A: rows}, together=True)
    erased = {at: ms for at, ms in rows.items() if at != 12}
    [left] = made.seal_window("erase_0001", {A: erased}, replaces=[replaced.path])
    (made.root / replaced.path).unlink()
    made.open_generation(t="id-of-t~2")
    made.start_at({A: 13})
    if is_lost:
        (made.root / left.path).unlink()

    tail = archived_tails(made.archive.snapshot(), [A])[A]

    # Without it, at least that it can't be compared is said.
    assert (tail.offset, tail.hash is None) == ((0, True) if is_lost else (11, False))
    unread = {A: LogVerdict.UNKNOWN}
    assert compare(made, cluster_of(as_archived(5))) == (
        unread if is_lost else {A: LogVerdict.REWRITTEN}
    )
    assert compare(made, cluster_of(as_archived(12))) == (
        unread if is_lost else {A: LogVerdict.SAME}
    )


def test_archived_tails_replaced_by_several(made: MadeArchive) -> None:
    """Of the files that an erasure left, the newest record is in whichever ends last."""
    made.partition_by = ["topic", "date"]
    day, next_day = FIRST_MS, FIRST_MS + 86_400_000
    rows = {0: day, 5: next_day, 10: next_day, 18: day}
    files = made.seal({A: rows})
    left = made.seal_window("erase_0001", {A: rows}, replaces=[file.path for file in files])
    for file in files:
        (made.root / file.path).unlink()

    tail = archived_tails(made.archive.snapshot(), [A])[A]

    assert len(left) == 2
    assert tail.offset == 18
    assert tail.hash is not None


def test_archived_tails_older_window(made: MadeArchive) -> None:
    """A window with older records than a generation's doesn't take the newest one's place."""
    made.start_at({A: 20})
    made.seal({A: dense(20, 30, FIRST_MS)})
    made.open_generation()
    made.start_at({A: 30})
    made.seal_window("older", {A: dense(10, 20, FIRST_MS)})

    assert archived_tails(made.archive.snapshot(), [A])[A].offset == 29


@pytest.mark.parametrize("splits", ["generations", "receipts", "gaps"])
def test_archived_tails_left_to_windows(made: MadeArchive, splits: str) -> None:
    """What generations have left to repairs' windows counts up to the newest such offset."""
    first, second = gap(0, 5, GapReason.WINDOW), gap(6, 20, GapReason.WINDOW)
    made.seal_window("repair_1", {A: dense(0, 5, FIRST_MS)})
    made.seal_window("repair_2", {A: dense(6, 20, FIRST_MS)})
    if splits == "gaps":
        made.seal({}, gaps=[first, gap(5, 6), second])
    else:
        made.seal({}, gaps=[first, gap(5, 6)])
        if splits == "generations":
            made.open_generation()
            made.start_at({A: 6})
        made.seal({}, gaps=[second])

    tail = archived_tails(made.archive.snapshot(), [A])[A]

    assert (tail.offset, tail.hash is None) == (19, False)


@pytest.mark.parametrize(("looked_at", "is_found"), [(3, True), (2, False)])
@pytest.mark.parametrize("limit", ["GENERATIONS", "RECEIPTS"])
def test_archived_tails_bounded(
    made: MadeArchive,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    looked_at: int,
    *,
    is_found: bool,
) -> None:
    """A partition's newest record is looked for as far back as is allowed, and no further."""
    monkeypatch.setattr(log_tails, limit, looked_at)
    made.seal({A: dense(0, 10, FIRST_MS)})
    if limit == "GENERATIONS":
        made.open_generation()
        made.open_generation()
    else:
        generation = made.archive.generation(1)
        made.seal({B: dense(0, 5, FIRST_MS)})
        made.seal({A: dense(10, 12, FIRST_MS)})
        names = generation.receipt_names()
        for name in names[1:]:
            (generation.folder / "receipts" / name).write_text("{}")

    found = archived_tails(made.archive.snapshot(), [A])

    assert {tp: tail.offset for tp, tail in found.items()} == ({A: 9} if is_found else {})


def test_compare_expired_meanwhile(made: MadeArchive) -> None:
    """A record that Kafka deletes between two questions isn't missing; others are compared."""
    made.seal({A: dense(0, 20, FIRST_MS)})
    snapshot, other = made.archive.snapshot(), TopicPartition("u", 0)
    tails = {**archived_tails(snapshot, [A]), other: SealedTail.of(5, "0" * 16)}
    cluster: Any = cluster_of(as_archived(), first=25)
    cluster.logs[other] = Log(end=40)

    found = compare_with_logs(snapshot, cluster, tails, {A: 0, other: 0}, {A: 40, other: 40})

    assert found.verdict_of(A) == LogVerdict.UNKNOWN
    assert found.verdict_of(other) == LogVerdict.REWRITTEN
    # Of a partition of which Kafka says only one of its ends, nothing is.
    for first, end in ({other: 0}, {A: 40, other: 40}), ({A: 0, other: 0}, {other: 40}):
        alone = compare_with_logs(snapshot, cluster, tails, first, end)
        assert A not in {**alone.rewritten, **alone.unknown}


def sink_files(made: MadeArchive, batch: Batch) -> list[SinkFile]:
    """Write files that aren't sealed, as the manifest lists them."""
    folder = made.archive.generation(1).data_name
    return [
        SinkFile(file.path.removeprefix(f"{folder}/"), file.bytes, 1, 0, "0")
        for file in made.write(folder, batch)
    ]


def gap(start: int, end: int, reason: GapReason = GapReason.CONTROL) -> Gap:
    return Gap(A, OffsetRange(start, end), reason)


def at_gaps(made: MadeArchive, cluster: FakeCluster) -> dict[TopicPartition, int]:
    """Return where Kafka has a record now behind the newest archived one, and had none."""
    tails = archived_tails(made.archive.snapshot(), [A, B])
    bounds = cluster.earliest([A, B]), cluster.latest([A, B], "read_uncommitted")
    found = compare_sealed(made.archive.snapshot(), cluster, tails, *bounds)  # type: ignore[arg-type]
    assert found.at_gaps.keys() <= found.rewritten.keys()
    return dict(found.at_gaps)


@pytest.mark.parametrize("reason", GapReason)
@pytest.mark.parametrize("count", [0, 10])
def test_compare_sealed_reasons(made: MadeArchive, reason: GapReason, count: int) -> None:
    """Only a marker or an aborted record was certainly none before, of whatever partition."""
    made.seal({A: dense(0, count, FIRST_MS)} if count else {}, gaps=[gap(count, 20, reason)])

    is_told = reason in (GapReason.CONTROL, GapReason.ABORTED)
    assert at_gaps(made, cluster_of(as_archived())) == ({A: count} if is_told else {})
    assert at_gaps(made, cluster_of(as_archived(without=tuple(range(count, 20))))) == {}


def test_compare_sealed_passes_gaps(made: MadeArchive) -> None:
    """A record that another replica hasn't compacted yet tells nothing; one behind it does."""
    gaps = [gap(10, 14, GapReason.COMPACTED), gap(14, 15), gap(15, 17, GapReason.COMPACTED)]
    made.seal({A: dense(0, 10, FIRST_MS)}, gaps=gaps)

    assert at_gaps(made, cluster_of(as_archived(without=(10, 11, 14)))) == {}
    assert at_gaps(made, cluster_of(as_archived(without=(10, 11)))) == {A: 14}
    # What comes next was never drained.
    assert at_gaps(made, cluster_of(as_archived(without=tuple(range(10, 17))))) == {}


def test_compare_sealed_many_gaps(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many gaps are looked into as are allowed."""
    gaps = [gap(at, at + 1, GapReason.COMPACTED) for at in range(10, 14)]
    made.seal({A: dense(0, 10, FIRST_MS)}, gaps=[*gaps, gap(14, 15)])

    monkeypatch.setattr(log_tails, "GAPS", 4)
    assert at_gaps(made, cluster_of(as_archived())) == {}
    monkeypatch.setattr(log_tails, "GAPS", 5)
    assert at_gaps(made, cluster_of(as_archived())) == {A: 14}


def test_compare_sealed_damaged_batch(made: MadeArchive) -> None:
    """A batch that is damaged in Kafka's log keeps nobody from comparing other partitions."""
    made.seal({}, gaps=[gap(0, 20), Gap(B, OffsetRange(0, 20), GapReason.ABORTED)])
    cluster = cluster_of(as_archived())
    read = cluster.single_records

    def damaged(asked: Any, isolation_level: str = "", **_: Any) -> Any:
        if A in asked:
            raise SourceRecordError("a batch of t-0 is damaged")
        return read(asked, isolation_level or "read_uncommitted")

    cluster.single_records = damaged  # type: ignore[method-assign]

    tails = archived_tails(made.archive.snapshot(), [A, B])
    assert tails == {}
    assert at_gaps(made, cluster) == {B: 0}


def test_compare_sealed_replica_behind(made: MadeArchive) -> None:
    """A replica that has yet to learn of a record at a gap isn't taken for a log without one."""
    made.seal({A: dense(0, 10, FIRST_MS)}, gaps=[gap(10, 20)])
    cluster = cluster_of(as_archived())
    read = cluster.single_records

    def behind(asked: Any, isolation_level: str = "read_uncommitted", ends: Any = None) -> Any:
        return read(asked, isolation_level) if ends else {}

    cluster.single_records = behind  # type: ignore[method-assign]

    assert at_gaps(made, cluster) == {A: 10}


def test_compare_sealed_open_transaction(made: MadeArchive) -> None:
    """Behind the last stable offset, a consumer would wait."""
    made.seal({A: dense(0, 10, FIRST_MS)}, gaps=[gap(10, 20)])
    logs = {A: Log(end=40, stable=10), B: Log(end=40)}

    cluster = FakeCluster(logs, topic_ids={"t": "id-of-t"}, contents=as_archived())
    assert at_gaps(made, cluster) == {}
    logs[A] = Log(end=40, stable=11)
    cluster = FakeCluster(logs, topic_ids={"t": "id-of-t"}, contents=as_archived())
    assert at_gaps(made, cluster) == {A: 10}


def test_compare_sealed_expired(made: MadeArchive) -> None:
    """What Kafka no longer has isn't asked for."""
    made.seal({A: dense(0, 10, FIRST_MS)}, gaps=[gap(10, 20)])

    assert at_gaps(made, cluster_of(as_archived(), first=15)) == {A: 15}
    assert at_gaps(made, cluster_of(as_archived(), first=20)) == {}


@pytest.mark.parametrize("start", [12, 15])
def test_compare_sealed_earlier_generation(made: MadeArchive, start: int) -> None:
    """The end of an earlier generation counts, and what lies between the two doesn't."""
    made.seal({A: dense(0, 10, FIRST_MS)}, gaps=[gap(10, 12)])
    made.open_generation()
    made.start_at({A: start})

    assert at_gaps(made, cluster_of(as_archived())) == {A: 10}
    made.seal({}, gaps=[gap(start, 20)])
    assert at_gaps(made, cluster_of(as_archived())) == {A: 10}
    elsewhere = as_archived(without=(10, 11))
    assert at_gaps(made, cluster_of(elsewhere)) == {A: start}
    # The topic made again has another log.
    made.open_generation(t="another")
    assert at_gaps(made, cluster_of(as_archived())) == {}


def test_compare_sealed_rewritten(made: MadeArchive) -> None:
    """What an earlier incarnation has from the rewritten offset on isn't the log's."""
    made.seal({A: dense(0, 10, FIRST_MS)}, gaps=[gap(10, 20)])
    made.open_generation(t="id-of-t~2")
    made.start_at({A: 10})

    assert at_gaps(made, cluster_of(as_archived())) == {}


def test_compare_sealed_window(made: MadeArchive) -> None:
    """What a generation leaves to a repair's window, that one says."""
    made.seal({}, gaps=[gap(0, 20, GapReason.WINDOW)])
    made.seal_window("repair_1", {A: dense(0, 10, FIRST_MS)}, gaps=[gap(10, 20)])

    assert at_gaps(made, cluster_of(as_archived())) == {A: 10}
    assert at_gaps(made, cluster_of(as_archived(without=tuple(range(10, 20))))) == {}


def test_compare_sealed_damaged_receipt(made: MadeArchive) -> None:
    """Without a receipt, less is compared; the validation reports it."""
    made.seal({A: dense(0, 10, FIRST_MS)}, gaps=[gap(10, 20)])
    generation = made.archive.generation(1)
    [name] = generation.receipt_names()
    (generation.folder / "receipts" / name).write_text("{}")

    assert at_gaps(made, cluster_of(as_archived())) == {}


@pytest.mark.parametrize("is_listed", [False, True])
def test_compare_compacted_unsealed(made: MadeArchive, is_listed: bool) -> None:
    """In place of a compacted record that isn't sealed yet, the one before it is compared."""
    files = sink_files(made, {A: dense(0, 20, FIRST_MS)})
    snapshot, tails = made.archive.snapshot(), {A: SealedTail.of(19, "0" * 16)}

    def verdict(rewritten: int) -> LogVerdict:
        contents = as_archived(rewritten, without=tuple(range(17, 20)))
        cluster: Any = cluster_of(contents, configs=COMPACTED)
        listed = files if is_listed else []
        return compare_with_logs(snapshot, cluster, tails, {A: 0}, {A: 40}, listed).verdict_of(A)

    others = (LogVerdict.SAME, LogVerdict.REWRITTEN) if is_listed else (LogVerdict.UNKNOWN,) * 2
    assert (verdict(17), verdict(16)) == others


@pytest.mark.parametrize(("count", "first"), [(10, 10), (0, 0)])
def test_rewritten_logs_behind_newest(made: MadeArchive, count: int, first: int) -> None:
    """The log is taken up behind the newest archived record, which it still has."""
    made.seal({A: dense(0, count, FIRST_MS)} if count else {}, gaps=[gap(count, 20)])
    cluster: Any = cluster_of(as_archived(without=(count,)))

    assert rewritten_logs(made.archive.snapshot(), cluster, {A: 20}) == {A: first}


@pytest.mark.parametrize("without", [(), (12,), (10, 11, 12), (0, 9, 12)])
def test_compare_rewritten_twice(made: MadeArchive, without: tuple[int, ...]) -> None:
    """What an earlier incarnation has before the rewritten offset is compared, until the next seal.

    There may be no record right before it: a marker isn't one.
    """
    made.seal({A: dense(0, 10, FIRST_MS), B: dense(0, 10, FIRST_MS)})
    rows = {at: ms for at, ms in dense(10, 20, FIRST_MS).items() if at not in without}
    made.seal({A: rows, B: dense(10, 20, FIRST_MS)}, together=True)
    made.open_generation(t="id-of-t~2")
    made.start_at({A: 13, B: 20})

    newest = max(at for at in range(13) if at not in without)
    assert archived_tails(made.archive.snapshot(), [A, B])[A].offset == newest
    cluster = cluster_of(as_archived(13, without=without))
    assert compare(made, cluster) == {A: LogVerdict.SAME, B: LogVerdict.REWRITTEN}
    assert compare(made, cluster_of(as_archived(6)))[A] == LogVerdict.REWRITTEN
    made.seal({A: dense(13, 15, FIRST_MS)})
    assert archived_tails(made.archive.snapshot(), [A, B])[A].offset == 14


@pytest.mark.parametrize("rewritten", [0, 4, 5, 12, 13, 16])
def test_first_rewritten_in_windows(made: MadeArchive, rewritten: int) -> None:
    """The first rewritten offset is found in windows and in earlier incarnations, too."""
    made.start_at({A: 5})
    made.seal({A: dense(5, 20, FIRST_MS)})
    made.seal_window("first", {A: dense(0, 5, FIRST_MS)})
    made.open_generation(t="id-of-t~2")
    made.start_at({A: 13})
    made.seal({A: dense(13, 17, FIRST_MS)})
    snapshot, cluster = made.archive.snapshot(), cluster_of(as_archived(rewritten))

    found = first_rewritten(snapshot, cluster, A, archived_tails(snapshot, [A])[A])  # type: ignore[arg-type]

    assert found == FirstRewritten(rewritten, True, rewritten)


def test_compare_with_file_missing(made: MadeArchive) -> None:
    """A record that can't be read isn't taken for the same."""
    [file] = made.seal({A: dense(0, 20, FIRST_MS)})
    (made.root / file.path).unlink()

    assert compare(made, cluster_of(as_archived())) == {A: LogVerdict.UNKNOWN}


def test_compare_files_bounded(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more files are read than `FILES`; the other partitions count as not compared."""
    monkeypatch.setattr(log_tails, "FILES", 1)
    made.seal({A: dense(0, 20, FIRST_MS), B: dense(0, 20, FIRST_MS)})

    found = compare(made, cluster_of(as_archived()))

    assert found == {A: LogVerdict.SAME, B: LogVerdict.UNKNOWN}


@pytest.mark.parametrize(
    ("config", "verdict"),
    [({}, LogVerdict.MISSING), ({"cleanup.policy": "compact,delete"}, LogVerdict.SAME)],
)
def test_compare_no_record(made: MadeArchive, config: dict[str, str], verdict: LogVerdict) -> None:
    """Only in a compacted topic may a single record be gone."""
    made.seal({A: dense(0, 20, FIRST_MS)})

    cluster = cluster_of(as_archived(without=(19,)), configs={"t": config})

    assert compare(made, cluster) == {A: verdict}


def test_compare_internal_topic(tmp_path: Path) -> None:
    """Kafka compacts its own topics, whatever their settings say."""
    tp = TopicPartition("__consumer_offsets", 0)
    made = MadeArchive(tmp_path / "internal", {tp.topic: "id"})
    made.seal({tp: dense(0, 20, FIRST_MS)})
    snapshot, logs = made.archive.snapshot(), {tp: Log(end=40)}
    cluster: Any = FakeCluster(logs, topic_ids={tp.topic: "id"}, contents=as_archived(None, (19,)))

    found = compare_with_logs(snapshot, cluster, archived_tails(snapshot, [tp]), {tp: 0}, {tp: 40})

    assert found.verdict_of(tp) == LogVerdict.SAME


@pytest.mark.parametrize(
    ("topic_id", "end", "rewritten_from", "verdict"),
    [
        ("id-of-t", 20, None, LogVerdict.SAME),
        ("id-of-t", 20, 12, LogVerdict.REWRITTEN),
        # Written after compaction was off.
        ("id-of-t", 19, None, LogVerdict.MISSING),
        # What was noted of another topic of that name says nothing.
        ("another", 20, None, LogVerdict.MISSING),
    ],
)
def test_compare_no_longer_compacted(
    made: MadeArchive, topic_id: str, end: int, rewritten_from: int | None, verdict: LogVerdict
) -> None:
    """What compaction has removed stays away when it is switched off: no log was rewritten."""
    made.seal({A: dense(0, 20, FIRST_MS)})
    for compacted in (True, False):
        settings = {"t": TopicSettings(2, 1, compacted=compacted)}
        write_topic_settings(made.root, settings, {"t": topic_id}, {A: 20}, {A: end})

    left = as_archived(rewritten_from, without=tuple(range(13, 25)))
    cluster = cluster_of(left, configs={"t": {"cleanup.policy": "delete"}})

    assert compare(made, cluster) == {A: verdict}
    if verdict == LogVerdict.SAME:
        assert rewritten_logs(made.archive.snapshot(), cluster, {A: 20}) == {}  # type: ignore[arg-type]


def test_compare_expired(made: MadeArchive) -> None:
    """A record that Kafka has deleted is no sign of another log."""
    made.seal({A: dense(0, 20, FIRST_MS)})

    assert compare(made, cluster_of(as_archived(), first=20)) == {A: LogVerdict.UNKNOWN}


@pytest.mark.parametrize("rewritten", [0, 1, 9, 10, 13, 19])
def test_first_rewritten(made: MadeArchive, rewritten: int) -> None:
    """The first rewritten offset is found, in whichever file it is."""
    made.seal({A: dense(0, 10, FIRST_MS)})
    made.seal({A: dense(10, 20, FIRST_MS)})
    snapshot, cluster = made.archive.snapshot(), cluster_of(as_archived(rewritten))
    tail = archived_tails(snapshot, [A])[A]

    found = first_rewritten(snapshot, cluster, A, tail)  # type: ignore[arg-type]

    assert found == FirstRewritten(rewritten, True, rewritten)


def test_first_rewritten_in_gap(made: MadeArchive) -> None:
    """Where the archive has a gap before other records, what Kafka has there now is other as well.

    A marker or a compacted record was there: the log was cut before it, and has records there now.
    """
    rows = dense(0, 20, FIRST_MS)
    made.seal({A: {at: ms for at, ms in rows.items() if at not in (9, 14, 15)}})
    snapshot, tail = made.archive.snapshot(), archived_tails(made.archive.snapshot(), [A])[A]

    def first(rewritten: int) -> FirstRewritten:
        return first_rewritten(snapshot, cluster_of(as_archived(rewritten)), A, tail)  # type: ignore[arg-type]

    assert [first(at) for at in (13, 14, 16, 17)] == [
        FirstRewritten(at, True, at) for at in (13, 14, 14, 17)
    ]


def test_first_rewritten_after_erased(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind an erased record, it isn't known where the log was rewritten: Kafka may have it."""
    made.seal({A: {at: ms for at, ms in dense(0, 20, FIRST_MS).items() if at != 14}})
    snapshot, tail = made.archive.snapshot(), archived_tails(made.archive.snapshot(), [A])[A]
    monkeypatch.setattr(Fold, "erased", {(A, "id-of-t"): [OffsetRange(14, 15)]})

    found = [
        first_rewritten(snapshot, cluster_of(as_archived(at)), A, tail)  # type: ignore[arg-type]
        for at in (13, 15)
    ]

    assert found == [FirstRewritten(13, True, 13), FirstRewritten(15, False)]


@pytest.mark.parametrize("is_erased", [False, True])
def test_first_rewritten_after_lost(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch, is_erased: bool
) -> None:
    """Behind a record that Kafka has lost, it may still have one that was erased."""
    made.seal({A: {at: ms for at, ms in dense(0, 20, FIRST_MS).items() if at != 15}})
    snapshot, tail = made.archive.snapshot(), archived_tails(made.archive.snapshot(), [A])[A]
    erased = [OffsetRange(15, 16)] if is_erased else []
    monkeypatch.setattr(Fold, "erased", {(A, "id-of-t"): erased})

    found = [
        first_rewritten(snapshot, cluster_of(as_archived(at, without=(13,))), A, tail)  # type: ignore[arg-type]
        for at in (14, 17)
    ]

    lost = FirstRewritten(19, False) if is_erased else FirstRewritten(13, True, 13)
    assert found == [lost, FirstRewritten(17, True, 17)]


@pytest.mark.parametrize(
    ("rewritten", "epoch", "first"),
    [
        (None, 4, 13),
        # Those with the newest one's epoch weren't sent again.
        (19, 3, 19),
    ],
)
def test_first_rewritten_same_content(
    made: MadeArchive, rewritten: int | None, epoch: int, first: int
) -> None:
    """Records that were sent again are told by their leader epochs."""
    made.seal({A: dense(0, 20, FIRST_MS)})
    snapshot, cluster = made.archive.snapshot(), cluster_of(as_archived(rewritten))
    cluster.epoch_from = {A: (13, epoch)}
    tail = SealedTail.of(19, archived_tails(snapshot, [A])[A].hash, 3)

    found = first_rewritten(snapshot, cluster, A, tail)  # type: ignore[arg-type]

    assert found == FirstRewritten(first, True, first)


def test_rewritten_logs_open_transaction(made: MadeArchive) -> None:
    """What an open transaction hides is there: such a log isn't shorter than what was drained."""
    made.seal({A: dense(0, 20, FIRST_MS)})
    logs = {A: Log(end=20, stable=5), B: Log(end=20)}
    snapshot, ids = made.archive.snapshot(), {"t": "id-of-t"}

    def found(rewritten: int | None) -> dict[TopicPartition, int]:
        cluster: Any = FakeCluster(logs, topic_ids=ids, contents=as_archived(rewritten))
        return rewritten_logs(snapshot, cluster, {A: 20})

    assert found(None) == {}
    assert found(13) == {A: 13}


@pytest.mark.parametrize(
    "error",
    [
        ArchiveError("x"),
        DataFileError("x"),
        KeyUnavailableError("x"),
        KmsUnavailableError("x"),
        PermissionError("x"),
    ],
)
def test_compare_file_unreadable(
    error: Exception, made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that can't be read now, for whatever reason, isn't compared, and stops nobody."""
    made.seal({A: dense(0, 20, FIRST_MS)})

    def read(*_: object) -> None:
        raise error

    monkeypatch.setattr("kafka_drain.data_files.reader.read_records", read)

    assert compare(made, cluster_of(as_archived())) == {A: LogVerdict.UNKNOWN}


@pytest.mark.parametrize("damaged", ["receipt", "generation", "plan"])
def test_first_rewritten_damaged(damaged: str, made: MadeArchive) -> None:
    """Of what a damaged document would have named, nothing is compared; the rest is."""
    made.start_at({A: 5})
    made.seal({A: dense(5, 8, FIRST_MS)})
    made.seal({A: dense(8, 10, FIRST_MS)})
    made.seal_window("first", {A: dense(0, 5, FIRST_MS)})
    made.open_generation()
    made.start_at({A: 10})
    made.seal({A: dense(10, 20, FIRST_MS)})
    tail = archived_tails(made.archive.snapshot(), [A])[A]
    place, after = {
        "receipt": ("generations/0001/receipts/000000000000.json", 8),
        "generation": ("generations/0001/generation.json", 10),
        "plan": ("windows/first/plan.json", 5),
    }[damaged]
    (made.root / place).write_text("{")
    snapshot = made.archive.snapshot()

    for rewritten in (after + 1, 13):
        cluster: Any = cluster_of(as_archived(rewritten))
        assert first_rewritten(snapshot, cluster, A, tail).start == rewritten


def test_first_rewritten_before_what_kafka_has(made: MadeArchive) -> None:
    """If Kafka has deleted what came before, an earlier record may have been rewritten too."""
    made.seal({A: dense(0, 20, FIRST_MS)})
    snapshot, cluster = made.archive.snapshot(), cluster_of(as_archived(13), first=15)
    tail = archived_tails(snapshot, [A])[A]

    found = first_rewritten(snapshot, cluster, A, tail)  # type: ignore[arg-type]

    assert found == FirstRewritten(15, False)


def test_rewritten_logs_short(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that ends before the cursor was rewritten, also where no archived record says so."""
    made.seal({A: dense(0, 20, FIRST_MS)})
    snapshot, cluster = made.archive.snapshot(), cluster_of(as_archived(), end=22)

    def found(**cursors: int) -> dict[TopicPartition, int]:
        return rewritten_logs(snapshot, cluster, {A: cursors["a"], B: cursors["b"]})  # type: ignore[arg-type]

    assert found(a=22, b=22) == {}
    # Behind the last record was a marker; of the other one, nothing was archived.
    assert found(a=23, b=30) == {A: 20, B: 0}
    monkeypatch.setattr(log_tails, "read_erasures", lambda _: ["one"])
    assert found(a=23, b=22) == {A: 20}
    with pytest.raises(DataLossError, match="t-1 was rewritten at or before 22"):
        found(a=22, b=30)


def test_rewritten_logs_file_missing(made: MadeArchive) -> None:
    """Where a file is missing, a log is taken up behind what Kafka is known to have."""
    made.seal({A: dense(0, 10, FIRST_MS)})
    [missing] = made.seal({A: dense(10, 20, FIRST_MS)})
    (made.root / missing.path).unlink()
    snapshot = made.archive.snapshot()
    tail = SealedTail.of(19, "0" * 16)

    for rewritten, start in ((13, 10), (10, 10), (7, 7)):
        cluster: Any = cluster_of(as_archived(rewritten))
        assert first_rewritten(snapshot, cluster, A, tail).start == start
    shorter: Any = cluster_of(as_archived(), end=13)
    assert rewritten_logs(snapshot, shorter, {A: 20}) == {A: 10}


@pytest.mark.parametrize("is_sealed", [False, True])
def test_rewritten_logs_short_in_window(made: MadeArchive, is_sealed: bool) -> None:
    """Where a repair's window alone has a batch's records, a shorter log goes on behind them."""
    if is_sealed:
        made.seal({A: dense(0, 12, FIRST_MS)})
    first = 12 if is_sealed else 0
    made.seal_window("repair_1", {A: dense(first, 16, FIRST_MS)})
    shorter: Any = cluster_of(as_archived(), end=16)

    assert rewritten_logs(made.archive.snapshot(), shorter, {A: 17}) == {A: 16}


def test_rewritten_logs(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is taken up where it differs, or at its beginning if that isn't known."""
    made.seal({A: dense(0, 20, FIRST_MS), B: dense(0, 10, FIRST_MS)})
    snapshot = made.archive.snapshot()

    def found(cluster: FakeCluster) -> dict[TopicPartition, int]:
        return rewritten_logs(snapshot, cluster, {A: 20, B: 10})  # type: ignore[arg-type]

    assert found(cluster_of(as_archived())) == {}
    assert found(cluster_of(as_archived(13))) == {A: 13}
    # Shorter than what was drained: what comes next is new.
    assert found(cluster_of(as_archived(), end=13)) == {A: 13}
    unsure = cluster_of(as_archived(13), first=15)
    assert found(unsure) == {A: 15}
    # Records that were erased must not come back.
    monkeypatch.setattr(log_tails, "read_erasures", lambda root: ["erasure"])
    assert found(cluster_of(as_archived(13))) == {A: 13}
    with pytest.raises(DataLossError, match="bring back records that were erased"):
        found(unsure)


def test_unsealed_tails(made: MadeArchive) -> None:
    """The newest record of files that aren't sealed yet is read from them."""
    listed = sink_files(made, {A: dense(0, 20, FIRST_MS), B: dense(3, 4, FIRST_MS)})

    tails, unreadable = unsealed_tails(made.archive.generation(1), "parquet", listed)

    assert {tp: tail.offset for tp, tail in tails.items()} == {A: 19, B: 3}
    assert all(tail.hash for tail in tails.values())
    assert unreadable == []


def test_unsealed_tails_newest_files(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many files, the newest are read; of a partition's files, the one that ends last."""
    data = Path(str(made.root), made.archive.generation(1).data_name)

    def listed(modified: int, start: int, end: int) -> SinkFile:
        [file] = sink_files(made, {A: dense(start, end, FIRST_MS)})
        path = file.path.replace("part-", f"part-{modified}-")
        (data / file.path).rename(data / path)
        return replace(file, path=path, modified=modified)

    files = [listed(4, 10, 20), listed(1, 30, 40), listed(3, 20, 30)]
    monkeypatch.setattr(log_tails, "FILES", 2)

    tails, _ = unsealed_tails(made.archive.generation(1), "parquet", files)

    assert {tp: tail.offset for tp, tail in tails.items()} == {A: 29}


@pytest.mark.parametrize("is_lost", [False, True])
def test_unsealed_tails_unreadable(is_lost: bool, made: MadeArchive) -> None:
    """A file that can't be read is named: what it holds isn't compared."""
    generation = made.archive.generation(1)
    listed = sink_files(made, {A: dense(0, 20, FIRST_MS), B: dense(3, 4, FIRST_MS)})
    names = [f"{generation.data_name}/{file.path}" for file in listed]
    [damaged] = [name for name in names if "partition=1" in name or name == names[-1]][-1:]
    path = Path(str(made.root), damaged)
    path.unlink() if is_lost else path.write_bytes(b"PAR1")

    tails, unreadable = unsealed_tails(generation, "parquet", listed)

    assert unreadable == [damaged]
    assert len(tails) == 1


def test_receipt_keeps_tail(tmp_path: Path) -> None:
    """A receipt has the newest record of each partition, from an earlier one if it has none."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-of-t"})
    made.seal({A: dense(0, 10, FIRST_MS), B: dense(0, 5, FIRST_MS)})
    made.seal({A: dense(10, 20, FIRST_MS)})

    assert archived_tails(made.archive.snapshot(), [A, B]) == {A: SealedTail.of(19)}

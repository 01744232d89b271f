"""Whether a log is still the one that was archived: each combination of what may be seen."""

from __future__ import annotations

import pytest

from kafka_drain.archive.receipts import SealedTail
from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.kafka.identity import SeenRecord
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.rewritten_log import (
    NAMED,
    Comparison,
    FirstRewritten,
    LogNow,
    LogVerdict,
    compare_tail,
    compare_tails,
    count_before_cut,
    find_first,
    is_of_another_log,
    logs_cut_short,
    newest_records,
    rewritten_text,
)
from tests.tables import each_of

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SAME, REWRITTEN, UNKNOWN = LogVerdict.SAME, LogVerdict.REWRITTEN, LogVerdict.UNKNOWN
MISSING = LogVerdict.MISSING


def seen(offset: int = 19, value: str = "aa", epoch: int | None = None) -> SeenRecord:
    return SeenRecord(offset, frozenset([value, "without-headers"]), epoch)


def now(record: SeenRecord | None, *, is_compacted: bool = False) -> LogNow:
    return LogNow(0, 30, record, is_compacted)


def compacted(before: SeenRecord, archived: str | None) -> LogNow:
    return LogNow(0, 30, seen(25), True, before, archived)


@each_of(
    "archived, there, verdict, why",
    [
        (SealedTail.of(19, "aa"), now(seen()), SAME, ""),
        (SealedTail.of(19, "without-headers"), now(seen()), SAME, ""),
        (SealedTail.of(19, "bb"), now(seen()), REWRITTEN, "another record"),
        # Leader epochs: the same content, sent again.
        (SealedTail.of(19, "aa", 3), now(seen(epoch=3)), SAME, ""),
        (SealedTail.of(19, "aa", 3), now(seen(epoch=4)), REWRITTEN, "has leader epoch 4, it was 3"),
        (SealedTail.of(19, "aa", 3), now(seen(epoch=2)), REWRITTEN, "before epoch 3"),
        (SealedTail.of(19, "aa", 3), now(seen()), SAME, ""),
        (SealedTail.of(19, "aa"), now(seen(epoch=4)), SAME, ""),
        # An epoch may be reused, too.
        (SealedTail.of(19, "bb", 3), now(seen(epoch=3)), REWRITTEN, "another record"),
        # What can't be read can't be compared, but for its epoch.
        (SealedTail.of(19), now(seen()), UNKNOWN, "can't be read"),
        (SealedTail.of(19, None, 3), now(seen(epoch=3)), UNKNOWN, "can't be read"),
        (SealedTail.of(19, None, 3), now(seen(epoch=4)), REWRITTEN, "leader epoch"),
        # Expired, or shorter.
        (SealedTail.of(19, "aa"), LogNow(20, 30), UNKNOWN, "no longer has offset 19"),
        (SealedTail.of(19, "aa"), LogNow(20, 20), UNKNOWN, "no longer has offset 19"),
        (SealedTail.of(19, "aa"), LogNow(0, 19), REWRITTEN, "ends at 19, before offset 19"),
        # Nothing there: only compaction takes single records.
        (SealedTail.of(19, "aa"), now(None), MISSING, "no record at archived offset 19"),
        (SealedTail.of(19, "aa"), now(seen(20)), MISSING, "no record at archived offset 19"),
        (SealedTail.of(19, "aa"), now(None, is_compacted=True), UNKNOWN, "compacted"),
        (SealedTail.of(19, "aa"), now(seen(20), is_compacted=True), UNKNOWN, "compacted"),
        (
            SealedTail.of(19, "aa", 3),
            now(seen(20, epoch=3), is_compacted=True),
            UNKNOWN,
            "compacted",
        ),
        (
            SealedTail.of(19, "aa", 3),
            now(seen(20, epoch=2), is_compacted=True),
            REWRITTEN,
            "offset 20 has leader epoch 2, before epoch 3",
        ),
        # The newest record before one that was compacted.
        (SealedTail.of(19, "aa"), compacted(seen(9), "aa"), SAME, ""),
        (SealedTail.of(19, "aa"), compacted(seen(9), "without-headers"), SAME, ""),
        (SealedTail.of(19, "aa"), compacted(seen(9), "bb"), REWRITTEN, "offset 9 has another"),
        (SealedTail.of(19, "aa"), compacted(seen(9), None), UNKNOWN, "may have been compacted"),
        (SealedTail.of(19, "aa", 3), compacted(seen(9, epoch=3), None), UNKNOWN, "compacted"),
        # Whatever the archive has there, such as an erased record.
        (
            SealedTail.of(19, "aa", 3),
            compacted(seen(9, epoch=4), None),
            REWRITTEN,
            "offset 9 has leader epoch 4",
        ),
        (SealedTail.of(19, "aa", 3), compacted(seen(9, epoch=3), "aa"), SAME, ""),
        (SealedTail.of(19, "aa", 3), compacted(seen(9, epoch=2), "aa"), SAME, ""),
        (
            SealedTail.of(19, "aa", 3),
            compacted(seen(9, epoch=4), "aa"),
            REWRITTEN,
            "offset 9 has leader epoch 4, after epoch 3 of archived offset 19",
        ),
    ],
)
def test_compare_tail(archived: SealedTail, there: LogNow, verdict: LogVerdict, why: str) -> None:
    """Content or epoch show another log; what can't be told is neither another nor the same."""
    found = compare_tail(archived, there)

    assert found.verdict == verdict
    assert why in found.why
    assert bool(found.why) == (verdict != SAME)


def test_compare_tails() -> None:
    """Each partition has its verdict, and one that Kafka no longer has has none."""
    gone = TopicPartition("gone", 0)
    tails = {A: SealedTail.of(19, "aa"), B: SealedTail.of(19, "bb"), gone: SealedTail.of(3, "aa")}

    found = compare_tails(tails, {A: now(seen(epoch=5)), B: now(seen())})

    assert found.epochs == {(A, 19): 5}
    compared = compare_tails({A: SealedTail.of(19, "aa")}, {A: compacted(seen(9, epoch=1), "aa")})
    # Of the archived record itself, nothing is known.
    assert (compared.verdict_of(A), compared.epochs) == (SAME, {})
    assert list(found.rewritten) == [B]
    assert found.unknown == {}
    assert [found.verdict_of(tp) for tp in (A, B)] == [SAME, REWRITTEN]
    assert found.not_compared() == []


@pytest.mark.parametrize(
    ("verdicts", "first"),
    [
        ([SAME, SAME, SAME, REWRITTEN], FirstRewritten(3, True, 3)),
        ([SAME, REWRITTEN, REWRITTEN, REWRITTEN], FirstRewritten(1, True, 1)),
        ([SAME, SAME, REWRITTEN, REWRITTEN, REWRITTEN], FirstRewritten(2, True, 2)),
        # From the log's very beginning: nothing can be before it.
        ([REWRITTEN, REWRITTEN, REWRITTEN], FirstRewritten(0, True)),
        ([UNKNOWN, UNKNOWN, REWRITTEN, REWRITTEN], FirstRewritten(2, False)),
        ([SAME, UNKNOWN, REWRITTEN], FirstRewritten(2, False, 1)),
        ([REWRITTEN, UNKNOWN, REWRITTEN], FirstRewritten(0, True)),
        ([SAME, REWRITTEN, UNKNOWN, REWRITTEN], FirstRewritten(1, True, 1)),
        ([SAME, SAME, REWRITTEN, UNKNOWN, UNKNOWN, REWRITTEN], FirstRewritten(2, True, 2)),
        ([SAME, UNKNOWN, UNKNOWN, REWRITTEN, REWRITTEN], FirstRewritten(3, False, 1)),
        ([SAME, SAME, SAME, UNKNOWN, UNKNOWN, UNKNOWN, REWRITTEN], FirstRewritten(6, False, 3)),
        # By ever longer steps.
        ([SAME, SAME, *[UNKNOWN] * 3, REWRITTEN], FirstRewritten(5, False, 2)),
        ([SAME, *[UNKNOWN] * 6, REWRITTEN], FirstRewritten(7, False, 1)),
        ([SAME, SAME, SAME, *[UNKNOWN] * 6, REWRITTEN], FirstRewritten(9, False, 2)),
        ([REWRITTEN], FirstRewritten(0, True)),
    ],
)
def test_find_first(verdicts: list[LogVerdict], first: FirstRewritten) -> None:
    """The first rewritten record is exact if the one before it is known to be the same."""
    tails = [SealedTail.of(at) for at in range(len(verdicts))]

    assert find_first(tails, lambda tail: verdicts[tail.offset]) == first


def test_find_first_one() -> None:
    """Where only the newest record can be looked at, an earlier one may be rewritten too."""
    assert str(find_first([SealedTail.of(7)], lambda _: REWRITTEN)) == "at or before 7"


def test_newest_records() -> None:
    """The record with the highest offset of all files counts."""

    def held(tp: TopicPartition, last: int, value: str) -> FileOffsets:
        return FileOffsets(tp, (OffsetRange(last, last + 1),), 1, last_hash=value)

    files = [
        CommittedFile("a", 1, "", (held(A, 5, "x"), held(B, 1, "y"))),
        CommittedFile("b", 1, "", (held(A, 3, "z"),)),
    ]

    assert newest_records(files) == {A: SealedTail.of(5, "x"), B: SealedTail.of(1, "y")}


@pytest.mark.parametrize(("count", "more"), [(1, ""), (NAMED, ""), (NAMED + 2, "; and 2 more")])
def test_not_compared(count: int, more: str) -> None:
    """Some partitions are named, each with why; the others are counted."""
    unknown = {TopicPartition("t", number): "gone" for number in range(count)}
    named = "; ".join(f"t-{number}: gone" for number in range(min(count, NAMED)))

    assert Comparison({}, unknown).not_compared() == [
        f"the newest archived record of {count} partitions can't be compared with Kafka's: "
        f"{named}{more}"
    ]
    assert Comparison().not_compared() == []


def test_rewritten_text() -> None:
    """Each named partition has its first offset and what shows it; the others are counted."""
    first = {B: FirstRewritten(3, True), A: FirstRewritten(13, False)}
    why = {A: "another", B: "no record"}
    text = f"{A} at or before 13 (another); {B} from offset 3 on (no record)"

    assert rewritten_text(first, why) == text
    assert (
        rewritten_text(first, why | {TopicPartition("t", 9): "x"})
        == f"{text}; and 1 more partitions"
    )


WHY = {A: "another record"}


@pytest.mark.parametrize(
    ("sealed", "unsealed", "partitions", "has_gaps", "expected"),
    [
        (Comparison(), Comparison(), [A], True, False),
        (Comparison(), Comparison(unknown=WHY), [A], True, False),
        # Read after the log was rewritten, or perhaps.
        (Comparison(WHY), Comparison(), [A, B], False, True),
        (Comparison(WHY), Comparison(unknown=WHY), [A], False, True),
        # Read before: it goes with what is sealed, unless Kafka's log of now explains something.
        (Comparison(WHY), Comparison(WHY), [A, B], False, False),
        (Comparison(WHY), Comparison(WHY), [A], True, True),
        (Comparison(), Comparison(WHY), [A], False, False),
        (Comparison(), Comparison(WHY), [A], True, True),
        # Nothing of the rewritten partition isn't sealed.
        (Comparison(WHY), Comparison(), [B], False, False),
        (Comparison(WHY), Comparison(), [], False, False),
        (Comparison(WHY), Comparison(), [B], True, True),
    ],
)
def test_is_of_another_log(
    sealed: Comparison,
    unsealed: Comparison,
    partitions: list[TopicPartition],
    has_gaps: bool,
    expected: bool,
) -> None:
    """What was read before a log was rewritten may be sealed; what may be of the new one isn't."""
    assert is_of_another_log(sealed, unsealed, partitions, has_gaps=has_gaps) is expected


@pytest.mark.parametrize(("end", "is_short"), [(9, True), (10, False), (11, False)])
def test_logs_cut_short(end: int, is_short: bool) -> None:
    """A log that ends before what was read of it; one that Kafka no longer has says nothing."""
    found = logs_cut_short({A: 10, B: 10}, {A: end})

    assert found == ({A: "Kafka's log ends at 9, and was read up to 10"} if is_short else {})


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([], 0),
        ([{A: False}, {A: False}], 2),
        ([{A: True}], 1),
        ([{A: True}, {A: True}], 2),
        ([{A: False}, {A: True}, {A: False}, {A: False}], 2),
        # It was cut again.
        ([{A: True}, {A: False}, {A: True}], 1),
        # The batch between has none of that partition.
        ([{A: True}, {B: False}, {A: False}], 2),
        ([{A: True, B: False}, {B: True}, {B: False}, {A: False}], 2),
    ],
)
def test_count_before_cut(batches: list[dict[TopicPartition, bool]], expected: int) -> None:
    """What is there behind what is gone was read after the log was cut."""
    assert count_before_cut(batches) == expected

"""Whether a log is still the one that was archived: each combination of what may be seen."""

from __future__ import annotations

import pytest

from kafka_drain.archive.receipts import SealedTail
from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.kafka.identity import SeenRecord
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.rewritten_log import (
    FirstRewritten,
    LogNow,
    Verdict,
    compare_tail,
    compare_tails,
    find_first,
    newest_records,
    rewritten_text,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SAME, REWRITTEN, UNKNOWN = Verdict.SAME, Verdict.REWRITTEN, Verdict.UNKNOWN


def seen(offset: int = 19, value: str = "aa", epoch: int | None = None) -> SeenRecord:
    return SeenRecord(offset, frozenset([value, "without-headers"]), epoch)


def now(record: SeenRecord | None, *, is_compacted: bool = False) -> LogNow:
    return LogNow(0, 30, record, is_compacted)


@pytest.mark.parametrize(
    ("archived", "there", "verdict", "why"),
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
        (SealedTail.of(19, "aa"), now(None), REWRITTEN, "no record at archived offset 19"),
        (SealedTail.of(19, "aa"), now(seen(20)), REWRITTEN, "no record at archived offset 19"),
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
    ],
)
def test_compare_tail(archived: SealedTail, there: LogNow, verdict: Verdict, why: str) -> None:
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
    assert list(found.rewritten) == [B]
    assert found.unknown == {}
    assert [found.verdict_of(tp) for tp in (A, B)] == [SAME, REWRITTEN]
    assert found.not_compared() == []


def test_not_compared_many() -> None:
    """A line names a few of the partitions that couldn't be compared, and how many there are."""
    tails = {TopicPartition("t", n): SealedTail.of(1) for n in range(7)}

    [line] = compare_tails(tails, {tp: LogNow(5, 9) for tp in tails}).not_compared()

    assert line.startswith("the newest archived record of 7 partitions can't be compared")
    assert "t-0: Kafka no longer has offset 1; t-1" in line
    assert line.endswith("; and 2 more")


@pytest.mark.parametrize(
    ("verdicts", "first"),
    [
        ([SAME, SAME, SAME, REWRITTEN], FirstRewritten(3, True)),
        ([SAME, REWRITTEN, REWRITTEN, REWRITTEN], FirstRewritten(1, True)),
        ([SAME, SAME, REWRITTEN, REWRITTEN, REWRITTEN], FirstRewritten(2, True)),
        # From the log's very beginning: nothing can be before it.
        ([REWRITTEN, REWRITTEN, REWRITTEN], FirstRewritten(0, True)),
        ([UNKNOWN, UNKNOWN, REWRITTEN, REWRITTEN], FirstRewritten(2, False)),
        ([SAME, UNKNOWN, REWRITTEN], FirstRewritten(2, False)),
        ([REWRITTEN], FirstRewritten(0, True)),
    ],
)
def test_find_first(verdicts: list[Verdict], first: FirstRewritten) -> None:
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


def test_rewritten_text() -> None:
    """A text names partition, first offset and what shows it, and how many aren't named."""
    text = rewritten_text({A: FirstRewritten(13, True)}, {A: "because", B: "so"})

    assert text == "t-0 from offset 13 on (because); and 1 more partitions"

"""Whether the files of segments hold what Spark read, and what is told when they don't."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.window import range_rows
from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.errors import ArchiveError, DataFileError, KeyUnavailableError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, to_spark_json
from kafka_drain.proof.content_checks import Reread, Tally
from kafka_drain.proof.fingerprints import write_notes
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.segment_contents import CheckedContents, check_contents, without_whole
from kafka_drain.proof.segment_proof import CheckedSegment

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOTE = "generations/0001/fingerprints/000000000003.json"
AB, CD = f"{0xAB:016x}", f"{0xCD:016x}"
NOT_RECORDED = (
    "batch 3 has 10 records that can't be verified: no drain recorded what Spark read, or the "
    "record is of another batch"
)


@pytest.fixture
def generation(tmp_path: Path) -> Generation:
    """A generation without any file."""
    return Generation(UPath(tmp_path), 1)


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


def file(
    path: str,
    *contents: tuple[TopicPartition, int, int],
    fingerprint: str | None = AB,
    batch: int = 3,
) -> CommittedFile:
    """A file with all records from one offset to another of some partitions."""
    held = tuple(FileOffsets(tp, (R(start, end),), end - start) for tp, start, end in contents)
    return CommittedFile(path, 1, "sha", held, batch, fingerprint)


WHOLE = file("a", (P0, 0, 10))


def segment(*files: CommittedFile, gaps: Sequence[Gap] = (), sound: bool = True) -> CheckedSegment:
    """Batch 3, which read offsets 0 to 9 of partition 0."""
    return CheckedSegment(Segment(3, 3, {P0: R(0, 10)}), files, gaps, sound)


def note(
    generation: Generation,
    records: int,
    fingerprint: str = AB,
    others: int = 0,
    skipped: Sequence[OffsetRange] = (),
) -> None:
    """Note what Spark read of batch 3: records of partition 0, and others of partition 1."""
    write_notes(
        generation,
        [
            {
                "batch": 3,
                "records": records + others,
                "fingerprint": fingerprint,
                "by_partition": to_spark_json({P0: records, P1: others}),
                "start": to_spark_json({P0: 0}),
                "end": to_spark_json({P0: 10}),
                "skipped": range_rows({P0: skipped}),
            }
        ],
    )


def unasked(*_: Any) -> Any:
    """Nobody asks this."""
    pytest.fail("asked without need")


def checked(
    generation: Generation,
    *segments: CheckedSegment,
    windows: Callable[..., Tally] = unasked,
    reread: Callable[..., Reread | None] = unasked,
    is_draining: bool = False,
) -> CheckedContents:
    return check_contents(generation, segments, windows, reread, is_draining=is_draining)


# noted


@pytest.mark.parametrize("is_draining", [False, True])
@pytest.mark.parametrize(
    ("records", "fingerprint", "held", "sealed", "detail"),
    [
        (10, AB, AB, AB, None),
        # Times that can't be read again: the numbers compare, and Spark's word counts.
        (10, AB, None, AB, None),
        (10, CD, AB, None, f"has records with fingerprint {AB}; Spark read {CD}"),
        (11, AB, AB, None, "has 10 records; Spark read 11: 1 too few of t-0"),
        (9, AB, AB, None, "has 10 records; Spark read 9: 1 too many of t-0"),
    ],
    ids=["equal", "counted", "changed", "fewer", "more"],
)
def test_check_contents_noted(
    generation: Generation,
    records: int,
    fingerprint: str,
    held: str | None,
    sealed: str | None,
    detail: str | None,
    is_draining: bool,
) -> None:
    """A note decides alone: no drain and no Kafka is asked; what differs isn't sealed."""
    note(generation, records, fingerprint)

    own = file("a", (P0, 0, 10), fingerprint=held)
    found = checked(generation, segment(own), is_draining=is_draining)

    is_changed = records == 10 and detail is not None
    reason = Reason.RECORDS_CHANGED if is_changed else Reason.CONTENT_CHANGED
    assert found.findings == ([Finding(reason, "a", f"batch 3 {detail}")] if detail else [])
    assert found.agreeing == ({3} if detail is None else set())
    assert found.fingerprints == {3: sealed}
    assert found.files == ([own] if is_changed else [])
    assert found.pending == []


def test_check_contents_changed_files(generation: Generation) -> None:
    """Where records changed, each file is suspected, with all of its offsets."""
    note(generation, 9, CD, others=1)
    own = [file("a", (P0, 0, 4)), file("b", (P0, 6, 10), (P1, 2, 3)), file("c", (P0, 4, 5))]

    found = checked(generation, segment(*own), reread=lambda _: None)

    detail = f"batch 3 has records with fingerprint {AB}; Spark read {CD}"
    more = "; one or more of its 3 files are affected"
    expected = [Finding(Reason.RECORDS_CHANGED, path, detail + more) for path in "abc"]
    assert found.findings == expected
    assert (found.files, found.paths) == (own, {"a", "b", "c"})
    assert found.ranges == {P0: [R(0, 5), R(6, 10)], P1: [R(2, 3)]}


@pytest.mark.parametrize("number", [1, 2])
def test_check_contents_changed_which(generation: Generation, number: int) -> None:
    """A file alone is the one that changed; of two, it may be either."""
    note(generation, 2 * number, CD)
    own = [file(str(at), (P0, at, at + 2), fingerprint=AB) for at in range(number)]

    found = checked(generation, segment(*own), reread=lambda _: None).findings

    more = "; one or more of its 2 files are affected"
    assert [each.detail.endswith(more) for each in found] == [number == 2] * number


def fingerprint(number: int) -> str:
    return f"{number:016x}"


@pytest.mark.parametrize(
    ("in_kafka", "affected"),
    [
        # Only "b" differs, and with Kafka's records the batch is what Spark read: "a" is proven,
        # although Kafka no longer has its records.
        ({"a": Reread(gone=4), "b": Reread({P0: [R(4, 9)]}, 0, fingerprint(0x30))}, ["b"]),
        # Nor does it matter what differs, as long as all files that do are known.
        (
            {
                "a": Reread({P0: [R(0, 4)]}, 0, fingerprint(0x100)),
                "b": Reread({P0: [R(4, 9)]}, 0, fingerprint(0x130 ^ 0x1)),
            },
            ["a", "b"],
        ),
        # With Kafka's records it still isn't what Spark read: "a" may have changed, too.
        ({"a": Reread(gone=4), "b": Reread({P0: [R(4, 9)]}, 0, fingerprint(0x31))}, ["a", "b"]),
        # Of "b", Kafka has lost a record.
        ({"a": Reread(), "b": Reread({P0: [R(4, 9)]}, 1)}, ["a", "b"]),
        # The one that changed is gone from Kafka.
        ({"a": Reread(), "b": Reread(gone=5)}, ["a", "b"]),
        # Kafka wasn't asked.
        ({}, ["a", "b"]),
    ],
)
def test_check_contents_changed_proven(
    generation: Generation, in_kafka: dict[str, Reread], affected: list[str]
) -> None:
    """Files are proven by what Spark read, if Kafka's records stand in for the others'."""
    note(generation, 10, fingerprint(0x31))
    own = [
        file("a", (P0, 0, 4), fingerprint=fingerprint(0x1)),
        file("b", (P0, 4, 10), fingerprint=fingerprint(0x2)),
    ]

    found = checked(
        generation, segment(*own), reread=lambda files: in_kafka.get("".join(f.path for f in files))
    )

    assert [each.path for each in found.files] == affected
    suspected = [each.detail.endswith("are affected") for each in found.findings]
    assert suspected == ([False] if affected == ["b"] else [True, True])
    assert found.agreeing == set()


@pytest.mark.parametrize(
    ("own", "where"),
    [([], "generations/0001/data/_spark_metadata"), ([WHOLE], "a")],
    ids=["no file", "a file"],
)
def test_check_contents_fewer_where(
    generation: Generation, own: list[CommittedFile], where: str
) -> None:
    """Too few records are told of the first file; without one, of the manifest."""
    note(generation, 12)

    [found] = checked(generation, segment(*own)).findings

    assert (found.reason, found.subject) == (Reason.CONTENT_CHANGED, where)


def test_check_contents_changed_without_file(generation: Generation) -> None:
    """Where a window has all records and they differ, no file of the segment is suspected."""
    note(generation, 10, CD)
    own = segment(gaps=[Gap(P0, R(0, 10), GapReason.WINDOW)])

    found = checked(generation, own, windows=lambda _: Tally(10, AB, {P0: 10}))

    [finding] = found.findings
    assert finding.reason is Reason.CONTENT_CHANGED
    assert finding.subject == "generations/0001/data/_spark_metadata"
    assert (found.files, found.agreeing) == ([], set())


@pytest.mark.parametrize("records", [10, 12])
def test_check_contents_locked(generation: Generation, records: int) -> None:
    """Without the key of one file, a segment isn't sealed, whatever its number of records says."""
    note(generation, records)
    locked = replace(file("a", (P0, 0, 5), fingerprint=None), locked="no key.")
    opened = file("b", (P0, 5, 10))

    found = checked(generation, segment(opened, locked))

    [finding] = found.findings
    assert (finding.reason, finding.subject) == (Reason.KEY_UNAVAILABLE, "batch 3")
    assert finding.detail.startswith("batch 3 isn't sealed: the records of 1 files couldn't")
    assert finding.detail.endswith("no key.")
    assert (found.agreeing, found.fingerprints, found.files) == (set(), {}, [])


def test_check_contents_locked_window(generation: Generation) -> None:
    """Without the key of a window that holds some of its records, a segment isn't sealed either."""
    note(generation, 10)

    def locked(_: Any) -> Tally:
        raise KeyUnavailableError("no key.")

    found = checked(generation, segment(gaps=[Gap(P0, R(0, 10), GapReason.WINDOW)]), windows=locked)

    [finding] = found.findings
    assert (finding.reason, finding.detail[-7:]) == (Reason.KEY_UNAVAILABLE, "no key.")
    assert (found.agreeing, found.fingerprints) == (set(), {})


def test_check_contents_excused(generation: Generation) -> None:
    """Acknowledged offsets excuse as many records; the rest is then compared with Kafka."""
    note(generation, 10)
    gone = Gap(P0, R(8, 10), GapReason.EXPIRED, acknowledged=True)
    own = segment(file("a", (P0, 0, 8)), gaps=[gone])

    for reread in (None, Reread()):
        found = checked(generation, own, reread=lambda _, reread=reread: reread)

        detail = (
            "batch 3 has 8 records; Spark read 10. Some have expired since, so the rest can't be "
            "verified"
        )
        assert found.findings == [Finding(Reason.CONTENT_UNKNOWN, NOTE, detail)]
        assert (found.agreeing, found.fingerprints) == ({3}, {3: None})


def test_check_contents_expired_before(generation: Generation) -> None:
    """Offsets that had expired before Spark read excuse no record that it has read."""
    note(generation, 8, skipped=[R(0, 2)])
    gone = Gap(P0, R(0, 2), GapReason.EXPIRED, acknowledged=True)

    found = checked(generation, segment(file("a", (P0, 2, 9)), gaps=[gone]))

    [finding] = found.findings
    assert finding.reason is Reason.CONTENT_CHANGED
    assert found.agreeing == set()


# not noted


def test_check_contents_pending(generation: Generation) -> None:
    """While a drain runs, it may still note what it has read: nothing is said or sealed yet."""
    own = segment(WHOLE)

    found = checked(generation, own, is_draining=True)

    assert found == CheckedContents(pending=[own], fingerprints={3: None})


COMPACTED, CONTROL = GapReason.COMPACTED, GapReason.CONTROL


@pytest.mark.parametrize(
    ("reread", "gap", "more", "sealed"),
    [
        (None, None, "", None),
        (Reread(), None, None, AB),
        (Reread(), CONTROL, None, AB),
        (Reread(), COMPACTED, "records at its missing offsets", None),
        (Reread(gone=1), None, "1 of them", None),
        (Reread(gone=1_000), COMPACTED, "1,000 of them", None),
    ],
    ids=["not asked", "equal", "control", "compacted", "gone", "compacted and gone"],
)
def test_check_contents_not_noted(
    generation: Generation,
    reread: Reread | None,
    gap: GapReason | None,
    more: str | None,
    sealed: str | None,
) -> None:
    """Without a note, what Kafka still holds decides; what nobody knows stays a warning."""
    gaps = [Gap(P0, R(5, 6), gap)] if gap else []
    asked: list[Any] = []

    def read_again(files: Sequence[CommittedFile]) -> Reread | None:
        asked.append(files)
        return reread

    found = checked(generation, segment(WHOLE, gaps=gaps), reread=read_again)

    rest = f". Read again, Kafka no longer holds {more}; the others are equal" if more else ""
    expected = Finding(Reason.CONTENT_UNKNOWN, NOTE, NOT_RECORDED + rest)
    assert found.findings == ([] if more is None else [expected])
    assert (found.agreeing, found.fingerprints) == ({3}, {3: sealed})
    assert asked == [(WHOLE,)]


@pytest.mark.parametrize(
    "own",
    [[], [file("a")], [file("a", (P0, 0, 10), fingerprint=None)]],
    ids=["no file", "empty", "times"],
)
def test_check_contents_not_comparable(generation: Generation, own: list[CommittedFile]) -> None:
    """Kafka isn't asked where there is nothing to compare; a warning needs records."""
    found = checked(generation, segment(*own))

    reasons = [Reason.CONTENT_UNKNOWN] if own and own[0].records else []
    assert [finding.reason for finding in found.findings] == reasons
    assert (found.agreeing, found.fingerprints) == ({3}, {3: None})


def test_check_contents_differs_from_kafka(generation: Generation) -> None:
    """Only files are suspected that hold offsets at which Kafka has another record."""
    own = [
        file("before", (P0, 0, 4)),
        file("at", (P0, 4, 5), (P1, 0, 9)),
        file("after", (P0, 8, 10)),
        file("other", (P1, 9, 12)),
        file("both", (P0, 6, 7), (P1, 12, 13)),
        file("elsewhere", (TopicPartition("u", 0), 0, 99)),
    ]
    changed = Reread({P0: [R(4, 6), R(6, 8)], P1: [R(12, 20)]}, gone=7)

    found = checked(generation, segment(*own), reread=lambda _: changed)

    details = [
        f"batch 3 differs from what Kafka holds of {tp} from offset {offset} on"
        for tp, offset in ((P0, 4), (P0, 4), (P1, 12))
    ]
    places = zip(["at", "both", "both"], details, strict=True)
    assert found.findings == [Finding(Reason.RECORDS_CHANGED, *place) for place in places]
    assert found.files == [own[1], own[4]]
    assert found.agreeing == set()


# with windows


@pytest.mark.parametrize(("in_window", "is_equal"), [(AB, True), (CD, False)])
def test_check_contents_with_windows(
    generation: Generation, in_window: str, is_equal: bool
) -> None:
    """What windows hold instead counts as well; the receipt has the files' own fingerprint."""
    note(generation, 10, f"{0xAB ^ 0xEF:016x}")
    gaps = [
        Gap(P0, R(4, 6), GapReason.WINDOW),
        Gap(P0, R(2, 4), GapReason.WINDOW),
        Gap(P0, R(8, 9), GapReason.WINDOW),
        Gap(P0, R(9, 10), CONTROL),
    ]
    asked: list[Any] = []

    def windows(ranges: Any) -> Tally:
        asked.append(ranges)
        return Tally(5, in_window, {P0: 5})

    ef = f"{0xEF:016x}"
    own = file("a", (P0, 0, 2), (P0, 6, 8), (P0, 9, 10), fingerprint=ef)
    found = checked(generation, segment(own, gaps=gaps), windows=windows)

    assert asked == [{P0: [R(2, 6), R(8, 9)]}]
    assert (found.agreeing, found.fingerprints) == (
        ({3}, {3: ef}) if is_equal else (set(), {3: None})
    )


@pytest.mark.parametrize("error", [ArchiveError("wrong"), DataFileError("wrong"), OSError("wrong")])
@pytest.mark.parametrize("from_windows", [True, False])
def test_check_contents_unreadable(
    generation: Generation, error: Exception, from_windows: bool
) -> None:
    """What can't be compared isn't sealed; the next segment is still looked at."""

    def fail(_: object) -> Any:
        raise error

    gaps = [Gap(P0, R(0, 1), GapReason.WINDOW)] if from_windows else []
    after = CheckedSegment(Segment(4, 4, {}), [file("b", batch=4)], [], True)
    found = checked(generation, segment(WHOLE, gaps=gaps), after, windows=fail, reread=fail)

    where = "windows" if from_windows else "generations/0001/data"
    detail = "batch 3 can't be compared with what Spark read: wrong"
    assert found.findings == [Finding(Reason.CONTENT_CHANGED, where, detail)]
    assert (found.agreeing, found.fingerprints) == ({4}, {4: None})


@pytest.mark.parametrize("is_draining", [False, True])
def test_check_contents_unsound(generation: Generation, is_draining: bool) -> None:
    """A segment with a problem isn't compared, nor does it agree; the others are."""
    note(generation, 10)

    found = checked(
        generation, segment(WHOLE, sound=False), segment(WHOLE), is_draining=is_draining
    )

    assert found == CheckedContents(agreeing={3}, fingerprints={3: AB})
    assert checked(generation, segment(WHOLE, sound=False)) == CheckedContents()


# without_whole

EARLIER, LATER = Segment(3, 3, {P0: R(0, 10)}), Segment(4, 4, {P0: R(10, 20)})


@pytest.mark.parametrize(
    ("noted", "held", "is_whole"),
    [
        ((10, AB), AB, True),
        ((10, AB), None, True),
        ((10, CD), AB, False),
        ((11, AB), AB, False),
        ((9, AB), AB, False),
        (None, AB, False),
    ],
    ids=["equal", "counted", "changed", "fewer", "more", "not noted"],
)
def test_without_whole(
    generation: Generation, noted: tuple[int, str] | None, held: str | None, is_whole: bool
) -> None:
    """Nothing is missing of a segment whose files hold all that Spark read; of others, all is."""
    if noted:
        note(generation, *noted)
    missing = [
        (EARLIER, P0, [R(2, 3)]),
        (LATER, P0, [R(12, 13)]),
        (EARLIER, P1, [R(5, 6)]),
    ]
    files = [
        file("a", (P0, 0, 10), fingerprint=held),
        file("b", (P0, 10, 20), fingerprint=CD, batch=4),
    ]

    left = without_whole(generation, missing, [EARLIER, LATER], files)

    assert left == ([missing[1]] if is_whole else missing)


@pytest.mark.parametrize("suspected", list(product((False, True), repeat=2)))
def test_without_whole_suspected(generation: Generation, suspected: tuple[bool, bool]) -> None:
    """Each segment is judged by its own files, whichever of them anything is missing from."""
    note(generation, 6)
    files = [file("a", (P0, 0, 3)), file("b", (P0, 3, 6), fingerprint="00")]
    parts = [EARLIER, LATER]
    missing = [(part, P0, [R(6, 7)]) for part, is_ in zip(parts, suspected, strict=True) if is_]

    left = without_whole(generation, missing, parts, files)

    assert left == [row for row in missing if row[0] is LATER]

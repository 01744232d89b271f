"""What a repair drains, and which damaged files its window may stand for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_drain.archive.files import ArchiveFile
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.output import Level, level_of
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.report import Report
from kafka_drain.windows.repair_plan import RepairPlan, plan_repair
from tests.kafka_drain.made_archive import MadeArchive, dense

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive without files yet."""
    return MadeArchive(tmp_path / "archive", {"flights": "id-1"})


def gap(
    tp: TopicPartition, start: int, end: int, reason: GapReason, is_accepted: bool = False
) -> Gap:
    return Gap(tp, OffsetRange(start, end), reason, is_accepted)


def report_of(made: MadeArchive, *damaged: ArchiveFile) -> Report:
    """Report that sealed files are gone."""
    report = Report(str(made.root), "made")
    receipts = [
        r for generation in made.archive.snapshot().generations for r in generation.receipts()
    ]
    for file in damaged:
        assert file.sealed is not None
        report.findings.append(Finding(Reason.FILE_MISSING, file.path, "gone"))
        receipt = next(r for r in receipts if file.sealed in r.files)
        report.add_damaged([(file.sealed, receipt)])
    return report


def plan(made: MadeArchive, damaged: list[ArchiveFile], gaps: list[Gap]) -> RepairPlan:
    """Plan the repair of sealed files that are gone."""
    report = report_of(made, *damaged)
    report.add_gaps(gaps, made.topic_ids)
    return plan_repair(made.archive, report)


def test_plan_repair_expired_file_stays(made: MadeArchive) -> None:
    """Of two lost files, the one that Kafka can't give back isn't replaced, and is named."""
    [expired] = made.seal({P0: dense(0, 10)})
    [lost] = made.seal({P0: dense(10, 20)})
    gaps = [gap(P0, 0, 3, GapReason.EXPIRED), gap(P0, 3, 20, GapReason.LOST)]

    found = plan(made, [expired, lost], gaps)

    assert found.ranges == {P0: [OffsetRange(10, 20)]}
    assert found.replaces == [lost.path]
    [left] = found.left
    assert (left.reason, left.where) == (Reason.FILE_MISSING, expired.path)
    assert "flights-0 [0, 3) (expired)" in left.detail
    assert [level_of(line) for line in found.lines()] == [Level.PLAIN, Level.ERROR]


@pytest.mark.parametrize("reason", [GapReason.EXPIRED, GapReason.COMPACTED, GapReason.OPEN])
def test_plan_repair_part_of_file_gone(made: MadeArchive, reason: GapReason) -> None:
    """A file that Kafka holds in part stays whole: restored, none of its records is there twice."""
    [file] = made.seal({P0: dense(0, 10)})

    found = plan(made, [file], [gap(P0, 0, 3, reason), gap(P0, 3, 10, GapReason.LOST)])

    assert found.nothing_to_do
    assert found.replaces == []
    assert file.path in [finding.where for finding in found.left]


@pytest.mark.parametrize(
    ("reasons", "is_left"),
    [
        ((GapReason.LOST,), False),
        ((GapReason.EXPIRED,), True),
        ((GapReason.LOST, GapReason.EXPIRED), True),
        ((GapReason.OPEN,), True),
        ((GapReason.COMPACTED,), False),
    ],
)
def test_plan_repair_left(made: MadeArchive, reasons: tuple[GapReason, ...], is_left: bool) -> None:
    """What Kafka can't give back is named: a repair that can't mend all doesn't look like one."""
    report = Report(str(made.root), "made")
    gaps = [gap(P0, 10 * n, 10 * n + 5, reason) for n, reason in enumerate(reasons)]
    report.findings += [Finding(Reason.OFFSET_MISSING, P0, "in no file")]
    report.add_gaps(gaps, made.topic_ids)

    found = plan_repair(made.archive, report)

    assert [each.subject for each in found.left] == [P0] * is_left
    assert any(level_of(line) is Level.ERROR for line in found.lines()) is is_left
    assert bool(found.ranges) is (GapReason.LOST in reasons)


@pytest.mark.parametrize("is_sealed", [True, False])
def test_plan_repair_rewritten_log(made: MadeArchive, is_sealed: bool) -> None:
    """What a rewritten log has now isn't what was lost; other partitions are repaired."""
    [file] = made.seal({P0: dense(0, 10)})
    report = report_of(made, *[file] * is_sealed)
    report.findings += [
        Finding(Reason.LOG_REWRITTEN, P0, "rewritten from offset 4 on"),
        *(Finding(Reason.OFFSET_MISSING, tp, "in no file") for tp in (P0, P1)),
    ]
    report.add_gaps([gap(tp, 5, 6, GapReason.LOST) for tp in (P0, P1)], made.topic_ids)

    found = plan_repair(made.archive, report)

    assert (found.ranges, found.later) == ({P1: [OffsetRange(5, 6)]}, {})
    assert found.replaces == []
    left = [(each.reason, each.where) for each in found.left]
    assert left[-2:] == [(Reason.LOG_REWRITTEN, str(P0)), (Reason.OFFSET_MISSING, str(P0))]
    assert left[:-2] == [(Reason.FILE_MISSING, file.path)] * is_sealed


def test_plan_repair_window_holds_part(made: MadeArchive) -> None:
    """What a window holds already needn't be drained for the file to be replaced."""
    [file] = made.seal({P0: dense(0, 10)})

    found = plan(made, [file], [gap(P0, 0, 3, GapReason.WINDOW), gap(P0, 3, 10, GapReason.LOST)])

    assert found.ranges == {P0: [OffsetRange(3, 10)]}
    assert (found.replaces, found.left) == ([file.path], [])


def test_plan_repair_acknowledged(made: MadeArchive) -> None:
    """Where somebody accepts what expired, the file is replaced by what is still there."""
    [file] = made.seal({P0: dense(0, 10)})
    accepted = Gap(P0, OffsetRange(0, 3), GapReason.EXPIRED, acknowledged=True)

    found = plan(made, [file], [accepted, gap(P0, 3, 10, GapReason.LOST)])

    assert found.ranges == {P0: [OffsetRange(3, 10)]}
    assert (found.replaces, found.left) == ([file.path], [])
    assert found.acknowledged == ["flights:0:0-3"]


def test_plan_repair_interleaved_files(made: MadeArchive) -> None:
    """A file whose offsets lie between those of one that stays may have held some of these."""
    even: dict[int, int | None] = dict.fromkeys((0, 2, 4), 1)
    odd: dict[int, int | None] = dict.fromkeys((1, 3, 5), 1)
    [first] = made.seal({P0: even})
    [second] = made.seal({P0: odd})
    gaps = [gap(P0, 0, 1, GapReason.EXPIRED), gap(P0, 1, 6, GapReason.LOST)]

    found = plan(made, [first, second], gaps)

    assert found.nothing_to_do
    assert {finding.where for finding in found.left} >= {first.path, second.path}


def test_plan_repair_sealed_document(made: MadeArchive) -> None:
    """While a sealed document is damaged, nothing is drained: a window may hold what looks lost."""
    report = Report(str(made.root), "made")
    lost = Finding(Reason.RECEIPT_CORRUPT, "windows/x/receipt.json", "isn't JSON")
    report.findings += [lost, Finding(Reason.OFFSET_MISSING, P0, "in no file")]
    report.add_gaps([gap(P0, 0, 5, GapReason.LOST)], made.topic_ids)

    found = plan_repair(made.archive, report)

    assert (found.archive, found.ranges, found.replaces) == (made.archive, {}, [])
    assert found.left == report.findings


def test_plan_repair_nothing_lost(made: MadeArchive) -> None:
    """A file of which nothing is missing elsewhere is left as it is, and so is one replaced."""
    [whole] = made.seal({P0: dense(0, 10)})
    [replaced] = made.seal({P0: dense(10, 20)})
    report = Report(str(made.root), "made")
    for file in (whole, replaced):
        report.findings.append(Finding(Reason.FILE_MISSING, file.path, "gone"))
    report.findings.append(Finding(Reason.OFFSET_MISSING, P0, "in no file"))
    report.replaced.add(replaced.path)

    assert plan_repair(made.archive, report).replaces == []
    report.add_gaps([gap(P0, 0, 10, GapReason.LOST)], made.topic_ids)
    [receipt, _] = made.archive.generation(1).receipts()
    assert whole.sealed is not None
    report.add_damaged([(whole.sealed, receipt)])
    assert plan_repair(made.archive, report).replaces == [whole.path]


def test_plan_repair_beside_expired(made: MadeArchive) -> None:
    """What has expired right before a file isn't the file's, nor of a topic without gaps."""
    [file] = made.seal({P0: dense(10, 20)})
    [other] = made.seal({P1: dense(0, 10)})
    gaps = [gap(P0, 0, 10, GapReason.EXPIRED), gap(P0, 10, 20, GapReason.LOST)]

    found = plan(made, [file, other], gaps)

    assert found.ranges == {P0: [OffsetRange(10, 20)]}
    assert file.path in found.replaces


def test_plan_repair_files_in_a_row(made: MadeArchive) -> None:
    """Each file between whose offsets those of one that stays lie stays, too, and so on."""
    rows: tuple[dict[int, int | None], ...] = (
        dict.fromkeys((0, 3), 1), dict.fromkeys((2, 6), 1), dict.fromkeys((5, 7), 1),
    )  # fmt: skip
    files = [file for own in rows for file in made.seal({P0: own})]
    gaps = [gap(P0, 0, 1, GapReason.EXPIRED), gap(P0, 1, 8, GapReason.LOST)]

    found = plan(made, files, gaps)

    assert found.ranges == {}
    assert {finding.where for finding in found.left} >= {file.path for file in files}


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_plan_repair_manifest_left(made: MadeArchive, is_rebuilt: bool) -> None:
    """A damaged manifest that can't be rebuilt is named."""
    if is_rebuilt:
        made.seal({P0: dense(0, 10)})
    report = Report(str(made.root), "made")
    hole = Finding(Reason.MANIFEST_HOLE, "generations/0001/data/_spark_metadata/3", "gone")
    report.findings.append(hole)

    found = plan_repair(made.archive, report)

    assert (found.manifest is not None) is is_rebuilt
    assert found.left == ([] if is_rebuilt else [hole])


def test_plan_repair_topic_made_again(made: MadeArchive) -> None:
    """The same offsets of the topic before, which are gone, keep no file of the new one."""
    [old] = made.seal({P0: dense(0, 10)})
    made.open_generation(flights="id-2")
    [new] = made.seal({P0: dense(0, 10)})
    report = report_of(made, old, new)
    report.add_gaps([gap(P0, 0, 10, GapReason.EXPIRED)], {"flights": "id-1"})
    report.add_gaps([gap(P0, 0, 10, GapReason.LOST)], {"flights": "id-2"})

    found = plan_repair(made.archive, report)

    assert found.ranges == {P0: [OffsetRange(0, 10)]}
    assert found.replaces == [new.path]


def test_plan_repair_of_two_incarnations(made: MadeArchive) -> None:
    """A window has offsets of one incarnation of a topic: those of a later one come next."""
    [old] = made.seal({P0: dense(0, 10)})
    made.open_generation(flights="id-1~2")
    [new] = made.seal({P0: dense(5, 20)})
    report = report_of(made, old, new)
    for end, topic_id in ((10, "id-1"), (20, "id-1~2")):
        report.add_gaps([gap(P0, end - 5, end, GapReason.LOST)], {"flights": topic_id})

    found = plan_repair(made.archive, report)

    assert (found.ranges, found.topics) == ({P0: [OffsetRange(5, 10)]}, {"flights": "id-1"})
    assert found.later == {P0: [OffsetRange(15, 20)]}
    assert found.replaces == [old.path]


EXPIRED, LOST, WINDOW = GapReason.EXPIRED, GapReason.LOST, GapReason.WINDOW


@pytest.mark.parametrize(
    ("gaps", "is_given_up"),
    [
        ([gap(P0, 0, 10, EXPIRED, True)], True),
        ([gap(P0, 0, 4, EXPIRED, True), gap(P0, 4, 10, EXPIRED, True)], True),
        ([gap(P0, 0, 10, EXPIRED)], False),
        ([gap(P0, 0, 4, EXPIRED, True), gap(P0, 4, 10, EXPIRED)], False),
        # The window of its records stands for it, or will.
        ([gap(P0, 0, 4, EXPIRED, True), gap(P0, 4, 10, WINDOW)], False),
        ([gap(P0, 0, 4, EXPIRED, True), gap(P0, 4, 10, LOST)], False),
        ([], False),
    ],
)
def test_plan_repair_given_up(made: MadeArchive, gaps: list[Gap], is_given_up: bool) -> None:
    """A sealed file is given up if somebody has accepted each of its offsets."""
    [lost] = made.seal({P0: dense(0, 10)})
    report = report_of(made, lost)
    report.add_gaps(gaps, made.topic_ids)

    found = plan_repair(made.archive, report)

    assert found.given_up == ({P0: [OffsetRange(0, 10)]} if is_given_up else {})
    if is_given_up:
        assert (found.ranges, found.replaces, found.nothing_to_do) == ({}, [lost.path], False)
        assert found.acknowledged == [
            f"flights:0:{each.range.start}-{each.range.end}" for each in gaps
        ]


def test_plan_repair_unsealed_accepted(made: MadeArchive) -> None:
    """An unsealed file of which nothing is left to drain is left to a roll."""
    report = Report(str(made.root), "made")
    path = "generations/0001/data/part-0.parquet"
    report.findings.append(Finding(Reason.FILE_MISSING, path, "gone"))
    report.segments.append(Segment(0, 0, {P0: OffsetRange(0, 10)}))
    report.add_gaps([gap(P0, 0, 10, EXPIRED, True)], made.topic_ids)

    found = plan_repair(made.archive, report)

    assert (found.nothing_to_do, found.given_up) == (True, {})
    [line] = found.lines()
    assert f"`kafka-drain roll {made.root} --leave-unsealed`" in line
    assert level_of(line) is Level.ERROR


def test_plan_repair_given_up_incarnations(made: MadeArchive) -> None:
    """A window gives up offsets of one incarnation of a topic."""
    [old] = made.seal({P0: dense(0, 10)})
    made.open_generation(flights="id-2")
    [new] = made.seal({P0: dense(0, 7)})
    report = report_of(made, old, new)
    report.add_gaps([gap(P0, 0, 10, EXPIRED, True)], {"flights": "id-1"})
    report.add_gaps([gap(P0, 0, 7, EXPIRED, True)], {"flights": "id-2"})

    found = plan_repair(made.archive, report)

    assert (found.given_up, found.replaces) == ({P0: [OffsetRange(0, 10)]}, [old.path])
    assert found.topics == {"flights": "id-1"}


@pytest.mark.parametrize(
    ("other", "is_replaced"),
    [(GapReason.EXPIRED, False), (GapReason.COMPACTED, True), (GapReason.CONTROL, True)],
)
def test_plan_repair_unsealed_file(made: MadeArchive, other: GapReason, is_replaced: bool) -> None:
    """A file that no receipt describes may have held any offset that its batch lacks."""
    report = Report(str(made.root), "made")
    path = "generations/0001/data/part-0.parquet"
    report.findings.append(Finding(Reason.FILE_MISSING, path, "gone"))
    report.segments.append(Segment(0, 0, {P0: OffsetRange(0, 10), P1: OffsetRange(0, 10)}))
    report.add_gaps([gap(P0, 0, 5, GapReason.LOST), gap(P1, 0, 5, other)], made.topic_ids)

    found = plan_repair(made.archive, report)

    assert found.replaces == ([path] if is_replaced else [])
    assert found.nothing_to_do is not is_replaced


@pytest.mark.parametrize("is_damaged", [False, True])
def test_plan_repair_sealed_and_unsealed(made: MadeArchive, is_damaged: bool) -> None:
    """A roll removes the window of what isn't sealed, so sealed files need one of their own."""
    [lost] = made.seal({P0: dense(0, 10)})
    report = Report(str(made.root), "made")
    if is_damaged:
        report.findings.append(Finding(Reason.FILE_MISSING, lost.path, "gone"))
        [receipt] = made.archive.generation(1).receipts()
        assert lost.sealed is not None
        report.add_damaged([(lost.sealed, receipt)])
    unsealed = "generations/0001/data/part-0.parquet"
    report.findings.append(Finding(Reason.FILE_MISSING, unsealed, "gone"))
    report.segments.append(Segment(1, 1, {P0: OffsetRange(10, 20)}))
    first = 3 if is_damaged else 10
    report.add_gaps([gap(P0, first, 20, GapReason.LOST)], made.topic_ids)

    found = plan_repair(made.archive, report)

    of_unsealed = {P0: [OffsetRange(10, 20)]}
    assert found.ranges == ({P0: [OffsetRange(3, 10)]} if is_damaged else of_unsealed)
    assert found.later == (of_unsealed if is_damaged else {})
    assert found.replaces == [lost.path if is_damaged else unsealed]
    assert [level_of(line) for line in found.lines()] == [Level.PLAIN] * (1 + is_damaged)


def test_plan_repair_sealed_staying_and_unsealed(made: MadeArchive) -> None:
    """A sealed file that must stay is replaced by no window, not by that of other sealed files."""
    [lost] = made.seal({P0: dense(0, 10)})
    [staying] = made.seal({P1: dense(0, 10)})
    report = report_of(made, lost, staying)
    report.segments.append(Segment(2, 2, {P0: OffsetRange(10, 20)}))
    report.add_gaps([gap(P0, 0, 20, LOST), gap(P1, 0, 10, EXPIRED)], made.topic_ids)

    found = plan_repair(made.archive, report)

    assert (found.ranges, found.replaces) == ({P0: [OffsetRange(0, 10)]}, [lost.path])


def test_plan_repair_unsealed_batches(made: MadeArchive) -> None:
    """Each batch gets a window of its own: a validation may seal one, and a roll leave another."""
    report = Report(str(made.root), "made")
    unsealed = "generations/0001/data/part-0.parquet"
    report.findings.append(Finding(Reason.FILE_MISSING, unsealed, "gone"))
    report.segments += [
        Segment(0, 0, {P0: OffsetRange(0, 10), P1: OffsetRange(0, 7)}),
        Segment(1, 1, {P0: OffsetRange(10, 20)}),
        Segment(2, 2, {P0: OffsetRange(20, 30)}),
    ]
    report.add_gaps([gap(P0, 8, 12, LOST), gap(P0, 25, 26, LOST)], made.topic_ids)

    found = plan_repair(made.archive, report)

    assert (found.ranges, found.replaces) == ({P0: [OffsetRange(8, 10)]}, [unsealed])
    assert found.later == {P0: [OffsetRange(10, 12), OffsetRange(25, 26)]}


@pytest.mark.parametrize(
    ("subject", "is_rebuilt"),
    [
        ("generations/0001/data/_spark_metadata/3", True),
        ("generations/0001", True),
        ("generations/00010/data/_spark_metadata/3", False),
        ("generations/0002/data/_spark_metadata/3", False),
        (TopicPartition("generations/0001/", 0), False),
    ],
)
def test_plan_repair_manifest(
    made: MadeArchive, subject: str | TopicPartition, is_rebuilt: bool
) -> None:
    """Only damage below the open generation's folder has its manifest rebuilt."""
    made.seal({P0: dense(0, 10)})
    report = Report(str(made.root), "made")
    report.findings.append(Finding(Reason.MANIFEST_HOLE, subject, "gone"))

    assert (plan_repair(made.archive, report).manifest is not None) is is_rebuilt


@pytest.mark.parametrize("is_window_first", [False, True])
def test_plan_repair_files_of_two_topics(made: MadeArchive, is_window_first: bool) -> None:
    """Of a file that waits for another topic's incarnation, no offset is drained before it goes.

    Two segments would hold them, and the window could never be sealed.
    """
    other = TopicPartition("other", 0)
    made.topic_ids["other"] = "id-3"
    made.seal({P0: dense(0, 10), other: dense(0, 10)})
    made.open_generation(flights="id-1~2")
    made.seal({P0: dense(5, 20), other: dense(10, 20)})
    report = Report(str(made.root), "made")
    if is_window_first:
        # As of a window, whose rows are added before those of generations.
        report.add_gaps([gap(P0, 99, 100, GapReason.CONTROL)], {"flights": "id-1~2"})
    for generation in made.archive.snapshot().generations:
        [receipt] = generation.receipts()
        first, second = receipt.files
        both = replace(first, contents=(*first.contents, *second.contents))
        report.findings.append(Finding(Reason.FILE_MISSING, both.path, "gone"))
        report.add_damaged([(both, receipt)])
        end = 10 * generation.number
        gaps = [gap(P0, end - 5, end, LOST), gap(other, end - 10, end, LOST)]
        report.add_gaps(gaps, receipt.topics)
    old = report.damaged[0][0].path

    found = plan_repair(made.archive, report)

    assert found.replaces == [old]
    assert found.ranges == {P0: [OffsetRange(5, 10)], other: [OffsetRange(0, 10)]}
    assert found.later == {P0: [OffsetRange(15, 20)], other: [OffsetRange(10, 20)]}

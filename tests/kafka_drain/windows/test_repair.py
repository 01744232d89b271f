"""A repair from its request to the last validation: what it restores, rebuilds and drains."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import (
    ArchiveError,
    CheckpointError,
    DataLossError,
    LockedError,
    ManifestInvalidError,
    SparkJobError,
)
from kafka_drain.findings import errors
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.job_spec import WindowSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.storage.lease import hold_lease
from kafka_drain.verify_archive import Verifier
from kafka_drain.windows import repair as repairing
from kafka_drain.windows import window_jobs
from kafka_drain.windows.repair import RepairRequest, preview_repair, run_repair
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.golden import (
    CHECKPOINT,
    END,
    MANIFEST,
    P0,
    RECEIPTS,
    add_batch,
    golden_cluster,
    note_batch,
    row,
    write_rows,
)
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.windows.test_repair_plan_again import all_lost, seal_next

ROWS = [row(P0, offset) for offset in range(END, 50)]


class Spark:
    """Takes the place of Spark: writes the rows of each window that it is started for.

    Args:
        rows: What Kafka still holds of the window.
        fails: How many times it fails before it writes anything.
    """

    def __init__(self, rows: Sequence[dict[str, Any]] = (), fails: int = 0) -> None:
        self.rows = list(rows)
        self.fails = fails
        self.windows: list[str] = []

    def __call__(self, application: SparkApplication) -> None:
        spec = WindowSpec.read(Path(application.arguments[0]))
        self.windows.append(spec.window)
        if self.fails:
            self.fails -= 1
            raise SparkJobError("spark-submit ended with exit code 1")
        path = Path(spec.path.removeprefix("file://"), "topic=flights", "part-00000.parquet")
        write_rows(path, "parquet", self.rows)
        write_private(Path(spec.result_path), {"records": len(self.rows), "fingerprint": None})


def prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Kafka hold all that is missing, and a function take the place of Spark."""

    def application(name: str, *, spec_path: Path, **given: Any) -> SparkApplication:
        made = fake_application(name, spec_path=spec_path, **given)
        return replace(made, arguments=[str(spec_path)])

    monkeypatch.setattr(gap_explanation, "classify_gaps", all_lost)
    monkeypatch.setattr(window_jobs, "prepare_application", application)


@pytest.fixture
def lost(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> str:
    """A sealed file that is gone, while Kafka still holds its offsets."""
    prepare(monkeypatch)
    path = seal_next(archive)
    path.unlink()
    return str(path.relative_to(str(archive.root)))


def request(archive: Archive, **options: Any) -> RepairRequest:
    cluster: Any = golden_cluster()
    return RepairRequest(archive, cluster, **options)


def pipeline_of(archive: Archive) -> Pipeline:
    return Pipeline(
        name="flights", topics=["flights"], archive=str(archive.root), partition_by=["topic"]
    )


def repaired(archive: Archive, spark: Spark, **options: Any) -> list[str]:
    """Run a repair; return the reasons of the errors that are left."""
    report = run_repair(
        request(archive, **options), lambda: pipeline_of(archive), spark, run="test"
    )
    return [str(finding.reason) for finding in errors(report.findings)]


def no_pipeline() -> Pipeline:
    raise AssertionError("nothing is drained")


@pytest.mark.parametrize(
    "damaged", ["", f"{MANIFEST}/12", f"{RECEIPTS}/000000000012.json", "archive.json"]
)
def test_run_repair_without_drain(archive: Archive, damaged: str, said: list[str]) -> None:
    """What receipts and copies tell is restored without Spark, and needs no pipeline."""
    if damaged:
        (archive.root / damaged).unlink()

    report = run_repair(request(archive), no_pipeline, Spark(), run="test")

    assert errors(report.findings) == []
    assert not damaged or (archive.root / damaged).is_file()
    assert any("nothing to repair" in line for line in said) is (MANIFEST not in damaged)


def test_run_repair_drains_lost_offsets(archive: Archive, lost: str) -> None:
    """Offsets of a lost file are drained to a window that replaces it, once."""
    spark = Spark(ROWS)

    assert repaired(archive, spark) == []

    [window] = archive.snapshot().sealed
    assert [window.key] == spark.windows
    assert (window.receipt.replaces, window.receipt.records) == ((lost,), len(ROWS))
    assert repaired(archive, spark) == []
    assert len(spark.windows) == 1


def test_run_repair_killed_rebuild(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while the manifest was aside, nothing that it listed is drained again.

    Of a batch without a receipt, it alone says what readers have.
    """
    monkeypatch.setattr(gap_explanation, "classify_gaps", all_lost)
    paths = add_batch(archive.generation(1), 14, END, 50)
    note_batch(archive.generation(1), 14, paths, END, 50)
    folder = archive.root / MANIFEST
    folder.rename(folder.with_name(f"{folder.name}.damaged-20260101T000000000000Z"))

    report = run_repair(request(archive), no_pipeline, Spark(), run="test")

    assert errors(report.findings) == []
    assert archive.snapshot().sealed == []
    files = {file.path for file in archive_files(archive.snapshot())}
    assert {str(path.relative_to(str(archive.root))) for path in paths} <= files


@pytest.mark.parametrize("reason", [GapReason.EXPIRED, GapReason.COMPACTED, GapReason.UNEXPLAINED])
def test_run_repair_gives_up(
    reason: GapReason, archive: Archive, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Kafka has no record of a lost file left, somebody's word ends the damage, once."""

    def gone(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> list[Gap]:
        return [Gap(tp, r, reason) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", gone)
    for _ in range(2):
        assert repaired(archive, Spark()) == ["file_missing", "offset_missing"]
    assert archive.snapshot().sealed == []
    accepted = {P0: [OffsetRange(END, 50)]}

    assert repaired(archive, Spark(), acknowledged=accepted) == []

    [window] = archive.snapshot().sealed
    assert (window.receipt.replaces, window.receipt.files) == ((lost,), ())
    assert window.receipt.acknowledged == (f"flights:0:{END}-50",)
    for _ in range(2):
        assert repaired(archive, Spark(), deep=True) == []
    assert [each.key for each in archive.snapshot().sealed] == [window.key]
    # Readers refused the archive before.
    assert lost not in {file.path for file in archive_files(archive.snapshot())}
    verifier = Verifier(str(archive.root), True)
    verifier.run()
    assert verifier.report()["verdict"] == "complete"


def test_run_repair_gives_up_topic(
    tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is accepted of one topic counts, also if only another one has records left to drain."""
    made = MadeArchive(tmp_path / "made", {"flights": "id-1", "other": "id-2"})
    other = TopicPartition("other", 0)
    for start in (0, 10):
        files = made.seal({P0: dense(start, start + 10), other: dense(start, start + 10)})
        for file in files if start == 0 else ():
            (made.root / file.path).unlink()
    made.open_generation()

    def gone(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> list[Gap]:
        reasons = {P0: GapReason.LOST, other: GapReason.EXPIRED}
        return [Gap(tp, r, reasons[tp]) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", gone)
    logs: Any = FakeCluster({P0: Log(end=20), other: Log(10, 20)}, topic_ids=made.topic_ids)
    accepted, same = {other: [OffsetRange(0, 10)]}, {P0: [OffsetRange(0, 10)]}
    asked = RepairRequest(made.archive, logs, acknowledged=accepted, replaceable=same)
    pipeline = Pipeline(
        name="made",
        topics=["flights", "other"],
        archive=str(made.root),
        partition_by=["topic"],
    )
    spark = Spark([row(P0, offset) for offset in range(10)])

    assert errors(run_repair(asked, lambda: pipeline, spark, run="test").findings) == []

    [window] = made.archive.snapshot().sealed
    assert window.receipt.topics == made.topic_ids
    # It is sealed, and nobody has to accept it again.
    assert errors(validate_archive(made.archive, logs, deep=True).findings) == []


def test_run_repair_spark_failed(archive: Archive, lost: str) -> None:
    """A repair whose job failed has sealed nothing; the next one uses its window."""
    spark = Spark(ROWS, fails=1)

    with pytest.raises(SparkJobError, match="before the window wrote"):
        repaired(archive, spark)

    assert archive.snapshot().sealed == []
    assert repaired(archive, spark) == []
    assert spark.windows[0] == spark.windows[1]


@pytest.mark.parametrize("accepted", [False, True])
def test_run_repair_other_records(archive: Archive, lost: str, accepted: bool) -> None:
    """Where Kafka has other records now, they replace the lost ones only if that is accepted."""
    others = Spark([{**each, "value": b"other"} for each in ROWS])
    replaceable = {P0: [OffsetRange(END, 50)]} if accepted else {}
    asked = request(archive, replaceable=replaceable)

    if not accepted:
        with pytest.raises(DataLossError, match=f"--replace-changed flights:0:{END}-50"):
            run_repair(asked, lambda: pipeline_of(archive), others, run="test")
        assert archive.snapshot().sealed == []
        return
    report = run_repair(asked, lambda: pipeline_of(archive), others, run="test")

    assert errors(report.findings) == []
    [window] = archive.snapshot().sealed
    assert window.receipt.changed == (f"flights:0:{END}-50",)


@pytest.mark.parametrize("is_other", [False, True])
def test_run_repair_other_than_read(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, is_other: bool
) -> None:
    """In a batch that isn't sealed, nothing but what Spark read stands for its lost files."""
    prepare(monkeypatch)
    paths = add_batch(archive.generation(1), 14, END, 50)
    note_batch(archive.generation(1), 14, paths, END, 50)
    paths[0].unlink()
    spark = Spark([{**each, "value": b"other"} if is_other else each for each in ROWS])

    for _ in range(2):
        if is_other:
            with pytest.raises(DataLossError, match=r"than Spark read there.*--leave-unsealed"):
                repaired(archive, spark)
        else:
            assert repaired(archive, spark) == []

    assert len(archive.snapshot().sealed) == (not is_other)


def test_run_repair_kafka_holds_less(archive: Archive, lost: str) -> None:
    """If the drain brings fewer offsets than were lost, nothing is sealed."""
    with pytest.raises(ManifestInvalidError, match="isn't complete"):
        repaired(archive, Spark(ROWS[:-1]))

    assert archive.snapshot().sealed == []


@pytest.mark.parametrize("folder", ["", "maintenance"])
def test_run_repair_documents_locked(archive: Archive, folder: str) -> None:
    """Documents are restored only while no other run can write them."""
    where = f"{RECEIPTS}/000000000012.json"
    (archive.root / where).unlink()
    held = archive.root / folder if folder else archive.root

    with (
        hold_lease(held, run="another"),
        pytest.raises(LockedError),
    ):
        run_repair(request(archive), no_pipeline, Spark(), run="test")

    assert not (archive.root / where).exists()


def test_run_repair_locked(archive: Archive, lost: str) -> None:
    """Lost offsets aren't drained beside a drain."""
    spark = Spark(ROWS)

    with hold_lease(archive.root, run="another"), pytest.raises(LockedError, match="another"):
        repaired(archive, spark)

    assert (spark.windows, archive.snapshot().sealed) == ([], [])


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("new_journal", [False, True])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_repair_new_journal(
    archive: Archive,
    monkeypatch: pytest.MonkeyPatch,
    runs: bool,
    new_journal: bool,
    is_damaged: bool,
) -> None:
    """The journal is recreated only if that is asked for, by a run, after documents came back."""
    damaged = archive.root / f"{RECEIPTS}/000000000012.json"
    if is_damaged:
        damaged.unlink()
    made: list[tuple[bool, bool]] = []

    def recreate(_: Archive, *, dry_run: bool) -> None:
        made.append((dry_run, damaged.is_file()))

    monkeypatch.setattr(repairing, "recreate_journal", recreate)

    if runs:
        run_repair(request(archive, new_journal=new_journal), no_pipeline, Spark(), run="test")
        assert made == ([(False, True)] if new_journal else [])
    else:
        preview_repair(request(archive, new_journal=new_journal))
        # What it would be made of only shows once documents are restored.
        assert made == ([(True, True)] if new_journal and not is_damaged else [])


def test_repair_manifest_receipt_damaged(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a receipt is damaged too, the error says to restore it, and no retry is promised."""

    def rebuild(*_: Any) -> int:
        raise ValueError("no such field")

    monkeypatch.setattr(repairing, "rebuild_manifest", rebuild)
    (archive.root / f"{MANIFEST}/12").unlink()

    with pytest.raises(CheckpointError, match=r"receipt is damaged too \(no such field\); restore"):
        run_repair(request(archive), no_pipeline, Spark(), run="test")


def test_repair_request_validates(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each validation reads as deeply, and accepts as much, as the user has said."""
    seen: list[dict[str, Any]] = []

    def validated(*given: Any, **options: Any) -> Any:
        seen.append(options)
        return validate_archive(*given, **options)

    monkeypatch.setattr(repairing, "validate_archive", validated)
    accepted = {P0: [OffsetRange(END, 50)]}
    asked = request(archive, deep=True, acknowledged=accepted)

    preview_repair(asked)
    run_repair(asked, no_pipeline, Spark(), run="test")

    assert seen == [
        {"deep": True, "acknowledged": accepted, "writes": writes} for writes in (False, True)
    ]


@pytest.mark.parametrize(
    ("damaged", "new_journal", "is_sound", "says"),
    [
        ([], False, True, "nothing to repair"),
        ([], True, True, "nothing to repair"),
        ([f"{MANIFEST}/12"], False, False, "rebuilds the manifest of generation 1"),
        ([f"{RECEIPTS}/000000000012.json"], False, False, "restores it from its copy"),
        (["archive.json"], False, False, "archive.json is missing: restores it from its copy"),
        ([f"{CHECKPOINT}/offsets/13"], False, False, "can't fix: checkpoint_"),
    ],
)
def test_preview_repair(
    archive: Archive,
    damaged: list[str],
    new_journal: bool,
    is_sound: bool,
    says: str,
    said: list[str],
) -> None:
    """A preview says what a repair would do and whether the archive has errors; changes nothing."""
    for where in damaged:
        (archive.root / where).unlink()
    before = content_of(archive)

    preview = preview_repair(request(archive, new_journal=new_journal))

    assert preview.is_sound is is_sound
    assert any(says in line for line in said)
    assert preview.plan is not None
    assert preview.to_dict()["archive"] == str(archive.root)
    assert content_of(archive) == before


def test_preview_repair_warning(archive: Archive) -> None:
    """An archive with warnings only is sound."""
    orphan = archive.root / "generations/0001/data/topic=flights/part-00000-orphan.parquet"
    orphan.write_bytes(b"left by a killed task")
    asked = request(archive)
    assert asked.validate(writes=False).findings

    assert preview_repair(asked).is_sound


@pytest.mark.parametrize("new_journal", [False, True])
def test_preview_repair_forgets(archive: Archive, new_journal: bool, said: list[str]) -> None:
    """A preview says what the repair would do about a receipt that is lost with its copy."""
    shutil.rmtree(str(archive.root / "copies"))
    (archive.root / f"{RECEIPTS}/000000000013.json").write_text("")

    preview_repair(request(archive, new_journal=new_journal))

    what = "its seal is forgotten: moves it aside" if new_journal else "restore it from a copy"
    assert f"{RECEIPTS}/000000000013.json can't be read" in said[0]
    assert what in said[0]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_preview_repair_not_validated(
    is_damaged: bool, archive: Archive, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """What can't be validated isn't sound; that it can't is said where documents come back."""

    def refuse(*_: Any, **__: Any) -> None:
        raise ArchiveError("can't be read")

    monkeypatch.setattr(repairing, "validate_archive", refuse)
    if not is_damaged:
        with pytest.raises(ArchiveError, match="can't be read"):
            preview_repair(request(archive))
        return
    (archive.root / "archive.json").unlink()

    preview = preview_repair(request(archive))

    assert (preview.plan, preview.is_sound) == (None, False)
    assert preview.to_dict() == {"archive": str(archive.root), "mends": said[:1]}
    assert "archive.json is missing: restores it from its copy" in said[0]
    assert said[1].endswith("only shows once this is repaired: can't be read")


def content_of(archive: Archive) -> dict[str, bytes]:
    root = Path(str(archive.root))
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}

"""An erasure from request to receipt, where Python rewrites the files in Spark's place."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_drain import verify_archive
from kafka_drain.archive import files as listing
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ErasureDocument, ErasureLiftedDocument
from kafka_drain.archive.erasures import Erasure, changed_done, in_force, read_erasures
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.journal.entries import REMOVED, Noted
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.soundness import recreate_journal
from kafka_drain.archive.window import Window
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.reader import read_records
from kafka_drain.data_files.xxhash64 import batch_fingerprint
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    KeyUnavailableError,
    LockedError,
    ManifestInvalidError,
    PlanChangedError,
    SparkJobError,
)
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.signing import Signer, sign
from kafka_drain.evidence.verifying import Verified, compare_with_archive, verify_evidence
from kafka_drain.findings import Reason, summary
from kafka_drain.gaps import GapReason
from kafka_drain.maintenance import compact as compacting
from kafka_drain.maintenance import erase as erasing
from kafka_drain.maintenance import erasure_plan
from kafka_drain.maintenance.erase import (
    ErasurePlan,
    erasure_document,
    lift_erasure,
    make_plan,
    plan_erasure,
    run_erasure,
    sweep,
)
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.pages.evidence import said_of
from kafka_drain.proof.erased_records import refuse_unerased
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.spark.job_spec import CompactSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.storage.lease import hold_lease
from kafka_drain.storage.object_retention import StoreLocks
from kafka_drain.windows.receipt_repair import repair_documents
from kafka_drain.windows.superseded_files import remove_superseded
from kafka_drain.windows.window_jobs import freeze_window
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.golden import (
    END,
    add_batch,
    golden_cluster,
    golden_pipeline,
    open_next,
    sealed_copy,
)
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.republish.planning.test_previous_runs import plan_of

TP = TopicPartition("flights", 0)
BATCHES = 4
#: Keys are offsets in decimal.
GONE = frozenset({b"3", b"12", b"13", b"35", b"45"})
REQUEST = ErasureRequest("r", "b", keys=GONE)


def application(name: str, *, kind: str, spec_path: Path, **given: Any) -> SparkApplication:
    """Take the place of `prepare_application`."""
    made = fake_application(name, kind=kind, spec_path=spec_path, **given)
    return replace(made, arguments=[kind, str(spec_path)])


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeArchive:
    """A closed generation of four batches of ten offsets, and an open one without any."""
    monkeypatch.setattr(compacting, "prepare_application", application)
    archive = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    for n in range(BATCHES):
        archive.seal({TP: dense(10 * n, 10 * n + 10)})
    archive.open_generation()
    return archive


def cluster(end: int = 50) -> Any:
    """A Kafka that has so many offsets."""
    return FakeCluster({TP: Log(end=end)}, topic_ids={"flights": "id-1"})


def pipeline_of(root: Any) -> Pipeline:
    """The pipeline of an archive."""
    return Pipeline(name="made", topics=["flights"], archive=str(root))


NOTHING_LOCKED: dict[str, Any] = {"locked_files": 0, "locked_until": None}


def free(made: MadeArchive) -> StoreLocks:
    """What is locked of an archive on a disk: nothing."""
    return StoreLocks(made.root, "look")


def rewrite(application: SparkApplication, lose: int | None = None) -> None:
    """Do what Spark does for an erasure; lose a record if wanted."""
    spec = CompactSpec.read(application.specs[0])
    gone = {offset for row in spec.erased for offset in range(row["start"], row["end"])}
    figures = {True: [0, 0], False: [0, 0]}
    tables = []
    for path in (path for source in spec.sources for path in source["files"]):
        for batch in read_records(Path(path), "parquet", 1 << 20):
            for number in range(batch.num_rows):
                row = batch.slice(number, 1)
                offset = row["offset"][0].as_py()
                if offset == lose:
                    continue
                figure = figures[offset in gone]
                figure[0] += 1
                figure[1] ^= batch_fingerprint(row, "flights")
                if offset not in gone:
                    tables.append(row)
    if tables:
        target = Path(spec.path, "topic=flights", "part-00000.parquet")
        target.parent.mkdir(parents=True)
        import pyarrow as pa

        pq.write_table(pa.Table.from_batches(tables).drop_columns(["topic"]), target)
    else:
        Path(spec.path).mkdir(parents=True)
    kept, erased = (
        {"records": records, "fingerprint": f"{value:016x}"}
        for records, value in (figures[False], figures[True])
    )
    write_private(Path(spec.result_path), {**kept, "erased": erased})


def erase(root: Any, request: ErasureRequest | None = REQUEST, end: int = 50) -> dict[str, Any]:
    """Erase records of an archive."""
    return run_erasure(pipeline_of(root), cluster(end), rewrite, request, run="t", wait_seconds=0)


def lying(root: Any) -> Counter[int]:
    """Count the offsets of every data file that lies in an archive, whether readers get it."""
    return Counter(
        offset
        for path in Path(str(root)).rglob("part-*")
        for offset in pq.ParquetFile(path).read(["offset"])["offset"].to_pylist()
    )


def left(end: int = 40, but: frozenset[bytes] = GONE) -> Counter[int]:
    """All offsets once, without some keys."""
    return Counter(offset for offset in range(end) if b"%d" % offset not in but)


def refuse_inexact(root: Any, expected: Counter[int]) -> None:
    """Read what lies there, and let two deep validations prove it."""
    assert lying(root) == expected
    for _ in range(2):
        assert prove(Archive.at(str(root))).records == expected.total()


def prove(archive: Archive) -> Report:
    """Validate every byte; made receipts are no chain, and don't know what Spark read."""
    report = validate_archive(archive, cluster(), deep=True)
    found = {finding.reason for finding in report.findings}
    # A killed erasure may leave a window without a receipt, and a repair stands for lost files.
    harmless = {Reason.RECEIPT_CHANGED, Reason.CONTENT_UNKNOWN, Reason.WINDOW_UNSEALED}
    assert found <= {*harmless, Reason.FILE_REPLACED}, report.findings
    return report


def test_run_erasure(made: MadeArchive) -> None:
    """Segments with such records become a window without them; the others stay as they are."""
    untouched = archive_files(made.archive.snapshot())[2]
    plan = plan_erasure(pipeline_of(made.root), cluster(), REQUEST)
    assert (plan.records, plan.files, len(plan.found), len(plan.rewrites)) == (4, 4, 3, 1)
    assert not plan.obstacles
    assert lying(made.root) == left(but=frozenset())
    assert read_erasures(made.root) == []

    assert erase(made.root) == {"windows": ["erase_0001"], "erased": 4} | NOTHING_LOCKED

    refuse_inexact(made.root, left())
    assert untouched.path in {file.path for file in archive_files(made.archive.snapshot())}
    [window] = made.archive.snapshot().fold.windows
    [*parts] = window.receipt.partitions
    gaps = [r for part in parts for r in part.gaps.get(GapReason.ERASED, ())]
    assert gaps == [OffsetRange(3, 4), OffsetRange(12, 14), OffsetRange(35, 36)]
    assert window.plan.erasures == [{"erasure": 1, "request": "r", "by": "b", "records": 4}]
    assert len(window.plan.hashes) == 3
    report = validate_archive(made.archive, cluster())
    assert [row["gaps"] for row in report.partitions()] == [{"erased": 4}]
    [erasure] = read_erasures(made.root)
    assert erasure.done is not None
    assert (erasure.done.records, erasure.done.windows) == (
        4,
        {"erase_0001": window.receipt.sha256},
    )
    written = (Path(str(made.root)) / "erasures" / "0001.json").read_text()
    assert not any(f'"{key.decode()}"' in written for key in GONE)


def test_run_erasure_again(made: MadeArchive) -> None:
    """The same request, or none, does nothing more and searches nothing; another one is refused."""
    erase(made.root)
    before = lying(made.root)

    assert erase(made.root) == {"windows": [], "erased": 0} | NOTHING_LOCKED
    assert erase(made.root, None) == {"windows": [], "erased": 0} | NOTHING_LOCKED
    assert make_plan(made.archive, read_erasures(made.root), 1).files == 0
    with pytest.raises(ConfigError, match="was accepted before, for other records"):
        erase(made.root, ErasureRequest("r", "b", keys=frozenset({b"1"})))

    assert lying(made.root) == before
    erase(made.root, ErasureRequest("s", "b", keys=frozenset({b"1", b"3"})))
    refuse_inexact(made.root, left(but=GONE | {b"1"}))
    assert len({each.document.salt for each in read_erasures(made.root)}) == 1


def test_erasure_of_another_pipeline(made: MadeArchive) -> None:
    """A pipeline that names another one's archive by mistake erases nothing of it."""
    other = Pipeline(name="other", topics=["clicks"], archive=str(made.root))
    refused = "is the archive of pipeline 'made', not of 'other'"

    with pytest.raises(ArchiveError, match=refused):
        plan_erasure(other, cluster(), REQUEST)
    with pytest.raises(ArchiveError, match=refused):
        run_erasure(other, cluster(), rewrite, REQUEST, run="t", wait_seconds=0)

    assert read_erasures(made.root) == []
    assert lying(made.root) == left(but=frozenset())


def test_run_erasure_of_everything(made: MadeArchive) -> None:
    """A window may have no file at all; all of its offsets are gaps."""
    assert erase(made.root, ErasureRequest("r", "b", topics=frozenset({"flights"})))["erased"] == 40

    refuse_inexact(made.root, Counter())
    assert erase(made.root, None) == {"windows": [], "erased": 0} | NOTHING_LOCKED


def test_run_erasure_loses_another(made: MadeArchive) -> None:
    """If Spark loses a record that isn't to be erased, nothing is sealed and nothing removed."""

    def loses(application: SparkApplication) -> None:
        rewrite(application, lose=5)

    with pytest.raises(ManifestInvalidError, match="holds 25 records, the old files held 30"):
        run_erasure(pipeline_of(made.root), cluster(), loses, REQUEST, run="t", wait_seconds=0)

    live = {file.path for file in archive_files(made.archive.snapshot())}
    assert all(path.startswith("generations/") for path in live)
    erase(made.root)
    refuse_inexact(made.root, left())


@pytest.mark.parametrize(("for_ever", "gone"), [(False, {b"45"}), (True, {b"45", b"55"})])
def test_sweep(made: MadeArchive, for_ever: bool, gone: set[bytes]) -> None:
    """What Kafka had before the request is erased once its generation is closed; not sent before.

    Later records stay, unless the erasure is for ever.
    """
    keys = GONE | {b"55"}
    erase(made.root, ErasureRequest("r", "b", keys=keys, for_ever=for_ever))
    made.seal({TP: dense(40, 60)})
    made.open_generation()
    pipeline = pipeline_of(made.root)

    def refuse() -> None:
        snapshot = made.archive.snapshot()
        refuse_unerased(snapshot, archive_files(snapshot))

    with pytest.raises(ArchiveError, match=f"holds {len(gone)} records that erasure 1"):
        refuse()

    assert sweep(made.archive, pipeline, rewrite, free(made), run="t") == ["erase_0002"]

    refuse()
    assert lying(made.root) == left(60, but=GONE - {b"45"} | gone)
    [erasure] = read_erasures(made.root)
    assert erasure.done is not None
    assert erasure.done.records == 4 + len(gone)


@pytest.mark.parametrize("incarnations", [("id-1~2",), ("id-1~2", "id-1~3")])
def test_sweep_after_rewritten_log(made: MadeArchive, incarnations: tuple[str, ...]) -> None:
    """What Kafka had before the request is erased if it is drained after `roll --rewritten`, too.

    The log of another partition was rewritten: this one's goes on, counted by another id.
    """
    erase(made.root)
    for incarnation in incarnations:
        made.open_generation(flights=incarnation)
        made.start_at({TP: 40})
    made.seal({TP: dense(40, 60)})
    made.open_generation()

    def refuse() -> None:
        snapshot = made.archive.snapshot()
        refuse_unerased(snapshot, archive_files(snapshot))

    with pytest.raises(ArchiveError, match="holds 1 records that erasure 1"):
        refuse()
    swept = sweep(made.archive, pipeline_of(made.root), rewrite, free(made), run="t")

    assert swept == ["erase_0002"]
    refuse()
    assert lying(made.root) == left(60)


def test_lift_erasure(made: MadeArchive) -> None:
    """A lifted erasure is applied to nothing more, and what it has erased stays erased."""
    erase(made.root)
    with pytest.raises(ConfigError, match="needs who asked"):
        lift_erasure(made.archive, 1, "", run="t")

    lift_erasure(made.archive, 1, "c", run="t")

    with pytest.raises(ConfigError, match="no erasure 1 in force"):
        lift_erasure(made.archive, 1, "c", run="t")
    made.seal({TP: dense(40, 50)})
    made.open_generation()
    assert sweep(made.archive, pipeline_of(made.root), rewrite, free(made), run="t") == []
    with pytest.raises(ConfigError, match="no erasure is in force"):
        erase(made.root, None)
    assert lying(made.root) == left(50, but=GONE - {b"45"})
    [erasure] = read_erasures(made.root)
    assert erasure.lifted is not None
    assert erasure.lifted.by == "c"
    # The same request is a new one from now on.
    assert erase(made.root)["erased"] == 1


def fails(application: SparkApplication) -> None:
    """Do what Spark does when it can't read a file."""
    raise SparkJobError("Path does not exist")


def run_with(
    made: MadeArchive, runner: Any, request: ErasureRequest | ErasureDocument | None = REQUEST
) -> None:
    """Erase with another Spark; waits for nobody."""
    kafka = cluster()
    run_erasure(pipeline_of(made.root), kafka, runner, request, run="t", wait_seconds=0)


def refuse_blocked(made: MadeArchive) -> None:
    """A republish of everything isn't refused."""
    snapshot = made.archive.snapshot()
    refuse_unerased(snapshot, archive_files(snapshot))


def test_run_erasure_spark_fails(made: MadeArchive, said: list[str]) -> None:
    """A request whose first run fails before it erases anything is withdrawn, and blocks nothing.

    The same command is a new request; the journal knows of both.
    """
    for number in (1, 2):
        with pytest.raises(SparkJobError):
            run_with(made, fails)

        assert any(f"erasure {number} (r) is withdrawn: it failed before" in line for line in said)
        refuse_blocked(made)
        assert in_force(read_erasures(made.root)) == []
        assert prove(made.archive).complete

    assert erase(made.root)["erased"] == 4
    refuse_inexact(made.root, left())


def test_run_erasure_refused(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be refused is refused before the request is accepted."""
    monkeypatch.setattr(erasing, "_obstacles", lambda *_: ["a republish still needs the files"])

    with pytest.raises(ArchiveError, match=r"Nothing was accepted, and nothing was erased"):
        erase(made.root)

    assert read_erasures(made.root) == []
    refuse_blocked(made)


def test_run_erasure_cannot_roll(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is accepted as long as drains leave no opportunity to close the generation."""

    def rolls(*args: Any, **kwargs: Any) -> ErasurePlan:
        return replace(make_plan(*args, **kwargs), rolls=True)

    monkeypatch.setattr(erasing, "make_plan", rolls)
    monkeypatch.setattr(erasing, "roll_between_drains", lambda *_, **__: None)

    with pytest.raises(LockedError, match="couldn't be closed"):
        erase(made.root)

    assert read_erasures(made.root) == []


def test_run_erasure_number_taken(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another run has accepted under the same number isn't withdrawn by one that couldn't."""

    def other_first(self: Erasure) -> None:
        accept(self)
        raise LockedError("another run accepted it at the same time")

    accept = Erasure.accept
    monkeypatch.setattr(Erasure, "accept", other_first)

    with pytest.raises(LockedError, match="at the same time"):
        erase(made.root)

    assert [erasure.number for erasure in in_force(read_erasures(made.root))] == [1]


def test_run_erasure_number_half_written(made: MadeArchive) -> None:
    """A number whose request couldn't be written, but its withdrawal, isn't given again."""
    lifted = ErasureLiftedDocument(format_version=1, by="run t", lifted_at="2026-01-10T12:00:00Z")
    lifted.create(made.root / "erasures" / "0001.lifted.json")

    assert erase(made.root)["erased"] == 4

    assert [erasure.number for erasure in in_force(read_erasures(made.root))] == [2]


def test_run_erasure_lease_lost(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has lost the lease withdraws nothing: others may be carrying it out."""
    lost = Event()

    @contextmanager
    def hold_lost_lease(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with hold_lease(*args, **kwargs):
            yield SimpleNamespace(lost=lost)

    def fails_later(application: SparkApplication) -> None:
        lost.set()
        fails(application)

    monkeypatch.setattr(erasing, "hold_lease", hold_lost_lease)

    with pytest.raises(SparkJobError):
        run_with(made, fails_later)

    assert [erasure.number for erasure in in_force(read_erasures(made.root))] == [1]


def test_run_erasure_withdrawn_plan(made: MadeArchive) -> None:
    """An approved plan that a person has withdrawn isn't carried out by a retry; a new one is."""
    document = erasure_document(made.archive, cluster(), REQUEST)
    with pytest.raises(Killed):
        run_with(made, kills, document)
    lift_erasure(made.archive, 1, "somebody", run="t")

    with pytest.raises(PlanChangedError, match="was withdrawn by somebody"):
        run_with(made, rewrite, document)

    assert lying(made.root) == left(but=frozenset())
    run_with(made, rewrite)
    refuse_inexact(made.root, left())


class Killed(BaseException):
    """As a signal: nothing handles it."""


def kills(application: SparkApplication) -> None:
    """Die while Spark writes."""
    raise Killed


def test_lift_erasure_killed(made: MadeArchive) -> None:
    """What was killed before it erased anything is in force; a refusal names both ways out."""
    with pytest.raises(Killed):
        run_with(made, kills)

    command = f"kafka-drain erase {made.root}"
    with pytest.raises(ArchiveError) as raised:
        refuse_blocked(made)
    assert f"`{command} --apply`" in str(raised.value)
    assert f"`{command} --lift 1 --by WHO --apply`" in str(raised.value)
    assert "drained after" not in str(raised.value)

    with pytest.raises(SparkJobError):
        run_with(made, fails)
    # It was accepted by another run, which may have been told that it is in force.
    assert len(in_force(read_erasures(made.root))) == 1

    lift_erasure(made.archive, 1, "c", run="t")

    refuse_blocked(made)
    assert prove(made.archive).complete
    assert lying(made.root) == left(but=frozenset())


def test_lift_erasure_begun(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was carried out in part has to be finished: it can't be taken back."""
    # A window of its own for each segment.
    monkeypatch.setattr(erasure_plan, "GROUP_FILES", 0)
    runs: list[int] = []

    def second_fails(application: SparkApplication) -> None:
        runs.append(1)
        if len(runs) == 2:
            raise SparkJobError("no space left")
        rewrite(application)

    with pytest.raises(SparkJobError):
        run_with(made, second_fails)

    assert lying(made.root)[3] == 0
    assert lying(made.root)[12] == 1
    with pytest.raises(ArchiveError, match=r"1 of its windows are sealed.*--apply"):
        lift_erasure(made.archive, 1, "c", run="t")
    with pytest.raises(ArchiveError, match="can't be withdrawn any more"):
        refuse_blocked(made)

    erase(made.root, None)
    refuse_blocked(made)
    refuse_inexact(made.root, left())
    lift_erasure(made.archive, 1, "c", run="t")


def test_run_erasure_other_cluster(made: MadeArchive) -> None:
    """How far an erasure reaches is not asked of another cluster."""
    other = FakeCluster({TP: Log(end=50)}, id="other", topic_ids={"flights": "id-1"})

    with pytest.raises(ArchiveError, match="leads to cluster other"):
        run_erasure(pipeline_of(made.root), other, rewrite, REQUEST, run="t", wait_seconds=0)

    assert read_erasures(made.root) == []


def flip(path: Path) -> None:
    """Change a digit of a document's text, which stays JSON."""
    content = path.read_bytes()
    at = max(content.rfind(digit) for digit in (b"1", b"2", b"3"))
    path.write_bytes(content[:at] + b"0" + content[at + 1 :])


#: By file: what validation says of it when a digit of it is changed, and when it is lost.
DAMAGE: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "erasures/0001.json": ({"document_changed": 1}, {"document_changed": 1}),
    "erasures/0001.lifted.json": ({"document_changed": 1}, {"document_changed": 1}),
    # All is searched again.
    "erasures/0001.done.json": ({"note_unreadable": 1}, {}),
    "windows/erase_0001/plan.json": ({"document_changed": 1}, {"document_changed": 1}),
    # The three old files aren't replaced any more, and are gone.
    "windows/erase_0001/receipt.json": (
        {"receipt_corrupt": 1, "file_missing": 3, "offset_missing": 2},
        {"receipt_missing": 1, "file_missing": 3, "offset_missing": 2},
    ),
    # What is left between the erased offsets: five ranges.
    "windows/erase_0001/data/": (
        {"file_changed": 1, "offset_missing": 5},
        {"file_missing": 1, "offset_missing": 5},
    ),
}


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("name", DAMAGE)
def test_validate_damaged_erasure(made: MadeArchive, name: str, is_lost: bool) -> None:
    """Whichever file of an erasure is changed or lost, validation says so, and nothing else.

    So does the next one. A repair restores requests from the archive's copies, and no erasure goes
    on before.
    """
    erase(made.root)
    lift_erasure(made.archive, 1, "c", run="t")
    # Of a damaged window, Kafka would be asked.
    kafka = None if "windows" in name else cluster()
    before = summary(validate_archive(made.archive, kafka, deep=True).findings)
    root = Path(str(made.root))
    path = root / name
    if name.endswith("/"):
        [path] = path.rglob("part-*")
    content = path.read_bytes()
    if is_lost:
        path.unlink()
    elif path.suffix == ".json":
        flip(path)
    else:
        path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])

    for _ in range(2):
        found = summary(validate_archive(made.archive, kafka, deep=True).findings)
        assert found == before | DAMAGE[name][is_lost]

    if "document_changed" in DAMAGE[name][is_lost]:
        with pytest.raises(ManifestInvalidError, match=r"Nothing was changed"):
            erase(made.root, ErasureRequest("s", "b", keys=frozenset({b"1"})))
        assert len(read_erasures(made.root)) <= 1
        repair_documents(made.root)
        assert path.read_bytes() == content
    if "erasures" in name:
        assert erase(made.root, ErasureRequest("t", "b", keys=frozenset({b"2"})))["erased"] == 1


def judged(root: Path) -> tuple[Counter[str], str]:
    """Return what a validation finds, and the verifier's verdict."""
    verifier = verify_archive.Verifier(str(root), deep=True)
    verifier.run()
    report = validate_archive(Archive.at(str(root)), None, deep=True)
    return Counter(summary(report.findings)), verifier.report()["verdict"]


def test_validate_erasure_given_up(made: MadeArchive) -> None:
    """A request that was lost with its copy, and given up, is missed by no judge."""
    erase(made.root)
    root = Path(str(made.root))
    before, _ = judged(root)
    for path in [*root.rglob("erasures/0001.json")]:
        path.unlink()
    for _ in range(2):
        assert judged(root) == (before + Counter(document_changed=1), "incomplete")

    repair_documents(made.root, forget=True)
    recreate_journal(made.archive, dry_run=False)

    for _ in range(2):
        assert judged(root) == (before + Counter(receipt_forgotten=1), "complete")


def test_read_erasures_done_of_another(made: MadeArchive) -> None:
    """What another erasure was carried out on doesn't count: all is searched again."""
    erase(made.root, ErasureRequest("r", "b", keys=frozenset({b"1"})))
    erase(made.root, ErasureRequest("s", "b", keys=frozenset({b"2"})))
    folder = Path(str(made.root)) / "erasures"
    (folder / "0002.done.json").write_bytes((folder / "0001.done.json").read_bytes())

    assert [each.done is None for each in read_erasures(made.root)] == [False, True]
    [finding] = changed_done(made.root, [path.name for path in folder.iterdir()])
    assert (finding.reason, finding.where) == (Reason.NOTE_UNREADABLE, "erasures/0002.done.json")
    assert make_plan(made.archive, read_erasures(made.root), 1).files > 0


def test_evidence_of_erasure(made: MadeArchive, tmp_path: Path) -> None:
    """Signed reports say what was erased on which request; those from before still verify."""
    signer = Signer(SigningKey.create(tmp_path / "key"))
    keys = {signer.key.public.id: signer.key.public}

    def sign_report(name: str) -> Verified:
        document = validate_archive(made.archive, cluster()).to_dict()
        path = sign(made.archive, signer, "validation", name, document, [], NOW)
        return verify_evidence(path, Path(path).read_bytes(), keys)

    before = sign_report("before")
    erase(made.root)
    erase(made.root, ErasureRequest("s", "c", keys=frozenset({b"1", b"2"})))
    after = sign_report("after")

    assert "erased" not in said_of(before.to_dict())
    assert after.statement.document["erasures"] == [
        {"erasure": 1, "request": "r", "by": "b", "records": 4},
        {"erasure": 2, "request": "s", "by": "c", "records": 2},
    ]
    assert said_of(after.to_dict())["erased"] == [
        "4 records on request r of b",
        "2 records on request s of c",
    ]
    for each in (before, after):
        assert compare_with_archive(each, str(made.root)).compared is not None


def test_plan_erasure_copies(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan names each kind of copy that it can't reach, and only those that there may be."""
    left_behind = Path(str(made.root)) / "windows/lost/data/1/topic=flights/part-1.parquet"
    left_behind.parent.mkdir(parents=True)
    left_behind.write_bytes(b"")

    def copies() -> list[str]:
        plan = plan_erasure(pipeline_of(made.root), cluster(), REQUEST)
        assert list(plan.copies) == plan.to_dict()["copies"]
        assert all(any(copy in line for line in plan.lines()) for copy in plan.copies)
        return [re.split(r"[:,]| and ", copy)[0] for copy in plan.copies]

    lost = "1 data files in the archive's folders that no reader gets"
    local = ["Kafka", "backups", "Iceberg", lost]
    assert copies() == local
    monkeypatch.setattr(erasing, "is_local", lambda root: False)
    assert copies() == [*local[:3], "older versions of objects", local[3]]


def test_plan_erasure_republished(made: MadeArchive) -> None:
    """It names the topics to which records were sent, and runs of which nobody can tell."""
    runs = {"flown": TP, "other": TopicPartition("other", 0), "torn": TP, "planned": TP}
    for key, source in runs.items():
        run, plan = RepublishRun(made.root, key), plan_of(key, 0, 10, source=source)
        target = f"to-{key}"
        [shard] = plan.shards
        run.write_plan(replace(plan, shards=(replace(shard, target_topic=target),)))
        if key != "planned":
            run.mark_opened(plan)
        # Abandoned, it doesn't need its files any more; what it has sent is still there.
        if key == "torn":
            run.abandon(NOW)
    torn = Path(str(made.root), "republish", "torn", "plan.json")
    torn.write_bytes(b"{")

    copies = plan_erasure(pipeline_of(made.root), cluster(), REQUEST).copies

    assert [copy for copy in copies if "republish" in copy] == [
        "whatever was sent by republish torn, whose plan can't be read",
        "topics that they were republished to: to-flown",
    ]


def test_plan_erasure_kept_for_repair(made: MadeArchive) -> None:
    """Old files that no maintenance removes, as a repair may not hold their records, are named."""
    old = next(file for file in made.files() if "-0." in file.path)
    [new] = made.seal_window("compact_0001", {TP: dense(0, 10)}, [old.path])
    made.seal_window("repair_1", {TP: dense(0, 10)}, [new.path], changed=("flights:0:0-10",))
    (made.root / new.path).unlink()

    erase(made.root)

    assert lying(made.root) == left() + left(10, but=frozenset())
    plan = plan_erasure(pipeline_of(made.root), cluster(), None)
    assert any(copy.startswith("1 data files") and old.path in copy for copy in plan.copies)


def test_plan_erasure_kept_for_reprocess(made: MadeArchive) -> None:
    """Nor does any remove what an earlier release has replaced by other records, or may have."""
    old = next(file for file in made.files() if "-0." in file.path)
    # It compared numbers only, and notes no difference.
    made.seal_window("reprocess_0001", {TP: dense(0, 10)}, [old.path], {"value": b"other"})

    erase(made.root)

    assert lying(made.root) == left() + left(10, but=frozenset())
    plan = plan_erasure(pipeline_of(made.root), cluster(), None)
    assert any(copy.startswith("1 data files") and old.path in copy for copy in plan.copies)


def format_of(path: Path) -> int:
    """Return the format that an archive.json says."""
    version: int = json.loads(path.read_text())["format_version"]
    return version


def test_erase_raises_format(made: MadeArchive) -> None:
    """The first erasure raises the archive's format, which nothing lowers, also in the copy."""
    root = Path(str(made.root))
    before = format_of(root / "archive.json")

    erase(made.root)

    assert (before, format_of(root / "archive.json")) == (1, 2)
    assert format_of(root / "copies" / "archive.json") == 2
    made.open_generation(flights="id-1", other="id-2")
    document = made.archive.snapshot().document
    assert (document.format_version, document.topics["other"]) == (2, "id-2")
    settings = {"pipeline": "made", "cluster_id": "cluster-1", "source": document.source}
    made.archive.create(**settings, topic_ids=document.topics, known=document)
    assert format_of(root / "archive.json") == 2
    (root / "archive.json").unlink()
    repair_documents(made.root)
    assert format_of(root / "archive.json") == 2


def test_erase_while_draining(made: MadeArchive) -> None:
    """Nothing is erased as long as an older release might still bring it back."""
    with hold_lease(made.root, run="drain"), pytest.raises(LockedError):
        erase(made.root)

    assert lying(made.root) == left(but=frozenset())
    assert read_erasures(made.root) == []
    erase(made.root)
    assert lying(made.root) == left()


def test_sweep_raises_format(made: MadeArchive) -> None:
    """Maintenance raises the format of an archive of which an earlier release has erased."""
    erase(made.root)
    path = Path(str(made.root)) / "archive.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 1}))

    with hold_lease(made.root, run="drain"):
        sweep(made.archive, pipeline_of(made.root), rewrite, free(made), run="t")
    assert format_of(path) == 1
    sweep(made.archive, pipeline_of(made.root), rewrite, free(made), run="t")

    assert format_of(path) == 2


@pytest.mark.parametrize("erased", [True, False])
def test_erased_left_in_removed_window(made: MadeArchive, erased: bool) -> None:
    """Erased records are found where a killed removal left them; nothing is said of others."""
    window = Window(made.root, "20260101T000000000Z_20260102T000000000Z")
    made.seal_window(window.key, {TP: dense(*((10, 15) if erased else (14, 16)))}, kind="backfill")
    receipt = window.read_receipt()
    note_sealed(made.root, Noted(documents={receipt.where: REMOVED}))
    (made.root / receipt.where).unlink()
    erase(made.root)

    found = validate_archive(made.archive, None).findings

    of_window = [each.reason for each in found if window.key in str(each.subject)]
    assert of_window == [Reason.ERASED_LEFT] * erased


@pytest.mark.parametrize("erased", [True, False])
def test_erased_left_in_window(made: MadeArchive, erased: bool) -> None:
    """What an older release has drained again into a window, and couldn't seal, is found."""
    erase(made.root)
    window = Window(made.root, "repair_1")
    freeze: dict[str, Any] = {"kind": WindowKind.REPAIR, "replaces": [], "partition_by": ["topic"]}
    freeze_window(window, {TP: [OffsetRange(10, 15)]}, file_format="parquet", **freeze)
    # A chain of receipts this archive hasn't.
    before = validate_archive(made.archive, None).findings
    made.write(f"{window.data_name}/0", {TP: dense(*((10, 15) if erased else (14, 16)))})

    after = validate_archive(made.archive, None).findings

    [finding] = [each for each in after if each not in before]
    assert (str(finding.reason), finding.reason.severity) == (
        ("erased_left", "error") if erased else ("window_unsealed", "warning")
    )
    assert finding.subject == "windows/repair_1"
    assert ("2 erased records: flights:0:12-14" in finding.detail) == erased


@pytest.mark.parametrize("topic_id", ["id-1", "id-1~2"])
def test_erased_left_in_backfill(made: MadeArchive, topic_id: str) -> None:
    """At erased offsets, the log that was rewritten since has other records."""
    erase(made.root)
    window = Window(made.root, "20260101T000000000Z_20260102T000000000Z")
    freeze: dict[str, Any] = {"kind": WindowKind.BACKFILL, "replaces": [], "partition_by": []}
    ranges, topics = {TP: [OffsetRange(10, 15)]}, {"flights": topic_id}
    freeze_window(window, ranges, file_format="parquet", topics=topics, **freeze)
    before = validate_archive(made.archive, None).findings
    made.write(f"{window.data_name}/0", {TP: dense(10, 15)})

    after = validate_archive(made.archive, None).findings

    [finding] = [each for each in after if each not in before]
    expected = "erased_left" if topic_id == "id-1" else "window_unsealed"
    assert (str(finding.reason), finding.subject) == (expected, window.name)


# what is searched


def test_run_erasure_searched_in_vain(made: MadeArchive) -> None:
    """What an erasure has searched in vain is searched by the next one, for its own records."""
    erase(made.root)
    assert make_plan(made.archive, read_erasures(made.root), 1).files == 0

    # In a segment without any record of the first, and in the window that the first has written.
    assert erase(made.root, ErasureRequest("s", "b", keys=frozenset({b"25"})))["erased"] == 1
    assert erase(made.root, ErasureRequest("t", "b", keys=frozenset({b"14", b"24"})))["erased"] == 2

    refuse_inexact(made.root, left(but=GONE | {b"25", b"14", b"24"}))
    done = [each.done for each in read_erasures(made.root)]
    assert [each.records for each in done if each] == [4, 1, 2]


def test_run_erasure_both_at_once(made: MadeArchive) -> None:
    """What is drained after two erasures is searched for the records of both."""
    erase(made.root, ErasureRequest("r", "b", keys=frozenset({b"1", b"43"})))
    erase(made.root, ErasureRequest("s", "b", keys=frozenset({b"2", b"44"})))
    made.seal({TP: dense(40, 50)})
    made.open_generation()

    assert erase(made.root, None)["erased"] == 2

    refuse_inexact(made.root, left(50, but=frozenset({b"1", b"2", b"43", b"44"})))
    assert [each.done.records for each in read_erasures(made.root) if each.done] == [2, 2]


def test_run_erasure_rolls(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open generation is closed if it holds such records, and only then."""
    drain_open(made, monkeypatch)
    rolled = []

    def roll(*_: Any, **how: Any) -> object:
        # Nothing is accepted before: a drain may leave no opportunity.
        rolled.append(len(read_erasures(made.root)))
        made.open_generation()
        return object()

    monkeypatch.setattr(erasing, "roll_between_drains", roll)
    assert erase(made.root, ErasureRequest("r", "b", keys=frozenset({b"3"})))["erased"] == 1
    assert rolled == []

    assert erase(made.root, ErasureRequest("s", "b", keys=frozenset({b"45"})))["erased"] == 1

    assert rolled == [1]
    refuse_inexact(made.root, left(50, but=frozenset({b"3", b"45"})))


def test_run_erasure_rolls_repaired(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open generation is closed too if a repair's window holds its records to be erased."""
    repair_open(made, monkeypatch)
    made.seal({TP: dense(50, 60)})

    def roll(*_: Any, **how: Any) -> object:
        made.open_generation()
        return object()

    monkeypatch.setattr(erasing, "roll_between_drains", roll)
    plan = plan_erasure(pipeline_of(made.root), cluster(60), REQUEST)
    assert (plan.obstacles, plan.rolls, plan.records) == ([], True, len(GONE))

    assert erase(made.root, end=60)["erased"] == len(GONE)

    assert lying(made.root) == left(60)


def test_sweep_repaired_open(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair's file of the open generation waits for its end, and keeps no other file back."""
    repair_open(made, monkeypatch)
    read_scope = erasure_document(made.archive, cluster(), REQUEST)
    Erasure(made.root, 1, read_scope).accept()
    pipeline = pipeline_of(made.root)

    assert sweep(made.archive, pipeline, rewrite, free(made), run="t") == ["erase_0001"]

    assert lying(made.root) == left(40) + left(50, but=frozenset()) - left(40, but=frozenset())
    assert sweep(made.archive, pipeline, rewrite, free(made), run="t") == []
    made.open_generation()
    assert sweep(made.archive, pipeline, rewrite, free(made), run="t") == ["erase_0002"]
    assert lying(made.root) == left(50)


def repair_open(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose a file of the open generation, in whose place a repair's window stands."""
    monkeypatch.setattr(listing, "_new_files", lambda *_: [])
    [lost] = made.seal({TP: dense(40, 50)})
    made.seal_window("repair_1", {TP: dense(40, 50)}, [lost.path], kind="repair")
    (made.root / lost.path).unlink()


@pytest.mark.parametrize("is_open", [False, True])
def test_run_erasure_repaired_across(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """A repair's file of several generations is rewritten with all of their segments.

    Kafka may have none of these records any more, so that no reprocess would replace the file.
    """
    monkeypatch.setattr(listing, "_new_files", lambda *_: [])
    [first] = [file for file in made.files() if file.sealed.contents[0].first == 30]
    [second] = made.seal({TP: dense(40, 50)})
    if not is_open:
        made.open_generation()
    for file in (first, second):
        (made.root / file.path).unlink()
    rows = {TP: {**dense(30, 40), **dense(40, 50)}}
    made.seal_window("repair_1", rows, [first.path, second.path], kind="repair")

    def roll(*_: Any, **how: Any) -> object:
        made.open_generation()
        return object()

    monkeypatch.setattr(erasing, "roll_between_drains", roll)
    plan = plan_erasure(pipeline_of(made.root), cluster(), REQUEST)
    assert (plan.obstacles, plan.rolls, plan.records) == ([], is_open, len(GONE))

    assert erase(made.root)["erased"] == len(GONE)

    refuse_inexact(made.root, left(50))


def test_sweep_repaired_across(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair's file that reaches into the open generation keeps no other file back."""
    monkeypatch.setattr(listing, "_new_files", lambda *_: [])
    [first] = [file for file in made.files() if file.sealed.contents[0].first == 30]
    [second] = made.seal({TP: dense(40, 50)})
    for file in (first, second):
        (made.root / file.path).unlink()
    made.seal_window("repair_1", {TP: dense(30, 50)}, [first.path, second.path], kind="repair")
    Erasure(made.root, 1, erasure_document(made.archive, cluster(), REQUEST)).accept()
    pipeline = pipeline_of(made.root)

    assert sweep(made.archive, pipeline, rewrite, free(made), run="t") == ["erase_0001"]
    assert lying(made.root) == left(30) + left(50, but=frozenset()) - left(30, but=frozenset())

    made.open_generation()
    assert sweep(made.archive, pipeline, rewrite, free(made), run="t") == ["erase_0002"]
    refuse_inexact(made.root, left(50))


def drain_open(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seal a batch of the open generation, to which no batch is added that isn't sealed."""
    monkeypatch.setattr(listing, "_new_files", lambda *_: [])
    made.seal({TP: dense(40, 50)})


def test_sweep_open_generation(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep leaves the open generation alone, and searches it once it is closed."""
    erase(made.root)
    drain_open(made, monkeypatch)
    pipeline = pipeline_of(made.root)

    assert sweep(made.archive, pipeline, rewrite, free(made), run="t") == []

    assert lying(made.root)[45] == 1
    made.open_generation()
    assert sweep(made.archive, pipeline, rewrite, free(made), run="t") == ["erase_0002"]
    refuse_inexact(made.root, left(50))


@pytest.mark.parametrize("is_sealed", [False, True])
def test_run_erasure_drained_meanwhile(
    is_sealed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a drain adds to the open generation while an erasure waits for it is left to the next.

    It isn't said to be erased, nor are the files rewritten to which drains still add.
    """
    archive = sealed_copy(tmp_path / "archive")
    kafka: Any = golden_cluster()
    generation = open_next(archive, "parquet", ["topic"])
    shut_out = erasing._shut_out_older_releases

    def waits(*place: Any, **how: Any) -> None:
        add_batch(generation, 0, END, END + 8)
        if is_sealed:
            assert validate_archive(archive, kafka).receipts_written == 1
        shut_out(*place, **how)

    monkeypatch.setattr(erasing, "_shut_out_older_releases", waits)
    request = ErasureRequest("r", "b", keys=frozenset({b"key %d" % (END + 1)}))

    def rewrites(_: SparkApplication) -> None:
        pytest.fail("files of the open generation are rewritten")

    found = run_erasure(golden_pipeline(archive), kafka, rewrites, request, run="t", wait_seconds=0)

    assert found == {"windows": [], "erased": 0} | NOTHING_LOCKED
    left = make_plan(archive, read_erasures(archive.root), 1 << 20)
    assert (left.records, left.rolls) == (2, True)


def test_erasure_document_short_log(made: MadeArchive) -> None:
    """What the archive has of a log that has lost its end is within the scope, sealed or not."""
    end = max(content.last for file in made.files() for content in file.sealed.contents) + 1  # type: ignore[union-attr]

    [row] = erasure_document(made.archive, cluster(3), REQUEST).scope

    assert row.ends == {"0": end}


def test_erasure_document_open_transaction(made: MadeArchive) -> None:
    """What Kafka had behind an open transaction when it was asked is erased once it is drained."""
    kafka: Any = FakeCluster({TP: Log(end=50, stable=41)}, topic_ids={"flights": "id-1"})
    run_erasure(pipeline_of(made.root), kafka, rewrite, REQUEST, run="t", wait_seconds=0)
    made.seal({TP: dense(40, 50)})
    made.open_generation()

    assert erase(made.root, None)["erased"] == 1


# what is refused, and when


def test_run_erasure_obstacle_since_accepted(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A republish that began before the request was in force still gets the old files."""
    began = note_republish(made, "t-1", made.files()[0].path)
    accept = Erasure.accept

    def begins_first(self: Erasure) -> None:
        began()
        accept(self)

    monkeypatch.setattr(Erasure, "accept", begins_first)

    with pytest.raises(ArchiveError, match=r"republish t-1 still needs .* Nothing was erased"):
        erase(made.root)

    assert lying(made.root) == left(but=frozenset())
    assert in_force(read_erasures(made.root)) == []


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("first", [0, 20])
def test_plan_erasure_republish_superseded(first: int, is_there: bool, made: MadeArchive) -> None:
    """Files that were kept for a republish, because a window has replaced them, still have records.

    Also those that no file has any more that is searched.
    """
    [old] = [file for file in made.files() if f"-{first // 10}." in file.path]
    made.seal_window("reprocess_0001_0001", {TP: dense(first, first + 10)}, replaces=[old.path])
    note_republish(made, "t-1", old.path)()
    if not is_there:
        (made.root / old.path).unlink()

    plan = plan_erasure(pipeline_of(made.root), cluster(), REQUEST)

    assert any("republish t-1 still needs" in text for text in plan.obstacles) is is_there


def note_republish(made: MadeArchive, key: str, path: str) -> Callable[[], None]:
    """Return what lets a republish begin that needs a file."""
    plan = plan_of(key, 0, 10)
    [shard] = plan.shards
    files = tuple(replace(file, path=path) for file in shard.files)

    def begins() -> None:
        run = RepublishRun(made.root, key)
        run.write_plan(replace(plan, shards=(replace(shard, files=files),)))
        run.mark_opened(plan)

    return begins


@pytest.mark.parametrize("is_over", [True, False])
def test_plan_erasure_republish_damaged(is_over: bool, made: MadeArchive) -> None:
    """The damaged plan of a run that is over stops no erasure; of another, there is a way on."""
    note_republish(made, "t-1", made.files()[0].path)()
    run = RepublishRun(made.root, "t-1")
    (run.folder / "plan.json").write_bytes(b"{}")
    if not is_over:
        ends = r"end the run with `kafka-drain republish .* --abandon t-1 --apply`"
        with pytest.raises(ArchiveError, match=f"plan.json was changed .*{ends}"):
            erase(made.root)
    run.abandon(NOW)

    plan = plan_erasure(pipeline_of(made.root), cluster(), REQUEST)

    assert any("republish t-1, whose plan can't be read" in copy for copy in plan.copies)
    assert erase(made.root)["erased"] == 4


@pytest.mark.parametrize(("place", "is_refused"), [(0, True), (2, False)])
def test_plan_erasure_republish(place: int, is_refused: bool, made: MadeArchive) -> None:
    """Only a republish that needs files which are to be replaced keeps them; it is named."""
    note_republish(made, "t-1", made.files()[place].path)()

    plan = plan_erasure(pipeline_of(made.root), cluster(), REQUEST)

    assert any("republish t-1 still needs" in text for text in plan.obstacles) is is_refused
    assert len(plan.obstacles) == is_refused
    if is_refused:
        with pytest.raises(ArchiveError, match="Nothing was accepted, and nothing was erased"):
            erase(made.root)
        assert read_erasures(made.root) == []


def test_plan_erasure_reprocess(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a reprocess is unfinished, its records may be in old and new files: none is erased."""
    monkeypatch.setattr(erasing, "unfinished_reprocess", lambda _: object())

    with pytest.raises(ArchiveError, match="a reprocess was started and hasn't finished"):
        erase(made.root)

    assert lying(made.root) == left(but=frozenset())


def test_sweep_obstacle(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """Maintenance skips an erasure that something keeps it from, says so, and does it later."""
    erase(made.root)
    made.seal({TP: dense(40, 50)})
    made.open_generation()
    pipeline = pipeline_of(made.root)
    with monkeypatch.context() as patch:
        patch.setattr(erasing, "unfinished_reprocess", lambda _: object())
        assert sweep(made.archive, pipeline, rewrite, free(made), run="t") == []

    assert lying(made.root)[45] == 1
    assert any("WARNING skipped this time: a reprocess" in line for line in said)
    assert sweep(made.archive, pipeline, rewrite, free(made), run="t") == ["erase_0002"]


def test_run_erasure_planned_before_the_first(made: MadeArchive) -> None:
    """A plan made before the archive had a salt isn't carried out after it: it would find none."""
    first, second = (
        erasure_document(made.archive, cluster(), ErasureRequest(name, "b", keys=GONE))
        for name in ("r", "s")
    )
    run_with(made, rewrite, first)

    with pytest.raises(PlanChangedError, match="its hashes have another salt"):
        run_with(made, rewrite, second)

    assert [each.document.request for each in read_erasures(made.root)] == ["r"]


@pytest.mark.parametrize("by", ["", " "])
def test_lift_erasure_nobody(by: str, made: MadeArchive) -> None:
    """Whoever lifts an erasure is named: it can't be nobody."""
    erase(made.root)

    with pytest.raises(ConfigError, match="needs who asked"):
        lift_erasure(made.archive, 1, by, run="t")

    assert len(in_force(read_erasures(made.root))) == 1


# what a killed run has left


@pytest.mark.parametrize("ends", ["erase", "sweep"])
def test_run_erasure_killed_sealed(
    ends: str, made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old files that a killed run has replaced and not removed are removed by the next one."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch_and_erase(made, patch)
    assert lying(made.root)[3] == 1
    assert lying(made.root)[4] == 2
    with pytest.raises(ArchiveError, match="1 of its windows are sealed"):
        lift_erasure(made.archive, 1, "c", run="t")

    if ends == "erase":
        assert erase(made.root, None)["erased"] == 0
    else:
        remove_superseded(made.archive, free(made))
        sweep(made.archive, pipeline_of(made.root), rewrite, free(made), run="t")

    refuse_inexact(made.root, left())
    [erasure] = read_erasures(made.root)
    assert erasure.done is not None
    assert (erasure.done.records, list(erasure.done.windows)) == (4, ["erase_0001"])
    lift_erasure(made.archive, 1, "c", run="t")


def patch_and_erase(made: MadeArchive, patch: pytest.MonkeyPatch) -> None:
    """Erase, and die after the new window was sealed."""

    def removes(archive: Archive, locks: StoreLocks) -> object:
        if archive.snapshot().fold.windows:
            raise Killed
        return remove_superseded(archive, locks)

    patch.setattr(erasing, "remove_superseded", removes)
    erase(made.root)


def test_run_erasure_killed_writing(made: MadeArchive) -> None:
    """What a killed Spark job has written is discarded: nobody has proven it."""

    def dies(application: SparkApplication) -> None:
        rewrite(application)
        raise Killed

    with pytest.raises(Killed):
        run_with(made, dies)
    assert lying(made.root)[4] == 2

    assert erase(made.root, None)["erased"] == 4

    refuse_inexact(made.root, left())


def test_run_erasure_removes_each_group(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old files go after each group: there may not be space for two copies of everything."""
    monkeypatch.setattr(erasure_plan, "GROUP_FILES", 0)
    before: list[int] = []

    def writes(application: SparkApplication) -> None:
        before.append(lying(made.root).total())
        rewrite(application)

    run_with(made, writes)

    assert before == [40, 39, 37]
    refuse_inexact(made.root, left())


def test_run_erasure_lost_key(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that can't be carried out on all of its files begins with none, and is withdrawn."""
    monkeypatch.setattr(erasure_plan, "GROUP_FILES", 0)

    def refuse(_: Archive, found: Any) -> None:
        if found.group.ranges[TP][0].start >= 10:
            raise KeyUnavailableError("isn't available")

    for module in (compacting, erasing):
        monkeypatch.setattr(module, "refuse_locked", refuse)

    with pytest.raises(KeyUnavailableError):
        run_with(made, rewrite)

    assert in_force(read_erasures(made.root)) == []
    refuse_blocked(made)
    assert lying(made.root)[3] == 1


def test_erasure_document_of_one_topic(made: MadeArchive) -> None:
    """Topics that aren't asked for needn't be described."""
    made.archive.update_topics(made.archive.snapshot().document, {"old": "id-2"})
    kafka: Any = FakeCluster(
        {TP: Log(end=50), TopicPartition("old", 0): Log(end=5)},
        topic_ids={"flights": "id-1", "old": "id-2"},
        allowed={"old": set()},
    )
    asked = ErasureRequest("r", "b", keys=GONE, topics=frozenset({"flights"}))

    scope = erasure_document(made.archive, kafka, asked).scope

    assert {row.topic: row.ends for row in scope} == {"flights": {"0": 50}, "old": None}


def test_erasure_document_new_topic(made: MadeArchive) -> None:
    """A topic that no drain has read yet had records before the request too."""
    new = TopicPartition("new", 0)
    kafka: Any = FakeCluster(
        {TP: Log(end=50), new: Log(end=5)}, topic_ids={"flights": "id-1", "new": "id-2"}
    )
    for source in ({"topics": ["flights", "new"]}, {"topic_pattern": "flights|new"}):
        pipeline = Pipeline(name="made", archive=str(made.root), **source)  # type: ignore[arg-type]

        scope = erasure_document(made.archive, kafka, REQUEST, pipeline).scope

        assert {row.topic: row.ends for row in scope} == {"flights": {"0": 50}, "new": {"0": 5}}


def test_run_erasure_follower_unfinished(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a mirror's unfinished run may have sent isn't put together with what it has sent."""
    closed = made.archive.snapshot().generations[0]
    sent = [
        ("m", {"generations": {str(closed.number): name}, "windows": []})
        for name in closed.receipt_names()[:2]
    ]
    for module in (erasing, compacting):
        monkeypatch.setattr(module, "followers", lambda _: sent)

    assert len(erase(made.root)["windows"]) == 3
    refuse_inexact(made.root, left())


def test_sweep_reads_no_old_plans(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night that finds nothing to erase reads no plan of a run that is over."""
    erase(made.root)
    note_republish(made, "t-1", made.files()[0].path)()
    RepublishRun(made.root, "t-1").abandon(NOW)
    monkeypatch.setattr(RepublishRun, "plan", lambda *_: pytest.fail("read"))

    assert sweep(made.archive, pipeline_of(made.root), rewrite, free(made), run="t") == []


def test_run_erasure_by_another(made: MadeArchive) -> None:
    """Who asks for the same under another name is told so."""
    erase(made.root)

    with pytest.raises(ConfigError, match="was asked for by b, not by c"):
        erase(made.root, ErasureRequest("r", "c", keys=GONE))

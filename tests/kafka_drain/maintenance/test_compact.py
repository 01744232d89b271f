"""What a compaction seals of files that were changed since they were sealed: nothing."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.keys import keys_for_writing
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.window import Window
from kafka_drain.config.encryption import Encryption
from kafka_drain.config.offset_ranges import range_name
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import read_records, topic_of
from kafka_drain.data_files.xxhash64 import batch_fingerprint
from kafka_drain.encryption import data_keys
from kafka_drain.encryption.kms import FILE_VARIABLE
from kafka_drain.errors import (
    KafkaDrainError,
    KeyUnavailableError,
    KmsUnavailableError,
    LockedError,
    ManifestInvalidError,
)
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.intervals import milliseconds
from kafka_drain.maintenance import compact as compacting
from kafka_drain.maintenance.compact import (
    KEYS_IN_ROW_GROUP,
    finish_compaction,
    plan_compactions,
    prepare_compaction,
    row_groups,
)
from kafka_drain.maintenance.compaction_plan import Compaction
from kafka_drain.maintenance.retention import plan_deletions, seal_deletions
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.content_checks import content_of
from kafka_drain.proof.sealing import Identity, seal_deletion, seal_window
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.follow import follower_key, new_files, through_now
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.spark.job_spec import CompactSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.windows import window_jobs
from kafka_drain.windows.superseded_files import remove_superseded, remove_unsealed
from kafka_drain.windows.window_jobs import WindowJob, freeze_window
from tests.kafka_drain.data_files.test_decryption import write_encrypted
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.republish.planning.test_plan import PLAN

P0 = TopicPartition("flights", 0)
TARGET = 1 << 20


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeArchive:
    """A closed generation of five batches, whose receipts know no fingerprint."""
    monkeypatch.setattr(compacting, "prepare_application", fake_application)
    archive = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    for n in range(5):
        archive.seal({P0: dense(10 * n, 10 * n + 10)})
    archive.open_generation()
    return archive


def compacted(
    made: MadeArchive, compaction: Compaction, folder: Path, **columns: object
) -> WindowJob:
    """Write what Spark writes of the source files, where it reads some columns otherwise.

    Of an erasure, it leaves out what is to be erased.
    """
    gone = [offset for r in compaction.erased.get(P0, ()) for offset in range(r.start, r.end)]
    left = {offset: at for offset, at in dense(0, 50).items() if offset not in gone}
    folder.mkdir(mode=0o700)
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root))
    job = prepare_compaction(made.archive, compaction, pipeline, folder)
    attempt = f"{job.window.data_name}/{job.attempt}"
    files = made.write(attempt, {P0: left}, **columns)
    taken = content_of(files)
    erased = {"records": len(gone), "fingerprint": f"{0:016x}"}
    fingerprint = fingerprint_of(made, files) if gone else taken.fingerprint
    result = {"records": len(left), "fingerprint": fingerprint, "erased": erased}
    write_private(job.result_path, result)
    return job


def fingerprint_of(made: MadeArchive, files: list[CommittedFile]) -> str:
    """Read the records of some files, and return their fingerprint."""
    value = 0
    for file in files:
        for batch in read_records(made.root / file.path, "parquet", 1 << 20):
            value ^= batch_fingerprint(batch, topic_of(file.path))
    return f"{value:016x}"


def finish(made: MadeArchive, compaction: Compaction, job: WindowJob) -> Receipt:
    return finish_compaction(made.archive, compaction, job, run="test")


def test_finish_compaction_sound(made: MadeArchive, tmp_path: Path) -> None:
    """Files that are what was sealed are compacted, and go."""
    [compaction] = plan_compactions(
        made.archive.snapshot(), made.archive.snapshot().generations[:-1], TARGET
    )
    job = compacted(made, compaction, tmp_path / "run")

    receipt = finish(made, compaction, job)

    assert receipt.replaces == tuple(file.path for file in compaction.files)
    assert remove_superseded(made.archive)["removed_files"] == 5


@pytest.mark.parametrize("in_store", [False, True])
def test_finish_compaction_removed(
    in_store: bool, made: MadeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended until another maintenance has removed its window, a compaction seals nothing."""
    [compaction] = plan_compactions(
        made.archive.snapshot(), made.archive.snapshot().generations[:-1], TARGET
    )
    job = compacted(made, compaction, tmp_path / "run")
    seal = compacting.seal_superseding

    def suspended(*arguments: Any, **named: Any) -> Receipt:
        remove_unsealed(made.archive)
        return seal(*arguments, **named)

    monkeypatch.setattr(compacting, "seal_superseding", suspended)
    if in_store:
        # Which has them on its disk when they are written.
        monkeypatch.setattr(window_jobs, "sync_files", lambda root, paths: None)

    with pytest.raises(KafkaDrainError):
        finish(made, compaction, job)

    assert not job.window.has_receipt()


def test_finish_compaction_half_sent(made: MadeArchive, tmp_path: Path) -> None:
    """What a follower has begun to send in part meanwhile isn't sealed as one: it couldn't go on.

    It was planned before the generation was closed, and its plan is written while Spark writes.
    """
    snapshot = made.archive.snapshot()
    [compaction] = plan_compactions(snapshot, snapshot.generations[:-1], TARGET)
    job = compacted(made, compaction, tmp_path / "run")
    through = through_now(snapshot)
    sent = {
        **through,
        "generations": {"1": snapshot.generations[0].receipt_names()[2]},
        "files": {},
    }
    key = f"{follower_key('f')}.000001"
    RepublishRun(made.root, key).write_plan(replace(PLAN, key=key, through=sent))

    with pytest.raises(LockedError, match=f"follower {follower_key('f')} has sent only some"):
        finish(made, compaction, job)

    now = made.archive.snapshot()
    assert not job.window.has_receipt()
    rest = [f.sealed.contents[0].first for f in new_files(now, sent, through_now(now)) if f.sealed]
    assert rest == [30, 40]


def test_finish_compaction_deleted_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What retention has deleted of a repair for several generations is no loss to any of them.

    A topic was added after the first one, and the repair's window has records of both topics.
    """
    monkeypatch.setattr(compacting, "prepare_application", fake_application)
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    trains, p1 = TopicPartition("trains", 0), TopicPartition("flights", 1)
    old, new = (milliseconds(NOW - timedelta(days=days)) for days in (31, 1))
    lost = []
    for n in range(5):
        at = old if n == 2 else new
        rows = {P0: dense(10 * n, 10 * n + 10, at), p1: dense(10 * n, 10 * n + 10, new)}
        files = made.seal(rows)
        lost += files[:1] if n == 2 else []
    made.open_generation(trains="id-2")
    lost += made.seal({trains: dense(0, 10, old)})
    made.open_generation()
    repaired = {P0: dense(20, 30, old), trains: dense(0, 10, old)}
    made.seal_window("repair_1", repaired, [file.path for file in lost], kind="repair")
    snapshot = made.archive.snapshot()
    deletions = plan_deletions(snapshot, snapshot.generations[:-1], 30, NOW)
    assert sum(len(deletion.files) for deletion in deletions) == 2
    seal_deletions(made.archive, deletions, run="test")
    snapshot = made.archive.snapshot()
    [compaction] = plan_compactions(snapshot, snapshot.generations[:-1], TARGET)
    (tmp_path / "run").mkdir(mode=0o700)
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root))
    job = prepare_compaction(made.archive, compaction, pipeline, tmp_path / "run")
    rows = {P0: {**dense(0, 20, new), **dense(30, 50, new)}, p1: dense(0, 50, new)}
    taken = content_of(made.write(f"{job.window.data_name}/{job.attempt}", rows))
    result = {"records": taken.records, "fingerprint": taken.fingerprint}
    write_private(job.result_path, result)

    assert finish(made, compaction, job).records == 90


@pytest.mark.parametrize("is_changed", [False, True])
def test_finish_compaction_other_records_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_changed: bool
) -> None:
    """Where somebody has accepted that a repair has other records, these are compacted.

    Spark's fingerprint of a segment isn't theirs; their own files' hashes are what is compared.
    """
    monkeypatch.setattr(compacting, "prepare_application", fake_application)
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    lost = []
    for n in range(5):
        rows = {P0: dense(10 * n, 10 * n + 10)}
        read = content_of(made.write(f"read-{n}", rows)).fingerprint
        lost += made.seal(rows, fingerprint=read) if n in (2, 3) else []
        made.seal(rows, fingerprint=read) if n not in (2, 3) else None
    made.open_generation()
    names = ("flights:0:20-30",)
    other = {"value": b"other"} if is_changed else {}
    made.seal_window(
        "repair_1", {P0: dense(20, 30)}, [lost[0].path], other, changed=names if other else ()
    )
    made.seal_window("repair_2", {P0: dense(30, 40)}, [lost[1].path], changed=())
    snapshot = made.archive.snapshot()
    [compaction] = plan_compactions(snapshot, snapshot.generations[:-1], TARGET)

    def value(tp: TopicPartition, offset: int) -> bytes:
        return b"other" if is_changed and 20 <= offset < 30 else b"value"

    job = compacted(made, compaction, tmp_path / "run", value=value)

    assert finish(made, compaction, job).records == 50


@pytest.mark.parametrize("end", [25, 30])
def test_finish_compaction_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    """Offsets of a lost file that somebody has accepted as lost are no obstacle to a compaction."""
    monkeypatch.setattr(compacting, "prepare_application", fake_application)
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    p1 = TopicPartition("flights", 1)
    files = [
        file
        for n in range(5)
        for file in made.seal({tp: dense(10 * n, 10 * n + 10) for tp in (P0, p1)})
    ]
    made.open_generation()
    lost = files[4]
    assert lost.sealed is not None
    assert (lost.sealed.contents[0].tp, lost.sealed.contents[0].first) == (P0, 20)
    (made.root / lost.path).unlink()
    give_up(made, lost.path, end)
    snapshot = made.archive.snapshot()
    [compaction] = plan_compactions(snapshot, snapshot.generations[:-1], TARGET)
    (tmp_path / "run").mkdir(mode=0o700)
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root))
    job = prepare_compaction(made.archive, compaction, pipeline, tmp_path / "run")
    rows = {P0: {**dense(0, 20), **dense(end, 50)}, p1: dense(0, 50)}
    taken = content_of(made.write(f"{job.window.data_name}/{job.attempt}", rows))
    write_private(job.result_path, {"records": taken.records, "fingerprint": taken.fingerprint})

    receipt = finish(made, compaction, job)

    assert receipt.records == 90 + 30 - end
    assert receipt.acknowledged == (f"flights:0:20-{end}",)
    remove_superseded(made.archive)
    logs: Any = FakeCluster({P0: Log(first=40, end=50), p1: Log(end=50)}, topic_ids=made.topic_ids)
    report = validate_archive(made.archive, logs, deep=True)
    assert report.complete
    assert report.records == receipt.records


def give_up(made: MadeArchive, path: str, end: int) -> None:
    """Seal a repair of the third batch's first file: its first offsets are accepted as lost."""
    window = Window(made.root, "repair_1")
    gone, rest = OffsetRange(20, end), OffsetRange(end, 30)
    how: dict[str, Any] = {
        "identity": Identity("made", "cluster-1", made.topic_ids),
        "window": window.key,
        "replaces": [path],
        "sealed_at": NOW.isoformat(),
    }
    ranges = {P0: [rest if len(rest) else gone]}
    freeze_window(
        window,
        ranges,
        kind=WindowKind.REPAIR,
        replaces=[path],
        file_format="parquet",
        partition_by=["topic"],
    )
    if len(rest):
        files = made.write(f"{window.data_name}/1", {P0: dense(end, 30)})
        print_ = content_of(files).fingerprint
        receipt = seal_window([(P0, rest)], files, [], fingerprint=print_, **how)
    else:
        receipt = seal_deletion([Gap(P0, gone, GapReason.EXPIRED, True)], **how)
    receipt = replace(receipt, acknowledged=(range_name(P0, gone),))
    assert window.write_receipt(receipt.sealed())


@pytest.mark.parametrize("change", ["bytes", "records", "gone"])
@pytest.mark.parametrize("number", [0, 3])
def test_finish_compaction_source_changed(
    number: int, change: str, made: MadeArchive, tmp_path: Path
) -> None:
    """A file that was changed after it was sealed becomes nobody's content, and stays."""
    [compaction] = plan_compactions(
        made.archive.snapshot(), made.archive.snapshot().generations[:-1], TARGET
    )
    path = compaction.files[number].path
    source = Path(str(made.root / path))
    content = source.read_bytes()
    if change == "bytes":
        source.write_bytes(content[:50] + b"\xff" + content[51:])
    elif change == "records":
        made.write("changed", {P0: dense(10 * number, 10 * number + 10)}, value=b"VALUE")
        [other] = Path(str(made.root / "changed")).rglob("*.parquet")
        source.write_bytes(other.read_bytes())
    else:
        source.unlink()

    for attempt in ("run", "another"):
        job = compacted(made, compaction, tmp_path / attempt, value=b"VALUE")
        found = "file_missing" if change == "gone" else "file_changed"
        with pytest.raises(ManifestInvalidError, match=f"{found}: {path}"):
            finish(made, compaction, job)
        remove_unsealed(made.archive)

    assert [w.key for w in made.archive.snapshot().windows if w.is_sealed] == []
    assert remove_superseded(made.archive)["removed_files"] == 0


@pytest.mark.parametrize(
    ("size", "records", "block", "expected"),
    [
        # 100 bytes a record: a row group of 20,000 has 2 MB.
        (100_000_000, 1_000_000, None, (2_000_000, 20_000)),
        # At least 1 MiB, at most 16: more, or fewer, records than that.
        (10_000_000, 1_000_000, None, (1 << 20, 104_857)),
        (1_000_000_000, 10_000, None, (16 << 20, 167)),
        # All fit into one.
        (1_000, 10, None, (2_000_000, 10)),
        (0, 0, None, (1 << 20, 1)),
        # The pipeline's own size.
        (100_000_000, 1_000_000, "65536", (65536, 655)),
    ],
)
def test_row_groups(size: int, records: int, block: str | None, expected: tuple[int, int]) -> None:
    """Bloom filters have room for as many keys as a row group has records."""
    options = row_groups(size, records, block)

    assert (int(options["parquet.block.size"]), int(options[KEYS_IN_ROW_GROUP])) == expected
    assert options["parquet.bloom.filter.enabled#key"] == "true"


@pytest.mark.parametrize(
    ("file_format", "given", "expected"),
    [
        ("parquet", {}, {"parquet.bloom.filter.enabled#key": "true", KEYS_IN_ROW_GROUP: "50"}),
        # Numbers for the drain's row groups aren't used, decisions are.
        (
            "parquet",
            {KEYS_IN_ROW_GROUP: 500_000, "maxRecordsPerFile": 7},
            {KEYS_IN_ROW_GROUP: "50", "maxRecordsPerFile": None},
        ),
        (
            "parquet",
            {"parquet.bloom.filter.enabled#key": False, "parquet.bloom.filter.fpp#key": 0.1},
            {"parquet.bloom.filter.enabled#key": "false", "parquet.bloom.filter.fpp#key": "0.1"},
        ),
        # The archive's files are Parquet, although the pipeline writes another format by now.
        ("orc", {"orc.stripe.size": 1 << 20}, {KEYS_IN_ROW_GROUP: "50", "orc.stripe.size": None}),
    ],
)
def test_compaction_writer_options(
    made: MadeArchive,
    tmp_path: Path,
    file_format: str,
    given: dict[str, Any],
    expected: dict[str, str | None],
) -> None:
    """A compaction takes over what the pipeline decides, but not what only suits a drain."""
    snapshot = made.archive.snapshot()
    [compaction] = plan_compactions(snapshot, snapshot.generations[:1], TARGET)
    pipeline = Pipeline(
        name="made",
        topics=["flights"],
        archive=str(made.root),
        format=file_format,
        sink_options=given,
    )
    (tmp_path / "job").mkdir(mode=0o700)

    prepare_compaction(made.archive, compaction, pipeline, tmp_path / "job")

    options = CompactSpec.read(tmp_path / "job" / "compact.json").writer_options
    assert {name: options.get(name) for name in expected} == expected


def test_prepare_compaction_lost_key(
    made: MadeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master key that is lost keeps those files from being compacted that need it, and no others.

    What isn't compacted is named before a window is begun.
    """
    masters = tmp_path / "masters.json"
    monkeypatch.setenv(FILE_VARIABLE, str(masters))

    def have(*names: str) -> None:
        masters.touch(mode=0o600)
        masters.write_text(json.dumps(dict.fromkeys(names, base64.b64encode(bytes(32)).decode())))
        data_keys._data_key.cache_clear()

    have("old", "new")
    older = keys_for_writing(made.root, Encryption(kms="file", key="old"))
    assert older is not None
    snapshot = made.archive.snapshot()
    [compaction] = plan_compactions(snapshot, snapshot.generations[:1], TARGET)
    encryption = Encryption(kms="file", key="new")
    pipeline = Pipeline(
        name="made", topics=["flights"], archive=str(made.root), encryption=encryption
    )
    newer = keys_for_writing(made.root, encryption)
    assert newer is not None
    files = [Path(str(made.root / file.path)) for file in compaction.files]
    write_encrypted(Path(str(made.root)), files[0], newer["current"])
    have("new")
    (tmp_path / "job").mkdir(mode=0o700)

    prepare_compaction(made.archive, compaction, pipeline, tmp_path / "job")

    remove_unsealed(made.archive)
    have("old", "new")
    write_encrypted(Path(str(made.root)), files[1], older["current"])
    have("new")
    with pytest.raises(KeyUnavailableError, match=rf"{files[1].name}.*'old' .*retention_days"):
        prepare_compaction(made.archive, compaction, pipeline, tmp_path / "job")
    assert not [*(made.root / "windows").iterdir()]


def test_prepare_compaction_spec(
    made: MadeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is told each file to read, of which kind, and where its records go."""
    asked: list[dict[str, Any]] = []

    def application(name: str, **given: Any) -> SparkApplication:
        asked.append(given)
        return fake_application(name, **given)

    monkeypatch.setattr(compacting, "prepare_application", application)
    snapshot = made.archive.snapshot()
    [compaction] = plan_compactions(snapshot, snapshot.generations[:1], TARGET)
    compaction = replace(compaction, erased={P0: [OffsetRange(3, 5)]})
    pipeline = Pipeline(
        name="made", topics=["flights"], archive=str(made.root), log_levels={"a.logger": "DEBUG"}
    )
    folder = tmp_path / "job"
    folder.mkdir(mode=0o700)

    job = prepare_compaction(made.archive, compaction, pipeline, folder)

    spec = CompactSpec.read(folder / "compact.json")
    data = f"{made.root}/generations/0001/data"
    files = [f"{made.root}/{file.path}" for file in compaction.files]
    assert spec.sources == [{"data_folder": data, "file_format": "parquet", "files": files}]
    assert (spec.records, spec.files, spec.file_format) == (50, 1, "parquet")
    assert spec.path == f"{made.root}/{job.window.data_name}/{job.attempt}"
    assert spec.erased == [{"topic": "flights", "partition": 0, "start": 3, "end": 5}]
    assert spec.partition_by == [*spec.columns] == list(compaction.partition_by)
    assert spec.log_levels["a.logger"] == "DEBUG"
    assert spec.result_path == str(job.result_path)
    [given] = asked
    assert (given["kind"], given["spec_path"]) == ("compact", folder / "compact.json")
    assert (given["pipeline"], given["folder"]) == (pipeline, folder)
    # Executors have one open file each, whatever the user's configuration says.
    assert given["fixed"]["spark.sql.maxConcurrentOutputFileWriters"] == "0"


def test_refuse_locked_silent_kms(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A KMS that doesn't answer keeps no files from being compacted that need none of its keys."""

    def silent(*_: Any) -> bytes:
        raise KmsUnavailableError("doesn't answer")

    monkeypatch.setattr(compacting, "read_keys", lambda _: {"k": {}})
    monkeypatch.setattr(compacting, "data_key", silent)
    snapshot = made.archive.snapshot()
    [compaction] = plan_compactions(snapshot, snapshot.generations[:1], TARGET)

    compacting.refuse_locked(made.archive, compaction)


def test_refuse_locked_asks_once(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A KMS that is silent isn't waited for again for each group."""
    asked: list[Any] = []

    def silent(document: Any) -> bytes:
        asked.append(document)
        raise KmsUnavailableError("doesn't answer")

    monkeypatch.setattr(data_keys, "_silent", {})
    monkeypatch.setattr(data_keys, "open_key", silent)
    monkeypatch.setattr(compacting, "read_keys", lambda _: {"k": {}})
    monkeypatch.setattr(data_keys, "read_keys", lambda *_: {"k": {}})
    snapshot = made.archive.snapshot()
    [compaction] = plan_compactions(snapshot, snapshot.generations[:1], TARGET)

    for _ in range(3):
        compacting.refuse_locked(made.archive, compaction)

    assert len(asked) == 1

"""What a validation writes, and that one which mustn't write changes nothing."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.signing import Signer
from kafka_drain.evidence.witness import WitnessFile, WitnessTopic
from kafka_drain.findings import Reason, errors
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof import validation
from kafka_drain.proof.topic_ids import ReadFrom, write_read_from
from kafka_drain.proof.validation import validate_archive, validate_files_alone
from kafka_drain.storage.lease import hold_lease
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import (
    END,
    P0,
    P1,
    add_batch,
    golden_cluster,
    golden_copy,
    note_batch,
    open_next,
    row,
    seal_repair,
)
from tests.kafka_drain.made_archive import MadeArchive, dense

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def content(archive: Archive) -> dict[str, bytes]:
    """Return each file of an archive with its bytes."""
    root = Path(str(archive.root))
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def unsealed(archive: Archive) -> Archive:
    """The golden archive, sealed, with a batch in another generation that isn't sealed."""
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, 50)
    return archive


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("scope", ["open", "all"])
def test_validate_reads_only(
    unsealed: Archive, scope: Literal["open", "all"], *, asks: bool
) -> None:
    """A validation that mustn't write changes nothing, and asks nothing that would be kept."""
    copied = next(path for path in content(unsealed) if path.startswith("copies/"))
    (unsealed.root / copied).write_bytes(b"{}")
    before, asked = content(unsealed), list[str]()
    cluster: Any = golden_cluster() if asks else None

    def describe(_: object) -> Any:
        asked.append("cluster")

    report = validate_archive(
        unsealed,
        cluster,
        scope=scope,
        deep=scope == "all",
        describe=describe,
        keep_schemas=lambda: asked.append("schemas"),
        writes=False,
    )

    assert (content(unsealed), asked) == (before, [])
    assert report.receipts_written == 0
    assert len(report.segments) == 1


def test_validate_writes(unsealed: Archive) -> None:
    """One that may write seals what is proven, sums up what is closed, and says what is newest."""
    before, entries = content(unsealed), unsealed.snapshot().journal.newest
    cluster: Any = golden_cluster()
    cluster.epoch_from = {P0: (END, 7)}

    report = validate_archive(unsealed, cluster, clock=lambda: NOW)

    newest = unsealed.generation(2).last_receipt()
    assert newest is not None
    assert report.newest is not None
    assert report.receipts_written == 1
    assert report.newest.sha256 == newest.sha256
    assert newest.sealed_at == "2026-01-01T00:00:00.000+00:00"
    assert newest.journal == entries
    tails = {part.tp: part.tail for part in newest.partitions if part.tail is not None}
    assert {tp: (tail.offset, tail.leader_epoch) for tp, tail in tails.items()} == {
        P0: (49, 7),
        P1: (49, 0),
    }
    assert report.cursor == {P0: 50, P1: 50}
    assert (report.scope, report.deep, report.validated_at) == ("all", False, NOW)
    added = content(unsealed).keys() - before.keys()
    assert "generations/0002/receipts/000000000000.json" in added
    assert any(path.startswith("generations/0001/") for path in added)
    assert "observed.json" in {*added, *before}
    assert validate_archive(unsealed, golden_cluster(), deep=True, scope="open").scope == "all"  # type: ignore[arg-type]


def test_validate_beside_another(unsealed: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two validations that prove the same batches, the receipts of the first count."""
    add_batch(unsealed.generation(2), 1, 50, 60)
    cluster: Any = golden_cluster()
    sync_files = validation.sync_files

    def meanwhile(*asked: Any) -> None:
        monkeypatch.undo()
        other = validate_archive(unsealed, cluster, clock=lambda: NOW)
        assert other.receipts_written == 2
        sync_files(*asked)

    monkeypatch.setattr(validation, "sync_files", meanwhile)

    report = validate_archive(unsealed, cluster)

    first = unsealed.generation(2).read_receipt("000000000000.json")
    assert (report.receipts_written, report.sealed) == (0, [])
    assert report.newest == first
    assert first.sealed_at == "2026-01-01T00:00:00.000+00:00"
    assert errors(report.findings) == []
    again = validate_archive(unsealed, cluster, deep=True)
    assert (errors(again.findings), again.receipts_written) == ([], 0)
    assert again.newest == unsealed.generation(2).last_receipt()


def test_validate_mends_copies(archive: Archive) -> None:
    """A deep validation with Kafka copies again what it has found to be damaged."""
    copied = next(path for path in content(archive) if path.startswith("copies/generations"))
    before = (archive.root / copied).read_bytes()
    (archive.root / copied).write_bytes(b"{}")
    damaged = (Reason.COPY_DAMAGED, copied)

    for cluster, is_mended in ((None, False), (golden_cluster(), True)):
        report = validate_archive(archive, cluster, deep=True)  # type: ignore[arg-type]

        assert damaged in {(f.reason, f.where) for f in report.findings}
        assert ((archive.root / copied).read_bytes() == before) is is_mended
    again = validate_archive(archive, golden_cluster(), deep=True)  # type: ignore[arg-type]
    assert Reason.COPY_DAMAGED not in {f.reason for f in again.findings}


def test_validate_without_kafka_notes_nothing(tmp_path: Path) -> None:
    """What a killed validation has sealed is noted by one that asks Kafka, and by no other."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal({TopicPartition("t", 0): dense(0, 3)})
    made.open_generation()
    before = made.archive.snapshot().journal.newest

    validate_archive(made.archive, None)
    assert made.archive.snapshot().journal.newest == before
    cluster: Any = FakeCluster({TopicPartition("t", 0): Log(end=3)}, topic_ids={"t": "id"})
    validate_archive(made.archive, cluster)
    assert made.archive.snapshot().journal.newest != before


def test_validate_files_alone(unsealed: Archive, tmp_path: Path, said: list[str]) -> None:
    """Without Kafka, files are validated as asked, and nothing is written; who reads is told.

    A witness in a topic isn't asked; one in a file is.
    """
    before, key = content(unsealed), SigningKey.create(tmp_path / "key")
    nowhere: Any = FakeCluster({})
    (tmp_path / "witness.jsonl").write_text("{}\n")
    files = WitnessFile(tmp_path / "witness.jsonl")
    gone = KafkaUnavailableError("Kafka at b:9092 doesn't answer")

    report = validate_files_alone(
        unsealed, gone, scope="open", signer=Signer(key, witness=WitnessTopic(nowhere, "w"))
    )
    other = validate_files_alone(unsealed, gone, deep=True, signer=Signer(key, witness=files))

    assert content(unsealed) == before
    assert (report.scope, report.deep, report.receipts_written) == ("open", False, 0)
    assert (other.scope, other.deep) == ("all", True)
    assert errors(report.findings) == []
    assert [line for line in said if "doesn't answer" in line] == [f"validate: {gone}"] * 2
    assert any("what the files alone prove" in line for line in said)


@pytest.mark.parametrize(
    ("runs", "isolation_level", "is_stalled"),
    [
        ((None, None), "read_committed", True),
        (("r", "r"), "read_committed", False),
        (("r", "s"), "read_committed", True),
        (("r", "s"), "read_uncommitted", False),
    ],
)
def test_validate_stalled(
    runs: tuple[str | None, ...], isolation_level: str, tmp_path: Path, *, is_stalled: bool
) -> None:
    """A partition that another run has found where this one does is stalled; a retry is no other.

    Nor is one that drains pass.
    """
    archive = golden_copy(tmp_path / "archive")
    path = tmp_path / "archive" / "archive.json"
    document = json.loads(path.read_text()) | {"isolation_level": isolation_level}
    path.write_text(json.dumps(document))
    cluster: Any = golden_cluster()
    cluster.logs = {P0: Log(end=1000, stable=500), P1: Log(end=1000)}

    first, second = (
        validate_archive(archive, cluster, run=run, clock=lambda at=at: NOW + timedelta(hours=at))
        for at, run in enumerate(runs)
    )

    stalled = [
        [f.subject for f in each.findings if f.reason == Reason.STALLED] for each in (first, second)
    ]
    assert stalled == [[], [P0] if is_stalled else []]


def test_validate_identity_untold(tmp_path: Path) -> None:
    """Where Kafka tells no ids, a validation says what isn't proven, without being red."""
    tp = TopicPartition("t", 0)
    found = {}
    for cluster_id in ("cluster-1", ""):
        made = MadeArchive(tmp_path / f"archive-{cluster_id}", {"t": "id"}, cluster_id=cluster_id)
        made.seal({tp: dense(0, 3)})
        made.open_generation()
        report = validate_archive(made.archive, None, writes=False)
        found[cluster_id] = [f.where for f in report.findings if f.reason == Reason.IDENTITY_UNTOLD]

    assert found == {"cluster-1": [], "": ["archive.json"]}
    made = MadeArchive(tmp_path / "archive", {"t": ""})
    findings = validate_archive(made.archive, None, writes=False).findings
    assert Reason.IDENTITY_UNTOLD in {finding.reason for finding in findings}


def test_validate_what_readers_ignore(unsealed: Archive) -> None:
    """A folder that is no generation's, and a file that nothing lists, are named, and not red."""
    copy = unsealed.root / "generations" / "2"
    (copy / "data").mkdir(parents=True)
    (copy / "generation.json").write_bytes(
        (unsealed.generation(2).folder / "generation.json").read_bytes()
    )
    orphan = "generations/0002/data/topic=flights/part-left-by-a-killed-task.parquet"
    (unsealed.root / orphan).write_bytes(b"PAR1")

    for scope in ("open", "all"):
        report = validate_archive(unsealed, golden_cluster(), scope=scope)  # type: ignore[arg-type]

        told = {(f.reason, f.where) for f in report.findings}
        assert (Reason.COPY_IGNORED, "generations/2") in told
        assert (Reason.FILE_ORPHAN, orphan) in told
        assert errors(report.findings) == []


def test_validate_topic_made_again(archive: Archive, said: list[str]) -> None:
    """What waits in a topic that was made again isn't known, and who reads is told what to do."""
    cluster: Any = golden_cluster()
    assert validate_archive(archive, cluster).made_again == []
    cluster.topic_ids = {"flights": "made again"}

    report = validate_archive(archive, cluster)

    assert report.made_again == ["flights"]
    [line] = [line for line in said if "made again in Kafka since it was drained" in line]
    assert f"`kafka-drain roll {archive.root}`" in line


@pytest.mark.parametrize(
    ("last_batch", "seen", "is_sealed"),
    [(0, "own", True), (-1, "own", False), (0, "another", False), (None, "own", False)],
)
def test_validate_made_again_since(
    archive: Archive, last_batch: int | None, seen: str, *, is_sealed: bool
) -> None:
    """A topic that was made again since Spark has read it is sealed as it was read.

    That is what the drain has seen of it after the batch.
    """
    opened = open_next(archive, "parquet", ["topic"])
    note_batch(opened, 0, add_batch(opened, 0, END, 50), END, 50)
    ids = archive.snapshot().document.topics
    if last_batch is not None:
        write_read_from(opened, ReadFrom(last_batch, ids if seen == "own" else {"flights": seen}))
    cluster: Any = golden_cluster()
    cluster.topic_ids = {"flights": "made again"}

    report = validate_archive(archive, cluster)

    assert report.receipts_written == int(is_sealed)
    assert (errors(report.findings) == []) is is_sealed


def test_validate_beside_drain(archive: Archive, said: list[str]) -> None:
    """While a drain is running, what Spark has read isn't known yet: its batches wait."""
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, 50)
    cluster: Any = golden_cluster()

    with hold_lease(archive.root, run="drain"):
        beside = validate_archive(archive, cluster)

    assert (errors(beside.findings), beside.receipts_written) == ([], 0)
    assert any("batch 0 and later batches aren't sealed yet" in line for line in said)
    assert validate_archive(archive, cluster).receipts_written == 1


def test_validate_held_by_window(archive: Archive) -> None:
    """A batch whose offsets a window holds as well isn't sealed: readers would get them twice."""
    opened = open_next(archive, "parquet", ["topic"])
    note_batch(opened, 0, add_batch(opened, 0, END, 50), END, 50)
    seal_repair(archive, "repair_1", [row(P0, END + at) for at in range(3)], [])
    cluster: Any = golden_cluster()

    report = validate_archive(archive, cluster)

    assert report.receipts_written == 0
    assert errors(report.findings)

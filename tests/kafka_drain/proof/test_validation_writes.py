"""What a validation writes, and that one which mustn't write changes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.signing import Signer
from kafka_drain.evidence.witness import WitnessTopic
from kafka_drain.findings import Reason, errors
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof import validation
from kafka_drain.proof.topic_ids import ReadFrom, write_read_from
from kafka_drain.proof.validation import validate_archive, validate_files_alone
from tests.kafka_drain.archive.test_soundness import edit
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
)
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.windows.test_repair import content_of

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


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
    """A validation that mustn't write changes no byte, and asks for nothing that would be kept."""
    copied = next(path for path in content_of(unsealed) if path.startswith("copies/"))
    (unsealed.root / copied).write_bytes(b"{}")
    before, asked = content_of(unsealed), list[str]()
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

    assert (content_of(unsealed), asked) == (before, [])
    assert report.receipts_written == 0
    assert len(report.segments) == 1


def test_validate_writes(unsealed: Archive) -> None:
    """A validation seals what is proven, sums up what is closed, and reports the newest receipt."""
    before, entries = content_of(unsealed), unsealed.snapshot().journal.newest
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
    added = content_of(unsealed).keys() - before.keys()
    assert "generations/0002/receipts/000000000000.json" in added
    assert any(path.startswith("generations/0001/") for path in added)
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


def test_validate_without_kafka_notes_nothing(tmp_path: Path) -> None:
    """A receipt that isn't in the journal yet is noted by a validation with Kafka, by no other."""
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
    """Without Kafka, files are validated as asked, nothing is written, and the reason is said.

    Nor is a witness asked that is a topic.
    """
    before, nowhere = content_of(unsealed), FakeCluster({})
    topic = WitnessTopic(nowhere, "w")  # type: ignore[arg-type]
    signer = Signer(SigningKey.create(tmp_path / "key"), witness=topic)
    gone = KafkaUnavailableError("Kafka at b:9092 doesn't answer")

    report = validate_files_alone(unsealed, gone, scope="open", signer=signer)
    other = validate_files_alone(unsealed, gone, deep=True)

    assert content_of(unsealed) == before
    assert (report.scope, report.deep, report.receipts_written) == ("open", False, 0)
    assert (other.scope, other.deep) == ("all", True)
    assert errors(report.findings) == []
    assert any(str(gone) in line for line in said)


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
    """A partition is stalled if another run has found it there, and drains wait for it.

    A retry isn't another run.
    """
    archive = golden_copy(tmp_path / "archive")
    edit("archive.json", isolation_level=isolation_level)(tmp_path / "archive")
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


@pytest.mark.parametrize(
    ("cluster_id", "topic_id", "untold"),
    [("cluster-1", "id", []), ("", "id", ["archive.json"]), ("cluster-1", "", ["archive.json"])],
)
def test_validate_identity_untold(
    cluster_id: str, topic_id: str, untold: list[str], tmp_path: Path
) -> None:
    """An archive of a cluster that tells no id of its own, or of a topic, says so."""
    made = MadeArchive(tmp_path / "archive", {"t": topic_id}, cluster_id=cluster_id)

    findings = validate_archive(made.archive, None, writes=False).findings

    assert [f.where for f in findings if f.reason == Reason.IDENTITY_UNTOLD] == untold


def test_validate_open_what_readers_ignore(unsealed: Archive) -> None:
    """The open generation's validation, too, only warns of a folder or file that nobody reads."""
    copy = unsealed.root / "generations" / "2"
    (copy / "data").mkdir(parents=True)
    (copy / "generation.json").write_bytes(
        (unsealed.generation(2).folder / "generation.json").read_bytes()
    )
    orphan = "generations/0002/data/topic=flights/part-left-by-a-killed-task.parquet"
    (unsealed.root / orphan).write_bytes(b"PAR1")

    report = validate_archive(unsealed, golden_cluster(), scope="open")  # type: ignore[arg-type]

    told = {(f.reason, f.where) for f in report.findings}
    assert (Reason.COPY_IGNORED, "generations/2") in told
    assert (Reason.FILE_ORPHAN, orphan) in told
    assert errors(report.findings) == []


def test_validate_topic_made_again(archive: Archive, said: list[str]) -> None:
    """A topic that was made again is reported, and what to do is said."""
    cluster: Any = golden_cluster()
    assert validate_archive(archive, cluster).made_again == []
    cluster.topic_ids = {"flights": "made again"}

    report = validate_archive(archive, cluster)

    assert report.made_again == ["flights"]
    command = f"`kafka-drain roll {archive.root}`"
    assert any("flights" in line and command in line for line in said)


@pytest.mark.parametrize(("last_batch", "is_sealed"), [(0, True), (-1, False)])
def test_validate_made_again_since(archive: Archive, last_batch: int, *, is_sealed: bool) -> None:
    """What was read of a topic that was made again is sealed if its drain still saw the old one."""
    opened = open_next(archive, "parquet", ["topic"])
    note_batch(opened, 0, add_batch(opened, 0, END, 50), END, 50)
    write_read_from(opened, ReadFrom(last_batch, archive.snapshot().document.topics))
    cluster: Any = golden_cluster()
    cluster.topic_ids = {"flights": "made again"}

    report = validate_archive(archive, cluster)

    assert report.receipts_written == int(is_sealed)
    assert (errors(report.findings) == []) is is_sealed

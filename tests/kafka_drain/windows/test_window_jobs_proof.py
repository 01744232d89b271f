"""What a window has to hold before it is sealed, and what its receipt says of the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.archive.window import Window
from kafka_drain.config.encryption import Encryption
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    DataLossError,
    ManifestInvalidError,
    TopicError,
)
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.sealing import Identity
from kafka_drain.spark.job_spec import write_private
from kafka_drain.windows import window_jobs
from kafka_drain.windows.backfill import finish_backfill
from kafka_drain.windows.window_jobs import (
    WindowJob,
    open_window,
    prepare_window,
    prove_window,
)
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.windows.test_backfill import Backfilled

T0 = TopicPartition("t", 0)
WHOLE = OffsetRange(10, 20)
Ranges = dict[TopicPartition, list[OffsetRange]]


class Drained:
    """A window of offsets 10 to 19 of t-0, and what Spark has written of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(window_jobs, "prepare_application", fake_application)
        self.made = MadeArchive(folder / "archive", {"t": "id-1"})
        self.cluster: Any = FakeCluster({T0: Log(end=100)}, topic_ids={"t": "id-1"})
        pipeline = Pipeline(
            name="made", topics=["t"], archive=str(self.made.root), partition_by=["topic"]
        )
        window = open_window(
            self.made.archive, "repair_1", {T0: [WHOLE]}, pipeline=pipeline, replaces=[]
        )
        run = folder / "run"
        run.mkdir(mode=0o700)
        self.job = prepare_window(
            window, {T0: [WHOLE]}, pipeline=pipeline, cluster=self.cluster, folder=run
        )

    def explained(self, reason: GapReason) -> None:
        """Let Kafka say one reason for whatever it is asked for."""

        def classify(_: object, asked: Ranges) -> Iterable[Gap]:
            return [Gap(tp, r, reason) for tp, ranges in asked.items() for r in ranges]

        self.monkeypatch.setattr(gap_explanation, "classify_gaps", classify)

    def prove(self, *files: Iterable[int], **how: Any) -> Receipt:
        """Write files with some offsets, as Spark does, and prove the window."""
        rows = [dict.fromkeys(offsets, 1_767_000_000_000) for offsets in files]
        for number, each in enumerate(rows):
            data = f"{self.job.window.data_name}/{self.job.attempt}/{number}"
            self.made.write(data, {T0: each})  # type: ignore[dict-item]
        records = sum(map(len, rows))
        write_private(self.job.result_path, {"records": records, "fingerprint": None})
        identity = Identity("made", "cluster-1", {"t": "id-1"})
        job: WindowJob = replace(self.job, erased=how.pop("erased", {}))
        return prove_window(job, self.cluster, identity, **how)


@pytest.fixture
def drained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drained:
    """The window, of which Spark has written nothing yet."""
    return Drained(tmp_path, monkeypatch)


def test_prove_window(drained: Drained) -> None:
    """A whole window has nothing to explain."""
    receipt = drained.prove(range(10, 15), range(15, 20))

    assert (receipt.records, receipt.window, receipt.acknowledged) == (10, "repair_1", ())
    assert [dict(part.gaps) for part in receipt.partitions] == [{}]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([range(10, 20), range(15, 16)], "offset_duplicate"),
        ([range(10, 21)], "offset_outside"),
        ([range(9, 20)], "offset_outside"),
    ],
)
def test_prove_window_other_offsets(
    drained: Drained, files: list[Iterable[int]], says: str
) -> None:
    """An offset twice, or one that isn't the window's, would be there twice for readers."""
    with pytest.raises(ManifestInvalidError, match=f"repair_1 isn't complete: {says}"):
        drained.prove(*files)


@pytest.mark.parametrize("reason", [GapReason.EXPIRED, GapReason.UNEXPLAINED])
def test_prove_window_accepted(drained: Drained, reason: GapReason) -> None:
    """What is gone has to be accepted, each offset of it; the receipt says what was, and where."""
    drained.explained(reason)
    outside = ["t:0:0-5"]
    with pytest.raises(ManifestInvalidError, match=r"repair_1 isn't complete: offset_"):
        drained.prove(range(10, 15), accepts={T0: [OffsetRange(15, 19)]})

    receipt = drained.prove(
        range(10, 15), accepts={T0: [OffsetRange(15, 20)]}, acknowledged=outside
    )

    assert receipt.acknowledged == ("t:0:0-5", "t:0:15-20")
    assert receipt.partitions[0].gaps == {reason: (OffsetRange(15, 20),)}


def test_prove_window_erased(drained: Drained) -> None:
    """Erased offsets are left out, though Kafka has them; a file with one isn't sealed."""
    drained.explained(GapReason.LOST)
    erased = {T0: [OffsetRange(12, 14)]}

    receipt = drained.prove([10, 11], range(14, 20), erased=erased)

    assert receipt.partitions[0].gaps == {GapReason.ERASED: (OffsetRange(12, 14),)}
    with pytest.raises(ManifestInvalidError, match=r"holds \[13, 14\).*without erased offsets"):
        drained.prove([10, 11], range(13, 20), erased=erased)


@pytest.mark.parametrize(
    ("compacted", "said", "sealed"),
    [
        (True, GapReason.UNEXPLAINED, GapReason.COMPACTED),
        (True, GapReason.COMPACTED, GapReason.COMPACTED),
        (False, GapReason.UNEXPLAINED, None),
        (None, GapReason.UNEXPLAINED, None),
        (None, GapReason.COMPACTED, GapReason.COMPACTED),
    ],
)
def test_prove_window_compacted(
    drained: Drained, compacted: bool | None, said: GapReason, sealed: GapReason | None
) -> None:
    """A topic that was compacted when it was drained may lack offsets, whatever it does today."""
    drained.explained(said)
    if compacted is not None:
        settings = TopicSettings(1, 1, compacted=compacted)
        write_topic_settings(drained.made.root, {"t": settings})

    if sealed is None:
        with pytest.raises(ManifestInvalidError, match="offset_unexplained"):
            drained.prove(range(10, 15))
    else:
        gaps = drained.prove(range(10, 15)).partitions[0].gaps
        assert gaps == {sealed: (OffsetRange(15, 20),)}


@pytest.mark.parametrize(
    ("change", "kind"), [("id", ArchiveError), ("topic_ids", TopicError), ("logs", TopicError)]
)
def test_prove_window_other_topic(drained: Drained, change: str, kind: type[Exception]) -> None:
    """Records of another cluster, or of a topic that was made again or is gone, aren't sealed."""
    other = {"id": "another", "topic_ids": {"t": "id-2"}, "logs": {}}
    setattr(drained.cluster, change, other[change])

    with pytest.raises(kind, match="repair_1"):
        drained.prove(range(10, 20))


@pytest.mark.parametrize("begun", ["orc", "avro", "json"])
def test_prepare_window_not_encrypted(drained: Drained, tmp_path: Path, begun: Any) -> None:
    """A window that was begun in a format that isn't encrypted isn't written in the clear."""
    archive, ranges = drained.made.archive, {T0: [OffsetRange(20, 30)]}
    pipeline = Pipeline(
        name="made", topics=["t"], archive=str(archive.root), partition_by=["topic"], format=begun
    )
    window = open_window(archive, "repair_2", ranges, pipeline=pipeline, replaces=[])
    encrypting = pipeline.model_copy(
        update={"format": "parquet", "encryption": Encryption(kms="file", key="k")}
    )

    with pytest.raises(ConfigError, match=f"repair_2 was begun in format {begun}"):
        prepare_window(
            window, ranges, pipeline=encrypting, cluster=drained.cluster, folder=tmp_path / "run"
        )


@pytest.mark.parametrize("accepted", [False, True])
def test_finish_backfill_other_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str], accepted: bool
) -> None:
    """Records replace others only if somebody accepts that; then receipt and output say so."""
    monkeypatch.setattr(window_jobs, "prepare_application", fake_application)
    backfilled = Backfilled(tmp_path)
    made, before, plan = backfilled.made, backfilled.read(), backfilled.plan()
    [p0, p1] = sorted(plan.ranges)
    job = backfilled.drained(plan, {p1: dense(0, 10)})
    made.write(f"{plan.window.data_name}/{job.attempt}", {p0: dense(0, 10)}, value=b"other")
    write_private(job.result_path, {"records": 20, "fingerprint": None})
    where = {p0: [OffsetRange(0, 10)]} if accepted else {}

    def finish() -> Receipt:
        return finish_backfill(plan, job, backfilled.cluster, run="test", replaceable=where)

    if not accepted:
        with pytest.raises(DataLossError, match="--replace-changed flights:0:0-10"):
            finish()
        assert not Window(made.root, plan.window.key).has_receipt()
    else:
        assert finish().changed == ("flights:0:0-10",)
        assert any(
            "WARNING flights:0:0-10 is replaced by what Kafka holds" in line for line in said
        )
    assert backfilled.read() == before

"""Receipts of real drains: sealed once, always checked, and what relies on them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import CheckpointError, ManifestInvalidError
from kafka_drain.findings import errors, summary
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.report import Report
from kafka_drain.proof.report_text import report_lines
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.roll import plan_roll, roll
from tests.brute_force import offsets_in_files
from tests.integration.command_line import kafka_drain

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00 UTC, in milliseconds


def records(first: int, number: int) -> list[Any]:
    """Return records that are all different; a few with headers, without key or value."""
    return [
        (
            None if n % 7 == 0 else b"key %d" % n,
            None if n % 11 == 0 else b"value %d" % n,
            [("a", b"%d" % n), ("a", None)] if n % 3 == 0 else None,
            NOON + n,
        )
        for n in range(first, first + number)
    ]


class Drained:
    """A topic of two partitions and its archive, drained and sealed as by the DAG."""

    def __init__(
        self, topic: str, folder: Path, drain: Any, send: Any, cluster: KafkaCluster
    ) -> None:
        self.topic = topic
        self.pipeline = Pipeline(
            name="sealed", topics=[topic], archive=str(folder), partition_by=["topic"]
        )
        self.archive = Archive.at(str(folder))
        self.cluster = cluster
        self._drain = drain
        self._send = send
        self.sent = 0

    def more(self, number: int = 10) -> dict[str, Any]:
        """Send records to both partitions and drain them."""
        for partition in (0, 1):
            self._send(self.topic, records(self.sent, number), partition=partition)
        self.sent += number
        return dict(self._drain(self.pipeline))

    def validate(self, **options: Any) -> Report:
        """Validate and seal."""
        return validate_archive(self.archive, self.cluster, **options)

    def sealed(self, batches: int) -> Drained:
        """Drain and seal the given number of batches."""
        for _ in range(batches):
            self.more()
            assert errors(self.validate(scope="open").findings) == []
        return self

    @property
    def receipts(self) -> Path:
        return Path(str(self.archive.generation(1).folder)) / "receipts"


@pytest.fixture
def drained(
    make_topic: Any, tmp_path: Path, drain: Any, send: Any, cluster: KafkaCluster
) -> Drained:
    """A topic and its archive, before the first drain."""
    return Drained(make_topic(partitions=2), tmp_path / "archive", drain, send, cluster)


def found(report: Report) -> dict[str, int]:
    return summary(report.findings)


def test_validate_seals_each_batch(drained: Drained) -> None:
    """Each batch gets one receipt with what was drained, chained to the previous one."""
    drained.sealed(2)

    first, second = drained.archive.generation(1).receipts()

    assert (first.previous, second.previous) == (None, first.sha256)
    assert [(p.range.start, p.range.end, p.records) for p in second.partitions] == [
        (10, 20, 10),
        (10, 20, 10),
    ]
    [p0, _] = second.partitions
    assert (p0.first, p0.last, p0.first_timestamp, p0.last_timestamp) == (
        10,
        19,
        NOON + 10,
        NOON + 19,
    )
    assert p0.kafka is not None
    assert (p0.kafka.earliest, p0.kafka.last_stable, p0.kafka.high_watermark) == (0, 20, 20)
    assert (p0.start_so_far, p0.records_so_far) == (0, 20)
    assert second.files_so_far.files == len(first.files) + len(second.files) == 4
    assert first.fingerprint
    assert first.fingerprint != second.fingerprint
    assert dict(first.topics) == drained.archive.snapshot().document.topics
    assert all((drained.archive.root / file.path).is_file() for file in second.files)


def test_validate_again_changes_nothing(drained: Drained) -> None:
    """Sealed content doesn't change; a run with nothing new writes no receipt."""
    drained.sealed(2)
    before = {path.name: path.read_bytes() for path in drained.receipts.iterdir()}

    assert drained.more(number=0)["batches"] == 0
    report = drained.validate()

    assert before == {path.name: path.read_bytes() for path in drained.receipts.iterdir()}
    assert (report.receipts, report.receipts_written) == (2, 0)
    assert (report.complete, report.records, report.offsets, report.files) == (True, 40, 40, 4)


def test_validate_unsealed_older_batches(drained: Drained) -> None:
    """Batches that Spark has purged are sealed as one, up to the first that it still has."""
    for _ in range(3):
        drained.more()
    checkpoint = drained.archive.generation(1).checkpoint
    for name in ("0", "1"):
        for folder in ("offsets", "commits"):
            (checkpoint / folder / name).unlink()

    report = drained.validate()

    assert report.complete
    [receipt] = drained.archive.generation(1).receipts()
    assert (receipt.first_batch, receipt.last_batch) == (0, 2)
    assert "batches 0 to 2 were proven as one" in "\n".join(report_lines(report))


@pytest.mark.parametrize("position", [0, 20, -1, -20, -76])
@pytest.mark.parametrize("name", ["000000000000.json", "000000000002.json"])
def test_validate_receipt_changed(drained_thrice: Drained, name: str, position: int) -> None:
    """One changed byte in any receipt, including the newest, is found."""
    path = drained_thrice.receipts / name
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    try:
        report = drained_thrice.validate()
    finally:
        content[position] ^= 1
        path.write_bytes(content)

    assert found(report)["receipt_corrupt"] == 1
    where = [f.where for f in report.findings if str(f.reason) == "receipt_corrupt"]
    assert where == [f"generations/0001/receipts/{name}"]
    assert report.receipts_written == 0


@pytest.fixture(scope="module")
def built() -> dict[str, Drained]:
    """The shared archive of the tests that don't change it."""
    return {}


@pytest.fixture
def drained_thrice(
    built: dict[str, Drained],
    make_topic: Any,
    tmp_path_factory: pytest.TempPathFactory,
    drain: Any,
    send: Any,
    cluster: KafkaCluster,
) -> Drained:
    """An archive of three sealed batches; no test changes it permanently."""
    if not built:
        folder = tmp_path_factory.mktemp("thrice") / "archive"
        topic = make_topic(partitions=2)
        built["it"] = Drained(topic, folder, drain, send, cluster).sealed(3)
    return built["it"]


def copied(drained: Drained, folder: Path) -> Archive:
    shutil.copytree(str(drained.archive.root), folder)
    return Archive.at(str(folder))


def test_validate_receipt_gone(drained_thrice: Drained, tmp_path: Path) -> None:
    """A receipt missing between two others is named by its successor."""
    archive = copied(drained_thrice, tmp_path / "copy")
    (archive.generation(1).folder / "receipts" / "000000000001.json").unlink()

    report = validate_archive(archive, drained_thrice.cluster)

    assert found(report)["receipt_hole"] == 1
    assert not report.complete


def test_validate_moved_and_republish(
    drained_thrice: Drained, tmp_path: Path, make_topic: Any, read: Any, republish: Any
) -> None:
    """An archive moved to another folder validates and republishes unchanged."""
    archive = copied(drained_thrice, tmp_path / "another place" / "copy")
    target = make_topic(partitions=2)

    report = validate_archive(archive, drained_thrice.cluster, deep=True)
    republish(archive, target)

    assert report.findings == []
    assert report.records == 60
    assert read(target) == read(drained_thrice.topic)


def test_drain_moved(drained_thrice: Drained, tmp_path: Path, drain: Any) -> None:
    """Draining to a moved archive is refused; a roll sets the next generation's start."""
    archive = copied(drained_thrice, tmp_path / "copy")
    pipeline = drained_thrice.pipeline.model_copy(update={"archive": str(archive.root)})

    with pytest.raises(CheckpointError, match=r"was moved.*kafka-drain roll"):
        drain(pipeline)

    roll(plan_roll(archive, drained_thrice.cluster))
    assert drain(pipeline)["offsets"] == 0
    generation = archive.snapshot().open_generation
    assert generation is not None
    assert (generation.number, generation.read_document().reason) == (2, "archive was moved")


def test_validate_data_byte_changed(drained_thrice: Drained, tmp_path: Path) -> None:
    """One changed byte in any data file is found only when all bytes are read."""
    for number, file in enumerate(committed_files(drained_thrice.archive)):
        archive = copied(drained_thrice, tmp_path / str(number))
        relative = Path(file["path"]).relative_to(str(drained_thrice.archive.root))
        path = Path(str(archive.root)) / relative
        content = bytearray(path.read_bytes())
        content[len(content) * number // 6] ^= 0x10
        path.write_bytes(content)

        assert found(validate_archive(archive, drained_thrice.cluster)) == {}
        report = validate_archive(archive, drained_thrice.cluster, deep=True)

        assert found(report)["file_changed"] == 1
        assert {str(gap.reason) for gap in report.gaps} == {"lost"}


def test_repair_file_deleted(
    drained: Drained, repair: Any, read: Any, make_topic: Any, republish: Any
) -> None:
    """A deleted file whose records Kafka still holds is lost; a window restores them."""
    drained.sealed(2)
    deleted = Path(committed_files(drained.archive)[1]["path"])
    deleted.unlink()
    before = drained.validate()
    assert found(before) == {"file_missing": 1, "offset_missing": 1}
    assert {str(gap.reason) for gap in before.gaps} == {"lost"}

    receipt = repair(drained.archive, drained.pipeline)

    after = drained.validate()
    assert found(after) == {"file_replaced": 1}
    assert (after.complete, after.records) == (True, 40)
    assert receipt.replaces == (str(deleted.relative_to(str(drained.archive.root))),)
    target = make_topic(partitions=2)
    republish(drained.archive, target)
    assert read(target) == read(drained.topic)
    paths = [file["path"] for file in committed_files(drained.archive)]
    assert str(deleted) not in paths
    assert drained.sealed(1).validate().complete


def test_repair_expired_file(drained: Drained, repair: Any, bootstrap_servers: str) -> None:
    """Of two lost files, the expired one is left; once restored, every record is there once."""
    from confluent_kafka import TopicPartition as KafkaTopicPartition
    from confluent_kafka.admin import AdminClient

    drained.sealed(2)
    root = Path(str(drained.archive.root))
    expired, lost = (
        next(root / file.path for file in receipt.files if file.contents[0].tp.partition == 0)
        for receipt in drained.archive.generation(1).receipts()
    )
    copy = expired.read_bytes()
    expired.unlink()
    lost.unlink()
    gone = KafkaTopicPartition(drained.topic, 0, 5)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_records([gone])[gone].result(20)

    receipt = repair(drained.archive, drained.pipeline)

    assert receipt.replaces == (str(lost.relative_to(root)),)
    assert found(drained.validate())["file_missing"] == 1
    expired.write_bytes(copy)
    assert drained.validate().complete
    assert set(offsets_in_files(drained.archive).values()) == {1}


def test_repair_unsealed_batch(drained: Drained, repair: Any) -> None:
    """A file lost before its batch was sealed is also repaired, and then sealed."""
    drained.more()
    Path(committed_files(drained.archive)[0]["path"]).unlink()
    assert drained.validate().receipts_written == 0

    repair(drained.archive, drained.pipeline)

    report = drained.validate()
    assert report.complete
    assert report.receipts_written == 1
    [receipt] = drained.archive.generation(1).receipts()
    gaps = {str(reason): rs for p in receipt.partitions for reason, rs in p.gaps.items()}
    assert list(gaps) == ["window"]
    assert drained.sealed(1).validate().complete


def test_roll(drained: Drained, make_topic: Any, read: Any, republish: Any) -> None:
    """The next generation resumes at the exact offset; readers see both, each offset once."""
    drained.sealed(2)

    roll(plan_roll(drained.archive, drained.cluster))
    drained.sealed(2)

    report = drained.validate()
    assert (report.complete, report.records, report.offsets) == (True, 80, 80)
    assert [row["start"] for row in report.partitions()] == [0, 0]
    first, second = drained.archive.snapshot().generations
    newest = first.last_receipt()
    assert newest is not None
    assert next(iter(second.receipts())).previous == newest.sha256
    assert second.starting_offsets == newest.ends
    target = make_topic(partitions=2)
    republish(drained.archive, target)
    assert read(target) == read(drained.topic)


def test_roll_unsealed(drained: Drained) -> None:
    """A generation with unsealed batches is validated first."""
    drained.sealed(1).more()

    with pytest.raises(CheckpointError, match="kafka-drain validate"):
        plan_roll(drained.archive, drained.cluster)


def test_drain_checkpoint_older_than_receipts(drained: Drained, tmp_path: Path) -> None:
    """If checkpoint and manifest are from an older copy, the receipts reveal it."""
    drained.sealed(1)
    copy = copied(drained, tmp_path / "older")
    drained.sealed(1)
    for name in ("checkpoint", "data/_spark_metadata"):
        folder = Path(str(drained.archive.generation(1).folder / name))
        shutil.rmtree(folder)
        shutil.copytree(Path(str(copy.generation(1).folder / name)), folder)

    with pytest.raises(CheckpointError, match=r"checkpoint_behind.*kafka-drain roll"):
        drained.more()

    roll(plan_roll(drained.archive, drained.cluster))
    # Records sent before the refusal are drained now.
    assert drained.more()["offsets"] == 40
    report = drained.validate()
    assert (report.complete, report.records, report.offsets) == (True, 80, 80)


@pytest.mark.parametrize("cut", ["header", "gone", "line"])
def test_repair_manifest(drained: Drained, cluster: KafkaCluster, spark: Any, cut: str) -> None:
    """A manifest that lost lines is refused by preflight, and rebuilt from the receipts."""
    drained.sealed(2)
    folder = Path(str(drained.archive.generation(1).data)) / "_spark_metadata"
    if cut == "gone":
        shutil.rmtree(folder)
    else:
        (folder / ".0.crc").unlink()
        kept = 1 if cut == "header" else 2
        lines = (folder / "0").read_text().split("\n")
        (folder / "0").write_text("\n".join(lines[:kept]))
    with pytest.raises(CheckpointError, match=r"manifest_(missing|truncated).*kafka-drain repair"):
        drained.more()
    report = drained.validate()
    assert not report.complete

    from kafka_drain.windows.repair import repair_manifest
    from kafka_drain.windows.repair_plan import plan_repair

    plan = plan_repair(drained.archive, report)
    assert repair_manifest(plan) == 4

    assert drained.sealed(1).validate().complete
    read_by_spark = spark.read.parquet(str(drained.archive.generation(1).data))
    assert read_by_spark.count() == drained.sent * 2


def test_files_damaged_receipt(drained_thrice: Drained, tmp_path: Path) -> None:
    """A list of files that may be incomplete isn't returned."""
    archive = copied(drained_thrice, tmp_path / "copy")
    path = archive.generation(1).folder / "receipts" / "000000000001.json"
    path.write_text(path.read_text().replace('"records":10', '"records":11', 1))

    with pytest.raises(ManifestInvalidError, match="a receipt is damaged"):
        committed_files(archive)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "json"])
def test_fingerprint(
    drained: Drained, file_format: str, cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Spark's hash of the records read from Kafka equals Python's hash of the files."""
    drained.pipeline = Pipeline(
        name="sealed",
        topics=[drained.topic],
        archive=str(tmp_path / "archive"),
        format=file_format,
        partition_by=["topic"] if file_format != "json" else [],
    )
    drained.more(30)
    drained.more(5)

    assert found(drained.validate()) == {}
    assert found(drained.validate(deep=True)) == {}

    generation = drained.archive.generation(1)
    receipts = list(generation.receipts())
    assert len({receipt.fingerprint for receipt in receipts}) == 2
    # As if a file had been written with other records than were read, and then been sealed.
    other = replace(receipts[1], fingerprint="0" * 16)
    path = generation.folder / "receipts" / other.name
    path.write_bytes(other.to_bytes())
    assert found(drained.validate(deep=True)) == {"content_changed": 1, "receipt_changed": 1}


def test_commands_repair_and_roll(drained: Drained, bootstrap_servers: str) -> None:
    """On the command line: one command restores a lost file, and one closes a generation."""
    drained.sealed(2)
    archive = drained.archive.root
    kafka = ("--bootstrap-servers", bootstrap_servers)
    Path(committed_files(drained.archive)[0]["path"]).unlink()

    assert kafka_drain("validate", archive, *kafka).code == 1
    planned = kafka_drain("repair", archive, *kafka)
    repaired = kafka_drain("repair", archive, *kafka, "--master", "local[2]", "--apply", "--json")
    rolled = kafka_drain("roll", archive, *kafka, "--json")

    assert planned.code == 1
    assert "drains 10 lost offsets" in planned.err
    assert "dry run: nothing was changed; pass --apply to carry it out" in planned.err
    assert repaired.code == 0, repaired.err[-2000:]
    assert json.loads(repaired.out)["reasons"] == {"file_replaced": 1}
    assert kafka_drain("validate", archive, *kafka, "--deep").code == 0
    assert (rolled.code, json.loads(rolled.out)["opened"]) == (0, 2)
    assert not list(Path(str(archive)).glob("lock.json"))


def test_commands_repair_receipts(drained: Drained, bootstrap_servers: str) -> None:
    """On the command line: after a power cut the newest receipt is empty; one command repairs it.

    A receipt that was never referenced is sealed again, others are restored; drains continue.
    """
    drained.sealed(2)
    archive, receipts = drained.archive.root, drained.receipts
    kafka = ("--bootstrap-servers", bootstrap_servers)
    sealed = (receipts / "000000000001.json").read_bytes()
    drained.more()
    (receipts / "000000000002.json").write_bytes(b"")
    (receipts / "000000000001.json").write_bytes(b"")
    for command in ("validate", "roll"):
        refused = [kafka_drain(command, archive, *kafka) for _ in range(2)]
        assert [each.code != 0 for each in refused] == [True, True]
        assert all("receipt_corrupt" in each.out + each.err for each in refused)
    with pytest.raises(CheckpointError, match=r"receipt_corrupt.*kafka-drain repair"):
        drained.more()

    repaired = kafka_drain("repair", archive, *kafka, "--apply", "--json")

    assert repaired.code == 0, repaired.err[-2000:]
    assert json.loads(repaired.out)["reasons"] == {}
    assert (receipts / "000000000001.json").read_bytes() == sealed
    assert len(list(receipts.glob("*.torn-*"))) == 2
    third = drained.archive.generation(1).read_receipt("000000000002.json")
    assert third.records == 20
    assert drained.sealed(1).validate(deep=True).complete
    assert drained.validate().receipts_written == 0


def test_receipt_is_json(drained_thrice: Drained) -> None:
    """Any tool can read a receipt and check its hash without this package."""
    import hashlib

    for path in sorted(drained_thrice.receipts.iterdir()):
        content = path.read_bytes()
        document = json.loads(content)
        body = content[: content.rindex(b',"sha256":')]
        assert document["sha256"] == hashlib.sha256(body).hexdigest()

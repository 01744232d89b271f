"""What a dry run accepts, the run carries out: on Kafka 4 as it is delivered.

A target cluster has other limits than the source, and doesn't know each of its settings.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.clock import utc_now
from kafka_drain.errors import ArchiveError, TopicError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_state import TopicState
from kafka_drain.kafka.fitting import fit
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.recovery.recovery import _refused
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.run import Republish, plan_republish
from tests.brokers import SHORT_LIVED
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration

LIMIT = 1_048_588
NOISE = random.Random(1).randbytes(LIMIT + 12)
BIG = TopicPartition("big", 0)
#: A setting each that Kafka 4 doesn't take as it is.
OLD = {
    "segment.bytes": "524288",
    "message.format.version": "3.0",
    "message.timestamp.difference.max.ms": "9223372036854775807",
    "confluent.tier.enable": "false",
    "redpanda.remote.read": "true",
    "remote.storage.enable": "true",
    "leader.replication.throttled.replicas": "0:1",
    "min.insync.replicas": "2",
    "retention.ms": "-1",
}


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker with Kafka's own limit."""
    folder = tmp_path_factory.mktemp("delivered") / "kafka"
    properties = {"message.max.bytes": str(LIMIT), "auto.create.topics.enable": "true"}
    with LocalKafka(folder, properties=properties, java_options=SHORT_LIVED) as local:
        yield KafkaCluster(KafkaConfig({"bootstrap.servers": local.bootstrap_servers}))


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of topic big; the source takes 16 MiB, and has settings of another age."""
    made = MadeArchive(tmp_path / "archive", {"big": "1"})
    write_topic_settings(made.root, {"big": TopicSettings(1, 3, 16 << 20, OLD)})
    return made


def planned(made: MadeArchive, cluster: KafkaCluster, *, apply: bool, **asked: Any) -> Republish:
    request = RepublishRequest(engine="worker", **asked)
    return plan_republish(made.archive, cluster, request, now=utc_now(), apply=apply)


def create(cluster: KafkaCluster, name: str, **config: str) -> str:
    settings = {"retention.ms": "-1"} | {k.replace("_", "."): v for k, v in config.items()}
    cluster.create_topic(name, TopicSettings(1, 1, config=settings))
    return name


# 423


@pytest.mark.parametrize(
    ("columns", "config", "asked"),
    [
        ({"headers": [{"key": "h", "value": NOISE}]}, {}, {}),
        ({"value": NOISE[: LIMIT - 100]}, {}, {"provenance": True}),
        ({"value": bytes(3 << 19)}, {"compression_type": "uncompressed"}, {}),
    ],
    ids=["header", "provenance", "uncompressed"],
)
def test_dry_run_refuses_large_record(
    made: MadeArchive,
    delivered: KafkaCluster,
    request: pytest.FixtureRequest,
    columns: dict[str, Any],
    config: dict[str, str],
    asked: dict[str, Any],
) -> None:
    """The dry run names file and offset of a record that Kafka would refuse; another one fits."""
    made.seal_window("a", {BIG: dense(0, 100)})
    made.seal_window("b", {BIG: dense(100, 101)}, columns=columns)
    name = create(delivered, f"to-{request.node.callspec.id}", **config)

    with pytest.raises(
        TopicError, match=r"max\.message\.bytes=1048588, the record at offset 100 in windows/b/"
    ):
        planned(made, delivered, apply=False, target_topic=name, **asked)

    from tests.faults.republishing import alter_topic

    alter_topic(delivered.config.bootstrap_servers, name, "max.message.bytes", str(2 << 20))
    assert planned(made, delivered, apply=False, target_topic=name, **asked).plan.records == 101


# 424, 425, 426


def test_create_target_fits(made: MadeArchive, delivered: KafkaCluster, republish_to: Any) -> None:
    """A topic is created with what its records need and what the target takes, and all arrive."""
    made.seal_window("a", {BIG: dense(0, 3)})
    made.seal_window("b", {BIG: dense(3, 4)}, columns={"value": NOISE})

    dry = planned(made, delivered, apply=False, target_topic="fits", create_target=True)
    assert not delivered.has_topic("fits")
    receipt = republish_to(
        planned(made, delivered, apply=True, target_topic="fits", create_target=True)
    )

    assert receipt["verification"]["is_exact"]
    notes = "\n".join(dry.plan.notes)
    for said in (
        "the source has 3, the target 1 brokers",
        "would refuse the record at offset 3 in windows/b/",
        "segment.bytes=524288: raised, segment.bytes=1048576",
        "message.format.version=3.0: left out",
        "message.timestamp.difference.max.ms=9223372036854775807: translated, "
        "message.timestamp.before.max.ms",
        "confluent.tier.enable=false: left out",
        "redpanda.remote.read=true: left out",
        "remote.storage.enable=true: left out",
        "leader.replication.throttled.replicas=0:1: never copied",
        "min.insync.replicas=2: lowered, min.insync.replicas=1",
        "retention.ms=-1: kept",
    ):
        assert said in notes, notes
    config = delivered.topic_settings("fits").config
    # What the target takes at least isn't enough for the largest record.
    assert int(config["segment.bytes"]) > len(NOISE)
    assert int(config["max.message.bytes"]) > len(NOISE)
    assert not any("throttled" in setting for setting in config)


def test_recovery_fits(delivered: KafkaCluster) -> None:
    """A recovery asks the target the same, and what it plans can be created."""
    refused = _refused(delivered, TopicState("recovered", "1", 1, 3, OLD, {}))
    fitted = fit(OLD, refused, replicas=1)

    assert {each.name: str(each.fate) for each in fitted} == {
        "segment.bytes": "raised",
        "message.format.version": "left out",
        "message.timestamp.difference.max.ms": "translated",
        "confluent.tier.enable": "left out",
        "redpanda.remote.read": "left out",
        "remote.storage.enable": "left out",
        "leader.replication.throttled.replicas": "never copied",
        "min.insync.replicas": "lowered",
        "retention.ms": "kept",
    }
    assert not delivered.has_topic("recovered")


def test_create_target_not_writable(
    made: MadeArchive, delivered: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No topic is created for an archive that can't be written."""
    made.seal_window("a", {BIG: dense(0, 3)})
    made.archive.identify()

    def refuse(self: RepublishRun) -> None:
        raise ArchiveError("read-only")

    monkeypatch.setattr(RepublishRun, "require_writable", refuse)
    with pytest.raises(ArchiveError):
        planned(made, delivered, apply=True, target_topic="unwritten", create_target=True)

    assert not delivered.has_topic("unwritten")


def test_create_target_removed_again(
    made: MadeArchive, delivered: KafkaCluster, republish_to: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of a run that fails before it opens is removed; the same run then succeeds."""
    from kafka_drain.republish import run as republishing

    made.seal_window("a", {BIG: dense(0, 3)})
    asked = {"target_topic": "again", "create_target": True}

    def fail(*_: Any) -> int:
        raise TopicError("no opening")

    with monkeypatch.context() as patch:
        patch.setattr(republishing, "open_run", fail)
        run = planned(made, delivered, apply=True, **asked)
        assert delivered.has_topic("again")
        with pytest.raises(TopicError, match="no opening"):
            republish_to(run)

    assert not delivered.has_topic("again")
    assert republish_to(planned(made, delivered, apply=True, **asked))["verification"]["is_exact"]


@pytest.fixture
def republish_to(made: MadeArchive, delivered: KafkaCluster) -> Any:
    """Carry out a planned republish in this process."""
    from kafka_drain.config.pipeline import Pipeline
    from kafka_drain.republish.engines.select import Engines

    def run(republish: Republish) -> dict[str, Any]:
        pipeline = Pipeline(name="none", topics=["none"], archive="/none")
        engines = Engines(str(made.root), delivered, pipeline, Path("/nowhere"), print, 1)
        return republish.execute(engines, utc_now)

    return run


def test_require_writable(tmp_path: Path, made: MadeArchive) -> None:
    """A run's folder is tried by writing to it; nothing stays."""
    run = RepublishRun(made.root, "r")

    run.require_writable()

    assert list(Path(str(run.folder)).iterdir()) == []
    Path(str(run.folder)).rmdir()
    Path(str(run.folder)).write_text("a file in its place")
    with pytest.raises(ArchiveError, match="can't be written"):
        run.require_writable()

"""Republish with Spark, the caller's side: what is written for the driver, and what it answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive import keys
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError, SourceRecordError, SparkJobError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.topics import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES, REQUEST_OVERHEAD
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing.change import Change
from kafka_drain.republish.changing.spec import ChangeRequest, ChangeSpec
from kafka_drain.republish.engines import spark
from kafka_drain.republish.engines.spark import (
    BATCH_BYTES,
    RepublishJob,
    prepare_send,
    prepare_sink,
)
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.sending.shard_sender import SendJob
from kafka_drain.spark.job_spec import HASH_KEY, SendSpec, SinkSpec
from kafka_drain.spark.submit import SparkApplication
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.republish.planning.test_plan import FILES, PLAN
from tests.kafka_drain.republish.sending.test_shard_sender import job as send_job

PASSWORD, KEY = "hunter2-of-kafka", b"pseudonyms' key!"
SASL = {
    "bootstrap.servers": "a:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "drain",
    "sasl.password": PASSWORD,
}
JOBS = [
    send_job(settings=SASL, change=Change(ChangeSpec(ChangeRequest()), key=KEY)),
    send_job(settings=SASL, shards=PLAN.shards[:1]),
]
GONE: Any = FakeCluster(
    {TopicPartition("copy", 0): Log(), TopicPartition("other", 0): Log()},
    topic_ids={"copy": "again", "other": "id2"},
)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the application is made of."""
    given: dict[str, Any] = {}

    def prepare(name: str, **how: Any) -> SparkApplication:
        given.update(how, name=name)
        return fake_application(name, **how)

    monkeypatch.setattr(spark, "prepare_application", prepare)
    return given


def pipeline(folder: Path) -> Pipeline:
    return Pipeline(
        name="p", topics=["t"], archive=str(folder), log_levels={"kafka-clients": "ERROR"}
    )


def assert_watched(job: RepublishJob, plan: RepublishPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that is deleted meanwhile ends the job, by the name of the run."""
    monkeypatch.setattr("kafka_drain.kafka.topic_watch.CONFIRM_SECONDS", 0)
    watch = job.watch()
    assert dict(watch.meant) == {"copy": "id", "other": "id2"}
    missed = str(watch.look())
    assert "topic copy was deleted" in missed
    assert f"while run {plan.key} was sending" in missed


def test_prepare_send_keeps_secrets(
    tmp_path: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec has all of the jobs but their secrets, which are in a file of their own."""
    plan = replace(PLAN, engine="spark")

    job = prepare_send(plan, [JOBS[:1], JOBS[1:]], pipeline(tmp_path), GONE, tmp_path)

    spec = SendSpec.read(given["spec_path"])
    text = given["spec_path"].read_text()
    assert PASSWORD not in text
    assert KEY.hex() not in text
    assert json.loads(Path(spec.secrets_path).read_text()) == {**SASL, HASH_KEY: KEY.hex()}
    assert Path(spec.secrets_path).stat().st_mode & 0o777 == 0o600
    # With the secrets back, they are the jobs that were planned.
    [[first], [second]] = spec.groups
    first = {**first, "settings": SASL, "change": {**first["change"], "key": KEY.hex()}}
    assert SendJob.from_dict(first) == JOBS[0]
    assert SendJob.from_dict({**second, "settings": SASL}) == JOBS[1]
    assert (spec.run, spec.records) == (plan.pipeline, plan.records)
    assert spec.log_levels == pipeline(tmp_path).log_levels
    assert spec.result_path == str(job.result_path)
    assert (given["name"], given["kind"]) == ("republish_p", "send")
    assert given["needs_connector"] is False
    # Two attempts of a task would fence each other; an executor's memory is bounded as ours is.
    assert given["fixed"]["spark.speculation"] == "false"
    assert given["fixed"].items() >= {
        (f"spark.executorEnv.{name}", value) for name, value in spark.ALLOCATION.items()
    }
    assert_watched(job, plan, monkeypatch)


def test_prepare_send_without_key(tmp_path: Path, given: dict[str, Any]) -> None:
    """Nothing stands in for a key that no pseudonym needs."""
    keyless = [
        send_job(settings=SASL),
        send_job(settings=SASL, change=Change(ChangeSpec(ChangeRequest()))),
    ]
    for one in keyless:
        prepare_send(PLAN, [[one]], pipeline(tmp_path), GONE, tmp_path)

        spec = SendSpec.read(given["spec_path"])
        assert json.loads(Path(spec.secrets_path).read_text()) == SASL


@pytest.mark.parametrize(
    ("limits", "batch", "asked"),
    [
        ((None, None), MAX_MESSAGE_BYTES // 2, MAX_MESSAGE_BYTES),
        ((100_000, None), 50_000, MAX_MESSAGE_BYTES),
        ((None, 100_000), 50_000, MAX_MESSAGE_BYTES),
        ((100_000, 200_000), 50_000, MAX_REQUEST_BYTES),
        ((9_000_000, 5_000_000), BATCH_BYTES, 9_000_000),
        ((5_000_000, 9_000_000), BATCH_BYTES, 9_000_000),
    ],
)
def test_prepare_sink(
    tmp_path: Path,
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int | None, int | None],
    batch: int,
    asked: int,
) -> None:
    """No batch is split, by the smallest limit, and no record refused, by the largest."""
    configs = [{"max.message.bytes": str(limit)} if limit else {} for limit in limits]
    cluster: Any = FakeCluster(
        GONE.logs,
        topic_ids=GONE.topic_ids,
        configs=dict(zip(("copy", "other"), configs, strict=True)),
    )
    cluster.config = KafkaConfig(SASL)
    monkeypatch.setattr(keys, "is_encrypted", lambda _: False)
    paths = ["topics/a/data/1", "topics/b/data/2", "windows/a/data/3"]
    files = [replace(FILES[0], path=path) for path in paths]
    shards = (
        replace(PLAN.shards[0], files=(files[1], files[0])),
        replace(PLAN.shards[1], files=(files[0], files[2])),
        replace(PLAN.shards[1], source=TopicPartition("u", 3), number=2, files=()),
    )
    plan = replace(PLAN, shards=shards)

    job = prepare_sink(plan, str(tmp_path), pipeline(tmp_path), cluster, tmp_path)

    spec = SinkSpec.read(given["spec_path"])
    assert PASSWORD not in given["spec_path"].read_text()
    assert PASSWORD in Path(spec.secrets_path).read_text()
    assert spec.writer_options["kafka.bootstrap.servers"] == "a:1"
    assert spec.writer_options["kafka.batch.size"] == str(min(batch, BATCH_BYTES))
    assert spec.writer_options["kafka.max.request.size"] == str(asked + REQUEST_OVERHEAD)
    root = str(tmp_path)
    assert spec.sources == [
        {
            "data_folder": f"{root}/{folder}/data",
            "file_format": "parquet",
            "files": [f"{root}/{folder}/data/{name}"],
        }
        for folder, name in (("topics/a", 1), ("topics/b", 2), ("windows/a", 3))
    ]
    assert spec.targets == {"t": "other", "u": "other"}
    assert spec.partitions == ["t-0", "t-1", "u-3"]
    assert (spec.run, spec.records) == (plan.pipeline, plan.records)
    assert spec.log_levels == pipeline(tmp_path).log_levels
    assert spec.result_path == str(job.result_path)
    assert (given["name"], given["kind"]) == ("republish_p", "sink")
    assert given.get("needs_connector", True)
    assert given["fixed"] == {"spark.speculation": "false"}
    assert_watched(job, plan, monkeypatch)


def test_prepare_sink_encrypted(
    tmp_path: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's sink can't open encrypted files: nothing is prepared."""
    monkeypatch.setattr(keys, "is_encrypted", lambda root: str(root) == str(tmp_path))

    with pytest.raises(ConfigError, match="has encrypted files, which Spark's Kafka sink isn't"):
        prepare_sink(PLAN, str(tmp_path), pipeline(tmp_path), GONE, tmp_path)

    assert given == {}


def test_republish_job_result(tmp_path: Path) -> None:
    """A shard's error is raised as what it is; a job without a result has failed."""
    path = tmp_path / "result.json"
    watch: Any = None
    job = RepublishJob(fake_application("r"), path, watch)
    with pytest.raises(SparkJobError, match="republish"):
        job.result()

    path.write_text(json.dumps({"shard_error": "SourceRecordError", "message": "t-0, offset 3"}))
    with pytest.raises(SourceRecordError, match="t-0, offset 3"):
        job.result()

    path.write_text(json.dumps({"records": 3}))
    assert job.result() == {"records": 3}

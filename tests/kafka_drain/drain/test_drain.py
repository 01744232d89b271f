"""What a drain hands to Spark: option names, resolved offsets, and where secrets are."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.journal.identity import note_of_settings
from kafka_drain.archive.soundness import check_sealed_state
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.sink_options import partition_columns, writer_defaults
from kafka_drain.config.source_options import whole_pattern
from kafka_drain.drain import drain as draining
from kafka_drain.drain.drain import (
    DrainJob,
    check_beside_query,
    compile_spec,
    open_drain,
    prepare_drain,
    run_drain,
)
from kafka_drain.drain.preflight import DrainPlan, preflight
from kafka_drain.errors import (
    ArchiveError,
    CheckpointError,
    ConfigError,
    DataLossError,
    KafkaDrainError,
    LockedError,
    SparkJobError,
    TopicError,
)
from kafka_drain.findings import errors
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster, Topic
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.content_checks import Tally
from kafka_drain.proof.fingerprints import noted_content
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.topic_ids import ReadFrom, read_from, write_read_from
from kafka_drain.schemas.decoding import ValuePlan
from kafka_drain.spark.cluster_manager import NoAnswerError
from kafka_drain.spark.engine import StartedApplication, StillRunningError
from kafka_drain.spark.job_spec import DrainSpec
from kafka_drain.spark.submit import for_master
from kafka_drain.storage.lease import Lease, find_lease
from kafka_drain.storage.paths import locate
from tests.forks import kill_points, run_forked
from tests.integration.killed_steps import kill_at_change
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.golden import (
    END,
    P0,
    P1,
    add_batch,
    golden_cluster,
    golden_copy,
    golden_pipeline,
    open_next,
    seal,
    sealed_copy,
)

A0 = TopicPartition("a", 0)
SECURED = {
    "bootstrap.servers": "broker:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "archiver",
    "sasl.password": "s3cr3t-pass",
}


def first_plan(root: object, **more: Any) -> DrainPlan:
    """Return the plan of a first drain of topic a, from 3 on."""
    given: dict[str, Any] = {
        "pipeline": Pipeline(name="p", topics=["a"], archive=str(root)),
        "archive": Archive.at(str(root)),
        "snapshot": None,
        "generation": None,
        "cluster_id": "c",
        "topics": {},
        "starting_offsets": {A0: 3},
        "start": {A0: 3},
        "end": {A0: 9},
    }
    return DrainPlan(**(given | more))


def spec_of(pipeline: Pipeline, folder: Path, settings: dict[str, str]) -> DrainSpec:
    """Compile the spec of a first drain of topic a."""
    plan = first_plan(pipeline.archive, pipeline=pipeline)
    cluster = KafkaCluster(KafkaConfig(settings))
    return compile_spec(pipeline, plan, plan.archive.generation(1), cluster, folder)


def test_compile_spec_with_defaults(tmp_path: Path) -> None:
    """A plain pipeline becomes Spark's options, with the starting position as numbers."""
    pipeline = Pipeline(name="p", topics=["a", "b"], archive="/x")

    spec = spec_of(pipeline, tmp_path, {"bootstrap.servers": "broker:9092"})

    assert spec.reader_options == {
        "subscribe": "a,b",
        "startingOffsets": '{"a":{"0":3}}',
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.client.id": "kafka-drain-p",
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.records": "20000",
        "kafka.max.partition.fetch.bytes": "4194304",
        "kafka.fetch.max.bytes": "67108864",
        "kafka.fetch.max.wait.ms": "10",
        "kafkaConsumer.pollTimeoutMs": "60000",
        "kafka.auto.include.jmx.reporter": "false",
        "kafka.enable.metrics.push": "false",
        "kafka.allow.auto.create.topics": "false",
    }
    assert spec.writer_options == {
        **writer_defaults("parquet", "zstd"),
        "path": "/x/generations/0001/data",
        "checkpointLocation": "/x/generations/0001/checkpoint",
    }
    assert spec.partition_by == ["topic", "date"]
    assert spec.secrets_path == ""


def test_compile_spec_with_each_option(tmp_path: Path) -> None:
    """Source options reach Spark under their own names; a starting time is a number by then."""
    options = {
        "startingTimestamp": "2026-01-01T00:00:00Z",
        "startingOffsetsByTimestampStrategy": "latest",
        "maxOffsetsPerTrigger": 5,
        "minPartitions": 4,
        "kafkaConsumer.pollTimeoutMs": 1000,
        "fetchOffset.numRetries": 7,
        "groupIdPrefix": "archive-",
        "failOnDataLoss": False,
        "kafka.isolation.level": "read_uncommitted",
    }
    pipeline = Pipeline(name="p", assign={"a": [0]}, archive="/x", source_options=options)

    spec = spec_of(pipeline, tmp_path, {"bootstrap.servers": "broker:9092"})

    assert spec.reader_options["assign"] == '{"a": [0]}'
    assert spec.reader_options["maxOffsetsPerTrigger"] == "5"
    assert spec.reader_options["kafkaConsumer.pollTimeoutMs"] == "1000"
    assert spec.reader_options["failOnDataLoss"] == "false"
    assert spec.reader_options["kafka.isolation.level"] == "read_uncommitted"
    assert spec.reader_options["startingOffsets"] == '{"a":{"0":3}}'
    assert not {"startingTimestamp", "startingOffsetsByTimestampStrategy"} & set(
        spec.reader_options
    )


def test_compile_spec_of_the_pipeline(tmp_path: Path) -> None:
    """Spark's job is told what the pipeline says of files, tasks and logs."""
    pipeline = Pipeline(
        name="p",
        topic_pattern="a|b",
        archive="/x",
        format="orc",
        partition_by=["topic"],
        log_levels={"org.apache.kafka": "ERROR"},
        partitions_per_task=7,
    )

    spec = spec_of(pipeline, tmp_path, {"bootstrap.servers": "broker:9092"})

    assert (spec.pipeline, spec.archive, spec.file_format) == ("p", "/x", "orc")
    assert spec.partition_by == ["topic"]
    assert spec.columns == partition_columns(["topic"])
    assert spec.log_levels["org.apache.kafka"] == "ERROR"
    assert spec.partitions_per_task == 7
    assert spec.reader_options["subscribePattern"] == whole_pattern("a|b")
    assert (spec.start, spec.planned_end) == ('{"a":{"0":3}}', '{"a":{"0":9}}')
    assert spec.result_path == str(tmp_path / "result.json")


def test_compile_spec_with_secrets(tmp_path: Path) -> None:
    """A password is in a file of mode 0600 and nowhere else."""
    pipeline = Pipeline(name="p", topics=["a"], archive="/x")

    spec = spec_of(pipeline, tmp_path, SECURED)
    spec.write(tmp_path / "drain.json")

    assert "s3cr3t-pass" not in (tmp_path / "drain.json").read_text()
    secrets = Path(spec.secrets_path)
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "drain.json").stat().st_mode) == 0o600
    assert "s3cr3t-pass" in json.loads(secrets.read_text())["kafka.sasl.jaas.config"]
    assert spec.reader_options["kafka.sasl.mechanism"] == "SCRAM-SHA-512"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            # Spark 4.0
            "Job aborted ([KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO] …)",
            DataLossError,
        ),
        (
            # Spark 3.5
            "[STREAM_FAILED] Query [id = 54340a27] terminated with exception: Job aborted due to "
            "stage failure: Task 0 in stage 4.0 failed 1 times … [TASK_WRITE_FAILED] … "
            "(org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position "
            "FetchPosition{offset=110} is out of range for partition t-0)",
            DataLossError,
        ),
        (
            "values.columns can't be converted to columns: [PARSE_SYNTAX_ERROR] …; correct it",
            ConfigError,
        ),
        ("Job aborted: No space left on device", SparkJobError),
        (None, SparkJobError),
    ],
)
def test_finish_drain_failed(
    message: str | None, kind: type[KafkaDrainError], tmp_path: Path
) -> None:
    """What Spark says went wrong decides whether a retry can help."""
    plan = first_plan(tmp_path)
    result = tmp_path / "result.json"
    if message is not None:
        result.write_text(json.dumps({"error": message}))

    with pytest.raises(kind) as raised:
        DrainJob(fake_application("p"), result, plan, ValuePlan(), FakeCluster({})).result()  # type: ignore[arg-type]
    assert type(raised.value) is kind


@pytest.mark.parametrize("error", [{}, {"error": "Job aborted: No space left on device"}])
def test_finish_drain_leaves_what_was_read(error: dict[str, str], tmp_path: Path) -> None:
    """Fault 88: what Spark read is left, also by a drain that failed after some batches."""
    archive = Archive.at(str(tmp_path))
    archive.create(pipeline="p", cluster_id="cluster-1", topic_ids={}, source={"topics": ["a"]})
    generation = archive.generation(1)
    generation.write(
        starting_offsets={A0: 0},
        file_format="parquet",
        partition_by=[],
        topic_ids={"a": "id-of-a"},
        reason="first",
    )
    pipeline = Pipeline(name="p", topics=["a"], archive=str(tmp_path))
    plan = DrainPlan(
        pipeline=pipeline,
        archive=archive,
        snapshot=archive.snapshot(),
        generation=archive.snapshot().open_generation,
        cluster_id="cluster-1",
        topics={},
        starting_offsets={},
        start={},
        end={},
        last_listed=0,
        skipped={A0: [OffsetRange(0, 4)]},
    )
    note = {
        "batch": 1,
        "records": 3,
        "fingerprint": "0" * 15 + "7",
        "by_partition": '{"a":{"0":3}}',
        "start": '{"a":{"0":5}}',
        "end": '{"a":{"0":8}}',
        "skipped": [{"topic": "a", "partition": 0, "start": 0, "end": 4}],
    }
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"notes": [note], **error}))
    job = DrainJob(fake_application("p"), result, plan, ValuePlan(), FakeCluster({A0: Log()}))  # type: ignore[arg-type]

    with pytest.raises(SparkJobError) if error else nullcontext():
        job.result()

    assert noted_content(generation, Segment(0, 0, {A0: OffsetRange(0, 5)})) is None
    found = noted_content(generation, Segment(1, 1, {A0: OffsetRange(5, 8)}))
    assert found is not None
    assert found.taken == Tally(3, "0" * 15 + "7", {A0: 3})
    assert found.skipped == {A0: [OffsetRange(0, 4)]}
    if not error:
        # A roll closed it while this process was suspended: readers get nothing more of it.
        shutil.copytree(tmp_path / "generations/0001", tmp_path / "generations/0002")
        with pytest.raises(LockedError, match=r"0001 was closed while it was being drained"):
            job.result()


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, None),
        ({"topic_ids": {"a": "again"}}, (TopicError, "a has topic id again")),
        ({"id": "cluster-2"}, (ArchiveError, "to Kafka cluster cluster-1 .* to cluster-2 now")),
    ],
    ids=["same", "topic made again", "another cluster"],
)
def test_finish_drain_topics(
    tmp_path: Path, changed: dict[str, Any], refused: tuple[type[Exception], str] | None
) -> None:
    """What Spark read is noted before topics are asked for again; then, up to which batch it was.

    If a topic was made again meanwhile, nothing says that the batches are of the same one; nor if
    the connection leads to another cluster.
    """
    archive = Archive.at(str(tmp_path))
    archive.create(pipeline="p", cluster_id="cluster-1", topic_ids={}, source={"topics": ["a"]})
    generation = archive.generation(1)
    generation.write(
        starting_offsets={A0: 0},
        file_format="parquet",
        partition_by=[],
        topic_ids={"a": "id-of-a"},
        reason="first",
    )
    plan = DrainPlan(
        pipeline=Pipeline(name="p", topics=["a"], archive=str(tmp_path)),
        archive=archive,
        snapshot=archive.snapshot(),
        generation=archive.snapshot().open_generation,
        cluster_id="cluster-1",
        topics={"a": Topic("a", "id-of-a", (0,))},
        starting_offsets={},
        start={},
        end={},
    )
    notes = [
        {
            "batch": batch,
            "records": 3,
            "fingerprint": "0" * 15 + "7",
            "by_partition": '{"a":{"0":3}}',
            "start": f'{{"a":{{"0":{3 * batch}}}}}',
            "end": f'{{"a":{{"0":{3 * batch + 3}}}}}',
            "skipped": [],
        }
        for batch in (4, 3)
    ]
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"notes": notes}))
    cluster: Any = FakeCluster({A0: Log()}, **changed)
    job = DrainJob(fake_application("p"), result, plan, ValuePlan(), cluster)

    with pytest.raises(refused[0], match=refused[1]) if refused else nullcontext():
        job.result()

    for batch in (3, 4):
        segment = Segment(batch, batch, {A0: OffsetRange(3 * batch, 3 * batch + 3)})
        assert noted_content(generation, segment) is not None
    assert read_from(generation) == (None if refused else ReadFrom(4, {"a": "id-of-a"}))


@pytest.mark.parametrize(("last_listed", "first_unlisted"), [(None, 0), (0, 1), (7, 8)])
def test_compile_spec_notes(tmp_path: Path, last_listed: int | None, first_unlisted: int) -> None:
    """Spark's job is told where notes belong, of which batches, and what Kafka had no longer."""
    skipped = {A0: [OffsetRange(0, 4)]}
    plan = first_plan(tmp_path / "archive", last_listed=last_listed, skipped=skipped)

    spec = compile_spec(plan.pipeline, plan, plan.archive.generation(1), FakeCluster({}), tmp_path)  # type: ignore[arg-type]

    assert spec.notes_path == f"{tmp_path}/archive/generations/0001/fingerprints"
    assert spec.first_unlisted == first_unlisted
    assert spec.skipped == [{"topic": "a", "partition": 0, "start": 0, "end": 4}]


@pytest.mark.parametrize("skips", [False, True])
def test_compile_spec_skips_expired(tmp_path: Path, skips: bool) -> None:
    """Spark skips what Kafka has no longer only if somebody has accepted its loss."""
    plan = first_plan("/x", skips_expired=skips)

    spec = compile_spec(plan.pipeline, plan, plan.archive.generation(1), FakeCluster({}), tmp_path)  # type: ignore[arg-type]

    assert spec.reader_options["failOnDataLoss"] == ("false" if skips else "true")


@pytest.mark.parametrize(
    ("master", "failures", "checks"),
    [
        ("sc://h", [], 1),
        ("sc://h", [CheckpointError], 2),
        ("sc://h", [CheckpointError] * 3, 4),
        ("sc://h", [CheckpointError] * 4, None),
        ("sc://h", [DataLossError], None),
        ("local[2]", [], 1),
        ("local[2]", [CheckpointError], None),
    ],
)
def test_check_beside_query(
    master: str, failures: list[type[KafkaDrainError]], checks: int | None
) -> None:
    """What a query on a server was just writing isn't damage; what stays is, and elsewhere too."""
    made: list[int] = []
    job: Any = object()

    def check() -> Any:
        made.append(1)
        if len(made) <= len(failures):
            raise failures[len(made) - 1]("damaged")
        return job

    with for_master(master):
        if checks is None:
            with pytest.raises(failures[0]):
                check_beside_query(check, pause=0)
        else:
            assert check_beside_query(check, pause=0) is job
            assert len(made) == checks


# a drain whose driver outlived the process that submitted it


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opens the first drain of an archive; anything that runs is what `find` says."""
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    cluster: Any = FakeCluster({A0: Log(end=10)})
    pipeline = Pipeline(name="p", topics=["a"], archive=str(tmp_path / "archive"))

    def start(find: Any, **more: Any) -> Any:
        return open_drain(pipeline, cluster, tmp_path, run="r", find=find, **more)

    return start


def test_open_drain_shares_lease(first: Any, tmp_path: Path, said: list[str]) -> None:
    """A drain that is followed shares the lease of its driver, which another process can't take."""
    root = locate(tmp_path / "archive")
    driver = Lease(root, run="killed")
    driver.acquire()
    with pytest.raises(LockedError), first(lambda _: None):
        pass

    with first(lambda _: StartedApplication("a_1", {str(root): driver.token})) as job:
        driver.renew()

        assert job.is_found
        assert not job.nothing_to_run
        assert job.application.leases == {str(root): driver.token}

    assert said == []
    assert find_lease(root) is None


def test_open_drain_of_its_own(first: Any, tmp_path: Path) -> None:
    """A drain that is submitted hands its own lease to its driver."""
    root = locate(tmp_path / "archive")

    with first(lambda _: None) as job:
        lease = find_lease(root)

        assert lease is not None
        assert job.application.leases == {str(root): lease.token}
        assert not job.is_found


def test_open_drain_spec(first: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver reads what is known last, too: how to poll, and the keys to encrypt with."""
    keys = {"key": "0123456789abcdef"}
    monkeypatch.setattr(draining, "poll_options", lambda *_: {"kafka.max.poll.records": "7"})
    monkeypatch.setattr(draining, "keys_for_writing", lambda *_: keys)

    with first(lambda _: None):
        spec = json.loads((tmp_path / "drain.json").read_text())

    assert spec["poll_options"] == {"kafka.max.poll.records": "7"}
    assert spec["encryption"] == keys


@pytest.mark.parametrize("found", [None, StartedApplication("a_1")])
def test_open_drain_beside_orphan(
    first: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: StartedApplication | None
) -> None:
    """Beside a driver that was left without a lease, none is begun; one that is found is it."""
    asked: list[str] = []

    def refuse(archive: str) -> None:
        asked.append(archive)
        raise LockedError("process 7 drains it")

    monkeypatch.setattr(draining, "refuse_orphans", refuse)

    if found is None:
        with pytest.raises(LockedError, match="process 7"), first(lambda _: found):
            pass
    else:
        with first(lambda _: found) as job:
            assert job.is_found

    root = tmp_path / "archive"
    assert asked == ([] if found else [str(root)])
    assert Archive.at(str(root)).exists is (found is not None)
    assert find_lease(locate(root)) is None


def test_open_drain_assembled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain is planned twice, before and under the lease; its application is assembled once."""
    made: list[str] = []

    def assemble(name: str, **options: Any) -> Any:
        made.append(name)
        return fake_application(name, **options)

    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", assemble)
    cluster: Any = FakeCluster({A0: Log(end=10)})
    pipeline = Pipeline(name="p", topics=["a"], archive=str(tmp_path / "archive"))

    with open_drain(pipeline, cluster, tmp_path, run="r") as job:
        assert job.plan.offsets == 10

    assert made == ["drain_p"]


def test_open_drain_drained_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another drain has ended before the lease was taken, the drain goes on behind it."""
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    archive = sealed_copy(tmp_path / "archive")
    generation = open_next(archive, "parquet", ["topic"])
    pipeline = golden_pipeline(archive, partition_by=["topic"])
    cluster: Any = golden_cluster(end=60)
    tmp_path.chmod(0o700)

    def another(_: object) -> None:
        add_batch(generation, 0, END, 50)

    with open_drain(pipeline, cluster, tmp_path, run="r", find=another) as job:
        assert job.plan.start == {P0: 50, P1: 50}
        assert job.plan.offsets == 20


@pytest.mark.parametrize(
    ("end", "found", "starts"),
    [(10, None, True), (0, None, False), (10, StartedApplication("a_1"), False)],
)
def test_open_drain_early(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: int,
    found: StartedApplication | None,
    starts: bool,
) -> None:
    """Only a drain that reads something itself starts early: before the lease, until it ends."""
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    cluster: Any = FakeCluster({A0: Log(end=end)})
    pipeline = Pipeline(name="p", topics=["a"], archive=str(tmp_path / "archive"))
    root = locate(tmp_path / "archive")
    seen: list[bool] = []

    @contextmanager
    def early(_: Any) -> Iterator[None]:
        seen.append(find_lease(root) is not None)
        yield
        seen.append(find_lease(root) is not None)

    opened = open_drain(pipeline, cluster, tmp_path, run="r", find=lambda _: found, early=early)
    with opened as job:
        assert job.is_found is (found is not None)

    assert seen == ([False, False] if starts else [])


def test_open_drain_early_refused(first: Any, tmp_path: Path) -> None:
    """What was started early is ended where another drain holds the lease."""
    driver = Lease(locate(tmp_path / "archive"), run="other")
    driver.acquire()
    ended: list[str] = []

    @contextmanager
    def early(_: Any) -> Iterator[None]:
        try:
            yield
        finally:
            ended.append("ended")

    with pytest.raises(LockedError), first(lambda _: None, early=early):
        pass

    assert ended == ["ended"]


@pytest.mark.parametrize(("error", "stays"), [(StillRunningError, True), (SparkJobError, False)])
def test_open_drain_left(
    first: Any, tmp_path: Path, error: type[SparkJobError], stays: bool
) -> None:
    """The lease of a driver that can't be followed any more is left to it."""
    with pytest.raises(error), first(lambda _: None):
        raise error("silence")

    assert (find_lease(locate(tmp_path / "archive")) is not None) is stays


def test_open_drain_run_left(first: Any, tmp_path: Path) -> None:
    """The same when the drain is run: what says so isn't taken for a job without a result."""

    def run(_: object) -> None:
        raise NoAnswerError("no ResourceManager answers")

    with (
        pytest.raises(StillRunningError, match="no ResourceManager answers"),
        first(lambda _: None) as job,
    ):
        job.run(run)

    assert find_lease(locate(tmp_path / "archive")) is not None


# the archive's note of the sink's retention


def test_prepare_drain_retention_option_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark's retention has hidden stays explained after a drain without the option."""
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    cluster: Any = FakeCluster({A0: Log(end=10)})
    pipeline = Pipeline(name="p", topics=["a"], archive=str(tmp_path / "archive"))
    retaining = pipeline.model_copy(update={"sink_options": {"retention": "7d"}})

    for number, drained in enumerate((retaining, pipeline)):
        folder = tmp_path / str(number)
        folder.mkdir(mode=0o700)
        prepare_drain(drained, cluster, folder)

        assert Archive.at(pipeline.archive).snapshot().document.retention == "7d"


def drain_with(archive: str, run: str, change: int, **options: Any) -> None:
    """Prepare a drain of the golden archive, until the nth change of its folder; 0 for none."""
    draining.prepare_application = fake_application  # type: ignore[assignment]
    document = Archive.at(archive).snapshot().document
    pipeline = Pipeline(name=document.pipeline, topics=["flights"], archive=archive, **options)
    pipeline = pipeline.model_copy(update={"partition_by": ["topic"]})
    cluster: Any = golden_cluster()
    Path(run).mkdir(mode=0o700)
    kill_at_change(archive, change)
    prepare_drain(pipeline, cluster, Path(run))


@pytest.mark.parametrize(
    ("before", "options", "after"),
    [
        ({"isolation_level": "read_uncommitted"}, {}, ("read_committed", None)),
        ({}, {"sink_options": {"retention": "30d"}}, ("read_committed", "30d")),
    ],
)
def test_prepare_drain_settings_changed(
    before: dict[str, str], options: dict[str, Any], after: tuple[str, str | None], tmp_path: Path
) -> None:
    """A pipeline may change settings that the journal notes, wherever a drain is killed.

    The archive stays in order, and its next drain starts.
    """
    for change in kill_points():
        archive = golden_copy(tmp_path / f"archive{change}")
        root = str(archive.root)
        document = json.loads((Path(root) / "archive.json").read_text())
        (Path(root) / "archive.json").write_text(json.dumps(document | before))
        seal(archive)
        open_next(archive, "parquet", ["topic"])
        code = run_forked(partial(drain_with, **options), root, f"{tmp_path}/{change}-1", change)

        assert errors(check_sealed_state(archive.snapshot()).findings) == []
        assert not run_forked(partial(drain_with, **options), root, f"{tmp_path}/{change}-2", 0)
        now = archive.snapshot().document
        assert (now.isolation_level, now.retention) == after
        assert errors(check_sealed_state(archive.snapshot()).findings) == []
        if code == 0:
            break
    assert change > 5


@pytest.mark.parametrize("is_new", [False, True])
def test_prepare_drain_closed(
    is_new: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended while another process closes its generation, a drain leaves that as it is."""
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    archive = golden_copy(tmp_path / "archive")
    seal(archive)
    topics = ["flights", "more"] if is_new else ["flights"]
    pipeline = Pipeline(name="golden", topics=topics, archive=str(archive.root))
    pipeline = pipeline.model_copy(update={"partition_by": ["topic"]})
    cluster: Any = golden_cluster()
    if is_new:
        cluster.logs[TopicPartition("more", 0)] = Log(end=1)
        cluster.topic_ids["more"] = "id-of-more"
    opened = open_next(archive, "parquet", ["topic"])
    document = opened.folder / "generation.json"
    before = document.read_bytes()
    check = draining.check_beside_query

    def suspended(asked: Any) -> Any:
        found = check(asked)
        archive.generation(3).write(
            starting_offsets={P0: END, P1: END},
            file_format="parquet",
            partition_by=["topic"],
            topic_ids=archive.snapshot().document.topics,
            reason="rollover",
        )
        return found

    monkeypatch.setattr("kafka_drain.drain.drain.check_beside_query", suspended)
    run = tmp_path / "run"
    run.mkdir(mode=0o700)

    with pytest.raises(LockedError, match="0002 was closed"):
        prepare_drain(pipeline, cluster, run)

    assert document.read_bytes() == before
    assert errors(check_sealed_state(archive.snapshot()).findings) == []


@pytest.mark.parametrize("last_batch", [None, 0, 99])
def test_prepare_drain_after_killed_one(
    last_batch: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches whose drain was killed before it asked for the topics again are confirmed.

    Made again later, the topic isn't the one that they may have been read from.
    """
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    archive = golden_copy(tmp_path / "archive")
    generation = archive.generation(1)
    # The golden archive was moved.
    for manifest in (tmp_path / "archive/generations/0001/data/_spark_metadata").iterdir():
        if manifest.name.endswith(".crc"):
            manifest.unlink()
        else:
            manifest.write_text(manifest.read_text().replace("/tmp/golden", str(archive.root)))
    ids = archive.snapshot().document.topics
    if last_batch is not None:
        write_read_from(generation, ReadFrom(last_batch, ids))
    pipeline = Pipeline(
        name="golden", topics=["flights"], archive=str(archive.root), partition_by=["topic"]
    )
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    cluster: Any = golden_cluster()
    listed = preflight(pipeline, cluster).last_listed
    assert listed

    prepare_drain(pipeline, cluster, run)

    assert read_from(generation) == ReadFrom(max(listed, last_batch or 0), ids)


@pytest.mark.parametrize(
    "change",
    [{"sink_options": {"retention": "30d"}}, {"immutable_days": 30}],
    ids=["retention", "locks"],
)
def test_prepare_drain_settings_never_noted(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the journal has no settings, as of older releases, the former ones are noted too.

    Until archive.json is written, it still says these.
    """
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    monkeypatch.setattr("kafka_drain.drain.preflight.require_lockable", lambda *_: None)
    noted: dict[str, str] = {}
    monkeypatch.setattr(draining, "note_sealed", lambda _, said: noted.update(said.documents))
    archive = golden_copy(tmp_path / "archive")
    seal(archive)
    open_next(archive, "parquet", ["topic"])
    before = archive.snapshot().document.settings
    name = archive.snapshot().document.pipeline
    pipeline = Pipeline(
        name=name, topics=["flights"], archive=str(archive.root), partition_by=["topic"]
    )
    # A pipeline's file is refused that locks what is in a local folder.
    pipeline = pipeline.model_copy(update=change)
    tmp_path.chmod(0o700)

    prepare_drain(pipeline, golden_cluster(), tmp_path)  # type: ignore[arg-type]

    after = archive.snapshot().document.settings
    assert before != after
    assert noted == {**note_of_settings(*before), **note_of_settings(*after)}


def test_prepare_drain_topics_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of topics that aren't drained any more stay noted: made again, they are known by them."""
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    archive = golden_copy(tmp_path / "archive")
    seal(archive)
    open_next(archive, "parquet", ["topic"])
    archive.update_topics(archive.snapshot().document, {"gone": "id-of-gone"})
    name = archive.snapshot().document.pipeline
    pipeline = Pipeline(
        name=name, topics=["flights"], archive=str(archive.root), partition_by=["topic"]
    )
    tmp_path.chmod(0o700)
    before = archive.snapshot().document.topics

    # A setting that changed has archive.json written again.
    again = pipeline.model_copy(update={"sink_options": {"retention": "30d"}})
    prepare_drain(again, golden_cluster(), tmp_path)  # type: ignore[arg-type]

    assert archive.snapshot().document.retention == "30d"
    assert archive.snapshot().document.topics == before
    assert before["gone"] == "id-of-gone"


@pytest.mark.parametrize("is_drained", [False, True])
def test_check_drain_values_of_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_drained: bool
) -> None:
    """How values are decoded is kept from the first batch on; until then, a pipeline may differ."""
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    asked: list[Any] = []

    def plan_values(*given: Any) -> ValuePlan:
        asked.append(given[2])
        return ValuePlan()

    monkeypatch.setattr(draining, "plan_values", plan_values)
    archive = golden_copy(tmp_path / "archive")
    seal(archive)
    generation = open_next(archive, "parquet", ["topic"])
    if is_drained:
        add_batch(generation, 0, END, END + 8)
    name = archive.snapshot().document.pipeline
    pipeline = Pipeline(
        name=name, topics=["flights"], archive=str(archive.root), partition_by=["topic"]
    )
    tmp_path.chmod(0o700)

    prepare_drain(pipeline, golden_cluster(), tmp_path)  # type: ignore[arg-type]

    opened = archive.snapshot().open_generation
    assert opened is not None
    assert (opened.number, opened.document.reason) == (2, generation.read_document().reason)
    assert opened.document.reason != "first"
    assert [each and each.number for each in asked] == [2 if is_drained else None]


def open_first_drain(archive: str, run: str, change: int, seconds_later: float) -> None:
    """Open the first drain to a folder, until the nth change of it; 0 for none."""
    draining.prepare_application = fake_application  # type: ignore[assignment]
    cluster: Any = FakeCluster({A0: Log(end=10)})
    pipeline = Pipeline(name="p", topics=["a"], archive=archive)
    # A lease that was left has run out by then.
    now = datetime.now(timezone.utc) + timedelta(seconds=seconds_later)
    Path(run).mkdir(mode=0o700)
    kill_at_change(archive, change)
    with open_drain(pipeline, cluster, Path(run), run="r", clock=lambda: now):
        pass


@pytest.mark.parametrize("is_there", [False, True])
def test_open_drain_killed(is_there: bool, tmp_path: Path) -> None:
    """A first drain that is killed before any change of the file system is just begun again.

    The folder may have been made by somebody else, and may be empty.
    """
    archive = tmp_path / "archive"
    for change in kill_points():
        shutil.rmtree(archive, ignore_errors=True)
        if is_there:
            archive.mkdir()
        code = run_forked(open_first_drain, str(archive), f"{tmp_path}/{change}-1", change, 0.0)

        assert not run_forked(open_first_drain, str(archive), f"{tmp_path}/{change}-2", 0, 100.0)
        opened = Archive.at(str(archive)).snapshot().open_generation
        assert opened is not None
        assert opened.read_document().reason == "first"
        left = [path for path in archive.rglob("*.tmp") if ".lock.json." not in path.name]
        assert left == []
        if code == 0:
            break
    assert change > 10


# a whole drain


@pytest.fixture
def golden_drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Drain a copy of the golden archive to the end of a Kafka."""
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    archive = golden_copy(tmp_path / "archive")
    seal(archive)
    open_next(archive, "parquet", ["topic"])

    def drain(cluster: Any, runner: Any, show: Any, **given: Any) -> Any:
        pipeline = golden_pipeline(archive, partition_by=["topic"])
        return run_drain(pipeline, cluster, runner, run="r", show=show, **given)

    return drain


def test_run_drain_nothing_new(golden_drain: Any, tmp_path: Path) -> None:
    """Where Kafka has nothing new, Spark isn't started, and the figures are zero."""
    shown: list[list[str]] = []

    plan, result = golden_drain(golden_cluster(end=END), pytest.fail, shown.append)

    at = '{"flights":{"0":42,"1":42}}'
    assert shown == [plan.lines()]
    assert result == {
        "archive": str(tmp_path / "archive"),
        "batches": 0,
        "offsets": 0,
        "records": 0,
        "seconds": 0.0,
        "offsets_per_second": 0,
        "offsets_behind_latest": {},
        "start": at,
        "end": at,
    }
    assert find_lease(locate(tmp_path / "archive")) is None


def test_run_drain(golden_drain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is shown before Spark starts, which is given what the user has accepted."""
    root, seen = locate(tmp_path / "archive"), list[Any]()
    registry: Any = object()
    specs: list[dict[str, Any]] = []

    def assemble(name: str, *, spec_path: Path, **given: Any) -> Any:
        made = fake_application(name, spec_path=spec_path, **given)
        return replace(made, arguments=[str(spec_path)])

    def plan_values(*given: Any) -> ValuePlan:
        seen.append(given[3])
        return ValuePlan(warnings=["of values"])

    def runner(application: Any) -> None:
        lease = find_lease(root)
        assert lease is not None
        assert application.leases == {str(root): lease.token}
        seen.append("runs")
        specs.append(json.loads(Path(application.arguments[0]).read_text()))
        Path(specs[-1]["result_path"]).write_text(json.dumps({"records": 3, "batches": 1}))

    def show(lines: list[str]) -> None:
        seen.append("shown")
        assert any("of values" in line for line in lines)
        assert any("; acknowledged" in line for line in lines)

    monkeypatch.setattr(draining, "prepare_application", assemble)
    monkeypatch.setattr(draining, "plan_values", plan_values)
    cluster = golden_cluster()
    cluster.logs[P0] = Log(first=END + 3, end=1000)
    with pytest.raises(DataLossError, match="no longer holds offsets"):
        golden_drain(cluster, pytest.fail, pytest.fail)
    seen.clear()

    plan, result = golden_drain(
        cluster,
        runner,
        show,
        acknowledged={P0: [OffsetRange(END, END + 3)]},
        registry=registry,
    )

    # Planned before and while the lease is held.
    assert seen == [registry, registry, "shown", "runs"]
    assert plan.start[P1] == END
    assert result == {"archive": str(root), "records": 3, "batches": 1}
    assert find_lease(root) is None


# what a drain notes of itself


def test_prepare_drain_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first drain notes what it was asked for: the source, how it is read, how it is written."""
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    monkeypatch.setattr("kafka_drain.drain.preflight.isolation_warnings", lambda *_: [])
    kept: list[Any] = []
    values = {"settings": {"encoding": "json", "columns": "a INT"}}

    class Values(ValuePlan):
        def keep(self, root: Any, now: datetime) -> None:
            kept.append((str(root), now.tzinfo, Archive.at(str(root)).exists))

    monkeypatch.setattr(draining, "plan_values", lambda *_: Values(frozen=values))
    monkeypatch.setattr(draining, "poll_options", lambda *_: {"kafka.max.poll.records": "7"})
    sized: list[int] = []
    monkeypatch.setattr(draining, "for_offsets", lambda base, n: sized.append(n) or base)
    cluster: Any = FakeCluster({A0: Log(first=2, end=10)}, topic_ids={"a": "id-of-a"})
    pipeline = Pipeline(
        name="p",
        topics=["a"],
        archive=str(tmp_path / "archive"),
        format="orc",
        partition_by=["topic"],
        source_options={"kafka.isolation.level": "read_uncommitted"},
        sink_options={"retention": "7d"},
    )
    run = tmp_path / "run"
    run.mkdir(mode=0o700)

    job = prepare_drain(pipeline, cluster, run)

    snapshot = Archive.at(pipeline.archive).snapshot()
    document, opened = snapshot.document, snapshot.open_generation
    assert (document.pipeline, document.cluster_id) == ("p", "cluster-1")
    assert document.topics == {"a": "id-of-a"}
    assert document.source == pipeline.source
    assert document.settings == ("read_uncommitted", "7d", None)
    assert opened is not None
    generation = opened.document
    assert (generation.format, generation.partition_by) == ("orc", ["topic"])
    assert (generation.topics, generation.reason) == ({"a": "id-of-a"}, "first")
    assert generation.values == values
    assert opened.starting_offsets == {A0: 2}
    assert kept == [(pipeline.archive, timezone.utc, True)]
    assert json.loads((run / "drain.json").read_text())["values"] == values["settings"]
    # The driver's memory depends on it, and what a poll takes.
    assert set(sized) == {8}
    assert job.polled == 7


def test_prepare_drain_topic_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that the pipeline names now is noted by its id, also if an older one was known."""
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    asked: list[Any] = []
    monkeypatch.setattr(draining, "write_topic_settings", lambda *given: asked.append(given))
    archive = golden_copy(tmp_path / "archive")
    seal(archive)
    generation = open_next(archive, "parquet", ["topic"])
    add_batch(generation, 0, END, END + 8)
    archive.update_topics(archive.snapshot().document, {"more": "id-of-another"})
    cluster: Any = golden_cluster()
    more = TopicPartition("more", 0)
    cluster.logs[more] = Log(end=5)
    cluster.logs[P0] = Log(end=100, stable=90)
    cluster.topic_ids["more"] = "id-of-more"
    name = archive.snapshot().document.pipeline
    pipeline = Pipeline(
        name=name, topics=["flights", "more"], archive=str(archive.root), partition_by=["topic"]
    )
    tmp_path.chmod(0o700)

    prepare_drain(pipeline, cluster, tmp_path)

    snapshot = archive.snapshot()
    flights = snapshot.document.topics["flights"]
    ids = {"flights": flights, "more": "id-of-more"}
    assert snapshot.document.topics == ids
    assert snapshot.open_generation is not None
    assert snapshot.open_generation.document.topics == ids
    [(root, settings, topic_ids, were_read, ends)] = asked
    assert (root, topic_ids) == (archive.root, ids)
    assert settings == {name: cluster.topic_settings(name) for name in ids}
    assert were_read == {P0: END + 8, P1: END + 8, more: 0}
    # Where the log ends, also behind an open transaction.
    assert ends == {P0: 100, P1: 1000, more: 5}


@pytest.mark.parametrize("has_failed", [False, True])
def test_prepare_drain_before_first_batch(
    has_failed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its first batch, a generation also notes where partitions added since then start.

    Also if a query has failed before it asked Kafka.
    """
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    archive = golden_copy(tmp_path / "archive")
    seal(archive)
    opened = open_next(archive, "parquet", ["topic"])
    cluster: Any = golden_cluster()
    added = TopicPartition("flights", 2)
    cluster.logs[added] = Log(first=7, end=9)
    tmp_path.chmod(0o700)
    if has_failed:
        metadata = opened.checkpoint / "metadata"
        metadata.parent.mkdir(parents=True)
        metadata.write_text('{"id":"a query"}')

    prepare_drain(golden_pipeline(archive, partition_by=["topic"]), cluster, tmp_path)

    document = archive.snapshot().open_generation
    assert document is not None
    assert document.number == opened.number
    assert document.starting_offsets == {P0: END, P1: END, added: 7}


def test_open_drain_spark_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that is too old for the pipeline's options is refused before anything is written."""

    def refuse(_: Pipeline) -> None:
        raise ConfigError("too old")

    monkeypatch.setattr(draining, "check_spark_version", refuse)
    monkeypatch.setattr(draining, "prepare_application", lambda *_, **__: pytest.fail("assembled"))
    cluster: Any = FakeCluster({A0: Log(end=10)})
    pipeline = Pipeline(name="p", topics=["a"], archive=str(tmp_path / "archive"))

    with (
        pytest.raises(ConfigError, match="too old"),
        open_drain(pipeline, cluster, tmp_path, run="r"),
    ):
        pass

    assert not (tmp_path / "archive").exists()


def test_drain_job_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record that failed a drain is looked for beyond its planned end, too."""
    seen: list[Any] = []
    monkeypatch.setattr(draining, "too_far_records", lambda *given: seen.append(given) or ["t"])
    monkeypatch.setattr(draining, "unread_partitions", lambda *given: seen.append(given) or ["u"])
    cluster: Any = FakeCluster({A0: Log(end=10)})
    job = DrainJob(fake_application("p"), tmp_path, first_plan(tmp_path), ValuePlan(), cluster)

    assert (job.too_far(), job.unread(8)) == (["t"], ["u"])

    (_, far), (_, unread, offset) = seen
    assert (offset, far) == (8, unread)
    [(tp, [reach])] = far.items()
    assert (tp, reach.start) == (A0, 3)
    assert 1_000_000 in reach


@pytest.mark.parametrize("kind", [ArchiveError, OSError])
def test_finish_drain_notes_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """The drain's own error is told, even if its notes can't be written either."""

    def write_notes(*_: object) -> None:
        raise kind("no space")

    monkeypatch.setattr(draining, "write_notes", write_notes)
    cluster: Any = FakeCluster({})
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"error": "Job aborted: No space left on device"}))
    job = DrainJob(fake_application("p"), result, first_plan(tmp_path), ValuePlan(), cluster)

    with pytest.raises(SparkJobError, match="No space left on device"):
        job.result()


@pytest.mark.parametrize(
    ("is_closed", "is_committed"), [(False, True), (False, False), (True, True)]
)
def test_result_of_what_another_read(tmp_path: Path, is_closed: bool, is_committed: bool) -> None:
    """A batch that another driver had read is confirmed too, as long as the generation is open."""
    archive = golden_copy(tmp_path / "archive")
    seal(archive)
    generation = open_next(archive, "parquet", ["topic"])
    add_batch(generation, 0, END, END + 2)
    add_batch(generation, 1, END + 2, END + 4)
    snapshot = archive.snapshot()
    ids = snapshot.document.topics
    plan = first_plan(
        tmp_path,
        archive=archive,
        snapshot=snapshot,
        generation=snapshot.open_generation,
        cluster_id=snapshot.document.cluster_id,
        topics={name: Topic(name, topic_id, (0, 1)) for name, topic_id in ids.items()},
    )
    if not is_committed:
        (tmp_path / "archive/generations/0002/checkpoint/commits/1").unlink()
    if is_closed:
        shutil.copytree(
            tmp_path / "archive/generations/0002", tmp_path / "archive/generations/0003"
        )
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"notes": []}))
    cluster: Any = golden_cluster()

    DrainJob(fake_application("p"), result, plan, ValuePlan(), cluster).result()

    assert read_from(generation) == (None if is_closed else ReadFrom(1, ids))


def test_prepare_drain_opened_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain that was suspended doesn't touch a first generation that another has opened."""
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    archive = Archive.at(str(tmp_path / "archive"))
    generation = archive.generation(1)

    def another(*_: object) -> None:
        generation.write(
            starting_offsets={A0: 7},
            file_format="orc",
            partition_by=[],
            topic_ids={"a": "id-of-a"},
            reason="first",
        )

    monkeypatch.setattr(draining, "keys_for_writing", another)
    cluster: Any = FakeCluster({A0: Log(end=10)})
    pipeline = Pipeline(name="p", topics=["a"], archive=str(archive.root))
    tmp_path.chmod(0o700)

    with pytest.raises(LockedError):
        prepare_drain(pipeline, cluster, tmp_path)

    assert generation.read_document().format == "orc"


def test_prepare_drain_settings_before_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until something is sealed, changed settings need no journal."""
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    cluster: Any = FakeCluster({A0: Log(end=10)})
    pipeline = Pipeline(name="p", topics=["a"], archive=str(tmp_path / "archive"))
    tmp_path.chmod(0o700)
    for retention in ("30d", "60d"):
        again = pipeline.model_copy(update={"sink_options": {"retention": retention}})
        prepare_drain(again, cluster, tmp_path)

    snapshot = Archive.at(pipeline.archive).snapshot()
    assert (snapshot.document.retention, snapshot.journal.newest) == ("60d", 0)


def test_prepare_drain_after_killed_one_topic_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches aren't confirmed if they may be of a topic that isn't drained any more.

    Kafka isn't asked for its id.
    """
    monkeypatch.setattr(draining, "prepare_application", fake_application)
    archive = golden_copy(tmp_path / "archive")
    seal(archive)
    generation = open_next(archive, "parquet", ["topic"])
    add_batch(generation, 0, END, END + 8)
    generation.add_topics({"gone": "id-of-gone"})
    tmp_path.chmod(0o700)
    cluster: Any = golden_cluster()

    prepare_drain(golden_pipeline(archive, partition_by=["topic"]), cluster, tmp_path)

    assert read_from(generation) is None


def test_run_drain_engine(golden_drain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The given runner is what looks for an earlier application, and what starts Spark early."""
    seen: dict[str, Any] = {}

    @contextmanager
    def early(runner: Any, _: Any) -> Iterator[None]:
        seen["early"] = runner
        yield

    def find(runner: Any, _: Any) -> None:
        seen["find"] = runner

    def runner(application: Any) -> None:
        raise SparkJobError("ran")

    monkeypatch.setattr(draining, "find_again", find)
    monkeypatch.setattr(draining, "started_early", early)

    with pytest.raises(SparkJobError):
        golden_drain(golden_cluster(), runner, lambda _: None)

    assert seen == {"find": runner, "early": runner}

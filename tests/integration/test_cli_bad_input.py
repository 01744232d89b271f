"""`kafka-drain` responds to bad input with one clear message, and changes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_drain.archive.archive import Archive
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import prepare_drain
from kafka_drain.errors import SparkJobError
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.engines.spark import RepublishJob, prepare_sink
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import plan_republish
from kafka_drain.spark.job_spec import DrainSpec, SinkSpec
from tests.integration.command_line import Ended, kafka_drain, listing, run_module

pytestmark = pytest.mark.integration

OK, FAILED, USAGE = 0, 1, 2
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def drained(
    tmp_path_factory: pytest.TempPathFactory, spark: Any, cluster: Any, bootstrap_servers: str
) -> Pipeline:
    """A sealed archive of two topics, whose files hold the topic as a column."""
    from kafka_drain_spark.drain import run_drain

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    topics = [f"bad-input-{name}-{uuid.uuid4().hex[:8]}" for name in "ab"]
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in topics]).values():
        future.result(20)
    for name in topics:
        for number in range(10):
            producer.produce(name, str(number), partition=number % 2)
    assert producer.flush(30) == 0
    folder = tmp_path_factory.mktemp("drained") / "archive"
    pipeline = Pipeline(name="archive", topics=topics, archive=str(folder), partition_by=[])
    with tempfile.TemporaryDirectory() as run:
        prepare_drain(pipeline, cluster, Path(run))
        run_drain(spark, DrainSpec.read(Path(run) / "drain.json"))
    assert validate_archive(Archive.at(str(folder)), cluster).complete
    return pipeline


@pytest.fixture
def copied(drained: Pipeline, tmp_path: Path) -> Path:
    """A copy of that archive, for a test to damage."""
    return Path(shutil.copytree(drained.archive, tmp_path / "archive"))


def told(err: str) -> list[str]:
    """Return what a command said but for the cluster that it acts on."""
    return [line for line in err.splitlines() if not line.startswith("Kafka: cluster ")]


def check_refused(
    ended: Ended, code: int, fragments: list[str], command: str = "kafka-drain"
) -> None:
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.out + ended.err
    assert ended.out == ""
    # On a slow machine, a line of progress precedes the message.
    said = [line for line in told(ended.err) if not line.endswith(" left")]
    assert len(said) == 1, ended.err
    assert said[0].startswith(command)
    for fragment in fragments:
        assert fragment in said[0]


def refused(
    folder: Path,
    *arguments: object,
    code: int,
    says: list[str],
    environment: Mapping[str, str | None] | None = None,
) -> None:
    """Run a command that must be refused, and check that it was refused properly."""
    before = listing(folder)

    ended = kafka_drain(*arguments, environment=environment)

    check_refused(ended, code, says, f"kafka-drain {arguments[0]}: ")
    assert listing(folder) == before


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--topic", "t", "--source-option", "maxOffsetPerTrigger=5"],
            ["'maxOffsetPerTrigger'", "'5'", "did you mean 'maxOffsetsPerTrigger'?"],
        ),
        (
            ["--topic", "t", "--source-option", "startingOffsets=banana"],
            ["startingOffsets", "'banana'", "accepted: earliest, latest, or {"],
        ),
        (
            ["--topic", "t", "--topic-pattern", "t.*"],
            ["topics and topic_pattern contradict each other", "give exactly one of"],
        ),
        (
            [
                *("--topic", "t", "--source-option", "startingOffsets=earliest"),
                *("--source-option", "startingTimestamp=2026-01-31T00:00:00Z"),
            ],
            ["startingOffsets and startingTimestamp contradict", "give only one starting position"],
        ),
        (["--topic-pattern", "("], ["topic_pattern", "'('", "regular expression"]),
        ([], ["none is given", "give exactly one of topics, topic_pattern and assign"]),
    ],
)
def test_drain_options_not_acceptable(
    arguments: list[str], says: list[str], tmp_path: Path, bootstrap_servers: str
) -> None:
    """A drain option that Spark would silently ignore is refused, naming the accepted ones."""
    kafka = ("--bootstrap-servers", bootstrap_servers)

    refused(tmp_path, "drain", tmp_path / "new", *kafka, *arguments, code=USAGE, says=says)


def test_drain_without_kafka(tmp_path: Path) -> None:
    """If Kafka isn't configured, the message says where to configure it."""
    says = ["no Kafka given", "--bootstrap-servers", "$KAFKA_BOOTSTRAP_SERVERS"]

    refused(tmp_path, "drain", tmp_path / "new", "--topic", "t", code=USAGE, says=says)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"topics": ["t"], "shedule": null}', ["'shedule'", "did you mean 'schedule'?"]),
        ("[]", ["pipeline.json contains no JSON object"]),
        (None, ["pipeline.json can't be read: No such file or directory"]),
    ],
)
def test_drain_pipeline_file_not_acceptable(
    content: str | None, says: list[str], tmp_path: Path
) -> None:
    """A pipeline file with a misspelled key, a wrong value or invalid JSON is refused by name."""
    file = tmp_path / "pipeline.json"
    if content is not None:
        file.write_text(content)
    arguments = ("--pipeline", file, "--bootstrap-servers", NOWHERE)

    refused(tmp_path, "drain", tmp_path / "new", *arguments, code=USAGE, says=says)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"sasl.pasword": "hunter2"}', ["'sasl.pasword'", "did you mean 'sasl.password'?"]),
        ('{"sasl.password": "hunter2"', ["kafka.json isn't JSON"]),
        (
            '{"bootstrap.servers": "x:1", "security.protocol": "tls"}',
            ["settings are invalid", '"security.protocol"'],
        ),
        (None, ["kafka.json can't be read"]),
    ],
)
def test_kafka_config_not_acceptable(content: str | None, says: list[str], tmp_path: Path) -> None:
    """Unusable Kafka settings are refused, and their values aren't shown."""
    file = tmp_path / "kafka.json"
    if content is not None:
        file.write_text(content)
    before = listing(tmp_path)

    ended = kafka_drain("drain", tmp_path / "new", "--topic", "t", "--kafka-config", file)

    check_refused(ended, USAGE, says)
    assert "hunter2" not in ended.err
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--target-topic"], ["--target-topic", "expected one argument"]),
        (["--same-topics", "--engine", "flink"], ["--engine", "'flink'", "'worker', 'spark'"]),
        (["--same-topics", "--target-topic", "t"], ["not allowed with argument"]),
    ],
)
def test_republish_usage(arguments: list[str], says: list[str], tmp_path: Path) -> None:
    """With no target, two targets, or an unknown engine, the usage is shown."""
    ended = kafka_drain("republish", tmp_path, "--bootstrap-servers", NOWHERE, *arguments)

    assert ended.code == USAGE
    assert ended.out == ""
    assert "Traceback" not in ended.err
    last = ended.err.splitlines()[-1]
    assert last.startswith("kafka-drain republish: error: ")
    assert all(fragment in last for fragment in says)


# --- Kafka ----------------------------------------------------------------------------------


def test_drain_broker_not_there(tmp_path: Path) -> None:
    """A broker that doesn't answer causes one message, after the connection's timeout."""
    file = tmp_path / "kafka.json"
    file.write_text(json.dumps({"bootstrap.servers": NOWHERE, "socket.timeout.ms": 1000}))
    arguments = ("--topic", "t", "--kafka-config", file)
    says = [f"no response from Kafka at {NOWHERE} within 1 s", "check that the broker is running"]

    refused(tmp_path, "drain", tmp_path / "new", *arguments, code=FAILED, says=says)


def test_drain_topic_not_there(tmp_path: Path, bootstrap_servers: str, make_topic: Any) -> None:
    """A missing topic is named together with the existing ones."""
    make_topic()
    kafka = ("--bootstrap-servers", bootstrap_servers)
    says = ["topic no-such-topic doesn't exist", bootstrap_servers, "create it or correct the name"]

    refused(
        tmp_path,
        *("drain", tmp_path / "new", "--topic", "no-such-topic", *kafka),
        code=FAILED,
        says=says,
    )


def test_republish_target_topic_not_there(
    drained: Pipeline, bootstrap_servers: str, tmp_path: Path
) -> None:
    """A target topic that doesn't exist is refused before anything is sent."""
    kafka = ("--bootstrap-servers", bootstrap_servers)
    target = ("--target-topic", "no-such-topic")
    says = ["topic no-such-topic doesn't exist"]

    refused(
        Path(drained.archive),
        *("republish", drained.archive, *kafka, *target),
        code=FAILED,
        says=says,
    )


def test_republish_too_few_partitions(
    drained: Pipeline, bootstrap_servers: str, make_topic: Any, read: Any
) -> None:
    """A target with too few partitions is refused before anything is sent."""
    target = make_topic(partitions=1)
    kafka = ("--bootstrap-servers", bootstrap_servers)

    refused(
        Path(drained.archive),
        *("republish", drained.archive, *kafka, "--target-topic", target),
        code=FAILED,
        says=[f"topic {target} has 1 partitions", "need 2", "Nothing was sent"],
    )

    assert read(target) == {0: []}


# --- folders --------------------------------------------------------------------------------

ON_ARCHIVES = {
    "validate": [],
    "inspect": [],
    "files": [],
    "republish": ["--target-topic", "t", "--bootstrap-servers", NOWHERE],
}


@pytest.mark.parametrize(
    ("command", "name", "says"),
    [
        *(
            (command, "folder", ["folder is a folder without archive.json"])
            for command in ON_ARCHIVES
        ),
        ("files", "nothing", ["nothing doesn't exist", "expected an archive", "check the path"]),
        ("validate", "file", ["file isn't a folder", "check the archive's path"]),
    ],
)
def test_command_on_no_archive(command: str, name: str, says: list[str], tmp_path: Path) -> None:
    """A path that isn't an archive is refused, with what it is."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()

    refused(tmp_path, command, tmp_path / name, *ON_ARCHIVES[command], code=USAGE, says=says)


@pytest.mark.parametrize(
    ("archive", "says"),
    [
        ("file", ["file is a file, not a folder", "choose another archive"]),
        ("file/archive", ["file/archive can't be created", "file is a file"]),
        ("full", ["full isn't empty and isn't an archive", "choose an empty or new folder"]),
    ],
)
def test_drain_to_no_archive(
    archive: str, says: list[str], tmp_path: Path, bootstrap_servers: str
) -> None:
    """A drain doesn't touch a folder that holds something else, or that can't be an archive."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "data.csv").write_text("1")
    (tmp_path / "file").touch()
    kafka = ("--bootstrap-servers", bootstrap_servers)

    refused(tmp_path, "drain", tmp_path / archive, "--topic", "t", *kafka, code=USAGE, says=says)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_drain_folder_without_right(tmp_path: Path, bootstrap_servers: str) -> None:
    """A folder to which this user can't write is refused before the drain."""
    (tmp_path / "theirs").mkdir(mode=0o500)
    kafka = ("--bootstrap-servers", bootstrap_servers)

    refused(
        tmp_path,
        *("drain", tmp_path / "theirs" / "new", "--topic", "t", *kafka),
        code=USAGE,
        says=["can't be written", "no write permission for"],
    )


def test_drain_archive_of_another_pipeline(
    drained: Pipeline, bootstrap_servers: str, tmp_path: Path
) -> None:
    """An archive accepts no records from a pipeline with another name."""
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps({"name": "other"}))
    arguments = ("--pipeline", file, "--bootstrap-servers", bootstrap_servers)

    refused(
        Path(drained.archive),
        *("drain", drained.archive, *arguments),
        code=USAGE,
        says=["is the archive of pipeline 'archive'", "not of 'other'", "an archive of its own"],
    )


def test_drain_checkpoint_missing(copied: Path, bootstrap_servers: str) -> None:
    """Without its checkpoint an archive isn't drained: Spark would silently skip batches."""
    shutil.rmtree(copied / "generations" / "0001" / "checkpoint")
    kafka = ("--bootstrap-servers", bootstrap_servers)

    refused(
        copied,
        *("drain", copied, *kafka),
        code=FAILED,
        says=["generations/0001/checkpoint", "That means: ", "What to do: "],
    )


# --- the machine ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (
            {"PATH": "{empty}", "JAVA_HOME": None},
            ["No Java found", "no java is on the PATH", "Install a JDK or JRE of version 17 or 21"],
        ),
        ({"JAVA_HOME": "{empty}"}, ["JAVA_HOME is {empty}, which has no bin/java", "17 or 21"]),
        (
            {"KAFKA_DRAIN_CACHE": "{empty}"},
            ["connector jars are incomplete", "{empty}", "run `kafka-drain jars`"],
        ),
    ],
)
def test_drain_machine_incomplete(
    environment: dict[str, str | None], says: list[str], tmp_path: Path, bootstrap_servers: str
) -> None:
    """Without Java or the jars, the message says what to install, before Kafka is queried."""
    empty = tmp_path / "empty"
    empty.mkdir()
    variables = {n: v and v.format(empty=empty) for n, v in environment.items()}

    refused(
        tmp_path,
        *("drain", tmp_path / "new", "--topic", "t", "--bootstrap-servers", NOWHERE),
        code=FAILED,
        says=[fragment.format(empty=empty) for fragment in says],
        environment=variables,
    )


def test_demo_broker_port_taken(tmp_path: Path) -> None:
    """The demo's broker names a port in use and writes nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        ended = run_module(
            "demo.broker", "start", "--folder", tmp_path / "broker", "--port", str(port)
        )

    check_refused(ended, FAILED, [f"Port {port}", "is in use", "choose another port"], "broker: ")
    assert listing(tmp_path) == {}


# --- answers --------------------------------------------------------------------------------


def test_validate_exit_codes(copied: Path, bootstrap_servers: str) -> None:
    """Validate exits with 0 if complete, 1 for findings, and names the bad file."""
    kafka = ("--bootstrap-servers", bootstrap_servers)

    complete = kafka_drain("validate", copied, *kafka)
    damaged = next(iter((copied / "generations" / "0001" / "data").glob("part-*")))
    damaged.unlink()
    findings = kafka_drain("validate", copied, *kafka)

    assert (complete.code, findings.code) == (OK, FAILED)
    assert "verdict: complete" in complete.out
    assert "verdict: findings" in findings.out
    assert damaged.name in findings.out
    # Progress, if a slow machine takes more than two seconds, and nothing else.
    said = told(complete.err + findings.err)
    assert all(re.fullmatch(r"validate: .* files \(\d+ %\).*", line) for line in said), said


def test_answers_as_json(drained: Pipeline, copied: Path, bootstrap_servers: str) -> None:
    """With --json, standard output holds one JSON document and nothing else."""
    kafka = ("--bootstrap-servers", bootstrap_servers)

    answers = {
        # A copy can't be drained to: Spark's manifest names the files at their original path.
        name: kafka_drain(
            name, drained.archive if name == "drain" else copied, "--json", *arguments
        )
        for name, arguments in {
            "drain": [*kafka, "--source-option", "minPartitions=2"],
            "validate": kafka,
            "inspect": [],
            "files": [],
            "republish": [*kafka, "--into-source"],
        }.items()
    }
    parsed = {name: json.loads(ended.out) for name, ended in answers.items()}

    assert {ended.code for ended in answers.values()} == {OK}
    assert parsed["drain"]["offsets"] == parsed["drain"]["batches"] == 0
    assert "nothing new" in answers["drain"].err
    assert parsed["validate"]["verdict"] == "complete"
    assert parsed["inspect"]["pipeline"] == "archive"
    assert {file["path"] for file in parsed["files"]} == {
        str(path) for path in (copied / "generations" / "0001" / "data").glob("part-*")
    }
    assert parsed["republish"]["records"] == 20
    assert "dry run: nothing was changed; pass --apply to send it" in answers["republish"].err


# --- republish ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--placement", "random"],
            ["placement = 'random'", "accepted: original, key, key:crc32"],
        ),
        (["--offsets", "t:0:5-5"], ["offsets = 't:0:5-5'", "topic:partition:start-end"]),
        (["--to-time", "noon"], ["to_time = 'noon'", "such as 2026-11-21T13:45"]),
        (["--rename", "a"], ["--rename 'a'", "accepted: NAME=VALUE"]),
        (["--rename", "a="], ["rename of a = ''", "accepted: a topic name"]),
        (
            ["--delivery", "at_least_once", "--engine", "worker"],
            ["'worker' and delivery = 'at_least_once' contradict", "spark or auto"],
        ),
    ],
)
def test_republish_options_not_acceptable(
    arguments: list[str], says: list[str], tmp_path: Path
) -> None:
    """An option with an invalid value is refused by name, before Kafka is queried."""
    to = ("--same-topics", "--bootstrap-servers", NOWHERE)

    refused(tmp_path, "republish", tmp_path, *to, *arguments, code=USAGE, says=says)


def test_republish_target_topic_empty(tmp_path: Path) -> None:
    """An empty target topic is refused before Kafka is queried."""
    to = ("--target-topic", "", "--bootstrap-servers", NOWHERE)
    says = ["target_topic = '' is not acceptable", "accepted: a topic name", "{topic}.restored"]

    refused(tmp_path, "republish", tmp_path, *to, code=USAGE, says=says)


def test_republish_no_target(drained: Pipeline, bootstrap_servers: str, read: Any) -> None:
    """Without a target, records go to a topic next to the source, which must be created first."""
    topic, *_ = drained.topics or []
    before = read(topic)

    refused(
        Path(drained.archive),
        *("republish", drained.archive, "--bootstrap-servers", bootstrap_servers),
        code=FAILED,
        says=[f"topic {topic}.restored doesn't exist", "--create-target", "Nothing was sent"],
    )

    assert read(topic) == before


def test_republish_unknown_topic(drained: Pipeline, bootstrap_servers: str) -> None:
    """A topic that the archive never held is refused, with the ones that it holds."""
    arguments = ("--bootstrap-servers", bootstrap_servers, "--same-topics", "--topic", "unknown")

    refused(
        Path(drained.archive),
        *("republish", drained.archive, *arguments),
        code=USAGE,
        says=["holds no records of unknown; it holds", *(drained.topics or [])],
    )


def test_republish_not_sealed(copied: Path, bootstrap_servers: str, make_topic: Any) -> None:
    """Unvalidated files aren't sent; the message names the command that validates them."""
    shutil.rmtree(copied / "generations" / "0001" / "receipts")
    shutil.rmtree(copied / "journal")
    (copied / "journal.json").unlink()
    target = ("--bootstrap-servers", bootstrap_servers, "--target-topic", make_topic(partitions=2))

    refused(
        copied,
        *("republish", copied, *target),
        code=FAILED,
        says=[
            "4 files are committed but not sealed",
            "run `kafka-drain validate /",
            "Nothing was sent",
        ],
    )


def test_republish_run_for_something_else(
    copied: Path, bootstrap_servers: str, make_topic: Any, read: Any
) -> None:
    """A planned run isn't resumed for other records; the message names the original ones."""
    target = make_topic(partitions=2)
    arguments = (
        "--bootstrap-servers",
        bootstrap_servers,
        "--target-topic",
        target,
        "--run-name",
        "r",
    )
    first = kafka_drain("republish", copied, *arguments, "--partition", "0", "--apply")
    assert first.code == OK, first.err

    refused(
        copied,
        *("republish", copied, *arguments),
        code=USAGE,
        says=["started with", "'partitions': [0]", "use the same request to resume it"],
    )

    assert [len(rows) for rows in read(target).values()] == [10, 0]


def test_republish_damaged_after_plan(
    copied: Path,
    drained: Pipeline,
    cluster: Any,
    spark: Any,
    tmp_path: Path,
    make_topic: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If Spark's sink reads other rows than planned, it reports that and sends nothing."""
    target = make_topic(partitions=2)
    job = sink_job(copied, drained, cluster, target, tmp_path)
    file = next(iter((copied / "generations" / "0001" / "data").glob("part-*")))
    pq.write_table(pq.read_table(file).slice(1), file)
    file.with_name(f".{file.name}.crc").unlink()

    message = failure_of(job, spark, monkeypatch)

    assert message.endswith("Spark reads 19 rows, but the files hold 20; nothing was sent")
    ends = cluster.latest([TopicPartition(target, p) for p in (0, 1)], "read_uncommitted")
    assert set(ends.values()) == {0}


def test_republish_refused_by_kafka(
    drained: Pipeline,
    cluster: Any,
    spark: Any,
    tmp_path: Path,
    make_topic: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the sink fails in Spark, a one-line error says what may have been sent."""
    # Rejects records without a key.
    target = make_topic(partitions=2, cleanup_policy="compact")

    message = failure_of(
        sink_job(Path(drained.archive), drained, cluster, target, tmp_path), spark, monkeypatch
    )

    assert "InvalidRecordException" in message
    assert "\n" not in message
    assert message.endswith("; some records may have been sent")


def sink_job(
    archive: Path, pipeline: Pipeline, cluster: Any, target: str, folder: Path
) -> RepublishJob:
    """Plan a republish with Spark's own sink, up to the job for spark-submit."""
    planned = plan_republish(
        Archive.at(str(archive)),
        cluster,
        RepublishRequest(target_topic=target, delivery="at_least_once"),
        now=utc_now(),
        apply=True,
    )
    (folder / "run").mkdir()
    return prepare_sink(planned.plan, str(archive), pipeline, cluster, folder / "run")


def failure_of(job: RepublishJob, spark: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a job that must fail in the shared session; return the error's message."""
    from kafka_drain_spark.job import run_jobs
    from kafka_drain_spark.sink import run_sink

    # The shared session outlives the job.
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    assert run_jobs([SinkSpec.read(job.application.specs[0])], run_sink) == FAILED
    with pytest.raises(SparkJobError) as caught:
        job.result()
    return str(caught.value)


def test_archive_of_moved_folder(copied: Path) -> None:
    """The manifest's absolute paths don't matter: a copy lists its own files."""
    ended = kafka_drain("files", copied)

    assert ended.code == OK
    assert len(Archive.at(str(copied)).generation(1).read_manifest()[0].files) == 4
    assert all(Path(line).is_relative_to(copied) for line in ended.out.splitlines())
    assert all(Path(line).is_file() for line in ended.out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--from-batch", "x"], ["from_batch = 'x'", "such as 1:7"]),
        (["--from-batch", "1", "--from-time", "2026-01-01"], ["exclude each other"]),
        (["--from-batch", "1"], ["expected an archive created by a drain"]),
    ],
)
def test_reprocess_options_not_acceptable(
    arguments: list[str], says: list[str], tmp_path: Path
) -> None:
    """An invalid start, or a missing archive, is refused before Kafka is queried."""
    refused(
        tmp_path,
        "reprocess",
        tmp_path,
        *("--bootstrap-servers", NOWHERE),
        *arguments,
        code=USAGE,
        says=says,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], ["expected an archive created by a drain"]),
        (["--apply"], ["expected an archive created by a drain"]),
    ],
)
def test_maintain_without_archive(arguments: list[str], says: list[str], tmp_path: Path) -> None:
    """A folder that isn't an archive isn't changed."""
    refused(
        tmp_path,
        "maintain",
        tmp_path,
        *("--bootstrap-servers", NOWHERE),
        *arguments,
        code=USAGE,
        says=says,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--retention-days", "0"], ["retention_days = 0", "greater than or equal to 1"]),
        (["--target-file-bytes", "10"], ["target_file_bytes = 10"]),
        (["--max-future-days", "1"], ["max_future_days is only with retention_days"]),
    ],
)
def test_maintain_options_not_acceptable(
    arguments: list[str], says: list[str], copied: Path
) -> None:
    """An invalid pipeline key is refused before anything is deleted."""
    refused(copied, "maintain", copied, *arguments, "--apply", code=USAGE, says=says)

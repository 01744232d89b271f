"""What tests share: one broker and one Spark session for the whole run, started when first used."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings

from kafka_drain import output
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import Receipt
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import nothing_new, open_drain
from kafka_drain.intervals import Interval
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.output import heard_by
from kafka_drain.proof.sealing import Identity
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.job_spec import DrainSpec, WindowSpec, write_private
from kafka_drain.storage.paths import locate
from kafka_drain.windows.backfill import finish_backfill, open_backfill
from kafka_drain.windows.backfill_plan import BackfillPlan, plan_backfill
from kafka_drain.windows.repair import finish_repair
from kafka_drain.windows.repair_plan import plan_repair
from kafka_drain.windows.window_jobs import open_window, prepare_window
from tests.brokers import SHORT_LIVED
from tests.faults.injection import wait_for
from tests.matrix import PAGE, VARIABLE, kind_of, note, show
from tests.object_stores import PACKAGES, SCHEMES, azure_server, gcs_server
from tests.s3_server import CREDENTIALS, s3_server, session_for
from tests.spark_session import spark_session

if TYPE_CHECKING:
    from tests.hdfs_cluster import Hdfs

Drain = Callable[..., dict[str, Any]]
#: What a test does to Kafka or to files while a run believes that nobody does.
Meddle = Callable[[], object]


def nothing() -> None:
    """Meddle with nothing."""


# How long an example takes says something of the machine, not of the code.
settings.register_profile("kafka-drain", deadline=None)
# For `make mutate`: the same few examples each time, and that one fails is enough.
settings.register_profile(
    "mutation",
    deadline=None,
    max_examples=25,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("kafka-drain")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Note what the run came to, where `make matrix` asks for it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    kind = kind_of(session.config.option.markexpr)
    # The table's rows are of the default Kafka.
    another_kafka = os.environ.get("DEMO_KAFKA")
    if VARIABLE not in os.environ or reporter is None or not kind or another_kafka:
        return
    outcomes = ("passed", "failed", "skipped")
    counts = {outcome: len(reporter.stats.get(outcome, ())) for outcome in outcomes}
    counts["failed"] += len(reporter.stats.get("error", ()))
    # The parts of `make test` run at the same time.
    with PAGE.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        note(kind, counts, utc_now().date().isoformat())
        show()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the modules that use the one Spark session: others may run beside them.

    Before the selection by marker, of which this is one.
    """
    for marker, fixture in (("spark", "spark"), ("kafka", "bootstrap_servers")):
        using = {item.path for item in items if fixture in getattr(item, "fixturenames", ())}
        for item in items:
            if item.path in using:
                item.add_marker(marker)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Seal the golden archive, if tests copy it, before one of them changes how that is done."""
    golden = sys.modules.get("tests.kafka_drain.golden")
    if golden is not None and not session.config.option.collectonly:
        golden.sealed()


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The lines of output, while the test runs."""
    lines: list[str] = []
    with heard_by(lines.append):
        yield lines


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees what the machine's user has set for himself, or an earlier test's task."""
    # A task of Airflow that ran in this process still listens.
    monkeypatch.setattr(output, "_listener", output._log)
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the one broker of this test run."""
    from demo.broker import KafkaCluster as LocalKafka

    folder = tmp_path_factory.mktemp("broker") / "kafka"
    with LocalKafka(folder, java_options=SHORT_LIVED) as local:
        yield local.bootstrap_servers


@pytest.fixture(scope="session")
def cluster(bootstrap_servers: str) -> KafkaCluster:
    """The one broker, as the product sees it."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one Spark session of this test run."""
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def drain(spark: Any, cluster: KafkaCluster) -> Drain:
    """Run a drain as the operator does, but in the shared Spark session.

    `before` is called between preflight and Spark's first look at Kafka, `after` between Spark's
    end and the drain's.
    """
    from kafka_drain_spark.drain import run_drain
    from kafka_drain_spark.job import JobFailed, failed_result
    from kafka_drain_spark.session import SPARK_ERRORS

    def run(
        pipeline: Pipeline, *, before: Meddle = nothing, after: Meddle = nothing, **options: Any
    ) -> dict[str, Any]:
        with (
            tempfile.TemporaryDirectory() as folder,
            open_drain(pipeline, cluster, Path(folder), run="tests", **options) as job,
        ):
            if job.plan.nothing_new:
                return nothing_new(job.plan)
            session = session_for(
                spark,
                pipeline.archive,
                dict(os.environ),
                is_locked=pipeline.immutable is not None,
            )
            before()
            try:
                result = run_drain(session, DrainSpec.read(Path(folder) / "drain.json"))
            except (JobFailed, *SPARK_ERRORS) as error:
                # As `run_jobs` does.
                result = failed_result(error)
            write_private(job.result_path, result)
            after()
            return job.result()

    return run


@pytest.fixture
def repair(spark: Any, cluster: KafkaCluster) -> Callable[[Archive, Pipeline], Receipt]:
    """Drain what is lost into a window as the command does, but in the shared Spark session.

    `before` and `after` are called as those of `drain`.
    """
    from kafka_drain_spark.window import run_window

    def run(
        archive: Archive,
        pipeline: Pipeline,
        *,
        deep: bool = False,
        before: Meddle = nothing,
        after: Meddle = nothing,
    ) -> Receipt:
        plan = plan_repair(archive, validate_archive(archive, cluster, deep=deep))
        document = archive.snapshot().document
        identity = Identity(document.pipeline, document.cluster_id, document.topics)
        window = open_window(
            archive, plan.window_key, plan.ranges, pipeline=pipeline, replaces=plan.replaces
        )
        with tempfile.TemporaryDirectory() as folder:
            job = prepare_window(
                window, plan.ranges, pipeline=pipeline, cluster=cluster, folder=Path(folder)
            )
            session = session_for(spark, pipeline.archive, dict(os.environ))
            before()
            write_private(
                job.result_path, run_window(session, WindowSpec.read(Path(folder) / "window.json"))
            )
            after()
            return finish_repair(job, cluster, identity, run="tests")

    return run


@pytest.fixture
def backfill(spark: Any, cluster: KafkaCluster) -> Callable[..., BackfillPlan]:
    """Backfill an interval as the operator does, but in the shared Spark session.

    `before` and `after` are called as those of `drain`.
    """
    from kafka_drain_spark.job import JobFailed, failed_result
    from kafka_drain_spark.session import SPARK_ERRORS
    from kafka_drain_spark.window import run_window

    def run(
        pipeline: Pipeline,
        interval: Interval,
        *,
        before: Meddle = nothing,
        after: Meddle = nothing,
        **options: Any,
    ) -> BackfillPlan:
        plan = plan_backfill(pipeline, cluster, interval, **options)
        if not plan.nothing_to_do:
            with tempfile.TemporaryDirectory() as folder:
                job = open_backfill(plan, pipeline, cluster, Path(folder))
                spec = WindowSpec.read(Path(folder) / "window.json")
                session = session_for(spark, pipeline.archive, dict(os.environ))
                before()
                try:
                    result = run_window(session, spec)
                except (JobFailed, *SPARK_ERRORS) as error:
                    # As `run_jobs` does.
                    result = failed_result(error)
                write_private(job.result_path, result)
                after()
                finish_backfill(plan, job, cluster, run="tests")
        return plan

    return run


@pytest.fixture
def republish(cluster: KafkaCluster) -> Callable[..., dict[str, Any]]:
    """Republish an archive from this process, and return the receipt."""
    from kafka_drain.republish.engines.select import Engines
    from kafka_drain.republish.planning.request import RepublishRequest
    from kafka_drain.republish.run import plan_republish

    def no_spark(*_: Any) -> None:
        raise AssertionError("this fixture sends from this process")

    def run(
        archive: Archive,
        target_topic: str | None = None,
        *,
        processes: int = 1,
        **asked: Any,
    ) -> dict[str, Any]:
        asked = {"engine": "worker", **asked}
        planned = plan_republish(
            archive,
            cluster,
            RepublishRequest(target_topic=target_topic, **asked),
            now=utc_now(),
            apply=True,
        )
        # Without Spark, so without its configuration.
        with Engines(
            str(archive.root),
            cluster,
            Pipeline(name="none", topics=["none"], archive="/none"),
            Path("/nowhere"),
            no_spark,
            processes,
        ) as engines:
            return planned.execute(engines, utc_now)

    return run


@pytest.fixture
def make_topic(bootstrap_servers: str) -> Callable[..., str]:
    """Create a topic with a name of its own; keeps old timestamps unless told otherwise."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def make(partitions: int = 2, name: str | None = None, **config: str) -> str:
        topic = name or f"t-{uuid.uuid4().hex[:8]}"
        settings = {"retention.ms": "-1"} | {k.replace("_", "."): v for k, v in config.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(20)
        # The controller has made it; the broker learns of it a moment later.
        wait_for(lambda: topic in admin.list_topics(timeout=20).topics, f"topic {topic}")
        return topic

    return make


@pytest.fixture
def send(bootstrap_servers: str) -> Callable[..., None]:
    """Send records to a partition: (key, value, headers, timestamp in milliseconds)."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "message.max.bytes": 8 << 20,
            # The broker ends before this producer does: no lines about it.
            "log_level": 0,
        }
    )

    def run(topic: str, records: list[Any], partition: int = 0) -> None:
        failed: list[Any] = []
        for key, value, headers, timestamp in records:
            producer.produce(
                topic,
                key=key,
                value=value,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(30) == 0
        assert not failed

    return run


@pytest.fixture
def read(bootstrap_servers: str) -> Callable[[str], dict[int, list[Any]]]:
    """Read a topic whole: by partition, (key, value, headers, timestamp), in order."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    def run(topic: str) -> dict[int, list[Any]]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "tests",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.message.max.bytes": 16 << 20,
            }
        )
        partitions = sorted(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found: dict[int, list[Any]] = {p: [] for p in partitions}
        waiting = set(partitions)
        deadline = time.monotonic() + 60
        while waiting:
            assert time.monotonic() < deadline, f"{topic} wasn't read within a minute"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())
                continue
            assert message.error() is None
            found[message.partition()].append(
                (message.key(), message.value(), message.headers(), message.timestamp()[1])
            )
        consumer.close()
        return found

    return run


@pytest.fixture(scope="session")
def spark_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[int]]]:
    """A standalone Spark cluster: its master's URL, and the process ids of its two workers."""
    from tests.faults.spark_cluster import standalone_spark

    with standalone_spark(tmp_path_factory.mktemp("standalone")) as started:
        yield started


@pytest.fixture(scope="session")
def source_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the real Schema Registry that records come from."""
    from tests.apicurio_registry import apicurio_registry

    with apicurio_registry(tmp_path_factory.mktemp("source-registry")) as url:
        yield url


@pytest.fixture(scope="session")
def target_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of another one, with ids of its own."""
    from tests.apicurio_registry import apicurio_registry

    with apicurio_registry(tmp_path_factory.mktemp("target-registry")) as url:
        yield url


@pytest.fixture(scope="session")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the one S3 server of this test run."""
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as url:
        yield url


@pytest.fixture
def bucket(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a new bucket; this process's environment opens it."""
    import s3fs

    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_url}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    s3fs.S3FileSystem(use_listings_cache=False).mkdir(name)
    yield f"s3://{name}"
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="session")
def azure_variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment for the one Azurite of this test run."""
    with azure_server(tmp_path_factory.mktemp("azure")) as environment:
        yield environment


@pytest.fixture(scope="session")
def gcs_variables() -> Iterator[dict[str, str]]:
    """Environment for the one fake-gcs-server of this test run."""
    with gcs_server() as environment:
        yield environment


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """The one HDFS of this test run."""
    if "TESTS_HDFS" not in os.environ:
        pytest.skip("`make test-hdfs` runs it")
    from tests.hdfs_cluster import hdfs_cluster

    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


@pytest.fixture
def bucket_in(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """Make a bucket in a store: `s3`, `azure` or `gcs`; in `hdfs`, a folder.

    This process's environment opens it.
    """

    def make(store: str) -> str:
        if store == "s3":
            return str(request.getfixturevalue("bucket"))
        if store == "hdfs":
            cluster: Hdfs = request.getfixturevalue("hdfs")
            monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf))
            return f"{cluster.address}/bucket-{uuid.uuid4().hex[:8]}"
        variable, scheme = SCHEMES[store]
        if variable not in os.environ:
            pytest.skip("`make test-azure-gcs` runs it")
        for name, value in request.getfixturevalue(f"{store}_variables").items():
            monkeypatch.setenv(name, value)
        # Drivers and commands have to find the store's package.
        monkeypatch.setenv("PYTHONPATH", PACKAGES, prepend=os.pathsep)
        name = f"bucket-{uuid.uuid4().hex[:8]}"
        locate(f"{scheme}://{name}").fs.mkdir(name)
        return f"{scheme}://{name}"

    return make


@pytest.fixture
def archive_folder(tmp_path: Path) -> str:
    """A folder for an archive, which doesn't exist yet."""
    return str(tmp_path / "archive")


def manifest_files(archive: Archive) -> list[str]:
    """List the manifest files of generation 1."""
    folder = archive.generation(1).data / "_spark_metadata"
    return sorted(name for name in os.listdir(str(folder)) if not name.startswith("."))

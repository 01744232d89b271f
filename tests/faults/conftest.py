"""Fixtures for fault injections, in addition to the shared broker and Spark session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import DrainJob, open_drain, prepare_drain
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition as KafkaPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.engines import worker
from kafka_drain.spark.job_spec import DrainSpec, write_private
from tests.brokers import SHORT_LIVED
from tests.faults.injection import NOON, PATIENCE
from tests.faults.republish_case import Case
from tests.faults.republishing import ROOT, Record, make_target, read_topic, send_all
from tests.kafka_drain.made_archive import MadeArchive, dense


@dataclass(frozen=True)
class Running:
    """A drain that runs alongside the test."""

    job: DrainJob
    exit_code: Future[int]

    def ended(self) -> bool:
        return self.exit_code.done()

    def code(self) -> int:
        """Wait for the end; return the exit code that spark-submit would have."""
        return self.exit_code.result(2 * PATIENCE)

    def finish(self) -> dict[str, Any]:
        """Wait for the end; return the result, or raise the error, as the operator does."""
        self.code()
        return self.job.result()


Start = Callable[[Pipeline], Running]


@pytest.fixture
def start(
    spark: Any, cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    """Start a drain as spark-submit would, but in the shared session, without waiting for it."""
    from kafka_drain_spark.drain import run_drain
    from kafka_drain_spark.job import run_jobs

    # The session outlives the job.
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    folders = (tmp_path / f"run-{number}" for number in range(100))
    with ThreadPoolExecutor(1) as pool:

        def run(pipeline: Pipeline) -> Running:
            folder = next(folders)
            folder.mkdir()
            job = prepare_drain(pipeline, cluster, folder)
            spec = DrainSpec.read(folder / "drain.json")
            return Running(job, pool.submit(run_jobs, [spec], run_drain))

        yield run
        for query in spark.streams.active:
            query.stop()


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    """A client that changes topics."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


@pytest.fixture(scope="session")
def packed_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with what a republish needs on executors, as an archive for Spark."""
    folder = tmp_path_factory.mktemp("packed")
    uv = Path(sys.executable).with_name("uv")
    needed = ("confluent-kafka", "fastavro[codecs]", "pyarrow", "universal-pathlib", "xxhash")
    lock = "requirements.lock" if AIRFLOW_V_3_0_PLUS else "requirements-airflow2.lock"
    for command in (
        ("venv", "--quiet", "--python", sys.executable, str(folder / "python")),
        ("pip", "install", "--quiet", "--python", str(folder / "python"), "-c", lock, *needed),
    ):
        subprocess.run([uv, *command], cwd=ROOT, check=True)
    # Only this suffix is unpacked with tar: Spark's own way drops links and permissions
    # (SPARK-38632).
    archive = folder / "python.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packing:
        packing.add(folder / "python", ".")
    return archive


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    as_root = ["sudo", "--non-interactive"] if os.geteuid() and shutil.which("sudo") else []
    mounted = subprocess.run(
        [*as_root, "mount", "-t", "tmpfs", "-o", "size=1m,mode=0777", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small file system needs the right to mount: {mounted.stderr.strip()}")
    yield folder
    # Lazily, because Spark may still have a file open.
    subprocess.run([*as_root, "umount", "--lazy", str(folder)], check=True)


@dataclass(frozen=True)
class Sealed:
    """An archive with its receipts, and the content of its topic.

    The last record of partition 0 has 20 KB, which no compression makes smaller.
    """

    folder: Path
    topic: str
    content: dict[int, list[Record]]

    @property
    def records(self) -> int:
        return sum(map(len, self.content.values()))


@pytest.fixture(scope="session")
def sealed(
    spark: Any,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Sealed:
    """An archive of two partitions, drained and sealed once; tests work on copies."""
    from kafka_drain_spark.drain import run_drain

    topic = make_target(bootstrap_servers, f"sealed-{uuid.uuid4().hex[:8]}", 2)
    send_all(bootstrap_servers, topic, 2, 1_800)
    large = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    large.produce(topic, os.urandom(20_000), None, partition=0, timestamp=NOON)
    assert large.flush(30) == 0
    root = tmp_path_factory.mktemp("sealed") / "archive"
    pipeline = Pipeline(name="faults", topics=[topic], archive=str(root))
    with (
        tempfile.TemporaryDirectory() as folder,
        open_drain(pipeline, cluster, Path(folder), run="faults") as job,
    ):
        result = run_drain(spark, DrainSpec.read(Path(folder) / "drain.json"))
        write_private(job.result_path, result)
        job.result()
    assert validate_archive(Archive.at(str(root)), cluster).complete
    return Sealed(root, topic, read_topic(bootstrap_servers, topic))


@pytest.fixture(scope="session")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker with ACLs that tests may kill; it aborts transactions soon after their timeout."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Principals not named here may do everything that no ACL covers.
        "allow.everyone.if.no.acl.found": "true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        # Some clusters allow no more than the product promises to need.
        "offset.metadata.max.bytes": "1024",
        # A killed broker may come back after that time, instead of only after 9 s.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
    }
    folder = tmp_path_factory.mktemp("own-kafka")
    with LocalKafka(folder / "kafka", properties=properties, java_options=SHORT_LIVED) as started:
        yield started


@pytest.fixture
def made_case(own_kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """An archive of two partitions with 900 records each, created without Spark."""
    monkeypatch.setattr(worker, "LANES", 1)
    made = MadeArchive(tmp_path / "archive", {"made": "id-of-made"})
    made.seal_window("0_1", {KafkaPartition("made", p): dense(0, 900, NOON) for p in range(2)})
    content = {p: [(b"%d" % n, b"value", (), NOON + n) for n in range(900)] for p in range(2)}
    bootstrap = own_kafka.bootstrap_servers
    target = make_target(bootstrap, f"t-{uuid.uuid4().hex[:8]}", 2)
    kafka = KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap}))
    return Case(made.archive, kafka, target, content, tmp_path)


@pytest.fixture
def case(
    sealed: Sealed, own_kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Case:
    """A copy of the archive, to be sent to a topic of the broker that may be killed.

    Its shards are sent one after another, so that a test knows which call is in progress.
    """
    monkeypatch.setattr(worker, "LANES", 1)
    root = shutil.copytree(sealed.folder, tmp_path / "archive")
    bootstrap = own_kafka.bootstrap_servers
    target = make_target(bootstrap, f"t-{uuid.uuid4().hex[:8]}", 2)
    kafka = KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap}))
    return Case(Archive.at(str(root)), kafka, target, sealed.content, tmp_path)

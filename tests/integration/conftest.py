"""What tests share: servers of Spark Connect and YARN, a topic for each, a second Kafka cluster."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.broker.ports import free_ports
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.compact import SPARK_CONF
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.spark.job_spec import CompactSpec, write_private
from kafka_drain.spark.submit import SparkApplication, spark_version
from tests.brokers import SHORT_LIVED
from tests.spark_connect import Server, fill
from tests.yarn_cluster import YarnCluster, yarn_cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs Spark Connect where Spark is older."""
    for item in items:
        if "connect" in item.keywords and spark_version() < (4,):
            item.add_marker(pytest.mark.skip(reason="Spark Connect needs Spark 4.0"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The one Spark Connect server of this test run."""
    (port,) = free_ports(1, ())
    found = Server(port, tmp_path_factory.mktemp("server") / "log")
    found.start()
    yield found
    if not found.has_ended():
        assert found.stop() == 0, found.said()


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    """The one YARN of this test run."""
    with yarn_cluster(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def other_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A second cluster beside the one of the run: a newer Kafka, smaller batches, an authorizer.

    Everybody who comes here may do anything.
    """
    from demo.broker import KafkaCluster as LocalKafka

    properties = {
        "message.max.bytes": "100000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    folder = tmp_path_factory.mktemp("other") / "kafka"
    with LocalKafka(
        folder, java_options=SHORT_LIVED, properties=properties, version="4.4.0"
    ) as local:
        yield KafkaCluster(KafkaConfig({"bootstrap.servers": local.bootstrap_servers}))


@pytest.fixture
def topic(make_topic: Any, send: Any) -> str:
    """A topic with records in two partitions."""
    name: str = make_topic(partitions=2)
    fill(send, name)
    return name


@pytest.fixture(scope="module")
def filled() -> list[Pipeline]:
    """The archive of a module of which `copied` makes copies, once it is filled."""
    return []


@pytest.fixture
def copied(
    filled: list[Pipeline],
    tmp_path_factory: pytest.TempPathFactory,
    make_topic: Callable[..., str],
    archive_folder: str,
) -> Callable[[Callable[[Pipeline], None]], Pipeline]:
    """Copy an archive of two partitions, for tests that don't send or drain any more.

    The function that it is given fills the archive: once for all tests of a module.
    """

    def copy(fill_archive: Callable[[Pipeline], None]) -> Pipeline:
        if not filled:
            first = str(tmp_path_factory.mktemp("filled") / "archive")
            filled.append(Pipeline(name="kept", topics=[make_topic(2)], archive=first))
            fill_archive(filled[0])
        shutil.copytree(filled[0].archive, archive_folder)
        return Pipeline(**(filled[0].model_dump() | {"archive": archive_folder}))

    return copy


@pytest.fixture
def runner(spark: Any) -> Iterator[SparkRunner]:
    """Run a compaction in the same way as spark-submit, but in the shared Spark session."""
    from kafka_drain_spark.compact import run_compact

    before = {name: spark.conf.get(name) for name in SPARK_CONF}

    def run(application: SparkApplication) -> None:
        spec = CompactSpec.read(application.specs[0])
        write_private(Path(spec.result_path), run_compact(spark, spec))

    for name, value in SPARK_CONF.items():
        spark.conf.set(name, value)
    yield run
    for name, value in before.items():
        spark.conf.set(name, value)

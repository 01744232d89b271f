"""Several drains in one application: each has its own lease, checks and result."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.spark_conf import AVRO_LIMITS
from kafka_drain.drain.group import GroupJob, open_group, raise_failures, run_group
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    DataLossError,
    KafkaDrainError,
    LockedError,
    SparkJobError,
    TopicError,
)
from kafka_drain.offsets import TopicPartition
from kafka_drain.schemas.decoding import ValuePlan
from kafka_drain.spark.engine import NoServerError, StartedApplication, StillRunningError
from kafka_drain.spark.job_spec import write_private
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.storage.lease import find_lease
from kafka_drain.storage.paths import locate
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.tables import each_of

#: Number of records that Kafka has for each pipeline.
HELD = {"a": 10, "b": 30, "c": 0, "d": 20}


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Open a group of the pipelines of `HELD`, some of which are refused."""

    def assemble(name: str, *, spec_path: Path, **given: Any) -> SparkApplication:
        made = fake_application(name, spec_path=spec_path, **given)
        return replace(made, arguments=["drain", str(spec_path)])

    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", assemble)
    pipelines = [
        Pipeline(name=name, topics=[name], archive=str(tmp_path / f"archive-{name}"))
        for name in HELD
    ]
    cluster: Any = FakeCluster({TopicPartition(t, 0): Log(end=end) for t, end in HELD.items()})

    def open_them(*refused: str, **more: Any) -> Any:
        def check(pipeline: Pipeline) -> None:
            if pipeline.name in refused:
                raise ArchiveError("not mounted")

        clusters = {"kafka_default": cluster}
        return open_group(pipelines, clusters, tmp_path, run="r", check=check, **more)

    return open_them


@pytest.fixture
def group(opened: Any) -> Iterator[GroupJob]:
    """The group, with all of its pipelines."""
    with opened() as group:
        yield group


def write_result(group: GroupJob, name: str, **result: Any) -> None:
    """Write what Spark says of one drain."""
    write_private(group.jobs[name].result_path, {"records": 1, **result})


def test_open_group(group: GroupJob, tmp_path: Path) -> None:
    """One application has the specs and leases of all drains that have something to do."""
    names = ["a", "b", "d"]

    assert list(group.plans) == list(HELD)
    assert list(group.jobs) == names
    assert group.results["c"]["offsets"] == 0
    assert group.application is not None
    assert group.application.kind == "drain"
    assert group.application.specs == [job.application.specs[0] for job in group.jobs.values()]
    leases = {name: find_lease(locate(tmp_path / f"archive-{name}")) for name in names}
    assert group.application.leases == {
        str(tmp_path / f"archive-{name}"): lease.token for name, lease in leases.items() if lease
    }
    assert len(group.application.leases) == len(names)


def test_open_group_of_the_largest(group: GroupJob) -> None:
    """The application has the settings of the drain with most offsets."""
    assert group.application is not None
    [largest] = [job for job in group.jobs.values() if job.plan.offsets == max(HELD.values())]
    arguments, leases = group.application.arguments, group.application.leases

    assert group.application == replace(
        largest.application, name="drain_group", arguments=arguments, leases=leases
    )


@pytest.mark.parametrize("decoding", ["orders", "events"])
def test_open_group_decoding_limits(decoding: str, tmp_path: Path) -> None:
    """A value's false length is limited whichever drain decodes, also if another one is larger."""
    parts = {TopicPartition("orders", 0): Log(end=10), TopicPartition("events", 0): Log(end=30)}
    cluster: Any = FakeCluster(parts)
    jars = ["/jars/connector.jar"]
    schema = tmp_path / "1.avsc"
    schema.write_text('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}')
    values = {decoding: {"encoding": "avro", "schema_files": {1: str(schema)}}}
    pipelines = [
        Pipeline(
            name=tp.topic,
            topics=[tp.topic],
            archive=str(tmp_path / tp.topic),
            jars=jars,
            values=values.get(tp.topic),
        )
        for tp in parts
    ]

    with open_group(pipelines, {"kafka_default": cluster}, tmp_path, run="r") as group:
        assert group.failures == {}
        assert group.application is not None
        for side in ("driver", "executor"):
            options = group.application.conf[f"spark.{side}.extraJavaOptions"].split()
            assert [option for option in options if option in AVRO_LIMITS] == list(AVRO_LIMITS)


@pytest.mark.parametrize("refused", ["a", "b", "d"])
def test_open_group_one_refused(opened: Any, refused: str, tmp_path: Path) -> None:
    """A pipeline that can't be drained keeps none of the others from it, and no lease."""
    with opened(refused) as group:
        assert list(group.failures) == [refused]
        assert set(group.jobs) == {"a", "b", "d"} - {refused}
        assert find_lease(locate(tmp_path / f"archive-{refused}")) is None


def test_open_group_all_refused(opened: Any) -> None:
    """Without a drain there is no application, and nothing is run."""
    with opened(*HELD) as group:
        run_group(group, pytest.fail)

        assert group.application is None
        assert list(group.failures) == list(HELD)


def test_run_group(group: GroupJob) -> None:
    """Each drain has its own result or error."""

    def run(_: SparkApplication) -> None:
        write_result(group, "a", records=10)
        write_result(group, "b", error="no topic", error_type="TopicError")
        write_result(group, "d", records=20)
        raise SparkJobError("exit code 1")

    run_group(group, run)

    assert {name: result["records"] for name, result in group.results.items()} == {
        "a": 10,
        "c": 0,
        "d": 20,
    }
    assert [type(error) for error in group.failures.values()] == [TopicError]


def test_run_group_unexplained(group: GroupJob) -> None:
    """If spark-submit failed and no drain says why, its own error is raised."""

    def run(_: SparkApplication) -> None:
        for name in group.jobs:
            write_result(group, name)
        raise SparkJobError("exit code 1")

    with pytest.raises(SparkJobError, match="exit code 1"):
        run_group(group, run)


def test_run_group_no_server(group: GroupJob) -> None:
    """Where nothing could be run, no drain is said to have ended without a result."""

    def run(_: SparkApplication) -> None:
        raise NoServerError("nobody there")

    with pytest.raises(NoServerError):
        run_group(group, run)

    assert group.failures == {}


def test_run_group_still_running(opened: Any, tmp_path: Path) -> None:
    """The leases of a driver that can't be followed any more are left to it: it goes on."""

    def run(_: SparkApplication) -> None:
        raise StillRunningError("no ResourceManager answers")

    with pytest.raises(StillRunningError, match="no ResourceManager answers"), opened() as group:
        run_group(group, run)

    for name in group.jobs:
        assert find_lease(locate(tmp_path / f"archive-{name}")) is not None


@each_of(
    ("failures", "kind"),
    [
        ([TopicError], TopicError),
        ([DataLossError, TopicError], DataLossError),
        ([LockedError], SparkJobError),
        ([TopicError, LockedError], SparkJobError),
        ([LockedError, TopicError], SparkJobError),
    ],
)
def test_raise_failures(failures: list[type[KafkaDrainError]], kind: type[KafkaDrainError]) -> None:
    """A group is tried again if that helps one of its pipelines; all of them are named."""
    named = {f"p{number}": each(f"why {number}") for number, each in enumerate(failures)}

    with pytest.raises(kind) as raised:
        raise_failures(GroupJob(failures=named))

    assert type(raised.value) is kind
    assert str(raised.value) == (
        f"{len(failures)} of the group's pipelines weren't drained: "
        + "; ".join(f"{name}: {error}" for name, error in named.items())
    )


def test_raise_failures_none() -> None:
    """A group without failures has ended well."""
    raise_failures(GroupJob())


def test_open_group_file_system(opened: Any, tmp_path: Path) -> None:
    """An archive whose file system can't be read doesn't keep the others from being drained."""
    (tmp_path / "archive-a").symlink_to(tmp_path / "archive-a")

    with opened() as group:
        assert list(group.jobs) == ["b", "d"]
        assert "symbolic links" in str(group.failures["a"])


def test_finish_group_file_system(group: GroupJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails for one archive doesn't hide what the others drained."""
    for name in ("b", "d"):
        write_result(group, name)

    def fail(job: Any) -> Any:
        raise OSError(5, "Input/output error", "/archive-a")

    failing = group.jobs["a"]
    result = type(failing).result
    monkeypatch.setattr(
        type(failing), "result", lambda job: fail(job) if job is failing else result(job)
    )
    run_group(group, lambda _: None)

    assert group.results.keys() == {"b", "c", "d"}
    with pytest.raises(SparkJobError, match="a: /archive-a: Input/output error; check that"):
        raise_failures(group)


def test_open_group_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drain has its own connection and registry; what runs already is asked for each."""
    registries, found = list[Any](), list[str]()

    def assemble(name: str, *, spec_path: Path, **given: Any) -> SparkApplication:
        made = fake_application(name, spec_path=spec_path, **given)
        return replace(made, arguments=["drain", str(spec_path)])

    def plan_values(pipeline: Pipeline, *given: Any) -> ValuePlan:
        registries.append((pipeline.name, given[2]))
        return ValuePlan()

    def find(application: SparkApplication) -> None:
        found.append(application.name)

    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", assemble)
    monkeypatch.setattr("kafka_drain.drain.drain.plan_values", plan_values)
    clusters: Any = {
        name: FakeCluster({TopicPartition(topic, 0): Log(end=end)}, id=name)
        for name, topic, end in (("kafka_one", "a", 1), ("kafka_two", "b", 2))
    }
    pipelines = [
        Pipeline(name=topic, topics=[topic], kafka_conn_id=name, archive=str(tmp_path / topic))
        for name, topic in (("kafka_one", "a"), ("kafka_two", "b"))
    ]
    registry_of: Any = lambda pipeline: f"registry of {pipeline.name}"  # noqa: E731

    with open_group(
        pipelines, clusters, tmp_path, run="the run", registry_of=registry_of, find=find
    ) as group:
        assert group.failures == {}
        assert {name: plan.cluster_id for name, plan in group.plans.items()} == {
            "a": "kafka_one",
            "b": "kafka_two",
        }
        assert list(group.jobs) == ["a", "b"]
        for number, name in enumerate(group.jobs):
            lease = find_lease(locate(tmp_path / name))
            assert lease is not None
            assert lease.run == "the run"
            # Secrets are written there.
            folder = group.jobs[name].result_path.parent
            assert folder == tmp_path / f"00{number}"
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    assert set(registries) == {("a", "registry of a"), ("b", "registry of b")}
    assert found == ["drain_a", "drain_b"]
    assert [find_lease(locate(tmp_path / name)) for name in ("a", "b")] == [None, None]


def test_open_group_refused(tmp_path: Path) -> None:
    """Pipelines that can't share an application are refused, and nothing is written."""
    pipelines = [
        Pipeline(name=name, topics=["a"], archive=str(tmp_path / "archive")) for name in "ab"
    ]
    nobody: Any = {}

    with (
        pytest.raises(ConfigError, match="have the archive"),
        open_group(pipelines, nobody, tmp_path, run="r"),
    ):
        pass

    assert list(tmp_path.iterdir()) == []


def test_open_group_found(opened: Any) -> None:
    """A drain that an earlier process has started is followed, even if nothing is new by now."""
    with opened(find=lambda _: StartedApplication("a_1")) as group:
        assert list(group.jobs) == list(HELD)
        assert group.results == {}

"""Applications, and the environment in which spark-submit runs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kafka_drain
import kafka_drain_spark
from kafka_drain.config.encryption import Encryption
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.spark_conf import AVRO_LIMITS, FIXED, compile_less
from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.spark import java, submit
from kafka_drain.spark.jars import fetch
from kafka_drain.spark.java import Java
from kafka_drain.spark.submit import (
    IN_CLUSTER,
    SHARED_CLASSES,
    SparkApplication,
    check_spark_version,
    connector_jars,
    for_master,
    for_offsets,
    java_options_elsewhere,
    kafka_options,
    may_outlive,
    prepare_application,
    read_properties,
    spark_environment,
    with_needs_of,
    without_connect,
)
from kafka_drain.storage.s3 import CHECKSUMS_OPTION, s3_conf
from tests.kafka_drain.fake_cluster import fake_application


def test_spark_environment() -> None:
    """The driver is a classic one of this Python, also where pyspark-connect is installed."""
    found = spark_environment(Java(Path("/jdk/bin/java"), 17), {"PATH": "/bin"})

    assert found["SPARK_CONNECT_MODE"] == "0"
    assert found["PYSPARK_PYTHON"] == sys.executable
    assert found["JAVA_HOME"] == "/jdk"
    assert found["PATH"] == f"{found['SPARK_HOME']}/bin:/bin"
    assert "LC_ALL" not in found


def test_without_connect() -> None:
    """A worker's variables for a Spark Connect server are nothing to a Spark that is started.

    Empty ones would still count: Spark looks whether they are there.
    """
    current = {"PATH": "/bin", "SPARK_REMOTE": "sc://elsewhere", "SPARK_API_MODE": "connect"}

    assert without_connect(current) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("given", "found"), [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_DE.UTF-8", None), ("", None)]
)
def test_spark_environment_locale(given: str, found: str | None) -> None:
    """Java knows the file names that Python knows."""
    made = spark_environment(Java(Path("/jdk/bin/java"), 17), {"LC_ALL": given})

    assert made.get("LC_ALL") == found


@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        ("drain", True),
        ("window", True),
        ("compact", True),
        ("sink", True),
        # These send our own code to executors, which a session of its own keeps apart.
        ("send", False),
        ("validate", False),
    ],
)
def test_prepare_application_for_connect_shares_classes(
    kind: str, shared: bool, tmp_path: Path
) -> None:
    """What a server compiles for one session's query is there for the next one's."""
    pipeline = Pipeline(name="p", topics=["t"], archive=str(tmp_path / "archive"))
    with for_master("sc://h"):
        found = prepare_application(
            "p", kind=kind, spec_path=tmp_path / "spec", pipeline=pipeline, folder=tmp_path
        )

    assert (SHARED_CLASSES.items() <= found.conf.items()) is shared
    assert shared or not SHARED_CLASSES.keys() & found.conf.keys()


@pytest.mark.parametrize("prefix", ["spark.hadoop.", ""])
def test_with_needs_of_locked(prefix: str) -> None:
    """Files of a bucket that locks them have checksums, whichever archive the application is of.

    Nothing else is taken from the others, such as what suits a short job.
    """
    [option] = s3_conf({}, is_locked=True).keys() - s3_conf({}).keys()
    option = prefix + option.removeprefix("spark.hadoop.")
    first = replace(fake_application("a"), conf={"x": "1"})
    other = replace(fake_application("b"), conf={"x": "2", "y": "3", option: "CRC32"})

    assert with_needs_of(first, [first, other]).conf == {"x": "1", option: "CRC32"}
    assert with_needs_of(first, [first]).conf == {"x": "1"}


SITE = """\
# Kerberos
spark.driver.extraJavaOptions    -Djava.security.krb5.conf=/etc/site/krb5.conf -XX:+UseG1GC
spark.executor.extraJavaOptions  -Djava.security.krb5.conf=/etc/site/krb5.conf
spark.driver.extraClassPath      /opt/site/*
spark.driver.defaultJavaOptions  -Dsite=1
spark.submit.deployMode          cluster
"""


@pytest.mark.parametrize("given", [{}, {"spark.executor.extraJavaOptions": "-Dmine=1"}])
def test_prepare_application_keeps_site_options(
    given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Java options and class path of spark-defaults.conf stay, unless the pipeline has its own.

    Options of executors don't count as the driver's.
    """
    (tmp_path / "spark-defaults.conf").write_text(SITE)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(java, "require_java", lambda: Java(Path("/jdk/bin/java"), 17))
    archive = str(tmp_path / "archive")
    pipeline = Pipeline(
        name="p", topics=["t"], archive=archive, jars=["/j/a.jar"], spark_conf=given
    )

    found = prepare_application(
        "p", kind="drain", spec_path=tmp_path / "spec", pipeline=pipeline, folder=tmp_path
    ).conf

    krb5 = "-Djava.security.krb5.conf=/etc/site/krb5.conf"
    driver = found["spark.driver.extraJavaOptions"].split()
    executor = found["spark.executor.extraJavaOptions"].split()
    assert driver[:3] == [krb5, "-XX:+UseG1GC", "-Duser.timezone=UTC"]
    assert "-XX:+UseParallelGC" not in driver
    assert executor == ["-Dmine=1" if given else krb5, "-Duser.timezone=UTC"]
    assert found["spark.driver.extraClassPath"] == "/j/a.jar:/opt/site/*"
    assert java_options_elsewhere({"SPARK_CONF_DIR": str(tmp_path)}).split() == ["-Dsite=1"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.b  c d ", {"a.b": "c d"}),
        ("a=b=c\nd : e:f\n g\t=\th", {"a": "b=c", "d": "e:f", "g": "h"}),
        ("a 1\n\na 2", {"a": "2"}),
        ("# a 1\n  ! b 2\na #1", {"a": "#1"}),
        ("a b \\\n # c \\\nd\n# e \\\nf g", {"a": "b # c d", "f": "g"}),
        ("a", {"a": ""}),
        ("a\nb 1", {"a": "", "b": "1"}),
        ("a b \\\n   c\nd e\\\\\nf g", {"a": "b c", "d": "e\\", "f": "g"}),
        (r"a\:b c\u00e9\=\\d", {"a:b": "cé=\\d"}),
        ("", {}),
    ],
)
def test_read_properties(text: str, found: dict[str, str]) -> None:
    """A file of properties is read as Java reads it."""
    assert read_properties(text) == found


Prepare = Callable[..., SparkApplication]


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Prepares a drain on a machine that has a Java, whatever its site sets."""
    for name in ("SPARK_CONF_DIR", *submit._JAVA_VARIABLES, *submit._FOR_CONNECT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(java, "require_java", lambda: Java(Path("/jdk/bin/java"), 17))
    monkeypatch.setattr(submit, "find_class_archive", lambda _: Path("/classes.jsa"))

    def make(
        master: str,
        deploy_mode: str = "client",
        fixed: Any = None,
        needs_connector: bool = True,
        **keys: Any,
    ) -> Any:
        defaults: dict[str, Any] = {"archive": str(tmp_path / "archive"), "jars": ["/j/a.jar"]}
        pipeline = Pipeline(name="p", topics=["t"], **defaults | keys)
        with for_master(master, deploy_mode):
            return submit.prepare_application(
                "p",
                kind="drain",
                spec_path=tmp_path / "spec",
                pipeline=pipeline,
                folder=tmp_path,
                needs_connector=needs_connector,
                fixed=fixed,
            )

    return make


def test_prepare_application_packages(prepare: Prepare) -> None:
    """Driver and executors get all modules of both packages, as they are here."""
    with zipfile.ZipFile(prepare("sc://h", jars=[]).py_files) as archive:
        sent = {name: archive.read(name) for name in archive.namelist()}

    folders = [Path(str(package.__file__)).parent for package in (kafka_drain, kafka_drain_spark)]
    assert sent == {
        str(path.relative_to(folder.parent)): path.read_bytes()
        for folder in folders
        for path in folder.rglob("*.py")
    }
    assert {"kafka_drain/spark/submit.py", "kafka_drain_spark/job.py"} <= sent.keys()


def test_prepare_application_memory(prepare: Prepare) -> None:
    """The heap's size counts by Spark's own name too, which spark-submit would overrule."""
    found = prepare("local[2]", spark_conf={"spark.driver.memory": "4g"})

    assert found.driver_memory == "4g"
    assert "spark.driver.memory" not in found.conf


def test_prepare_application_on_this_machine(prepare: Prepare, tmp_path: Path) -> None:
    """The driver has this Python, and Java's classes in the archive, whose jars come first."""
    found = prepare("local[1]", spark_conf={"spark.driver.extraClassPath": "/k"})

    assert found.conf["spark.pyspark.driver.python"] == sys.executable
    assert found.conf["spark.driver.extraClassPath"] == "/j/a.jar:/k"
    assert "-XX:SharedArchiveFile=/classes.jsa" in found.conf["spark.driver.extraJavaOptions"]
    assert "/classes.jsa" not in found.conf["spark.executor.extraJavaOptions"]
    assert not IN_CLUSTER.keys() & found.conf.keys()
    assert found.environment["PYSPARK_PYTHON"] == sys.executable
    assert (found.jars, found.archive) == (["/j/a.jar"], str(tmp_path / "archive"))
    assert (found.kind, found.specs) == ("drain", [tmp_path / "spec"])
    assert not found.on_connect


@pytest.mark.parametrize("master", ["yarn", "k8s://https://h"])
def test_prepare_application_in_cluster(
    master: str, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver on another machine isn't told what is here: Python, files, options of Java."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC -agentlib:none")

    found = prepare(master, "cluster")

    assert IN_CLUSTER.items() <= found.conf.items()
    assert "spark.pyspark.driver.python" not in found.conf
    assert "spark.driver.extraClassPath" not in found.conf
    options = found.conf["spark.driver.extraJavaOptions"]
    assert "/classes.jsa" not in options
    assert "-XX:+UseParallelGC" in options
    assert "PYSPARK_PYTHON" not in found.environment
    assert found.jars == ["/j/a.jar"]


@pytest.mark.parametrize(("master", "jars"), [("local[1]", ["/j/a.jar"]), ("sc://h", [])])
def test_prepare_application_precedence(master: str, jars: list[str], prepare: Prepare) -> None:
    """A pipeline's settings replace defaults, but nothing that keeps records as they are."""
    name = "spark.sql.adaptive.enabled"
    given = {name: "true", "spark.x": "mine", "spark.y": "mine"}

    found = prepare(master, jars=jars, spark_conf=given, fixed={"spark.x": "2"}).conf

    assert {**FIXED, name: "true", "spark.x": "2", "spark.y": "mine"}.items() <= found.items()
    assert prepare(master, jars=jars).conf[name] == "false"


def test_prepare_application_for_connect(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server has jars and Java of its own; its Hadoop is told the store without the prefix."""
    with pytest.raises(ConfigError, match="jars in the pipeline have no effect"):
        prepare("sc://h")
    store = {"spark.hadoop.fs.s3a.endpoint": "http://s"}
    monkeypatch.setattr(submit, "_store_conf", lambda _: store)

    found = prepare("sc://h", jars=[])

    assert found.conf["fs.s3a.endpoint"] == "http://s"
    assert not store.keys() & found.conf.keys()
    assert (found.on_connect, found.jars, found.environment) == (True, [], {})
    assert all(name.startswith(("spark.sql.", "fs.", "spark.redaction")) for name in found.conf)


@pytest.mark.parametrize(
    ("master", "mode", "elsewhere"),
    [("local[1]", "client", False), ("yarn", "cluster", True), ("sc://h", "client", True)],
)
def test_prepare_application_encrypted(
    master: str, mode: str, elsewhere: bool, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are opened by a driver on this machine only, whose jars can do that."""
    monkeypatch.setattr(submit, "connector_jars", lambda is_needed: ["/c.jar"])
    monkeypatch.setattr(submit, "encryption_jars", lambda: ["/e.jar"])
    encryption = Encryption(kms="file", key="k")
    with for_master(master, mode):
        assert may_outlive() is elsewhere
    assert not may_outlive()

    if elsewhere:
        with pytest.raises(ConfigError, match="encryption needs a driver on this machine"):
            prepare(master, mode, jars=[], encryption=encryption)
    else:
        assert prepare(master, jars=[], encryption=encryption).jars == ["/c.jar", "/e.jar"]
        assert prepare(master, jars=[]).jars == ["/c.jar"]
        assert prepare(master, encryption=encryption).jars == ["/j/a.jar"]


@pytest.mark.parametrize("on_connect", [False, True])
def test_for_offsets(on_connect: bool) -> None:
    """Java's options are chosen for an application whose Java is ours."""
    application = replace(fake_application("a"), conf={"x": "1"}, on_connect=on_connect)

    found = for_offsets(application, 5)

    expected = {"x": "1"} if on_connect else compile_less({"x": "1"}, 5)
    assert found == replace(application, conf=expected)


def test_with_needs_of_limits() -> None:
    """Limits of one pipeline's values hold in the whole group, each once."""
    name = "spark.executor.extraJavaOptions"
    first = replace(fake_application("a"), conf={name: f"-Dx=1 {AVRO_LIMITS[0]}"})
    other = replace(fake_application("b"), conf={name: f"-Dy=2 {' '.join(AVRO_LIMITS)}"})

    assert with_needs_of(first, [first, other]).conf == {name: f"-Dx=1 {' '.join(AVRO_LIMITS)}"}
    bare = fake_application("c")
    assert with_needs_of(bare, [other]).conf == {name: " ".join(AVRO_LIMITS)}


@pytest.mark.parametrize("jars", [[], ["/a.jar", "/b.jar"]])
def test_command(jars: list[str]) -> None:
    """The application comes after all options, and its arguments after it."""
    application = replace(
        fake_application("a"), conf={"x": "1 2"}, jars=jars, arguments=["drain", "/spec"]
    )

    assert application.command("m", ["--queue", "q"], "/bin/submit") == [
        *("/bin/submit", "--master", "m", "--queue", "q", "--name", "a", "--conf", "x=1 2"),
        *("--driver-memory", "1g", *(["--jars", "/a.jar,/b.jar"] if jars else [])),
        *("--py-files", "/nowhere", "/nowhere", "drain", "/spec"),
    ]


def test_kafka_options(tmp_path: Path) -> None:
    """A password goes to a file for this user alone, and never to where options are shown."""
    settings = {"bootstrap.servers": "k:1", "security.protocol": "PLAINTEXT"}
    assert kafka_options(KafkaConfig(settings), tmp_path) == (
        {f"kafka.{name}": value for name, value in settings.items()},
        "",
    )
    assert not list(tmp_path.iterdir())
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "s3cret"}

    visible, path = kafka_options(
        KafkaConfig({**settings, **login, "security.protocol": "SASL_SSL"}), tmp_path
    )

    assert visible["kafka.security.protocol"] == "SASL_SSL"
    assert "s3cret" not in str(visible)
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert "s3cret" in json.loads(Path(path).read_text())["kafka.sasl.jaas.config"]


@pytest.mark.parametrize(
    ("version", "options", "refused"),
    [
        ((3, 5, 7), {"maxRecordsPerPartition": "5"}, True),
        ((4, 0, 0), {"maxRecordsPerPartition": "5"}, False),
        ((3, 5, 7), {"minPartitions": "5"}, False),
    ],
)
def test_check_spark_version(
    version: tuple[int, ...],
    options: dict[str, str],
    refused: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An option that an older Spark would ignore is refused with it."""
    monkeypatch.setattr(submit, "spark_version", lambda: version)
    pipeline = Pipeline(name="p", topics=["t"], archive="/a", source_options=options)

    if refused:
        with pytest.raises(ConfigError, match=r"installed version is 3\.5\.7"):
            check_spark_version(pipeline)
    else:
        check_spark_version(pipeline)


def test_connector_jars_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that reads no topic runs without the connector."""

    def missing(_: object) -> list[Path]:
        raise MachineError("missing")

    monkeypatch.setattr(fetch, "verified", missing)

    assert connector_jars(is_needed=False) == []
    with pytest.raises(MachineError):
        connector_jars(is_needed=True)


def test_for_master_fails() -> None:
    """What failed on a server leaves no trace: the next application is started here."""
    with pytest.raises(ZeroDivisionError), for_master("sc://h"):
        raise ZeroDivisionError

    assert not may_outlive()


@pytest.mark.parametrize("days", [None, 7])
@pytest.mark.parametrize(("master", "prefix"), [("local[1]", "spark.hadoop."), ("sc://h", "")])
def test_prepare_application_store(
    days: int | None, master: str, prefix: str, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gets a store's jars and settings; checksums where files are locked, and only there."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store:9000")
    monkeypatch.setattr(submit, "connector_jars", lambda is_needed: ["/c.jar"])
    monkeypatch.setattr(submit, "store_jars", lambda archive: [f"/{archive[:2]}.jar"])
    s3 = {"archive": "s3://bucket/a", "immutable_days": days}

    found = prepare(master, jars=[], **s3)

    assert found.conf[f"{prefix}fs.s3a.endpoint"] == "http://store:9000"
    assert (f"{prefix}{CHECKSUMS_OPTION}" in found.conf) is (days is not None)
    if master != "sc://h":
        assert found.jars == ["/c.jar", "/s3.jar"]
        assert found.archive == "s3a://bucket/a"
        # Who names jars names the store's, too.
        assert prepare(master, **s3).jars == ["/j/a.jar"]


@pytest.mark.parametrize("is_needed", [True, False])
def test_prepare_application_connector(
    is_needed: bool, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a job that can't do without the connector is refused where that is missing."""

    def missing(_: object) -> list[Path]:
        raise MachineError("the connector is missing")

    monkeypatch.setattr(fetch, "verified", missing)

    if is_needed:
        with pytest.raises(MachineError, match="the connector is missing"):
            prepare("local[1]", jars=[], needs_connector=True)
    else:
        assert prepare("local[1]", jars=[], needs_connector=False).jars == []


def test_prepare_application_libraries(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder for temporary files is that of the driver, wherever it was set, if it is here."""
    asked: list[str] = []
    monkeypatch.setattr(java, "require_libraries", asked.append)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djava.io.tmpdir=/a")
    given = {"spark.driver.extraJavaOptions": "-Djava.io.tmpdir=/b"}

    prepare("yarn", "cluster", spark_conf=given)
    assert asked == []
    prepare("local[1]", spark_conf=given)

    [options] = asked
    assert [part for part in options.split() if "tmpdir" in part] == [
        "-Djava.io.tmpdir=/a",
        "-Djava.io.tmpdir=/b",
    ]


def test_prepare_application_client_only(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only Spark Connect's client is installed, only a server can run applications."""
    monkeypatch.setattr(submit, "spark_home", lambda: tmp_path)

    with pytest.raises(MachineError, match="only pyspark-client is installed"):
        prepare("local[1]")
    assert prepare("sc://h", jars=[]).on_connect


@pytest.mark.parametrize(
    ("values", "limited"),
    [
        ({"encoding": "avro", "registry_conn_id": "r"}, True),
        ({"encoding": "json", "columns": "id BIGINT"}, False),
        (None, False),
    ],
)
def test_prepare_application_limits(values: Any, limited: bool, prepare: Prepare) -> None:
    """Where Avro is decoded, no value can ask driver or executors for all their memory."""
    found = prepare("local[1]", values=values).conf

    for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        options = {*found.get(name, "").split()}
        assert options & {*AVRO_LIMITS} == ({*AVRO_LIMITS} if limited else set())


@pytest.mark.parametrize("name", submit._JAVA_VARIABLES)
def test_java_options_elsewhere(name: str, tmp_path: Path) -> None:
    """Each variable that Java or spark-submit reads counts, with or without a site's defaults."""
    environment = {name: "-XX:+UseZGC", "SPARK_CONF_DIR": str(tmp_path)}

    assert java_options_elsewhere(environment).split() == ["-XX:+UseZGC"]


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        ({"pyspark": "3.5.7"}, (3, 5, 7)),
        ({"pyspark": "4.1.0.dev1"}, (4, 1, 0)),
        ({"pyspark-client": "4.0.1"}, (4, 0, 1)),
        ({"pyspark": "4.0.1", "pyspark-client": "4.1.0"}, (4, 0, 1)),
    ],
)
def test_spark_version(
    installed: dict[str, str], found: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is that of the package which is installed, whichever of both."""

    def version(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(importlib.metadata, "version", version)

    assert submit.spark_version() == found


def test_zip_packages_without_dates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of an image may be dated 1970, which a zip can't hold."""
    modules = [tmp_path / "kafka_drain/spark/submit.py", tmp_path / "kafka_drain_spark/job.py"]
    for module in modules:
        module.parent.mkdir(parents=True)
        module.write_text("")
        os.utime(module, (0, 0))
    monkeypatch.setattr(submit, "__file__", str(modules[0]))

    with zipfile.ZipFile(submit._zip_packages(tmp_path / "main.py", tmp_path)) as made:
        assert made.namelist() == [str(each.relative_to(tmp_path)) for each in modules]

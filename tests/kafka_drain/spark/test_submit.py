"""Applications, and the environment in which spark-submit runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.spark import java
from kafka_drain.spark.java import Java
from kafka_drain.spark.submit import (
    SHARED_CLASSES,
    for_master,
    java_options_elsewhere,
    prepare_application,
    read_properties,
    spark_environment,
    with_needs_of,
    without_connect,
)
from kafka_drain.storage.s3 import s3_conf
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

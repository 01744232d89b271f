"""Assemble a Spark application, and spark-submit's command line for it. Starts nothing itself."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.spark_conf import (
    AVRO_LIMITS,
    DEFAULTS,
    FIXED,
    add_java_options,
    compile_less,
)
from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.spark import java
from kafka_drain.spark.cds import archive_name, find_class_archive, sharing_options
from kafka_drain.spark.installed import require_unmixed_pyspark
from kafka_drain.spark.jars import fetch as jar_files
from kafka_drain.spark.job_errors import OF_THE_SERVER
from kafka_drain.spark.job_spec import write_private
from kafka_drain.spark.place import DriverPlace, place_of
from kafka_drain.spark.stores import store_conf, store_jars
from kafka_drain.storage.paths import hadoop_path, locate
from kafka_drain.storage.s3 import CHECKSUMS_OPTION

#: Settings of an application whose driver runs in the cluster. A second attempt by YARN would begin
#: with a spec of the past; Airflow's retry makes a new one.
IN_CLUSTER = {"spark.yarn.maxAppAttempts": "1", "spark.yarn.submit.waitAppCompletion": "false"}

#: Options of spark-submit for a driver on this machine, whatever spark-defaults.conf says.
IN_CLIENT = ("--deploy-mode", "client")

#: Settings in the site's spark-defaults.conf that ours are added to: on the command line, they
#: would replace the file's.
_ADDED_TO = (
    "spark.driver.extraJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.driver.extraClassPath",
)

#: On a Spark Connect server, each session has a class loader of its own: what Spark compiles for a
#: query is compiled again in each, and starts slow again. Only jobs that send code need that.
SHARED_CLASSES = {
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
}
_SEND_CODE = ("send", "validate")

#: Place of the drivers of the application runs that are being prepared.
_PLACE: ContextVar[DriverPlace] = ContextVar("place", default=DriverPlace.HERE)


@contextmanager
def for_master(master: str, deploy_mode: str = "client") -> Iterator[None]:
    """Prepare applications for a master in the body.

    On Spark Connect, this machine needs neither Java nor jars.
    """
    token = _PLACE.set(place_of(master, deploy_mode))
    try:
        yield
    finally:
        _PLACE.reset(token)


def may_outlive() -> bool:
    """Return whether jobs on `for_master`'s master survive the process that started them."""
    return _PLACE.get() is not DriverPlace.HERE


@dataclass(frozen=True)
class SparkApplication:
    """One application for spark-submit or a Spark Connect server.

    Attributes:
        name: The application's name in Spark's UI.
        path: The Python file.
        arguments: Its arguments: the kind of the jobs, and the path of each job's spec.
        conf: Spark's configuration; on Spark Connect, the session's.
        jars: Jars for driver and executors; they have to be on the command line.
        py_files: A zip with our packages, for driver and executors.
        driver_memory: Heap size of the driver.
        environment: Environment variables to add.
        on_connect: Whether it is for a Spark Connect server.
        archive: The archive's folder.
        leases: The leases that a driver in the cluster renews: the token of each, by the archive's
            folder.
    """

    name: str
    path: Path
    arguments: list[str]
    conf: dict[str, str]
    jars: list[str]
    py_files: Path
    driver_memory: str
    environment: dict[str, str]
    on_connect: bool = False
    archive: str = ""
    leases: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of its jobs: a module of `kafka_drain_spark`."""
        return self.arguments[0]

    @property
    def specs(self) -> list[Path]:
        """The paths of the jobs' specs."""
        return [Path(path) for path in self.arguments[1:]]

    def command(
        self, master: str, options: Sequence[str] = (), binary: str = "spark-submit"
    ) -> list[str]:
        """Return the whole command line.

        Args:
            master: The Spark master.
            options: Further options of spark-submit.
            binary: The program.
        """
        conf = [part for key, value in self.conf.items() for part in ("--conf", f"{key}={value}")]
        return [
            binary,
            *("--master", master, *options, "--name", self.name, *conf),
            *("--driver-memory", self.driver_memory),
            *(("--jars", ",".join(self.jars)) if self.jars else ()),
            *("--py-files", str(self.py_files)),
            str(self.path),
            *self.arguments,
        ]


def for_offsets(application: SparkApplication, offsets: int) -> SparkApplication:
    """Return the application with its configuration tuned for a number of offsets."""
    if application.on_connect:
        return application
    return replace(application, conf=compile_less(application.conf, offsets))


def with_needs_of(
    application: SparkApplication, others: Sequence[SparkApplication]
) -> SparkApplication:
    """Return the application with the settings that the jobs of others can't do without.

    Of those that not every pipeline has: checksums, where the store locks an archive's files, and
    limits, where values are decoded.
    """
    conf = dict(application.conf)
    for name, value in (pair for other in others for pair in other.conf.items()):
        if name.endswith(CHECKSUMS_OPTION):
            conf.setdefault(name, value)
        elif name.endswith(".extraJavaOptions"):
            wanted = set(value.split()) & set(AVRO_LIMITS)
            given = conf.get(name, "")
            limits = [one for one in AVRO_LIMITS if one in wanted and one not in given.split()]
            conf[name] = " ".join(filter(None, [given, *limits]))
    return replace(application, conf=conf)


#: Variables with options that the JDK or spark-submit adds to those on the command line.
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
#: Variables that make Spark the client of a Spark Connect server, whatever its master is.
_FOR_CONNECT = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED")


def spark_home() -> Path:
    """Return the folder of the installed pyspark.

    Raises:
        MachineError: When pyspark isn't installed, or mixed with another version's pyspark-client.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MachineError(
            "pyspark isn't installed; install kafka-drain[spark] to start Spark on this machine, "
            "or kafka-drain[connect] for Spark Connect. After `pip uninstall pyspark-client`, "
            "install pyspark again with --force-reinstall"
        )
    require_unmixed_pyspark()
    return Path(spec.origin).parent


def spark_version() -> tuple[int, ...]:
    """Return the installed pyspark's version without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    spark_home()
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        found = version("pyspark-client")
    return tuple(int(part) for part in found.split(".")[:3] if part.isdigit())


def check_spark_version(pipeline: Pipeline) -> None:
    """Refuse options that the installed Spark doesn't support.

    Raises:
        ConfigError: When maxRecordsPerPartition is set with a Spark older than 4, which would
            ignore it.
    """
    version = spark_version()
    if "maxRecordsPerPartition" in pipeline.source_options and version < (4,):
        raise ConfigError(
            "maxRecordsPerPartition needs Spark 4.0 or newer; the installed version is "
            f"{'.'.join(map(str, version))}; leave the option out or use minPartitions"
        )


def _store_conf(pipeline: Pipeline) -> dict[str, str]:
    locks = pipeline.immutable is not None
    return store_conf(pipeline.archive, os.environ, is_locked=locks)


def _application_path() -> Path:
    packages = Path(__file__).resolve().parents[2]
    spec = find_spec("kafka_drain_spark")
    installed = [
        Path(place) / "application" for place in (spec and spec.submodule_search_locations) or []
    ]
    for folder in (packages.parent / "spark_jobs", *installed):
        if (folder / "main.py").is_file():
            return folder / "main.py"
    raise MachineError(
        "the Spark application main.py is missing; expected it in spark_jobs/ next to the plugins "
        "folder, or installed with kafka-drain"
    )


def _zip_packages(application: Path, folder: Path) -> Path:
    """Zip our two packages: Spark's --py-files accepts a zip, but no wheel and no folder."""
    core = Path(__file__).resolve().parents[1]
    spark = application.parent / "kafka_drain_spark"
    if not spark.is_dir():
        spark = application.parents[1]
    target = folder / "kafka_drain.zip"
    # In an image, files may be dated 1970.
    with zipfile.ZipFile(target, "w", strict_timestamps=False) as archive:
        for package in (core, spark):
            for module in sorted(package.rglob("*.py")):
                archive.write(module, f"{package.name}/{module.relative_to(package)}")
    return target


def kafka_options(config: KafkaConfig, folder: Path) -> tuple[dict[str, str], str]:
    """Return the connection as options of Spark's Kafka source and sink.

    Args:
        config: The connection.
        folder: A private folder for this run (mode 0700); receives a file with the secrets.

    Returns:
        The options that aren't secret, and the path of the secret ones; empty when there are none.
    """
    connection, secrets = config.for_java()
    path = folder / "secrets.json"
    if secrets:
        write_private(path, {f"kafka.{name}": value for name, value in secrets.items()})
    visible = {f"kafka.{name}": value for name, value in connection.items()}
    return visible, str(path) if secrets else ""


def prepare_application(
    name: str,
    *,
    kind: str,
    spec_path: Path,
    pipeline: Pipeline,
    folder: Path,
    needs_connector: bool = True,
    fixed: Mapping[str, str] | None = None,
) -> SparkApplication:
    """Assemble an application; check that Java and the jars exist, unless Spark runs elsewhere.

    Args:
        name: The application's name in Spark's UI.
        kind: The kind of job: a module of `kafka_drain_spark`.
        spec_path: The job's spec.
        pipeline: Provides configuration, jars and memory.
        folder: A private folder for the zip.
        needs_connector: Whether the application fails without Spark's Kafka connector.
        fixed: Spark configuration that the user can't override.

    Raises:
        ConfigError: When the pipeline names jars, but the master is a Spark Connect server.
        MachineError: When Java, pyspark, a jar or the application is missing.
    """
    if pipeline.encryption is not None and _PLACE.get() is not DriverPlace.HERE:
        raise ConfigError(
            "encryption needs a driver on this machine, which opens the keys: Spark Connect, and "
            "drivers in the cluster (deploy mode cluster), aren't supported with it"
        )
    if _PLACE.get() is DriverPlace.SERVER:
        return _for_connect(name, kind, spec_path, pipeline, folder, fixed or {})
    machine_java = java.require_java()
    if not (spark_home() / "jars").is_dir():
        raise MachineError(
            "only pyspark-client is installed, which can't start Spark; install pyspark, or give "
            "a Spark Connect server as the master: sc://host:port"
        )
    path = _application_path()
    in_store = _store_conf(pipeline)
    # For the driver only: spark.pyspark.python sets the executors' Python.
    in_cluster = _PLACE.get() is DriverPlace.CLUSTER
    python = IN_CLUSTER if in_cluster else {"spark.pyspark.driver.python": sys.executable}
    given = site_conf(os.environ) | pipeline.spark_conf
    conf = {**DEFAULTS, **python, **in_store, **given, **FIXED, **(fixed or {})}
    jars = pipeline.jars or connector_jars(needs_connector)
    local = [jar for jar in jars if jar.startswith("/") and not in_cluster]
    class_path = [*local, *filter(None, [conf.get("spark.driver.extraClassPath")])]
    if class_path:
        # Java loads only classes on its initial class path from the CDS archive.
        conf["spark.driver.extraClassPath"] = os.pathsep.join(class_path)
    classes = find_class_archive(archive_name(machine_java, spark_home(), jars))
    sharing = [] if in_cluster else sharing_options(classes)
    elsewhere = "" if in_cluster else java_options_elsewhere(os.environ)
    limits = AVRO_LIMITS if pipeline.values and pipeline.values.encoding == "avro" else ()
    add_java_options(conf, sharing, elsewhere, limits)
    if not in_cluster:
        java.require_libraries(f"{elsewhere} {conf.get('spark.driver.extraJavaOptions', '')}")
    environment = spark_environment(machine_java, os.environ)
    if in_cluster:
        # Spark would hand it to the nodes, which have a Python of their own.
        del environment["PYSPARK_PYTHON"]
    # spark-submit prefers --driver-memory to it.
    memory = str(conf.pop("spark.driver.memory", pipeline.driver_memory))
    return SparkApplication(
        name=name,
        path=path,
        arguments=[kind, str(spec_path)],
        conf={key: str(value) for key, value in conf.items()},
        # The store's jars aren't on the initial class path, so that the CDS archive stays valid.
        jars=[
            *jars,
            *([] if pipeline.jars else store_jars(pipeline.archive)),
            *(encryption_jars() if pipeline.encryption and not pipeline.jars else []),
        ],
        py_files=_zip_packages(path, folder),
        driver_memory=memory,
        environment=environment,
        archive=str(hadoop_path(locate(pipeline.archive))),
    )


def _for_connect(
    name: str,
    kind: str,
    spec_path: Path,
    pipeline: Pipeline,
    folder: Path,
    fixed: Mapping[str, str],
) -> SparkApplication:
    """Assemble an application for a Spark Connect server, whose Java isn't ours to configure."""
    if pipeline.jars:
        raise ConfigError(
            "jars in the pipeline have no effect on a Spark Connect server, which loads its own "
            "when it starts: leave them out, and start the server with `spark-server --jar`"
        )
    spark_home()  # refuses a pyspark that can't be imported
    path = _application_path()
    # A session's configuration becomes Hadoop's without the prefix that spark-submit needs.
    in_store = {
        key.removeprefix("spark.hadoop."): value for key, value in _store_conf(pipeline).items()
    }
    defaults = {key: value for key, value in DEFAULTS.items() if key.startswith("spark.sql.")}
    classes = {} if kind in _SEND_CODE else SHARED_CLASSES
    conf = {**defaults, **classes, **in_store, **pipeline.spark_conf, **FIXED, **fixed}
    return SparkApplication(
        name=name,
        path=path,
        arguments=[kind, str(spec_path)],
        conf={key: str(value) for key, value in conf.items()},
        jars=[],
        py_files=_zip_packages(path, folder),
        driver_memory=OF_THE_SERVER,
        environment={},
        on_connect=True,
    )


def connector_jars(is_needed: bool) -> list[str]:
    """Return the connector's jars; the CDS archive is of no use without them."""
    try:
        return [str(jar) for jar in jar_files.verified(jar_files.CONNECTOR)]
    except MachineError:
        if is_needed:
            raise
        return []


def encryption_jars() -> list[str]:
    """Return the jar with which parquet-java gets an archive's data keys.

    Raises:
        MachineError: When it is missing.
    """
    return [str(jar) for jar in jar_files.verified(jar_files.ENCRYPTION)]


def java_options_elsewhere(environment: Mapping[str, str]) -> str:
    """Return the options that this machine adds to every driver's Java, in no particular order."""
    found = [environment.get(name, "") for name in _JAVA_VARIABLES]
    found.append(_site_defaults(environment).get("spark.driver.defaultJavaOptions", ""))
    return "\n".join(found)


def site_conf(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in the site's spark-defaults.conf that ours are added to."""
    found = _site_defaults(environment)
    return {name: found[name] for name in _ADDED_TO if name in found}


def _site_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in the site's spark-defaults.conf, which spark-submit reads as well."""
    path = Path(environment.get("SPARK_CONF_DIR") or spark_home() / "conf") / "spark-defaults.conf"
    return read_properties(path.read_text("utf-8", "replace")) if path.is_file() else {}


_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """Parse a file of Java's properties as Spark does, which strips the values."""
    # A line that ends with an odd number of backslashes goes on, and what follows is no comment.
    text = re.sub(r"(?<!\\\n)^[ \t\f]*[#!].*$", "", text.replace("\r\n", "\n"), flags=re.MULTILINE)
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\\n[ \t\f]*", r"\1", text)
    found = re.findall(
        r"^[ \t\f]*((?:\\.|[^\s:=\\])+)[ \t\f]*[:=]?[ \t\f]*(.*)$", text, flags=re.MULTILINE
    )
    return {_unescaped(name): _unescaped(value).strip() for name, value in found}


def _unescaped(text: str) -> str:
    def meant(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", meant, text)


def without_connect(current: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what makes Spark the client of a Spark Connect server.

    Empty variables would do so too: pyspark looks whether they are there.
    """
    return {name: value for name, value in current.items() if name not in _FOR_CONNECT}


def spark_environment(machine_java: java.Java, current: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables with which spark-submit runs the installed Spark."""
    home = spark_home()
    return {
        # Otherwise executors would use whatever `python3` is on their PATH.
        "PYSPARK_PYTHON": sys.executable,
        # Otherwise, where pyspark-connect is installed, the driver would be a client of Connect.
        "SPARK_CONNECT_MODE": "0",
        # For the launcher's Java, which only builds the driver's command line.
        "SPARK_LAUNCHER_OPTS": current.get("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1"),
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(machine_java.path.resolve().parents[1]),
        "PATH": f"{home / 'bin'}{os.pathsep}{current.get('PATH', os.defpath)}",
        # Java encodes file names as the locale does (sun.jnu.encoding), and LC_ALL=C knows ASCII
        # only; Python takes UTF-8 then (PEP 540).
        **({"LC_ALL": "C.UTF-8"} if current.get("LC_ALL") in ("C", "POSIX") else {}),
    }

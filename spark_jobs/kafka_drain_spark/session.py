"""The differences between a classic session, whose JVM is at hand, and a Spark Connect client's.

A remote session needs `pyspark-client` alone, without Py4J and Java. It outlives its client: a
drain's session has an id that is derived from its archive, so that a later client finds its query.
"""

from __future__ import annotations

import json
import os
import shlex
import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark.connect import refusal
from kafka_drain.spark.job_spec import CONNECT_VARIABLE

try:
    from py4j import protocol  # type: ignore[import-untyped]
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
except ImportError:
    # With pyspark-client alone; then no session is classic.
    protocol, Py4JJavaError = None, PySparkException

#: pyspark's exceptions for an error in the JVM: an aborted job raises Py4J's own exception.
SPARK_ERRORS = (PySparkException, Py4JJavaError)

#: Number of ids tried for a session: a server refuses the id of a session that it has closed.
_LAST_SESSION = 1000

#: pyspark's retries of a call that gets no answer: about a minute, not ten.
_RETRIES = {"max_retries": 10, "max_backoff": 10_000}

#: The remote sessions of this process: pyspark closes one that is garbage, and with it the threads
#: that all of its clients share.
_KEPT: list[Any] = []

#: Sources, and the time zone, that `require_source` has checked on this process's server.
_PROVEN: set[str] = set()

#: Spark's own assumptions where a server's configuration doesn't say.
_ASSUMED = {"spark.speculation": "false"}

#: Without effect on what is written: of the server's processes, or only for speed.
_NOT_THE_SESSIONS = ("spark.executorEnv.", "spark.redaction.regex", "spark.sql.artifact.")

#: A server's listeners and event log show the options of each query, secret ones included.
_REDACTION = r'(?s)key: "kafka\.(sasl|ssl)[^"]*"\s*value: "(\\.|[^"\\])*"'

#: Loggers that warn of each answer of a broker that Kafka's consumer then asks for again without a
#: pause: more than a thousand times a second where an object of tiered storage is gone. The second
#: name is that of the client before Kafka 3.6, which Spark 3.5 has.
_REPEATING = (
    "org.apache.kafka.clients.consumer.internals.FetchCollector",
    "org.apache.kafka.clients.consumer.internals.Fetcher",
)

#: Options with which a source has a schema, whatever there is to read.
_EXAMPLES = {
    "kafka": {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "none"},
    "avro": {"path": "file:///dev/null"},
}

_OFFSETS = ("startOffset", "endOffset", "latestOffset")

_HOW_TO_START = "start the server with `kafka-drain spark-server"


def is_on_connect() -> bool:
    """Return whether this process is the client of a Spark Connect server."""
    return CONNECT_VARIABLE in os.environ


def is_remote(spark: SparkSession) -> bool:
    """Return whether a session is one of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


@cache
def settings() -> dict[str, Any]:
    """Return the settings left for the client of a Spark Connect server; see `CONNECT_VARIABLE`."""
    found: dict[str, Any] = json.loads(
        Path(os.environ[CONNECT_VARIABLE]).read_text(encoding="utf-8")
    )
    return found


def open_session() -> SparkSession:
    """Return the session of this process's jobs.

    Raises:
        ConfigError: When the Spark Connect server lacks a setting that the job needs, or doesn't
            accept this client.
        MachineError: When Java isn't in UTC.
    """
    if is_on_connect():
        return _remote_session(str(uuid4()))
    forget_numpy()
    spark = SparkSession.builder.getOrCreate()
    # That variable of Java's wins over the command line.
    zone = spark._jvm.java.util.TimeZone.getDefault()  # type: ignore[union-attr]
    if zone.getRawOffset() or zone.useDaylightTime():
        raise MachineError(
            f"the driver's Java is in the time zone {zone.getID()}, in which Spark misreads old "
            "timestamps; take -Duser.timezone out of the environment variable _JAVA_OPTIONS"
        )
    # Where HADOOP_CONF_DIR names an HDFS, a path without a scheme would be there. Only now, because
    # YARN's staging folder has to be there.
    spark.sparkContext._jsc.hadoopConfiguration().set("fs.defaultFS", "file:///")
    return spark


def own_session(spark: SparkSession, key: str) -> SparkSession:
    """Return a session with a configuration of its own.

    Args:
        spark: Another session.
        key: Identifies a remote session: whoever asks with the same key gets the same one, with
            the queries that run in it. It must be closed by `close_session`.

    Raises:
        ConfigError: As `open_session` does.
    """
    if not is_remote(spark):
        return spark.newSession()
    for number in range(_LAST_SESSION):
        try:
            return _remote_session(str(uuid5(NAMESPACE_URL, f"{key}#{number}")))
        except PySparkException as error:
            if "SESSION_CLOSED" not in str(error):
                raise
    raise MachineError(f"the Spark Connect server has closed {_LAST_SESSION:,} sessions of {key}")


def _remote_session(session_id: str) -> SparkSession:
    conf: dict[str, str] = settings()["conf"]
    address = f"{os.environ['SPARK_REMOTE']};session_id={session_id}"
    session: Any = SparkSession.builder.remote(address).create()
    _KEPT.append(session)
    _retry(session, **_RETRIES)
    with warnings.catch_warnings():
        # What a session can't set, the server says as a warning; it is checked below.
        warnings.simplefilter("ignore")
        redacted = {"spark.sql.redaction.string.regex": _REDACTION}
        try:
            session.conf._set_all(configs={**conf, **redacted}, silent=True)
        except PySparkException as error:
            if refused := refusal(str(error)):
                raise ConfigError(refused) from error
            raise
    check_conf(conf, session.conf.getAll)
    found: SparkSession = session
    return found


def check_conf(wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Refuse a server that was started with another configuration than the job needs.

    Args:
        wanted: The job's configuration.
        found: The session's configuration, after the job has set what it can.

    Raises:
        ConfigError: When they differ; says what to start the server with.
    """
    missing = [
        f"--conf {shlex.quote(f'{name}={value}')}"
        for name, value in wanted.items()
        if not name.startswith(_NOT_THE_SESSIONS)
        and not _is_met(name, value, found.get(name, _ASSUMED.get(name)))
    ]
    if missing:
        raise ConfigError(
            f"a session can't set what the job needs; {_HOW_TO_START} {' '.join(missing)}`, or "
            "remove it from spark_conf"
        )


def _is_met(name: str, value: str, found: str | None) -> bool:
    # The command that starts a server adds its own to these.
    if name.endswith(".extraJavaOptions"):
        return set(value.split()) <= set((found or "").split())
    if name.endswith(".extraClassPath"):
        return set(value.split(os.pathsep)) <= set((found or "").split(os.pathsep))
    return found == value


def close_session(spark: SparkSession) -> None:
    """Close a session from `own_session`; ends its running queries. Its key stays usable."""
    if not is_remote(spark):
        return
    from pyspark.sql.connect.client.core import grpc  # type: ignore[attr-defined]
    from pyspark.sql.connect.proto import ReleaseSessionRequest

    _release_answers()
    client: Any = getattr(spark, "client")  # noqa: B009 - classic sessions have none
    # pyspark's own call doesn't allow the session's id to be used again.
    request = ReleaseSessionRequest(
        session_id=client._session_id, client_type=client._builder.userAgent, allow_reconnect=True
    )
    request.user_context.user_id = client._user_id
    # The client isn't closed, see `_KEPT`. What the query did is known: a session that stays is
    # found again, or ends by itself.
    with suppress(grpc.RpcError):
        client._stub.ReleaseSession(request, metadata=client._builder.metadata(), timeout=10.0)


def stop(spark: SparkSession) -> None:
    """Stop Spark, or end a remote session and its running queries."""
    if is_remote(spark):
        # A server that is gone needn't be told.
        _retry(spark, max_retries=1)
        with suppress(*SPARK_ERRORS):
            spark.interruptAll()
        _release_answers()
    spark.stop()


def _release_answers() -> None:
    """Wait until the server has released the answers that were read.

    pyspark asks for it in threads of its own, and the server logs an error if the session is gone.
    """
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

    ExecutePlanResponseReattachableIterator.shutdown()


def _retry(spark: Any, **policy: Any) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # The error that follows says why.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")

    class Policy(DefaultPolicy):
        def can_retry(self, exception: BaseException) -> bool:
            return refusal(str(exception)) is None and bool(super().can_retry(exception))

    spark.client.set_retry_policies([Policy(**policy)])


def require_source(spark: SparkSession, *formats: str) -> None:
    """Require that a Spark Connect server reads Kafka, and the given formats, as an archive needs.

    A classic session has been started by us. What a server has been asked isn't asked again.

    Raises:
        MachineError: When it has no source of a format, or is in another time zone than UTC.
    """
    if not is_remote(spark) or not formats:
        return
    for name in {"kafka", "avro"} & set(formats) - _PROVEN:
        # Nothing is opened for a schema. With options that don't do, the server would log an error.
        reader = spark.read.format(name).options(**_EXAMPLES[name])
        try:
            if name == "avro":
                reader = reader.schema("value binary")
            _ = reader.load().schema
        except PySparkException as error:
            if "DATA_SOURCE_NOT_FOUND" in str(error) or "find data source" in str(error):
                raise MachineError(
                    f"the Spark Connect server can't read {name}; {_HOW_TO_START}`, which has the "
                    "jars"
                ) from error
        _PROVEN.add(name)
    if "time zone" in _PROVEN:
        return
    zone = str(spark.sql("SELECT reflect('java.util.TimeZone', 'getDefault')").collect()[0][0])
    if "offset=0," not in zone or "useDaylight=true" in zone:
        raise MachineError(
            f"the Spark Connect server's JVM is in the time zone {zone}, in which Spark misreads "
            f"old timestamps; {_HOW_TO_START}`, or with -Duser.timezone=UTC in "
            "spark.driver.extraJavaOptions and spark.executor.extraJavaOptions"
        )
    _PROVEN.add("time zone")


def ui_address(spark: SparkSession) -> str | None:
    """Return the address of Spark's UI; None if there is none, or it is the server's."""
    return None if is_remote(spark) else spark.sparkContext.uiWebUrl


def set_log_levels(spark: SparkSession, levels: Mapping[str, str]) -> bool:
    """Set log levels in the driver's JVM for this run; return False if that isn't possible."""
    if is_remote(spark):
        return False
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for logger, level in levels.items():
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.valueOf(level))
    _limit_warnings(log4j)
    return True


def _limit_warnings(log4j: Any) -> None:
    """Limit consumers' warnings about a broker's answers to ten lines in a hundred seconds.

    Loggers whose level is below WARN are left as they are: somebody wants to see everything.
    """
    context = log4j.LogManager.getContext(False)
    for name in _REPEATING:
        logger = context.getLogger(name)
        if logger.isInfoEnabled():
            continue
        # Gives it a configuration of its own.
        log4j.core.config.Configurator.setLevel(name, logger.getLevel())
        config = context.getConfiguration().getLoggerConfig(name)
        if config.getFilter() is None:
            builder = log4j.core.filter.BurstFilter.newBuilder().setLevel(log4j.Level.WARN)
            limit = builder.setRate(0.1).setMaxBurst(10).build()
            limit.start()
            config.addFilter(limit)


def cores_of(spark: SparkSession) -> int:
    """Return the number of tasks that Spark runs at once."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    # Spark splits a range into as many partitions, unless told otherwise.
    found = spark.range(10_000).selectExpr("spark_partition_id() AS id").agg({"id": "max"})
    return int(found.collect()[0][0]) + 1


def progress_reports(query: StreamingQuery, known: Collection[int] = ()) -> list[dict[str, Any]]:
    """Return a query's recent progress reports, as Spark writes them in JSON.

    Args:
        known: Batch ids whose reports aren't wanted again.
    """
    if hasattr(query, "_jsq"):
        # pyspark's `recentProgress` turns offsets into the repr of a dict, so read the JSON.
        found = (report for report in query._jsq.recentProgress() if report.batchId() not in known)
        return [json.loads(report.json()) for report in found]
    reports: Any = query.recentProgress
    return [
        plain_report(json.loads(report.json)) for report in reports if report.batchId not in known
    ]


def plain_report(report: dict[str, Any]) -> dict[str, Any]:
    """Return a progress report as Spark itself writes it, from a Spark Connect server's form.

    The server writes offsets as strings of JSON, and observed metrics as rows: values and schema.
    """
    sources = [
        {
            name: json.loads(value) if name in _OFFSETS and isinstance(value, str) else value
            for name, value in source.items()
        }
        for source in report["sources"]
    ]
    observed = {name: _plain(row) for name, row in (report.get("observedMetrics") or {}).items()}
    return {**report, "sources": sources, "observedMetrics": observed}


def _plain(value: Any) -> Any:
    """Return a value with its rows, at any depth, as dicts."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict) and {"values", "schema"} <= value.keys():
        names = (field["name"] for field in value["schema"]["fields"])
        return dict(zip(names, map(_plain, value["values"]), strict=True))
    return value


def forget_numpy() -> None:
    """Remove pyspark's converters of NumPy numbers from Py4J: no job uses such numbers.

    The first one imports pyspark.testing and thus pandas, which adds 1.5 seconds to each start
    (pyspark.sql.types in Spark 4.0).
    """
    converters = protocol.INPUT_CONVERTER
    converters[:] = [one for one in converters if not type(one).__name__.startswith("Numpy")]

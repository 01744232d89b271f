"""Spark's own configuration for a job: what kafka-drain sets, what a pipeline may set.

Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from kafka_drain.config.checks import Check, boolean, duration, integer, unknown
from kafka_drain.errors import ConfigError

__all__ = [
    "AVRO_LIMITS",
    "DEFAULTS",
    "FIXED",
    "LOG_LEVELS",
    "add_java_options",
    "check_log_levels",
    "check_spark_conf",
    "compile_less",
]

#: What a job sets unless the pipeline says otherwise.
DEFAULTS: dict[str, str] = {
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Not for streaming; a republish says its number of partitions itself.
    "spark.sql.adaptive.enabled": "false",
    # No sort before a partitioned write.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # How often running tasks report the records that they have read, for the progress line.
    "spark.executor.heartbeatInterval": "2s",
    # Consumers that wait for another task on their partition hold what they fetched ahead: where
    # partitions are cut, and in groups, they fill the heap within the five minutes of the default.
    "spark.kafka.consumer.cache.timeout": "10s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "5s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
}

#: What an archive's correctness rests on; a pipeline can't change it.
FIXED: dict[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, carries no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Times before 1582 are kept as they are, and not moved to the calendar that people had.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|access[.]key|jaas|sasl|ssl",
}

# ORC files hold local times of the JVM that wrote them.
JAVA_OPTIONS = "-Duser.timezone=UTC"
# A drain's objects die young. G1's barriers and its threads cost a tenth of a short job, and zstd's
# buffers outside the heap make it wait ("GCLocker").
_COLLECTOR = "-XX:+UseParallelGC"

#: Where values are decoded: a bad value may say any length, and Avro would make room for it.
AVRO_LIMITS = (
    "-Dorg.apache.avro.limits.bytes.maxLength=33554432",
    "-Dorg.apache.avro.limits.string.maxLength=33554432",
    "-Dorg.apache.avro.limits.collectionItems.maxLength=1048576",
)

_KAFKA_CACHES: dict[str, Check] = {
    "spark.kafka.consumer.cache.capacity": integer(1),
    "spark.kafka.consumer.cache.timeout": duration,
    "spark.kafka.consumer.cache.evictorThreadRunInterval": duration,
    "spark.kafka.consumer.cache.jmx.enable": boolean,
    "spark.kafka.consumer.fetchedData.cache.timeout": duration,
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": duration,
    "spark.kafka.producer.cache.timeout": duration,
    "spark.kafka.producer.cache.evictorThreadRunInterval": duration,
}
_ELSEWHERE = {
    "spark.master": "it comes from the Spark connection",
    "spark.jars": "say jars=[…] in the pipeline; set in a session it would come too late",
    "spark.jars.packages": "nothing is downloaded during a run; say jars=[…] in the pipeline",
    "spark.submit.deployMode": "the driver runs where spark-submit does (client)",
    "spark.submit.pyFiles": "kafka-drain sends its own package",
}

#: Hadoop's settings that hold credentials of a store.
_SECRET = re.compile(
    r"(secret|access|account)[.]key|session[.]token|password|encryption[.]key", re.IGNORECASE
)

LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF")
#: Short names for the loggers that explain a drain.
LOGGERS = {
    "kafka": "org.apache.spark.sql.kafka010",
    "sink": "org.apache.spark.sql.execution.streaming",
    "kafka-clients": "org.apache.kafka",
}


def check_spark_conf(conf: Mapping[str, Any]) -> dict[str, str]:
    """Check a pipeline's Spark configuration and return it as text.

    Raises:
        ConfigError: When a key isn't Spark's, is decided elsewhere, or has a value not accepted.
    """
    checked: dict[str, str] = {}
    for name, value in conf.items():
        if not name.startswith("spark."):
            raise ConfigError(
                f"{name!r} (value {value!r}) in spark_conf doesn't start with 'spark.'"
            )
        if _SECRET.search(name):
            raise ConfigError(
                f"{name!r} doesn't belong in spark_conf: it would stand on spark-submit's command "
                "line; give the store's credentials in the environment, as archive_conn_id, or by "
                "Hadoop's credential provider"
            )
        if name in _ELSEWHERE:
            raise ConfigError(f"{name!r} doesn't belong in spark_conf: {_ELSEWHERE[name]}")
        written = str(value).lower() if isinstance(value, bool) else str(value)
        if name in FIXED and written != FIXED[name]:
            raise ConfigError(
                f"{name} = {value!r} is not acceptable: an archive needs {FIXED[name]!r}; "
                "leave it out"
            )
        if name.startswith("spark.kafka."):
            if name not in _KAFKA_CACHES:
                raise unknown(name, value, _KAFKA_CACHES, "Kafka setting of Spark")
            written = _KAFKA_CACHES[name](name, value)
        checked[name] = written
    return checked


def add_java_options(
    conf: MutableMapping[str, str],
    for_driver: Sequence[str],
    elsewhere: str = "",
    for_both: Sequence[str] = (),
) -> None:
    """Add what Java needs to the options of driver and executors.

    Args:
        conf: Spark's configuration.
        for_driver: Options for the driver alone.
        elsewhere: Options that reach the driver's Java by other ways. Where they or `conf` choose
            a garbage collector, it stays the only one: Java refuses to start with two.
        for_both: Properties for driver and executors; one that `conf` sets stays as it is.
    """
    elsewhere += conf.get("spark.driver.defaultJavaOptions", "")
    for side, options in (("driver", for_driver), ("executor", ())):
        key = f"spark.{side}.extraJavaOptions"
        given = conf.get(key, "")
        wanted = [option for option in for_both if option.partition("=")[0] not in given]
        added = [given, JAVA_OPTIONS, *options, *wanted]
        if side == "driver" and not re.search(r"-XX:\+Use\w+GC\b", given + elsewhere):
            added.append(_COLLECTOR)
        conf[key] = " ".join(filter(None, added))


def compile_less(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of a short job: its driver's Java skips the costly compiler.

    C2's code pays off after some hundred thousand records; until then it takes a processor.
    """
    key = "spark.driver.extraJavaOptions"
    given = conf.get(key, "")
    if "-XX:TieredStopAtLevel" in given:
        return dict(conf)
    return {**conf, key: f"{given} -XX:TieredStopAtLevel=1".strip()}


#: Parquet warns for each file that shares the heap with others; it then does what is right.
DEFAULT_LOG_LEVELS = {"org.apache.parquet.hadoop.MemoryManager": "ERROR"}


def check_log_levels(levels: Mapping[str, str]) -> dict[str, str]:
    """Check log levels by logger and return them with full names, the defaults among them.

    Args:
        levels: A level for each logger: `kafka`, `sink`, `kafka-clients`, or a full name.

    Raises:
        ConfigError: When a logger or a level doesn't exist.
    """
    checked = dict(DEFAULT_LOG_LEVELS)
    for logger, level in levels.items():
        if logger not in LOGGERS and "." not in logger:
            raise unknown(logger, level, LOGGERS, "logger")
        if str(level).upper() not in LOG_LEVELS:
            raise ConfigError(
                f"log_levels[{logger!r}] = {level!r} is not acceptable; "
                f"accepted: {', '.join(LOG_LEVELS)}"
            )
        checked[LOGGERS.get(logger, logger)] = str(level).upper()
    return checked

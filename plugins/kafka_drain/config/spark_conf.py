"""Spark's configuration for a job: kafka-drain's own settings, and those of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from kafka_drain.config.checks import Check, boolean, duration, integer, may_be_secret, unknown
from kafka_drain.config.spark_settings import meant
from kafka_drain.errors import ConfigError

#: Settings of a job that a pipeline can override.
DEFAULTS: dict[str, str] = {
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Not applicable to streaming; a republish sets its number of partitions itself.
    "spark.sql.adaptive.enabled": "false",
    # Avoids sorting before a partitioned write.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # How often running tasks report the number of records read, for the progress line.
    "spark.executor.heartbeatInterval": "2s",
    # Cached consumers keep their prefetched records while they wait for the next task on their
    # partition. When partitions are split, and in groups, these fill the heap within the default
    # timeout of five minutes.
    "spark.kafka.consumer.cache.timeout": "10s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "5s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
}

#: Settings that the archive's correctness depends on; a pipeline can't change them.
FIXED: dict[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # The default, INT96, has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Keeps times before 1582 as they are, instead of rebasing them to the Julian calendar.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|access[.]key|jaas|sasl|ssl",
}

# ORC files contain times in the local zone of the JVM that wrote them.
JAVA_OPTIONS = "-Duser.timezone=UTC"
# A drain's objects are short-lived. G1's barriers and threads cost a tenth of a short job, and
# zstd's off-heap buffers stall it ("GCLocker").
_COLLECTOR = "-XX:+UseParallelGC"

#: For decoding values: a corrupt value may claim any length, and Avro would allocate it.
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
    "spark.jars": "set jars=[…] in the pipeline; set in a session, it would take effect too late",
    "spark.jars.packages": "nothing is downloaded during a run; set jars=[…] in the pipeline",
    "spark.submit.deployMode": "it is --deploy-mode, or the Spark connection's deploy-mode",
    "spark.submit.pyFiles": "kafka-drain ships its own package",
}

#: Settings of Spark, Hadoop and Kubernetes, and variables of executors, that contain credentials.
_SECRET = re.compile(
    r"(secret|access|account|private)[._](access[._])?key(?!provider)|(session|fixed)[._]token|"
    r"client[._]secret|authenticate[.]secret$|password|encryption[.]key|oauthToken$|"
    r"fs[.]azure[.]sas[.](?!token[.](provider|renew)|expiry[.])|"
    # Variables; what only names a secret, or where it is, has other words at its end.
    r"spark[.](executorEnv|yarn[.]appMasterEnv|kubernetes[.]driverEnv)[.](\w*_)?"
    r"(token|secret|api_keys?|(?<!partition_)(?<!sort_)key|sas|connection_string)(_\d+)?$",
    re.IGNORECASE,
)
#: A variable that Kubernetes takes from one of its Secrets: the value only says from which.
_REFERENCE = re.compile(r"spark[.]kubernetes[.](driver|executor)[.]secretKeyRef[.]")

LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF")
#: Short names of the loggers that are useful for diagnosing a drain.
LOGGERS = {
    "kafka": "org.apache.spark.sql.kafka010",
    "sink": "org.apache.spark.sql.execution.streaming",
    "kafka-clients": "org.apache.kafka",
}


def check_spark_conf(conf: Mapping[str, Any]) -> dict[str, str]:
    """Check a pipeline's Spark configuration and return it as text.

    Raises:
        ConfigError: When a key isn't Spark's, is set elsewhere, or has a value that isn't accepted.
    """
    checked: dict[str, str] = {}
    for name, value in conf.items():
        if _SECRET.search(name) and not _REFERENCE.match(name):
            raise ConfigError(
                f"{name!r} doesn't belong in spark_conf: it would be visible on spark-submit's "
                "command line; pass a store's credentials in the environment, with "
                "archive_conn_id, or through Hadoop's credential provider, an executor's variable "
                "on the cluster itself (in Kubernetes: spark.kubernetes.executor.secretKeyRef.…), "
                "and Kubernetes's token as a file (oauthTokenFile)"
            )
        is_secret = re.search(FIXED["spark.redaction.regex"], name) or may_be_secret(name)
        shown = "hidden" if is_secret else repr(value)
        if not name.startswith("spark."):
            raise ConfigError(f"{name!r} (value {shown}) in spark_conf doesn't start with 'spark.'")
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
        elif right := meant(name):
            raise ConfigError(
                f"{name!r} (value {shown}) in spark_conf isn't a setting of Spark, which would "
                f"ignore it; did you mean {right!r}?"
            )
        checked[name] = written
    return checked


def add_java_options(
    conf: MutableMapping[str, str],
    for_driver: Sequence[str],
    elsewhere: str = "",
    for_both: Sequence[str] = (),
) -> None:
    """Add the required Java options to those of driver and executors.

    Args:
        conf: Spark's configuration.
        for_driver: Options for the driver only.
        elsewhere: Options that reach the driver's JVM by other means. If they or `conf` choose a
            garbage collector, none is added: Java refuses to start with two.
        for_both: Properties for driver and executors; a property that `conf` sets is kept.
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


#: A drain of this number of offsets or fewer ends before Java's second compiler (C2) pays off;
#: until then it occupies a processor.
SHORT_JOB_OFFSETS = 200_000

#: After ten times as many calls as usual: a longer drain's loops reach that within a second, and C2
#: leaves out what runs only for the first few batches, which took a quarter of the processor time.
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=20000 "
    "-XX:Tier4CompileThreshold=100000 -XX:Tier4BackEdgeThreshold=200000"
)

#: With this number or fewer, compiling the query doesn't pay off either: Spark's compiler, Janino,
#: is in a signed jar, whose classes no CDS archive can hold. Spark's interpreter returns the same.
TINY_JOB_OFFSETS = 20_000
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def compile_less(conf: Mapping[str, str], offsets: int) -> dict[str, str]:
    """Return the configuration of a job of a number of offsets: the shorter, the less is compiled.

    What a pipeline sets itself is kept.
    """
    key = "spark.driver.extraJavaOptions"
    given = conf.get(key, "")
    if "-XX:Tier" not in given:
        how = _COMPILE_LATER if offsets > SHORT_JOB_OFFSETS else "-XX:TieredStopAtLevel=1"
        conf = {**conf, key: f"{given} {how}".strip()}
    return {**(_INTERPRETED if offsets <= TINY_JOB_OFFSETS else {}), **conf}


#: Parquet warns about each file that shares the heap with others, although it handles that, and
#: Spark about each consumer after the first 64, although it closes idle ones. Before 3.7,
#: Kafka warns about each one whose client id another one in the JVM has, although only JMX minds.
DEFAULT_LOG_LEVELS = {
    "org.apache.kafka.common.utils.AppInfoParser": "ERROR",
    "org.apache.parquet.hadoop.MemoryManager": "ERROR",
    "org.apache.spark.sql.kafka010.consumer.InternalKafkaConsumerPool": "ERROR",
}


def check_log_levels(levels: Mapping[str, str]) -> dict[str, str]:
    """Check log levels and return them by full logger name, including the defaults.

    Args:
        levels: Level by logger: `kafka`, `sink`, `kafka-clients`, or a full name.

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

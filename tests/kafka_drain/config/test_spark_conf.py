"""Spark's configuration and log levels of a job."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.config.spark_conf import (
    DEFAULT_LOG_LEVELS,
    DEFAULTS,
    FIXED,
    LOG_LEVELS,
    LOGGERS,
    add_java_options,
    check_log_levels,
    check_spark_conf,
    compile_less,
)
from kafka_drain.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("spark.executor.memory", "4g", "4g"),
        ("spark.executor.cores", 2, "2"),
        ("spark.ui.enabled", True, "true"),
        ("spark.ui.enabled", False, "false"),
        ("spark.sql.session.timeZone", "UTC", "UTC"),
        ("spark.kafka.consumer.cache.capacity", 128, "128"),
        ("spark.kafka.consumer.cache.timeout", "10m", "10m"),
        ("spark.kafka.consumer.cache.jmx.enable", True, "true"),
        ("spark.kafka.producer.cache.timeout", "30s", "30s"),
    ],
)
def test_spark_conf_accepted(name: str, value: Any, expected: str) -> None:
    """Spark's own settings are taken as Spark writes them."""
    assert {name: expected} == check_spark_conf({name: value})


def test_spark_conf_own() -> None:
    """What kafka-drain sets passes its own checks unchanged, and a default isn't also fixed."""
    assert check_spark_conf(DEFAULTS) == DEFAULTS
    assert check_spark_conf(FIXED) == FIXED
    assert not DEFAULTS.keys() & FIXED.keys()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "executor.memory",
            "4g",
            "'executor.memory' (value '4g') in spark_conf doesn't start with",
        ),
        ("spark", "x", "doesn't start with 'spark.'"),
        (
            "spark.master",
            "local",
            "doesn't belong in spark_conf: it comes from the Spark connection",
        ),
        ("spark.jars", "a.jar", "set jars=[…] in the pipeline"),
        ("spark.jars.packages", "a:b:1", "nothing is downloaded during a run"),
        ("spark.submit.pyFiles", "a.zip", "kafka-drain ships its own package"),
        (
            "spark.sql.session.timeZone",
            "Europe/Berlin",
            "= 'Europe/Berlin' is not acceptable: an archive needs 'UTC'; leave it out",
        ),
        ("spark.sql.parquet.outputTimestampType", "INT96", "an archive needs 'TIMESTAMP_MICROS'"),
        ("spark.redaction.regex", "x", "spark.redaction.regex = 'x' is not acceptable"),
        (
            "spark.kafka.consumer.cache.capacity",
            0,
            "spark.kafka.consumer.cache.capacity = 0 is not acceptable; accepted: a whole number",
        ),
        (
            "spark.kafka.consumer.cache.timeout",
            "soon",
            "= 'soon' is not acceptable; accepted: a number with ms",
        ),
        (
            "spark.kafka.consumer.cache.jmx.enable",
            "yes",
            "= 'yes' is not acceptable; accepted: true",
        ),
        (
            "spark.kafka.consumer.cache.capcity",
            5,
            "(value 5) isn't a valid Kafka setting of Spark; "
            "did you mean 'spark.kafka.consumer.cache.capacity'?",
        ),
    ],
)
def test_spark_conf_refused(name: str, value: Any, message: str) -> None:
    """A refused setting is named, with what to do instead."""
    with pytest.raises(ConfigError) as raised:
        check_spark_conf({name: value})

    assert name in str(raised.value)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        # Without "spark.", as Hadoop's own documentation names them.
        "fs.s3a.secret.key",
        "hadoop.fs.s3a.session.token",
        "fs.azure.account.key.me.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret",
        "spark.hadoop.fs.azure.account.oauth2.client.secret.me.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.fixed.token.me.dfs.core.windows.net",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.hadoop.fs.gs.auth.client.secret",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.AWS_SESSION_TOKEN",
        "spark.yarn.appMasterEnv.AZURE_CLIENT_SECRET",
        "spark.executorEnv.VAULT_TOKEN",
        "spark.yarn.appMasterEnv.VAULT_TOKEN",
        "spark.kubernetes.driverEnv.VAULT_TOKEN",
        "spark.executorEnv.AZURE_STORAGE_CONNECTION_STRING",
        "spark.executorEnv.AZURE_STORAGE_SAS_TOKEN",
        "spark.executorEnv.STORE_KEY_2",
        "spark.hadoop.fs.azure.sas.flights.me.blob.core.windows.net",
        "spark.authenticate.secret",
    ],
)
def test_spark_conf_secret(name: str) -> None:
    """What would be on spark-submit's command line is refused, and the error doesn't show it."""
    with pytest.raises(ConfigError) as raised:
        check_spark_conf({name: "hush-hush"})

    assert name in str(raised.value)
    assert "hush-hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.authenticate.secret.file", "/run/secrets/spark"),
        ("spark.authenticate.secretBitLength", "256"),
        ("spark.kubernetes.authenticate.driver.mounted.oauthTokenFile", "/run/secrets/token"),
        ("spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY", "name:key"),
        ("spark.kubernetes.executor.secretKeyRef.VAULT_TOKEN", "vault:token"),
        ("spark.executorEnv.KAFKA_DRAIN_KEY_FILE", "/run/secrets/master-keys.json"),
        ("spark.executorEnv.AWS_WEB_IDENTITY_TOKEN_FILE", "/run/secrets/token"),
        ("spark.hadoop.fs.azure.sas.token.renew.period.for.streams", "120"),
        ("spark.kubernetes.driver.secrets.store", "/etc/secrets"),
        ("spark.hadoop.fs.azure.sas.token.provider.type", "org.example.Provider"),
        ("spark.hadoop.hadoop.security.credential.provider.path", "jceks://hdfs/keys"),
        ("spark.hadoop.fs.gs.auth.service.account.json.keyfile", "/run/secrets/google.json"),
    ],
)
def test_spark_conf_place_of_secret(name: str, value: str) -> None:
    """What only says where a secret is is taken."""
    assert check_spark_conf({name: value}) == {name: value}


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({}, {}),
        ({"kafka": "INFO"}, {"org.apache.spark.sql.kafka010": "INFO"}),
        ({"sink": "debug"}, {"org.apache.spark.sql.execution.streaming": "DEBUG"}),
        ({"kafka-clients": "OFF"}, {"org.apache.kafka": "OFF"}),
        ({"org.example.My": "trace"}, {"org.example.My": "TRACE"}),
        (
            {"org.apache.parquet.hadoop.MemoryManager": "WARN"},
            {"org.apache.parquet.hadoop.MemoryManager": "WARN"},
        ),
    ],
)
def test_log_levels_accepted(levels: dict[str, str], expected: dict[str, str]) -> None:
    """Short names become full ones, levels upper case, over the defaults."""
    assert DEFAULT_LOG_LEVELS | expected == check_log_levels(levels)


def test_log_levels_defaults_kept() -> None:
    """One pipeline's levels aren't another one's: the defaults stay as they are."""
    check_log_levels({"org.example.Once": "INFO"})

    assert "org.example.Once" not in check_log_levels({})


def test_log_levels_unknown_logger() -> None:
    """A short name that doesn't exist gets the nearest one."""
    with pytest.raises(ConfigError) as raised:
        check_log_levels({"kafka-client": "INFO"})

    assert str(raised.value) == (
        "'kafka-client' (value 'INFO') isn't a valid logger; did you mean 'kafka-clients'?"
    )


@pytest.mark.parametrize("logger", [*LOGGERS, "org.example"])
@pytest.mark.parametrize("level", ["LOUD", "", "WARNING"])
def test_log_levels_unknown_level(logger: str, level: str) -> None:
    """A level that doesn't exist is refused with all that do."""
    with pytest.raises(ConfigError) as raised:
        check_log_levels({logger: level})

    assert str(raised.value) == (
        f"log_levels[{logger!r}] = {level!r} is not acceptable; accepted: {', '.join(LOG_LEVELS)}"
    )


def test_java_options_added() -> None:
    """Driver and executors get the time zone; the driver a collector and what is only for it."""
    conf: dict[str, str] = {}

    add_java_options(conf, ["-Xshare:auto"])

    assert conf == {
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -Xshare:auto -XX:+UseParallelGC",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
    }


def test_java_options_for_both() -> None:
    """What driver and executors both get leaves alone what the pipeline has set."""
    conf = {"spark.executor.extraJavaOptions": "-Dlimit.bytes=7"}

    add_java_options(conf, [], for_both=["-Dlimit.bytes=1", "-Dlimit.items=2"])

    assert conf == {
        "spark.driver.extraJavaOptions": (
            "-Duser.timezone=UTC -Dlimit.bytes=1 -Dlimit.items=2 -XX:+UseParallelGC"
        ),
        "spark.executor.extraJavaOptions": ("-Dlimit.bytes=7 -Duser.timezone=UTC -Dlimit.items=2"),
    }


@pytest.mark.parametrize("collector", ["-XX:+UseG1GC", "-XX:+UseZGC", "-XX:+UseSerialGC"])
def test_java_options_with_a_collector(collector: str) -> None:
    """A collector of the pipeline's stays the only one: Java refuses to start with two."""
    conf = {"spark.driver.extraJavaOptions": f"-Dx=1 {collector} -Dy=2"}

    add_java_options(conf, [])

    assert conf["spark.driver.extraJavaOptions"] == f"-Dx=1 {collector} -Dy=2 -Duser.timezone=UTC"


def test_java_options_with_a_collector_elsewhere() -> None:
    """A collector that the machine chooses for all of Java is as good as the pipeline's own."""
    key = "spark.driver.extraJavaOptions"
    plain: dict[str, str] = {}
    default = {"spark.driver.defaultJavaOptions": "-XX:+UseG1GC"}

    add_java_options(plain, [], "-Xss4m -XX:+UseG1GC")
    add_java_options(default, [])

    assert plain[key] == default[key] == "-Duser.timezone=UTC"


JAVA = "spark.driver.extraJavaOptions"
C1 = "-XX:TieredStopAtLevel=1"
LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=20000 "
    "-XX:Tier4CompileThreshold=100000 -XX:Tier4BackEdgeThreshold=200000"
)
OFF = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.mark.parametrize(
    ("given", "offsets", "found"),
    [
        ({}, 0, {JAVA: C1, **OFF}),
        ({JAVA: "-Dx=1"}, 20_000, {JAVA: f"-Dx=1 {C1}", **OFF}),
        ({JAVA: "-Dx=1"}, 20_001, {JAVA: f"-Dx=1 {C1}"}),
        ({JAVA: "-Dx=1"}, 200_000, {JAVA: f"-Dx=1 {C1}"}),
        ({JAVA: "-Dx=1"}, 200_001, {JAVA: f"-Dx=1 {LATER}"}),
        (
            {JAVA: "-XX:Tier4InvocationThreshold=1"},
            1 << 40,
            {JAVA: "-XX:Tier4InvocationThreshold=1"},
        ),
        (
            {JAVA: "-XX:TieredStopAtLevel=4", "spark.sql.codegen.wholeStage": "true"},
            1,
            {**OFF, JAVA: "-XX:TieredStopAtLevel=4", "spark.sql.codegen.wholeStage": "true"},
        ),
    ],
)
def test_compile_less(given: dict[str, str], offsets: int, found: dict[str, str]) -> None:
    """The second compiler starts late, or not at all; tiny jobs compile no query."""
    assert compile_less(given, offsets) == found


@pytest.mark.parametrize("name", ["spark.authenticate.secrt", "authenticate.secrt"])
def test_spark_conf_misspelt_secret(name: str) -> None:
    """The value of what may be a misspelt secret isn't shown: Airflow's UI has the text."""
    with pytest.raises(ConfigError) as refused:
        check_spark_conf({name: "hunter2"})

    assert "(value hidden) in spark_conf" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_KMS_KEY_ID", "KMS_KEY_ARN", "KEY_VAULT_URL", "OAUTH_TOKEN_ENDPOINT", "SECRET_NAME"),
        *("VAULT_TOKEN_FILE", "KEY_PREFIX", "PARTITION_KEY", "TOKEN_FILE_PATH"),
    ],
)
def test_spark_conf_name_of_secret(name: str) -> None:
    """A variable that names a key, or where it is, isn't the key."""
    given = {f"spark.executorEnv.{name}": "v"}

    assert check_spark_conf(given) == given

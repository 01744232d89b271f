"""Pipelines: what a DAG file may write, and what it is told when it may not."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
from pydantic import ValidationError

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.sink_options import COMPRESSIONS
from kafka_drain.config.spark_conf import DEFAULT_LOG_LEVELS
from kafka_drain.errors import ConfigError
from kafka_drain.storage.immutability import Immutability
from tests.tables import each_of


def make(**changes: Any) -> Pipeline:
    return Pipeline(**({"name": "flights", "topics": ["flights"], "archive": "/archive"} | changes))


def refusal(**changes: Any) -> str:
    """Return the message of the ConfigError, and of nothing else, that changes lead to."""
    with pytest.raises(ConfigError) as raised:
        make(**changes)
    place, _, message = str(raised.value).partition("): ")
    name = changes.get("name", "flights")
    what = f"pipeline {name!r}" if name and isinstance(name, str) else "pipeline without a name"
    assert re.fullmatch(rf"{re.escape(what)} \(test_pipeline\.py, line \d+", place)
    return message


def test_pipeline_defaults() -> None:
    """A name, topics and an archive are enough."""
    assert make().model_dump() == {
        "name": "flights",
        "topics": ["flights"],
        "topic_pattern": None,
        "assign": None,
        "archive": "/archive",
        "schedule": "@hourly",
        "kafka_conn_id": "kafka_default",
        "spark_conn_id": "spark_default",
        "format": "parquet",
        "compression": "zstd",
        "partition_by": ["topic", "date"],
        "values": None,
        "registry_conn_id": None,
        "source_options": {},
        "sink_options": {},
        "spark_conf": {},
        "log_levels": DEFAULT_LOG_LEVELS,
        "jars": None,
        "archive_conn_id": None,
        "partitions_per_task": None,
        "driver_memory": "1g",
        "max_manifest_lines": 50_000,
        "max_generation_days": 7,
        "target_file_bytes": 256 << 20,
        "retention_days": None,
        "max_future_days": None,
        "scrub_days": 30,
        "describe_cluster": ["groups", "topics", "acls", "users", "brokers"],
        "hash_key_conn_id": None,
        "evidence_conn_id": None,
        "erase_conn_id": None,
        "encryption": None,
        "immutable_days": None,
        "immutable_mode": None,
        "witness": None,
        "witness_conn_id": None,
        "drill": None,
        "cut_over": None,
        "target_registry_conn_id": None,
        "watch": None,
    }
    assert make().isolation_level == "read_committed"


def test_pipeline_everything() -> None:
    """All keys together; options come out as the text that Spark reads."""
    pipeline = make(
        topics=None,
        assign={"a": [0, 2]},
        archive="s3://bucket/flights/",
        schedule=None,
        format="orc",
        compression="snappy",
        partition_by=["date", "hour"],
        source_options={
            "maxOffsetsPerTrigger": 5,
            "includeHeaders": False,
            "kafka.isolation.level": "read_uncommitted",
        },
        sink_options={"orc.stripe.size": 1 << 20},
        spark_conf={"spark.executor.cores": 2},
        log_levels={"kafka": "info"},
        jars=["/a.jar"],
        driver_memory="512m",
    )

    assert pipeline.archive == "s3://bucket/flights"
    assert pipeline.schedule is None
    assert pipeline.source_options["maxOffsetsPerTrigger"] == "5"
    assert pipeline.source_options["includeHeaders"] == "false"
    assert pipeline.sink_options == {"orc.stripe.size": "1048576"}
    assert pipeline.spark_conf == {"spark.executor.cores": "2"}
    assert pipeline.log_levels["org.apache.spark.sql.kafka010"] == "INFO"
    assert pipeline.isolation_level == "read_uncommitted"


def test_writer_options() -> None:
    """What a pipeline says of its files is used, also instead of a default."""
    given = {"maxRecordsPerFile": 10, "parquet.enable.dictionary": True}
    plain, own = make().writer_options, make(sink_options=given).writer_options

    assert plain["parquet.enable.dictionary"] == "false"
    assert own == plain | {"maxRecordsPerFile": "10", "parquet.enable.dictionary": "true"}
    assert make(compression="gzip").writer_options["compression"] == "gzip"


def test_pipeline_unchanged_by_another() -> None:
    """Defaults aren't shared: one pipeline's options don't appear in the next one."""
    make().source_options["x"] = "1"

    assert make().source_options == {}


def test_pipeline_round_trip() -> None:
    """A pipeline survives pickling, and validating its own values again."""
    pipeline = make(
        format="json", log_levels={"kafka": "INFO"}, source_options={"minPartitions": 4}
    )

    assert pipeline == pickle.loads(pickle.dumps(pipeline))
    assert pipeline == Pipeline.model_validate(pipeline.model_dump())


@pytest.mark.parametrize("file_format", sorted(COMPRESSIONS))
def test_pipeline_compression_default(file_format: str) -> None:
    """Each format has its own default compression."""
    assert COMPRESSIONS[file_format][0] == make(format=file_format).compression


@pytest.mark.parametrize(
    ("file_format", "expected"),
    [("parquet", "zstd"), ("orc", "zstd"), ("avro", "zstandard"), ("json", "gzip")],
)
def test_pipeline_compression_default_name(file_format: str, expected: str) -> None:
    """The default is Zstandard by the format's own word for it, and gzip for JSON."""
    assert expected == make(format=file_format).compression


# keys


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("topic", "topics"),
        ("topic_patern", "topic_pattern"),
        ("partitions_by", "partition_by"),
        ("formatt", "format"),
        ("source_option", "source_options"),
        ("spark_config", "spark_conf"),
        ("kafka_connection_id", "kafka_conn_id"),
    ],
)
def test_pipeline_unknown_key(written: str, meant: str) -> None:
    """A misspelt key is refused with its value and the key that was meant."""
    assert refusal(**{written: "v17"}) == (
        f"{written!r} (value 'v17') isn't a valid key of a pipeline; did you mean {meant!r}?"
    )


def test_pipeline_unlike_any_key() -> None:
    """A key that is like no other gets all of them."""
    message = refusal(zzzz=1)

    assert message.startswith(
        "'zzzz' (value 1) isn't a valid key of a pipeline; accepted: archive, archive_"
    )
    assert all(key in message for key in Pipeline.model_fields)


def test_pipeline_missing_keys() -> None:
    """All missing keys are told at once."""
    with pytest.raises(ConfigError, match=r"\): name is missing; archive is missing$"):
        Pipeline(topics=["a"])  # type: ignore[call-arg]


def test_pipeline_not_a_mapping() -> None:
    """Something that isn't a mapping is a ConfigError as well."""
    with pytest.raises(ConfigError, match="pipeline = 'flights': "):
        Pipeline.model_validate("flights")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "none is given"),
        ({"topic_pattern": ""}, "none is given"),
        ({"topics": ["a"], "topic_pattern": "a"}, "topics and topic_pattern contradict each other"),
        ({"topics": ["a"], "assign": {"a": [0]}}, "topics and assign contradict each other"),
        (
            {"topics": ["a"], "topic_pattern": "a", "assign": {"a": [0]}},
            "topics and topic_pattern and assign contradict each other",
        ),
    ],
)
def test_pipeline_one_source(given: dict[str, Any], message: str) -> None:
    """Exactly one of topics, topic_pattern and assign says what is drained."""
    assert f"{message}: give exactly one of topics, topic_pattern and assign" == refusal(
        **({"topics": None} | given)
    )


@pytest.mark.parametrize(
    "source",
    [
        {"topics": ["a", "B.c_d-0"]},
        {"topics": ["x" * 249]},
        {"topic_pattern": "flights-.*"},
        {"assign": {"a": [0], "b": [3, 1]}},
    ],
)
def test_pipeline_source_accepted(source: dict[str, Any]) -> None:
    """Each way to say what is drained works alone, and is the pipeline's source."""
    pipeline = make(**({"topics": None} | source))

    assert source == {key: getattr(pipeline, key) for key in source}
    assert pipeline.source == source
    [shown] = source.values()
    assert str(shown) in str(pipeline)
    assert pipeline.archive in str(pipeline)


# values


@each_of(
    "key, value, accepted",
    [
        ("name", "", "letters, digits"),
        ("name", "my flights", "letters, digits"),
        ("name", "-x", "letters, digits"),
        ("name", "é", "letters, digits"),
        ("name", "x" * 101, "at most 100 characters"),
        ("name", None, "valid string"),
        ("topics", "flights", "valid list"),
        ("topics", [5], "valid string"),
        ("archive", "", "at least 1 character"),
        ("archive", "relative/folder", "an absolute path, or a URL such as s3://bucket/folder"),
        ("archive", None, "valid string"),
        ("schedule", 5, "accepted: None, @once"),
        ("format", "csv", "'parquet', 'avro', 'json' or 'orc'"),
        ("format", "Parquet", "'parquet', 'avro', 'json' or 'orc'"),
        (
            "compression",
            "brotli",
            "zstd, snappy, gzip, lz4_raw, uncompressed with format 'parquet'",
        ),
        ("compression", "ZSTD", "zstd, snappy"),
        ("partition_by", "date", "valid list"),
        ("partition_by", ["minute"], "any of topic, date, hour, no duplicates"),
        ("partition_by", ["date", "date"], "any of topic, date, hour, no duplicates"),
        ("source_options", ["x"], "valid dictionary"),
        ("log_levels", "INFO", "valid dictionary"),
        ("jars", "a.jar", "valid list"),
        ("driver_memory", "1", "a number and m or g"),
        ("driver_memory", "lots", "a number and m or g"),
        ("driver_memory", 1, "valid string"),
        ("kafka_conn_id", None, "valid string"),
    ],
)
def test_pipeline_value_refused(key: str, value: Any, accepted: str) -> None:
    """A refused value is told with its key and what is accepted."""
    message = refusal(**{key: value})

    assert message.startswith(key)
    assert repr(value) in message or repr(value[0]) in message
    assert accepted in message


@pytest.mark.parametrize(
    ("topics", "shown"),
    [
        ([], "[]"),
        (["a", "a"], "['a', 'a']"),
        (["a", "b c"], "'b c'"),
        (["a/b"], "'a/b'"),
        ([""], "''"),
        (["."], "'.'"),
        ([".."], "'..'"),
        (["é"], "'é'"),
        (["x" * 250], repr("x" * 250)),
    ],
)
def test_pipeline_topics_refused(topics: list[str], shown: str) -> None:
    """A name that Kafka doesn't allow for a topic is refused by itself."""
    assert refusal(topics=topics).startswith(
        f"topics = {shown} is not acceptable; accepted: a list of topic names, each of letters"
    )


@pytest.mark.parametrize(
    ("assign", "start"),
    [
        ({}, 'assign = {} is not acceptable; accepted: {"topic": [0, 1]}'),
        ({"a": []}, "assign[a] = [] is not acceptable; accepted: partition numbers"),
        ({"a": [0], "b": [-1]}, "assign[b] = [-1] is not acceptable"),
        ({"a": [1, 1]}, "assign[a] = [1, 1] is not acceptable"),
        ({"a": [3, -1, 2]}, "assign[a] = [3, -1, 2] is not acceptable"),
        ({"a": ["x"]}, "assign.a.0 = 'x': "),
        ({"a": 0}, "assign.a = 0: "),
        (["a"], "assign = ['a']: "),
        ({"b c": [0]}, "assign[b c] = "),
    ],
)
def test_pipeline_assign_refused(assign: Any, start: str) -> None:
    """A refused assignment is told down to the partition."""
    assert refusal(topics=None, assign=assign).startswith(start)


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(
    "key",
    [
        *(
            "retention_days",
            "max_future_days",
            "scrub_days",
            "immutable_days",
            "max_manifest_lines",
        ),
        *("max_generation_days", "target_file_bytes", "partitions_per_task"),
    ],
)
def test_pipeline_number_is_no_boolean(key: str, value: bool) -> None:
    """`retention_days: true` is no wish to delete what is older than one day."""
    assert f"{key} = {value} is not acceptable; accepted: a whole number" in refusal(**{key: value})


@pytest.mark.parametrize("pattern", [r"[\w&&\D]+", "[a-z&&[^b]]*", "orders|[a-z&&[^b]]+"])
def test_pipeline_pattern_ambiguous(pattern: str) -> None:
    """What Java reads as sets of sets, and Python as characters, would select other topics."""
    assert f"topic_pattern = {pattern!r} is not acceptable; accepted: a regular" in refusal(
        topics=None, topic_pattern=pattern
    )


def test_pipeline_pattern_refused() -> None:
    """A pattern that isn't a regular expression is refused where it is written."""
    assert "topic_pattern = 'flights-[' is not acceptable" in refusal(
        topics=None, topic_pattern="flights-["
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source_options": {"maxOffsetPerTrigger": 5}},
            "'maxOffsetPerTrigger' (value 5) isn't a valid option of Spark's Kafka source; "
            "did you mean 'maxOffsetsPerTrigger'?",
        ),
        (
            {"source_options": {"startingOffsets": "banana"}},
            "startingOffsets = 'banana' is not acceptable; accepted: earliest, latest, or",
        ),
        (
            {"source_options": {"startingOffsets": "latest", "startingTimestamp": 1}},
            "contradict each other",
        ),
        (
            {"sink_options": {"orc.stripe.size": 1 << 20}},
            "'orc.stripe.size' (value 1048576) isn't a valid option of the parquet sink",
        ),
        (
            {"spark_conf": {"spark.sql.session.timeZone": "CET"}},
            "spark.sql.session.timeZone = 'CET' is not acceptable: an archive needs 'UTC'",
        ),
        (
            {"log_levels": {"kafak": "INFO"}},
            "'kafak' (value 'INFO') isn't a valid logger; did you mean 'kafka'?",
        ),
        ({"log_levels": {"kafka": 5}}, "log_levels.kafka = 5: "),
        (
            {"format": "json", "compression": "zstd"},
            "compression = 'zstd' is not acceptable; accepted: gzip, bzip2, deflate, none "
            "with format 'json'",
        ),
    ],
)
def test_pipeline_nested_refused(changes: dict[str, Any], message: str) -> None:
    """What is wrong inside options is told as it is without a pipeline."""
    assert message in refusal(**changes)


def test_pipeline_all_problems() -> None:
    """Values of wrong types are all told at once."""
    message = refusal(format="csv", driver_memory="lots")

    assert "format = 'csv': " in message
    assert "; driver_memory = 'lots' is not " in message


@pytest.mark.parametrize("key", ["name", "topics", "compression"])
def test_pipeline_frozen(key: str) -> None:
    """A pipeline can't be changed after it was checked."""
    pipeline = make()
    before = getattr(pipeline, key)

    with pytest.raises(ValidationError, match="frozen"):
        setattr(pipeline, key, "other")

    assert before == getattr(pipeline, key)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("/a/b/", "/a/b"),
        ("/a//", "/a"),
        ("/", "/"),
        ("file:///a/", "/a"),
        ("file:/a/", "/a"),
        ("gs://bucket/x", "gs://bucket/x"),
    ],
)
def test_pipeline_archive_slash(written: str, expected: str) -> None:
    """A slash at the end doesn't make another archive."""
    assert expected == make(archive=written).archive


REGISTRY = {"encoding": "avro", "registry_conn_id": "of_values"}


@pytest.mark.parametrize("source", [{"topics": ["a"]}, {"topics": None, "assign": {"a": [0, 1]}}])
def test_pipeline_subjects(source: dict[str, Any]) -> None:
    """Subjects are those that are named, or else that of the only topic's values."""
    assert make(**source).subjects == []
    assert make(**source, values=REGISTRY).subjects == ["a-value"]
    assert make(**source, values={**REGISTRY, "subjects": ["x", "y"]}).subjects == ["x", "y"]


@pytest.mark.parametrize(
    "source", [{"topics": ["a", "b"]}, {"topics": None, "topic_pattern": "a.*"}]
)
def test_pipeline_subjects_missing(source: dict[str, Any]) -> None:
    """Subjects of several topics must be named: they aren't guessed."""
    assert refusal(**source, values=REGISTRY).startswith("values.subjects is missing")
    assert make(**source, values={**REGISTRY, "subjects": ["x"]}).subjects == ["x"]


def test_pipeline_schemas_connection() -> None:
    """Schemas come from the pipeline's own registry, or else from that of its values."""
    assert make().schemas_conn_id is None
    assert make(values=REGISTRY).schemas_conn_id == "of_values"
    assert make(values=REGISTRY, registry_conn_id="own").schemas_conn_id == "own"


def test_with_log_level() -> None:
    """For one run Spark's Kafka and sink classes log more; the pipeline stays as it was."""
    pipeline = Pipeline(name="p", topics=["t"], archive="/a", log_levels={"kafka-clients": "ERROR"})

    louder = pipeline.with_log_level("debug")

    assert louder.log_levels == pipeline.log_levels | {
        "org.apache.spark.sql.kafka010": "DEBUG",
        "org.apache.spark.sql.execution.streaming": "DEBUG",
    }
    with pytest.raises(ConfigError, match="accepted: TRACE, DEBUG"):
        pipeline.with_log_level("LOUD")


def test_pipeline_drill() -> None:
    """Drills have defaults of their own, and settings of topics are text."""
    drill = make(drill={"topic_config": {"max.message.bytes": 5}}).drill
    assert drill is not None

    assert drill.model_dump() == {
        "schedule": "@weekly",
        "sample": "random_day",
        "kafka_conn_id": None,
        "max_age_days": 14,
        "prefix": "kafka-drain-drill",
        "topic_config": {"max.message.bytes": "5"},
    }
    for bad in ({"sample": "all"}, {"max_age_days": 0}, {"prefix": "a b"}):
        with pytest.raises(ConfigError, match=f"drill.{next(iter(bad))}"):
            make(drill=bad)
    misspelt = r"'shedule' .*a valid key of a pipeline's drill; did you mean 'schedule'\?"
    with pytest.raises(ConfigError, match=misspelt):
        make(drill={"shedule": "@daily"})


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"immutable_days": 30}, "immutable_days = 30 needs an object store"),
        ({"immutable_days": 30, "archive": "file:///archive"}, "on a file system: /archive"),
        (
            {"immutable_days": 30, "archive": "hdfs://n/a"},
            "on HDFS, which locks no files: hdfs://n/a",
        ),
        ({"immutable_mode": "governance"}, "immutable_mode is only with immutable_days"),
        ({"immutable_days": 0, "archive": "s3://b"}, "immutable_days = 0"),
        ({"immutable_days": 36_501, "archive": "s3://b"}, "immutable_days = 36501"),
        ({"immutable_days": 1, "immutable_mode": "worm", "archive": "s3://b"}, "immutable_mode"),
    ],
)
def test_pipeline_immutable_refused(keys: dict[str, Any], said: str) -> None:
    """Locks need a store that has them, an end, and one of two modes."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        make(**keys)


@pytest.mark.parametrize("scheme", ["s3", "gs", "abfs", "abfss"])
def test_pipeline_immutable(scheme: str) -> None:
    """Governance unless compliance is asked for; nothing is locked unless it is asked for."""
    keys = {"archive": f"{scheme}://bucket/a", "immutable_days": 30}

    assert make(**keys).immutable == Immutability("governance", 30)
    assert make(**keys, immutable_mode="compliance").immutable == Immutability("compliance", 30)
    assert make(archive=keys["archive"]).immutable is None


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"max_future_days": 1}, "max_future_days is only with retention_days; leave it out"),
        ({"max_future_days": -1, "retention_days": 1}, "max_future_days = -1"),
        ({"max_future_days": "1d", "retention_days": 1}, "max_future_days = '1d'"),
    ],
)
def test_pipeline_max_future_refused(keys: dict[str, Any], said: str) -> None:
    """How far a date is believed is asked only where files are deleted by it."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        make(**keys)


def test_pipeline_max_future() -> None:
    """No day at all is a bound, too."""
    assert make(max_future_days=0, retention_days=1).max_future_days == 0


EVIDENCE = {"evidence_conn_id": "key"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"witness": "/w"}, "witness needs evidence_conn_id"),
        ({**EVIDENCE, "witness": "w"}, "accepted: the absolute path"),
        ({**EVIDENCE, "witness": "s3://bucket/w"}, "accepted: the absolute path"),
        ({**EVIDENCE, "witness": "/archive/w"}, "a file outside the archive"),
        ({**EVIDENCE, "witness": "/w", "witness_conn_id": "k"}, "only for a witness that is a"),
        ({"witness_conn_id": "k"}, "only for a witness that is a topic"),
    ],
)
def test_pipeline_witness_refused(keys: dict[str, str], words: str) -> None:
    """A witness needs a key and a place outside the archive."""
    with pytest.raises(ConfigError, match=words):
        make(**keys)


def test_pipeline_witness() -> None:
    """A witness is a file outside the archive, or a topic, perhaps of another cluster."""
    for keys in ({"witness": "/archive2/w"}, {"witness": "kafka:w", "witness_conn_id": "k"}):
        assert make(**EVIDENCE, **keys).witness == keys["witness"]


def test_pipeline_cut_over() -> None:
    """A cut-over needs the target's connection, and has defaults for the rest."""
    cut_over = make(cut_over={"kafka_conn_id": "b"}).cut_over
    assert cut_over is not None
    assert cut_over.model_dump() == {
        "kafka_conn_id": "b",
        "run_name": "cut-over",
        "mirror": {},
        "groups": [],
        "max_lag": 10_000,
        "quiet_seconds": 60.0,
    }
    for bad in ({"max_lag": -1}, {"quiet_seconds": 0}, {"run_name": ""}):
        with pytest.raises(ConfigError, match=f"cut_over.{next(iter(bad))}"):
            make(cut_over={"kafka_conn_id": "b", **bad})
    with pytest.raises(ConfigError, match=r"'lag' .*of a pipeline's cut_over; .*'max_lag'"):
        make(cut_over={"kafka_conn_id": "b", "lag": 1})
    with pytest.raises(ConfigError, match=r"cut_over\.kafka_conn_id"):
        make(cut_over={})


@pytest.mark.parametrize(
    "given",
    [
        {"values": {"encoding": "avro", "basic.auth.user.info": "me:hush"}},
        {"kafka_conn_id": {"bootstrap.servers": "k:1", "sasl.password": "hush"}},
    ],
)
def test_pipeline_hides_login(given: dict[str, Any]) -> None:
    """What a connection's settings say isn't shown, where a pipeline has them instead of its id."""
    with pytest.raises(ConfigError) as raised:
        Pipeline(name="p", topics=["t"], archive="/a", **given)

    assert "hush" not in str(raised.value)


def test_pipeline_memory_twice() -> None:
    """The driver's heap has two names, of which one may be given."""
    conf = {"spark.driver.memory": "2g"}
    assert Pipeline(name="p", topics=["t"], archive="/a", spark_conf=conf).spark_conf == conf

    with pytest.raises(ConfigError, match="two names of one setting; leave one out"):
        Pipeline(name="p", topics=["t"], archive="/a", spark_conf=conf, driver_memory="1g")

"""Which pipelines one Spark application can drain."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.config.groups import check_group
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError


def pipeline(name: str, **keys: Any) -> Pipeline:
    return Pipeline(**{"name": name, "topics": ["t"], "archive": f"/archives/{name}"} | keys)


def test_check_group_of_like_pipelines() -> None:
    """Formats, folders and Kafka connections may differ."""
    check_group([pipeline("a"), pipeline("b", format="avro", kafka_conn_id="other")])


@pytest.mark.parametrize(
    ("pipelines", "message"),
    [
        ([], "a group of drains needs at least one pipeline"),
        (
            [pipeline("a"), pipeline("a", archive="/b")],
            "two pipelines of a group have the name 'a'",
        ),
        (
            [pipeline("a"), pipeline("b", archive="/archives/a")],
            "two pipelines of a group have the archive '/archives/a'",
        ),
        (
            [pipeline("a"), pipeline("b", driver_memory="2g")],
            "pipelines a and b can't share a Spark application: driver_memory is '1g' and '2g'",
        ),
        (
            [pipeline("a"), pipeline("b", schedule="@daily")],
            "schedule is '@hourly' and '@daily'; make them equal, or make two groups",
        ),
        (
            [pipeline("a"), pipeline("b", spark_conf={"spark.sql.x": "1"})],
            "spark_conf is {} and {'spark.sql.x': '1'}",
        ),
    ],
)
def test_check_group_refuses(pipelines: list[Pipeline], message: str) -> None:
    """What can't be shared is named, with both values."""
    with pytest.raises(ConfigError) as raised:
        check_group(pipelines)

    assert message in str(raised.value)


DIFFERENT: dict[str, Any] = {
    "schedule": "@daily",
    "spark_conn_id": "other",
    "spark_conf": {"spark.sql.x": "1"},
    "log_levels": {"kafka": "debug"},
    "jars": ["/a.jar"],
    "driver_memory": "2g",
    "archive_conn_id": "other",
    "encryption": {"kms": "file", "key": "a"},
}


@pytest.mark.parametrize("key", DIFFERENT)
def test_check_group_each_setting(key: str) -> None:
    """Of all that one application has once, none may differ: the other's would be ignored."""
    a, b = {"archive": "s3://bucket/a"}, {"archive": "s3://bucket/b"}
    usual, other = pipeline("a", **a), pipeline("b", **b, **{key: DIFFERENT[key]})

    for group in ([usual, other], [other, usual], [usual, pipeline("c", archive="s3://c"), other]):
        with pytest.raises(ConfigError, match=f"share a Spark application: {key} is"):
            check_group(group)
    check_group([pipeline("a", **a, **{key: DIFFERENT[key]}), other])


def test_check_group_other_store() -> None:
    """Archives in different kinds of stores need different settings of one application."""
    with pytest.raises(ConfigError, match="the way a checkpoint is written is a single setting"):
        check_group([pipeline("a"), pipeline("b", archive="s3://bucket/b")])

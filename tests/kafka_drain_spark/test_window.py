"""What a window's job does with the source's rows, and in which order, without a JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Observation

from kafka_drain.spark.job_spec import WindowSpec
from kafka_drain_spark import window
from kafka_drain_spark.window import run_window
from tests.kafka_drain_spark.noted_steps import Spark, noted_functions

OFFSETS = ('{"t":{"0":5,"1":0}}', '{"t":{"0":9,"1":7}}')
RANGE = [{"topic": "t", "partition": 0, "start": 5, "end": 8}]
ERASED = [{"topic": "t", "partition": 0, "start": 6, "end": 7}]
KEYS = {"key": "wrapped"}
SECRET = {"kafka.sasl.jaas.config": "secret"}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The steps of a job, with a session that isn't remote."""
    taken = noted_functions(
        monkeypatch,
        window,
        "as_sent",
        "at_offsets",
        "without_offsets",
        "with_exact_times",
        "with_decoded",
        "without_wrong_times",
        "find_internal_topics",
        "set_keys",
        "require_source",
    )

    def with_splits(_: object, options: dict[str, str], sizes: list[int]) -> dict[str, str]:
        taken.append(("with_splits", sizes))
        return options | {"minPartitions": "9"}

    def save(session: Spark, write: Any, progress: Any, what: str) -> None:
        taken.append(("save_shown", session.name, progress.total, what))
        write()

    monkeypatch.setattr(window, "with_splits", with_splits)
    monkeypatch.setattr(window, "save_shown", save)
    monkeypatch.setattr(window, "secret_options", lambda path: SECRET if path else {})
    monkeypatch.setattr(window, "fingerprint_columns", lambda _: ("a fingerprint",))
    monkeypatch.setattr(window, "fingerprint_of", lambda _: {"records": 3, "fingerprint": "f"})
    monkeypatch.setattr(window, "F", SimpleNamespace(expr=lambda text: text))
    monkeypatch.setattr(Observation, "get", "observed")
    return taken


def spec(**more: Any) -> WindowSpec:
    """Return the spec of a window's job."""
    between = dict(zip(("startingOffsets", "endingOffsets"), OFFSETS, strict=True))
    given: dict[str, Any] = {
        "file_format": "parquet",
        "writer_options": {"compression": "zstd"},
        "partition_by": ["date"],
        "columns": {"date": "to_date(timestamp)"},
        "reader_options": {"subscribe": "t", **between},
        "poll_options": {"kafka.max.poll.records": "7"},
        "secrets_path": "/secrets",
        "window": "w",
        "offsets": 4,
        "path": "/to",
        "ranges": RANGE,
        "erased": ERASED,
    }
    return WindowSpec(log_levels={}, result_path="", **(given | more))


def run(steps: list[Any], **more: Any) -> dict[str, Any]:
    """Run a job; return its result."""
    spark: Any = Spark(steps)
    return run_window(spark, spec(**more))


def test_run_window(steps: list[Any]) -> None:
    """What was erased is in no fingerprint; then nothing is left out, and a rest is replaced."""
    found = run(steps)

    assert (found["records"], found["fingerprint"]) == (3, "f")
    options = {
        **spec().reader_options,
        "kafka.max.poll.records": "7",
        "minPartitions": "9",
        **SECRET,
    }
    observed = next(step for step in steps if step[0] == "observe")
    assert steps == [
        ("require_source", "kafka", "parquet"),
        ("with_splits", [4, 7]),
        ("find_internal_topics", options),
        ("format", "kafka"),
        ("options", options),
        ("load", "given"),
        ("at_offsets", RANGE),
        ("as_sent",),
        ("without_offsets", ERASED),
        ("observe", observed[1], "a fingerprint"),
        ("with_exact_times", "parquet"),
        ("with_decoded", None),
        ("withColumn", "date", "to_date(timestamp)"),
        ("without_wrong_times", "parquet"),
        ("format", "parquet"),
        ("options", {"compression": "zstd"}),
        ("partitionBy", "date"),
        ("save_shown", "given", 4, "window w"),
        ("mode", "overwrite"),
        ("save", "/to"),
    ]


def test_run_window_without_columns(steps: list[Any]) -> None:
    """Without partition columns, files are in no folders."""
    run(steps, partition_by=[], columns={})

    assert not {"partitionBy", "withColumn", "set_keys"} & {step[0] for step in steps}


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize(
    ("more", "needs_own"),
    [
        ({}, False),
        ({"encryption": KEYS}, True),
        ({"poll_options": {"subscribe": "__consumer_offsets"}}, True),
    ],
)
def test_run_window_session(
    steps: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    is_remote: bool,
    more: dict[str, Any],
    needs_own: bool,
) -> None:
    """Keys, and a setting for internal topics, are in a session of the job's own alone."""
    monkeypatch.setattr(window, "is_remote", lambda _: is_remote)

    run(steps, **more)

    own = "own" if needs_own and not is_remote else "given"
    assert ("load", own) in steps
    assert [step[1] for step in steps if step[0] == "save_shown"] == [own]
    keys = [step[1:] for step in steps if step[0] == "set_keys"]
    assert keys == ([(KEYS, "the columns", ["date"])] if "encryption" in more else [])

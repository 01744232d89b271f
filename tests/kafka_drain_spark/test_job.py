"""What all Spark jobs share, without a JVM: an error's one line, and the secret options."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kafka_drain.config.spark_conf import DEFAULT_LOG_LEVELS
from kafka_drain.errors import MachineError
from kafka_drain.spark.job_spec import JobSpec, read_result, write_private
from kafka_drain_spark import job, without_zipped_pyspark
from kafka_drain_spark.job import (
    JobFailed,
    Opened,
    explain,
    failed_result,
    open_for_jobs,
    run_jobs,
    secret_options,
)

ABORTED = """\
Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
\tat org.apache.spark.sql.execution.datasources.FileFormatWriter.executeTask(F.scala:482)
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailed(Q.scala:776)
Caused by: java.io.IOException: No space left on device
\t... 17 more

Driver stacktrace:
"""


class RemoteError(PySparkException):
    """What Connect's client raises: Java's causes lie beside the message."""

    def __init__(self, message: str, causes: str) -> None:
        super().__init__(message)
        self._stacktrace = causes


class JavaError(Py4JJavaError):
    """What Py4J raises, with the text that the JVM would have written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (JobFailed("the files hold 3 rows; nothing was sent"),) * 2,
        (
            PySparkException("\n[STREAM_FAILED] Query terminated.\n"),
            "[STREAM_FAILED] Query terminated.",
        ),
        (
            PySparkException(ABORTED),
            "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times "
            "(java.io.IOException: No space left on device)",
        ),
        (
            PySparkException("Lost task: a.B: no\n\tat x\nCaused by: a.B: no"),
            "Lost task: a.B: no",
        ),
        (PySparkException(""), "PySparkException"),
        (
            RemoteError("[STREAM_FAILED] Query terminated.", "S\n\tat x\nCaused by: a.B: no"),
            "[STREAM_FAILED] Query terminated. (a.B: no)",
        ),
        (RemoteError("[STREAM_FAILED] Query terminated: no", ""),) * 2,
        (MachineError("the server can't read kafka"), "the server can't read kafka"),
        (
            JavaError(
                "An error occurred while calling o54.save.\n"
                ": org.apache.spark.SparkException: Job aborted.\n\tat x\nCaused by: a.B: no\n"
            ),
            "org.apache.spark.SparkException: Job aborted. (a.B: no)",
        ),
        (
            JavaError("An error occurred while calling o1.count.\n: a.B: no\n\tat x"),
            "a.B: no",
        ),
    ],
)
def test_explain_error(error: Exception, expected: str) -> None:
    """An error's line is its first, with the innermost cause when that says more."""
    assert str(expected) == explain(error)


def test_explain_server_away() -> None:
    """Without an answer, the reason is that of the connection; an answer keeps its own words."""
    away = PySparkException("<_InactiveRpcError of RPC that terminated with: Connection refused>")
    no_cause = PySparkException("<_InactiveRpcError of RPC that terminated with: a riddle>")
    caused = PySparkException("no answer")
    caused.__cause__ = Exception("RPC that terminated with: StatusCode.UNAUTHENTICATED")

    assert explain(away) == (
        "the Spark Connect server doesn't answer any more: it refuses connections"
    )
    assert explain(no_cause) == str(no_cause)
    assert explain(caused).startswith("the Spark Connect server refuses the token; ")
    answered = PySparkException("a task failed: Connection refused")
    assert explain(answered) == "a task failed: Connection refused"
    assert explain(JobFailed("RPC that terminated: Connection refused")) == (
        "RPC that terminated: Connection refused"
    )


def test_failed_result() -> None:
    """A failed job says what went wrong, and what it leaves all the same."""
    left = {"notes": [{"batch": 0}]}

    assert failed_result(JobFailed("no", left)) == {"error": "no", **left}
    assert failed_result(JobFailed("no")) == {"error": "no"}
    assert failed_result(PySparkException("no")) == {"error": "no"}
    assert failed_result(MachineError("no")) == {"error": "no", "error_type": "MachineError"}


def test_secret_options_of_file(tmp_path: Path) -> None:
    """Secret options come from their own file, as they were written."""
    file = tmp_path / "secrets.json"
    write_private(file, {"kafka.sasl.jaas.config": 'password="x";'})

    assert secret_options(str(file)) == {"kafka.sasl.jaas.config": 'password="x";'}


def test_secret_options_without_file() -> None:
    """No path means that nothing is secret."""
    assert secret_options("") == {}


def test_without_zipped_pyspark_where_it_is_installed() -> None:
    """spark-submit's zip of an installed pyspark is left out, and nothing else is."""
    zipped = "/venv/site-packages/pyspark/python/lib/pyspark.zip"
    path = ["/job", zipped, "/venv/site-packages/pyspark/python/lib/py4j-src.zip"]

    assert without_zipped_pyspark([*path, "/venv/site-packages"]) == [
        "/job",
        "/venv/site-packages/pyspark/python/lib/py4j-src.zip",
        "/venv/site-packages",
    ]
    assert without_zipped_pyspark(path) == path
    assert without_zipped_pyspark(["/opt/spark/python/lib/pyspark.zip"]) == [
        "/opt/spark/python/lib/pyspark.zip"
    ]


def test_run_jobs_without_session(tmp_path: Path) -> None:
    """Where no session could be opened, each job's result says why, and none runs."""
    specs = [JobSpec(log_levels={}, result_path=str(tmp_path / name)) for name in ("a", "b")]
    opened = Opened(MachineError("no kafka"), 1.0)

    def work(*_: Any) -> dict[str, Any]:
        raise AssertionError

    assert run_jobs(specs, work, opened=opened) == 1

    expected = {"error": "no kafka", "error_type": "MachineError"}
    assert [read_result(Path(spec.result_path)) for spec in specs] == [expected, expected]


SPEC = JobSpec(log_levels={}, result_path="")


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session that keeps the log levels it was given, and notes that it was stopped."""
    spark = SimpleNamespace(levels=[], stopped=0, can_set=True, version="4.1", sources=None)

    def set_log_levels(_: object, levels: dict[str, str]) -> bool:
        spark.levels.append(levels)
        return bool(spark.can_set)

    def stop(_: object) -> None:
        spark.stopped += 1

    def require_source(_: object, *sources: str) -> None:
        spark.sources = sources

    monkeypatch.setattr(job, "set_log_levels", set_log_levels)
    monkeypatch.setattr(job, "stop", stop)
    monkeypatch.setattr(job, "ui_address", lambda _: "http://driver:4040")
    monkeypatch.setattr(job, "open_session", lambda: spark)
    monkeypatch.setattr(job, "require_source", require_source)
    return spark


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (JobFailed("no", {"notes": [1]}), {"error": "no", "notes": [1]}),
        (MachineError("no"), {"error": "no", "error_type": "MachineError"}),
        (PySparkException("no"), {"error": "no"}),
        (JavaError("no"), {"error": "no"}),
    ],
)
def test_run_jobs_one_fails(
    session: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    result: dict[str, Any],
) -> None:
    """A failed job's result says why, and the others run before and after it."""
    specs = [JobSpec(log_levels={"a": n}, result_path=str(tmp_path / n)) for n in "123"]

    def work(_: Any, spec: JobSpec) -> dict[str, Any]:
        if spec is specs[1]:
            raise error
        return {"records": len(session.levels)}

    assert run_jobs(specs, work) == 1

    results: list[Any] = [read_result(Path(spec.result_path)) for spec in specs]
    first, failed, last = results
    assert failed == result
    assert [one["records"] for one in (first, last)] == [1, 3]
    assert {one["spark_version"] for one in (first, last)} == {"4.1"}
    assert session.levels == [{"a": n} for n in "123"]
    assert session.stopped == 1
    said = capsys.readouterr().out
    assert said == "spark ui: http://driver:4040\nERROR no\n"


def test_run_jobs_versions(session: Any) -> None:
    """Results have the version, and the time that opening took; Spark's end is no failure."""
    written: list[Any] = []
    opened = Opened(session, 1.26, "4.0.2")

    def write(*given: object) -> None:
        assert not session.stopped
        written.append(given)

    assert run_jobs([SPEC, SPEC], lambda *_: {"records": 1}, write, opened) == 0

    result = {"records": 1, "spark_version": "4.0.2", "session_seconds": 1.3}
    assert written == [(SPEC, result)] * 2
    assert session.stopped == 1


def test_run_jobs_stopped(session: Any) -> None:
    """An error of our own code ends the jobs, and Spark all the same."""

    def work(*_: Any) -> dict[str, Any]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_jobs([SPEC], work, opened=Opened(session, 0.0))

    assert session.stopped == 1


@pytest.mark.parametrize(
    ("levels", "can_set", "is_warned"),
    [
        ({"a": "DEBUG"}, False, True),
        ({"a": "DEBUG"}, True, False),
        (dict(DEFAULT_LOG_LEVELS), False, False),
    ],
)
def test_run_jobs_log_levels(
    session: Any,
    capsys: pytest.CaptureFixture[str],
    levels: dict[str, str],
    can_set: bool,
    is_warned: bool,
) -> None:
    """Only levels that somebody asked for, and that can't be set, are warned of."""
    session.can_set = can_set
    spec = JobSpec(log_levels=levels, result_path="")

    run_jobs([spec], lambda *_: {}, lambda *_: None, Opened(session, 0.0))

    warned = [line for line in capsys.readouterr().out.splitlines() if "WARNING" in line]
    assert [line[:36] for line in warned] == ["WARNING log levels of a weren't set:"] * is_warned


def test_open_for_jobs(session: Any) -> None:
    """A session that reads its sources is asked for its version at once."""
    opened = open_for_jobs("kafka", "avro")

    assert (opened.spark, opened.version) == (session, "4.1")
    assert 0 <= opened.seconds < 60
    assert session.sources == ("kafka", "avro")


@pytest.mark.parametrize("error", [MachineError("no"), PySparkException("no"), JavaError("no")])
@pytest.mark.parametrize("step", ["open_session", "require_source"])
def test_open_for_jobs_fails(
    session: Any, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    """Whatever keeps a session from being opened is its jobs' error."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(job, step, fail)

    assert open_for_jobs("kafka").spark is error


TRACEBACK = """Traceback (most recent call last):
  File "/app/kafka_drain_spark/send.py", line 155, in _send_group
    return {"records": sum(send_shard(job) for job in jobs)}
kafka_drain.errors.KafkaUnavailableError: sending orders-0: no answer from Kafka

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/spark/worker.py", line 9, in process
RuntimeError: KafkaUnavailableError: sending orders-0: no answer from Kafka

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(P.scala:1)
"""


@pytest.mark.parametrize(
    "begin",
    [
        "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 1.0: "
        "org.apache.spark.api.python.PythonException: ",
        "An exception was thrown from the Python worker. Please see the stack trace below.\n",
    ],
    ids=["here", "on a server"],
)
def test_explain_task_in_python(begin: str) -> None:
    """Of a task that raised one of our errors, that is said, and not that Python raised one."""
    said = explain(RuntimeError(begin + TRACEBACK))

    assert said == "KafkaUnavailableError: sending orders-0: no answer from Kafka"

"""What all Spark jobs share, without a JVM: an error's one line, and the secret options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kafka_drain.errors import MachineError
from kafka_drain.spark.job_spec import JobSpec, read_result, write_private
from kafka_drain_spark import without_zipped_pyspark
from kafka_drain_spark.job import (
    JobFailed,
    Opened,
    explain,
    failed_result,
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

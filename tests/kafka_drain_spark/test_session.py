"""What differs between sessions, as far as it needs neither a JVM nor a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain_spark.session import check_conf, close_session, plain_report, refusal

ROOT = Path(__file__).resolve().parents[2]

# As a server of Spark 4.0.2 wrote it, shortened.
REPORT = {
    "id": "1f01ee4f-a4d3-48a4-9803-8e2f98c1307e",
    "batchId": 0,
    "sources": [
        {
            "startOffset": None,
            "endOffset": '{"small4":{"0":500,"1":500}}',
            "latestOffset": '{"small4":{"0":500,"1":500}}',
            "numInputRows": 1000,
            "metrics": {"minOffsetsBehindLatest": "0"},
        }
    ],
    "observedMetrics": {
        "fingerprint": {
            "values": [1000, 7899369278304980032],
            "schema": {"type": "struct", "fields": [{"name": "records"}, {"name": "fingerprint"}]},
        }
    },
}


def test_plain_report_of_server() -> None:
    """A server's report becomes what Spark itself writes: offsets and metrics by name."""
    offsets = {"small4": {"0": 500, "1": 500}}

    plain = plain_report(json.loads(json.dumps(REPORT)))

    assert plain["sources"] == [
        {
            "startOffset": None,
            "endOffset": offsets,
            "latestOffset": offsets,
            "numInputRows": 1000,
            "metrics": {"minOffsetsBehindLatest": "0"},
        }
    ]
    assert plain["observedMetrics"] == {
        "fingerprint": {"records": 1000, "fingerprint": 7899369278304980032}
    }
    assert (plain["id"], plain["batchId"]) == (REPORT["id"], 0)


@pytest.mark.parametrize("observed", [None, {}])
def test_plain_report_without_metrics(observed: Any) -> None:
    """A batch without observed metrics has none."""
    assert plain_report({"sources": [], "observedMetrics": observed})["observedMetrics"] == {}


@pytest.mark.parametrize(
    ("wanted", "found", "missing"),
    [
        ({"spark.sql.session.timeZone": "UTC"}, {"spark.sql.session.timeZone": "UTC"}, None),
        (
            {"spark.sql.session.timeZone": "UTC"},
            {"spark.sql.session.timeZone": "CET"},
            "--conf spark.sql.session.timeZone=UTC",
        ),
        ({"spark.executor.cores": "2"}, {}, "--conf spark.executor.cores=2"),
        ({"spark.executor.cores": "2"}, {"spark.executor.cores": "2"}, None),
        ({"spark.speculation": "false"}, {}, None),
        (
            {"spark.speculation": "false"},
            {"spark.speculation": "true"},
            "--conf spark.speculation=false",
        ),
        ({"spark.executorEnv.A": "1", "spark.redaction.regex": "x"}, {}, None),
        ({"spark.sql.artifact.isolation.enabled": "false"}, {}, None),
    ],
)
def test_check_conf(wanted: dict[str, str], found: dict[str, str], missing: str | None) -> None:
    """What a session can't set has to be the server's; the error says how to start one."""
    if missing is None:
        check_conf(wanted, found)
    else:
        with pytest.raises(ConfigError, match=f"kafka-drain spark-server {missing}`"):
            check_conf(wanted, found)


@pytest.mark.parametrize(
    ("message", "means"),
    [
        ("Ssl handshake failed: SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: unknown", "certificate"),
        ("Ssl handshake failed: SSL_ERROR_SSL: WRONG_VERSION_NUMBER", "doesn't speak TLS"),
        ("status = StatusCode.UNAUTHENTICATED", "refuses the token"),
        ("status = StatusCode.PERMISSION_DENIED", "refuses the token"),
        ("status = StatusCode.UNAVAILABLE, Connection refused", None),
        ("[NO_ACTIVE_SESSION] No active Spark session found.", None),
    ],
)
def test_refusal(message: str, means: str | None) -> None:
    """What gRPC says of a connection tells whether this client is accepted, and what to change."""
    found = refusal(message)

    assert found is None if means is None else found is not None and means in found


def test_forget_numpy_spares_pandas() -> None:
    """A job's process converts a list for Java without importing pandas (pyspark 4.0 would)."""
    code = """
import sys
from kafka_drain_spark.session import forget_numpy
import pyspark.sql.types
from py4j.protocol import INPUT_CONVERTER
forget_numpy()
found = [converter for converter in INPUT_CONVERTER if converter.can_convert({})]
print(type(found[0]).__name__, "pandas" in sys.modules)
"""
    path = os.pathsep.join(str(ROOT / name) for name in ("plugins", "spark_jobs"))

    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )

    assert (ended.stdout.split(), ended.stderr) == (["MapConverter", "False"], "")


def test_close_session_after_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pyspark releases in threads of its own is released before the session it belongs to."""
    pytest.importorskip("grpc")
    reattach = pytest.importorskip("pyspark.sql.connect.client.reattach")
    if not hasattr(pytest.importorskip("pyspark.sql.connect.proto"), "ReleaseSessionRequest"):
        pytest.skip("Spark 3.5's protocol releases no session")
    released: list[str] = []
    iterator = reattach.ExecutePlanResponseReattachableIterator
    monkeypatch.setattr(iterator, "shutdown", lambda: released.append("answers"))

    class Client:
        _session_id, _user_id = "s", "kafka-drain"
        _builder = SimpleNamespace(userAgent="", metadata=list)
        _stub = SimpleNamespace(ReleaseSession=lambda *_, **__: released.append("session"))

    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    remote.client = Client()
    close_session(remote)

    assert released == ["answers", "session"]

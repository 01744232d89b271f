"""What differs between sessions, as far as it needs neither a JVM nor a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark.job_spec import CONNECT_VARIABLE
from kafka_drain_spark import session as sessions
from kafka_drain_spark.session import (
    check_conf,
    close_session,
    cores_of,
    is_on_connect,
    own_session,
    plain_report,
    progress_reports,
    refusal,
    require_source,
    set_log_levels,
    stop,
    ui_address,
)

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


def remote(**attributes: Any) -> Any:
    """A session of a Spark Connect server, as far as it is asked."""
    made: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    vars(made).update(attributes)
    return made


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
        (
            {"spark.executor.extraJavaOptions": "-Da -Db"},
            {},
            "--conf 'spark.executor.extraJavaOptions=-Da -Db'",
        ),
        (
            {"spark.executor.extraJavaOptions": "-Da -Db"},
            {"spark.executor.extraJavaOptions": "-Da -Db -Duser.timezone=UTC"},
            None,
        ),
        (
            {"spark.driver.extraClassPath": "/b"},
            {"spark.driver.extraClassPath": "/a:/b"},
            None,
        ),
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

    close_session(remote(client=Client()))

    assert released == ["answers", "session"]


@pytest.mark.parametrize("is_set", [True, False])
def test_is_on_connect(monkeypatch: pytest.MonkeyPatch, is_set: bool) -> None:
    """A job is a server's client if settings for one were left for it."""
    monkeypatch.delenv(CONNECT_VARIABLE, raising=False)
    if is_set:
        monkeypatch.setenv(CONNECT_VARIABLE, "/settings")

    assert is_on_connect() is is_set


def test_own_session_of_classic() -> None:
    """A classic session makes another one in its JVM, which nobody closes."""
    classic: Any = SimpleNamespace(newSession=lambda: "new")

    found: Any = own_session(classic, "key")
    assert found == "new"
    close_session(classic)


@pytest.mark.parametrize("closed", [0, 2])
def test_own_session_of_remote(monkeypatch: pytest.MonkeyPatch, closed: int) -> None:
    """A key has the same session each time, or the next one that the server hasn't closed."""
    tried: list[str] = []

    def opened(session_id: str) -> Any:
        tried.append(session_id)
        if tried.index(session_id) < closed:
            raise PySparkException("[INVALID_HANDLE.SESSION_CLOSED] closed")
        return session_id

    monkeypatch.setattr(sessions, "_remote_session", opened)

    found: list[Any] = [own_session(remote(), key) for key in ("a", "a", "b")]

    assert found[0] == found[1] != found[2]
    assert len(set(tried)) == closed + 2
    assert found[0] == tried[closed]


def test_own_session_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another error than a closed session's isn't tried again; too many closed ones are told."""
    tried: list[str] = []

    def opened(session_id: str) -> Any:
        tried.append(session_id)
        raise error

    monkeypatch.setattr(sessions, "_remote_session", opened)
    error = PySparkException("no answer")
    with pytest.raises(PySparkException, match="no answer"):
        own_session(remote(), "a")
    assert len(tried) == 1

    error = PySparkException("SESSION_CLOSED")
    with pytest.raises(MachineError, match="has closed 1,000 sessions of a"):
        own_session(remote(), "a")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A Spark Connect server, which sets what it is told to, and its only session."""
    retries = pytest.importorskip("pyspark.sql.connect.client.retries", exc_type=ImportError)
    monkeypatch.setattr(retries.DefaultPolicy, "can_retry", lambda *_: True)
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"conf": {"spark.a": "1", "spark.executorEnv.B": "2"}}))
    monkeypatch.setenv(CONNECT_VARIABLE, str(settings))
    monkeypatch.setenv("SPARK_REMOTE", "sc://h:1/;token=x")
    monkeypatch.setattr(sessions, "_KEPT", [])
    found: dict[str, str] = {}
    said = SimpleNamespace(addresses=[], error=None, found=found, policies=[])

    def set_all(configs: dict[str, str], silent: bool) -> None:
        if said.error:
            raise said.error
        assert silent
        found.update(configs)

    conf = SimpleNamespace(_set_all=set_all, getAll=found)
    said.session = remote(
        conf=conf, client=SimpleNamespace(set_retry_policies=said.policies.append)
    )

    def at(address: str) -> Any:
        said.addresses.append(address)
        return SimpleNamespace(create=lambda: said.session)

    monkeypatch.setattr(
        sessions, "SparkSession", SimpleNamespace(builder=SimpleNamespace(remote=at))
    )
    sessions.settings.cache_clear()
    yield said
    sessions.settings.cache_clear()


def test_remote_session(server: Any) -> None:
    """A session has the job's settings and its own id, and shows no secret in the server's log."""
    assert sessions._remote_session("7") is server.session

    assert server.addresses == ["sc://h:1/;token=x;session_id=7"]
    redacted = server.found.pop("spark.sql.redaction.string.regex")
    assert "sasl|ssl" in redacted
    assert server.found == {"spark.a": "1", "spark.executorEnv.B": "2"}
    # One that is garbage would end the threads of all others.
    assert [server.session] == sessions._KEPT
    [[policy]] = server.policies
    assert policy.max_retries == 10
    assert policy.can_retry(PySparkException("StatusCode.UNAVAILABLE"))
    assert not policy.can_retry(PySparkException("StatusCode.UNAUTHENTICATED"))


@pytest.mark.parametrize(
    ("said", "raised", "words"),
    [
        ("StatusCode.UNAUTHENTICATED", ConfigError, "refuses the token"),
        ("[SESSION_CLOSED]", PySparkException, "SESSION_CLOSED"),
    ],
)
def test_remote_session_refused(
    server: Any, said: str, raised: type[Exception], words: str
) -> None:
    """A client that isn't accepted is told what to change; other errors are left as they are."""
    server.error = PySparkException(said)

    with pytest.raises(raised, match=words):
        sessions._remote_session("7")


def test_remote_session_lacks_setting(server: Any) -> None:
    """A setting that the server didn't take is refused, and not assumed."""
    server.session.conf.getAll = {"spark.a": "2"}

    with pytest.raises(ConfigError, match=r"--conf spark\.a=1"):
        sessions._remote_session("7")


UTC = 'sun.util.calendar.ZoneInfo[id="UTC",offset=0,dstSavings=0,useDaylight=false]'


class Reading:
    """A server's session that is asked for its sources and its time zone."""

    def __init__(self, lacks: str = "", zone: str = UTC) -> None:
        self.lacks, self.zone = lacks, zone
        self.asked: list[str] = []

    def format(self, name: str) -> Reading:
        """Ask for a source."""
        self.asked.append(name)
        return self

    def options(self, **_: str) -> Reading:
        """Take options."""
        return self

    def schema(self, _: str) -> Reading:
        """Take a schema."""
        return self

    def load(self) -> Any:
        """Return a source, or the server's error."""
        if self.asked[-1] in self.lacks:
            raise PySparkException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source")
        return SimpleNamespace(schema=None)

    def sql(self, _: str) -> Any:
        """Return the time zone."""
        self.asked.append("time zone")
        return SimpleNamespace(collect=lambda: [[self.zone]])

    @property
    def session(self) -> Any:
        """The session."""
        return remote(read=self, sql=self.sql)


@pytest.fixture
def _unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been asked of a server yet."""
    monkeypatch.setattr(sessions, "_PROVEN", set())


@pytest.mark.usefixtures("_unproven")
def test_require_source_once() -> None:
    """A server is asked once for each source that isn't Spark's own, and for its time zone."""
    reading = Reading()

    require_source(reading.session)
    assert reading.asked == []
    for formats in (("parquet",), ("kafka", "parquet"), ("kafka", "avro"), ("avro",)):
        require_source(reading.session, *formats)

    assert reading.asked == ["time zone", "kafka", "avro"]


@pytest.mark.usefixtures("_unproven")
@pytest.mark.parametrize(
    ("reading", "formats", "words"),
    [
        (Reading(lacks="kafka"), ("kafka",), "can't read kafka; start the server with"),
        (Reading(lacks="avro"), ("kafka", "avro"), "can't read avro"),
        (Reading(zone=UTC.replace("=0,", "=3600000,")), ("parquet",), "Spark misreads old"),
        (Reading(zone=UTC.replace("=false", "=true")), ("parquet",), "-Duser.timezone=UTC"),
    ],
)
def test_require_source_refused(reading: Reading, formats: tuple[str, ...], words: str) -> None:
    """A server that can't read a source, or would misread times, is refused each time."""
    for _ in range(2):
        with pytest.raises(MachineError, match=words):
            require_source(reading.session, *formats)


@pytest.mark.usefixtures("_unproven")
def test_require_source_of_classic() -> None:
    """A classic session, which we have started, is asked nothing."""
    classic: Any = object()

    require_source(classic, "kafka", "avro")


def test_what_only_classic_has() -> None:
    """A server's UI and log levels aren't a client's."""
    classic: Any = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl="http://d:4040"))

    assert ui_address(classic) == "http://d:4040"
    assert ui_address(remote()) is None
    assert set_log_levels(remote(), {"a": "DEBUG"}) is False


def test_cores_of() -> None:
    """A server has as many cores as it makes parts of a range."""
    classic: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=6))
    frame = SimpleNamespace(collect=lambda: [[7]])
    frame.selectExpr = lambda _: frame
    frame.agg = lambda _: frame

    assert cores_of(classic) == 6
    assert cores_of(remote(range=lambda _: frame)) == 8


def test_stop_of_classic() -> None:
    """A classic session is stopped, and nothing else."""
    stopped: list[str] = []
    classic: Any = SimpleNamespace(stop=lambda: stopped.append("stopped"))

    stop(classic)

    assert stopped == ["stopped"]


@pytest.mark.parametrize("is_gone", [False, True])
def test_stop_of_remote(monkeypatch: pytest.MonkeyPatch, is_gone: bool) -> None:
    """A client's queries are ended with its session, unless the server has gone with them."""
    order: list[object] = []

    def interrupt() -> None:
        order.append("interrupted")
        if is_gone:
            raise PySparkException("no answer")

    monkeypatch.setattr(sessions, "_retry", lambda _, **policy: order.append(policy))
    monkeypatch.setattr(sessions, "_release_answers", lambda: order.append("answers"))

    stop(remote(interruptAll=interrupt, stop=lambda: order.append("stopped")))

    assert order == [{"max_retries": 1}, "interrupted", "answers", "stopped"]


@pytest.mark.parametrize("is_remote", [True, False])
def test_progress_reports(is_remote: bool) -> None:
    """Only batches that aren't known yet are reported, by a server as by Spark itself."""
    found = [json.dumps(REPORT | {"batchId": number}) for number in range(4)]
    query: Any
    if is_remote:
        reports = [SimpleNamespace(batchId=n, json=text) for n, text in enumerate(found)]
        query = SimpleNamespace(recentProgress=reports)
    else:
        own = [
            SimpleNamespace(batchId=lambda n=n: n, json=lambda text=text: text)
            for n, text in enumerate(found)
        ]
        query = SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: own))

    told = progress_reports(query, {0, 2})

    assert [report["batchId"] for report in told] == [1, 3]
    [source] = told[0]["sources"]
    assert isinstance(source["endOffset"], dict) is is_remote
    assert len(progress_reports(query)) == 4


def test_open_session_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of Java's sets another time zone over ours: Spark would misread old timestamps."""
    zone = SimpleNamespace(
        getRawOffset=lambda: 3_600_000, useDaylightTime=lambda: True, getID=lambda: "Europe/Berlin"
    )
    util = SimpleNamespace(TimeZone=SimpleNamespace(getDefault=lambda: zone))
    made = SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(util=util)))
    monkeypatch.delenv(CONNECT_VARIABLE, raising=False)
    monkeypatch.setattr(sessions, "forget_numpy", lambda: None)
    builder = SimpleNamespace(getOrCreate=lambda: made)
    monkeypatch.setattr(sessions, "SparkSession", SimpleNamespace(builder=builder))

    with pytest.raises(MachineError, match="Europe/Berlin"):
        sessions.open_session()


def test_close_session_server_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is gone when all is done takes no result away."""
    grpc = pytest.importorskip("grpc")
    reattach = pytest.importorskip("pyspark.sql.connect.client.reattach")
    if not hasattr(pytest.importorskip("pyspark.sql.connect.proto"), "ReleaseSessionRequest"):
        pytest.skip("Spark 3.5's protocol releases no session")
    iterator = reattach.ExecutePlanResponseReattachableIterator
    monkeypatch.setattr(iterator, "shutdown", lambda: None)
    waited: list[float] = []

    def away(*_: Any, timeout: float, **__: Any) -> None:
        waited.append(timeout)
        raise grpc.RpcError("StatusCode.UNAVAILABLE")

    class Client:
        _session_id, _user_id = "s", "kafka-drain"
        _builder = SimpleNamespace(userAgent="", metadata=list)
        _stub = SimpleNamespace(ReleaseSession=away)

    close_session(remote(client=Client()))

    assert waited == [10.0]

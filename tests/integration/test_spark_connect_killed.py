"""Clients of a Spark Connect server that die, are suspended, or meet each other; and what follows.

Each test ends with the proof that every record is in the archive once.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from demo.broker.ports import free_ports
from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ConfigError
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.connect_server import ServerOptions, require_free
from tests.faults.injection import wait_for
from tests.filled_topic import many_partitions
from tests.spark_connect import (
    RECORDS,
    Client,
    Server,
    assert_exact,
    assert_once,
    client,
    fill,
    remove_lease,
    start_client,
)

pytestmark = [pytest.mark.integration, pytest.mark.connect]

#: A drain of 50 batches, which is in mid-query for longer than a client takes to start.
SLOW = ("--source-option", "maxOffsetsPerTrigger=40")
BATCHES = RECORDS // 40
#: A drain that takes longer than the sessions of `forgetful_server` last.
SLOWER = ("--source-option", "maxOffsetsPerTrigger=10")
FOLLOWS = "is running; following it"
SESSION_ENDED = "has ended the session; a retry resumes"


class Drained:
    """An archive and the command that drains a topic to it.

    Args:
        server: Where the query runs.
        topic: The topic.
        folder: Where the archive is created.
        servers: Kafka's bootstrap servers.
    """

    def __init__(self, server: Server, topic: str, folder: Path, servers: str) -> None:
        self.folder, self.archive = folder, folder / "archive"
        self._kafka = ("--topic", topic, "--bootstrap-servers", servers)
        self.command = ("drain", self.archive, *self._kafka, "--master", server.master, "--json")

    def start(self, *more: object) -> Client:
        """Start a drain that is slow, unless told otherwise."""
        return start_client(self.folder, *self.command, *(more or SLOW))

    @property
    def query_id(self) -> str | None:
        """The id of the query, once it has started."""
        path = self.archive / "generations/0001/checkpoint/metadata"
        return json.loads(path.read_text())["id"] if path.exists() else None

    @property
    def batches(self) -> int:
        """The number of batches that the query has committed."""
        return len([*self.archive.glob("generations/0001/checkpoint/commits/[0-9]*")])

    def start_until_mid_query(self, *more: object) -> Client:
        """Start a slow drain, and wait until it is in mid-query."""
        started = self.start(*more)
        started.wait_until(lambda: self.batches > 1, "batches")
        return started


def tell(what: str, seconds: float) -> None:
    """Show a figure in the test's captured output, for docs/spark-connect.md."""
    sys.stderr.write(f"{what}: watched again {seconds:.1f} s after the retry's start\n")


@pytest.fixture
def drained(server: Server, topic: str, tmp_path: Path, bootstrap_servers: str) -> Drained:
    """An archive that doesn't exist yet, and its drain."""
    return Drained(server, topic, tmp_path, bootstrap_servers)


def test_drain_killed_before_its_query(drained: Drained, cluster: Any) -> None:
    """Killed while it holds the lease but has no query yet: the retry starts the query."""
    started = drained.start()
    started.wait_until((drained.archive / "lock.json").exists, "the lease")
    started.kill()
    assert drained.query_id is None

    remove_lease(drained.archive)
    retry = drained.start("--source-option", "maxOffsetsPerTrigger=400")

    seconds = retry.seconds_until_it_says("offsets planned")
    result = json.loads(retry.end())
    assert (result["adopted"], result["records"]) == (False, RECORDS)
    tell("drain killed before its query", seconds)
    assert_exact(drained.archive, cluster)


def test_drain_killed_in_mid_query(drained: Drained, cluster: Any) -> None:
    """Killed in mid-query: the query goes on, and the retry follows it and starts none."""
    drained.start_until_mid_query().kill()
    known = drained.query_id

    remove_lease(drained.archive)
    retry = drained.start()

    seconds = retry.seconds_until_it_says(f"query {known} {FOLLOWS}")
    result = json.loads(retry.end())
    assert (result["query_id"], result["adopted"], drained.query_id) == (known, True, known)
    tell("drain killed in mid-query", seconds)
    assert_exact(drained.archive, cluster)


def test_drain_killed_after_its_query(drained: Drained, cluster: Any) -> None:
    """Killed after the query's end but before it says so: the retry finds nothing new."""
    started = drained.start_until_mid_query()
    started.suspend()
    started.wait_until(lambda: drained.batches == BATCHES, "the last batch")
    started.kill()
    known = drained.query_id

    remove_lease(drained.archive)
    retry = drained.start()

    result = json.loads(retry.end())
    assert (result["batches"], result["records"], drained.query_id) == (0, 0, known)
    assert_exact(drained.archive, cluster)


def test_drain_killed_with_other_options(drained: Drained, cluster: Any) -> None:
    """A query that was started with other options is stopped before the next one starts."""
    drained.start_until_mid_query().kill()

    remove_lease(drained.archive)
    retry = drained.start("--source-option", "maxOffsetsPerTrigger=500")

    assert not json.loads(retry.end())["adopted"]
    assert "it isn't needed" in retry.said()
    assert_exact(drained.archive, cluster)


def test_drain_interrupted(drained: Drained, cluster: Any) -> None:
    """A client that is interrupted stops its query, as the driver would end with spark-submit."""
    started = drained.start_until_mid_query()

    started.interrupt()

    started.process.wait(60)
    stopped_at = drained.batches
    retry = drained.start("--source-option", "maxOffsetsPerTrigger=500")
    result = json.loads(retry.end())
    # A query that still ran would have been followed or stopped.
    assert "query" not in retry.said()
    assert stopped_at < BATCHES
    assert result["adopted"] is False
    assert_exact(drained.archive, cluster)


def test_server_killed_and_started_again(server: Server, drained: Drained, cluster: Any) -> None:
    """A server that dies in mid-drain fails the drain; the next one on a new server is exact."""
    started = drained.start_until_mid_query()

    server.kill()
    server.start()

    started.end(1)
    # The new server doesn't know the session, if it is up before the client gives up.
    assert SESSION_ENDED in started.said() or "the drain failed in Spark" in started.said()
    client(*drained.command)
    assert_exact(drained.archive, cluster)


def test_server_command_killed(tmp_path: Path) -> None:
    """Killed by SIGKILL, the command that runs a server leaves none on its port."""
    (port,) = free_ports(1, ())
    started = Server(port, tmp_path / "log")
    started.start()
    assert started.process is not None

    started.process.kill()
    started.process.wait()

    options = ServerOptions(port=port)
    wait_for(lambda: is_free(options), "the port's being free", patience=40)


def is_free(options: ServerOptions) -> bool:
    """Return whether a server can be started."""
    try:
        require_free(options)
    except ConfigError:
        return False
    return True


def test_two_drains_at_once(drained: Drained, cluster: Any) -> None:
    """Of two drains that start at once, one drains, and the other names it and changes nothing."""
    both = [drained.start(), drained.start()]

    codes = [each.process.wait(400) for each in both]

    assert sorted(codes) == [0, 1], [each.said() for each in both]
    drain, refused = both if codes[0] == 0 else reversed(both)
    assert "is being drained by" in refused.said()
    assert json.loads(drain.result())["records"] == RECORDS
    assert_exact(drained.archive, cluster)


def test_drain_suspended_longer_than_its_lease(drained: Drained, cluster: Any) -> None:
    """Two clients that follow one query, as one was suspended for too long, leave it exact.

    One of them closes the session, at which the other may fail.
    """
    first = drained.start_until_mid_query()
    first.suspend()
    known = drained.query_id
    remove_lease(drained.archive)
    second = drained.start()
    second.seconds_until_it_says(f"query {known} {FOLLOWS}")

    first.resume()

    codes = [each.process.wait(400) for each in (first, second)]
    assert "THE LEASE IS LOST" in first.said()
    assert 0 in codes
    for code, each in zip(codes, (first, second), strict=True):
        assert code == 0 or SESSION_ENDED in each.said()
    assert (drained.query_id, drained.batches) == (known, BATCHES)
    assert_exact(drained.archive, cluster)


@pytest.fixture(scope="module")
def forgetful_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that ends a session which it hasn't heard from for 15 seconds."""
    (port,) = free_ports(1, ())
    found = Server(port, tmp_path_factory.mktemp("forgetful") / "log")
    session = "spark.connect.session.manager"
    found.start(
        *("--conf", f"{session}.defaultSessionTimeout=15s"),
        *("--conf", f"{session}.maintenanceInterval=1s"),
    )
    yield found
    assert found.stop() == 0, found.said()


def has_stalled(drained: Drained) -> Callable[[], bool]:
    """Return a condition: its query has committed nothing for five seconds."""
    seen, since = drained.batches, time.monotonic()

    def check() -> bool:
        nonlocal seen, since
        if drained.batches != seen:
            seen, since = drained.batches, time.monotonic()
        return time.monotonic() - since > 5

    return check


def test_session_expired_before_the_retry(
    forgetful_server: Server, topic: str, tmp_path: Path, bootstrap_servers: str, cluster: Any
) -> None:
    """A killed client's session that the server has ended: the retry starts a query of its own."""
    drained = Drained(forgetful_server, topic, tmp_path, bootstrap_servers)
    drained.start_until_mid_query(*SLOWER).kill()
    wait_for(has_stalled(drained), "the end of the session", patience=120)
    assert drained.batches < RECORDS // 10

    remove_lease(drained.archive)
    retry = drained.start("--source-option", "maxOffsetsPerTrigger=500")

    result = json.loads(retry.end())
    assert (result["adopted"], result["records"] < RECORDS) == (False, True)
    assert_exact(drained.archive, cluster)


def test_session_expired_in_mid_query(
    forgetful_server: Server, topic: str, tmp_path: Path, bootstrap_servers: str, cluster: Any
) -> None:
    """A client whose session expires while it is suspended says that a retry resumes."""
    drained = Drained(forgetful_server, topic, tmp_path, bootstrap_servers)
    started = drained.start_until_mid_query(*SLOWER)
    started.suspend()
    wait_for(has_stalled(drained), "the end of the session", patience=120)

    started.resume()

    started.end(1)
    assert SESSION_ENDED in started.said()
    assert drained.batches < RECORDS // 10
    retry = drained.start("--source-option", "maxOffsetsPerTrigger=500")
    assert json.loads(retry.end())["adopted"] is False
    assert_exact(drained.archive, cluster)


def test_drain_longer_than_a_session_lasts(
    forgetful_server: Server, topic: str, tmp_path: Path, bootstrap_servers: str, cluster: Any
) -> None:
    """A query may run for longer than the server keeps a session that isn't used."""
    drained = Drained(forgetful_server, topic, tmp_path, bootstrap_servers)

    started = drained.start("--source-option", "maxOffsetsPerTrigger=20")

    assert json.loads(started.end())["records"] == RECORDS
    assert time.monotonic() - started.began > 15
    assert_exact(drained.archive, cluster)


#: Moments of a window's write at which its client is killed: what is there by then.
WINDOW_MOMENTS = {
    "before": "plan.json",
    "during": "data/*/_temporary/0/*",
    "after": "data/*/_SUCCESS",
}


@pytest.mark.parametrize("moment", WINDOW_MOMENTS)
def test_window_killed(
    moment: str,
    server: Server,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    bootstrap_servers: str,
    cluster: Any,
) -> None:
    """A backfill's client is killed before, during or after its write: the retry is exact.

    A window isn't followed: each try writes to a folder of its own, and only one is sealed.
    """
    topic = many_partitions(make_topic, send)
    drained = Drained(server, topic, tmp_path, bootstrap_servers)
    drained.start("--source-option", "startingOffsets=latest").end()
    times = ("--start", "2026-01-01T00:00Z", "--end", "2026-01-02T00:00Z")
    command = ("backfill", drained.archive, *drained.command[4:8], *times)
    window = drained.archive / "windows"
    started = start_client(tmp_path, *command)
    started.wait_until(lambda: any(window.glob(f"*/{WINDOW_MOMENTS[moment]}")), moment)
    started.kill()
    assert not [*window.glob("*/receipt.json")]

    retry = start_client(tmp_path, *command)

    tell(f"window killed {moment} its write", retry.seconds_until_it_says("offsets planned"))
    retry.end()
    report = validate_archive(Archive.at(str(drained.archive)), cluster, deep=True)
    assert report.complete, report.findings
    assert [window["records"] for window in report.windows] == [RECORDS]
    assert_once(drained.archive)


@pytest.fixture
def validated(
    server: Server,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    bootstrap_servers: str,
) -> Drained:
    """An archive with files of many partitions that was drained and validated."""
    drained = Drained(server, many_partitions(make_topic, send), tmp_path, bootstrap_servers)
    drained.start("--json").end()
    client("validate", drained.archive, *drained.command[4:6])
    return drained


def test_compaction_killed(validated: Drained, cluster: Any) -> None:
    """A compaction's client is killed while it writes: nothing is replaced; the retry replaces."""
    for each in ("roll", "validate"):
        client(each, validated.archive, *validated.command[4:6])
    command = ("maintain", validated.archive, *validated.command[4:8], "--apply")

    kill_while_it_writes(validated, command)

    assert_exact(validated.archive, cluster)
    end_at_last(validated, command)
    assert len([*validated.archive.glob("windows/compact_*/receipt.json")]) == 1
    assert_exact(validated.archive, cluster)


def test_repair_killed(validated: Drained, cluster: Any) -> None:
    """A repair's client is killed while it writes: the retry drains the lost records once."""
    for file in validated.archive.glob("generations/0001/data/*/*/*.parquet"):
        file.unlink()
    command = ("repair", validated.archive, *validated.command[4:8], "--apply")

    kill_while_it_writes(validated, command)

    end_at_last(validated, command)
    report = validate_archive(Archive.at(str(validated.archive)), cluster, deep=True)
    assert report.complete, report.findings
    assert_once(validated.archive)


def kill_while_it_writes(drained: Drained, command: Sequence[object]) -> None:
    """Kill the client of a job that writes a window, while its tasks write."""
    started = start_client(drained.folder, *command)
    windows = drained.archive / "windows"
    started.wait_until(lambda: any(windows.glob(f"*/{WINDOW_MOMENTS['during']}")), "its write")
    started.kill()
    assert not [*windows.glob("*/receipt.json")]


def end_at_last(drained: Drained, command: Sequence[object]) -> None:
    """Run a command again, without the killed one's leases."""
    for lease in drained.archive.rglob("lock.json"):
        lease.unlink()
    start_client(drained.folder, *command).end()


#: Drains a group, as the operator does.
GROUP = """
import sys, tempfile
from pathlib import Path
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.group import open_group, raise_failures, run_group
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.spark.client_mode import SparkConnect
from kafka_drain.spark.place import SparkConnection
from kafka_drain.spark.submit import for_master
servers, master, folder, *topics = sys.argv[1:]
pipelines = [
    Pipeline(
        name=f"p{number}",
        topics=[topic],
        archive=f"{folder}/{number}",
        source_options={"maxOffsetsPerTrigger": 50},
    )
    for number, topic in enumerate(topics)
]
clusters = {"kafka_default": KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))}
hear = lambda line: print(line, file=sys.stderr, flush=True)
runner = SparkConnect(SparkConnection(master), hear)
with for_master(master), tempfile.TemporaryDirectory() as run:
    with open_group(pipelines, clusters, Path(run), run="tests") as group:
        run_group(group, runner)
    raise_failures(group)
    print({name: result.get("adopted") for name, result in group.results.items()})
"""


def test_group_killed_in_mid_query(
    server: Server,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    cluster: Any,
    bootstrap_servers: str,
) -> None:
    """A group's client is killed in its second drain: the retry follows that one's query."""
    topics = [make_topic(partitions=2) for _ in range(3)]
    for topic in topics:
        fill(send, topic)
    started = Client(tmp_path, "-c", GROUP, bootstrap_servers, server.master, tmp_path, *topics)
    checkpoint = tmp_path / "1/generations/0001/checkpoint"
    started.wait_until(lambda: any(checkpoint.glob("commits/1")), "the second drain's batches")
    started.kill()
    known = json.loads((checkpoint / "metadata").read_text())["id"]

    for number in range(3):
        remove_lease(tmp_path / f"{number}")
    retry = Client(tmp_path, "-c", GROUP, bootstrap_servers, server.master, tmp_path, *topics)

    tell("group killed in mid-query", retry.seconds_until_it_says(f"query {known} {FOLLOWS}"))
    assert retry.end() == "{'p0': None, 'p1': True, 'p2': False}\n"
    for number in range(3):
        assert_exact(tmp_path / f"{number}", cluster)

"""The demo's broker, for real: it starts, keeps its data, and stops when it should."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from demo.broker import KafkaCluster
from kafka_drain.errors import ConfigError, MachineError

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


def make_topic(cluster: KafkaCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(30)


def produce(cluster: KafkaCluster, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume_one(cluster: KafkaCluster, topic: str) -> bytes | None:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "test",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def wait_until_ended(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("broker")) as started:
        yield started


def test_broker_produce_and_consume(cluster: KafkaCluster) -> None:
    """A broker on a free port accepts a record and returns it."""
    make_topic(cluster, "round-trip")
    produce(cluster, "round-trip", b"value")

    assert consume_one(cluster, "round-trip") == b"value"


def test_broker_killed_and_started_again(cluster: KafkaCluster) -> None:
    """A record acknowledged before a crash is there afterwards, at the same address."""
    make_topic(cluster, "crash")
    produce(cluster, "crash", b"kept")
    address = cluster.bootstrap_servers

    cluster.kill_node(1)
    assert cluster.running_nodes() == []
    cluster.start_node(1)

    assert address == cluster.bootstrap_servers
    assert consume_one(cluster, "crash") == b"kept"


def test_broker_started_twice(cluster: KafkaCluster) -> None:
    """A second start in the same folder is refused and doesn't affect the first."""
    with pytest.raises(MachineError, match="is already running"):
        KafkaCluster(cluster.folder).start()
    assert cluster.running_nodes() == [1]


def test_broker_port_taken(tmp_path: Path) -> None:
    """A port in use is refused before anything is written or started."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        with pytest.raises(MachineError, match=f"Port {port} on 127.0.0.1 is in use"):
            KafkaCluster(tmp_path / "broker", port=port).start()

    assert not (tmp_path / "broker").exists()


def test_broker_bad_property(tmp_path: Path) -> None:
    """A broker that can't start is reported with the end of its own output."""
    cluster = KafkaCluster(tmp_path, properties={"num.io.threads": "many"})

    with pytest.raises(MachineError, match=r"num\.io\.threads"):
        cluster.start()
    assert cluster.running_nodes() == []


def test_broker_other_number_of_nodes(cluster: KafkaCluster) -> None:
    """There is no node 0 or 2 in a cluster of one."""
    for node in (0, 2):
        with pytest.raises(ConfigError, match=f"no node {node}"):
            cluster.kill_node(node)


def test_broker_stopped_by_another_object(tmp_path: Path) -> None:
    """A cluster started here can be stopped through `attach`, and its process is gone."""
    cluster = KafkaCluster(tmp_path)
    cluster.start()
    try:
        pid = cluster.pid(1)
        assert pid is not None
        attached = KafkaCluster.attach(tmp_path)
        assert attached.running_nodes() == [1]
        assert cluster.bootstrap_servers == attached.bootstrap_servers

        attached.stop()
    finally:
        cluster.stop()

    assert wait_until_ended(pid, 1)
    assert attached.running_nodes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_broker_starter_ended(tmp_path: Path, number: signal.Signals) -> None:
    """A foreground broker stops with the process that started it, however that process ends."""
    code = (
        "import signal, sys, time; from pathlib import Path; from demo.broker import KafkaCluster\n"
        # As in a terminal: a shell starts background processes with SIGINT ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with KafkaCluster(Path(sys.argv[1])): print('up', flush=True); time.sleep(60)"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        pid = KafkaCluster.attach(tmp_path).pid(1)
        assert pid is not None
    finally:
        starter.send_signal(number)
        try:
            starter.communicate(timeout=30)
        finally:
            starter.kill()
            starter.communicate()

    assert wait_until_ended(pid, 20)


def test_command_line(tmp_path: Path) -> None:
    """`start` leaves a broker running that `status` sees and `stop` stops; errors are one line."""

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "demo.broker", command, "--folder", str(tmp_path / "broker")],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}"},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    before = run("stop")
    assert before.returncode == 1
    assert len(before.stderr.splitlines()) == 1
    try:
        started = run("start")
        assert started.returncode == 0, started.stderr
        status = run("status")
        assert status.returncode == 0
        assert f"node 1 {started.stdout.strip()} running" in status.stdout
    finally:
        stopped = run("stop")
    assert stopped.stdout == "stopped nodes [1]\n"
    assert run("status").returncode == 1

"""A real Apache Kafka in KRaft mode, on this machine only: for the demo, tests and benchmarks.

    python -m demo.broker start|stop|status --folder F [--port P] [--nodes N]

Everything a cluster has lies in its folder: data, logs, ports and the ids of its processes.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

from kafka_drain import jars
from kafka_drain.errors import ConfigError, KafkaDrainError, MachineError
from kafka_drain.java import require_java

__all__ = ["KafkaCluster", "main"]

_HOST = "127.0.0.1"
_STATE = "cluster.json"
_STARTED = b"Kafka Server started"
_MEBIBYTES_16 = str(16 * 1024 * 1024)
_POLL_SECONDS = 0.1
_LINES_OF_LOG = 15
# Ends a broker whose starter died without a chance to clean up: then `read` sees the pipe's end.
_WATCHER = (
    'read -r _; kill -TERM "$1" 2>/dev/null || exit 0; n=0; '
    'while [ $n -lt 15 ] && kill -0 "$1" 2>/dev/null; do sleep 1; n=$((n + 1)); done; '
    'kill -KILL "$1" 2>/dev/null'
)


@dataclass(frozen=True, slots=True)
class _State:
    """What has to be the same the next time that the cluster starts."""

    cluster_id: str
    broker_ports: tuple[int, ...]
    controller_ports: tuple[int, ...]
    fixed_port: bool


class KafkaCluster:
    """One or more Kafka nodes, each both broker and controller, listening on 127.0.0.1.

    As a context manager it starts on entry and stops on exit. Its processes also end when the
    Python process that started them dies, however it dies, unless `start(background=True)` has
    returned. The folder keeps the data, so a later `start()` goes on where the last one ended.

    Nodes are numbered from 1, as Kafka numbers them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        timeout: float = 120.0,
    ) -> None:
        """Describe a cluster; nothing is written or started yet.

        Args:
            folder: The cluster's own folder, made when it doesn't exist.
            nodes: How many nodes. Of three, any one may be down.
            port: The first node's port, the others' follow it; None takes free ports.
            properties: Broker properties that are added to, or replace, those chosen here.
            heap: The largest heap of each node, as Java's -Xmx takes it.
            timeout: How many seconds the nodes have for starting.

        Raises:
            ConfigError: When `nodes` or `port` is out of range.
        """
        if nodes < 1:
            raise ConfigError(f"A cluster needs at least 1 node, got {nodes}.")
        if port is not None and not 1 <= port <= 65536 - nodes:
            raise ConfigError(f"{nodes} ports from {port} on aren't all within 1 to 65535.")
        self.folder = Path(folder).absolute()
        self.nodes = nodes
        self.properties = dict(properties or {})
        self.heap = heap
        self.timeout = timeout
        self._port = port
        self._background = False
        self._state: _State | None = None
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._watchers: dict[int, subprocess.Popen[bytes]] = {}

    @classmethod
    def attach(cls, folder: Path, *, timeout: float = 120.0) -> KafkaCluster:
        """Return the cluster that another process has started in `folder`, running or not.

        A node that is started through it outlives this process.

        Raises:
            MachineError: When no cluster was ever started there.
        """
        state = _read_state(Path(folder).absolute())
        if state is None:
            raise MachineError(f"{folder} holds no Kafka cluster: {_STATE} isn't there.")
        settings = json.loads((Path(folder) / _STATE).read_text(encoding="utf-8"))
        cluster = cls(
            folder,
            nodes=len(state.broker_ports),
            port=state.broker_ports[0] if state.fixed_port else None,
            properties=settings["properties"],
            heap=settings["heap"],
            timeout=timeout,
        )
        cluster._state = state
        cluster._background = True
        return cluster

    @property
    def bootstrap_servers(self) -> str:
        """The nodes' addresses, as `bootstrap.servers` takes them.

        Raises:
            MachineError: When the cluster was never started.
        """
        return ",".join(f"{_HOST}:{port}" for port in self._known().broker_ports)

    def start(self, *, background: bool = False) -> None:
        """Start all nodes and wait until they answer as one cluster.

        Args:
            background: Let the nodes outlive this process.

        Raises:
            ConfigError: When the folder holds a cluster with another number of nodes.
            MachineError: When Java or the jars are missing, a port is taken, the cluster already
                runs, or a node doesn't come up in time; then nothing is left running.
        """
        if running := self.running_nodes():
            raise MachineError(
                f"The Kafka in {self.folder} already runs: nodes {running}. Stop it first."
            )
        java = str(require_java().path)
        class_path = os.pathsep.join(map(str, jars.fetch(jars.BROKER)))
        self._state = self._settle_ports()
        self._write_files(self._state)
        self._format(java, class_path, self._state)
        began = time.monotonic()
        try:
            seen = {node: self._spawn(node, java, class_path) for node in self._ids()}
            for node, offset in seen.items():
                self._await_log(node, offset, began)
            self._await_brokers(self._ids(), began)
        except BaseException:
            self.stop(grace=2.0)
            raise
        self._background = background
        if background:
            for node in self._ids():
                self._dismiss_watcher(node)

    def stop(self, *, grace: float = 10.0) -> None:
        """End all nodes and wait for their ends; one that outlasts `grace` seconds is killed.

        It ends nodes of another process too, by their process ids, and is quiet about nodes
        that don't run.
        """
        # All at once: the last of a quorum would wait minutes for controllers that are gone.
        self._end(self._ids(), signal.SIGTERM, grace)

    def start_node(self, node: int) -> None:
        """Start one node of a cluster that was started before, and wait until it answers.

        Raises:
            ConfigError: When the cluster has no such node.
            MachineError: When the node runs, its port is taken, or it doesn't come up in time.
        """
        self._check(node)
        state = self._known()
        if self._pid(node) is not None:
            raise MachineError(f"Node {node} of the Kafka in {self.folder} already runs.")
        _require_free([state.broker_ports[node - 1], state.controller_ports[node - 1]])
        java = str(require_java().path)
        class_path = os.pathsep.join(map(str, jars.fetch(jars.BROKER)))
        began = time.monotonic()
        try:
            self._await_log(node, self._spawn(node, java, class_path), began)
            self._await_brokers([node], began)
        except BaseException:
            self._end([node], signal.SIGTERM, 2.0)
            raise
        if self._background:
            self._dismiss_watcher(node)

    def stop_node(self, node: int, *, grace: float = 30.0) -> None:
        """Let one node hand over its partitions and end; after `grace` seconds it is killed.

        Raises:
            ConfigError: When the cluster has no such node.
        """
        self._check(node)
        self._end([node], signal.SIGTERM, grace)

    def kill_node(self, node: int) -> None:
        """End one node at once with SIGKILL, as a crash would.

        Raises:
            ConfigError: When the cluster has no such node.
        """
        self._check(node)
        self._end([node], signal.SIGKILL, 10.0)

    def running_nodes(self) -> list[int]:
        """Return the numbers of the nodes whose processes are alive."""
        return [node for node in self._ids() if self._pid(node) is not None]

    def pid(self, node: int) -> int | None:
        """Return the process id of a node, or None when it doesn't run.

        Raises:
            ConfigError: When the cluster has no such node.
        """
        self._check(node)
        return self._pid(node)

    def log_file(self, node: int) -> Path:
        """Return where a node's log is, whether or not it has written one."""
        return self._node_folder(node) / "server.log"

    def __enter__(self) -> KafkaCluster:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _ids(self) -> range:
        return range(1, self.nodes + 1)

    def _check(self, node: int) -> None:
        if node not in self._ids():
            raise ConfigError(f"There is no node {node}, the cluster has 1 to {self.nodes}.")

    def _node_folder(self, node: int) -> Path:
        return self.folder / f"node-{node}"

    def _properties_file(self, node: int) -> Path:
        return self._node_folder(node) / "server.properties"

    def _pid_file(self, node: int) -> Path:
        return self._node_folder(node) / "pid"

    def _known(self) -> _State:
        state = self._state or _read_state(self.folder)
        if state is None:
            raise MachineError(f"The Kafka in {self.folder} was never started. Start it first.")
        return state

    def _settle_ports(self) -> _State:
        """Keep the ports of the last start when they are free; refuse fixed ports that aren't."""
        fixed = self._port is not None
        wanted = tuple(range(self._port, self._port + self.nodes)) if self._port else ()
        _require_free(wanted)
        state = _read_state(self.folder)
        if state is None:
            free = _free_ports(2 * self.nodes, avoid=wanted)
            return _State(
                _new_cluster_id(), wanted or free[: self.nodes], free[self.nodes :], fixed
            )
        if len(state.broker_ports) != self.nodes:
            raise ConfigError(
                f"{self.folder} holds a cluster of {len(state.broker_ports)} nodes, got nodes="
                f"{self.nodes}. Give the same number, or another folder."
            )
        brokers = wanted or state.broker_ports
        if not _all_free([*brokers, *state.controller_ports]):
            free = _free_ports(2 * self.nodes, avoid=wanted)
            return replace(
                state,
                broker_ports=wanted or free[: self.nodes],
                controller_ports=free[self.nodes :],
                fixed_port=fixed,
            )
        return replace(state, broker_ports=brokers, fixed_port=fixed)

    def _write_files(self, state: _State) -> None:
        for node in self._ids():
            self._node_folder(node).mkdir(parents=True, exist_ok=True)
            lines = (f"{key}={value}" for key, value in self._server_properties(node, state))
            self._properties_file(node).write_text("\n".join(lines) + "\n", encoding="utf-8")
        content = {**asdict(state), "properties": self.properties, "heap": self.heap}
        beside = self.folder / f"{_STATE}.new"
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        beside.replace(self.folder / _STATE)

    def _server_properties(self, node: int, state: _State) -> Iterable[tuple[str, str]]:
        broker = f"PLAINTEXT://{_HOST}:{state.broker_ports[node - 1]}"
        voters = (f"{i}@{_HOST}:{state.controller_ports[i - 1]}" for i in self._ids())
        replicas = str(min(3, self.nodes))
        in_sync = str(max(1, min(3, self.nodes) - 1))
        chosen = {
            "node.id": str(node),
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"{broker},CONTROLLER://{_HOST}:{state.controller_ports[node - 1]}",
            "advertised.listeners": broker,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._node_folder(node) / "data"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
            # Records keep old event times here: with a limit Kafka would delete them at once.
            "log.retention.ms": "-1",
            "message.max.bytes": _MEBIBYTES_16,
            "replica.fetch.max.bytes": _MEBIBYTES_16,
            # The default is a quarter of the heap.
            "log.cleaner.dedupe.buffer.size": _MEBIBYTES_16,
        }
        return {**chosen, **self.properties}.items()

    def _format(self, java: str, class_path: str, state: _State) -> None:
        fresh = [
            node
            for node in self._ids()
            if not (self._node_folder(node) / "data" / "meta.properties").exists()
        ]
        command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "kafka.tools.StorageTool"]
        command += ["format", "-t", state.cluster_id, "-c"]
        runs = [
            subprocess.Popen(
                [*command, str(self._properties_file(node))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for node in fresh
        ]
        outputs: list[bytes] = []
        try:
            outputs = [run.communicate(timeout=self.timeout)[0] for run in runs]
        except subprocess.TimeoutExpired as error:
            raise MachineError(
                f"Kafka's storage tool didn't end within {self.timeout:.0f} s in {self.folder}."
            ) from error
        finally:
            for run in runs:
                if run.poll() is None:
                    run.kill()
                    run.communicate()
        for node, run, output in zip(fresh, runs, outputs, strict=True):
            if run.returncode != 0:
                raise MachineError(
                    f"Kafka's storage tool refused {self._properties_file(node)}:\n"
                    + _last_lines(output)
                )

    def _spawn(self, node: int, java: str, class_path: str) -> int:
        """Start a node's process; return the size its log had before."""
        log = self.log_file(node)
        offset = log.stat().st_size if log.exists() else 0
        command = [java, f"-Xmx{self.heap}", "-Djava.awt.headless=true"]
        command += ["-Dorg.slf4j.simpleLogger.showDateTime=true"]
        command += ["-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ"]
        command += ["-cp", class_path, "kafka.Kafka", str(self._properties_file(node))]
        with log.open("ab") as output:
            # A session of its own: Ctrl-C reaches Python alone, which then stops all nodes.
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children[node] = child
        self._watchers[node] = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHER, "kafka-watcher", str(child.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._pid_file(node).write_text(f"{child.pid}\n", encoding="utf-8")
        return offset

    def _await_log(self, node: int, offset: int, began: float) -> None:
        # The log first: a client that knocks on a closed port of the ephemeral range can be
        # given that very port for itself, and then the broker finds it taken.
        while _STARTED not in self._log_since(node, offset):
            if self._pid(node) is None:
                raise self._failure(node, offset, "ended while starting")
            self._check_time(node, offset, began)
            time.sleep(_POLL_SECONDS)

    def _await_brokers(self, expected: Iterable[int], began: float) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        missing = set(expected)
        node = min(missing)
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        while missing:
            self._check_time(node, 0, began)
            with contextlib.suppress(KafkaException):
                missing -= client.list_topics(timeout=2).brokers.keys()
            if missing:
                time.sleep(_POLL_SECONDS)

    def _check_time(self, node: int, offset: int, began: float) -> None:
        if time.monotonic() - began > self.timeout:
            raise self._failure(node, offset, f"didn't answer within {self.timeout:.0f} s")

    def _failure(self, node: int, offset: int, what: str) -> MachineError:
        return MachineError(
            f"Kafka node {node} {what}, see {self.log_file(node)}:\n"
            + _last_lines(self._log_since(node, offset))
        )

    def _log_since(self, node: int, offset: int) -> bytes:
        with self.log_file(node).open("rb") as log:
            log.seek(offset)
            return log.read()

    def _pid(self, node: int) -> int | None:
        child = self._children.get(node)
        if child is not None and child.poll() is None:
            return child.pid
        try:
            pid = int(self._pid_file(node).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        # After a reboot the number can be another program's.
        return pid if str(self._properties_file(node)) in _command_line(pid) else None

    def _end(self, nodes: Iterable[int], number: signal.Signals, grace: float) -> None:
        pids = {node: pid for node in nodes if (pid := self._pid(node)) is not None}
        for pid in pids.values():
            _send(pid, number)
        if not self._gone(pids, grace):
            for pid in pids.values():
                _send(pid, signal.SIGKILL)
            if not self._gone(pids, 10.0):
                raise MachineError(
                    f"Processes {list(pids.values())} of the Kafka in {self.folder} don't end."
                )
        for node in nodes:
            self._dismiss_watcher(node)
            self._children.pop(node, None)
            self._pid_file(node).unlink(missing_ok=True)

    def _gone(self, pids: dict[int, int], seconds: float) -> bool:
        """Wait until the processes have ended, and take those that have out of `pids`."""
        until = time.monotonic() + seconds
        while True:
            for node in [node for node in pids if self._pid(node) is None]:
                del pids[node]
            if not pids or time.monotonic() > until:
                return not pids
            time.sleep(_POLL_SECONDS)

    def _dismiss_watcher(self, node: int) -> None:
        watcher = self._watchers.pop(node, None)
        if watcher is not None:
            watcher.kill()
            watcher.communicate()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status, 1 for errors and for what doesn't run."""
    parser = argparse.ArgumentParser(prog="python -m demo.broker", description="A Kafka to try.")
    parser.add_argument("command", choices=["start", "stop", "status"])
    parser.add_argument("--folder", type=Path, required=True, help="the cluster's own folder")
    parser.add_argument("--port", type=int, help="the first node's port (default: free ports)")
    parser.add_argument("--nodes", type=int, help="how many nodes (default: 1)")
    given = parser.parse_args(arguments)
    try:
        if given.command == "start":
            return _start(given.folder, given.port, given.nodes)
        cluster = KafkaCluster.attach(given.folder)
        return _stop(cluster) if given.command == "stop" else _print_status(cluster)
    except KafkaDrainError as error:
        print(f"broker: {str(error).splitlines()[0]}", file=sys.stderr)
    except OSError as error:
        print(f"broker: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("broker: interrupted", file=sys.stderr)
    return 1


def _start(folder: Path, port: int | None, nodes: int | None) -> int:
    known = _read_state(folder.absolute())
    if nodes is None:
        nodes = len(known.broker_ports) if known else 1
    if port is None and known is not None and known.fixed_port:
        port = known.broker_ports[0]
    cluster = KafkaCluster(folder, nodes=nodes, port=port)
    cluster.start(background=True)
    print(cluster.bootstrap_servers)
    return 0


def _stop(cluster: KafkaCluster) -> int:
    running = cluster.running_nodes()
    cluster.stop()
    print(f"stopped nodes {running}" if running else "already stopped")
    return 0


def _print_status(cluster: KafkaCluster) -> int:
    running = cluster.running_nodes()
    for node, address in enumerate(cluster.bootstrap_servers.split(","), start=1):
        state = f"running as process {cluster.pid(node)}" if node in running else "stopped"
        print(f"node {node} {address} {state}")
    return 0 if len(running) == cluster.nodes else 1


def _read_state(folder: Path) -> _State | None:
    path = folder / _STATE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _State(
            str(content["cluster_id"]),
            tuple(content["broker_ports"]),
            tuple(content["controller_ports"]),
            bool(content["fixed_port"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise MachineError(
            f"{path} can't be read ({error}). Remove {folder} and start anew."
        ) from error


def _new_cluster_id() -> str:
    # Kafka's tools would take a leading dash for an option.
    while (new := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))[0] == "-":
        pass
    return new


def _free_ports(count: int, avoid: Sequence[int]) -> tuple[int, ...]:
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            # All stay bound until the last is found, so that none comes twice.
            listener = stack.enter_context(socket.socket())
            listener.bind((_HOST, 0))
            port = int(listener.getsockname()[1])
            if port not in avoid:
                ports.append(port)
    return tuple(ports)


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        # As Java does: without it, connections that have just ended would count as taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def _all_free(ports: Iterable[int]) -> bool:
    return all(_is_free(port) for port in ports)


def _require_free(ports: Iterable[int]) -> None:
    taken = [port for port in ports if not _is_free(port)]
    if taken:
        raise MachineError(
            f"Port {', '.join(map(str, taken))} on {_HOST} is taken by another program or not "
            "allowed, nothing was started. Stop that program, or choose another port."
        )


def _command_line(pid: int) -> str:
    """Return the arguments of a process; empty when it has ended."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            return ""
    run = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return run.stdout


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _last_lines(output: bytes) -> str:
    return "\n".join(output.decode(errors="replace").splitlines()[-_LINES_OF_LOG:])


if __name__ == "__main__":
    sys.exit(main())

"""A real Apache Kafka in KRaft mode on this machine, for the demo, tests and benchmarks.

A cluster keeps everything in its folder: data, logs, ports and process ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType

from demo.broker.ports import HOST, all_free, free_ports, require_free
from demo.broker.processes import command_line, last_lines, send
from demo.broker.state import (
    STATE_FILE,
    ClusterState,
    new_cluster_id,
    read_state,
    server_properties,
)
from kafka_drain.child_process import EndsWithParent
from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.java import require_java

__all__ = ["KafkaCluster", "jar_conf"]

_VARIABLE = "DEMO_KAFKA"

_STARTED = b"Kafka Server started"
_POLL_SECONDS = 0.1


def jar_conf(environment: Mapping[str, str]) -> str:
    """Return the name of the jars of the Kafka version in DEMO_KAFKA, or of the default version.

    Raises:
        ConfigError: If there are no jars for that version.
    """
    wanted = environment.get(_VARIABLE)
    if not wanted:
        return jars.BROKER
    if wanted not in jars.BROKERS:
        raise ConfigError(
            f"{_VARIABLE} is {wanted!r}; expected one of {', '.join(sorted(jars.BROKERS))}"
        )
    return jars.BROKERS[wanted]


class KafkaCluster:
    """One or more Kafka nodes, each both broker and controller, listening on 127.0.0.1.

    As a context manager it starts on entry and stops on exit. Its processes also end when the
    Python process that started them dies for any reason, unless `start(background=True)` has
    returned. The data stays in the folder, so a later `start()` continues with it. The environment
    variable DEMO_KAFKA chooses the version of Kafka.

    Nodes are numbered from 1, which are Kafka's node ids.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        java_options: Sequence[str] = (),
        timeout: float = 120.0,
        version: str | None = None,
        as_downloaded: bool = False,
    ) -> None:
        """Describe a cluster; nothing is written or started yet.

        Args:
            folder: The cluster's own folder, created if it doesn't exist.
            nodes: Number of nodes. With three, any one may be down.
            port: The first node's port; the other nodes use the following ports. None for free
                ports.
            properties: Broker properties that add to or override the defaults.
            heap: Maximum heap of each node, in the form of Java's -Xmx.
            java_options: Further Java options for each node.
            timeout: Time limit for the nodes to start, in seconds.
            version: Version of Kafka; None for the one in DEMO_KAFKA.
            as_downloaded: Whether Kafka's own settings are kept, except for addresses and folders:
                a week's retention, messages of 1 MiB, topics that clients create by naming them.

        Raises:
            ConfigError: If `nodes` or `port` is out of range.
        """
        if as_downloaded and nodes != 1:
            raise ConfigError(f"Kafka as downloaded is one node, got {nodes}.")
        if nodes < 1:
            raise ConfigError(f"A cluster needs at least 1 node, got {nodes}.")
        if port is not None and not 1 <= port <= 65536 - nodes:
            raise ConfigError(f"{nodes} ports starting at {port} aren't all within 1 to 65535.")
        self.folder = Path(folder).absolute()
        self.nodes = nodes
        self.properties = dict(properties or {})
        self.heap = heap
        self.java_options = tuple(java_options)
        self.timeout = timeout
        self.version = version
        self.as_downloaded = as_downloaded
        self._port = port
        self._background = False
        self._state: ClusterState | None = None
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._watchers: dict[int, EndsWithParent] = {}

    @classmethod
    def attach(cls, folder: Path, *, timeout: float = 120.0) -> KafkaCluster:
        """Return the cluster that another process started in `folder`, whether it runs or not.

        A node that is started through it outlives this process.

        Raises:
            MachineError: If no cluster was ever started there.
        """
        state = read_state(Path(folder).absolute())
        if state is None:
            raise MachineError(f"{folder} holds no Kafka cluster: {STATE_FILE} is missing.")
        settings = json.loads((Path(folder) / STATE_FILE).read_text(encoding="utf-8"))
        cluster = cls(
            folder,
            nodes=len(state.broker_ports),
            port=state.broker_ports[0] if state.fixed_port else None,
            properties=settings["properties"],
            heap=settings["heap"],
            java_options=settings.get("java_options", ()),
            timeout=timeout,
            version=settings.get("version"),
            as_downloaded=settings.get("as_downloaded", False),
        )
        cluster._state = state
        cluster._background = True
        return cluster

    @property
    def bootstrap_servers(self) -> str:
        """The nodes' addresses, in the form of `bootstrap.servers`.

        Raises:
            MachineError: If the cluster was never started.
        """
        return ",".join(f"{HOST}:{port}" for port in self._known().broker_ports)

    def start(self, *, background: bool = False) -> None:
        """Start all nodes and wait until they respond as one cluster.

        Args:
            background: Whether the nodes outlive this process.

        Raises:
            ConfigError: If the folder holds a cluster with a different number of nodes, or there
                are no jars for the version in DEMO_KAFKA.
            MachineError: If Java or the jars are missing, a port is in use, the cluster is already
                running, or a node doesn't come up in time; then nothing is left running.
        """
        if running := self.running_nodes():
            raise MachineError(
                f"The Kafka in {self.folder} is already running: nodes {running}. Stop it first."
            )
        java = str(require_java().path)
        class_path = os.pathsep.join(map(str, jars.fetch(self._jar_conf())))
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
        """Stop all nodes and wait for them to exit; kill any still alive after `grace` seconds.

        Also stops nodes that another process started, by their process ids, and ignores nodes that
        aren't running.
        """
        # All at once: the last node would wait minutes for controllers that have exited.
        self._end(self._ids(), signal.SIGTERM, grace)

    def start_node(self, node: int) -> None:
        """Start one node of a cluster that was started before, and wait until it responds.

        Raises:
            ConfigError: If the cluster has no such node.
            MachineError: If the node is running, its port is in use, or it doesn't come up in time.
        """
        self._check(node)
        state = self._known()
        if self._pid(node) is not None:
            raise MachineError(f"Node {node} of the Kafka in {self.folder} is already running.")
        require_free([state.broker_ports[node - 1], state.controller_ports[node - 1]])
        java = str(require_java().path)
        class_path = os.pathsep.join(map(str, jars.fetch(self._jar_conf())))
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
        """Stop one node in a controlled shutdown; kill it after `grace` seconds.

        Raises:
            ConfigError: If the cluster has no such node.
        """
        self._check(node)
        self._end([node], signal.SIGTERM, grace)

    def kill_node(self, node: int) -> None:
        """Kill one node with SIGKILL, as a crash would.

        Raises:
            ConfigError: If the cluster has no such node.
        """
        self._check(node)
        self._end([node], signal.SIGKILL, 10.0)

    def running_nodes(self) -> list[int]:
        """Return the numbers of the nodes whose processes are alive."""
        return [node for node in self._ids() if self._pid(node) is not None]

    def pid(self, node: int) -> int | None:
        """Return the process id of a node; None if it isn't running.

        Raises:
            ConfigError: If the cluster has no such node.
        """
        self._check(node)
        return self._pid(node)

    def log_file(self, node: int) -> Path:
        """Return the path of a node's log, whether or not it exists."""
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

    def _jar_conf(self) -> str:
        return jar_conf({_VARIABLE: self.version} if self.version else os.environ)

    def _ids(self) -> range:
        return range(1, self.nodes + 1)

    def _check(self, node: int) -> None:
        if node not in self._ids():
            raise ConfigError(f"There is no node {node}; the cluster has nodes 1 to {self.nodes}.")

    def _node_folder(self, node: int) -> Path:
        return self.folder / f"node-{node}"

    def _properties_file(self, node: int) -> Path:
        return self._node_folder(node) / "server.properties"

    def _pid_file(self, node: int) -> Path:
        return self._node_folder(node) / "pid"

    def _known(self) -> ClusterState:
        state = self._state or read_state(self.folder)
        if state is None:
            raise MachineError(f"The Kafka in {self.folder} was never started. Start it first.")
        return state

    def _settle_ports(self) -> ClusterState:
        """Keep the ports of the last start if they are free; refuse fixed ports that are in use."""
        fixed = self._port is not None
        wanted = tuple(range(self._port, self._port + self.nodes)) if self._port else ()
        require_free(wanted)
        state = read_state(self.folder)
        if state is None:
            free = free_ports(2 * self.nodes, avoid=wanted)
            return ClusterState(
                new_cluster_id(), wanted or free[: self.nodes], free[self.nodes :], fixed
            )
        if len(state.broker_ports) != self.nodes:
            raise ConfigError(
                f"{self.folder} holds a cluster of {len(state.broker_ports)} nodes, got nodes="
                f"{self.nodes}. Use the same number, or another folder."
            )
        brokers = wanted or state.broker_ports
        if not all_free([*brokers, *state.controller_ports]):
            free = free_ports(2 * self.nodes, avoid=wanted)
            return replace(
                state,
                broker_ports=wanted or free[: self.nodes],
                controller_ports=free[self.nodes :],
                fixed_port=fixed,
            )
        return replace(state, broker_ports=brokers, fixed_port=fixed)

    def _write_files(self, state: ClusterState) -> None:
        for node in self._ids():
            self._node_folder(node).mkdir(parents=True, exist_ok=True)
            data = self._node_folder(node) / "data"
            settled = server_properties(
                node, state, data, self.properties, as_downloaded=self.as_downloaded
            )
            lines = (f"{key}={value}\n" for key, value in settled.items())
            self._properties_file(node).write_text("".join(lines), encoding="utf-8")
        content = {
            **asdict(state),
            "properties": self.properties,
            "heap": self.heap,
            "java_options": self.java_options,
            "version": self.version,
            "as_downloaded": self.as_downloaded,
        }
        beside = self.folder / f"{STATE_FILE}.new"
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        beside.replace(self.folder / STATE_FILE)

    def _format(self, java: str, class_path: str, state: ClusterState) -> None:
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
                f"Kafka's storage tool didn't finish within {self.timeout:.0f} s in {self.folder}."
            ) from error
        finally:
            for run in runs:
                if run.poll() is None:
                    run.kill()
                    run.communicate()
        for node, run, output in zip(fresh, runs, outputs, strict=True):
            if run.returncode != 0:
                raise MachineError(
                    f"Kafka's storage tool rejected {self._properties_file(node)}:\n"
                    + last_lines(output)
                )

    def _spawn(self, node: int, java: str, class_path: str) -> int:
        """Start a node's process; return the previous size of its log."""
        log = self.log_file(node)
        offset = log.stat().st_size if log.exists() else 0
        command = [java, f"-Xmx{self.heap}", *self.java_options, "-Djava.awt.headless=true"]
        command += ["-Dorg.slf4j.simpleLogger.showDateTime=true"]
        command += ["-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ"]
        command += ["-cp", class_path, "kafka.Kafka", str(self._properties_file(node))]
        with log.open("ab") as output:
            # In its own session, so that Ctrl-C reaches only Python, which then stops all nodes.
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children[node] = child
        self._watchers[node] = EndsWithParent(child.pid)
        self._pid_file(node).write_text(f"{child.pid}\n", encoding="utf-8")
        return offset

    def _await_log(self, node: int, offset: int, began: float) -> None:
        # Wait for the log first: a client that connects to a closed port in the ephemeral range may
        # get that port as its own local port, and the broker then can't bind it.
        while _STARTED not in self._log_since(node, offset):
            if self._pid(node) is None:
                raise self._failure(node, offset, "exited during startup")
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
            raise self._failure(node, offset, f"didn't respond within {self.timeout:.0f} s")

    def _failure(self, node: int, offset: int, what: str) -> MachineError:
        return MachineError(
            f"Kafka node {node} {what}; see {self.log_file(node)}:\n"
            + last_lines(self._log_since(node, offset))
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
        # After a reboot, another program may have this process id.
        return pid if str(self._properties_file(node)) in command_line(pid) else None

    def _end(self, nodes: Iterable[int], number: signal.Signals, grace: float) -> None:
        pids = {node: pid for node in nodes if (pid := self._pid(node)) is not None}
        for pid in pids.values():
            send(pid, number)
        if not self._gone(pids, grace):
            for pid in pids.values():
                send(pid, signal.SIGKILL)
            if not self._gone(pids, 10.0):
                raise MachineError(
                    f"Processes {list(pids.values())} of the Kafka in {self.folder} don't stop."
                )
        for node in nodes:
            self._dismiss_watcher(node)
            self._children.pop(node, None)
            self._pid_file(node).unlink(missing_ok=True)

    def _gone(self, pids: dict[int, int], seconds: float) -> bool:
        """Wait until the processes have exited, and remove those that have from `pids`."""
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
            watcher.dismiss()

"""A cluster's persistent state: its id, its ports, and the properties of its nodes."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.broker.ports import HOST
from kafka_drain.errors import MachineError

__all__ = ["STATE_FILE", "ClusterState", "new_cluster_id", "read_state", "server_properties"]

STATE_FILE = "cluster.json"
_MEBIBYTES_16 = str(16 << 20)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The state that a cluster keeps across restarts."""

    cluster_id: str
    broker_ports: tuple[int, ...]
    controller_ports: tuple[int, ...]
    fixed_port: bool


def read_state(folder: Path) -> ClusterState | None:
    """Read the state of a running cluster; None if there is none."""
    path = folder / STATE_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return ClusterState(
            str(content["cluster_id"]),
            tuple(content["broker_ports"]),
            tuple(content["controller_ports"]),
            bool(content["fixed_port"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise MachineError(
            f"{path} can't be read ({error}). Remove {folder} and start again."
        ) from error


def new_cluster_id() -> str:
    """Return a random cluster id."""
    # Kafka's tools would parse a leading dash as an option.
    while (new := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))[0] == "-":
        pass
    return new


#: What Kafka's own config/server.properties sets for a node that is alone, besides addresses and
#: folders, and besides what is its default anyway.
_DOWNLOADED = {
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
}


def server_properties(
    node: int,
    state: ClusterState,
    log_dirs: Path,
    chosen: Mapping[str, str],
    *,
    as_downloaded: bool = False,
) -> dict[str, str]:
    """Return the broker properties of a node.

    Args:
        node: The node's number.
        state: The cluster's ports.
        log_dirs: The node's folder for logs.
        chosen: Properties that add to or override the others.
        as_downloaded: Whether Kafka's own settings are kept, except for addresses and folders.
    """
    nodes = len(state.broker_ports)
    broker = f"PLAINTEXT://{HOST}:{state.broker_ports[node - 1]}"
    voters = (f"{i}@{HOST}:{state.controller_ports[i - 1]}" for i in range(1, nodes + 1))
    replicas = str(min(3, nodes))
    in_sync = str(max(1, min(3, nodes) - 1))
    addresses = {
        "node.id": str(node),
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"{broker},CONTROLLER://{HOST}:{state.controller_ports[node - 1]}",
        "advertised.listeners": broker,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(log_dirs),
    }
    if as_downloaded:
        return {**addresses, **_DOWNLOADED, **chosen}
    settled = {
        **addresses,
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
        # Records have old event times: with a limit, Kafka would delete them immediately.
        "log.retention.ms": "-1",
        "message.max.bytes": _MEBIBYTES_16,
        "replica.fetch.max.bytes": _MEBIBYTES_16,
        # The default is a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": _MEBIBYTES_16,
    }
    return {**settled, **chosen}

"""`python -m demo.broker start|stop|status --folder F [--port P] [--nodes N]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from demo.broker.cluster import KafkaCluster
from demo.broker.state import read_state
from kafka_drain.errors import KafkaDrainError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status, 1 for errors and if a node isn't running."""
    parser = argparse.ArgumentParser(prog="python -m demo.broker", description="A local Kafka.")
    parser.add_argument("command", choices=["start", "stop", "status"])
    parser.add_argument("--folder", type=Path, required=True, help="the cluster's own folder")
    parser.add_argument("--port", type=int, help="the first node's port (default: a free port)")
    parser.add_argument("--nodes", type=int, help="number of nodes (default: 1)")
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
    known = read_state(folder.absolute())
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


if __name__ == "__main__":
    sys.exit(main())

"""A YARN with one node and an HDFS, from Hadoop's own jars, that end with this process."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from demo.broker.ports import free_ports
from kafka_drain.spark.submit import spark_home
from tests.faults.injection import wait_for
from tests.hdfs_cluster import asked, configure, jvm, settings_of, start_hdfs

#: Small enough for two cores, and Spark's jars from where they are.
CONF = {
    "spark.yarn.jars": f"local:{spark_home()}/jars/*",
    "spark.pyspark.python": sys.executable,
    "spark.executor.instances": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "600m",
    "spark.yarn.am.memory": "512m",
}

_FINISHED = ("FINISHED", "FAILED", "KILLED")


@dataclass
class YarnCluster:
    """A running cluster.

    Attributes:
        folder: Holds its configuration in `conf`, its logs and its data.
        address: Where the ResourceManager's REST API is.
        hdfs: The HDFS's address.
    """

    folder: Path
    address: str
    hdfs: str

    @property
    def conf(self) -> Path:
        """The folder for `HADOOP_CONF_DIR`."""
        return self.folder / "conf"

    def applications(self) -> list[dict[str, str]]:
        """Return what the ResourceManager says of all applications, the oldest first."""
        found = asked(f"{self.address}/ws/v1/cluster/apps")
        return sorted((found["apps"] or {}).get("app", []), key=lambda one: str(one["id"]))

    def application(self, id_: str) -> dict[str, str]:
        """Return what the ResourceManager says of one application."""
        return next(one for one in self.applications() if one["id"] == id_)

    def is_quiet(self) -> bool:
        """Return whether every application has ended."""
        return all(one["state"] in _FINISHED for one in self.applications())

    def said(self) -> str:
        """Return the ends of the logs of all containers."""
        logs = sorted((self.folder / "logs").rglob("std*"))
        return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-6000:]}" for log in logs)

    def processes(self) -> list[int]:
        """Return the ids of the containers' processes."""
        return [pid for pid in _processes() if _is_of(pid, self.folder)]


@contextlib.contextmanager
def yarn_cluster(folder: Path) -> Iterator[YarnCluster]:
    """Start a ResourceManager, a NodeManager and an HDFS; no process is left at the end."""
    ports = free_ports(6, ())
    settings = _settings(folder, *ports)
    configure(folder, settings)
    cluster = YarnCluster(folder, f"http://127.0.0.1:{ports[0]}", f"hdfs://127.0.0.1:{ports[4]}")
    with contextlib.ExitStack() as stack:
        # The web applications of two YARN services get in each other's way in one JVM.
        for name, start in (("hdfs", _start_hdfs), ("rm", _start_manager), ("nm", _start_node)):
            java = stack.enter_context(jvm(folder, name))
            try:
                for stop in start(java):
                    stack.callback(stop)
            except Py4JError as error:
                # Its text is Java's to say.
                raise RuntimeError(str(error)) from None
        wait_for(lambda: _nodes(cluster) == 1, "the node", patience=60)
        try:
            yield cluster
        finally:
            for pid in cluster.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _settings(folder: Path, *ports: int) -> Mapping[str, Mapping[str, object]]:
    web, client, tracker, scheduler, hdfs, hdfs_web = ports
    return {
        **settings_of(folder, hdfs, hdfs_web),
        "yarn-site.xml": {
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.resourcemanager.webapp.address": f"127.0.0.1:{web}",
            "yarn.resourcemanager.address": f"127.0.0.1:{client}",
            "yarn.resourcemanager.resource-tracker.address": f"127.0.0.1:{tracker}",
            "yarn.resourcemanager.scheduler.address": f"127.0.0.1:{scheduler}",
            "yarn.resourcemanager.admin.address": "127.0.0.1:0",
            # What a killed cluster leaves behind ends soon.
            "yarn.resourcemanager.connect.max-wait.ms": 10_000,
            "yarn.scheduler.minimum-allocation-mb": 128,
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": 100,
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
            "yarn.nodemanager.address": "127.0.0.1:0",
            "yarn.nodemanager.localizer.address": "127.0.0.1:0",
            "yarn.nodemanager.collector-service.address": "127.0.0.1:0",
            "yarn.nodemanager.webapp.address": "127.0.0.1:0",
            "yarn.nodemanager.local-dirs": folder / "local",
            "yarn.nodemanager.log-dirs": folder / "logs",
            "yarn.nodemanager.resource.memory-mb": 6144,
            "yarn.nodemanager.resource.cpu-vcores": 8,
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            # It looks once all the same, and wouldn't use a disk that is fuller.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            # The logs of containers are what a failed test shows.
            "yarn.nodemanager.delete.debug-delay-sec": 3600,
        },
    }


def _start_hdfs(jvm: Any) -> list[Any]:
    names, data = start_hdfs(jvm)
    return [data.shutdown, names.stop]


def _start_manager(jvm: Any) -> list[Any]:
    return _started(jvm, jvm.org.apache.hadoop.yarn.server.resourcemanager.ResourceManager())


def _start_node(jvm: Any) -> list[Any]:
    return _started(jvm, jvm.org.apache.hadoop.yarn.server.nodemanager.NodeManager())


def _started(jvm: Any, service: Any) -> list[Any]:
    service.init(jvm.org.apache.hadoop.yarn.conf.YarnConfiguration())
    service.start()
    return [service.stop]


def _nodes(cluster: YarnCluster) -> int:
    return int(asked(f"{cluster.address}/ws/v1/cluster/metrics")["clusterMetrics"]["activeNodes"])


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _is_of(pid: int, folder: Path) -> bool:
    """Return whether a process runs in a container's folder."""
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder / "local")
    except OSError:
        return False

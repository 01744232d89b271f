"""An HDFS with one node, and what a Java server of Hadoop's needs, from Hadoop's own jars."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from demo.broker.ports import free_ports
from kafka_drain.spark.jars import fetch as jar_files
from kafka_drain.spark.submit import spark_home
from tests.brokers import SHORT_LIVED
from tests.faults.injection import wait_for

__all__ = ["Hdfs", "asked", "configure", "hdfs_cluster", "jvm", "settings_of", "start_hdfs"]

#: Guice 4 opens what Java 17 has closed.
_JAVA_OPTIONS = ("-Xmx512m", "--add-opens=java.base/java.lang=ALL-UNNAMED", *SHORT_LIVED)
_LOG = """
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c: %m%n
"""


@dataclass
class Hdfs:
    """A running HDFS.

    Attributes:
        folder: Holds its configuration in `conf`, and its data.
        address: Its URL.
        web: Where its NameNode answers over HTTP.
        jvm: The Java that it runs in.
        data_node: The only one.
        name_node: The only one.
    """

    folder: Path
    address: str
    web: str
    jvm: Any
    data_node: Any
    name_node: Any

    @property
    def conf(self) -> Path:
        """The folder for `HADOOP_CONF_DIR`."""
        return self.folder / "conf"

    def is_ready(self) -> bool:
        """Return whether it has left safe mode and has a DataNode."""
        system = self.name_node.getNamesystem()
        return not system.isInSafeMode() and system.getNumLiveDataNodes() == 1

    def enter_safe_mode(self) -> None:
        """Have it refuse all writes."""
        self.name_node.getNamesystem().enterSafeMode(False)

    def leave_safe_mode(self) -> None:
        """Have it take writes again."""
        self.name_node.getNamesystem().leaveSafeMode(True)

    def stop_data_node(self) -> None:
        """Stop the DataNode; what is written stays on its disk."""
        self.data_node.shutdown()

    def start_data_node(self) -> None:
        """Start the DataNode again."""
        self.data_node = _data_node(self.jvm)
        wait_for(self.is_ready, "the DataNode", patience=60)


@contextlib.contextmanager
def hdfs_cluster(folder: Path) -> Iterator[Hdfs]:
    """Start a NameNode and a DataNode in one JVM, with WebHDFS, which is on by default."""
    rpc, web, *of_data = free_ports(5, ())
    configure(folder, settings_of(folder, rpc, web, *of_data))
    with jvm(folder, "hdfs") as java:
        try:
            name_node, data_node = start_hdfs(java)
        except Py4JError as error:
            # Its text is Java's to say.
            raise RuntimeError(str(error)) from None
        address, site = f"hdfs://127.0.0.1:{rpc}", f"http://127.0.0.1:{web}"
        hdfs = Hdfs(folder, address, site, java, data_node, name_node)
        wait_for(hdfs.is_ready, "the DataNode", patience=60)
        try:
            yield hdfs
        finally:
            hdfs.data_node.shutdown()
            name_node.stop()
            # Later, py4j would ask a JVM that is gone to forget them, or whoever has its port then.
            hdfs.data_node = hdfs.name_node = None
            del data_node, name_node
            gc.collect()


def settings_of(folder: Path, rpc: int, web: int, *of_data: int) -> dict[str, dict[str, object]]:
    """Return the configuration of an HDFS with a NameNode at two ports, and a DataNode.

    A DataNode that is to be started again needs three ports of its own.
    """
    data, data_web, data_rpc = of_data or (0, 0, 0)
    return {
        "core-site.xml": {
            "fs.defaultFS": f"hdfs://127.0.0.1:{rpc}",
            "hadoop.tmp.dir": folder / "tmp",
        },
        "hdfs-site.xml": {
            "dfs.replication": 1,
            "dfs.namenode.http-address": f"127.0.0.1:{web}",
            "dfs.datanode.address": f"127.0.0.1:{data}",
            "dfs.datanode.http.address": f"127.0.0.1:{data_web}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{data_rpc}",
            # A DataNode that was stopped is noticed within seconds.
            "dfs.heartbeat.interval": 1,
            "dfs.namenode.heartbeat.recheck-interval": 1000,
        },
    }


def configure(folder: Path, settings: Mapping[str, Mapping[str, object]]) -> None:
    """Write the configuration, and what the class path needs beside it."""
    conf = folder / "conf"
    for name in ("hdfs", "datanode"):
        # On the class path; the servers' pages aren't in their jars.
        (conf / "webapps" / name).mkdir(parents=True)
    for name, properties in settings.items():
        (conf / name).write_text(_xml(properties))
    (conf / "log4j.properties").write_text(_LOG)


def _xml(properties: Mapping[str, object]) -> str:
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n"
        for name, value in properties.items()
    )
    return f"<configuration>\n{rows}</configuration>\n"


@contextlib.contextmanager
def jvm(folder: Path, name: str) -> Iterator[Any]:
    """Start a Java that ends with this process, however that ends."""
    jars = [*jar_files.fetch(jar_files.HADOOP), *(spark_home() / "jars").glob("py4j-*.jar")]
    path = os.pathsep.join([str(folder / "conf"), *map(str, jars)])
    work = folder / name
    work.mkdir()
    with (
        (folder / f"{name}.log").open("wb") as log,
        subprocess.Popen(
            [
                "java",
                *_JAVA_OPTIONS,
                "-cp",
                path,
                "py4j.GatewayServer",
                "--die-on-broken-pipe",
                "0",
            ],
            cwd=work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # Ctrl-C ends pytest first, and then this.
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(process.stdout.readline())
        Thread(target=log.writelines, args=(process.stdout,), daemon=True).start()
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            yield gateway.jvm
        finally:
            gateway.close()
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def start_hdfs(jvm: Any) -> tuple[Any, Any]:
    """Format and start a NameNode, and a DataNode; returns both."""
    # Two servers in one JVM.
    jvm.org.apache.hadoop.metrics2.lib.DefaultMetricsSystem.setMiniClusterMode(True)
    server = jvm.org.apache.hadoop.hdfs.server
    server.namenode.NameNode.format(jvm.org.apache.hadoop.hdfs.HdfsConfiguration())
    names = server.namenode.NameNode(jvm.org.apache.hadoop.hdfs.HdfsConfiguration())
    return names, _data_node(jvm)


def _data_node(jvm: Any) -> Any:
    conf = jvm.org.apache.hadoop.hdfs.HdfsConfiguration()
    return jvm.org.apache.hadoop.hdfs.server.datanode.DataNode.createDataNode(None, conf)


def asked(url: str) -> Any:
    """Return the JSON document at a URL."""
    with urlopen(url, timeout=30) as response:
        return json.load(response)

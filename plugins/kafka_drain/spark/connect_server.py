"""Run a Spark Connect server that suits kafka-drain's jobs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version

from kafka_drain.child_process import EndsWithParent
from kafka_drain.config.checks import refuse
from kafka_drain.config.spark_conf import AVRO_LIMITS, DEFAULTS, FIXED, add_java_options
from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.output import say
from kafka_drain.spark import java
from kafka_drain.spark.cds import archive_name, find_class_archive, sharing_options
from kafka_drain.spark.connect import DEFAULT_PORT, ConnectAddress
from kafka_drain.spark.stores import store_jars
from kafka_drain.spark.submit import (
    IN_CLIENT,
    connector_jars,
    java_options_elsewhere,
    site_conf,
    spark_environment,
    spark_home,
    without_connect,
)

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

#: Time that a server has to start, and to end.
_START_SECONDS = 120.0
_LAST_SECONDS = 20.0


@dataclass(frozen=True)
class ServerOptions:
    """The options for starting a server.

    Attributes:
        host: The address that it listens on.
        master: The Spark master of its tasks.
        memory: Heap size of its driver, for example `2g`.
        conf: Further Spark configuration; overrides kafka-drain's, except what archives need.
        jars: Further jars.
        with_store: Whether it opens object stores.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    master: str = "local[*]"
    memory: str = "2g"
    conf: Mapping[str, str] = field(default_factory=dict)
    jars: Sequence[str] = ()
    with_store: bool = False

    @property
    def address(self) -> ConnectAddress:
        """Where a client on this machine finds it."""
        every = self.host in ("0.0.0.0", "::")
        return ConnectAddress("127.0.0.1" if every else self.host, self.port)


def server_command(
    options: ServerOptions, java_options: Sequence[str], connector: Sequence[str], elsewhere: str
) -> list[str]:
    """Return spark-submit's command line for a server.

    Args:
        java_options: Java options for its driver.
        connector: The jars of Spark's Kafka connector.
        elsewhere: Java options that reach the driver by other means.
    """
    conf = {
        **DEFAULTS,
        **options.conf,
        **FIXED,
        "spark.connect.grpc.binding.address": options.host,
        "spark.connect.grpc.binding.port": str(options.port),
        # The next port would be no server to clients.
        "spark.connect.grpc.port.maxRetries": "0",
    }
    class_path = [*connector, *filter(None, [conf.get("spark.driver.extraClassPath")])]
    conf["spark.driver.extraClassPath"] = os.pathsep.join(class_path)
    add_java_options(conf, java_options, elsewhere, AVRO_LIMITS)
    given = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return [
        "spark-submit",
        *("--master", options.master, *IN_CLIENT, "--name", "kafka_drain", *given),
        *("--driver-memory", options.memory),
        *("--jars", ",".join([*connector, *options.jars])),
        *("--class", _CLASS, "spark-internal"),
    ]


def run_server(options: ServerOptions, ready: Callable[[], None] = lambda: None) -> int:
    """Run a server until it ends; return its exit code. It ends with this process, however it does.

    Args:
        ready: Called when it accepts connections.

    Raises:
        ConfigError: When its port is in use.
        MachineError: When Java, pyspark or a jar is missing, or the server doesn't start.
    """
    machine_java = java.require_java()
    if not (spark_home() / "jars").is_dir():
        raise MachineError("only pyspark-client is installed; a server needs pyspark itself")
    connector = connector_jars(is_needed=True)
    jars = [*options.jars, *(store_jars("s3://") if options.with_store else ())]
    require_free(options)
    archive = find_class_archive(archive_name(machine_java, spark_home(), connector))
    conf = {**site_conf(os.environ), **options.conf}
    command = server_command(
        replace(options, jars=jars, conf=conf),
        sharing_options(archive),
        connector,
        java_options_elsewhere(os.environ),
    )
    environment = {**without_connect(os.environ), **spark_environment(machine_java, os.environ)}
    if options.master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    began = time.monotonic()
    with subprocess.Popen(command, env=environment, stdout=sys.stderr) as process:
        try:
            watcher = EndsWithParent(process.pid)
        except BaseException:
            _end(process)
            raise
        try:
            while not _accepts(options.address):
                if process.poll() is not None:
                    raise MachineError(
                        f"the Spark Connect server ended with exit code {process.returncode} "
                        "before it was ready; its log above has the reason"
                    )
                if time.monotonic() - began > _START_SECONDS:
                    raise MachineError(
                        f"the Spark Connect server didn't listen on port {options.port} within "
                        f"{_START_SECONDS:.0f} seconds"
                    )
                time.sleep(0.1)
            say(
                f"Spark {version('pyspark')} listens on {options.host}:{options.port}, ready after "
                f"{time.monotonic() - began:.1f} s; use --master {options.address}"
            )
            ready()
            return process.wait()
        finally:
            _end(process)
            watcher.dismiss()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def require_free(options: ServerOptions) -> None:
    """Require that nothing listens on a server's port yet.

    Raises:
        ConfigError: When something does, or the address isn't this machine's, or there is no such
            port.
    """
    if not 0 < options.port < 65_536:
        raise refuse("port", options.port, "1 to 65535")
    with socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((options.host, options.port))
        except OSError as error:
            raise ConfigError(
                f"{options.host}:{options.port} can't be used: {error.strerror}; choose another "
                "--host or --port, or stop the server that listens there"
            ) from error


def _accepts(address: ConnectAddress) -> bool:
    try:
        socket.create_connection((address.host, address.port), 1).close()
    except OSError:
        return False
    return True

"""Where Spark applications and their drivers run, by master and deploy mode. Opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from kafka_drain.errors import ConfigError
from kafka_drain.spark.connect import is_connect

#: Why a master has no cluster mode, by the start of its name.
_NO_CLUSTER_MODE = {
    "local": "the driver of a local master runs in the spark-submit process; leave it out",
    "spark:": "standalone clusters don't run Python applications so; leave it out",
    "sc:": "a Spark Connect server is the driver; leave it out",
}


class DriverPlace(Enum):
    """Where the driver of an application runs."""

    #: In a child process of this one: spark-submit in client mode.
    HERE = "client"
    #: In the cluster: spark-submit in cluster mode.
    CLUSTER = "cluster"
    #: In a Spark Connect server.
    SERVER = "connect"


def place_of(master: str, deploy_mode: str = "client") -> DriverPlace:
    """Return the place of the driver of applications on a master."""
    if is_connect(master):
        return DriverPlace.SERVER
    return DriverPlace.CLUSTER if deploy_mode == "cluster" else DriverPlace.HERE


def is_kubernetes(master: str) -> bool:
    """Return whether a master is a Kubernetes API server."""
    return master.startswith("k8s:")


def check_deploy_mode(master: str, deploy_mode: str) -> None:
    """Refuse a deploy mode that a master doesn't have, or that kafka-drain doesn't offer there.

    Raises:
        ConfigError: When it isn't `client`, or `cluster` on YARN or Kubernetes.
    """
    has_cluster_mode = master == "yarn" or is_kubernetes(master)
    if deploy_mode == "client" or (deploy_mode == "cluster" and has_cluster_mode):
        return
    accepted = "accepted: client, and on YARN and Kubernetes, cluster"
    why = next(
        (text for start, text in _NO_CLUSTER_MODE.items() if master.startswith(start)), accepted
    )
    if deploy_mode != "cluster":
        why = accepted
    raise ConfigError(f"deploy mode {deploy_mode!r} isn't possible with the master {master}: {why}")


@dataclass(frozen=True)
class SparkConnection:
    """Where applications run, and with which credentials.

    Attributes:
        master: The Spark master.
        options: Further options of spark-submit, such as `--queue`.
        binary: Name or path of the spark-submit program.
        keytab: Content of a Kerberos keytab; empty for none.
        token: Token for a Spark Connect server; empty for none.
        deploy_mode: Deploy mode of spark-submit: `client` or `cluster`.

    Raises:
        ConfigError: When the master has no such deploy mode.
    """

    master: str
    options: Sequence[str] = ()
    binary: str = "spark-submit"
    keytab: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    deploy_mode: str = "client"

    def __post_init__(self) -> None:
        check_deploy_mode(self.master, self.deploy_mode)

    @property
    def place(self) -> DriverPlace:
        """Where the driver runs."""
        return place_of(self.master, self.deploy_mode)

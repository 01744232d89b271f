"""Where drivers run."""

from __future__ import annotations

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.spark.place import DriverPlace, check_deploy_mode, place_of


@pytest.mark.parametrize(
    ("master", "mode", "place"),
    [
        ("local[*]", "client", DriverPlace.HERE),
        ("spark://h:7077", "client", DriverPlace.HERE),
        ("yarn", "client", DriverPlace.HERE),
        ("k8s://https://h:443", "client", DriverPlace.HERE),
        ("k8s://https://h:443", "cluster", DriverPlace.CLUSTER),
        ("yarn", "cluster", DriverPlace.CLUSTER),
        ("sc://h:15002", "client", DriverPlace.SERVER),
    ],
)
def test_place_of_accepted(master: str, mode: str, place: DriverPlace) -> None:
    """A master and a deploy mode say where the driver runs."""
    check_deploy_mode(master, mode)

    assert place_of(master, mode) is place


@pytest.mark.parametrize(
    ("master", "mode", "says"),
    [
        ("local[2]", "cluster", "runs in the spark-submit process"),
        ("spark://h:7077", "cluster", "standalone clusters don't run Python"),
        ("sc://h:15002", "cluster", "a Spark Connect server is the driver"),
        ("mesos://h", "cluster", "accepted: client, and on YARN and Kubernetes, cluster"),
        ("yarn", "Cluster", "accepted: client, and on YARN and Kubernetes, cluster"),
        ("local[2]", "", "accepted: client"),
    ],
)
def test_check_deploy_mode_refused(master: str, mode: str, says: str) -> None:
    """Other combinations are refused, with the reason."""
    with pytest.raises(ConfigError, match=f"deploy mode '{mode}' isn't possible .*{says}"):
        check_deploy_mode(master, mode)

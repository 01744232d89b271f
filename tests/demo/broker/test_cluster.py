"""Which Kafka a local cluster runs."""

from __future__ import annotations

import pytest

from demo.broker.cluster import jar_conf
from kafka_drain.errors import ConfigError


@pytest.mark.parametrize(
    ("environment", "conf"),
    [
        ({}, "broker"),
        ({"DEMO_KAFKA": ""}, "broker"),
        ({"DEMO_KAFKA": "4.0.0"}, "broker-kafka40"),
        ({"DEMO_KAFKA": "4.1.0"}, "broker"),
        ({"DEMO_KAFKA": "4.4.0"}, "broker-kafka44"),
    ],
)
def test_jar_conf(environment: dict[str, str], conf: str) -> None:
    """Each version has jars of its own."""
    assert jar_conf(environment) == conf


@pytest.mark.parametrize("wanted", ["4.4", "3.9.1", "latest"])
def test_jar_conf_not_locked(wanted: str) -> None:
    """Another version isn't replaced by one that there are jars for."""
    with pytest.raises(ConfigError, match=r"DEMO_KAFKA is .*; expected one of 4\.0\.0, 4\.1\.0, "):
        jar_conf({"DEMO_KAFKA": wanted})

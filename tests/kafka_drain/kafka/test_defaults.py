"""Kafka's defaults, and what a topic inherits from brokers."""

from __future__ import annotations

import pytest

from kafka_drain.kafka.defaults import DEFAULTS, inherited_from


@pytest.mark.parametrize(
    ("told", "inherited"),
    [
        ({}, {}),
        ({"broker.id": "1"}, {"retention.ms": DEFAULTS["retention.ms"]}),
        ({"log.retention.hours": "1"}, {"retention.ms": "3600000"}),
        # The first of the three counts.
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, {"retention.ms": "120000"}),
        (
            {
                "log.retention.ms": "5",
                "log.cleanup.policy": "compact",
                "message.max.bytes": "9",
                "min.insync.replicas": "2",
                "unclean.leader.election.enable": "true",
            },
            {
                "retention.ms": "5",
                "cleanup.policy": "compact",
                "max.message.bytes": "9",
                "min.insync.replicas": "2",
                "unclean.leader.election.enable": "true",
            },
        ),
    ],
)
def test_inherited_from(told: dict[str, str], inherited: dict[str, str]) -> None:
    """Brokers have other names and units for topics' settings; what isn't told isn't known."""
    assert inherited_from(told) == inherited

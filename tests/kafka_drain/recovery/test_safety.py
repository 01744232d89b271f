"""Which changes lower safety: a table of settings, and of ACLs."""

from __future__ import annotations

import pytest

from kafka_drain.kafka.cluster_state import Acl
from kafka_drain.recovery.safety import lowered_by, opened_by


@pytest.mark.parametrize(
    ("name", "now", "then", "lowers"),
    [
        ("retention.ms", "-1", "604800000", True),
        ("retention.ms", "604800000", "-1", False),
        ("retention.ms", "1000", "999", True),
        ("retention.ms", "999", "1000", False),
        ("retention.ms", "-1", "-1", False),
        ("retention.ms", None, "1", False),
        ("retention.bytes", "-1", "1", True),
        ("retention.bytes", "2", "-1", False),
        ("min.insync.replicas", "2", "1", True),
        ("min.insync.replicas", "1", "2", False),
        ("max.message.bytes", "10", "9", True),
        ("max.message.bytes", "9", "10", False),
        ("delete.retention.ms", "10", "9", True),
        ("unclean.leader.election.enable", "false", "true", True),
        ("unclean.leader.election.enable", "true", "false", False),
        ("cleanup.policy", "delete", "compact", True),
        ("cleanup.policy", "compact", "delete", True),
        ("cleanup.policy", "delete", "compact,delete", True),
        ("cleanup.policy", "compact, delete", "delete", False),
        ("cleanup.policy", "delete,compact", "compact,delete", False),
        ("compression.type", "zstd", "producer", False),
        ("segment.bytes", "10", "9", False),
    ],
)
def test_lowered_by(name: str, now: str | None, then: str, lowers: bool) -> None:
    """A change is told from its inverse; what can't be judged, or is the same, lowers nothing."""
    assert bool(lowered_by(name, now, then)) == lowers


@pytest.mark.parametrize("permission", ["allow", "deny"])
@pytest.mark.parametrize("principal", ["User:a", "User:*"])
@pytest.mark.parametrize(
    ("resource", "operation", "is_wide"),
    [
        ("topic", "read", False),
        ("topic", "all", False),
        ("group", "read", False),
        ("cluster", "describe", False),
        ("cluster", "alter", True),
        ("cluster", "all", True),
        ("cluster", "cluster_action", True),
    ],
)
def test_opened_by(
    permission: str, principal: str, resource: str, operation: str, is_wide: bool
) -> None:
    """Access for everybody, and to the whole cluster, is never given without being told."""
    acl = Acl(resource, "name", "literal", principal, "*", operation, permission)
    expected = permission == "allow" and (is_wide or principal == "User:*")

    assert bool(opened_by(acl)) == expected

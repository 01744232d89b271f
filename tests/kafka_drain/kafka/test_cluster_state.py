"""What a cluster's answers come to, as values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_drain.kafka.cluster_state import ASKED, UNAVAILABLE_PARTS, Acl, Part, TopicState

READ = Acl("topic", "orders", "literal", "User:a", "*", "read", "allow")


@pytest.mark.parametrize(
    ("resource", "name", "pattern", "expected"),
    [
        ("topic", "orders", "literal", True),
        ("topic", "other", "literal", False),
        ("topic", "ord", "literal", False),
        ("topic", "ord", "prefixed", True),
        ("topic", "orders", "prefixed", True),
        ("topic", "orders2", "prefixed", False),
        ("topic", "*", "literal", True),
        ("group", "billing", "literal", True),
        ("group", "orders", "literal", False),
        ("group", "bill", "prefixed", True),
        ("group", "*", "literal", True),
        ("cluster", "kafka-cluster", "literal", True),
        ("transactional_id", "*", "literal", False),
    ],
)
def test_acl_is_about(resource: str, name: str, pattern: str, expected: bool) -> None:
    """An ACL matters if it names a topic or a group of the pipeline, or the cluster."""
    acl = replace(READ, resource=resource, name=name, pattern=pattern)

    assert acl.is_about(["orders"], ["billing"]) == expected


def test_acl_is_about_one_of_some() -> None:
    """An ACL on a prefix is about the topics if it fits one of them."""
    assert replace(READ, name="ord", pattern="prefixed").is_about(["billing", "orders"], [])


def test_acl_in_words() -> None:
    """A prefix is told from a name, and what is denied from what is allowed."""
    assert str(READ) == "allow User:a from * to read topic orders"
    prefixed = replace(READ, pattern="prefixed", permission="deny", host="10.0.0.1")
    assert str(prefixed) == "deny User:a from 10.0.0.1 to read topic orders*"


def test_topic_state_effective() -> None:
    """What is set on the topic wins over what its brokers set."""
    state = TopicState("t", "id", 1, 1, {"a": "own", "b": "own"}, {"b": "inherited", "c": "its"})

    assert state.effective == {"a": "own", "b": "own", "c": "its"}


def test_acl_is_about_nothing() -> None:
    """A rule for all groups matters only if there is a group."""
    assert not replace(READ, resource="group", name="*").is_about(["orders"], [])


def test_parts_are_asked_or_explained() -> None:
    """For each part there is a request, or a sentence on what to do without one."""
    assert set(ASKED) | UNAVAILABLE_PARTS.keys() == set(Part)
    assert not set(ASKED) & UNAVAILABLE_PARTS.keys()

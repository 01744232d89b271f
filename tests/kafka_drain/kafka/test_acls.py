"""What Kafka doesn't allow is named, with the command that allows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, combinations

import pytest
from confluent_kafka.admin import TopicDescription

from kafka_drain.errors import AuthorizationError
from kafka_drain.kafka.acls import DRAINED, TARGET, missing_acls, require_access
from kafka_drain.kafka.client_config import KafkaConfig
from tests.tables import each_of

CONFIG = KafkaConfig({"bootstrap.servers": "k:9092", "sasl.username": "O'Hara"})


def test_require_access_allowed() -> None:
    """Whoever may do more than is needed passes."""
    require_access(CONFIG, "a", {*DRAINED, "ALTER"}, DRAINED)
    require_access(CONFIG, "b", set(DRAINED), DRAINED)


def test_require_access_missing() -> None:
    """Topic and operations are named, and the command can be pasted into a shell."""
    with pytest.raises(AuthorizationError) as raised:
        require_access(CONFIG, "b", {"DESCRIBE"}, DRAINED)

    assert str(raised.value) == (
        "user O'Hara may not READ and DESCRIBE_CONFIGS on topic b; add the ACLs: kafka-acls.sh "
        "--bootstrap-server k:9092 --add --allow-principal 'User:O'\"'\"'Hara' "
        "--operation Read --operation DescribeConfigs --topic b"
    )


def test_require_access_without_name() -> None:
    """A user who came with a certificate has a name that only Kafka knows."""
    config = KafkaConfig({"bootstrap.servers": "k:9092"})

    with pytest.raises(AuthorizationError, match=re.escape("this user may not READ on topic t")):
        require_access(config, "t", {"DESCRIBE"}, ["READ"])


def test_require_access_describe_implied() -> None:
    """Describe isn't asked for beside Read, which allows it."""
    with pytest.raises(AuthorizationError, match=r"may not READ and DESCRIBE_CONFIGS on topic t"):
        require_access(CONFIG, "t", set(), DRAINED)


def subsets(operations: Sequence[str]) -> list[tuple[str, ...]]:
    """Return all subsets, in the operations' order."""
    sizes = range(len(operations) + 1)
    return list(chain.from_iterable(combinations(operations, size) for size in sizes))


@each_of(
    "needed, allowed",
    [(needed, allowed) for needed in (DRAINED, TARGET) for allowed in subsets(needed)],
)
def test_require_access_some(needed: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    """Whoever may do some of it is told exactly what lacks; describing comes with Read or Write."""
    lacks = [operation for operation in needed if operation not in allowed]
    if not lacks:
        require_access(CONFIG, "t", allowed, needed)
        return
    if "READ" in lacks or "WRITE" in lacks:
        lacks = [operation for operation in lacks if operation != "DESCRIBE"]

    with pytest.raises(AuthorizationError) as raised:
        require_access(CONFIG, "t", allowed, needed)

    told = str(raised.value)
    assert f"may not {' and '.join(lacks)} on topic t; add the ACL{'s' * (len(lacks) > 1)}:" in told
    added = [option.split()[0] for option in told.split("--operation ")[1:]]
    assert [name.replace("Configs", "_Configs").upper() for name in added] == lacks


@pytest.mark.parametrize("told", [None, []])
def test_require_access_untold(told: list[object] | None) -> None:
    """Where a broker doesn't tell what is allowed, the requests themselves will show it."""
    description = TopicDescription("t", None, False, [], authorized_operations=told)
    assert description.authorized_operations is None

    require_access(CONFIG, "t", description.authorized_operations, DRAINED)


def test_missing_acls_secured() -> None:
    """The command can be pasted: its addresses are quoted, and it has the login's settings."""
    config = KafkaConfig({"bootstrap.servers": "k1:1, k2:2", "security.protocol": "SSL"})

    said = str(missing_acls(config, "t", ["READ"]))

    assert "--bootstrap-server 'k1:1, k2:2'" in said
    assert said.endswith(' --command-config "${CLIENT_PROPERTIES:?}"')

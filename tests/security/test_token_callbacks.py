"""SASL/OAUTHBEARER by a Python function of the connection: every client of ours logs in by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import AuthenticationError, ConfigError, KafkaUnavailableError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import ConsumerGroups
from kafka_drain.kafka.records import read_records
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.gap_probe import GROUP
from kafka_drain.republish.planning.shards import PREFIX, ProgressSlot
from kafka_drain.republish.sending.producer import fenced_producer
from kafka_drain.republish.sending.progress_store import ProgressStore, ShardProgress, entry
from tests.faults.injection import wait_for
from tests.security import token_callbacks
from tests.security.acls import Acls
from tests.security.conftest import PASSWORD
from tests.security.secured_kafka import SecuredKafka

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def tokens(secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell the callbacks, in this process and its children, where tokens come from."""
    monkeypatch.setenv("TOKENS_URL", secured.tokens.url)
    monkeypatch.setenv("TOKENS_USER", "user")
    monkeypatch.setenv("TOKENS_PASSWORD", PASSWORD)


def by(callback: str, secured: SecuredKafka, **settings: Any) -> KafkaConfig:
    """Return a connection whose tokens come from a function of token_callbacks.py."""
    path = f"{token_callbacks.__name__}.{callback}"
    given = secured.settings("SASL_SSL", sasl_mechanism="OAUTHBEARER", **settings)
    return KafkaConfig({**given, "oauth_cb": path})


def test_callback_reads(secured: SecuredKafka, public_topic: str, acls: Acls) -> None:
    """What checks and reads logs in by the function: admin client, consumers, a group's reader."""
    config = by("token", secured)
    tp = TopicPartition(public_topic, 0)
    for group in (GROUP, "readers"):
        acls.allow("user", "GROUP", group, "READ")

    assert KafkaCluster(config).latest([tp], "read_committed") == {tp: 3}
    batches = list(read_records(config, tp, OffsetRange(0, 3), "read_committed"))
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [
        b"0",
        b"1",
        b"2",
    ]
    assert ConsumerGroups(config).committed("readers", [tp]) == {}


def test_callback_sends(secured: SecuredKafka, public_topic: str, acls: Acls) -> None:
    """A transaction, and the progress in it, are sent and read by the function's tokens."""
    config = by("token", secured)
    group = f"{PREFIX}callbacks"
    for kind, name, operation in (
        ("TOPIC", public_topic, "WRITE"),
        ("TRANSACTIONAL_ID", f"{PREFIX}*", "WRITE"),
        ("GROUP", f"{PREFIX}*", "READ"),
    ):
        acls.allow("user", kind, name, operation)
    slot = ProgressSlot(group, TopicPartition(public_topic, 0))
    progress = ShardProgress(0, 0, "plan")
    settings = config.for_librdkafka()

    producer = fenced_producer(settings, f"{PREFIX}callbacks-0", public_topic, 30.0)
    store = ProgressStore(settings)
    producer.begin_transaction()
    # Only the progress: other tests count this topic's records.
    producer.send_offsets_to_transaction([entry(slot, progress)], store.group_metadata(group), 30)
    producer.commit_transaction(30)
    found = store.read([slot])
    store.close()

    assert found == {slot: progress}


def test_callback_another_process(secured: SecuredKafka) -> None:
    """Settings travel to another process as JSON; the function is imported there."""
    settings = json.dumps(by("token", secured).for_librdkafka())
    path = os.pathsep.join([str(ROOT), str(ROOT / "plugins")])
    code = (
        "import json, sys; from kafka_drain.kafka.client_config import KafkaConfig; "
        "from kafka_drain.kafka.cluster import KafkaCluster; "
        "print(KafkaCluster(KafkaConfig(json.load(sys.stdin))).cluster_id())"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code],
        input=settings,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )

    assert ended.stdout.strip() == KafkaCluster(by("token", secured)).cluster_id()


def test_callback_renewed(secured: SecuredKafka, public_topic: str) -> None:
    """A long read outlives its token: the client asks for the next one by itself."""
    token_callbacks.asked.clear()
    cluster = KafkaCluster(by("short_lived_token", secured))
    tp = TopicPartition(public_topic, 0)

    def asks_again() -> bool:
        assert cluster.latest([tp], "read_committed") == {tp: 3}
        return len(token_callbacks.asked) >= 3

    wait_for(asks_again, "a third token", patience=60)


def test_callback_refusing(secured: SecuredKafka) -> None:
    """A function that fails is told with its reason, before a client is made."""
    with pytest.raises(KafkaUnavailableError, match="raised RuntimeError: the vault is closed"):
        KafkaCluster(by("refusing", secured), timeout_seconds=3).cluster_id()


@pytest.mark.parametrize("callback", ["unsigned", "damaged"])
def test_callback_forged(
    callback: str, secured: SecuredKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """A token that the broker doesn't accept is a login that fails; it isn't shown."""
    with pytest.raises(AuthenticationError, match="rejects the credentials") as raised:
        KafkaCluster(by(callback, secured), timeout_seconds=3).cluster_id()

    assert "eyJ" not in str(raised.value) + caplog.text


def test_callback_spark(secured: SecuredKafka) -> None:
    """Spark can't call it, and says so before it starts."""
    with pytest.raises(ConfigError, match="a token that a Python function returns, has no count"):
        by("token", secured).for_java()


def test_unsecured(secured: SecuredKafka) -> None:
    """Librdkafka's unsigned tokens are made without a function; this broker wants signed ones."""
    config = KafkaConfig(
        secured.settings("SASL_SSL", sasl_mechanism="OAUTHBEARER")
        | {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=user",
        }
    )

    with pytest.raises(AuthenticationError, match=r"correct sasl\.oauthbearer\.config"):
        KafkaCluster(config, timeout_seconds=3).cluster_id()

"""The settings of one Airflow connection open Kafka to both clients: librdkafka and Java's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Observation, functions

from kafka_drain.errors import AuthenticationError, KafkaUnavailableError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_changes import ClusterChanges
from kafka_drain.kafka.consumer_groups import ConsumerGroups
from kafka_drain.offsets import TopicPartition
from tests.security.conftest import PASSWORD
from tests.security.secured_kafka import SecuredKafka

pytestmark = pytest.mark.integration


def plaintext(secured: SecuredKafka) -> dict[str, Any]:
    return secured.settings("PLAINTEXT")


def tls(secured: SecuredKafka) -> dict[str, Any]:
    return secured.settings("SSL")


def authority_as_text(secured: SecuredKafka) -> dict[str, Any]:
    settings = secured.settings("SSL", ssl_ca_pem=secured.certificates.authority.read_text())
    del settings["ssl.ca.location"]
    return settings


def mutual_tls(secured: SecuredKafka) -> dict[str, Any]:
    client = secured.certificates.sign("client")
    return secured.settings(
        "SSL",
        ssl_certificate_location=str(client.certificate),
        ssl_key_location=str(client.key),
    )


def mutual_tls_as_text(secured: SecuredKafka) -> dict[str, Any]:
    client = secured.certificates.sign("text-client")
    return secured.settings(
        "SSL",
        ssl_certificate_pem=client.certificate.read_text(),
        ssl_key_pem=client.key.read_text(),
    )


def mutual_tls_keystore(secured: SecuredKafka) -> dict[str, Any]:
    return secured.settings(
        "SSL",
        ssl_keystore_location=str(secured.certificates.keystore("store-client", PASSWORD)),
        ssl_keystore_password=PASSWORD,
    )


def plain(secured: SecuredKafka) -> dict[str, Any]:
    return secured.settings(
        "SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="user", sasl_password=PASSWORD
    )


def plain_tls(secured: SecuredKafka) -> dict[str, Any]:
    return secured.settings(
        "SASL_SSL", sasl_mechanisms="PLAIN", sasl_username="user", sasl_password=PASSWORD
    )


def scram_256(secured: SecuredKafka) -> dict[str, Any]:
    return secured.scram("scram-256", 'with "quotes" and \\', "SCRAM-SHA-256")


def scram_512(secured: SecuredKafka) -> dict[str, Any]:
    return secured.scram("scram-512", PASSWORD)


def oauth(secured: SecuredKafka) -> dict[str, Any]:
    return secured.settings("SASL_SSL", sasl_mechanism="OAUTHBEARER") | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "user",
        "sasl.oauthbearer.client.secret": PASSWORD,
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.token.endpoint.url": secured.tokens.url,
    }


@pytest.mark.parametrize(
    "login",
    [
        plaintext,
        tls,
        authority_as_text,
        mutual_tls,
        mutual_tls_as_text,
        mutual_tls_keystore,
        plain,
        plain_tls,
        scram_256,
        scram_512,
        oauth,
    ],
)
def test_login(
    login: Callable[[SecuredKafka], dict[str, Any]],
    secured: SecuredKafka,
    public_topic: str,
    spark: Any,
) -> None:
    """Both clients get in and read the same records."""
    config = KafkaConfig(login(secured))
    partition = TopicPartition(public_topic, 0)

    ends = KafkaCluster(config).latest([partition], "read_committed")
    visible, secret = config.for_java()
    options = {f"kafka.{name}": value for name, value in (visible | secret).items()}
    seen = Observation()
    records = spark.read.format("kafka").options(subscribe=public_topic, **options).load()
    value = functions.col("value").cast("string")
    counted = (functions.count(value), functions.min(value), functions.max(value))
    # Not `collect`: it leaves a socket behind.
    records.observe(seen, *counted).write.format("noop").mode("overwrite").save()

    assert ends == {partition: 3}
    assert list(seen.get.values()) == [3, "0", "2"]


@pytest.mark.parametrize(
    "change",
    [
        {"sasl.password": "wrong"},
        {"sasl.username": "nobody"},
        {"sasl.mechanism": "SCRAM-SHA-256"},
    ],
    ids=lambda change: "-".join(*change.items()),
)
def test_login_refused(change: dict[str, str], secured: SecuredKafka) -> None:
    """A refused login isn't taken for a broker that is away, and no password is shown."""
    settings = secured.scram("known", PASSWORD) | change

    with pytest.raises(
        AuthenticationError, match=r"rejects the credentials: .*correct sasl"
    ) as raised:
        KafkaCluster(KafkaConfig(settings), timeout_seconds=3).cluster_id()

    assert PASSWORD not in str(raised.value)
    assert "wrong" not in str(raised.value)


@pytest.mark.parametrize(
    "ask",
    [
        lambda cluster, groups: groups.describe("g"),
        lambda cluster, groups: groups.committed("g", [TopicPartition("t", 0)]),
        lambda cluster, groups: ClusterChanges(cluster).set_topic_config(
            "t", {"retention.ms": "-1"}
        ),
    ],
    ids=["describe", "committed", "set_topic_config"],
)
def test_login_refused_everywhere(
    ask: Callable[[KafkaCluster, ConsumerGroups], object], secured: SecuredKafka
) -> None:
    """Whatever is asked first, a refused login is told apart."""
    config = KafkaConfig(secured.scram("known", PASSWORD) | {"sasl.password": "wrong"})

    with pytest.raises(AuthenticationError, match=r"rejects the credentials: .*correct sasl"):
        ask(KafkaCluster(config, 3), ConsumerGroups(config, 3))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"ssl.ca.location": None}, "TLS with Kafka .* failed: .*certificate verify failed"),
        (
            {"security.protocol": "SASL_PLAINTEXT"},
            "no response from Kafka.* speaks TLS; set security.protocol to SASL_SSL",
        ),
    ],
    ids=["authority", "protocol"],
)
def test_tls_refused(change: dict[str, Any], match: str, secured: SecuredKafka) -> None:
    """Without TLS there is no answer, and it is said what to look at."""
    changed = secured.scram("known", PASSWORD) | change
    settings = {name: value for name, value in changed.items() if value is not None}

    with pytest.raises(KafkaUnavailableError, match=match):
        KafkaCluster(KafkaConfig(settings), timeout_seconds=3).cluster_id()

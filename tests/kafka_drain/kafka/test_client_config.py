"""A Kafka connection's settings: checked, translated for Java, and never shown."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.kafka.client_config import KafkaConfig

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def config(**settings: Any) -> KafkaConfig:
    """Make a config; underscores in names stand for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return KafkaConfig({"bootstrap.servers": "k1:9092,k2:9092"} | named)


def sasl(mechanism: str = "PLAIN", username: str = "me", password: str = "hunter2") -> KafkaConfig:
    return config(
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_username=username,
        sasl_password=password,
    )


# what is accepted


def test_kafka_config_servers_alone() -> None:
    """The servers are enough."""
    settings = {"bootstrap.servers": "k1:9092,k2:9092"}

    assert config().bootstrap_servers == "k1:9092,k2:9092"
    assert settings == config().for_librdkafka()
    assert (settings, {}) == config().for_java()


@pytest.mark.parametrize("settings", [{}, {"bootstrap.servers": ""}, {"client.id": "x"}])
def test_kafka_config_without_servers(settings: dict[str, str]) -> None:
    """Without servers the message says where they belong."""
    with pytest.raises(ConfigError, match=r"no bootstrap\.servers; add it to the connection's"):
        KafkaConfig(settings)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sasl.pasword", "sasl.password"),
        ("ssl.key.passwd", "ssl.key.password"),
        ("bootstrap.server", "bootstrap.servers"),
        ("security.protocl", "security.protocol"),
    ],
)
def test_kafka_config_misspelt(name: str, meant: str) -> None:
    """A misspelt setting gets the right name; its value, maybe a secret, is never shown."""
    with pytest.raises(ConfigError) as raised:
        KafkaConfig({"bootstrap.servers": "k:1", name: "hunter2"})

    assert repr(name) in str(raised.value)
    assert f"did you mean {meant!r}?" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["plugin.library.paths", "ssl.engine.location", "transactional.id", "log_level", "zzz"]
)
def test_kafka_config_not_allowed(name: str) -> None:
    """What isn't on the list isn't passed on: some settings load libraries."""
    with pytest.raises(ConfigError, match=re.escape(repr(name))):
        KafkaConfig({"bootstrap.servers": "k:1", name: "x"})


@pytest.mark.parametrize(
    "name", ["group.id", "auto.offset.reset", "enable.auto.commit", "acks", "linger.ms"]
)
def test_kafka_config_ignored(name: str) -> None:
    """What other users of the connection need is left out on both sides."""
    made = KafkaConfig({"bootstrap.servers": "k:1", name: "x"})

    assert made.for_librdkafka() == {"bootstrap.servers": "k:1"}
    assert made.for_java() == ({"bootstrap.servers": "k:1"}, {})


def test_kafka_config_for_librdkafka() -> None:
    """Librdkafka gets its own words as they are, and numbers as numbers."""
    made = config(sasl_mechanism="PLAIN", socket_timeout_ms=5000, debug="broker")

    assert made.for_librdkafka() == {
        "bootstrap.servers": "k1:9092,k2:9092",
        "sasl.mechanism": "PLAIN",
        "socket.timeout.ms": 5000,
        "debug": "broker",
    }


# secrets


@pytest.mark.parametrize("show", [repr, str, "{}".format])
def test_kafka_config_repr(show: Any) -> None:
    """A config shows its servers and nothing else."""
    assert show(sasl()) == "KafkaConfig(k1:9092,k2:9092)"


def test_for_java_split() -> None:
    """Whatever holds a secret is apart from the harmless settings."""
    made = config(
        security_protocol="SASL_SSL",
        sasl_mechanisms="SCRAM-SHA-512",
        sasl_username="me",
        sasl_password="s-password",
        ssl_key_password="s-key",
        ssl_keystore_location="/etc/me.p12",
        ssl_keystore_password="s-store",
        client_id="drain",
    )

    plain, secret = made.for_java()

    assert plain == {
        "bootstrap.servers": "k1:9092,k2:9092",
        "security.protocol": "SASL_SSL",
        "client.id": "drain",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "/etc/me.p12",
    }
    assert {
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="me" password="s-password";',
        "ssl.key.password": "s-key",
        "ssl.keystore.password": "s-store",
    } == secret


# SASL


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", PLAIN_MODULE), ("SCRAM-SHA-256", SCRAM_MODULE), ("SCRAM-SHA-512", SCRAM_MODULE)],
)
@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_for_java_sasl(key: str, mechanism: str, module: str) -> None:
    """User and password become a JAAS line of the mechanism's own module."""
    made = KafkaConfig(
        {
            "bootstrap.servers": "k:1",
            key: mechanism,
            "sasl.username": "me",
            "sasl.password": "hunter2",
        }
    )

    plain, secret = made.for_java()

    assert {"bootstrap.servers": "k:1", "sasl.mechanism": mechanism} == plain
    assert {"sasl.jaas.config": f'{module} required username="me" password="hunter2";'} == secret


@pytest.mark.parametrize(
    ("password", "written"),
    [
        ('a"b', r'"a\"b"'),
        ("a\\b", r'"a\\b"'),
        ('\\"', r'"\\\""'),
        ("a b;c='d'", "\"a b;c='d'\""),
        ("", '""'),
        ("trailing\\", r'"trailing\\"'),
    ],
)
def test_for_java_sasl_quoting(password: str, written: str) -> None:
    """Quotes and backslashes can't end the value early."""
    _, secret = sasl(password=password).for_java()
    _, named = sasl(username=password).for_java()

    assert secret["sasl.jaas.config"] == (
        f'{PLAIN_MODULE} required username="me" password={written};'
    )
    assert named["sasl.jaas.config"] == (
        f'{PLAIN_MODULE} required username={written} password="hunter2";'
    )


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain"])
def test_for_java_sasl_unknown(mechanism: str) -> None:
    """A mechanism without a translation is refused with those that have one."""
    with pytest.raises(ConfigError) as raised:
        sasl(mechanism).for_java()

    assert str(raised.value) == (
        f"sasl.mechanism = {mechanism!r} is not acceptable; "
        "accepted: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
    )
    assert "hunter2" not in str(raised.value)


OIDC = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "drain",
    "sasl.oauthbearer.client.secret": "hunter2",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
}


def test_for_java_oauth() -> None:
    """A login by OpenID Connect becomes the Java client's; the secret stays apart."""
    more = {"sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "pool=a, cluster=b"}
    made = KafkaConfig({"bootstrap.servers": "k:1"} | OIDC | more)

    plain, secret = made.for_java()

    package = "org.apache.kafka.common.security.oauthbearer"
    assert plain == {
        "bootstrap.servers": "k:1",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    }
    assert {
        "sasl.jaas.config": f'{package}.OAuthBearerLoginModule required clientId="drain" '
        'clientSecret="hunter2" scope="kafka" extension_pool="a" extension_cluster="b";'
    } == secret


@pytest.mark.parametrize(
    ("without", "match"),
    [
        ("sasl.oauthbearer.method", "method = 'oidc' \\(found 'default'\\)"),
        ("sasl.oauthbearer.client.secret", r"missing: sasl\.oauthbearer\.client\.secret$"),
        ("sasl.oauthbearer.token.endpoint.url", r"missing: sasl\.oauthbearer\.token\.endp"),
    ],
)
def test_for_java_oauth_incomplete(without: str, match: str) -> None:
    """What a login by OpenID Connect lacks is named."""
    settings = {name: value for name, value in OIDC.items() if name != without}

    with pytest.raises(ConfigError, match=match) as raised:
        KafkaConfig({"bootstrap.servers": "k:1"} | settings).for_java()

    assert "hunter2" not in str(raised.value)


# SSL


def test_for_java_truststore() -> None:
    """A CA file becomes a PEM truststore."""
    plain, secret = config(security_protocol="SSL", ssl_ca_location="/etc/ca.pem").for_java()

    assert plain == {
        "bootstrap.servers": "k1:9092,k2:9092",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca.pem",
    }
    assert secret == {}


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl_ca_pem": "-----BEGIN CERTIFICATE-----"},
        {"ssl_certificate_location": "/etc/me.pem", "ssl_key_location": "/etc/me.key"},
        {"ssl_certificate_pem": "-----BEGIN", "ssl_key_pem": "-----BEGIN"},
    ],
    ids=["ca", "files", "text"],
)
def test_for_java_ssl_not_dropped(settings: dict[str, str]) -> None:
    """What librdkafka needs to connect is translated or refused, never left out in silence."""
    made = config(security_protocol="SSL", **settings)
    try:
        plain, secret = made.for_java()
    except ConfigError:
        return

    assert len(plain) + len(secret) > len(config(security_protocol="SSL").for_java()[0])


def test_for_java_no_hostname_check() -> None:
    """Librdkafka's `none` is the Java client's empty text."""
    plain, _ = config(
        security_protocol="SSL", ssl_endpoint_identification_algorithm="none"
    ).for_java()

    assert plain["ssl.endpoint.identification.algorithm"] == ""

"""Settings of a Kafka connection: checked in librdkafka's terms, and translated to the Java client.

Airflow's Kafka connection holds librdkafka configuration; Spark needs the Java client's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_drain.config.checks import unknown
from kafka_drain.errors import ConfigError

# Keys for the cluster's address and the client's identity that are the same in both clients.
_SAME = (
    "bootstrap.servers",
    "security.protocol",
    "client.id",
    "ssl.endpoint.identification.algorithm",
)
_SECRET = (
    "sasl.password",
    "sasl.oauthbearer.client.secret",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
)
_LIBRDKAFKA_ONLY = (
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.token.endpoint.url",
    "https.ca.location",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.keystore.location",
    "socket.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "broker.address.family",
    "debug",
)
_ACCEPTED = (*_SAME, *_SECRET, *_LIBRDKAFKA_ONLY)
# Keys that users keep in the same connection for their own consumers and producers.
_IGNORED = ("group.id", "auto.offset.reset", "enable.auto.commit", "acks", "linger.ms")

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OAUTH = "OAUTHBEARER"
_OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"


def _mechanism(settings: Mapping[str, Any]) -> str:
    """Return the SASL mechanism; librdkafka has two names for the setting."""
    return str(settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "")


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _pem(settings: Mapping[str, str], name: str) -> str:
    """Return a PEM text, given to librdkafka as text or as a file; empty if neither is set."""
    if f"{name}.location" not in settings:
        return settings.get(f"{name}.pem", "")
    try:
        return Path(settings[f"{name}.location"]).read_text()
    except OSError as error:
        raise ConfigError(
            f"{name}.location = {settings[f'{name}.location']!r} can't be read: {error.strerror}"
        ) from error


@dataclass(frozen=True)
class KafkaConfig:
    """Connection settings of a Kafka cluster. The `repr` shows no secrets.

    Raises:
        ConfigError: When a key or the mechanism isn't accepted, or bootstrap.servers is missing.
    """

    settings: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        for name in self.settings:
            if name not in _ACCEPTED and name not in _IGNORED:
                # Not shown, because it may be a secret whose name is misspelt.
                raise unknown(name, "hidden", _ACCEPTED, "setting of a Kafka connection")
        mechanism = _mechanism(self.settings)
        if mechanism and mechanism not in (*_LOGIN_MODULES, _OAUTH):
            raise ConfigError(
                f"sasl.mechanism = {mechanism!r} is not acceptable; "
                f"accepted: {', '.join([*_LOGIN_MODULES, _OAUTH])}"
            )
        if not self.settings.get("bootstrap.servers"):
            raise ConfigError(
                "the Kafka connection has no bootstrap.servers; add it to the connection's "
                'extra: {"bootstrap.servers": "host:9092"}'
            )

    def __repr__(self) -> str:
        return f"KafkaConfig({self.bootstrap_servers})"

    @property
    def bootstrap_servers(self) -> str:
        """Comma-separated `host:port` of the bootstrap brokers."""
        return str(self.settings["bootstrap.servers"])

    def for_librdkafka(self) -> dict[str, Any]:
        """Return the settings for confluent-kafka's clients."""
        return {name: value for name, value in self.settings.items() if name in _ACCEPTED}

    def for_java(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the settings for the Java client: the public ones, and the secret ones.

        Raises:
            ConfigError: When a mechanism has no translation, or a file can't be read.
        """
        settings = {name: str(value) for name, value in self.for_librdkafka().items()}
        plain = {name: settings[name] for name in _SAME if name in settings}
        if plain.get("ssl.endpoint.identification.algorithm") == "none":
            # The Java client disables host name verification with an empty value.
            plain["ssl.endpoint.identification.algorithm"] = ""
        logged_in, login_secret = _login_for_java(settings)
        trusted, key_secret = _tls_for_java(settings)
        return plain | logged_in | trusted, login_secret | key_secret


def _login_for_java(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Translate the SASL settings."""
    mechanism = _mechanism(settings)
    if not mechanism:
        return {}, {}
    if mechanism == _OAUTH:
        return _oauth_for_java(settings)
    named = {
        "username": settings.get("sasl.username", ""),
        "password": settings.get("sasl.password", ""),
    }
    jaas = _jaas(_LOGIN_MODULES[mechanism], named)
    return {"sasl.mechanism": mechanism}, {"sasl.jaas.config": jaas}


def _oauth_for_java(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Translate a login with OpenID Connect client credentials (KIP-768)."""
    prefix = "sasl.oauthbearer"
    method = settings.get(f"{prefix}.method", "default")
    needed = [f"{prefix}.{name}" for name in ("client.id", "client.secret", "token.endpoint.url")]
    missing = [name for name in needed if not settings.get(name)]
    if method.lower() != "oidc" or missing:
        raise ConfigError(
            f"sasl.mechanism = {_OAUTH!r} needs {prefix}.method = 'oidc' (found {method!r}) and "
            f"{', '.join(needed)}" + (f"; missing: {', '.join(missing)}" if missing else "")
        )
    named = {
        "clientId": settings[f"{prefix}.client.id"],
        "clientSecret": settings[f"{prefix}.client.secret"],
    }
    if scope := settings.get(f"{prefix}.scope"):
        named["scope"] = scope
    for pair in filter(None, settings.get(f"{prefix}.extensions", "").split(",")):
        name, _, value = pair.partition("=")
        named[f"extension_{name.strip()}"] = value.strip()
    visible = {
        "sasl.mechanism": _OAUTH,
        "sasl.login.callback.handler.class": f"{_OAUTH_PACKAGE}.OAuthBearerLoginCallbackHandler",
        f"{prefix}.token.endpoint.url": settings[f"{prefix}.token.endpoint.url"],
    }
    jaas = _jaas(f"{_OAUTH_PACKAGE}.OAuthBearerLoginModule", named)
    return visible, {"sasl.jaas.config": jaas}


def _jaas(module: str, options: Mapping[str, str]) -> str:
    written = " ".join(f"{name}={_quoted(value)}" for name, value in options.items())
    return f"{module} required {written};"


def _tls_for_java(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Translate the trusted certificates and the client certificate."""
    plain: dict[str, str] = {}
    if "ssl.ca.location" in settings:
        plain["ssl.truststore.type"] = "PEM"
        plain["ssl.truststore.location"] = settings["ssl.ca.location"]
    elif "ssl.ca.pem" in settings:
        plain["ssl.truststore.type"] = "PEM"
        plain["ssl.truststore.certificates"] = settings["ssl.ca.pem"]
    secret = {
        name: settings[name]
        for name in ("ssl.key.password", "ssl.keystore.password")
        if name in settings
    }
    certificate = _pem(settings, "ssl.certificate")
    key = _pem(settings, "ssl.key")
    if certificate and key:
        # As PEM text, the Java client accepts the key only in PKCS #8 (KIP-651).
        plain["ssl.keystore.type"] = "PEM"
        plain["ssl.keystore.certificate.chain"] = certificate
        secret["ssl.keystore.key"] = key
    elif certificate or key:
        raise ConfigError("ssl.certificate.… and ssl.key.… go together: give both or neither")
    if "ssl.keystore.location" in settings:
        plain["ssl.keystore.type"] = "PKCS12"
        plain["ssl.keystore.location"] = settings["ssl.keystore.location"]
    return plain, secret

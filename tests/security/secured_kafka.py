"""A broker with an authorizer and every way to log in, with certificates of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from demo.broker import KafkaCluster as LocalKafka
from demo.broker.ports import HOST, free_ports
from tests.brokers import SHORT_LIVED
from tests.security.certificates import Certificates
from tests.security.oauth import TokenProvider, token_provider

__all__ = ["SCRAM", "SecuredKafka", "secured_kafka"]

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}


@dataclass(frozen=True)
class SecuredKafka:
    """The broker, and how to reach it.

    Whoever comes over PLAINTEXT may do anything; everybody else what an ACL allows.
    """

    kafka: LocalKafka
    ports: dict[str, int]
    certificates: Certificates
    tokens: TokenProvider
    admin: AdminClient

    def settings(self, protocol: str, **others: Any) -> dict[str, Any]:
        """Return a connection in librdkafka's words; underscores stand for dots."""
        settings = {
            "bootstrap.servers": f"{HOST}:{self.ports[protocol]}",
            "security.protocol": protocol,
        }
        if protocol.endswith("SSL"):
            settings["ssl.ca.location"] = str(self.certificates.authority)
        return settings | {name.replace("_", "."): value for name, value in others.items()}

    def scram(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        """Make a user and return his connection over SASL_SSL."""
        credential = ScramCredentialInfo(SCRAM[mechanism], 4096)
        upsertion = UserScramCredentialUpsertion(user, credential, password.encode())
        for future in self.admin.alter_user_scram_credentials([upsertion]).values():
            future.result(30)
        return self.settings(
            "SASL_SSL", sasl_mechanism=mechanism, sasl_username=user, sasl_password=password
        )


@contextmanager
def secured_kafka(folder: Path, user: str, password: str) -> Iterator[SecuredKafka]:
    """Start the broker, and who gives out tokens.

    Args:
        folder: Where both keep their files.
        user: Who can log in by SASL/PLAIN and by OAUTHBEARER; others are made with SCRAM.
        password: His password, or his client's secret.
    """
    certificates = Certificates(folder)
    controller, *free = free_ports(1 + len(_LISTENERS), avoid=())
    ports = dict(zip(_LISTENERS, free, strict=True))
    with token_provider(folder, user, password) as tokens:
        properties = {
            **_listeners(ports, controller),
            **_tls(certificates),
            **_sasl(f'user_{user}="{password}"', tokens),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        # Brokers of Kafka 4 read keys from no address that isn't named to their Java.
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.keys.as_uri()}"
        kafka = LocalKafka(
            folder / "kafka",
            port=ports["PLAINTEXT"],
            properties=properties,
            java_options=(*SHORT_LIVED, allowed),
        )
        with kafka:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
            yield SecuredKafka(kafka, ports, certificates, tokens, admin)


def _listeners(ports: dict[str, int], controller: int) -> dict[str, str]:
    listeners = [f"{name}://{HOST}:{port}" for name, port in ports.items()]
    protocols = ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in ports)]
    return {
        "listeners": ",".join([*listeners, f"CONTROLLER://{HOST}:{controller}"]),
        "advertised.listeners": ",".join(listeners),
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": ",".join(protocols),
    }


def _tls(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.sign("broker").both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "listener.name.ssl.ssl.client.auth": "requested",
    }


def _sasl(plain_users: str, tokens: TokenProvider) -> dict[str, str]:
    properties = {
        "sasl.enabled.mechanisms": ",".join(["PLAIN", "OAUTHBEARER", *SCRAM]),
        # The default of Kafka 4.1.0 checks no signature. This is read without any prefix.
        "sasl.oauthbearer.jwt.validator.class": f"{_OAUTH}.BrokerJwtValidator",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        properties[f"{prefix}.plain.sasl.jaas.config"] = f"{_PLAIN} required {plain_users};"
        for mechanism in SCRAM:
            properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{_SCRAM} required;"
        oauth = f"{prefix}.oauthbearer.sasl"
        properties |= {
            f"{oauth}.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{oauth}.server.callback.handler.class": (
                f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
            ),
            f"{oauth}.oauthbearer.jwks.endpoint.url": tokens.keys.as_uri(),
            f"{oauth}.oauthbearer.expected.audience": "kafka",
            # Kafka 4.4 requires it.
            f"{oauth}.oauthbearer.expected.issuer": "tests",
        }
    return properties

"""Which login a connection means, and the tokens of managed clusters."""

from __future__ import annotations

import base64
import json
import sys
import time
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.kafka.logins import (
    GOOGLE,
    MSK_IAM,
    Login,
    google_token,
    login_of,
    mechanism_of,
    msk_iam_token,
    msk_region,
    token_callback,
)
from tests.tables import each_of

TOKENS = {"bootstrap.servers": "k:1", "sasl.mechanism": "OAUTHBEARER"}
OIDC = TOKENS | {
    "sasl.oauthbearer.method": "OIDC",
    "sasl.oauthbearer.client.id": "i",
    "sasl.oauthbearer.client.secret": "s",
    "sasl.oauthbearer.token.endpoint.url": "u",
}
ON_MSK = {"bootstrap.servers": "b.kafka-serverless.us-east-1.amazonaws.com:9098"}
ON_GOOGLE = {"bootstrap.servers": "bootstrap.c.r.managedkafka.p.cloud.goog:9092"}
UNSECURED = {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
IMDS = {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        ("b-1.c.c2.kafka.eu-west-1.amazonaws.com:9098", "eu-west-1"),
        ("b.c2.kafka-serverless.US-EAST-1.amazonaws.com:9098", "us-east-1"),
        ("b-1.c.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("k:1,b-1.c.kafka.eu-west-1.amazonaws.com", "eu-west-1"),
        ("k:1", ""),
        ("b-1.c.kafka.eu-west-1.amazonaws.com.evil.example:9098", ""),
        ("kafka.eu-west-1.amazonaws.com:9098", ""),
    ],
)
def test_msk_region(servers: str, region: str) -> None:
    """A broker of MSK names its region, and no other host does."""
    assert msk_region(servers) == region


@pytest.mark.parametrize(
    ("settings", "mechanism"),
    [
        ({}, ""),
        ({"security.protocol": "ssl"}, ""),
        ({"security.protocol": "sasl_ssl"}, "GSSAPI"),
        ({"sasl.mechanism": "PLAIN"}, "PLAIN"),
        ({"sasl.mechanisms": "PLAIN", "security.protocol": "SASL_SSL"}, "PLAIN"),
    ],
)
def test_mechanism_of(settings: dict[str, str], mechanism: str) -> None:
    """The mechanism has two names, and librdkafka's default with SASL."""
    assert mechanism_of(settings) == mechanism


@each_of(
    "settings, login",
    [
        ({}, Login.NONE),
        ({"sasl.mechanism": "PLAIN"}, Login.PASSWORD),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, Login.PASSWORD),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, Login.PASSWORD),
        ({"sasl.mechanism": "GSSAPI"}, Login.KERBEROS),
        (OIDC, Login.OIDC),
        (OIDC | ON_MSK, Login.OIDC),
        (OIDC | ON_GOOGLE, Login.OIDC),
        (OIDC | {"oauth_cb": "a.b"}, Login.CALLBACK),
        (OIDC | UNSECURED, Login.UNSECURED),
        (OIDC | IMDS, Login.ASSERTION),
        (OIDC | {"sasl.oauthbearer.grant.type": "client_credentials"}, Login.OIDC),
        (OIDC | {"sasl.oauthbearer.grant.type": "urn:…:jwt-bearer"}, Login.ASSERTION),
        (TOKENS | {"oauth_cb": "a.b"}, Login.CALLBACK),
        (TOKENS | {"oauth_cb": "a.b"} | UNSECURED, Login.CALLBACK),
        (TOKENS | UNSECURED, Login.UNSECURED),
        (TOKENS | ON_MSK, Login.MSK_IAM),
        (TOKENS | ON_MSK | {"oauth_cb": "a.b"}, Login.MSK_IAM),
        (TOKENS | ON_GOOGLE, Login.GOOGLE),
        (TOKENS | ON_GOOGLE | {"oauth_cb": "a.b"}, Login.GOOGLE),
    ],
)
def test_login_of(settings: dict[str, str], login: Login) -> None:
    """Each way to log in is told by what is given for it."""
    assert login_of(settings) is login


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({name: value for name, value in OIDC.items() if not name.endswith("client.id")}, "id"),
        ({name: value for name, value in OIDC.items() if not name.endswith("secret")}, "secret"),
        ({name: value for name, value in OIDC.items() if not name.endswith("url")}, "url"),
        (OIDC | {"sasl.oauthbearer.method": "default"}, ""),
        # Hosts that are called nearly as Google's.
        (TOKENS | {"bootstrap.servers": "kafka.p.cloud.goog:9092"}, "url"),
        (TOKENS | {"bootstrap.servers": "managedkafka.example:9092"}, "url"),
        (TOKENS | IMDS, "url"),
    ],
)
def test_login_of_missing(settings: dict[str, str], missing: str) -> None:
    """Settings that don't suffice to get a token are refused, with what is missing."""
    says = f"missing: .*{missing}$" if missing else "needs oauth_cb"

    with pytest.raises(ConfigError, match=says) as raised:
        login_of(settings)

    assert ("missing" in str(raised.value)) is bool(missing)


def test_login_of_msk_name() -> None:
    """The name that Java has for MSK's IAM is refused with librdkafka's."""
    with pytest.raises(ConfigError, match=r"GSSAPI \(for MSK with IAM: OAUTHBEARER\)"):
        login_of({"sasl.mechanism": "AWS_MSK_IAM"})


@pytest.mark.parametrize(
    ("settings", "added"),
    [
        ({}, {}),
        (OIDC, {}),
        (
            TOKENS | ON_MSK,
            {"oauth_cb": MSK_IAM, "sasl.oauthbearer.config": "region=us-east-1"},
        ),
        (TOKENS | ON_MSK | {"oauth_cb": "a.b"}, {}),
        (TOKENS | ON_GOOGLE, {"oauth_cb": GOOGLE}),
        (TOKENS | ON_GOOGLE | {"oauth_cb": "a.b"}, {}),
    ],
)
def test_token_callback(settings: dict[str, str], added: dict[str, str]) -> None:
    """A managed cluster's tokens are ours to get, unless the connection has a function for them."""
    assert token_callback(settings) == added
    # In another process, the settings mean the same.
    assert token_callback(settings | added) == {}


def test_msk_iam_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS's signer is asked for the region; its milliseconds become seconds."""
    signer: Any = ModuleType("aws_msk_iam_sasl_signer")
    signer.MSKAuthTokenProvider = SimpleNamespace(
        generate_auth_token=lambda region: (f"token for {region}", 1_700_000_000_500)
    )
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)

    assert msk_iam_token("region=eu-west-1") == ("token for eu-west-1", 1_700_000_000.5)


def test_google_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's brokers get header, claims and the access token; its end is in UTC."""
    # Before it is refreshed, it has no token, and the account of a machine is its alias.
    credentials = SimpleNamespace(token=None, expiry=None, service_account_email="default")

    def refresh(request: Any) -> None:
        assert type(request) is requests.Request
        credentials.token, credentials.expiry = "access", datetime(2026, 7, 1, 12)
        credentials.service_account_email = "drain@p.iam"

    credentials.refresh = refresh
    modules: dict[str, Any] = {
        name: ModuleType(name) for name in ("google", "google.auth", "google.auth.transport")
    }
    requests: Any = ModuleType("google.auth.transport.requests")
    requests.Request = type("Request", (), {})
    modules["google"].auth = modules["google.auth"]

    def default(scopes: list[str]) -> tuple[Any, str]:
        assert scopes == ["https://www.googleapis.com/auth/cloud-platform"]
        return credentials, "project"

    modules["google.auth"].default = default
    for name, module in {**modules, "google.auth.transport.requests": requests}.items():
        monkeypatch.setitem(sys.modules, name, module)

    token, ends = google_token("")

    header, claims, access = (
        base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()
        for part in token.split(".")
    )
    assert ends == 1_782_907_200
    assert access == "access"
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    claims = json.loads(claims)
    assert abs(claims["iat"] - time.time()) < 60
    assert {"exp": ends, "iss": "Google", "scope": "kafka", "sub": "drain@p.iam"}.items() <= (
        claims.items()
    )


def test_login_of_no_mechanism() -> None:
    """A user without a mechanism isn't Kerberos's."""
    with pytest.raises(ConfigError, match=r"sasl\.mechanism is missing"):
        login_of({"security.protocol": "SASL_SSL", "sasl.username": "me"})

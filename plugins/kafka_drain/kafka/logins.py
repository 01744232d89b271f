"""Ways to log in to a cluster: which one a connection means, and tokens of managed clusters.

A connection with OAUTHBEARER to Amazon MSK or Google's Managed Kafka needs no more than that: where
the cluster is says who issues the tokens, as in Airflow's Kafka provider.
"""

from __future__ import annotations

import base64
import calendar
import json
import re
import time
from collections.abc import Mapping
from enum import Enum
from typing import Any

from kafka_drain.errors import ConfigError

OAUTHBEARER, KERBEROS = "OAUTHBEARER", "GSSAPI"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, KERBEROS)

#: Dotted paths of this module's callbacks, and the module that each needs, with its package.
MSK_IAM = f"{__name__}.msk_iam_token"
GOOGLE = f"{__name__}.google_token"
NEEDS = {
    MSK_IAM: ("aws_msk_iam_sasl_signer", "aws-msk-iam-sasl-signer-python"),
    GOOGLE: ("google.auth", "google-auth[requests]"),
}

_MSK_HOST = re.compile(
    r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?(?=$|[,\s])", re.I
)


class Login(Enum):
    """A way in which clients log in."""

    NONE = "no login, or the client's certificate"
    PASSWORD = "a user and a password"
    KERBEROS = "Kerberos"
    OIDC = "OpenID Connect: the client's id and secret"
    ASSERTION = "OpenID Connect: an assertion, or the machine's own identity"
    UNSECURED = "an unsigned token, for tests"
    MSK_IAM = "Amazon MSK's IAM"
    GOOGLE = "Google's Managed Kafka"
    CALLBACK = "a token that a Python function returns"


def mechanism_of(settings: Mapping[str, Any]) -> str:
    """Return the SASL mechanism, which has two names and a default; empty without SASL."""
    given = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")
    is_sasl = str(settings.get("security.protocol", "")).upper().startswith("SASL_")
    return str(given or (KERBEROS if is_sasl else ""))


def msk_region(servers: str) -> str:
    """Return the region of an Amazon MSK cluster; empty if it is another cluster."""
    found = _MSK_HOST.search(servers)
    return found[1].lower() if found else ""


def login_of(settings: Mapping[str, Any]) -> Login:
    """Return the login that a connection's settings mean.

    Raises:
        ConfigError: When the mechanism is missing or doesn't exist, or no token can be had for
            OAUTHBEARER.
    """
    mechanism = mechanism_of(settings)
    if not mechanism:
        return Login.NONE
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism = {mechanism!r} is not acceptable; accepted: {', '.join(MECHANISMS)}"
            + (f" (for MSK with IAM: {OAUTHBEARER})" if mechanism == "AWS_MSK_IAM" else "")
        )
    if mechanism == KERBEROS:
        named = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")
        if not named and (settings.get("sasl.username") or settings.get("sasl.password")):
            raise ConfigError(
                "sasl.mechanism is missing: a user and a password need PLAIN, SCRAM-SHA-256 or "
                "SCRAM-SHA-512; without one, it is Kerberos (GSSAPI)"
            )
        return Login.KERBEROS
    return _token_login(settings) if mechanism == OAUTHBEARER else Login.PASSWORD


def is_google(servers: str) -> bool:
    """Return whether addresses are of Google's Managed Service for Apache Kafka."""
    return "managedkafka" in servers and "cloud.goog" in servers


def _token_login(settings: Mapping[str, Any]) -> Login:
    """Return the origin of tokens; librdkafka asks a callback before anything else."""
    servers = str(settings.get("bootstrap.servers", ""))
    prefix = "sasl.oauthbearer"
    method = str(settings.get(f"{prefix}.method", "default"))
    is_oidc = method.lower() == "oidc"
    if not is_oidc and msk_region(servers):
        return Login.MSK_IAM
    if not is_oidc and is_google(servers):
        return Login.GOOGLE
    if settings.get("oauth_cb"):
        return Login.CALLBACK
    if str(settings.get("enable.sasl.oauthbearer.unsecure.jwt", "")).lower() == "true":
        return Login.UNSECURED
    grant = str(settings.get(f"{prefix}.grant.type", "client_credentials"))
    identity = str(settings.get(f"{prefix}.metadata.authentication.type", "none"))
    if is_oidc and (grant != "client_credentials" or identity != "none"):
        return Login.ASSERTION
    needed = [f"{prefix}.{name}" for name in ("client.id", "client.secret", "token.endpoint.url")]
    aliases = {name: name.replace("client.", "client.credentials.client.", 1) for name in needed}
    missing = [name for name in needed if not settings.get(name, settings.get(aliases[name]))]
    if not is_oidc or missing:
        raise ConfigError(
            f"sasl.mechanism = {OAUTHBEARER!r} needs oauth_cb, the dotted path of a function that "
            f"returns a token, or {prefix}.method = 'oidc' (found {method!r}) and "
            f"{', '.join(needed)}" + (f"; missing: {', '.join(missing)}" if missing else "")
        )
    return Login.OIDC


def token_callback(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that a managed cluster's tokens need in addition."""
    login = login_of(settings)
    if settings.get("oauth_cb"):
        return {}
    if login is Login.MSK_IAM:
        # librdkafka passes this text to the callback.
        region = msk_region(str(settings["bootstrap.servers"]))
        return {"oauth_cb": MSK_IAM, "sasl.oauthbearer.config": f"region={region}"}
    return {"oauth_cb": GOOGLE} if login is Login.GOOGLE else {}


def msk_iam_token(config: str) -> tuple[str, float]:
    """Return a token for Amazon MSK, signed with this process's AWS credentials.

    Args:
        config: `region=<region>`.

    Returns:
        The token, and its end in seconds since 1970.
    """
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    token, milliseconds = MSKAuthTokenProvider.generate_auth_token(config.partition("=")[2])
    return token, milliseconds / 1000


def google_token(_config: str) -> tuple[str, float]:
    """Return a token for Google's Managed Kafka, from the application default credentials.

    Returns:
        The token, and its end in seconds since 1970.
    """
    import google.auth
    from google.auth.transport.requests import Request

    credentials, _project = google.auth.default(
        scopes=["https://www.googleapis.com/auth/cloud-platform"]
    )
    credentials.refresh(Request())
    # google-auth's times are UTC without a zone.
    ends = calendar.timegm(credentials.expiry.timetuple())
    return google_jwt(credentials.token, credentials.service_account_email, ends), ends


def google_jwt(token: str, subject: str, ends: float) -> str:
    """Return an access token in the form that Google's brokers expect."""
    header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    claims = {"exp": ends, "iat": time.time(), "iss": "Google", "scope": "kafka", "sub": subject}
    parts = (json.dumps(header), json.dumps(claims), token)
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)

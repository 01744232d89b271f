"""The Java client's settings for a connection in librdkafka's terms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from kafka_drain.errors import ConfigError
from kafka_drain.kafka.logins import KERBEROS, OAUTHBEARER, Login, mechanism_of

#: Settings that may be shown, and secret ones.
Split: TypeAlias = "tuple[dict[str, str], dict[str, str]]"

#: Settings that are the same in both clients.
SAME = (
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "client.dns.lookup",
    "socket.connection.setup.timeout.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "security.protocol",
    "ssl.endpoint.identification.algorithm",
)

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_OAUTH_MODULE = f"{_OAUTH_PACKAGE}.OAuthBearerLoginModule"
_MSK_PACKAGE = "software.amazon.msk.auth.iam"
_GOOGLE_HANDLER = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"

_JARS = {
    Login.MSK_IAM: "software.amazon.msk:aws-msk-iam-auth (the jar that ends in -all)",
    Login.GOOGLE: "com.google.cloud.hosted.kafka:managed-kafka-auth-login-handler, with what it "
    "depends on,",
}
_WITHOUT = (
    "has no counterpart in Spark's Java client, so Spark can't read from this cluster or send to "
    "it with this connection; use sasl.oauthbearer.method = 'oidc' with a client's id and secret, "
    "or another sasl.mechanism. What needs no Spark works: a republish on the worker, checks"
)


def java_warning(login: Login) -> str:
    """Return the settings that Spark needs in addition to a login's; empty if none."""
    if login in _JARS:
        return (
            f"sasl.mechanism: Spark's Java client logs in with {_JARS[login]} which kafka-drain "
            "doesn't fetch; add it to the pipeline's jars, along with the connector's"
        )
    if login in (Login.CALLBACK, Login.ASSERTION):
        return f"sasl.mechanism: {login.value} {_WITHOUT}"
    return ""


def java_settings(settings: Mapping[str, str], login: Login) -> Split:
    """Return the Java client's settings.

    Args:
        settings: The settings that kafka-drain's own clients share, as text.
        login: The login they mean.

    Raises:
        ConfigError: When the login has no translation, or a file can't be read.
    """
    plain = {name: settings[name] for name in SAME if name in settings}
    if "security.protocol" in plain:
        plain["security.protocol"] = plain["security.protocol"].upper()
    if plain.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        # The Java client disables host name verification with an empty value.
        plain["ssl.endpoint.identification.algorithm"] = ""
    logged_in, login_secret = _login(settings, login)
    trusted, key_secret = _tls(settings)
    return plain | logged_in | trusted, login_secret | key_secret


def _login(settings: Mapping[str, str], login: Login) -> Split:
    """Translate the login."""
    if login is Login.NONE:
        return {}, {}
    if login is Login.PASSWORD:
        mechanism = mechanism_of(settings)
        named = {
            "username": settings.get("sasl.username", ""),
            "password": settings.get("sasl.password", ""),
        }
        return {"sasl.mechanism": mechanism}, _jaas(_LOGIN_MODULES[mechanism], named)
    if login is Login.KERBEROS:
        return _kerberos(settings)
    if login is Login.OIDC:
        return _oidc(settings)
    if login is Login.UNSECURED:
        return {"sasl.mechanism": OAUTHBEARER}, _jaas(_OAUTH_MODULE, _unsecured(settings))
    if login is Login.MSK_IAM:
        # IAM's own mechanism, which the same brokers offer.
        handler = {"sasl.client.callback.handler.class": f"{_MSK_PACKAGE}.IAMClientCallbackHandler"}
        return {"sasl.mechanism": "AWS_MSK_IAM"} | handler, _jaas(f"{_MSK_PACKAGE}.IAMLoginModule")
    if login is Login.GOOGLE:
        handler = {"sasl.login.callback.handler.class": _GOOGLE_HANDLER}
        return {"sasl.mechanism": OAUTHBEARER} | handler, _jaas(_OAUTH_MODULE)
    raise ConfigError(f"the Kafka connection's login, {login.value}, {_WITHOUT}")


def _kerberos(settings: Mapping[str, str]) -> Split:
    """Translate Kerberos: Java logs in by itself, from a keytab or the ticket cache."""
    prefix = "sasl.kerberos"
    options = {"useTicketCache": "true"}
    if keytab := settings.get(f"{prefix}.keytab"):
        options = {"useKeyTab": "true", "storeKey": "true", "keyTab": keytab}
    if principal := settings.get(f"{prefix}.principal"):
        options["principal"] = principal
    plain = {
        "sasl.mechanism": KERBEROS,
        # librdkafka's default; Java has none.
        f"{prefix}.service.name": settings.get(f"{prefix}.service.name", "kafka"),
    }
    relogin = f"{prefix}.min.time.before.relogin"
    if relogin in settings:
        plain[relogin] = settings[relogin]
    return plain, _jaas(_KERBEROS_MODULE, options)


def _oidc(settings: Mapping[str, str]) -> Split:
    """Translate a login with OpenID Connect client credentials (KIP-768)."""
    prefix = "sasl.oauthbearer"
    longer = f"{prefix}.client.credentials"
    client, secret = (
        settings.get(f"{prefix}.client.{name}") or settings[f"{longer}.client.{name}"]
        for name in ("id", "secret")
    )
    named = {"clientId": client, "clientSecret": secret}
    if scope := settings.get(f"{prefix}.scope"):
        named["scope"] = scope
    for name, value in _pairs(settings.get(f"{prefix}.extensions", ""), ","):
        named[f"extension_{name}"] = value
    # For the token endpoint, the Java client takes TLS settings from here.
    if settings.get("https.ca.location", "probe") != "probe":
        named |= _truststore("location", settings["https.ca.location"])
    elif "https.ca.pem" in settings:
        named |= _truststore("certificates", settings["https.ca.pem"])
    visible = {
        "sasl.mechanism": OAUTHBEARER,
        "sasl.login.callback.handler.class": f"{_OAUTH_PACKAGE}.OAuthBearerLoginCallbackHandler",
        f"{prefix}.token.endpoint.url": settings[f"{prefix}.token.endpoint.url"],
    }
    if claim := settings.get(f"{prefix}.sub.claim.name"):
        visible[f"{prefix}.sub.claim.name"] = claim
    return visible, _jaas(_OAUTH_MODULE, named)


def _unsecured(settings: Mapping[str, str]) -> dict[str, str]:
    """Translate librdkafka's unsigned tokens to options of Java's (KIP-255)."""
    given = dict(_pairs(settings.get("sasl.oauthbearer.config", ""), " "))
    principal = given.get("principalClaimName", "sub")
    scope = given.get("scopeClaimName", "scope")
    named = {f"unsecuredLoginStringClaim_{principal}": given.get("principal", "")}
    if given.get("scope"):
        # The first character of a list separates its items.
        named[f"unsecuredLoginListClaim_{scope}"] = "," + given["scope"]
    if principal != "sub":
        named["unsecuredLoginPrincipalClaimName"] = principal
    if scope != "scope":
        named["unsecuredLoginScopeClaimName"] = scope
    if "lifeSeconds" in given:
        named["unsecuredLoginLifetimeSeconds"] = given["lifeSeconds"]
    for name, value in given.items():
        if name.startswith("extension_"):
            named[f"unsecuredLoginExtension_{name.removeprefix('extension_')}"] = value
    return named


def _pairs(text: str, separator: str) -> list[tuple[str, str]]:
    """Read `name=value` pairs."""
    split = (pair.partition("=") for pair in text.split(separator) if pair.strip())
    return [(name.strip(), value.strip()) for name, _, value in split]


def _jaas(module: str, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the setting with a login module and its options; it may contain secrets."""
    written = [f"{name}={_quoted(value)}" for name, value in (options or {}).items()]
    return {"sasl.jaas.config": " ".join([module, "required", *written]) + ";"}


def _quoted(value: str) -> str:
    written = value.replace("\\", "\\\\").replace('"', '\\"')
    # Kafka's parser ends a quoted text at the end of a line: a certificate has several.
    return '"' + written.replace("\n", "\\n").replace("\r", "\\r") + '"'


def _truststore(how: str, value: str) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", f"ssl.truststore.{how}": value}


def _tls(settings: Mapping[str, str]) -> Split:
    """Translate the trusted certificates and the client certificate."""
    plain: dict[str, str] = {}
    # With "probe", librdkafka looks for the system's certificates, as Java does without a setting.
    if settings.get("ssl.ca.location", "probe") != "probe":
        if Path(settings["ssl.ca.location"]).is_dir():
            raise ConfigError(
                f"ssl.ca.location = {settings['ssl.ca.location']!r} is a folder, which Spark's "
                "Java client can't read; give one PEM file with all certificates"
            )
        plain |= _truststore("location", settings["ssl.ca.location"])
    elif "ssl.ca.pem" in settings:
        plain |= _truststore("certificates", settings["ssl.ca.pem"])
    secret = {
        name: settings[name]
        for name in ("ssl.key.password", "ssl.keystore.password")
        # Java takes an empty one for that of an encrypted key.
        if settings.get(name)
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


def _pem(settings: Mapping[str, str], name: str) -> str:
    """Return a PEM text, given to librdkafka as text or as a file; empty if neither is set."""
    if f"{name}.location" not in settings:
        return settings.get(f"{name}.pem", "")
    try:
        # PEM is ASCII, but comments before it may be in any encoding.
        return Path(settings[f"{name}.location"]).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"{name}.location = {settings[f'{name}.location']!r} can't be read: {error.strerror}"
        ) from error

"""A Kafka connection's settings: checked, translated for Java, and never shown."""

from __future__ import annotations

import ast
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import ConfigError, KafkaUnavailableError, MachineError
from kafka_drain.kafka.client_config import UNASKED, KafkaConfig, for_client
from kafka_drain.kafka.logins import Login

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
    ("servers", "wrong"),
    [
        ("k1", "k1"),
        ("k1:abc", "k1:abc"),
        ("k1:0", "k1:0"),
        ("k1:65536", "k1:65536"),
        (":9092", ":9092"),
        ("k1:9092,", ""),
        ("k1:9092;k2:9092", "k1:9092;k2:9092"),
        ("k1:9092,k2", "k2"),
        ("k1 k2:9092", "k1 k2:9092"),
        ("::1:9092", "::1:9092"),
    ],
)
def test_kafka_config_not_host_port(servers: str, wrong: str) -> None:
    """What isn't HOST:PORT is refused at once, by its name: no client would find a broker."""
    with pytest.raises(ConfigError, match=re.escape(f"has {wrong!r}, which isn't HOST:PORT")):
        KafkaConfig({"bootstrap.servers": servers})


def test_kafka_config_url() -> None:
    """Of a URL, the scheme is what has to go."""
    with pytest.raises(ConfigError, match=r"leave out https://, and set security\.protocol"):
        KafkaConfig({"bootstrap.servers": "https://k1:9092"})


@pytest.mark.parametrize(
    "servers", ["k1:9092", "k1:1, k2:65535", "10.0.0.1:9092", "[::1]:9092", "[fe80::1%eth0]:1"]
)
def test_kafka_config_host_port(servers: str) -> None:
    """Names, addresses of both kinds, and spaces after commas are accepted."""
    assert KafkaConfig({"bootstrap.servers": servers}).bootstrap_servers == servers


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
    "name", ["plugin.library.paths", "ssl.engine.location", "sasl.kerberos.kinit.cmd", "zzz"]
)
def test_kafka_config_not_allowed(name: str) -> None:
    """What isn't on the list isn't passed on; neither is what loads libraries or runs commands."""
    with pytest.raises(ConfigError, match=re.escape(repr(name))):
        KafkaConfig({"bootstrap.servers": "k:1", name: "x"})


@pytest.mark.parametrize(
    "name",
    [
        *("group.id", "auto.offset.reset", "enable.auto.commit", "acks", "linger.ms"),
        *("transactional.id", "log_level"),
    ],
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


def test_kafka_config_null() -> None:
    """A setting that is null in a connection isn't set, for neither client."""
    made = config(security_protocol="SSL", ssl_ca_location=None, sasl_username=None)

    settings = {"bootstrap.servers": "k1:9092,k2:9092", "security.protocol": "SSL"}
    assert made.for_librdkafka() == settings
    assert made.for_java() == (settings, {})


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


@pytest.mark.parametrize("mechanism", ["NTLM", "plain"])
def test_for_java_sasl_unknown(mechanism: str) -> None:
    """A mechanism without a translation is refused with those that have one."""
    with pytest.raises(ConfigError) as raised:
        sasl(mechanism).for_java()

    assert str(raised.value) == (
        f"sasl.mechanism = {mechanism!r} is not acceptable; "
        "accepted: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI"
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


def test_for_java_oauth_pem() -> None:
    """Kafka's parser ends a quoted option at the end of a line: a certificate's are escaped."""
    pem = "-----BEGIN CERTIFICATE-----\r\nTUlJ\n-----END CERTIFICATE-----\n"
    made = KafkaConfig({"bootstrap.servers": "k:1", "https.ca.pem": pem} | OIDC)

    _, secret = made.for_java()

    assert not {"\n", "\r"} & set(secret["sasl.jaas.config"])
    escaped = r'"-----BEGIN CERTIFICATE-----\r\nTUlJ\n-----END CERTIFICATE-----\n"'
    assert f"ssl.truststore.certificates={escaped}" in secret["sasl.jaas.config"]


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


def test_for_java_pem_comment(tmp_path: Path) -> None:
    """What stands before a certificate may be in any encoding: no client reads it."""
    for name in ("me.pem", "me.key"):
        (tmp_path / name).write_bytes("Straße\n-----BEGIN X-----\n".encode("latin-1"))
    made = config(
        security_protocol="SSL",
        ssl_certificate_location=str(tmp_path / "me.pem"),
        ssl_key_location=str(tmp_path / "me.key"),
    )

    plain, secret = made.for_java()

    assert plain["ssl.keystore.certificate.chain"].endswith("-----BEGIN X-----\n")
    assert secret["ssl.keystore.key"].endswith("-----BEGIN X-----\n")


@pytest.mark.parametrize("none", ["none", "NONE"])
def test_for_java_no_hostname_check(none: str) -> None:
    """Librdkafka's `none` is the Java client's empty text."""
    plain, _ = config(
        security_protocol="SSL", ssl_endpoint_identification_algorithm=none
    ).for_java()

    assert plain["ssl.endpoint.identification.algorithm"] == ""


# connections as people have them: what each becomes for our clients, and for Spark's


#: The sample that Confluent Cloud shows for Python, with the Schema Registry's lines.
CONFLUENT_CLOUD = {
    "bootstrap.servers": "pkc-1.europe-west3.gcp.confluent.cloud:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "KEY",
    "sasl.password": "hunter2",
    "session.timeout.ms": "45000",
    "client.id": "ccloud-python-client-1",
    "schema.registry.url": "https://psrc-1.europe-west3.gcp.confluent.cloud",
    "basic.auth.credentials.source": "USER_INFO",
    "basic.auth.user.info": "SR:hunter2",
}
MSK = {
    "bootstrap.servers": "b-1.m.c2.kafka.eu-west-1.amazonaws.com:9098",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "group.id": "airflow",
    "max.poll.interval.ms": 600000,
    "statistics.interval.ms": 0,
}
MSK_JAVA = (
    {
        "bootstrap.servers": MSK["bootstrap.servers"],
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.client.callback.handler.class": (
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        ),
    },
    {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
)
MSK_WARNING = (
    "sasl.mechanism: Spark's Java client logs in with software.amazon.msk:aws-msk-iam-auth (the "
    "jar that ends in -all) which kafka-drain doesn't fetch; add it to the pipeline's jars, along "
    "with the connector's"
)
GOOGLE = {
    "bootstrap.servers": "bootstrap.c.europe-west3.managedkafka.p.cloud.goog:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
}
KERBEROS = {
    "bootstrap.servers": "k1.example:9093",
    "security.protocol": "SASL_SSL",
    "ssl.ca.location": "/etc/kafka/ca.pem",
    "sasl.mechanism": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    "sasl.kerberos.principal": "drain@EXAMPLE.COM",
    "sasl.kerberos.keytab": "/etc/security/drain.keytab",
}


def test_confluent_cloud() -> None:
    """Confluent Cloud's own sample is accepted as it is, and nothing has to be said about it."""
    made = KafkaConfig(CONFLUENT_CLOUD)

    assert made.for_librdkafka() == {
        "bootstrap.servers": "pkc-1.europe-west3.gcp.confluent.cloud:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "KEY",
        "sasl.password": "hunter2",
        "client.id": "ccloud-python-client-1",
    }
    assert made.for_java() == (
        {
            "bootstrap.servers": "pkc-1.europe-west3.gcp.confluent.cloud:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "client.id": "ccloud-python-client-1",
        },
        {"sasl.jaas.config": f'{PLAIN_MODULE} required username="KEY" password="hunter2";'},
    )
    assert made.warnings == ()


@pytest.mark.parametrize(
    ("callback", "ours"),
    [
        (
            {},
            {
                "oauth_cb": "kafka_drain.kafka.logins.msk_iam_token",
                "sasl.oauthbearer.config": "region=eu-west-1",
            },
        ),
        ({"oauth_cb": "company.msk.token"}, {"oauth_cb": "company.msk.token"}),
    ],
    ids=["as the provider", "own callback"],
)
def test_msk_iam(callback: dict[str, str], ours: dict[str, str]) -> None:
    """MSK's IAM: our clients call back, with the connection's function or ours; Java has a jar."""
    made = KafkaConfig(MSK | callback)

    assert made.for_librdkafka() == {
        "bootstrap.servers": MSK["bootstrap.servers"],
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "statistics.interval.ms": 0,
        **ours,
    }
    assert made.for_java() == MSK_JAVA
    assert made.warnings == (MSK_WARNING,)


def test_google() -> None:
    """Google's Managed Kafka: tokens from the default credentials, on both sides."""
    made = KafkaConfig(GOOGLE)

    assert made.for_librdkafka() == GOOGLE | {"oauth_cb": "kafka_drain.kafka.logins.google_token"}
    plain, secret = made.for_java()
    assert plain == GOOGLE | {
        "sasl.login.callback.handler.class": (
            "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
        )
    }
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    assert {"sasl.jaas.config": f"{module} required;"} == secret
    assert "managed-kafka-auth-login-handler" in made.warnings[0]


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (
            {},
            'useKeyTab="true" storeKey="true" keyTab="/etc/security/drain.keytab" '
            'principal="drain@EXAMPLE.COM"',
        ),
        ({"sasl.kerberos.keytab": ""}, 'useTicketCache="true" principal="drain@EXAMPLE.COM"'),
    ],
    ids=["keytab", "ticket cache"],
)
def test_kerberos(change: dict[str, str], options: str) -> None:
    """Kerberos: librdkafka's settings as they are; Java logs in from the same keytab."""
    made = KafkaConfig(KERBEROS | change)

    assert made.for_librdkafka() == KERBEROS | change
    assert made.for_java() == (
        {
            "bootstrap.servers": "k1.example:9093",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/etc/kafka/ca.pem",
        },
        {"sasl.jaas.config": f"com.sun.security.auth.module.Krb5LoginModule required {options};"},
    )
    assert made.warnings == ()


@pytest.mark.parametrize("protocol", ["SASL_SSL", "sasl_plaintext"])
def test_kerberos_default(protocol: str) -> None:
    """SASL without a mechanism is Kerberos, for librdkafka and for Java; its service is kafka."""
    plain, _ = config(security_protocol=protocol).for_java()

    assert plain["sasl.mechanism"] == "GSSAPI"
    assert plain["sasl.kerberos.service.name"] == "kafka"


@pytest.mark.parametrize("name", ["principal", "keytab", "service.name"])
@pytest.mark.parametrize("value", ["a; rm -rf /", "$(id)", "`id`", 'a"b', "a b", "a\nb"])
def test_kerberos_no_shell(name: str, value: str) -> None:
    """What librdkafka puts into kinit's command line can't run another command."""
    with pytest.raises(ConfigError, match="kinit gets it in a shell command"):
        KafkaConfig(KERBEROS | {f"sasl.kerberos.{name}": value})


def test_unsecured() -> None:
    """Librdkafka's unsigned tokens for tests become Java's, claim by claim."""
    given = {
        "bootstrap.servers": "k:1",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": "principalClaimName=azp principal=me scopeClaimName=roles "
        "scope=r1,r2 lifeSeconds=600 extension_pool=a",
    }

    _, secret = KafkaConfig(given).for_java()

    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    assert {
        "sasl.jaas.config": f'{module} required unsecuredLoginStringClaim_azp="me" '
        'unsecuredLoginListClaim_roles=",r1,r2" unsecuredLoginPrincipalClaimName="azp" '
        'unsecuredLoginScopeClaimName="roles" unsecuredLoginLifetimeSeconds="600" '
        'unsecuredLoginExtension_pool="a";'
    } == secret


JWT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@pytest.mark.parametrize(
    ("change", "login"),
    [
        ({"sasl.oauthbearer.method": "default", "oauth_cb": "company.token"}, Login.CALLBACK),
        ({"oauth_cb": "company.token"}, Login.CALLBACK),
        ({"sasl.oauthbearer.grant.type": JWT}, Login.ASSERTION),
        ({"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}, Login.ASSERTION),
    ],
)
def test_for_java_no_counterpart(change: dict[str, str], login: Login) -> None:
    """A login that Java doesn't have works for our clients; Spark's say why it can't."""
    made = KafkaConfig({"bootstrap.servers": "k:1"} | OIDC | change)

    assert made.login is login
    assert change.items() <= made.for_librdkafka().items()
    [warning] = made.warnings
    assert "has no counterpart in Spark's Java client" in warning
    with pytest.raises(ConfigError, match="has no counterpart in Spark's Java client") as raised:
        made.for_java()
    assert "hunter2" not in warning + str(raised.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"isolation.level": "read_uncommitted"}, "isolation.level: set kafka.isolation.level in"),
        ({"isolation.level": "read_committed"}, ""),
        ({"enable.ssl.certificate.verification": False}, "enable.ssl.certificate.verification: Sp"),
        ({"enable.ssl.certificate.verification": True}, ""),
        ({"ssl.crl.location": "/crl"}, "ssl.crl.location: Spark's Java client doesn't check"),
        ({"ssl.cipher.suites": "X"}, "ssl.cipher.suites: Spark's Java client negotiates"),
        ({"session.timeout.ms": 1, "group.id": "g", "acks": 1, "linger.ms": 5}, ""),
    ],
)
def test_warnings(settings: dict[str, Any], said: str) -> None:
    """What isn't done is said with what follows, unless it is what happens anyway."""
    [warning] = KafkaConfig({"bootstrap.servers": "k:1"} | settings).warnings or [""]

    assert warning.startswith(said)
    assert bool(warning) == bool(said)


def test_broker_list() -> None:
    """Librdkafka's older name of the servers is enough."""
    made = KafkaConfig({"metadata.broker.list": "k:1"})

    assert made.for_librdkafka() == {"bootstrap.servers": "k:1"}


@pytest.mark.parametrize("probe", ["ssl.ca.location", "https.ca.location"])
def test_for_java_probe(probe: str) -> None:
    """Librdkafka's own search for the system's certificates is what Java does without a setting."""
    made = KafkaConfig({"bootstrap.servers": "k:1"} | OIDC)

    assert KafkaConfig({**made.settings, probe: "probe"}).for_java() == made.for_java()


def test_for_java_folder(tmp_path: Path) -> None:
    """A folder of certificates, which Java can't read, is refused with what to give."""
    made = config(security_protocol="SSL", ssl_ca_location=str(tmp_path))

    with pytest.raises(ConfigError, match="is a folder, which Spark's Java client can't read"):
        made.for_java()


# one client's settings


def test_for_client_own() -> None:
    """A client's own settings win, and callbacks become functions."""
    common = {"bootstrap.servers": "k:1", "statistics.interval.ms": 5, "stats_cb": "json.loads"}

    made = for_client(common, {"statistics.interval.ms": 9, "group.id": "g"})

    assert made.pop("stats_cb")('{"a": 1}') == {"a": 1}
    own = {"bootstrap.servers": "k:1", "statistics.interval.ms": 9, "group.id": "g"}
    assert made == {**own, "allow.auto.create.topics": False}


def test_for_client_own_callback() -> None:
    """A callback that a client replaces isn't even imported."""
    made = for_client({"stats_cb": "no.such"}, {"stats_cb": print})

    assert made == {**UNASKED, "stats_cb": print}


@pytest.mark.parametrize("path", ["no.such.module", "json.no_such", "dumps", "", "json."])
def test_for_client_no_callback(path: str) -> None:
    """A callback that can't be imported is named."""
    with pytest.raises(ConfigError, match=rf"oauth_cb = '{re.escape(path)}' can't be imported on"):
        for_client({"oauth_cb": path}, {})


@pytest.mark.parametrize(
    ("cluster", "module"),
    [(MSK, "aws_msk_iam_sasl_signer"), (GOOGLE, "google.auth")],
    ids=["MSK", "Google"],
)
def test_for_client_no_package(
    cluster: dict[str, Any], module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A managed cluster's tokens need a package; without it, its name is said."""
    monkeypatch.setitem(sys.modules, module, None)
    common = KafkaConfig(cluster).for_librdkafka()

    with pytest.raises(MachineError, match=r"needs the Python package (aws-msk-iam|google-auth)"):
        for_client(common, {})


def tokens(config: str) -> tuple[str, float]:
    """Return the next token, or raise the next error."""
    said = NEXT.pop(0)
    if isinstance(said, Exception):
        raise said
    return said if isinstance(said, tuple) else (f"{said} for {config}", time.time() + 60)


NEXT: list[Any] = []
TOKENS = {"oauth_cb": f"{__name__}.tokens", "sasl.oauthbearer.config": "me"}


def test_for_client_first_token(caplog: pytest.LogCaptureFixture) -> None:
    """The first token is fetched before there is a client, later ones when librdkafka asks."""
    NEXT[:] = ["first", "second", RuntimeError("the vault is closed")]

    callback = for_client(TOKENS, {})["oauth_cb"]

    assert len(NEXT) == 2
    assert callback("me")[0] == "first for me"
    assert callback("me")[0] == "second for me"
    with pytest.raises(RuntimeError):
        callback("me")
    # librdkafka only says that a callback failed.
    assert "raised RuntimeError: the vault is closed" in caplog.text
    assert "second" not in caplog.text


def test_for_client_no_token() -> None:
    """A callback that raises is an error at once; another try may help."""
    NEXT[:] = [RuntimeError("the vault is closed")]

    with pytest.raises(KafkaUnavailableError, match="raised RuntimeError: the vault is closed; "):
        for_client(TOKENS, {})


@pytest.mark.parametrize(
    "returned",
    [("t", 1.0), ("t",), (b"t", 9e9), ("t", "soon"), (None, None)],
    ids=["expired", "alone", "bytes", "text", "nothing"],
)
def test_for_client_wrong_token(returned: tuple[Any, ...]) -> None:
    """What isn't a token, or isn't valid any more, is refused and not shown."""
    NEXT[:] = [returned]

    with pytest.raises(ConfigError, match="returned no token that is valid now; expected a tuple"):
        for_client(TOKENS, {})


def test_for_client_everywhere() -> None:
    """No client of ours is made without it: it would lack its callbacks, and take foreign ones."""
    made: list[str] = []
    for path in sorted(Path("plugins/kafka_drain").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("Consumer", "Producer", "AdminClient"):
                [argument] = node.args
                is_ours = (
                    isinstance(argument, ast.Call) and ast.unparse(argument.func) == "for_client"
                )
                made.append("for_client" if is_ours else f"{path.stem}: {ast.unparse(argument)}")

    assert sorted(made) == [
        *["for_client"] * 8,
        # Has no brokers: only its name is asked for.
        "progress_store: {'group.id': group, 'log_level': 2}",
    ]


def test_config_two_names() -> None:
    """Brokers under both names of the setting must be the same: each client would take others."""
    named = {"bootstrap.servers": "a:1", "metadata.broker.list": "b:1"}
    with pytest.raises(ConfigError, match=r"a:1.*b:1.*two names of one setting"):
        KafkaConfig(named)
    assert KafkaConfig({**named, "metadata.broker.list": "a:1"}).bootstrap_servers == "a:1"


def test_for_java_empty_password() -> None:
    """Java would take an empty password for that of an encrypted key."""
    _, secret = config(ssl_key_password="", ssl_keystore_password="").for_java()

    assert secret == {}


def test_kafka_config_two_mechanisms() -> None:
    """Each client would take another one of two names."""
    with pytest.raises(ConfigError, match="two names of one setting"):
        config(sasl_mechanism="PLAIN", sasl_mechanisms="SCRAM-SHA-512")

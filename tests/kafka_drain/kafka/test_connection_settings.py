"""Every setting of librdkafka has a row: what happens to it, and why."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka_drain.errors import ConfigError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.connection_settings import CALLBACKS, PASSED, TABLE, Use
from tests.tables import each_of

SERVERS = {"bootstrap.servers": "k:1"}
#: Names of others: confluent-kafka's for Python, Java's, the Schema Registry's, and hidden ones.
ELSEWHERE = set(
    """
    oauth_cb logger on_commit on_delivery default.topic.config
    sasl.jaas.config sasl.login.callback.handler.class sasl.client.callback.handler.class
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
    schema.registry.url basic.auth.credentials.source basic.auth.user.info
    schema.registry.basic.auth.user.info schema.registry.basic.auth.credentials.source
    test.mock.num.brokers test.mock.broker.rtt
    """.split()
)
#: What a row needs beside itself to be complete.
WITH = {
    "oauth_cb": {"sasl.mechanism": "OAUTHBEARER"},
    "metadata.broker.list": {"bootstrap.servers": "k:2"},
}
VALUES = {
    "bootstrap.servers": "x:9092",
    "oauth_cb": "json.dumps",
    "sasl.mechanism": "PLAIN",
    "sasl.mechanisms": "PLAIN",
}


def settings_of_librdkafka(path: Path) -> set[str]:
    """Return the names that the installed librdkafka documents, as in its CONFIGURATION.md."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    [found] = folder.glob("librdkafka*")
    library, c = ctypes.CDLL(str(found)), ctypes.CDLL(None)
    c.fopen.restype = ctypes.c_void_p
    c.fopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    c.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    opened = c.fopen(bytes(path), b"w")
    library.rd_kafka_conf_properties_show(opened)
    c.fclose(opened)
    rows = (re.match(r"([a-z_.]+) *\| +[*CP] +\|", line) for line in path.read_text().splitlines())
    return {row[1] for row in rows if row}


def test_table_librdkafka(tmp_path: Path) -> None:
    """The table has all settings of the installed librdkafka, and no name that it doesn't know."""
    known = settings_of_librdkafka(tmp_path / "properties.md")

    assert len(known) > 190
    assert set(TABLE) - ELSEWHERE == known
    assert set(TABLE) >= ELSEWHERE


def test_table_no_name_twice() -> None:
    """A name is in one row: a second one would silently win."""
    source = Path("plugins/kafka_drain/kafka/connection_settings.py").read_text()
    rows = source.partition("_ROWS")[2].partition("TABLE:")[0]

    twice = [
        name
        for name in TABLE
        if len(re.findall(rf"(?<![\w.]){re.escape(name)}(?![\w.])", rows)) > 1
    ]

    # Named again in the reasons of other rows.
    assert set(twice) <= {
        "ssl.ca.location", "sasl.username", "sasl.password", "sasl.mechanism", "isolation.level",
        "sasl.kerberos.principal", "sasl.kerberos.keytab",
    }  # fmt: skip


def _given(name: str) -> dict[str, object]:
    return SERVERS | WITH.get(name, {}) | {name: VALUES.get(name, "x")}


# metadata.broker.list is another name of bootstrap.servers: beside that, it is refused.
@each_of("name", [name for name in TABLE if name in PASSED and name != "metadata.broker.list"])
def test_table_passed(name: str) -> None:
    """What is passed reaches our own clients as it was given."""
    made = KafkaConfig(_given(name))

    assert made.for_librdkafka()[name] == _given(name)[name]


@each_of("name", [n for n, row in TABLE.items() if row.use is Use.OURS])
def test_table_ours(name: str) -> None:
    """What kafka-drain decides reaches neither client, and isn't an error: others may need it."""
    made = KafkaConfig(_given(name))

    assert made.for_librdkafka() == SERVERS
    assert made.for_java() == (SERVERS, {})


@each_of("name", [n for n, row in TABLE.items() if row.use is Use.REFUSED])
def test_table_refused(name: str) -> None:
    """What is refused is named with its reason, and its value isn't shown."""
    with pytest.raises(ConfigError) as raised:
        KafkaConfig(SERVERS | {name: "hunter2"})

    assert str(raised.value) == (
        f"{name!r} is not accepted in a Kafka connection: {TABLE[name].why}"
    )


SASL = {"sasl.mechanism": "PLAIN"}
KERBEROS = {"security.protocol": "SASL_SSL"}
TOKENS = {"sasl.mechanism": "OAUTHBEARER"}
OIDC = TOKENS | {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "i",
    "sasl.oauthbearer.client.secret": "s",
    "sasl.oauthbearer.token.endpoint.url": "u",
}
LONGER_ID = "sasl.oauthbearer.client.credentials.client.id"
LONGER_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
UNSECURED = TOKENS | {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
MSK = TOKENS | {"bootstrap.servers": "b.kafka.eu-west-1.amazonaws.com:9098"}


def without(settings: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in settings.items() if key != name}


#: By name: the settings around it, its value, and the setting of Java's client that changes.
JAVA: dict[str, tuple[dict[str, str], str, str]] = {
    "bootstrap.servers": ({}, "k:7", "bootstrap.servers=k:7"),
    "metadata.broker.list": ({"bootstrap.servers": ""}, "k:7", "bootstrap.servers=k:7"),
    "client.id": ({}, "me", "client.id=me"),
    "client.rack": ({}, "euw1-az1", "client.rack=euw1-az1"),
    "client.dns.lookup": ({}, "use_all_dns_ips", "client.dns.lookup=use_all_dns_ips"),
    "security.protocol": ({}, "ssl", "security.protocol=SSL"),
    "socket.connection.setup.timeout.ms": ({}, "7", "socket.connection.setup.timeout.ms=7"),
    "reconnect.backoff.ms": ({}, "7", "reconnect.backoff.ms=7"),
    "reconnect.backoff.max.ms": ({}, "7", "reconnect.backoff.max.ms=7"),
    "ssl.endpoint.identification.algorithm": ({}, "https", "identification.algorithm=https"),
    "ssl.ca.location": ({}, "/ca", "ssl.truststore.location=/ca"),
    "ssl.ca.pem": ({}, "PEM", "ssl.truststore.certificates=PEM"),
    "ssl.certificate.location": ({"ssl.key.pem": "k"}, "file", "certificate.chain=PEM"),
    "ssl.certificate.pem": ({"ssl.key.pem": "k"}, "c", "ssl.keystore.certificate.chain=c"),
    "ssl.key.location": ({"ssl.certificate.pem": "c"}, "file", "ssl.keystore.key=PEM"),
    "ssl.key.pem": ({"ssl.certificate.pem": "c"}, "k", "ssl.keystore.key=k"),
    "ssl.key.password": ({}, "p", "ssl.key.password=p"),
    "ssl.keystore.location": ({}, "/k", "ssl.keystore.location=/k"),
    "ssl.keystore.password": ({}, "p", "ssl.keystore.password=p"),
    "sasl.mechanism": ({}, "PLAIN", "sasl.mechanism=PLAIN"),
    "sasl.mechanisms": ({}, "PLAIN", "sasl.mechanism=PLAIN"),
    "sasl.username": (SASL, "me", 'username="me"'),
    "sasl.password": (SASL, "p", 'password="p"'),
    "sasl.kerberos.service.name": (KERBEROS, "mq", "sasl.kerberos.service.name=mq"),
    "sasl.kerberos.principal": (KERBEROS, "me@X", 'principal="me@X"'),
    "sasl.kerberos.keytab": (KERBEROS, "/k", 'useKeyTab="true" storeKey="true" keyTab="/k"'),
    "sasl.kerberos.min.time.before.relogin": (KERBEROS, "7", "time.before.relogin=7"),
    "sasl.oauthbearer.method": (without(OIDC, "sasl.oauthbearer.method"), "oidc", "clientId"),
    "sasl.oauthbearer.client.id": (OIDC, "me", 'clientId="me"'),
    LONGER_ID: (without(OIDC, "sasl.oauthbearer.client.id"), "me", 'clientId="me"'),
    "sasl.oauthbearer.client.secret": (OIDC, "p", 'clientSecret="p"'),
    LONGER_SECRET: (without(OIDC, "sasl.oauthbearer.client.secret"), "p", 'clientSecret="p"'),
    "sasl.oauthbearer.scope": (OIDC, "kafka", 'scope="kafka"'),
    "sasl.oauthbearer.extensions": (OIDC, "pool=a", 'extension_pool="a"'),
    "sasl.oauthbearer.token.endpoint.url": (OIDC, "https://x", "endpoint.url=https://x"),
    "sasl.oauthbearer.sub.claim.name": (OIDC, "azp", "sasl.oauthbearer.sub.claim.name=azp"),
    "https.ca.location": (OIDC, "/ca", 'ssl.truststore.location="/ca"'),
    "https.ca.pem": (OIDC, "PEM", 'ssl.truststore.certificates="PEM"'),
    "enable.sasl.oauthbearer.unsecure.jwt": (TOKENS, "true", "unsecuredLoginStringClaim_sub"),
    "sasl.oauthbearer.config": (UNSECURED, "principal=me", 'StringClaim_sub="me"'),
    "oauth_cb": (MSK, "json.dumps", "sasl.mechanism=AWS_MSK_IAM"),
}


def test_table_translated_all() -> None:
    """Every setting that is said to be translated is tried below."""
    assert set(JAVA) == {name for name, row in TABLE.items() if row.use is Use.TRANSLATED}


@each_of("name", JAVA)
def test_table_translated(name: str, tmp_path: Path) -> None:
    """What is translated reaches Java's client, where it is."""
    around, value, expected = JAVA[name]
    if value == "file":
        value = str(tmp_path / "a.pem")
        Path(value).write_text("PEM")

    plain, secret = KafkaConfig(SERVERS | around | {name: value}).for_java()

    assert expected in "\n".join(f"{key}={text}" for key, text in (plain | secret).items())


@each_of("name", sorted(PASSED - set(CALLBACKS)))
def test_table_librdkafka_takes(name: str) -> None:
    """What is passed is no name that confluent-kafka refuses; the value is another matter."""
    said = ""
    try:
        AdminClient({name: "\x01", "log_level": 0})
    except KafkaException as error:
        said = str(error)

    assert "No such configuration" not in said
    assert "dedicated" not in said

"""Where an HDFS answers over HTTP, by Hadoop's configuration."""

from __future__ import annotations

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.storage.hdfs_settings import is_kerberized, name_nodes, parse_settings
from tests.tables import each_of

PAIR = {
    "dfs.nameservices": "ns1, ns2",
    "dfs.ha.namenodes.ns1": "a,b",
    "dfs.namenode.rpc-address.ns1.a": "one:9000",
    "dfs.namenode.rpc-address.ns1.b": "two",
    "dfs.namenode.http-address.ns1.a": "one:50070",
    "dfs.namenode.http-address.ns1.b": "two:50070",
    "dfs.namenode.rpc-address.ns2": "three:9001",
}
BY_HTTPS = {
    **PAIR,
    "dfs.http.policy": "https_only",
    "dfs.namenode.https-address.ns1.a": "one:50470",
}
SINGLE = {"fs.defaultFS": "hdfs://one:8020", "dfs.namenode.http-address": "0.0.0.0:50070"}


@each_of(
    "authority, settings, urls",
    [
        ("one", {}, ["http://one:9870"]),
        ("one:8020", {}, ["http://one:9870"]),
        ("[::1]:8020", {}, ["http://[::1]:9870"]),
        ("[::1]", {}, ["http://[::1]:9870"]),
        ("one:8020", {"dfs.http.policy": "HTTPS_ONLY"}, ["https://one:9871"]),
        ("one:8020", {"dfs.http.policy": "HTTP_AND_HTTPS"}, ["http://one:9870"]),
        # By the default file system: what it listens at is no address.
        ("one:8020", SINGLE, ["http://one:50070"]),
        ("one", SINGLE, ["http://one:50070"]),
        ("one:8020", {**SINGLE, "dfs.namenode.http-address": "web"}, ["http://web:9870"]),
        ("one:8020", {"fs.defaultFS": "hdfs://one"}, ["http://one:9870"]),
        # Another HDFS than that of the settings.
        ("other:8020", SINGLE, ["http://other:9870"]),
        ("one:9000", SINGLE, ["http://one:9870"]),
        ("one:8020", {**SINGLE, "fs.defaultFS": "file:///"}, ["http://one:9870"]),
        ("one:8020", {**SINGLE, "fs.defaultFS": "s3a://one:8020"}, ["http://one:9870"]),
        # A nameservice.
        ("ns1", PAIR, ["http://one:50070", "http://two:50070"]),
        ("ns2", PAIR, ["http://three:9870"]),
        ("ns1", BY_HTTPS, ["https://one:50470", "https://two:9871"]),
        ("ns1", {}, ["http://ns1:9870"]),
        # One NameNode of two.
        ("two:8020", PAIR, ["http://two:50070"]),
        ("one:9000", PAIR, ["http://one:50070"]),
        ("one:8020", PAIR, ["http://one:9870"]),
        ("three:9001", PAIR, ["http://three:9870"]),
        # A value that refers to others.
        (
            "one:8020",
            {**SINGLE, "dfs.namenode.http-address": "${host}:${port}", "host": "h", "port": "7"},
            ["http://h:7"],
        ),
    ],
)
def test_name_nodes(authority: str, settings: dict[str, str], urls: list[str]) -> None:
    """Those of the settings that the URL means; otherwise its own host, at the usual port."""
    assert name_nodes(authority, settings) == urls


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"dfs.nameservices": "ns1", "dfs.ha.namenodes.ns1": "a"},
            r"neither dfs\.namenode\.http-address\.ns1\.a nor dfs\.namenode\.rpc-address\.ns1\.a",
        ),
        (
            {"dfs.nameservices": "ns1", "dfs.namenode.http-address.ns1": "h:x"},
            "'h:x' isn't an address; accepted: host:port",
        ),
        (
            {"dfs.nameservices": "ns1", "dfs.namenode.http-address.ns1": "${env.H}:1"},
            r"dfs\.namenode\.http-address\.ns1 of HADOOP_CONF_DIR is \$\{env\.H\}:1, and env\.H",
        ),
        (
            {"dfs.nameservices": "ns1", "dfs.namenode.http-address.ns1": "${a}", "a": "${a}"},
            r"refers to itself: \$\{a\}",
        ),
    ],
)
def test_name_nodes_unknown(settings: dict[str, str], match: str) -> None:
    """A nameservice whose NameNodes aren't said is refused, with the settings that are missing."""
    with pytest.raises(ConfigError, match=match):
        name_nodes("ns1", settings)


def test_name_nodes_deep_reference() -> None:
    """A value is followed as deep as Hadoop follows it."""
    chain = {f"v{n}": f"${{v{n + 1}}}" for n in range(18)}
    settings = {"fs.defaultFS": "hdfs://one", "dfs.namenode.http-address": "${v0}", **chain}

    assert name_nodes("one", {**settings, "v18": "h:1"}) == ["http://h:1"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"hadoop.security.authentication": "simple"}, False),
        ({"hadoop.security.authentication": "Kerberos"}, True),
    ],
)
def test_is_kerberized(settings: dict[str, str], expected: bool) -> None:
    """Hadoop's default is no login."""
    assert is_kerberized(settings) is expected


def test_parse_settings() -> None:
    """Names and values without spaces around them; what has no name or value is left out."""
    text = """<?xml version="1.0"?>
    <configuration xmlns:xi="http://www.w3.org/2001/XInclude">
      <!-- ours -->
      <xi:include href="other.xml"/>
      <property><name> a </name><value> 1
      </value><final>true</final></property>
      <property><name>b</name></property>
      <property><name>c</name><value/></property>
      <property><value>2</value></property>
    </configuration>"""

    assert parse_settings(text) == {"a": "1", "c": ""}


@pytest.mark.parametrize(
    ("text", "match"), [("<a", "isn't XML"), ("<a/>", "has <a>, expected <configuration>")]
)
def test_parse_settings_refused(text: str, match: str) -> None:
    """Something else isn't taken for settings."""
    with pytest.raises(ConfigError, match=match):
        parse_settings(text)

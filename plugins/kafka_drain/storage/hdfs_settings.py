"""Where an HDFS answers over HTTP, by Hadoop's own configuration files. Opens nothing.

The names and their defaults are those of Hadoop's hdfs-default.xml and core-default.xml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit
from xml.etree import ElementTree

from kafka_drain.errors import ConfigError

#: The files of `HADOOP_CONF_DIR` that are read; a value of the later one counts.
FILES = ("core-site.xml", "hdfs-site.xml")

_RPC_PORT = 8020
_HTTP, _HTTPS = ("http", 9870), ("https", 9871)

#: An address that a server listens at, rather than one to connect to.
_ANYWHERE = ("0.0.0.0", "")

_REFERENCE = re.compile(r"\$\{([^}$\s]+)\}")
#: Depth to which Hadoop follows values that refer to other values.
_DEPTH = 20


def parse_settings(text: str) -> dict[str, str]:
    """Return the properties of one of Hadoop's configuration files.

    Raises:
        ConfigError: When it isn't one; the text follows the file's name.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ConfigError(f"isn't XML ({error})") from error
    if root.tag != "configuration":
        raise ConfigError(f"has <{root.tag}>, expected <configuration>")
    found = {each.findtext("name", "").strip(): each.findtext("value") for each in root}
    return {name: value.strip() for name, value in found.items() if name and value is not None}


def is_kerberized(settings: Mapping[str, str]) -> bool:
    """Return whether clients have to log in with Kerberos."""
    return _value(settings, "hadoop.security.authentication").lower() == "kerberos"


def name_nodes(authority: str, settings: Mapping[str, str]) -> list[str]:
    """Return the URLs at which an HDFS's NameNodes answer WebHDFS, in the order of the settings.

    Args:
        authority: That of the archive's URL: a NameNode's host, with or without its port, or a
            nameservice of the settings.
        settings: Hadoop's, of both files; empty if there are none.

    Raises:
        ConfigError: When it is a nameservice whose NameNodes the settings don't say.
    """
    if authority not in _names(settings, "dfs.nameservices"):
        host, port = _split(authority, _RPC_PORT)
        suffix = _suffix_of(host, port, settings)
        return [
            _address(suffix, host, settings) if suffix is not None else _default(host, settings)
        ]
    nodes = _names(settings, f"dfs.ha.namenodes.{authority}")
    suffixes = [f".{authority}.{node}" for node in nodes] or [f".{authority}"]
    return [_address(suffix, "", settings) for suffix in suffixes]


def _suffix_of(host: str, port: int, settings: Mapping[str, str]) -> str | None:
    """Return the suffix of a NameNode's settings; None if there is none."""
    for name in settings:
        suffix = name.removeprefix("dfs.namenode.rpc-address")
        if suffix != name and _split(_value(settings, name), _RPC_PORT) == (host, port):
            return suffix
    default = urlsplit(_value(settings, "fs.defaultFS"))
    if default.scheme == "hdfs" and _split(default.netloc, _RPC_PORT) == (host, port):
        return ""
    return None


def _address(suffix: str, host: str, settings: Mapping[str, str]) -> str:
    """Return the URL of one NameNode of the settings.

    Args:
        suffix: End of the names of its settings.
        host: Its host, if it is known.
        settings: Hadoop's.
    """
    scheme, port = _protocol(settings)
    rpc = _value(settings, f"dfs.namenode.rpc-address{suffix}")
    named = _value(settings, f"dfs.namenode.{scheme}-address{suffix}")
    own, own_port = _split(named, port)
    if own in _ANYWHERE:
        own = host or _split(rpc, _RPC_PORT)[0]
    if own in _ANYWHERE:
        raise ConfigError(
            f"HADOOP_CONF_DIR has neither dfs.namenode.{scheme}-address{suffix} nor "
            f"dfs.namenode.rpc-address{suffix}, expected one of them: where the NameNode is"
        )
    return f"{scheme}://{own}:{own_port}"


def _default(host: str, settings: Mapping[str, str]) -> str:
    scheme, port = _protocol(settings)
    return f"{scheme}://{host}:{port}"


def _protocol(settings: Mapping[str, str]) -> tuple[str, int]:
    return _HTTPS if _value(settings, "dfs.http.policy").upper() == "HTTPS_ONLY" else _HTTP


def _names(settings: Mapping[str, str], name: str) -> list[str]:
    return [each.strip() for each in _value(settings, name).split(",") if each.strip()]


def _split(address: str, port: int) -> tuple[str, int]:
    """Return host and port of `host:port`, `host` or `[::1]:port`."""
    host, colon, own = address.rpartition(":")
    if not colon or own.endswith("]"):
        return address, port
    if not own.isdecimal():
        raise ConfigError(f"{address!r} isn't an address; accepted: host:port")
    return host, int(own)


def _value(settings: Mapping[str, str], name: str) -> str:
    """Return a value with the values that it refers to; empty if there is none."""
    value = settings.get(name, "")
    for _ in range(_DEPTH):
        found = _REFERENCE.search(value)
        if found is None:
            return value
        if found[1] not in settings:
            raise ConfigError(
                f"{name} of HADOOP_CONF_DIR is {value}, and {found[1]} isn't set there; "
                "expected a value without references to the environment or Java's properties"
            )
        value = value.replace(found[0], settings[found[1]])
    raise ConfigError(f"{name} of HADOOP_CONF_DIR refers to itself: {settings[name]}")

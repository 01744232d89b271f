"""Settings of a Kafka connection, checked in librdkafka's terms, and those of each client.

Airflow's Kafka connection holds librdkafka configuration; Spark needs the Java client's
(java_config.py). What happens to each setting is in connection_settings.py.
"""

from __future__ import annotations

import importlib
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from kafka_drain.config.checks import unknown
from kafka_drain.errors import ConfigError, KafkaUnavailableError, MachineError
from kafka_drain.kafka.connection_settings import CALLBACKS, PASSED, TABLE, Use
from kafka_drain.kafka.java_config import java_settings, java_warning
from kafka_drain.kafka.logins import NEEDS, Login, login_of, token_callback
from kafka_drain.user_code import LeftError, held

log = logging.getLogger(__name__)

_TOKEN = "oauth_cb"

#: No client creates a topic by asking for it, or by sending to one that was deleted meanwhile.
#: librdkafka's documentation has it for consumers only; producers and admin clients, whose default
#: is to create, follow it too.
UNASKED: Mapping[str, Any] = {"allow.auto.create.topics": False}

#: librdkafka puts these into a shell command.
_IN_SHELL = ("sasl.kerberos.principal", "sasl.kerberos.keytab", "sasl.kerberos.service.name")
_HARMLESS = re.compile(r"[\w./@:=+-]*")

#: Two names each of one setting; librdkafka takes the last one, Java always the first.
_TWO_NAMES = (
    ("sasl.mechanism", "sasl.mechanisms"),
    ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"),
    ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"),
)

#: Values that need no warning, because they are what happens anyway.
_AS_ANYWAY = {
    "isolation.level": "read_committed",
    "enable.ssl.certificate.verification": "true",
}


#: Addresses that Java's client accepts, and so Spark: a name, an IPv4 or, in brackets, an IPv6
#: address.
_ADDRESS = re.compile(r"(\[[^\s\[\]]+\]|[^\s:/@\[\],;]+):(\d{1,5})")


def check_addresses(servers: str) -> None:
    """Refuse brokers that aren't all HOST:PORT, for which no client would ever find a broker.

    Raises:
        ConfigError: Names the first one, and what is wrong with it.
    """
    for address in servers.split(","):
        found = _ADDRESS.fullmatch(address.strip())
        if found is None or not 0 < int(found[2]) < 65536:
            scheme = address.partition("://")[0] if "://" in address else ""
            hint = f"; leave out {scheme}://, and set security.protocol for TLS" if scheme else ""
            raise ConfigError(
                f"bootstrap.servers has {address!r}, which isn't HOST:PORT; accepted: brokers as "
                f"host:9092, separated by commas{hint}"
            )


@dataclass(frozen=True)
class KafkaConfig:
    """Connection settings of a Kafka cluster. The `repr` shows no secrets.

    Settings for other consumers and producers that share the connection aren't used.

    Raises:
        ConfigError: When a setting is unknown or refused, the login isn't complete, or
            bootstrap.servers is missing.
    """

    settings: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        for name in self.settings:
            if name not in TABLE:
                # Not shown, because it may be a secret whose name is misspelt.
                known = [known for known, found in TABLE.items() if found.use is not Use.REFUSED]
                raise unknown(name, "hidden", known, "setting of a Kafka connection")
            if TABLE[name].use is Use.REFUSED:
                raise ConfigError(
                    f"{name!r} is not accepted in a Kafka connection: {TABLE[name].why}"
                )
        # Null in JSON: as if it weren't there. Java would take its name for a value.
        given = {name: value for name, value in self.settings.items() if value is not None}
        object.__setattr__(self, "settings", given)
        names = [self.settings.get(n) for n in ("bootstrap.servers", "metadata.broker.list")]
        if all(names) and names[0] != names[1]:
            raise ConfigError(
                f"bootstrap.servers = {names[0]!r} and metadata.broker.list = {names[1]!r} are two "
                "names of one setting, and each client would take another one; leave one out"
            )
        if not self.settings.get("bootstrap.servers") and self.settings.get("metadata.broker.list"):
            named = {**self.settings, "bootstrap.servers": self.settings["metadata.broker.list"]}
            del named["metadata.broker.list"]
            object.__setattr__(self, "settings", named)
        if not self.settings.get("bootstrap.servers"):
            raise ConfigError(
                "the Kafka connection has no bootstrap.servers; add it to the connection's "
                'extra: {"bootstrap.servers": "host:9092"}'
            )
        for one, other in _TWO_NAMES:
            values = [self.settings.get(one), self.settings.get(other)]
            if all(values) and values[0] != values[1]:
                # Not the values, which may be secret.
                raise ConfigError(
                    f"{one} and {other} are two names of one setting, have two values, and each "
                    "client would take another one; leave one out"
                )
        check_addresses(str(self.settings["bootstrap.servers"]))
        for name in _IN_SHELL:
            if not _HARMLESS.fullmatch(str(self.settings.get(name, ""))):
                raise ConfigError(
                    f"{name} = {self.settings[name]!r} is not acceptable, because kinit gets it in "
                    "a shell command; accepted: letters, digits and ./@:=+-"
                )
        login_of(self.settings)

    def __repr__(self) -> str:
        return f"KafkaConfig({self.bootstrap_servers})"

    @property
    def bootstrap_servers(self) -> str:
        """Comma-separated `host:port` of the bootstrap brokers."""
        return str(self.settings["bootstrap.servers"])

    @property
    def protocol(self) -> str:
        """The security protocol in lower case: `plaintext` unless it is given."""
        return str(self.settings.get("security.protocol", "plaintext")).lower()

    @property
    def login(self) -> Login:
        """The way in which clients log in."""
        return login_of(self.settings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about settings that aren't used, or not by Spark; no values."""
        given = [
            f"{name}: {TABLE[name].warning}"
            for name, value in self.settings.items()
            if TABLE[name].warning and str(value).lower() != _AS_ANYWAY.get(name)
        ]
        return tuple(given + [text for text in [java_warning(self.login)] if text])

    def for_librdkafka(self) -> dict[str, Any]:
        """Return the settings common to our own clients, as JSON types; see `for_client`."""
        given = {name: value for name, value in self.settings.items() if name in PASSED}
        return given | token_callback(self.settings)

    def for_java(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the settings for the Java client: the public ones, and the secret ones.

        Raises:
            ConfigError: When the login has no translation, or a file can't be read.
        """
        settings = {name: str(value) for name, value in self.for_librdkafka().items()}
        return java_settings(settings, self.login)


def for_client(settings: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of one confluent-kafka client, with callbacks as functions.

    A first token is fetched here: a client whose callback fails while it is created would wait for
    10 seconds, and leave a thread behind that uses the client's freed memory.

    Args:
        settings: The result of `KafkaConfig.for_librdkafka`, in this or another process.
        own: The client's own settings, which replace those.

    Raises:
        ConfigError: When a callback can't be imported in this process, or returns no token.
        MachineError: When the package that issues a managed cluster's tokens isn't installed.
        KafkaUnavailableError: When the callback for tokens raises.
    """
    named = {name: value for name, value in settings.items() if name not in own}
    for name in CALLBACKS:
        if isinstance(path := named.get(name), str):
            named[name] = _imported(name, path)
    if isinstance(path := settings.get(_TOKEN), str) and _TOKEN not in own:
        named[_TOKEN] = _with_first_token(
            named[_TOKEN], path, str(named.get("sasl.oauthbearer.config", ""))
        )
    return {**UNASKED, **named, **own}


def _imported(name: str, path: str) -> Callable[..., Any]:
    """Import a callback by its dotted path."""
    if path in NEEDS:
        module, package = NEEDS[path]
        if not _is_installed(module):
            raise MachineError(
                f"logging in to this Kafka cluster needs the Python package {package}, which isn't "
                "installed on this machine; install it"
            )
    home, _, attribute = path.rpartition(".")
    try:
        with held():
            found: Callable[..., Any] = getattr(importlib.import_module(home), attribute)
    except (ImportError, AttributeError, ValueError, LeftError) as error:
        raise ConfigError(
            f"{name} = {path!r} can't be imported on this machine ({error}); give the dotted path "
            "of a function in a module that is installed here"
        ) from error
    return found


def _with_first_token(
    callback: Callable[[str], Any], path: str, config: str
) -> Callable[[str], Any]:
    """Return a callback whose first call returns a token that was fetched here.

    librdkafka calls it in a thread of its own whenever a token is due, and repeats it if it raises.
    """
    try:
        with held():
            found = callback(config)
    except Exception as error:
        raise KafkaUnavailableError(
            f"there is no token for Kafka: {_TOKEN} = {path!r} raised {type(error).__name__}: "
            f"{error}; correct what it asks, or try again"
        ) from error
    if not _is_token(found):
        raise ConfigError(
            f"{_TOKEN} = {path!r} returned no token that is valid now; expected a tuple of the "
            "token as text, and its end in seconds since 1970"
        )
    first = [found]

    def told(config: str) -> Any:
        if first:
            return first.pop()
        try:
            with held():
                return callback(config)
        except Exception as error:
            # librdkafka reports only that there was one.
            log.warning("%s = %r raised %s: %s", _TOKEN, path, type(error).__name__, error)
            raise

    return told


def _is_token(found: object) -> bool:
    return (
        isinstance(found, tuple)
        and len(found) >= 2
        and isinstance(found[0], str)
        and isinstance(found[1], (int, float))
        and found[1] > time.time()
    )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        # A parent package is missing.
        return False

"""A Spark Connect server: its address, `sc://host:port/;name=value`, and the errors of its clients.

Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from kafka_drain.errors import ConfigError

SCHEME = "sc://"
DEFAULT_PORT = 15002

#: Environment variable with the token for a server that was given to a command as its master.
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"

#: Set by kafka-drain itself: a drain's session is found again by its id.
_OURS = "session_id"

#: The user whose sessions these are: the same on every machine, so that another one finds them.
USER = "kafka-drain"


def is_connect(master: str) -> bool:
    """Return whether a Spark master is a Spark Connect server."""
    return master.startswith(SCHEME)


@dataclass(frozen=True)
class ConnectAddress:
    """Where a Spark Connect server listens.

    Attributes:
        parameters: Parameters of the connection, such as `use_ssl`; no token.
    """

    host: str
    port: int = DEFAULT_PORT
    parameters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, master: str) -> ConnectAddress:
        """Parse a Spark master.

        Raises:
            ConfigError: When it isn't `sc://host:port/;name=value`, or contains a token: it would
                be visible in logs and on command lines.
        """
        place, _, rest = master.removeprefix(SCHEME).partition("/")
        place, *joined = place.split(";")
        pairs = [part.partition("=") for part in (*joined, *rest.split(";")) if part]
        host, _, port = place.partition(":")
        shown = f"{SCHEME}{place}"
        expected = "expected sc://host:port, or sc://host:port/;use_ssl=true"
        if not is_connect(master) or not host or (port and not port.isdigit()):
            raise ConfigError(f"{shown} isn't the address of a Spark Connect server; {expected}")
        names = [name for name, _, _ in pairs]
        if "token" in names:
            raise ConfigError(
                f"the address {shown} contains a token, which would be visible to others; set "
                f"${TOKEN_VARIABLE}, or the password of the Airflow connection"
            )
        if bad := [name for name in names if name and not re.fullmatch(r"[0-9a-z_.-]+", name)]:
            raise ConfigError(
                f"{shown} has the parameter {bad[0]}, which gRPC doesn't send; write its name in "
                "lower case"
            )
        if _OURS in names:
            raise ConfigError(f"{shown} sets {_OURS}, which kafka-drain sets itself; leave it out")
        if not all(name and found for name, found, _ in pairs):
            raise ConfigError(f"{shown} has a parameter without a value; {expected}")
        parameters = {name: unquote(value) for name, _, value in pairs}
        return cls(host, int(port) if port else DEFAULT_PORT, parameters)

    def __str__(self) -> str:
        """Return the address without its parameters, for messages."""
        return f"{SCHEME}{self.host}:{self.port}"

    @property
    def uses_tls(self) -> bool:
        """Whether clients speak TLS to it, even without a token."""
        return self.parameters.get("use_ssl", "").lower() == "true"

    @property
    def master(self) -> str:
        """The Spark master that `parse` reads."""
        parameters = "".join(f";{name}={quote(value)}" for name, value in self.parameters.items())
        return f"{self}/{parameters}" if parameters else str(self)

    def url(self, token: str = "") -> str:
        """Return the connection string for pyspark, which is secret if it contains a token."""
        parameters = {"user_id": USER, **self.parameters, **({"token": token} if token else {})}
        return f"{self}/" + "".join(f";{n}={quote(v, safe='')}" for n, v in parameters.items())


_HOW_TO_SET = f"set ${TOKEN_VARIABLE}, or the password of the Airflow connection"
_NO_TLS = (
    "doesn't speak TLS, which use_ssl and a token need; put a proxy with TLS in front of it, or "
    "leave both out"
)

#: gRPC's messages about a connection that isn't accepted, and their meaning.
_REFUSALS = {
    "CERTIFICATE_VERIFY_FAILED": (
        "doesn't have a trusted certificate; name a PEM file with its authority's certificate in "
        "the environment variable GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
    ),
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "handshake failed": _NO_TLS,
    "Handshake read failed": _NO_TLS,
    "StatusCode.UNAUTHENTICATED": f"refuses the token; {_HOW_TO_SET}",
    "StatusCode.PERMISSION_DENIED": f"refuses the token; {_HOW_TO_SET}",
}

#: gRPC's messages about a server that isn't there, and their meaning.
_AWAY = {
    "Connection refused": "it refuses connections",
    "errors resolving": "the host name isn't known",
    "hostname lookup": "the host name isn't known",
    "DNS resolution failed": "the host name isn't known",
    "Failed parsing HTTP/2": "what listens there doesn't speak gRPC",
    "StatusCode.UNIMPLEMENTED": "what listens there speaks gRPC, but isn't Spark",
    "Connection reset": "it closes each connection",
    "Socket closed": "it closes each connection",
}


def refusal(message: str) -> str | None:
    """Return the meaning of a server's refusal of a client; None for another error.

    Args:
        message: Message of the gRPC error.
    """
    for said, means in _REFUSALS.items():
        if said in message:
            return f"the Spark Connect server {means}"
    return None


def absence(message: str) -> str | None:
    """Return the reason why no server answers; None if gRPC says something else."""
    return next((means for said, means in _AWAY.items() if said in message), None)

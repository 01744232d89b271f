"""Check the URLs of servers that stand in for a store, which are put on Spark's command line."""

from __future__ import annotations

from urllib.parse import urlsplit

from kafka_drain.errors import ConfigError


def check_endpoint(variable: str, endpoint: str, instead: str) -> None:
    """Refuse an endpoint that isn't the URL of a server, or has a login in it.

    Args:
        variable: The environment variable that it is from.
        endpoint: The URL.
        instead: Advice about a login, for the error message.

    Raises:
        ConfigError: Says what is accepted, without the login.
    """
    parts = urlsplit(endpoint)
    if parts.password or parts.username:
        raise ConfigError(
            f"{variable} contains a user or a password, which process lists would show; {instead}"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{variable} = {endpoint!r} is not acceptable; accepted: http(s)://host:port"
        )

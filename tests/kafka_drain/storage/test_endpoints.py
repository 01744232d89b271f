"""Which URLs of a store's stand-in may be put on Spark's command line."""

from __future__ import annotations

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.storage.endpoints import check_endpoint


@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:4443", "https://store.example", "http://[::1]:9000/", "HTTP://host/path"],
)
def test_check_endpoint(endpoint: str) -> None:
    """The URL of a server is accepted, with a port or without."""
    check_endpoint("AWS_ENDPOINT_URL", endpoint, "leave them out")


@pytest.mark.parametrize(
    "endpoint", ["", "127.0.0.1:4443", "//host", "ftp://host", "http://", "https://:9000"]
)
def test_check_endpoint_refused(endpoint: str) -> None:
    """What leads to no server is refused, with the variable and what is expected."""
    with pytest.raises(ConfigError) as refused:
        check_endpoint("AWS_ENDPOINT_URL", endpoint, "leave them out")

    assert str(refused.value) == (
        f"AWS_ENDPOINT_URL = {endpoint!r} is not acceptable; accepted: http(s)://host:port"
    )


@pytest.mark.parametrize("scheme", ["http://", "https://", "ftp://", "//"])
@pytest.mark.parametrize("login", ["me:s3cr3t", "s3cr3t", "s3cr3t:", ":s3cr3t"])
def test_check_endpoint_login(login: str, scheme: str) -> None:
    """A login, or half of one, is refused with what to do, and isn't repeated."""
    with pytest.raises(ConfigError) as refused:
        check_endpoint("AWS_ENDPOINT_URL", f"{scheme}{login}@127.0.0.1", "leave them out")

    assert str(refused.value) == (
        "AWS_ENDPOINT_URL contains a user or a password, which process lists would show; "
        "leave them out"
    )

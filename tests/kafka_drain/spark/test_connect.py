"""The address of a Spark Connect server."""

from __future__ import annotations

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.spark.connect import ConnectAddress, is_connect


@pytest.mark.parametrize(
    ("master", "address", "url"),
    [
        ("sc://h", ConnectAddress("h", 15002), "sc://h:15002/;user_id=kafka-drain"),
        ("sc://h:1", ConnectAddress("h", 1), "sc://h:1/;user_id=kafka-drain"),
        ("sc://h:1/", ConnectAddress("h", 1), "sc://h:1/;user_id=kafka-drain"),
        (
            "sc://h:1/;use_ssl=true;user_id=a%20b",
            ConnectAddress("h", 1, {"use_ssl": "true", "user_id": "a b"}),
            "sc://h:1/;user_id=a%20b;use_ssl=true",
        ),
        (
            "sc://h;use_ssl=true",
            ConnectAddress("h", 15002, {"use_ssl": "true"}),
            "sc://h:15002/;user_id=kafka-drain;use_ssl=true",
        ),
    ],
)
def test_connect_address(master: str, address: ConnectAddress, url: str) -> None:
    """An address is read as pyspark reads it, and sessions are one user's on all machines."""
    assert ConnectAddress.parse(master) == address
    assert ConnectAddress.parse(address.master) == address
    assert address.url() == url
    assert str(address) == f"sc://{address.host}:{address.port}"


def test_connect_address_with_token() -> None:
    """A token is only in the connection string, and quoted there."""
    assert ConnectAddress("h", 1).url("a;b=c/") == (
        "sc://h:1/;user_id=kafka-drain;token=a%3Bb%3Dc%2F"
    )


@pytest.mark.parametrize(
    ("master", "says"),
    [
        ("sc://", "sc:// isn't the address of a Spark Connect server"),
        ("sc://:1", "expected sc://host:port"),
        ("sc://h:x", "sc://h:x isn't the address"),
        ("local[2]", "isn't the address"),
        ("sc://h/path", "has a parameter without a value"),
        ("sc://h/;use_ssl", "has a parameter without a value"),
        ("sc://h/;session_id=a", "sets session_id, which kafka-drain sets itself"),
        ("sc://h/;X-Key=secret", "the parameter X-Key"),
        ("sc://h/;token=secret", r"set \$SPARK_CONNECT_AUTHENTICATE_TOKEN"),
    ],
)
def test_connect_address_refused(master: str, says: str) -> None:
    """What isn't an address is refused, and no token is repeated."""
    with pytest.raises(ConfigError, match=says) as caught:
        ConnectAddress.parse(master)

    assert "secret" not in str(caught.value)


def test_is_connect() -> None:
    """Only its scheme tells a server from other masters."""
    assert [is_connect(each) for each in ("sc://h", "local[*]", "spark://h", "yarn")] == [
        *(True, False, False, False)
    ]


def test_connect_address_token_with_semicolon() -> None:
    """Nothing of a token is shown."""
    with pytest.raises(ConfigError, match="contains a token") as refused:
        ConnectAddress.parse("sc://h/;token=abc;Def9")

    assert "Def9" not in str(refused.value)

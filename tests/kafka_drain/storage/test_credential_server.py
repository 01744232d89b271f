"""Temporary credentials for processes of this machine: given by a token, and renewed."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from botocore.session import Session

from kafka_drain.storage.credential_server import LEASE, STRONGER, credential_server


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what an SDK would follow first, and the machine's own role."""
    for name in STRONGER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def ask(variables: dict[str, str], token: str) -> Any:
    url = variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    with urlopen(Request(url, headers={"Authorization": token}), timeout=10) as answer:
        return json.load(answer)


def test_credential_server_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SDK finds the credentials by its environment, and asks again before they end."""
    given = [("k1", "s1", "t1"), ("k2", "s2", "t2")]

    with credential_server(lambda: given.pop(0)) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        credentials = Session().get_credentials()
        first = credentials.get_frozen_credentials()
        # What botocore does once a quarter of an hour is left.
        soon = datetime.now(timezone.utc) + LEASE - timedelta(minutes=2)
        credentials._time_fetcher = lambda: soon
        second = credentials.get_frozen_credentials()

    assert credentials.method == "container-role"
    assert (first.access_key, first.secret_key, first.token) == ("k1", "s1", "t1")
    assert (second.access_key, second.secret_key, second.token) == ("k2", "s2", "t2")


def test_credential_server_lease() -> None:
    """What is given may be used for less time than it is valid."""
    with credential_server(lambda: ("k", "s", "t")) as variables:
        answer = ask(variables, variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"])

    ends = datetime.fromisoformat(answer.pop("Expiration").replace("Z", "+00:00"))
    assert answer == {"AccessKeyId": "k", "SecretAccessKey": "s", "Token": "t"}
    # botocore asks again when less than 15 minutes are left.
    assert timedelta(minutes=15) < ends - datetime.now(timezone.utc) <= timedelta(minutes=16)


@pytest.mark.parametrize("token", ["", "wrong"])
def test_credential_server_wrong_token(token: str) -> None:
    """Another user of the machine gets nothing."""
    with (
        credential_server(lambda: ("k", "s", "t")) as variables,
        pytest.raises(HTTPError, match="403") as raised,
    ):
        ask(variables, token)

    assert b"AccessKeyId" not in raised.value.read()


def test_credential_server_refused() -> None:
    """If the credentials can't be renewed, the SDK is told why."""

    def current() -> tuple[str, str, str]:
        raise RuntimeError("the role is gone")

    with (
        credential_server(current) as variables,
        pytest.raises(HTTPError, match="500") as raised,
    ):
        ask(variables, variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"])

    assert json.load(raised.value) == {"message": "RuntimeError: the role is gone"}


def test_credential_server_ends() -> None:
    """After the body, nobody answers."""
    with credential_server(lambda: ("k", "s", "t")) as variables:
        pass

    with pytest.raises(OSError, match="refused"):
        ask(variables, variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"])

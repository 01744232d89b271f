"""Access to an archive's store through a connection: keys, a profile, a role."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import ClientError, EndpointConnectionError, NoRegionError
from botocore.session import Session

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, ConfigError, MachineError, StoreUnavailableError
from kafka_drain.storage.s3 import s3_conf
from kafka_drain_airflow.store_connection import archive_access, store_access

ON_S3 = Pipeline(name="p", topics=["t"], archive="s3://bucket/a", archive_conn_id="store")


def aws_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def test_archive_access(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection's key replaces the worker's, and only temporarily."""
    connection = {
        "conn_type": "aws",
        "login": "id",
        "password": "secret",
        "extra": {"endpoint_url": "http://s3:9000"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the worker's")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    before = aws_variables()

    with archive_access(ON_S3):
        assert aws_variables() == {
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL_S3": "http://s3:9000",
            "AWS_REGION": "eu-west-1",
        }

    assert aws_variables() == before


WORKERS = {
    "AWS_ACCESS_KEY_ID": "the worker's",
    "AWS_SECRET_ACCESS_KEY": "the worker's",
    "AWS_SESSION_TOKEN": "the worker's",
    "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/worker",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/the/worker's",
}


@pytest.mark.parametrize("names", [list(WORKERS)[:3], list(WORKERS)[3:], list(WORKERS)])
def test_archive_access_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: list[str]
) -> None:
    """The connection's profile replaces the worker's keys, which an SDK would prefer to it."""
    profiles = tmp_path / "credentials"
    profiles.write_text("[archives]\naws_access_key_id = id\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in names:
        monkeypatch.setenv(name, WORKERS[name])
    connect(monkeypatch, extra={"profile_name": "archives"})
    before = aws_variables()

    with archive_access(ON_S3):
        assert Session().get_credentials().get_frozen_credentials().access_key == "id"

    assert aws_variables() == before


def test_archive_access_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection's store is opened, also if the worker's other S3 is another one."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://logs:9000")
    connect(
        monkeypatch,
        login="id",
        password="secret",
        extra={"endpoint_url": "http://s3:9000", "region_name": "eu-west-1"},
    )
    before = aws_variables()

    with archive_access(ON_S3):
        assert s3_conf(os.environ)["spark.hadoop.fs.s3a.endpoint"] == "http://s3:9000"
        client = Session().create_client("s3", region_name="eu-west-1")
        assert client.meta.endpoint_url == "http://s3:9000"

    assert aws_variables() == before


@pytest.mark.parametrize("given", [{}, {"AWS_ENDPOINT_URL": "http://all:1"}])
def test_archive_access_endpoint_of_others(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's address is for S3 alone: KMS and others are where they were."""
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    connect(monkeypatch, login="id", password="secret", extra={"endpoint_url": "http://s3:9000"})

    with archive_access(ON_S3):
        s3, kms = (Session().create_client(name, region_name="r") for name in ("s3", "kms"))

    assert s3.meta.endpoint_url == "http://s3:9000"
    assert kms.meta.endpoint_url == given.get("AWS_ENDPOINT_URL", "https://kms.r.amazonaws.com")


def test_archive_access_without_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a connection, the worker's own environment is used."""
    monkeypatch.setenv("AWS_PROFILE", "archives")

    with archive_access(Pipeline(name="p", topics=["t"], archive="s3://bucket/a")):
        assert aws_variables() == {"AWS_PROFILE": "archives"}


def test_archive_access_unknown_connection() -> None:
    """A connection that doesn't exist is named, with how to create it."""
    with (
        pytest.raises(
            ConfigError, match="no Airflow connection 'store'; create one of type Amazon"
        ),
        archive_access(ON_S3),
    ):
        pass


def connect(monkeypatch: pytest.MonkeyPatch, **connection: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps({"conn_type": "aws", **connection}))


ROLE = {
    "role_arn": "arn:aws:iam::123456789012:role/archive-writer",
    "assume_role_kwargs": {"ExternalId": "kafka-drain"},
    "region_name": "eu-west-1",
    "endpoint_url": "http://s3:9000",
}


class Hook:
    """What the Amazon provider's hook is asked for, with given credentials."""

    made: Any = None
    verify: Any = None
    endpoint: str | None = None

    def __init__(self, aws_conn_id: str, client_type: str) -> None:
        assert client_type == "s3"
        self.aws_conn_id = aws_conn_id
        self.region_name = "eu-west-1"
        self.conn_config = SimpleNamespace(
            get_service_endpoint_url=lambda service: self.endpoint if service == "s3" else "sts"
        )

    def get_session(self) -> Any:
        if isinstance(self.made, Exception):
            raise self.made
        return SimpleNamespace(get_credentials=lambda: self.made, region_name=None)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> type[Hook]:
    """Install a provider whose hook has the credentials that a test sets."""
    hook: type[Hook] = type("AwsGenericHook", (Hook,), {})
    package = "airflow.providers.amazon"
    for name in (
        package,
        f"{package}.aws",
        f"{package}.aws.hooks",
        f"{package}.aws.hooks.base_aws",
    ):
        module: Any = ModuleType(name)
        module.AwsGenericHook = hook
        monkeypatch.setitem(sys.modules, name, module)
    return hook


def renewed(*keys: str) -> RefreshableCredentials:
    """Return credentials as a role gives them: each is valid for an hour."""
    left = list(keys)

    def refresh() -> dict[str, str]:
        ends = datetime.now(timezone.utc) + timedelta(hours=1)
        key = left.pop(0)
        named = {"access_key": key, "secret_key": f"s-{key}", "token": f"t-{key}"}
        return named | {"expiry_time": ends.isoformat()}

    return RefreshableCredentials.create_from_metadata(refresh(), refresh, "sts-assume-role")


def test_role_becomes(monkeypatch: pytest.MonkeyPatch, provider: type[Hook]) -> None:
    """A role: both sides ask this process, which renews; no key is in the environment."""
    connect(monkeypatch, extra=ROLE)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_PROFILE", "the worker's")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/the/worker's")
    provider.made, provider.endpoint = renewed("k1"), "http://s3:9000"
    before = aws_variables()

    with archive_access(ON_S3):
        inside = aws_variables()
        conf = s3_conf(os.environ)
        found = Session().get_credentials()
        seen = found.get_frozen_credentials()

    address = inside.pop("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    assert inside.pop("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    assert address.startswith("http://127.0.0.1:")
    assert inside == {
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL_S3": "http://s3:9000",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    assert (found.method, seen.access_key, seen.token) == ("container-role", "k1", "t-k1")
    s3a = {k.removeprefix("spark.hadoop.fs.s3a."): v for k, v in conf.items() if ".s3a." in k}
    assert (
        s3a.items()
        >= {
            "endpoint": "http://s3:9000",
            "endpoint.region": "eu-west-1",
            "path.style.access": "true",
        }.items()
    )
    assert "k1" not in str(conf)
    assert aws_variables() == before


def test_role_renewed(monkeypatch: pytest.MonkeyPatch, provider: type[Hook]) -> None:
    """A run may be longer than the role's credentials are valid."""
    connect(monkeypatch, extra=ROLE)
    provider.made = renewed("k1", "k2")
    access = store_access("store")

    first = access.current()
    soon = datetime.now(timezone.utc) + timedelta(minutes=50)
    access.renewed._time_fetcher = lambda: soon
    second = access.current()

    assert (first, second) == (("k1", "s-k1", "t-k1"), ("k2", "s-k2", "t-k2"))


def test_role_options(monkeypatch: pytest.MonkeyPatch, provider: type[Hook]) -> None:
    """A page opens the archive with the role's credentials of this moment."""
    connect(monkeypatch, extra=ROLE)
    provider.made, provider.endpoint, provider.verify = renewed("k1"), "http://s3:9000", "/ca.pem"

    assert store_access("store").options() == {
        "key": "k1",
        "secret": "s-k1",
        "token": "t-k1",
        "endpoint_url": "http://s3:9000",
        "client_kwargs": {"region_name": "eu-west-1", "verify": "/ca.pem"},
    }


def test_hook_keys(
    monkeypatch: pytest.MonkeyPatch, provider: type[Hook], caplog: pytest.LogCaptureFixture
) -> None:
    """Keys that don't end need no server; what only Airflow's clients use is said."""
    connect(monkeypatch, login="k", password="hunter2", extra={"config_kwargs": {"retries": {}}})
    provider.made, provider.verify = Credentials("k", "hunter2"), False

    access = store_access("store")

    assert access.renewed is None
    assert access.variables == {
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
    }
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "config_kwargs is for Airflow's own AWS clients" in said[0]
    assert "verify = false isn't applied" in said[1]
    assert "hunter2" not in repr(access) + caplog.text


DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole")


@pytest.mark.parametrize(
    ("raised", "becomes", "match"),
    [
        (DENIED, ArchiveError, "gives no access: .*AccessDenied.*check the role, its trust policy"),
        (
            EndpointConnectionError(endpoint_url="u"),
            StoreUnavailableError,
            "AWS doesn't answer for",
        ),
        (NoRegionError(), ConfigError, "'store' isn't acceptable: NoRegionError"),
        (NotImplementedError("saml"), ConfigError, "'store' isn't acceptable: NotImplementedError"),
        (None, ArchiveError, "gives no credentials, and this machine has none"),
    ],
)
def test_hook_refuses(
    raised: Exception | None,
    becomes: type[Exception],
    match: str,
    monkeypatch: pytest.MonkeyPatch,
    provider: type[Hook],
) -> None:
    """What the hook raises says whether a retry can help, and what to check."""
    connect(monkeypatch, extra=ROLE)
    provider.made = raised

    with pytest.raises(becomes, match=match):
        store_access("store")


def test_role_without_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role needs the Amazon provider, and it is said which entries need it."""
    connect(monkeypatch, extra=ROLE)
    monkeypatch.setitem(sys.modules, "airflow.providers.amazon", None)

    with pytest.raises(MachineError, match="has assume_role_kwargs, role_arn in its extra, which"):
        store_access("store")


@pytest.mark.parametrize(
    ("connection", "options"),
    [
        ({"login": "k", "password": "s"}, {"key": "k", "secret": "s"}),
        ({"extra": {"profile_name": "p"}}, {"profile": "p"}),
        (
            {"extra": {"region_name": "r", "endpoint_url": "http://s3:1"}},
            {"endpoint_url": "http://s3:1", "client_kwargs": {"region_name": "r"}},
        ),
    ],
)
def test_options(
    connection: dict[str, Any], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page opens the archive with what the connection says, without an environment."""
    connect(monkeypatch, **connection)

    assert store_access("store").options() == options

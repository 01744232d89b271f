"""What Spark is told of an object store, and what an Airflow connection becomes."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kafka_drain.config.groups import check_group
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.spark_conf import check_spark_conf
from kafka_drain.errors import ConfigError
from kafka_drain.storage.s3 import beyond_keys, options_of, s3_conf, scheme_of, variables_of

S3A = "spark.hadoop.fs.s3a."


@pytest.mark.parametrize(
    ("archive", "scheme"),
    [("/a/b", ""), ("s3://b/a", "s3"), ("s3a://b", "s3a"), ("gs://b/a", "gs")],
)
def test_scheme_of(archive: str, scheme: str) -> None:
    """A path has none."""
    assert scheme_of(archive) == scheme


def test_s3_conf_amazon() -> None:
    """Amazon's own S3 needs no endpoint; nothing is renamed."""
    environment = {"AWS_SECRET_ACCESS_KEY": "hidden", "AWS_REGION": "eu-west-1"}

    conf = s3_conf(environment)

    assert conf[f"{S3A}endpoint.region"] == "eu-west-1"
    assert f"{S3A}endpoint" not in conf
    assert "Abortable" in conf["spark.sql.streaming.checkpointFileManagerClass"]
    assert conf[f"{S3A}committer.name"] == "magic"
    assert "hidden" not in conf.values()


@pytest.mark.parametrize(
    ("environment", "endpoint", "region"),
    [
        ({"AWS_ENDPOINT_URL": "http://s3:9000"}, "http://s3:9000", "us-east-1"),
        (
            {"AWS_ENDPOINT_URL": "http://all:1", "AWS_ENDPOINT_URL_S3": "https://s3:2"},
            "https://s3:2",
            "us-east-1",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://s3:9000", "AWS_DEFAULT_REGION": "local"},
            "http://s3:9000",
            "local",
        ),
    ],
)
def test_s3_conf_endpoint(environment: dict[str, str], endpoint: str, region: str) -> None:
    """Spark asks the same server, by path, as botocore does for it."""
    conf = s3_conf(environment)

    assert conf[f"{S3A}endpoint"] == endpoint
    assert conf[f"{S3A}path.style.access"] == "true"
    assert conf[f"{S3A}endpoint.region"] == region


PROFILES = """\
[default]
endpoint_url = http://default:1
[profile minio]
endpoint_url = http://minio:9000
region = local
[profile several]
endpoint_url = http://all:1
services = mine
[services mine]
s3 =
  endpoint_url = http://s3:2
[profile amazon]
region = eu-west-1
[profile ignoring]
endpoint_url = http://ignored:1
ignore_configured_endpoint_urls = true
"""


@pytest.mark.parametrize(
    ("environment", "endpoint", "region"),
    [
        ({"AWS_PROFILE": "minio"}, "http://minio:9000", "local"),
        # As botocore has it: the former name goes first.
        ({"AWS_DEFAULT_PROFILE": "minio"}, "http://minio:9000", "local"),
        (
            {"AWS_DEFAULT_PROFILE": "minio", "AWS_PROFILE": "amazon"},
            "http://minio:9000",
            "local",
        ),
        ({"AWS_PROFILE": "several"}, "http://s3:2", "us-east-1"),
        ({"AWS_PROFILE": "amazon"}, None, "eu-west-1"),
        ({"AWS_PROFILE": "ignoring"}, None, None),
        ({"AWS_PROFILE": "nobody"}, None, None),
        ({}, "http://default:1", "us-east-1"),
        (
            {"AWS_PROFILE": "minio", "AWS_ENDPOINT_URL_S3": "http://s3:3", "AWS_REGION": "r"},
            "http://s3:3",
            "r",
        ),
        ({"AWS_PROFILE": "minio", "AWS_ENDPOINT_URL": "http://b:4"}, "http://b:4", "local"),
        (
            {"AWS_PROFILE": "minio", "AWS_DEFAULT_REGION": "r"},
            "http://minio:9000",
            "r",
        ),
        ({"AWS_PROFILE": "minio", "AWS_ENDPOINT_URL": ""}, "http://minio:9000", "local"),
    ],
)
def test_s3_conf_profile(
    environment: dict[str, str], endpoint: str | None, region: str | None, tmp_path: Path
) -> None:
    """Spark asks the server that a profile names, as botocore does, unless a variable does."""
    path = tmp_path / "config"
    path.write_text(PROFILES)

    conf = s3_conf(environment | {"AWS_CONFIG_FILE": str(path)})

    assert conf.get(f"{S3A}endpoint") == endpoint
    assert conf.get(f"{S3A}path.style.access") == ("true" if endpoint else None)
    assert conf.get(f"{S3A}endpoint.region") == region


@pytest.mark.parametrize("is_locked", [False, True])
def test_s3_conf_locked(is_locked: bool) -> None:
    """A bucket that may lock all that is written gets each file with a checksum."""
    name = "spark.hadoop.fs.s3a.create.checksum.algorithm"

    conf = s3_conf({}, is_locked=is_locked)

    assert conf.get(name) == ("CRC32" if is_locked else None)


@pytest.mark.parametrize("endpoint", ["s3:9000", "http://", "http://user:secret@s3:9000"])
def test_s3_conf_endpoint_refused(endpoint: str) -> None:
    """What is no URL, or would show a password, is refused; the password isn't repeated."""
    with pytest.raises(ConfigError, match="AWS_ENDPOINT_URL") as raised:
        s3_conf({"AWS_ENDPOINT_URL": endpoint})

    assert "secret" not in str(raised.value)


def test_variables_of_connection() -> None:
    """Login and password are the key; what is empty is left out."""
    extra = {"region_name": "eu-west-1", "endpoint_url": "http://s3:9000", "profile_name": ""}

    assert variables_of("aws", "id", "secret", extra) == {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL_S3": "http://s3:9000",
    }
    assert variables_of("aws", None, None, {}) == {}


@pytest.mark.parametrize(
    ("login", "password", "extra", "match"),
    [
        ("id", None, {}, "a login without a password"),
        (None, "hidden", {}, "a password without a login"),
    ],
)
def test_variables_of_refused(
    login: str | None, password: str | None, extra: dict[str, str], match: str
) -> None:
    """Half a key is refused; no value is shown."""
    with pytest.raises(ConfigError, match=match) as raised:
        variables_of("aws", login, password, extra)

    assert "hidden" not in str(raised.value)


def test_pipeline_connection_without_store() -> None:
    """A connection that nothing would use is refused."""
    with pytest.raises(ConfigError, match="archive_conn_id"):
        Pipeline(name="p", topics=["t"], archive="/a", archive_conn_id="aws_default")


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.bucket.b.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.kubernetes.authenticate.submission.oauthToken",
        "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net",
        "spark.hadoop.fs.s3a.proxy.password",
    ],
)
def test_s3_conf_with_secret(name: str) -> None:
    """Credentials of a store would be on spark-submit's command line."""
    with pytest.raises(ConfigError, match="command line") as raised:
        check_spark_conf({name: "hidden"})

    assert "hidden" not in str(raised.value)


def test_group_of_two_stores() -> None:
    """How a checkpoint is written is one setting for all of a Spark application."""
    local = Pipeline(name="a", topics=["t"], archive="/a")
    remote = Pipeline(name="b", topics=["t"], archive="s3://bucket/b")

    with pytest.raises(ConfigError, match="make two groups"):
        check_group([local, remote])
    check_group([remote, Pipeline(name="c", topics=["t"], archive="s3://bucket/c")])


@pytest.mark.parametrize(
    ("extra", "more"),
    [
        ({}, []),
        (
            {
                "region_name": "r",
                "endpoint_url": "u",
                "aws_session_token": "t",
                "profile_name": "p",
            },
            [],
        ),
        ({"role_arn": "", "config_kwargs": {}}, []),
        (
            {"role_arn": "arn:x", "external_id": "e", "region_name": "r"},
            ["external_id", "role_arn"],
        ),
    ],
)
def test_beyond_keys(extra: dict[str, object], more: list[str]) -> None:
    """Keys, a token, a profile, a region and an endpoint are variables; a role is more."""
    assert beyond_keys(extra) == more


def test_s3_conf_credentials() -> None:
    """Spark looks for credentials wherever botocore does; none are in its configuration."""
    conf = s3_conf({"AWS_PROFILE": "archives"})

    providers = conf[f"{S3A}aws.credentials.provider"].split(",")
    assert providers[:2] == [
        "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    ]
    assert providers[2].endswith(
        ("DefaultCredentialsProvider", "DefaultAWSCredentialsProviderChain")
    )


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({}, {}),
        ({"AWS_PROFILE": "p"}, {"profile": "p"}),
        (
            {
                "AWS_ACCESS_KEY_ID": "k",
                "AWS_SECRET_ACCESS_KEY": "s",
                "AWS_SESSION_TOKEN": "t",
                "AWS_REGION": "r",
                "AWS_ENDPOINT_URL": "http://all:1",
                "AWS_ENDPOINT_URL_S3": "http://s3:2",
                "AWS_CA_BUNDLE": "/ca",
            },
            {
                "key": "k",
                "secret": "s",
                "token": "t",
                "endpoint_url": "http://s3:2",
                "client_kwargs": {"region_name": "r", "verify": "/ca"},
            },
        ),
        ({"AWS_ENDPOINT_URL": "http://all:1"}, {"endpoint_url": "http://all:1"}),
    ],
)
def test_options_of(variables: dict[str, str], options: dict[str, object]) -> None:
    """The variables as options of fsspec."""
    assert options_of(variables) == options


@pytest.mark.parametrize(
    ("installed", "package"),
    [
        ({"pyspark": "3.5.7"}, "com.amazonaws."),
        ({"pyspark": "4.0.2"}, "software.amazon.awssdk."),
        ({"pyspark-client": "4.1.0"}, "software.amazon.awssdk."),
        ({"pyspark-client": "3.5.9"}, "com.amazonaws."),
        ({}, "software.amazon.awssdk."),
    ],
)
def test_s3_conf_of_sdk(
    monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], package: str
) -> None:
    """Spark 3.5's Hadoop has the first AWS SDK, later ones the second; each its own classes."""

    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr("kafka_drain.storage.s3.version", version)

    providers = s3_conf({})["spark.hadoop.fs.s3a.aws.credentials.provider"].split(",")

    assert providers[-1].startswith(package)

"""Archives in an object store: Spark's settings for it, and how an Airflow connection opens it.

AWS's own environment variables (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …) define how S3 is reached:
the Python side, Spark's driver and all their child processes read them, and no command line
exposes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kafka_drain.errors import ConfigError
from kafka_drain.storage.endpoints import check_endpoint

S3_SCHEMES = ("s3", "s3a")

_CLOUD = "org.apache.spark.internal.io.cloud"
#: Avoids renames, which an object store can only do as copies: checkpoint files appear when they
#: are closed (HADOOP-16906), and data files when the job is committed (HADOOP-13786).
_WITHOUT_RENAMES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_CLOUD}.AbortableStreamBasedCheckpointFileManager"
    ),
    "spark.sql.sources.commitProtocolClass": f"{_CLOUD}.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": f"{_CLOUD}.BindingParquetOutputCommitter",
    "spark.hadoop.fs.s3a.committer.name": "magic",
    # Buffered in memory during upload: a container's disk may be small and read-only.
    "spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer",
}

_S3A = "org.apache.hadoop.fs.s3a"
#: Hadoop's own default lacks profiles and web identities; the SDK's default chain looks wherever
#: botocore does. Before it, Hadoop's providers for keys in its own credential files.
_KEYS = (f"{_S3A}.TemporaryAWSCredentialsProvider", f"{_S3A}.SimpleAWSCredentialsProvider")
#: By the AWS SDK's major version: Spark 3.5's Hadoop has the first.
_CHAINS = {
    1: "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
    2: "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
}

#: Environment variables for the entries of the connection's extra. The endpoint is for S3 alone:
#: KMS and STS aren't there.
_EXTRA = {
    "aws_session_token": "AWS_SESSION_TOKEN",
    "region_name": "AWS_REGION",
    "endpoint_url": "AWS_ENDPOINT_URL_S3",
    "profile_name": "AWS_PROFILE",
}


def scheme_of(archive: str) -> str:
    """Return the scheme of an archive's URL; empty for a path."""
    return archive.partition("://")[0] if "://" in archive else ""


#: A bucket that locks by default what is written refuses a file without a checksum. Hadoop has the
#: option from 3.4.2 on (HADOOP-15224); this algorithm needs no native library.
CHECKSUMS_OPTION = "fs.s3a.create.checksum.algorithm"
_CHECKSUMS = {f"spark.hadoop.{CHECKSUMS_OPTION}": "CRC32"}


def s3_conf(environment: Mapping[str, str], *, is_locked: bool = False) -> dict[str, str]:
    """Return Spark's configuration for S3.

    Args:
        environment: Source of AWS's variables. Credentials aren't taken from it: Spark's driver
            reads them itself.
        is_locked: Whether the pipeline has the store lock files, so that its bucket may by default.

    Raises:
        ConfigError: When AWS_ENDPOINT_URL isn't a URL, or contains a password.
    """
    in_profile = _settings_of_profile(environment)
    environment = {**in_profile, **{name: value for name, value in environment.items() if value}}
    conf = _WITHOUT_RENAMES | (_CHECKSUMS if is_locked else {})
    chain = _CHAINS[1 if _spark_version().startswith("3.") else 2]
    conf["spark.hadoop.fs.s3a.aws.credentials.provider"] = ",".join([*_KEYS, chain])
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint:
        check_endpoint(
            "AWS_ENDPOINT_URL", endpoint, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
        )
        conf["spark.hadoop.fs.s3a.endpoint"] = endpoint
        # Same as botocore: stores at custom endpoints rarely have a host name per bucket.
        conf["spark.hadoop.fs.s3a.path.style.access"] = "true"
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        # A custom endpoint accepts any region; without one, S3A would ask AWS for it.
        conf["spark.hadoop.fs.s3a.endpoint.region"] = region or "us-east-1"
    return conf


def _settings_of_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the endpoint and the region of the profile, as the variables that go before them.

    Python's clients follow a profile's endpoint by themselves, S3A doesn't: with the same key, it
    would ask Amazon for a bucket of the same name.
    """
    try:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ImportError:
        return {}
    profile = environment.get("AWS_DEFAULT_PROFILE") or environment.get("AWS_PROFILE")
    session = Session(profile=profile)
    if path := environment.get("AWS_CONFIG_FILE"):
        session.set_config_variable("config_file", path)
    try:
        config = session.get_scoped_config()
        services = session.full_config.get("services", {}).get(config.get("services"), {})
    except BotoCoreError:
        # Whoever opens the archive says why.
        return {}
    endpoint = services.get("s3", {}).get("endpoint_url") or config.get("endpoint_url")
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        endpoint = None
    found = {"AWS_ENDPOINT_URL": endpoint, "AWS_DEFAULT_REGION": config.get("region")}
    return {name: value for name, value in found.items() if value}


def _spark_version() -> str:
    """Return the version of the installed Spark; empty if there is none."""
    for package in ("pyspark", "pyspark-client"):
        try:
            return version(package)
        except PackageNotFoundError:
            pass
    return ""


def beyond_keys(extra: Mapping[str, Any]) -> list[str]:
    """Return the entries of a connection's extra that need more than environment variables."""
    return sorted(name for name, value in extra.items() if value and name not in _EXTRA)


def variables_of(
    conn_id: str, login: str | None, password: str | None, extra: Mapping[str, Any]
) -> dict[str, str]:
    """Return the environment variables for an Airflow connection of type Amazon Web Services.

    Args:
        conn_id: Id of the connection, for messages.
        login: Access key id; None to use the worker's environment or role.
        password: Secret access key.
        extra: `region_name`, `endpoint_url`, `aws_session_token`, `profile_name`; others aren't
            looked at.

    Raises:
        ConfigError: When only half a key pair is given.
    """
    if bool(login) != bool(password):
        raise ConfigError(
            f"the Airflow connection {conn_id!r} has {'a login' if login else 'a password'} "
            f"without {'a password' if login else 'a login'}; the login is the access key id, "
            "the password the secret access key"
        )
    found = {_EXTRA[name]: str(extra[name]) for name in _EXTRA if extra.get(name)}
    if login and password:
        found |= {"AWS_ACCESS_KEY_ID": login, "AWS_SECRET_ACCESS_KEY": password}
    return found


def options_of(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return fsspec's options for S3 that say the same as environment variables.

    A server that reads several archives can't put the variables into its environment.
    """
    named = {
        "key": variables.get("AWS_ACCESS_KEY_ID"),
        "secret": variables.get("AWS_SECRET_ACCESS_KEY"),
        "token": variables.get("AWS_SESSION_TOKEN"),
        "profile": variables.get("AWS_PROFILE"),
        "endpoint_url": variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL"),
    }
    options: dict[str, Any] = {name: value for name, value in named.items() if value}
    client = {"region_name": variables.get("AWS_REGION"), "verify": variables.get("AWS_CA_BUNDLE")}
    if given := {name: value for name, value in client.items() if value}:
        options["client_kwargs"] = given
    return options

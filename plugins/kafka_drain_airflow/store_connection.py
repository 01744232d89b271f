"""Airflow's connections of type Amazon Web Services: access to archives on S3."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, BaseHook

from kafka_drain.errors import ArchiveError, ConfigError, MachineError, StoreUnavailableError
from kafka_drain.storage.credential_server import STRONGER, Credentials, credential_server
from kafka_drain.storage.s3 import beyond_keys, options_of, scheme_of, variables_of
from kafka_drain_airflow.connections import extra_of, require_connection

if TYPE_CHECKING:
    from kafka_drain.config.pipeline import Pipeline

log = logging.getLogger(__name__)

NEEDS = "the access key's id as its login and the secret key as its password"

#: Entries of a connection's extra that only configure botocore's clients in Airflow.
_ONLY_AIRFLOW = ("config_kwargs", "service_config")

#: Variables that an SDK would follow before a profile.
_BEFORE_PROFILE = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_PROFILE"),
    *("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
)


@dataclass(frozen=True)
class StoreAccess:
    """Access to a store.

    Attributes:
        variables: AWS's environment variables, secrets included.
        renewed: Credentials that botocore renews before they end; None if `variables` has what
            there is.
    """

    variables: Mapping[str, str] = field(repr=False)
    renewed: Any = field(default=None, repr=False)

    def current(self) -> Credentials:
        """Return the credentials of this moment; they are valid for a quarter of an hour."""
        frozen = self.renewed.get_frozen_credentials()
        return frozen.access_key, frozen.secret_key, frozen.token

    def options(self) -> dict[str, Any]:
        """Return fsspec's options, with the credentials of this moment."""
        variables = dict(self.variables)
        if self.renewed is not None:
            names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
            variables |= dict(zip(names, self.current(), strict=True))
        return options_of(variables)


def store_access(conn_id: str) -> StoreAccess:
    """Return the access that a connection gives.

    Keys and a profile are what they are; for anything else, such as a role, the Amazon provider's
    hook gets the credentials.

    Raises:
        ConfigError: If the connection doesn't exist, or the hook refuses it.
        MachineError: If it needs the Amazon provider, which isn't installed.
        ArchiveError: If AWS refuses the role.
        StoreUnavailableError: If AWS doesn't answer.
    """
    require_connection(conn_id, "Amazon Web Services", NEEDS)
    connection = BaseHook.get_connection(conn_id)
    extra = extra_of(connection, conn_id)
    more = beyond_keys(extra)
    if not more:
        return StoreAccess(variables_of(conn_id, connection.login, connection.password, extra))
    return _by_hook(conn_id, more)


def _by_hook(conn_id: str, more: list[str]) -> StoreAccess:
    who = f"the Airflow connection {conn_id!r}"
    try:
        from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook
        from botocore.credentials import RefreshableCredentials
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError
    except ImportError as error:
        raise MachineError(
            f"{who} has {', '.join(more)} in its extra, which needs Airflow's Amazon provider "
            f"({error}); install apache-airflow-providers-amazon"
        ) from error
    hook = AwsGenericHook(aws_conn_id=conn_id, client_type="s3")
    try:
        session = hook.get_session()
        credentials = session.get_credentials()
        # Before the environment changes: the credentials may come from there.
        frozen = credentials.get_frozen_credentials() if credentials else None
    except ClientError as error:
        raise ArchiveError(
            f"{who} gives no access: {error}; check the role, its trust policy and the credentials "
            "that assume it"
        ) from error
    except (ConnectionError, HTTPClientError) as error:
        raise StoreUnavailableError(f"AWS doesn't answer for {who}: {error}") from error
    except (BotoCoreError, AirflowException, NotImplementedError, ValueError, KeyError) as error:
        raise ConfigError(f"{who} isn't acceptable: {type(error).__name__}: {error}") from error
    if frozen is None:
        raise ArchiveError(
            f"{who} gives no credentials, and this machine has none; give keys, a profile or a role"
        )
    unused = [name for name in more if name in _ONLY_AIRFLOW]
    if unused:
        log.warning(
            "%s: %s is for Airflow's own AWS clients; only an endpoint of S3 in it is used",
            who,
            ", ".join(unused),
        )
    variables = _variables(hook, session)
    if isinstance(credentials, RefreshableCredentials):
        return StoreAccess(variables, credentials)
    found = (frozen.access_key, frozen.secret_key, frozen.token)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    keys = {name: value for name, value in zip(names, found, strict=True) if value}
    return StoreAccess(variables | keys)


def _variables(hook: Any, session: Any) -> dict[str, str]:
    """Return the hook's settings besides credentials: region, S3's endpoint and its authority."""
    found = {
        "AWS_REGION": hook.region_name or session.region_name,
        # Not AWS_ENDPOINT_URL: the role is assumed elsewhere.
        "AWS_ENDPOINT_URL_S3": hook.conn_config.get_service_endpoint_url("s3"),
        "AWS_CA_BUNDLE": hook.verify if isinstance(hook.verify, str) else None,
    }
    if hook.verify is False:
        log.warning(
            "the Airflow connection %r: verify = false isn't applied; give the path of the "
            "store's authority, which Java needs in its truststore too",
            hook.aws_conn_id,
        )
    return {name: str(value) for name, value in found.items() if value}


@contextmanager
def archive_access(pipeline: Pipeline) -> Iterator[None]:
    """Give the body access to the archive's store with the pipeline's `archive_conn_id`.

    While the body runs, what opens the store is in this process's environment, as AWS's own
    variables: child processes such as Spark's driver inherit them, they don't appear on any command
    line, and threads find them when they open the archive by its URL. A value that is passed on, or
    a context variable, would have to reach all of these. A task has a process of its own, so
    nothing else sees them. Credentials that end are renewed: see `credential_server`.

    Raises:
        ConfigError: If the connection doesn't exist or has a setting that isn't accepted.
        MachineError: If it needs the Amazon provider, which isn't installed.
        ArchiveError: If AWS refuses the role.
        StoreUnavailableError: If AWS doesn't answer.
    """
    if pipeline.archive_conn_id is None:
        yield
        return
    access = store_access(pipeline.archive_conn_id)
    if access.renewed is None:
        with _environment(access.variables, pipeline.archive):
            yield
        return
    with (
        credential_server(access.current) as server,
        _environment({**access.variables, **server}, pipeline.archive),
    ):
        yield


@contextmanager
def _environment(variables: Mapping[str, str], archive: str) -> Iterator[None]:
    """Put variables into this process's environment for the body."""
    before = dict(os.environ)
    replaced = set(variables)
    if "AWS_CONTAINER_CREDENTIALS_FULL_URI" in variables:
        replaced.update(STRONGER)
    elif "AWS_ACCESS_KEY_ID" in variables:
        replaced.update(("AWS_SESSION_TOKEN", "AWS_PROFILE"))
    elif "AWS_PROFILE" in variables:
        replaced.update(_BEFORE_PROFILE)
    for name in replaced - set(variables):
        os.environ.pop(name, None)
    os.environ.update(variables)
    # fsspec caches file systems together with the credentials they found.
    from fsspec import get_filesystem_class

    filesystem = get_filesystem_class(scheme_of(archive))
    filesystem.clear_instance_cache()
    try:
        yield
    finally:
        filesystem.clear_instance_cache()
        for name in replaced:
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]

"""Read an erasure's names from an Airflow connection: never from a form, which anyone may see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import BaseHook

from kafka_drain.errors import ConfigError
from kafka_drain_airflow.connections import extra_of, require_connection

if TYPE_CHECKING:
    from kafka_drain.config.pipeline import Pipeline

#: Texts that may replace `{request}` in a connection's id.
_ID = re.compile(r"[A-Za-z0-9_.-]+")

#: Keys of the connection's extra.
_FILES = {"keys_file", "headers_file"}

Keys = frozenset[bytes] | None
Headers = frozenset[tuple[str, bytes]] | None


def erase_connection_id(pattern: str, request: str) -> str:
    """Return the id of a request's connection.

    Args:
        pattern: The pipeline's `erase_conn_id`.
        request: The request's id.

    Raises:
        ConfigError: When the request's id can't be a part of a connection's.
    """
    if "{request}" in pattern and not _ID.fullmatch(request):
        raise ConfigError(
            f"request {request!r} can't be a part of a connection's id ({pattern}); accepted: "
            "letters, digits, and any of _.-"
        )
    return pattern.replace("{request}", request)


def erased_names(pipeline: Pipeline, request: str) -> tuple[Keys, Headers, str]:
    """Return the keys and headers of the records that a request names.

    The connection's password is the keys, one a line; instead, its extra may name a file of the
    worker as `keys_file`, and one with headers as `headers_file`.

    Returns:
        The keys and the headers, each None if there are none, and what names them, in words.

    Raises:
        ConfigError: If the connection doesn't exist or can't be read; names no key.
    """
    from kafka_drain.maintenance.erasure_request import parse_keys, read_headers, read_keys

    assert pipeline.erase_conn_id is not None
    conn_id = erase_connection_id(pipeline.erase_conn_id, request)
    require_connection(conn_id, "Generic", "the keys as its password, one a line")
    connection, who = BaseHook.get_connection(conn_id), f"the Airflow connection {conn_id!r}"
    extra = extra_of(connection, conn_id)
    _refuse_extra(extra, who)
    keys: Keys = None
    if connection.password and extra.get("keys_file"):
        raise ConfigError(f"{who} has keys as its password and keys_file; leave one of them out")
    if connection.password:
        keys = parse_keys(connection.password, f"the password of {who}")
    elif extra.get("keys_file"):
        keys = read_keys(str(extra["keys_file"]))
    headers = read_headers(str(extra["headers_file"])) if extra.get("headers_file") else None
    return keys, headers, who


def _refuse_extra(extra: Mapping[str, object], who: str) -> None:
    if unknown := sorted(extra.keys() - _FILES):
        raise ConfigError(
            f"{who} has {', '.join(unknown)} in its extra; accepted: {', '.join(sorted(_FILES))}"
        )

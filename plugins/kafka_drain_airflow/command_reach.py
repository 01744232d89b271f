"""Addresses of Kafka, Spark and the registry for commands on pages, by Airflow's connections."""

from __future__ import annotations

from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import BaseHook

from kafka_drain.pages.commands import Reach
from kafka_drain_airflow.connections import spark_connection


def reach_of(archive: str, *, store: str, kafka: str, spark: str, registry: str) -> Reach:
    """Return the settings for commands on an archive, from its pipeline's connections; no secrets.

    What can't be read here, such as a connection that only workers have, is named in a note.

    Args:
        archive: Its path or URL.
        store: Id of the connection that opens it; empty for none, as of the others.
        kafka: Id of the connection of its Kafka.
        spark: Id of the connection of its Spark.
        registry: Id of the connection of its Schema Registry.
    """
    notes: list[str] = []
    servers, kafka_config = _kafka(kafka, notes)
    master, mode = _spark(spark, notes)
    url = _registry(registry, notes)
    if store:
        notes.append(
            "AWS's environment variables, such as `AWS_ACCESS_KEY_ID`, give the access of the "
            f"Airflow connection {_named(store)}"
        )
    return Reach(archive, servers, kafka_config, master, mode, url, notes)


def _kafka(conn_id: str, notes: list[str]) -> tuple[str, str]:
    """Return the brokers, and the name of a file if there are further settings."""
    settings = _extra(conn_id, notes)
    servers = str(settings.pop("bootstrap.servers", "") or "")
    # The group is that of other consumers with this connection.
    if not settings.keys() - {"group.id"}:
        return servers, ""
    file = f"{conn_id}.json"
    notes.append(f"`{file}` is a file with the extra of the Airflow connection {_named(conn_id)}")
    return servers, file


def _spark(conn_id: str, notes: list[str]) -> tuple[str, str]:
    """Return the master and the deploy mode."""
    if not conn_id:
        return "", "client"
    try:
        found = spark_connection(conn_id)
    except Exception as error:
        notes.append(f"The Spark master isn't known here: {_plain(error)}")
        return "", "client"
    if found.token:
        notes.append(
            "`SPARK_CONNECT_AUTHENTICATE_TOKEN` has the password of the Airflow connection "
            f"{_named(conn_id)}"
        )
    return found.master, found.deploy_mode


def _registry(conn_id: str, notes: list[str]) -> str:
    """Return the registry's URL, if that is all that opens it."""
    settings = _extra(conn_id, notes)
    url = str(settings.pop("url", "") or "")
    has_login = "@" in urlsplit(url).netloc
    if (settings or has_login) and conn_id:
        notes.append(
            "`--registry-config` names a file with the extra of the Airflow connection "
            f"{_named(conn_id)}"
        )
        return ""
    return url


def _extra(conn_id: str, notes: list[str]) -> dict[str, object]:
    if not conn_id:
        return {}
    try:
        return dict(BaseHook.get_connection(conn_id).extra_dejson)
    except Exception as error:
        # Whatever a secrets backend raises: the page is there for worse.
        notes.append(f"The connection {_named(conn_id)} can't be read here: {_plain(error)}")
        return {}


def _named(conn_id: str) -> str:
    return f"`{_plain(conn_id)}`"


def _plain(said: object) -> str:
    """Return a text without the mark of commands."""
    return str(said).replace("`", "'")

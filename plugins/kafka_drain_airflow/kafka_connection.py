"""Airflow's Kafka connections, as the provider's hook reads them, as settings of the core."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowOptionalProviderFeatureException,
    BaseHook,
    conf,
)

from kafka_drain.errors import ConfigError
from kafka_drain_airflow.connections import extra_of, require_connection

if TYPE_CHECKING:
    from kafka_drain.kafka.cluster import KafkaCluster

log = logging.getLogger(__name__)

#: Option of an Airflow that lists the functions that its Kafka connections may name.
SECTION, OPTION = "apache_kafka", "callback_allowlist"

#: Settings that the provider's hook takes as dotted paths.
FUNCTIONS = ("error_cb", "throttle_cb", "stats_cb", "log_cb", "oauth_cb", "on_commit")

#: Warnings that this process has logged.
_logged: set[tuple[str, str]] = set()


def kafka_cluster(conn_id: str) -> KafkaCluster:
    """Return the Kafka cluster described by a connection of type Kafka.

    Logs what follows from settings that aren't used, once per process, and when it doesn't answer.

    Raises:
        ConfigError: If the connection doesn't exist or a setting isn't accepted.
    """
    # Imported here because DAG files import this module, and confluent_kafka is slow to import.
    from kafka_drain.kafka.client_config import KafkaConfig
    from kafka_drain.kafka.cluster import watched

    require_connection(conn_id, "Kafka", '{"bootstrap.servers": "host:9092"} as its extra')
    try:
        config = KafkaConfig(_settings(conn_id))
    except ConfigError as error:
        raise ConfigError(f"the Airflow connection {conn_id!r}: {error}") from error
    for warning in config.warnings:
        if (conn_id, warning) not in _logged:
            _logged.add((conn_id, warning))
            log.warning("the Airflow connection %r: %s", conn_id, warning)
    return watched(config, lambda text: log.info("%r: %s", conn_id, text))


def _settings(conn_id: str) -> dict[str, Any]:
    """Return a connection's settings as JSON types: functions by their dotted paths.

    Other processes get them too, so functions are imported only where a client is made.

    Raises:
        ConfigError: If the provider's hook refuses the connection.
    """
    from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook

    from kafka_drain.kafka.logins import is_google

    class SettingsHook(KafkaBaseHook):
        """Reads a connection as the provider's hooks do, and makes no client of it."""

        def _get_client(self, config: dict[str, Any]) -> dict[str, Any]:
            return config

    written = extra_of(BaseHook.get_connection(conn_id), conn_id)
    paths = {
        name: value
        for name, value in written.items()
        if name in FUNCTIONS and isinstance(value, str)
    }
    for name, path in paths.items():
        _require_allowed(name, path)
    if not written.get("bootstrap.servers"):
        # The core takes librdkafka's other name of them, or says how to add them.
        return dict(written)
    if not isinstance(written["bootstrap.servers"], str):
        raise ConfigError(
            f"bootstrap.servers is a {type(written['bootstrap.servers']).__name__}; expected text, "
            "addresses with commas between them"
        )
    if is_google(written["bootstrap.servers"]):
        # The hook would need Google's provider and a connection of it, for a function that the core
        # has itself.
        return dict(written)
    try:
        hook: Any = SettingsHook
        read = hook(conn_id).get_conn
    except (ValueError, ImportError, AirflowOptionalProviderFeatureException) as error:
        raise ConfigError(str(error)) from error
    # The hook's own functions for managed clusters are left out: the core has them.
    return {name: value for name, value in read.items() if not callable(value)} | paths


def _require_allowed(name: str, path: str) -> None:
    """Require that whoever configures this Airflow has allowed a function.

    Whoever edits connections could otherwise run any code in a task.
    """
    allowed = [each.strip() for each in conf.get(SECTION, OPTION, fallback="").split(",")]
    if path not in allowed:
        raise ConfigError(
            f"{name} = {path!r} isn't allowed in this Airflow: add it to [{SECTION}] {OPTION} in "
            f"airflow.cfg (AIRFLOW__{SECTION.upper()}__{OPTION.upper()}), a list of dotted paths "
            "with commas"
        )

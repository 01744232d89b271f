"""Airflow's connection with the key that signs evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import BaseHook

from kafka_drain.errors import ConfigError
from kafka_drain_airflow.connections import extra_of, listed, require_connection
from kafka_drain_airflow.kafka_connection import kafka_cluster

if TYPE_CHECKING:
    from kafka_drain.config.pipeline import Pipeline
    from kafka_drain.evidence.signing import Signer


def evidence_signer(pipeline: Pipeline) -> Signer | None:
    """Return the signer of a pipeline's evidence with its witness; None if nobody signs.

    The connection's password is the private key in PEM; instead, its extra may name a file of the
    worker as `key_file`. The extra's `former_public_keys` are those that it replaced, in PEM.

    Raises:
        ConfigError: If the connection doesn't exist or its key isn't acceptable.
    """
    conn_id = pipeline.evidence_conn_id
    if conn_id is None:
        return None
    # Not at the top: DAG files import this module, and most pipelines sign nothing.
    from kafka_drain.evidence.keys import PublicKey, SigningKey
    from kafka_drain.evidence.signing import Signer
    from kafka_drain.evidence.witness import open_witness

    require_connection(conn_id, "Generic", "the private key in PEM as its password")
    connection, who = BaseHook.get_connection(conn_id), f"the Airflow connection {conn_id!r}"
    extra = extra_of(connection, conn_id)
    if connection.password:
        key = SigningKey.parse(connection.password, who)
    elif extra.get("key_file"):
        key = SigningKey.read(str(extra["key_file"]))
    else:
        raise ConfigError(
            f"{who} has no key; expected the private key in PEM as its password, or key_file in "
            "its extra. `kafka-drain evidence-key FILE` creates one"
        )
    former = [PublicKey.parse(pem, who) for pem in listed(extra.get("former_public_keys"))]
    if pipeline.witness is None:
        return Signer(key, former)
    conn_id_of_topic = pipeline.witness_conn_id or pipeline.kafka_conn_id
    witness = open_witness(pipeline.witness, lambda: kafka_cluster(conn_id_of_topic))
    return Signer(key, former, witness)

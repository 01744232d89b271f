"""The connection with the key that signs evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.witness import WitnessTopic
from kafka_drain_airflow.evidence_connection import evidence_signer

SIGNED = Pipeline(name="p", topics=["t"], archive="/a", evidence_conn_id="key")


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Set the connection that has the key."""
    monkeypatch.setenv("AIRFLOW_CONN_KEY", json.dumps({"conn_type": "generic", **fields}))


def test_evidence_signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is the connection's password, or a file that the extra names."""
    old, new = SigningKey.create(tmp_path / "old"), SigningKey.create(tmp_path / "new")
    former = {"former_public_keys": [(tmp_path / "old.pub").read_text()]}
    connect(monkeypatch, password=(tmp_path / "new").read_text(), extra=former)
    signer = evidence_signer(SIGNED)
    assert signer is not None

    assert (signer.key, list(signer.former), signer.witness) == (new, [old.public], None)
    connect(monkeypatch, extra={"key_file": str(tmp_path / "old")})
    found = evidence_signer(SIGNED)
    assert found is not None
    assert (found.key, list(found.former)) == (old, [])
    with_witness = SIGNED.model_copy(update={"witness": "/w.jsonl"})
    found = evidence_signer(with_witness)
    assert found is not None
    assert found.witness is not None
    assert found.witness.name == "/w.jsonl"


def test_evidence_signer_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A witness that is a topic may be in another cluster than the source."""
    SigningKey.create(tmp_path / "key")
    connect(monkeypatch, extra={"key_file": str(tmp_path / "key")})
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "elsewhere:9092"}}
    monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", json.dumps(kafka))
    keys = {"witness": "kafka:w", "witness_conn_id": "elsewhere"}
    signer = evidence_signer(SIGNED.model_copy(update=keys))
    assert signer is not None

    assert isinstance(signer.witness, WitnessTopic)
    assert signer.witness._cluster.config.bootstrap_servers == "elsewhere:9092"
    # By default, it is in the source's.
    keys = {"witness": "kafka:w", "kafka_conn_id": "elsewhere"}
    signer = evidence_signer(SIGNED.model_copy(update=keys))
    assert signer is not None
    assert isinstance(signer.witness, WitnessTopic)
    assert signer.witness._cluster.config.bootstrap_servers == "elsewhere:9092"


def test_evidence_signer_none() -> None:
    """Without a connection, nobody signs."""
    assert evidence_signer(SIGNED.model_copy(update={"evidence_conn_id": None})) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "has no key; expected the private key in PEM as its password"),
        ({"password": "secret"}, "the Airflow connection 'key' holds no private key"),
        ({"extra": {"key_file": "/none"}}, "/none can't be read"),
    ],
)
def test_evidence_signer_refused(
    fields: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without an acceptable key is refused, without showing its password."""
    connect(monkeypatch, **fields)
    with pytest.raises(ConfigError, match=words) as caught:
        evidence_signer(SIGNED)

    assert "secret" not in str(caught.value)


def test_evidence_signer_no_connection() -> None:
    """A connection that doesn't exist is named, with how to create it."""
    with pytest.raises(ConfigError, match="there is no Airflow connection 'key'"):
        evidence_signer(SIGNED)

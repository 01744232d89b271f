"""Statements: what is signed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_drain.errors import EvidenceError
from kafka_drain.evidence.statement import MEANINGS, Statement

GOOD = Statement(
    "drill", "2026-01-01T00:00:00+00:00", "id", "flights", {"a": "1"}, {"b": "2"}, {"topic": "ü"}
)


def test_statement_round_trip() -> None:
    """A statement is read as it was signed; the same one is always the same bytes."""
    assert Statement.parse(GOOD.to_bytes()) == GOOD
    assert Statement.parse(GOOD.to_bytes()).to_bytes() == GOOD.to_bytes()


def test_statement_half_surrogate() -> None:
    """A name that isn't valid text, as Kafka may hold, can be signed."""
    odd = Statement("drill", "now", document={"topic": "\udc80"})

    assert Statement.parse(odd.to_bytes()) == odd


@pytest.mark.parametrize("kind", MEANINGS)
def test_statement_kinds(kind: Any) -> None:
    """Each kind that has a meaning can be read."""
    assert Statement.parse(Statement(kind, "now").to_bytes()).kind == kind


@pytest.mark.parametrize(
    "changes",
    [{"kind": "other"}, {"format_version": 2}, {"heads": None}, {"archive": {}}, {"document": 1}],
)
def test_statement_refused(changes: dict[str, Any]) -> None:
    """Signed bytes of another kind or version, or that are no statement, are refused."""
    document = json.loads(GOOD.to_bytes()) | changes

    with pytest.raises(EvidenceError, match="has a correct signature, but"):
        Statement.parse(json.dumps(document).encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'"text"'])
def test_statement_something_else(content: bytes) -> None:
    """Signed bytes that aren't a JSON object are refused."""
    with pytest.raises(EvidenceError, match="holds no statement"):
        Statement.parse(content)

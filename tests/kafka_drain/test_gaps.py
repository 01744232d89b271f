"""Reasons of gaps, in words."""

from __future__ import annotations

from kafka_drain.gaps import gaps_text


def test_gaps_text() -> None:
    """Each reason has its number, and nothing has a word."""
    assert gaps_text({"control": 2_000, "not_archived": 1}) == "2,000 control, 1 not archived"
    assert gaps_text({}) == "none"

"""The example of a DAG that is scheduled on an archive."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.events import segment_events
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.made_archive import MadeArchive, dense

FILE = Path(__file__).resolve().parents[2] / "dags" / "flights_delays.py"
FLIGHTS = TopicPartition("flights", 0)


def flight(carrier: str, delay: int | None) -> bytes:
    """Return a record's value."""
    return json.dumps({"carrier": carrier, "dep_delay": delay}).encode()


def test_mean_delays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means are of the flights that were just sealed, not of those that never departed."""
    made = MadeArchive(tmp_path / "flights", {"flights": "id"})
    flown = [("UA", 90), ("UA", 10), ("AA", -3), ("UA", None), ("UA", 5), ("UA", 0), ("DL", 0)]
    for offset, (carrier, delay) in enumerate(flown):
        value = flight(carrier, delay)
        made.seal({FLIGHTS: dense(offset, offset + 1)}, value=value)
    made.open_generation()
    receipts = list(made.archive.generation(1).receipts())
    monkeypatch.setenv("KAFKA_DRAIN_ARCHIVES", str(tmp_path))
    mean_delays: Any = runpy.run_path(str(FILE))["mean_delays"].function
    # The first one was told of before; an event that was created by hand tells nothing.
    events = [SimpleNamespace(extra={"segments": [one]}) for one in segment_events(receipts[1:])]
    events.append(SimpleNamespace(extra={}))

    for name in ("triggering_asset_events", "triggering_dataset_events"):
        assert mean_delays(**{name: {"asset": events}}) == {"AA": -3.0, "DL": 0.0, "UA": 5.0}

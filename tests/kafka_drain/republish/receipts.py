"""Receipts of republish runs, for tests that need only some of what they say."""

from __future__ import annotations

from typing import Any

from kafka_drain.republish.planning.documents import ReceiptJson
from tests.kafka_drain.made_archive import NOW


def receipt_of(**changes: Any) -> ReceiptJson:
    """A receipt of a run that sent nothing, but for some changes."""
    receipt: ReceiptJson = {
        "format_version": 1,
        "run": "run",
        "key": "run-0123456789ab",
        "pipeline": "made",
        "plan": "0" * 64,
        "request": {},
        "delivery": "exactly_once",
        "exactly_once": True,
        "transactions": "strict",
        "engine": "worker",
        "cluster_id": "",
        "records": 0,
        "attempts": 1,
        "seconds": 0.5,
        "records_per_second": 0,
        "started_at": NOW.isoformat(),
        "finished_at": NOW.isoformat(),
        "timestamps_replaced": 0,
        "verification": None,
        "sent": [],
        "through": None,
    }
    receipt.update(changes)  # type: ignore[typeddict-item]
    return receipt

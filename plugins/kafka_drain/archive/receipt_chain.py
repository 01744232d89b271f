"""Check that a receipt follows its predecessor. Plain arithmetic; opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kafka_drain.archive.receipts import Receipt
from kafka_drain.findings import Finding, Reason


def check_link(
    receipt: Receipt,
    before: Receipt | None,
    previous: str | None,
    where: str,
    forgotten: Mapping[str, str] = MappingProxyType({}),
) -> list[Finding]:
    """Check that a receipt follows its predecessor.

    Args:
        receipt: The receipt.
        before: The previous receipt of the same generation; None for its first one.
        previous: SHA-256 of the previous receipt, even of another generation; None for the first.
        where: The receipt's file, relative to the archive.
        forgotten: SHA-256 of lost receipts that were given up, by the file of the receipt that was
            sealed after them.
    """
    if receipt.previous is not None and forgotten.get(where) == receipt.previous:
        return []
    expected = before.last_batch + 1 if before else 0
    if receipt.first_batch != expected:
        detail = (
            f"starts with batch {receipt.first_batch}, but the previous receipt ends at "
            f"{expected - 1}"
        )
        return [Finding(Reason.RECEIPT_HOLE, where, detail)]
    if receipt.previous != previous:
        detail = (
            f"was sealed after receipt {str(receipt.previous)[:12]}, but the previous receipt is "
            f"{str(previous)[:12]}"
        )
        return [Finding(Reason.RECEIPT_CHANGED, where, detail)]
    return []

"""Whether a receipt follows the one before. Plain arithmetic; opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kafka_drain.archive.receipts import Receipt
from kafka_drain.findings import Finding, Reason

__all__ = ["check_link"]


def check_link(
    receipt: Receipt,
    before: Receipt | None,
    previous: str | None,
    where: str,
    forgotten: Mapping[str, str] = MappingProxyType({}),
) -> list[Finding]:
    """Check that a receipt follows the one before.

    Args:
        receipt: The receipt.
        before: The receipt before in the same generation; None for its first one.
        previous: SHA-256 of the receipt before, also of another generation; None for the first.
        where: The receipt's file, relative to the archive.
        forgotten: SHA-256 of lost receipts that somebody has given up, by the file of the receipt
            that was sealed after them.
    """
    if receipt.previous is not None and forgotten.get(where) == receipt.previous:
        return []
    expected = before.last_batch + 1 if before else 0
    if receipt.first_batch != expected:
        detail = f"seals from batch {receipt.first_batch}, the one before ends at {expected - 1}"
        return [Finding(Reason.RECEIPT_HOLE, where, detail)]
    if receipt.previous != previous:
        detail = (
            f"was sealed after receipt {str(receipt.previous)[:12]}, the one before is "
            f"{str(previous)[:12]}"
        )
        return [Finding(Reason.RECEIPT_CHANGED, where, detail)]
    return []

"""Check that a receipt follows its predecessor. Plain arithmetic; opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kafka_drain.archive.receipt_figures import contradiction
from kafka_drain.archive.receipts import MisplacedError, Receipt, ReceiptError
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


def check_figures(receipt: Receipt, before: Receipt | None, where: str) -> list[Finding]:
    """Check that a receipt's figures agree with each other, and with those of its predecessor.

    Args:
        before: The previous receipt of the same generation; None if it isn't known.
        where: The receipt's file, relative to the archive.
    """
    known = before if before is not None and receipt.previous == before.sha256 else None
    problem = contradiction(receipt, known)
    return [Finding(Reason.RECEIPT_CONTRADICTS, where, problem)] if problem else []


def unreadable(error: ReceiptError, where: str) -> Finding:
    """Return the finding for a receipt that can't be read."""
    is_copy = isinstance(error, MisplacedError)
    reason = Reason.RECEIPT_MISPLACED if is_copy else Reason.RECEIPT_CORRUPT
    return Finding(reason, where, str(error).removeprefix(f"{where} "))

"""The windows of an archive: what they hold, and whether their files are what was sealed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kafka_drain.archive import Archive
from kafka_drain.findings import Finding, Reason
from kafka_drain.generation import list_data_files
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.receipts import Receipt, ReceiptError
from kafka_drain.report import Report
from kafka_drain.sealed_files import damage_of
from kafka_drain.sealing import Identity
from kafka_drain.window import Window

__all__ = ["HeldByWindows", "check_files", "check_windows"]

_DAMAGE = (Reason.FILE_MISSING, Reason.FILE_SIZE, Reason.FILE_CORRUPT, Reason.FILE_CHANGED)


@dataclass(frozen=True)
class HeldByWindows:
    """What the sealed windows hold, and for which damaged files they stand.

    Attributes:
        receipts: Their receipts.
        replaced: Files that they stand for, relative to the archive.
        superseded: Those of them that were sound: nobody needs them any more.
    """

    receipts: Sequence[Receipt]
    replaced: frozenset[str]
    superseded: frozenset[str]

    def ranges(self, identity: Identity) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the offsets that windows hold or explain, of topics with the same ids."""
        found: dict[TopicPartition, list[OffsetRange]] = {}
        for receipt in self.receipts:
            for part in receipt.partitions:
                if receipt.topics.get(part.tp.topic) == identity.topics.get(part.tp.topic):
                    found.setdefault(part.tp, []).append(part.range)
        return {tp: merge(ranges) for tp, ranges in found.items()}

    def excuse(self, finding: Finding) -> Finding:
        """Make a warning of a damaged file whose records a window holds."""
        if finding.reason in _DAMAGE and finding.where in self.replaced:
            return replace(
                finding,
                reason=Reason.FILE_REPLACED,
                detail=f"{finding.reason}: {finding.detail}; a window holds its records",
            )
        return finding


def check_windows(archive: Archive, report: Report, *, deep: bool) -> HeldByWindows:
    """Check the sealed windows of an archive; those without a receipt hold nothing yet."""
    sealed: list[tuple[Window, Receipt]] = []
    for window in archive.windows():
        if not window.is_sealed:
            continue
        try:
            sealed.append((window, window.receipt()))
        except ReceiptError as error:
            where = f"{window.name}/receipt.json"
            report.findings.append(Finding(Reason.RECEIPT_CORRUPT, where, str(error)))
    superseded = frozenset(
        path for window, receipt in sealed if window.supersedes for path in receipt.replaces
    )
    receipts: list[Receipt] = []
    for window, receipt in sealed:
        damage = check_files(window, receipt, deep=deep, superseded=superseded)
        report.findings += damage
        report.add_window(window.key, receipt, window.plan().get("replaced"))
        if not damage:
            receipts.append(receipt)
    replaced = frozenset(path for receipt in receipts for path in receipt.replaces)
    return HeldByWindows(receipts, replaced, superseded)


def check_files(
    window: Window, receipt: Receipt, *, deep: bool, superseded: Collection[str] = ()
) -> list[Finding]:
    """Compare a window's files with its receipt, but for those that another window stands for."""
    listing = list_data_files(window.data)
    found = []
    for file in receipt.files:
        if file.path in superseded:
            continue
        size = listing.get(file.path.removeprefix(f"{window.data_name}/"))
        found.append(damage_of(window.root, file, size, deep=deep))
    return [finding for finding in found if finding is not None]

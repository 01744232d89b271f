"""Check an archive's windows: their offsets, and whether their files are as sealed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_drain.archive.fold import Fold, Partition, WindowKind
from kafka_drain.archive.generation import list_data_files
from kafka_drain.archive.journal.entries import REMOVED, Noted
from kafka_drain.archive.receipts import Receipt, SealedFile, records_of
from kafka_drain.archive.snapshot import Snapshot, SnapshotWindow
from kafka_drain.archive.window import Window
from kafka_drain.archive.window_figures import Accounts
from kafka_drain.config.offset_ranges import parse_ranges, range_name
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.encryption.data_keys import list_keys
from kafka_drain.errors import KEY_ERRORS, ArchiveError, DataFileError, DataLossError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, Offsets, TopicPartition, count, merge, within, without
from kafka_drain.proof.sealed_files import Deep, check_records, damage_of, lost_ranges
from kafka_drain.proof.sealing import Identity

_DAMAGE = (Reason.FILE_MISSING, Reason.FILE_SIZE, Reason.FILE_CORRUPT, Reason.FILE_CHANGED)


@dataclass(frozen=True)
class HeldByWindows:
    """The offsets of the sealed windows, and the files that they replace.

    Attributes:
        whole: The intact windows that no other window replaces.
        replaced: Files that intact windows replace, relative to the archive.
        superseded: Files that were intact when a window replaced them: they are no longer needed.
        drained_again: Files whose records a window has read again from Kafka, or deleted.
        damaged: Damaged windows, each with the offsets that its damaged files held.
        sealed: All sealed windows, damaged or not.
    """

    whole: Fold[SnapshotWindow]
    replaced: frozenset[str]
    superseded: frozenset[str]
    drained_again: frozenset[str] = frozenset()
    damaged: Sequence[tuple[SnapshotWindow, Mapping[TopicPartition, list[OffsetRange]]]] = ()
    sealed: Fold[SnapshotWindow] = field(default_factory=lambda: Fold(()))

    def erased(self, identity: Identity) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the offsets that were erased of topics with the same ids; damage keeps them so."""
        return self.sealed.erased_of(identity.topics)

    def erasures(self) -> list[dict[str, Any]]:
        """Return the erasures that were carried out, and the number of records of each."""
        found: dict[int, dict[str, Any]] = {}
        for window in self.sealed.superseding:
            if window.kind is not WindowKind.ERASURE:
                continue
            # A plan that is lost has a finding of its own.
            with suppress(ArchiveError):
                for row in window.plan.erasures or ():
                    before = found.get(row["erasure"], {"records": 0})
                    found[row["erasure"]] = {
                        **{name: row[name] for name in ("erasure", "request", "by")},
                        "records": before["records"] + row["records"],
                    }
        return [found[number] for number in sorted(found)]

    def ranges(self, identity: Identity) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the offsets that windows hold or explain, for topics with the same ids.

        Of a damaged one, its other files still hold theirs, and readers get them.
        """
        held = self.whole.held_of(identity.topics)
        for window, lost in self.damaged:
            for tp, own in self.sealed.only({window.key}).held_of(identity.topics).items():
                held[tp] = merge([*held.get(tp, ()), *without(own, lost.get(tp, ()))])
        return held

    def accepted(self, identity: Identity) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the offsets whose loss was accepted when windows were sealed, for the same topics.

        Kafka no longer had them when a repair drained the rest of a lost file again.
        """
        found: dict[TopicPartition, list[OffsetRange]] = {}
        for window in self.of_same_topics(identity):
            receipt = window.receipt
            for tp, ranges in parse_ranges("acknowledged", receipt.acknowledged).items():
                if receipt.topics.get(tp.topic) == identity.topics.get(tp.topic):
                    found.setdefault(tp, []).extend(ranges)
        return {tp: merge(ranges) for tp, ranges in found.items()}

    def of_same_topics(self, identity: Identity) -> Sequence[SnapshotWindow]:
        """Return the windows that hold a topic with the same id."""
        return self.whole.of_topics(identity.topics).windows

    def without_replaced(
        self, files: Iterable[CommittedFile]
    ) -> tuple[list[CommittedFile], list[Finding]]:
        """Return the files that no window replaces, and a warning for each replaced one."""
        files = list(files)
        return [file for file in files if file.path not in self.replaced], [
            Finding(Reason.FILE_REPLACED, file.path, "a window replaces it")
            for file in files
            if file.path in self.replaced
        ]

    def excuse(self, finding: Finding) -> Finding:
        """Turn the finding for a damaged file into a warning if a window replaces it."""
        if finding.reason in _DAMAGE and finding.subject in self.replaced:
            return replace(
                finding,
                reason=Reason.FILE_REPLACED,
                detail=f"{finding.reason}: {finding.detail}; a window replaces it",
            )
        return finding


@dataclass(frozen=True)
class WindowFigures:
    """A sealed window's part of a report.

    Attributes:
        key: The window's name.
        replaced: Files, bytes and records of the intact files that it replaces, which are counted
            elsewhere; None if it replaces none.
        damaged: Its files that are gone or changed.
    """

    key: str
    receipt: Receipt
    replaced: Mapping[str, Any] | None
    damaged: Sequence[SealedFile]


class LeftToWindows:
    """The offsets that receipts leave to windows: filled receipt by receipt."""

    def __init__(self) -> None:
        self._left: dict[Partition, list[OffsetRange]] = {}
        self._held: dict[Partition, list[OffsetRange]] = {}

    def look(self, receipt: Receipt) -> None:
        """Take a receipt of a generation or of a window."""
        for part in receipt.partitions:
            key = part.tp, receipt.topics.get(part.tp.topic, "")
            left = part.gaps.get(GapReason.WINDOW)
            if left:
                self._left.setdefault(key, []).extend(left)
            if receipt.window:
                self._held.setdefault(key, []).extend(without([part.range], left or ()))

    def uncovered(self) -> dict[Partition, list[OffsetRange]]:
        """Return those that no window has."""
        found = {
            key: without(merge(left), self._held.get(key, ())) for key, left in self._left.items()
        }
        return {key: ranges for key, ranges in found.items() if ranges}


@dataclass(frozen=True)
class CheckedWindows:
    """The result of checking the sealed windows.

    Attributes:
        held: Their contents.
        figures: Their part of a report.
        findings: Findings about their files.
        accounts: Their accounts, as far as their own receipts say.
        left: What their own receipts leave to windows.
    """

    held: HeldByWindows
    figures: Sequence[WindowFigures]
    findings: Sequence[Finding]
    accounts: Accounts
    left: LeftToWindows

    def look(self, receipt: Receipt) -> None:
        """Take a receipt of a generation."""
        self.accounts.look(receipt)
        self.left.look(receipt)


def check_windows(snapshot: Snapshot, *, deep: Deep) -> CheckedWindows:
    """Check the sealed windows of an archive; those without a receipt hold nothing yet."""
    # A damaged receipt is a finding of its own, where the archive is compared with its journal.
    fold = snapshot.readable_fold
    found = check_files_of(fold, deep=deep, superseded=fold.gone)
    locked = list[Finding]()
    for window in fold.windows if deep else ():
        if deep.reads(window.receipt.where, *(file.path for file in window.receipt.files)):
            for finding in _check_records(window, found[window.key], fold.gone):
                is_locked = finding.reason is Reason.KEY_UNAVAILABLE
                (locked if is_locked else found[window.key]).append(finding)
    if any(found.values()):
        # Maintenance may have removed what another window has replaced since the archive was read.
        gone = Snapshot(snapshot.root).readable_fold.gone
        found = {key: [f for f in each if f.subject not in gone] for key, each in found.items()}
    broken = {key: {str(finding.subject) for finding in each} for key, each in found.items()}
    replaced = fold.replaced_by_whole(broken)
    figures, damaged, whole = [], [], set()
    for window in fold.windows:
        receipt = window.receipt
        files = [file for file in receipt.files if file.path in broken[window.key]]
        figures.append(WindowFigures(window.key, receipt, _replaced(window), files))
        if lost := [(file, receipt) for file in files if file.path not in replaced]:
            # A plan that is lost has a finding of its own.
            with suppress(ArchiveError):
                damaged.append((window, lost_ranges(window.root, lost, window.plan.format)))
        elif not fold.is_gone(receipt):
            whole.add(window.key)
    intact = fold.only(whole)
    held = HeldByWindows(intact, replaced, fold.gone, intact.drained_again, damaged, fold)
    findings = [held.excuse(finding) for each in found.values() for finding in each]
    # A plan that is lost has a finding of its own.
    accounts = Accounts(window for window in fold.windows if window.has_plan)
    if deep.everything and list_keys(snapshot.root):
        unread = [*_locked(intact)]
        named = {finding.where for finding in unread}
        locked = [*unread, *(finding for finding in locked if finding.where not in named)]
    findings += locked
    checked = CheckedWindows(held, figures, findings, accounts, LeftToWindows())
    for receipt in fold.receipts:
        checked.look(receipt)
    return checked


def check_accounts(accounts: Accounts, noted: Noted, *, whole: bool) -> list[Finding]:
    """Return a finding for each window that contradicts the receipts of files that it replaces.

    Args:
        accounts: What was looked at.
        noted: What the journal notes.
        whole: Whether all receipts were looked at.
    """
    found = dict(accounts.not_covered())
    if whole:
        found = dict(accounts.unaccounted(noted.gone)) | found
    return [Finding(Reason.RECEIPT_CONTRADICTS, where, what) for where, what in found.items()]


def _check_records(
    window: SnapshotWindow, damage: Iterable[Finding], superseded: Collection[str]
) -> list[Finding]:
    """Compare the records of a window's files with its receipt.

    Args:
        damage: Findings about its files, which are left out.
        superseded: Files that another window replaces.
    """
    if not window.has_plan:
        # A finding of its own.
        return []
    broken = {str(finding.subject) for finding in damage}.union(superseded)
    files = [file for file in window.receipt.files if file.path not in broken]
    findings, _ = check_records(window.root, window.receipt, files, window.plan.format)
    return findings


def _locked(windows: Fold[SnapshotWindow]) -> Iterator[Finding]:
    """Yield a finding for each window with files whose records can't be read for lack of a key."""
    # Not at the top: few validations need pyarrow, and importing it takes longer than they do.
    from kafka_drain.data_files.reader import unlock

    for window in windows.windows:
        files = windows.live(window.receipt.files)
        for file in files:
            try:
                # A lost file is a finding of its own, or replaced by a window with a damaged plan.
                with suppress(FileNotFoundError):
                    unlock(window.root / file.path)
            except KEY_ERRORS as error:
                detail = (
                    f"its files' bytes are as sealed, but the records of {len(files):,} files "
                    f"can't be read. {error}"
                )
                yield Finding(Reason.KEY_UNAVAILABLE, window.receipt.where, detail)
                break


def _replaced(window: SnapshotWindow) -> Mapping[str, Any] | None:
    try:
        return window.plan.replaced
    except ArchiveError:
        # The comparison of sealed state with the journal reports it.
        return None


def check_unsealed(snapshot: Snapshot, noted: Noted) -> list[Finding]:
    """Return a finding for each window that has data files, and never had a receipt.

    Args:
        snapshot: The archive.
        noted: The journal's notes: a window whose receipt is lost has a finding.
    """
    erased = snapshot.readable_fold.erased if snapshot.unsealed else {}
    found = []
    for window in snapshot.unsealed:
        where = f"{window.name}/receipt.json"
        if noted.documents.get(where, REMOVED) != REMOVED:
            continue
        files = list_data_files(window.data)
        held = _erased_in(window, files, _erased_of(window, erased)) if erased else {}
        if held:
            shown = ", ".join(range_name(tp, r) for tp, rs in sorted(held.items()) for r in rs)
            detail = f"{sum(map(count, held.values())):,} erased records: {shown[:200]}"
            found.append(Finding(Reason.ERASED_LEFT, window.name, detail))
        elif files and where not in noted.documents:
            detail = f"{len(files):,} files, {sum(files.values()):,} bytes, ignored by readers"
            found.append(Finding(Reason.WINDOW_UNSEALED, window.name, detail))
    return found


def _erased_of(
    window: SnapshotWindow, erased: Mapping[Partition, Sequence[OffsetRange]]
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the erased offsets of the topics of which a window may have records."""
    known: Mapping[str, str] = {}
    # Only the plan of a backfill says which topic id its records have.
    with suppress(ArchiveError):
        known = window.plan.topics
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for (tp, topic_id), ranges in erased.items():
        if known.get(tp.topic, topic_id) == topic_id:
            found[tp] = merge([*found.get(tp, []), *ranges])
    return found


def _erased_in(
    window: SnapshotWindow,
    files: Iterable[str],
    erased: Mapping[TopicPartition, Sequence[OffsetRange]],
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the erased offsets that a window's files hold."""
    # Not at the top: few validations need pyarrow, and importing it takes longer than they do.
    from kafka_drain.data_files.reader import FORMATS, read_offsets, topic_of

    held: dict[TopicPartition, list[OffsetRange]] = {}
    for file in files:
        file_format = next((name for name in FORMATS if f".{name}" in file), "parquet")
        try:
            contents = read_offsets(window.data / file, file_format, topic_of(file))
        except (DataFileError, FileNotFoundError, *KEY_ERRORS):
            # A killed task's partial file, or one that a run has just removed.
            continue
        for content in contents:
            for r in content.ranges:
                found = within(erased.get(content.tp, ()), r)
                held.setdefault(content.tp, []).extend(found)
    return {tp: merge(ranges) for tp, ranges in held.items() if ranges}


def check_files_of(
    windows: Fold[SnapshotWindow], *, deep: Deep, superseded: Collection[str]
) -> dict[str, list[Finding]]:
    """Compare the files of each window with its receipt, as `check_files` does."""
    return {
        window.key: check_files(window, window.receipt, deep=deep, superseded=superseded)
        for window in windows.windows
    }


def check_files(
    window: Window, receipt: Receipt, *, deep: Deep, superseded: Collection[str] = ()
) -> list[Finding]:
    """Compare a window's files with its receipt, except files that another window replaces."""
    standing = [file for file in receipt.files if file.path not in superseded]
    # Most windows have been replaced by others: these cost no more than reading their receipt.
    listing = list_data_files(window.data) if standing else {}
    found = []
    for file in standing:
        size = listing.get(file.path.removeprefix(f"{window.data_name}/"))
        found.append(damage_of(window.root, file, size, deep=deep.reads(file.path)))
    return [finding for finding in found if finding is not None]


def refuse_fewer(window: Window, receipt: Receipt, held: Offsets, way_out: str = "") -> None:
    """Refuse a window with fewer records of a partition than the intact files that it replaces.

    Args:
        receipt: Its receipt; not written yet.
        held: Number of records that the files hold of each partition.
        way_out: A way out, if there is one; ends the error message.

    Raises:
        DataLossError: Names the partitions.
    """
    found = records_of(receipt.files)
    fewer = [
        f"{tp} {found.get(tp, 0):,} instead of {records:,}"
        for tp, records in sorted(held.items())
        if found.get(tp, 0) < records
    ]
    if fewer:
        raise DataLossError(
            f"window {window.key}: Kafka has fewer records than the files that the window would "
            f"replace: {', '.join(fewer[:5])}. Kafka has compacted the topic since, so the files "
            f"are the only copy of the other records. Nothing was replaced{way_out}"
        )

"""Recheck sealed segments: the chain of receipts, and the files that they seal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from upath import UPath

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_state import GenerationState
from kafka_drain.archive.generation_summary import SummaryRow
from kafka_drain.archive.receipt_chain import check_figures, check_link, unreadable
from kafka_drain.archive.receipts import (
    Receipt,
    ReceiptError,
    SealedContent,
    SealedFile,
    unknown_files,
)
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.data_files.file_offsets import FileOffsets
from kafka_drain.errors import DataFileError
from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping, subtract
from kafka_drain.progress import Progress, Ticker

#: Number of segments that a warning names.
_NAMED = 5

#: Findings of receipts that can't be read.
_UNREADABLE = (Reason.RECEIPT_CORRUPT, Reason.RECEIPT_MISPLACED)


@dataclass(frozen=True, slots=True)
class Deep:
    """The sealed files and segments of which all bytes are read.

    Attributes:
        everything: Whether of all.
        named: Otherwise, those that are named: paths of files and receipts.
    """

    everything: bool = False
    named: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.everything or bool(self.named)

    def reads(self, *paths: str) -> bool:
        """Return whether the bytes of any of these are read."""
        return self.everything or not self.named.isdisjoint(paths)


DEEP = Deep(everything=True)
NOT_DEEP = Deep()


@dataclass
class SealedCheck:
    """The result of checking a generation's sealed segments.

    Attributes:
        findings: The problems found.
        damaged: Sealed files that are missing or changed, each with its receipt.
        last_hash: The hash that the next receipt must link to.
        receipts: Number of receipts.
        rows: Summary rows of the receipts that can be read.
    """

    findings: list[Finding] = field(default_factory=list)
    damaged: list[tuple[SealedFile, Receipt]] = field(default_factory=list)
    last_hash: str | None = None
    receipts: int = 0
    rows: list[SummaryRow] = field(default_factory=list)

    @property
    def has_corrupt_receipt(self) -> bool:
        """Whether a receipt can't be read."""
        return any(finding.reason in _UNREADABLE for finding in self.findings)

    @property
    def chain_is_whole(self) -> bool:
        """Whether the receipts themselves are intact, so that another may follow."""
        broken = (*_UNREADABLE, Reason.RECEIPT_CHANGED, Reason.RECEIPT_HOLE)
        return not any(finding.reason in broken for finding in self.findings)


def check_all_sealed(
    generation: SnapshotGeneration,
    listing: Mapping[str, int],
    previous: str | None,
    *,
    deep: Deep,
    superseded: Collection[str] = (),
    forgotten: Mapping[str, str] = MappingProxyType({}),
    drained_again: Collection[str] = (),
    replaced: Collection[str] = (),
    look: Callable[[Receipt], None] = lambda _: None,
) -> SealedCheck:
    """Read every receipt, and check that all sealed files exist with their size.

    Args:
        listing: Its data files: path relative to the data folder, and size in bytes.
        previous: Hash of the previous generation's last receipt.
        deep: Of which files to compare also the bytes with the sealed SHA-256, and of which
            segments the records with the fingerprint that Spark computed.
        superseded: Files that a window replaces; they may exist or not.
        forgotten: Lost receipts that the user has given up, as `check_link` takes them.
        drained_again: Files whose records a window has read again from Kafka, or deleted.
        replaced: Files that an intact window replaces, damaged or not.
        look: Takes each receipt.
    """
    names = generation.receipt_names()
    check = SealedCheck(receipts=len(names), last_hash=previous)
    ticker = Ticker("validate", Progress("receipts", len(names)))
    before: Receipt | None = None
    unknown = False
    unproven: list[Receipt] = []
    for number, name in enumerate(names, start=1):
        where = generation.receipt_where(name)
        try:
            receipt = generation.read_receipt(name)
        except ReceiptError as error:
            check.findings.append(unreadable(error, where))
            unknown = True
            continue
        if not unknown:
            check.findings += check_link(receipt, before, check.last_hash, where, forgotten)
        check.findings += check_figures(receipt, before, where)
        before, check.last_hash, unknown = receipt, receipt.sha256, False
        check.rows.append(SummaryRow.of(receipt))
        look(receipt)
        if has_unknown_content(receipt, drained_again):
            unproven.append(receipt)
        here = [file for file in receipt.files if file.path not in superseded]
        _check_files(generation, receipt, here, listing, check, deep=deep)
        if deep.reads(receipt.where, *(file.path for file in here)):
            # Whether the files that a window stands for are as sealed no longer matters.
            broken = {file.path for file, _ in check.damaged}.union(replaced)
            intact = [file for file in here if file.path not in broken]
            file_format = generation.document.format
            found, lost = check_records(generation.root, receipt, intact, file_format)
            check.findings += found
            check.damaged += [(file, receipt) for file in lost]
        ticker.at(number)
    if any(file.path not in replaced for file, _ in check.damaged):
        # Maintenance may have removed what a window has replaced since the archive was read.
        gone = Snapshot(generation.root).readable_fold.gone
        check.damaged = [each for each in check.damaged if each[0].path not in gone]
        check.findings = [each for each in check.findings if each.subject not in gone]
    check.findings += unknown_contents(generation, unproven)
    return check


def has_unknown_content(receipt: Receipt, drained_again: Collection[str] = ()) -> bool:
    """Return whether Spark's account of the records that a receipt seals is missing.

    Args:
        drained_again: Files whose records a window has read again from Kafka, or deleted. A
            compaction keeps them as they are.
    """
    return any(file.path not in drained_again for file in unknown_files(receipt))


def unknown_contents(generation: Generation, receipts: Sequence[Receipt]) -> list[Finding]:
    """Return a warning for receipts of which only the offsets are proven; none for none."""
    if not receipts:
        return []
    records = sum(c.records for r in receipts for file in r.files for c in file.contents)
    batches = ", ".join(str(r.last_batch) for r in receipts[:_NAMED])
    more = ", …" if len(receipts) > _NAMED else ""
    detail = (
        f"{records:,} records of {len(receipts):,} sealed segments can't be verified: it isn't "
        f"known what Spark read; up to batch {batches}{more}"
    )
    return [Finding(Reason.CONTENT_UNKNOWN, f"{generation.name}/receipts", detail)]


def check_listed_sealed(
    state: GenerationState,
    listing: Mapping[str, int],
    previous: str | None,
    newest: Iterable[Receipt] = (),
    drained_again: Collection[str] = (),
) -> SealedCheck:
    """Check that the manifest's sealed files exist with their size.

    The newest receipt vouches for all earlier ones: by its hash, and by the digest of all sealed
    files, with which the manifest has been compared. No other receipt is read unless a file is
    damaged.

    Args:
        listing: Its data files: path relative to the data folder, and size in bytes.
        previous: Hash of the previous generation's last receipt.
        drained_again: Files whose records a window has read again from Kafka, or deleted.
    """
    generation = state.generation
    names = generation.receipt_names()
    check = SealedCheck(receipts=len(names), last_hash=previous)
    if state.receipt is not None:
        check.last_hash = state.receipt.sha256
    broken = {
        f"{generation.data_name}/{sink_file.path}"
        for sink_file in state.sealed
        if listing.get(sink_file.path) != sink_file.size
    }
    if broken:
        for receipt in readable_receipts(generation, names):
            here = [file for file in receipt.files if file.path in broken]
            _check_files(generation, receipt, here, listing, check)
    unproven = [receipt for receipt in newest if has_unknown_content(receipt, drained_again)]
    check.findings += unknown_contents(generation, unproven)
    return check


def check_newest(
    generation: SnapshotGeneration, names: Sequence[str], forgotten: Mapping[str, str]
) -> list[Finding]:
    """Check that the newest receipts of a generation are its own, and follow each other.

    Args:
        names: Names of the receipts, oldest first.
        forgotten: Lost receipts that the user has given up, as `check_link` takes them.
    """
    findings: list[Finding] = []
    before: Receipt | None = None
    for name in names:
        where = generation.receipt_where(name)
        try:
            receipt = generation.read_receipt(name)
        except ReceiptError as error:
            findings.append(unreadable(error, where))
            before = None
            continue
        if before is not None or name == generation.receipt_names()[0]:
            # A validation of everything reads what the first one follows, in another generation.
            previous = before.sha256 if before else receipt.previous
            findings += check_link(receipt, before, previous, where, forgotten)
        findings += check_figures(receipt, before, where)
        before = receipt
    return findings


def readable_receipts(generation: Generation, names: Iterable[str]) -> Iterator[Receipt]:
    """Yield the receipts that aren't damaged."""
    for name in names:
        try:
            yield generation.read_receipt(name)
        except ReceiptError:
            # The check of the chain reports it.
            continue


def check_records(
    root: UPath, receipt: Receipt, files: Sequence[SealedFile], file_format: str
) -> tuple[list[Finding], list[SealedFile]]:
    """Compare the records in a segment's files with its receipt.

    Args:
        root: The archive.
        files: Those of its files that have their sealed bytes.

    Returns:
        What differs, and files that have become unreadable since.
    """
    # Not at the top: few validations need pyarrow, and importing it takes longer than they do.
    from kafka_drain.data_files.reader import topic_of
    from kafka_drain.proof.committed_file import read_all

    findings: list[Finding] = []
    held: dict[TopicPartition, list[OffsetRange]] = {}
    value, is_known, locked = 0, True, ""
    for file in files:
        try:
            read = read_all(root / file.path, file_format, topic_of(file.path))
        except DataFileError as error:
            return [Finding(Reason.CONTENT_CHANGED, receipt.where, str(error))], []
        except OSError as error:
            # Since its bytes were hashed.
            return [_unreadable(file, error)], [file]
        if differs := _differing(file.contents, read.contents):
            findings.append(Finding(Reason.CONTENT_CHANGED, file.path, differs))
        for content in read.contents:
            held.setdefault(content.tp, []).extend(content.ranges)
        locked = locked or read.locked
        # Of times that can't be represented, only the offsets are known.
        is_known = is_known and read.fingerprint is not None
        value ^= int(read.fingerprint or "0", 16)
    is_whole = len(files) == len(receipt.files)
    if is_whole and not findings and (what := _other_offsets(receipt, held)):
        findings.append(Finding(Reason.CONTENT_CHANGED, receipt.where, what))
    if locked:
        # Also of a part of the files, and without a fingerprint: nobody can read the records.
        detail = (
            f"its files' bytes are as sealed, but the records of {len(files):,} files weren't "
            f"compared with what Spark read. {locked}"
        )
        findings.append(Finding(Reason.KEY_UNAVAILABLE, receipt.where, detail))
    elif not is_whole or receipt.fingerprint is None:
        return findings, []
    elif is_known and f"{value:016x}" != receipt.fingerprint:
        detail = (
            f"its files' records have fingerprint {value:016x}; Spark read {receipt.fingerprint}"
        )
        findings.append(Finding(Reason.CONTENT_CHANGED, receipt.where, detail))
    return findings, []


def _differing(sealed: Iterable[SealedContent], held: Iterable[FileOffsets]) -> str:
    """Describe a partition of which a file holds something else than its receipt says."""
    said = {content.tp: content for content in sealed}
    found = {
        each.tp: SealedContent.of(
            *(each.tp, each.first, each.last, each.records),
            *(each.first_timestamp, each.last_timestamp, each.ascending),
        )
        for each in held
    }
    for tp in sorted(said.keys() | found.keys()):
        if said.get(tp) != found.get(tp):
            return (
                f"holds {_told(found.get(tp))} of {tp}, but its receipt says {_told(said.get(tp))}"
            )
    return ""


def _told(content: SealedContent | None) -> str:
    if content is None:
        return "nothing"
    order = "in order" if content.ascending else "in no order"
    times = f"times {content.first_timestamp} to {content.last_timestamp}"
    return f"{content.records:,} records, {content.first} to {content.last} {order}, {times}"


def _other_offsets(receipt: Receipt, held: Mapping[TopicPartition, list[OffsetRange]]) -> str:
    """Describe offsets that a segment's files should hold, or shouldn't; empty for none."""
    wanted: dict[TopicPartition, list[OffsetRange]] = {}
    gaps: dict[TopicPartition, list[OffsetRange]] = {}
    for part in receipt.partitions:
        wanted.setdefault(part.tp, []).append(part.range)
        gaps.setdefault(part.tp, []).extend(r for each in part.gaps.values() for r in each)
    for tp, ranges in wanted.items():
        missing = merge(gaps[tp])
        sealed = merge(
            left for each in merge(ranges) for left in subtract(each, overlapping(missing, each))
        )
        if (there := merge(held.get(tp, ()))) != sealed:
            return f"its files hold {_few(there)} of {tp}, but it says {_few(sealed)}"
    return ""


def _few(ranges: Sequence[OffsetRange]) -> str:
    more = ", …" if len(ranges) > _NAMED else ""
    return f"{', '.join(map(str, ranges[:_NAMED])) or 'nothing'}{more}"


def _check_files(
    generation: Generation,
    receipt: Receipt,
    files: Iterable[SealedFile],
    listing: Mapping[str, int],
    check: SealedCheck,
    *,
    deep: Deep = NOT_DEEP,
) -> None:
    for file in files:
        size = listing.get(file.path.removeprefix(f"{generation.data_name}/"))
        found = damage_of(generation.root, file, size, deep=deep.reads(file.path))
        if found is not None:
            check.findings.append(found)
            check.damaged.append((file, receipt))


def damage_of(root: UPath, file: SealedFile, size: int | None, *, deep: bool) -> Finding | None:
    """Return the damage of a sealed file; None when it is unchanged.

    Raises:
        StoreUnavailableError: When the archive's store doesn't respond.
    """
    if size is None:
        return _unreadable(file, FileNotFoundError())
    if size != file.bytes:
        detail = f"{size:,} bytes; its receipt says {file.bytes:,}"
        return Finding(Reason.FILE_SIZE, file.path, detail)
    if not deep:
        return None
    # Not at the top: few validations need pyarrow, and importing it takes longer than they do.
    from kafka_drain.proof.committed_file import file_sha256

    try:
        if file_sha256(root / file.path) != file.sha256:
            detail = "its SHA-256 doesn't match its receipt"
            return Finding(Reason.FILE_CHANGED, file.path, detail)
    except OSError as error:
        return _unreadable(file, error)
    return None


def _unreadable(file: SealedFile, error: OSError) -> Finding:
    if isinstance(error, FileNotFoundError):
        return Finding(Reason.FILE_MISSING, file.path, "sealed by a receipt, but missing")
    # A disk error, or a missing permission.
    return Finding(Reason.FILE_CHANGED, file.path, f"can't be read: {error}")


def lost_ranges(
    root: UPath, damaged: Iterable[tuple[SealedFile, Receipt]], file_format: str
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets that damaged files held, from their receipts and neighbouring files."""
    damaged = list(damaged)
    broken = {file.path for file, _ in damaged}
    lost: dict[TopicPartition, list[OffsetRange]] = {}
    for file, receipt in damaged:
        for content in file.contents:
            span = OffsetRange(content.first, content.last + 1)
            held: list[OffsetRange] = []
            if not content.is_dense:
                held = _held_beside(root, receipt, content.tp, span, broken, file_format)
            lost.setdefault(content.tp, []).extend(subtract(span, held))
    return {tp: merge(ranges) for tp, ranges in lost.items()}


def _held_beside(
    root: UPath,
    receipt: Receipt,
    tp: TopicPartition,
    span: OffsetRange,
    broken: set[str],
    file_format: str,
) -> list[OffsetRange]:
    """Return the part of a span that the damaged file didn't hold.

    That is: gaps, offsets in the segment's other files, and offsets outside the segment, since a
    window's offsets form several ranges.
    """
    # Not at the top: few validations need pyarrow, and importing it takes longer than they do.
    from kafka_drain.data_files.reader import read_offsets, topic_of

    parts = [part for part in receipt.partitions if part.tp == tp]
    held = [r for part in parts for ranges in part.gaps.values() for r in ranges]
    held += subtract(span, merge([part.range for part in parts]))
    for file in receipt.files:
        near = any(
            c.tp == tp and c.first < span.end and c.last >= span.start for c in file.contents
        )
        if not near or file.path in broken:
            continue
        try:
            path = root / file.path
            for offsets in read_offsets(path, file_format, topic_of(file.path)):
                if offsets.tp == tp:
                    held += offsets.ranges
        except (DataFileError, OSError):
            # Not detected before, because its size matches: its offsets are missing as well.
            continue
    return held

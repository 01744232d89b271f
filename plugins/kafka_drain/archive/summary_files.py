"""Summaries of closed generations on disk: read in place of receipts, made, and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_summary import Summary, SummaryError, summarized
from kafka_drain.archive.receipts import Receipt, ReceiptError
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.findings import Finding, Reason
from kafka_drain.intervals import TimeRange
from kafka_drain.storage.paths import is_file, quoted


def receipts_between(
    generation: Generation,
    newest: str,
    times: TimeRange | None,
    forgotten: Mapping[str, str],
) -> Iterator[Receipt]:
    """Yield a generation's receipts that may have files with records in a time range.

    Args:
        newest: Hash of its newest receipt.
        times: The range; None for all receipts.
        forgotten: Lost receipts that were given up, by path.

    Raises:
        ReceiptError: When a receipt is damaged, or isn't the one that was summarized.
    """
    summary = sound_summary(generation, newest) if times is not None else None
    if times is None or summary is None:
        last = None
        for last in generation.receipts(forgotten):
            yield last
        if last is not None and last.sha256 != newest:
            raise ReceiptError(
                f"{last.where} has SHA-256 {last.sha256[:12]}, but {newest[:12]} was sealed there"
            )
        return
    for row in summary.receipts:
        if row.may_hold(times):
            receipt = generation.read_receipt(row.name)
            if receipt.sha256 != row.sha256:
                raise ReceiptError(
                    f"receipt {row.name} of generation {generation.number} isn't the one that "
                    f"{generation.summary_where} names; run `kafka-drain validate "
                    f"{quoted(generation.root)}` to see which was changed"
                )
            yield receipt


def sound_summary(generation: Generation, newest: str) -> Summary | None:
    """Return a generation's summary if it is of just its receipts; None otherwise.

    Without one, the receipts say the same. Validation reports a damaged one, and rewrites it.

    Args:
        newest: Hash of its newest receipt.
    """
    try:
        summary = generation.read_summary()
    except SummaryError:
        return None
    if summary is None or summary.generation != generation.number:
        return None
    return summary if summary.is_of(generation.receipt_names(), newest) else None


def check_summary(generation: Generation, made: Summary, *, writes: bool) -> list[Finding]:
    """Compare the summary of a closed generation with its receipts.

    One that is missing, or that was made before receipts were restored or given up, is no damage.

    Args:
        made: The summary made from its receipts.
        writes: Whether to write what they say, unless it is there.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    where, findings = generation.summary_where, list[Finding]()
    try:
        found = generation.read_summary()
    except SummaryError as error:
        found = None
        findings.append(Finding(Reason.NOTE_UNREADABLE, where, str(error)))
    if found is not None and (name := found.contradicts(made)):
        detail = f"says something else of receipt {name} than the receipt itself"
        findings.append(Finding(Reason.SUMMARY_CHANGED, where, detail))
    if writes and found != made:
        generation.write_summary(made)
    return findings


def write_missing_summaries(snapshot: Snapshot) -> list[int]:
    """Summarize the closed generations that have receipts and no summary.

    One with a damaged receipt is left out: validation reports it.

    Returns:
        The numbers of the generations that were summarized.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    written = []
    for generation in snapshot.generations[:-1]:
        is_there = is_file(generation.root / generation.summary_where)
        if is_there or not generation.receipt_names():
            continue
        try:
            receipts = generation.receipts(snapshot.journal.noted.forgotten)
            made = summarized(generation.number, receipts)
        except ReceiptError:
            continue
        generation.write_summary(made)
        written.append(generation.number)
    return written

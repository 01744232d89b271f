"""The journal on disk: `journal/<number>.json`, and `journal.json`, which records its end.

The head, `journal.json`, is outside the journal's folder and is written after each entry, so that
the removal of the newest entries, or of the whole folder, is detected. Receipts also record the
number of entries at the time of sealing.
"""

from __future__ import annotations

import re
import time

from upath import UPath

from kafka_drain.archive.copies import clear_copies, copy_path, keep_copies
from kafka_drain.archive.documents import HeadDocument
from kafka_drain.archive.journal.entries import (
    REMOVED,
    WHOLE_EVERY,
    Entry,
    Head,
    Journal,
    Noted,
    first_needed,
    fold_journal,
    lags,
    next_whole,
    parse_entry,
)
from kafka_drain.clock import now_text
from kafka_drain.errors import ArchiveError, LockedError, ManifestInvalidError
from kafka_drain.storage.json_files import create_text
from kafka_drain.storage.paths import list_folder, read_bytes

_ENTRY = re.compile(r"[0-9]{12}\.json")

# If several runs write an entry at the same moment, one of them succeeds per attempt.
TRIES = 100

# So often is a head read again that seems to be older than a killed run leaves it.
SETTLES = 20

# Another writer may need a processor that others use: each time, this is waited once more.
SETTLE_SECONDS = 0.002


def read_journal(root: UPath) -> Journal:
    """Read the sealed segments, starting at the newest entry that holds everything."""
    for attempt in range(TRIES):
        # Head first: a concurrent entry must not make the journal look truncated.
        try:
            head, damage = _read_head(root), ""
        except ArchiveError as error:
            head, damage = None, str(error)
        numbers = _numbers(root)
        newest = max(numbers, default=0)
        if lags(head, newest) and attempt < SETTLES:
            # Entries were just written, or one of several writers is just renewing the head.
            time.sleep(attempt * SETTLE_SECONDS)
            continue
        needed = range(first_needed(newest), newest + 1) if newest else ()
        try:
            contents = [(n, read_bytes(_path(root, n)) if n in numbers else None) for n in needed]
        except FileNotFoundError:
            # Just removed, because later entries hold everything.
            continue
        journal = fold_journal(contents, head)
        if damage:
            problems = [p for p in journal.problems if p[0] != "journal"]
            return Journal(
                newest, journal.sha256, journal.noted, (*problems, ("journal.json", damage))
            )
        return journal
    raise LockedError(f"{root / 'journal'} changed during every read; try again")


def note_sealed(root: UPath, noted: Noted, known: Journal | None = None) -> None:
    """Note sealed receipts and documents, unless they are noted already.

    A receipt is written before its entry, so everything noted exists. If a run is killed between
    the two, the next run notes it.

    Args:
        noted: Everything that was sealed.
        known: The journal as it was read before; if it and its head have everything, it isn't read
            again. None to read it now.

    Raises:
        ManifestInvalidError: When the journal is damaged.
        ArchiveError: When the archive can't be written.
    """
    if known is not None and _has_all(known, noted):
        return
    for _ in range(TRIES):
        journal = read_journal(root)
        if journal.problems:
            where, what = journal.problems[0]
            raise ManifestInvalidError(
                f"{root / where} {what}; restore journal.json and the journal folder from a copy"
            )
        # This keeps the head at most one entry behind, so that two entries without a head are
        # damage.
        seen = journal.head.entries if journal.head else 0
        if journal.sha256 is not None and seen < journal.newest:
            _raise_head(root, Head(journal.newest, journal.sha256))
        news = journal.noted.news(noted)
        if not news:
            return
        # Copies come before the entry, so that everything the journal names has a copy.
        _keep_copies(root, news, journal.noted.plus(news))
        number = journal.newest + 1
        is_whole = number == first_needed(number)
        written = _create(
            root,
            Entry.of(
                number=number,
                previous=journal.sha256,
                is_whole=is_whole,
                noted=journal.noted.plus(news) if is_whole else news,
                at=now_text(),
            ),
        )
        if written is not None:
            _raise_head(root, Head(number, written))
            if is_whole:
                _clear(root, number - WHOLE_EVERY)
                # Only the newest ones have grown since.
                by_number = sorted(journal.noted.tips, key=lambda name: (len(name), name))
                clear_copies(root, by_number[-2:])
            return
    raise LockedError(f"{root / 'journal'} grew during every attempt to write to it; try again")


def _has_all(journal: Journal, noted: Noted) -> bool:
    """Return whether there is nothing to write, not even the head."""
    is_whole = journal.sha256 is None or journal.head == Head(journal.newest, journal.sha256)
    return is_whole and not journal.problems and not journal.noted.news(noted)


def start_journal_anew(root: UPath, noted: Noted, known: int) -> int:
    """Write an entry that holds the current state, regardless of the existing journal.

    Args:
        noted: Everything that is sealed.
        known: Highest number of journal entries recorded in a receipt.

    Returns:
        The number of the entry.
    """
    for _ in range(TRIES):
        journal = read_journal(root)
        at_least = max(journal.newest, known, journal.head.entries if journal.head else 0)
        number = next_whole(at_least)
        written = _create(root, Entry.of(number, journal.sha256, True, noted, now_text()))
        if written is not None:
            _raise_head(root, Head(number, written))
            return number
    raise LockedError(f"{root / 'journal'} grew during every attempt to write to it; try again")


def _keep_copies(root: UPath, news: Noted, noted: Noted) -> None:
    """Copy the noted files, and the documents to which topics may have been added."""
    paths = {path for path, value in news.documents.items() if value != REMOVED}
    paths |= {f"{folder}/receipts/{tip.name}" for folder, tip in news.tips.items()}
    growing = {"archive.json", f"{max(noted.tips, default='')}/generation.json"}
    keep_copies(root, paths | (growing & noted.documents.keys()))
    for path in news.documents.keys() - paths:
        copy_path(root, path).unlink(missing_ok=True)


def _create(root: UPath, entry: Entry) -> str | None:
    """Create an entry and return its hash; None if its number is already taken."""
    sealed = entry.sealed()
    is_created = create_text(_path(root, entry.number), sealed.content.decode("utf-8"))
    return sealed.value.sha256 if is_created else None


def _raise_head(root: UPath, head: Head) -> None:
    """Advance journal.json to an entry, unless another run has already advanced it further.

    The last writer checks the entries again afterwards, so the head never stays behind them.
    """
    while True:
        # A run that was stopped here meanwhile must not set it back by more than one.
        _write_head(root, _head_now(root), head)
        newest = max(_numbers(root), default=0)
        if newest <= head.entries:
            return
        try:
            head = Head(newest, parse_entry(read_bytes(_path(root, newest))).sha256)
        except (FileNotFoundError, ValueError):
            # Unfinished or damaged; gets its own finding.
            return


def _write_head(root: UPath, seen: Head | None, head: Head) -> None:
    if seen is None or seen.entries < head.entries:
        HeadDocument(entries=head.entries, sha256=head.sha256).write(root / "journal.json")


def _head_now(root: UPath) -> Head | None:
    """Return the content of journal.json; None if it is missing or damaged."""
    try:
        return _read_head(root)
    except ArchiveError:
        return None


def _read_head(root: UPath) -> Head | None:
    try:
        document = HeadDocument.read(root / "journal.json")
    except (FileNotFoundError, NotADirectoryError):
        # A path that isn't an archive gets its error from archive.json.
        return None
    return Head(document.entries, document.sha256)


def _clear(root: UPath, before: int) -> None:
    """Remove entries that are no longer needed, because a later one holds everything."""
    for number in _numbers(root):
        if number < before:
            _path(root, number).unlink(missing_ok=True)


def _numbers(root: UPath) -> set[int]:
    names = list_folder(root / "journal")
    return {int(name[:12]) for name in names if _ENTRY.fullmatch(name)}


def _path(root: UPath, number: int) -> UPath:
    return root / "journal" / f"{number:012d}.json"

"""Scrub: read sealed files whole again, and compare them with their receipts.

Damage that nobody looks for is found when the only other copy is gone. Each maintenance reads a
share, so that every file is read once in `scrub_days`. A kill loses what the run has noted: it is
read again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.format import FORMAT_VERSION
from kafka_drain.archive.receipts import Receipt, ReceiptError, SealedFile
from kafka_drain.archive.scrubs import WHERE, ScrubDocument
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.standing_findings import Look
from kafka_drain.errors import ArchiveError, ManifestInvalidError
from kafka_drain.findings import Finding
from kafka_drain.maintenance.scrub_quota import Quota, SealedGroup, choose_groups
from kafka_drain.output import Level, Line, say
from kafka_drain.progress import Progress, Ticker, duration_text
from kafka_drain.proof.report import Report, note_damage
from kafka_drain.proof.sealed_files import damage_of
from kafka_drain.storage.paths import quoted, size_of

#: Seconds after which a run begins to read no further group.
MOST_SECONDS = 1800.0


@dataclass
class Scrub:
    """What a run has read again.

    Attributes:
        files: Number of files that are as sealed.
        bytes: Their size.
        oldest_at: When the files that weren't read for longest were read, ISO 8601; None without
            any, or if nothing is read again.
        damaged: What isn't as sealed, by file.
    """

    files: int = 0
    bytes: int = 0
    oldest_at: str | None = None
    damaged: dict[str, Finding] = field(default_factory=dict)


def scrub(archive: Archive, scrub_days: int | None, now: datetime) -> Scrub:
    """Read what is due; damage is said, noted in the archive, and in the result.

    The caller holds the lease of maintenance.

    Raises:
        ManifestInvalidError: When a receipt is damaged.
        ArchiveError: When the archive can't be written.
        StoreUnavailableError: When its store doesn't respond; what was read until then is noted.
    """
    before = _noted(archive.root)
    if not scrub_days:
        if before is not None and before.scrub_days is not None:
            before.model_copy(update={"scrub_days": None}).write(archive.root / WHERE)
        return Scrub()
    return _Run(archive, scrub_days, now, before).read()


def _noted(root: UPath) -> ScrubDocument | None:
    """Return what earlier runs have noted; None, as if nothing was ever read, if it is lost."""
    try:
        return ScrubDocument.read(root / WHERE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ArchiveError as error:
        text = f"maintain {root}: {error}; its sealed files count as never read again"
        say(Line(text, Level.WARNING))
        # Also where no other is written, or it would be told for ever.
        (root / WHERE).unlink(missing_ok=True)
        return None


class _Run:
    """One run's look at the groups of an archive."""

    def __init__(
        self, archive: Archive, scrub_days: int, now: datetime, before: ScrubDocument | None
    ) -> None:
        self._archive, self._days, self._now = archive, scrub_days, now
        self._snapshot = archive.snapshot()
        read = before.read_at if before is not None else {}
        times = {where: datetime.fromisoformat(at) for where, at in read.items()}
        all_at = before.all_read_at if before is not None else None
        deep_at = datetime.fromisoformat(all_at) if all_at is not None else None
        self._files: dict[str, list[SealedFile]] = {}
        self._groups: dict[str, SealedGroup] = {}
        for receipt, files in _live_groups(self._snapshot):
            where, size = receipt.where, sum(file.bytes for file in files)
            sealed_at = datetime.fromisoformat(receipt.sealed_at)
            self._groups[where] = SealedGroup(where, size, sealed_at, times.get(where, deep_at))
            self._files[where] = files
        total = sum(group.bytes for group in self._groups.values())
        elapsed = now - datetime.fromisoformat(before.ran_at) if before is not None else None
        owed = before.owed if before is not None else 0
        self._quota = Quota.of(total, elapsed, scrub_days, owed)
        self._owed = self._quota.owed
        live = {file.path for files in self._files.values() for file in files}
        self._known = live.intersection(before.damaged if before is not None else ())
        self._found = Scrub()

    def read(self) -> Scrub:
        """Read again what is due, and note it."""
        began, found = time.monotonic(), self._found
        try:
            # What was found stands until it is mended, whatever is due.
            broken = {where for where in self._files if self._is_damaged(where, known=True)}
            rest = [group for where, group in self._groups.items() if where not in broken]
            chosen = choose_groups(rest, self._now, self._days, self._quota)
            progress = Progress("receipts' files read again", len(chosen))
            ticker = Ticker(f"maintain {self._archive.root}", progress)
            for number, group in enumerate(chosen, start=1):
                if time.monotonic() - began > MOST_SECONDS:
                    break
                self._owed -= group.bytes
                if not self._is_damaged(group.where):
                    at = SealedGroup(group.where, group.bytes, group.sealed_at, self._now)
                    self._groups[group.where] = at
                    found.files += len(self._files[group.where])
                    found.bytes += group.bytes
                ticker.at(number)
        finally:
            self._note()
        self._say()
        return found

    def _is_damaged(self, where: str, *, known: bool = False) -> bool:
        """Read a group's files, or of them those that were damaged already."""
        root, found = self._archive.root, dict[str, Finding]()
        for file in self._files[where]:
            if known and file.path not in self._known:
                continue
            finding = damage_of(root, file, size_of(root, file.path), deep=True)
            self._known.discard(file.path)
            if finding is not None:
                found[file.path] = finding
        if found:
            # A window may have taken their place meanwhile.
            fold = self._archive.snapshot().fold
            found = {path: each for path, each in found.items() if path not in fold.replaced}
        self._found.damaged |= found
        return bool(found)

    def _note(self) -> None:
        times = [group.last_read(self._now) for group in self._groups.values()]
        self._found.oldest_at = _iso(min(times)) if times else None
        read = {
            where: _iso(group.read_at)
            for where, group in self._groups.items()
            if group.read_at is not None
        }
        # What a failed run didn't get to isn't mended by that.
        damaged = sorted(self._known.union(self._found.damaged))
        ScrubDocument(
            format_version=FORMAT_VERSION,
            scrub_days=self._days,
            ran_at=_iso(self._now),
            owed=self._owed,
            oldest_at=self._found.oldest_at,
            damaged=damaged,
            all_read_at=None,
            read_at=read,
        ).write(self._archive.root / WHERE)

    def _say(self) -> None:
        found, name = self._found, f"maintain {self._archive.root}"
        for finding in found.damaged.values():
            say(Line(f"{name}: ERROR {finding}", Level.ERROR))
        if found.damaged:
            # It fails the run, whether or not it can be noted.
            with suppress(ArchiveError):
                note_damage(self._archive, scrub_report(self._archive, self._now, found))
        if found.oldest_at is not None:
            age = (self._now - datetime.fromisoformat(found.oldest_at)).total_seconds()
            say(
                f"{name}: read {found.files:,} sealed files ({found.bytes:,} bytes) again; the "
                f"oldest were last read {duration_text(max(age, 0))} ago"
            )


def scrub_report(archive: Archive, now: datetime, found: Scrub) -> Report:
    """Return the report that a deep validation would give of the damage alone."""
    pipeline = archive.snapshot().document.pipeline
    report = Report(str(archive.root), pipeline, deep=True, validated_at=now)
    report.findings += found.damaged.values()
    report.look = Look(whole=True, deep=True, kafka=False, witness=False, generation=None)
    return report


def _live_groups(snapshot: Snapshot) -> Iterator[tuple[Receipt, list[SealedFile]]]:
    """Yield the receipts that seal files that readers get, each with these files."""
    try:
        fold = snapshot.fold
        receipts = [window.receipt for window in fold.windows]
        for generation in snapshot.generations:
            newest = generation.last_receipt()
            if newest is not None and not fold.has_all_of(newest):
                receipts += generation.receipts()
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{snapshot.root}: a receipt is damaged ({error}); run `kafka-drain validate "
            f"{quoted(snapshot.root)}` to see which"
        ) from error
    for receipt in receipts:
        if files := fold.live(receipt.files):
            yield receipt, files


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds")

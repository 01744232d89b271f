"""When an archive's sealed files were last read whole, in `maintenance/scrub.json`.

Sealing a file reads it whole, so a file that was never read again counts from its seal.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from upath import UPath

from kafka_drain.archive.documents import Time, VersionedDocument
from kafka_drain.archive.drill_status import SKEW
from kafka_drain.archive.format import Version
from kafka_drain.errors import ArchiveError
from kafka_drain.progress import duration_text

#: The document, relative to the archive.
WHERE = "maintenance/scrub.json"

#: Time beyond `scrub_days` after which an archive isn't ready: maintenance may miss a few nights.
GRACE = timedelta(days=7)


class ScrubDocument(VersionedDocument):
    """`maintenance/scrub.json`: which sealed files maintenance has read again, and when.

    Attributes:
        scrub_days: Days within which each is to be read again; None for none.
        ran_at: Time of the last run, or of the deep validation after it.
        owed: Bytes that were due by then and not read yet; negative if more were read.
        oldest_at: When the files that weren't read for longest were read; None without any.
        damaged: Files that weren't as sealed, relative to the archive.
        all_read_at: When a deep validation has read all since the last run; None for not at all.
        read_at: By receipt, when its files were last read again and found as sealed.
    """

    format_version: Version
    scrub_days: int | None
    ran_at: Time
    owed: int
    oldest_at: Time | None
    damaged: list[str]
    all_read_at: Time | None
    read_at: dict[str, Time]


@dataclass(frozen=True, slots=True)
class OldestRead:
    """How long ago the sealed files were read that weren't read for longest.

    Attributes:
        age: The time since; None if that isn't known.
        scrub_days: Days within which each is to be read again.
    """

    age: timedelta | None
    scrub_days: int

    @property
    def words(self) -> str:
        """The age in words; empty if it isn't known."""
        if self.age is None:
            return ""
        return f"every sealed byte read within {duration_text(self.age.total_seconds())}"

    @property
    def doubt(self) -> str:
        """Why that isn't as it should be; empty if it is."""
        if self.age is None:
            return f"it isn't known when its sealed bytes were last read ({WHERE})"
        limit = timedelta(days=self.scrub_days)
        if self.age <= limit + GRACE:
            return ""
        return (
            f"sealed bytes weren't read for {duration_text(self.age.total_seconds())}, "
            f"more than {duration_text(limit.total_seconds())}"
        )


def note_all_read(root: UPath, at: datetime) -> None:
    """Note that a deep validation that began then has read all files, and found them as sealed.

    Nothing is noted if no maintenance has noted anything.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    document = ScrubDocument.read_note(root / WHERE)
    if document is not None:
        time = at.isoformat(timespec="seconds")
        changed = {"ran_at": time, "owed": 0, "oldest_at": time, "all_read_at": time, "read_at": {}}
        document.model_copy(update=changed).write(root / WHERE)


def oldest_read(root: UPath, now: datetime) -> OldestRead | None:
    """Return how long ago the sealed files were read that weren't read for longest.

    None if nothing can be said of it: no maintenance has read any yet, or it is switched off.

    Raises:
        StoreUnavailableError: When the archive's store doesn't respond.
    """
    try:
        document = ScrubDocument.read(root / WHERE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ArchiveError:
        return OldestRead(None, 0)
    if document.scrub_days is None or document.oldest_at is None:
        return None
    if datetime.fromisoformat(document.ran_at) - now > SKEW:
        return OldestRead(None, document.scrub_days)
    age = now - datetime.fromisoformat(document.oldest_at)
    return OldestRead(max(age, timedelta()), document.scrub_days)

"""Look at an archive without reading its data files."""

from __future__ import annotations

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.drills import read_drills
from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.archive.scrubs import oldest_read
from kafka_drain.archive.status import read_overview
from kafka_drain.clock import utc_now
from kafka_drain.errors import ArchiveError, KafkaDrainError, StoreUnavailableError
from kafka_drain.look import Look
from kafka_drain.storage.typed_json import VersionError


def look_at(archive: Archive, place: str) -> Look:
    """Look at an archive; what can't be read is part of what was seen.

    Args:
        archive: The archive.
        place: Its folder or URL, as users know it.
    """
    try:
        snapshot = archive.snapshot()
        pipeline = snapshot.document.pipeline
        overview = read_overview(archive.root)
        read_again = oldest_read(archive.root, utc_now())
        drills = [one for one in read_drills(archive.root) if one.pipeline == pipeline]
    except (ArchiveError, StoreUnavailableError, OSError) as error:
        # What this user may not read, or a store doesn't give, is no word on the archive.
        return Look(place, str(error), _is_damage(error))
    files, refused = list[ArchiveFile](), ""
    try:
        files = archive_files(snapshot)
    except (StoreUnavailableError, PermissionError) as error:
        return Look(place, str(error))
    except (KafkaDrainError, OSError) as error:
        refused = str(error)
    return Look(
        place=place,
        pipeline=pipeline,
        overview=overview,
        drills=drills,
        refused=refused,
        is_sealed=any(file.sealed is not None for file in files),
        unsealed=sum(file.sealed is None for file in files),
        read_again=read_again,
    )


def _is_damage(error: Exception) -> bool:
    """Return whether a document is damaged; one of another release isn't."""
    cause = error.__cause__
    is_of_another = isinstance(cause, VersionError) and cause.version is not None
    return isinstance(error, ArchiveError) and not is_of_another

"""Decide whether a drain may begin a new archive: an archive that is gone isn't a first drain.

Opens nothing.
"""

from __future__ import annotations

from datetime import datetime, timezone

from kafka_drain.errors import ArchiveError


def refuse_lost_archive(
    pipeline: str, root: str, *, is_there: bool, validated_at: datetime | None, is_meant: bool
) -> None:
    """Refuse to begin an archive where one was validated before: its volume may not be mounted.

    Args:
        pipeline: The pipeline's name.
        root: The archive's folder, a path or a URL.
        is_there: Whether it holds an archive.
        validated_at: When one was validated there, as is known outside of it; None for never, or
            if nobody knows.
        is_meant: Whether the user has asked for a new archive.

    Raises:
        ArchiveError: Says since when it is known, and what to check.
    """
    if is_there or is_meant or validated_at is None:
        return
    # Of a path: which volume it is on now.
    mounted = "" if "://" in root else f" (`findmnt -T {root}` shows which one is)"
    raise ArchiveError(
        f"{root} holds no archive, but Airflow knows that one was validated there, last at "
        f"{validated_at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC. A drain would begin a new "
        f"one, and archive what Kafka still holds a second time. Check that its volume is mounted"
        f"{mounted} and that nobody has moved or renamed it. If it is gone for good, run "
        f"drain_{pipeline} with new_archive on"
    )

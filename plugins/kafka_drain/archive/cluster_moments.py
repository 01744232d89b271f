"""The moments of a cluster on disk: written when something has changed, read back, checked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from upath import UPath

from kafka_drain.archive.cluster_documents import (
    ClusterDocumentError,
    Moment,
    moment_of,
    parse_moment,
    parse_settings,
    settings_bytes,
    settings_path,
)
from kafka_drain.archive.sealed_chain import TRIES, Damage, SealedChain
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.kafka.cluster_state import ClusterState, Part, PartOutcome, Settings
from kafka_drain.storage.json_files import create_text, write_text
from kafka_drain.storage.paths import read_bytes
from kafka_drain.storage.sealed_json import SealedName, hash_of


def judge(*, is_newest: bool) -> Reason:
    """Return whether damage to a moment, or to its settings, does harm.

    No record is lost with either. A recovery takes the newest moment unless told otherwise: without
    it, groups would resume from older offsets. Damage to an older one only means that nothing can
    be recovered as of that moment.
    """
    return Reason.CLUSTER_STATE_LOST if is_newest else Reason.CLUSTER_STATE_DAMAGED


def read_settings(root: UPath, moment: Moment) -> Settings:
    """Read a moment's settings; nothing is captured if it has none.

    Raises:
        FileNotFoundError: When they don't exist.
        ClusterDocumentError: When they differ from what was sealed.
    """
    if moment.settings is None:
        return Settings()
    where = settings_path(moment.settings)
    sha256, settings = parse_settings(read_bytes(root / where), where)
    if sha256 != moment.settings:
        raise ClusterDocumentError(f"{where} holds the settings {sha256}; restore it from a copy")
    return settings


def _needs(root: UPath, moment: Moment) -> Damage | None:
    where, by = settings_path(moment.settings or ""), MOMENTS.where(moment.number)
    try:
        read_settings(root, moment)
    except FileNotFoundError:
        return Damage(where, f"is missing; {by} needs it")
    except ClusterDocumentError as error:
        return Damage(where, f"was changed; {by} needs it: {error}")
    return None


MOMENTS = SealedChain("cluster", parse_moment, _needs)


def moment_at(root: UPath, at: datetime | None, part: Part | None = None) -> Moment | None:
    """Return the newest moment at or before a time.

    Args:
        at: The time; None for the newest moment.
        part: The part that was captured at it; None for any moment.
    """
    for moment in MOMENTS.links(root):
        is_later = at is not None and datetime.fromisoformat(moment.answered_at) > at
        has_part = part is None or moment.parts[part].outcome == PartOutcome.CAPTURED
        if has_part and not is_later:
            return moment
    return None


def note_moment(root: UPath, state: ClusterState, *, asked_at: str, answered_at: str) -> SealedName:
    """Write the state of a cluster, unless the newest moment has it already.

    Returns:
        The name of the newest moment.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    for _ in range(TRIES):
        newest = MOMENTS.newest(root)
        content = settings_bytes(state.settings) if state.settings != Settings() else None
        settings = hash_of(content) if content is not None else None
        sealed = moment_of(
            state,
            number=newest.number + 1 if newest else 1,
            previous=newest.sha256 if newest and newest.sha256 else None,
            settings=settings,
            asked_at=asked_at,
            answered_at=answered_at,
        )
        if newest is not None and _is_current(root, newest, sealed.value):
            return newest
        if content is not None:
            _keep_settings(root, content)
        if MOMENTS.append(root, sealed):
            return sealed.value.name
    raise ArchiveError(f"{root / 'cluster'}: {TRIES} other runs wrote a moment; try again")


def _is_current(root: UPath, newest: SealedName, moment: Moment) -> bool:
    """Return whether the newest moment is intact and says the same."""
    try:
        known = MOMENTS.read(root, newest.number)
        read_settings(root, known)
    except (FileNotFoundError, ClusterDocumentError):
        return False
    return known.sha256 == newest.sha256 and known.is_like(moment)


def _keep_settings(root: UPath, content: bytes) -> None:
    path = root / settings_path(hash_of(content))
    if not create_text(path, content.decode()) and read_bytes(path) != content:
        # Damaged since; the name says which content is meant.
        write_text(path, content.decode())


def check_moments(
    root: UPath, named: Mapping[int, str], newest: SealedName | None, *, whole: bool
) -> list[Finding]:
    """Find moments and settings that are missing or were changed; see `SealedChain.check`."""
    return [
        Finding(judge(is_newest=damage.is_newest), damage.where, damage.detail)
        for damage in MOMENTS.check(root, named, newest, whole=whole)
    ]

"""The moments of a cluster on disk: written when something has changed, read back, checked.

`cluster.json`, the head, names the newest moment, so that the loss of the newest ones is detected;
receipts name the newest moment at the time of sealing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from upath import UPath

from kafka_drain.archive.cluster_documents import (
    ClusterDocumentError,
    Moment,
    MomentName,
    moment_of,
    moment_path,
    parse_moment,
    parse_settings,
    settings_bytes,
    settings_path,
)
from kafka_drain.archive.documents import ClusterHeadDocument
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.kafka.cluster_state import ClusterState, Outcome, Part, Settings
from kafka_drain.storage.json_files import create_text, write_text
from kafka_drain.storage.paths import list_folder, read_bytes
from kafka_drain.storage.sealed_json import check_seal

_FILE = re.compile(r"[0-9]{12}\.json")

#: If several validations write a moment at the same time, one of them succeeds per attempt.
TRIES = 100


class Damage(Enum):
    """What is wrong with a document."""

    MISSING = "is missing"
    CHANGED = "was changed"


def judge(*, is_newest: bool) -> Reason:
    """Return whether damage to a moment, or to its settings, does harm.

    No record is lost with either. A recovery takes the newest moment unless told otherwise: without
    it, groups would resume from older offsets. Damage to an older one only means that nothing can
    be recovered as of that moment.
    """
    return Reason.CLUSTER_STATE_LOST if is_newest else Reason.CLUSTER_STATE_DAMAGED


def read_moment(root: UPath, number: int) -> Moment:
    """Read a moment.

    Raises:
        FileNotFoundError: When it doesn't exist.
        ClusterDocumentError: When it differs from what was sealed.
    """
    where = moment_path(number)
    return parse_moment(read_bytes(root / where), where)


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


def newest_name(root: UPath) -> MomentName | None:
    """Return the name of the newest moment; None if there is none.

    A moment that a killed run wrote without renewing the head counts.
    """
    head = _read_head(root)
    if head is None and (number := max(_numbers(root), default=0)):
        head = MomentName(number, _hash(_content(root, moment_path(number)) or b""))
    while head and (content := _content(root, moment_path(head.number + 1))) is not None:
        head = MomentName(head.number + 1, _hash(content))
    return head


def moments(root: UPath) -> Iterator[Moment]:
    """Yield the intact moments, newest first; `check_moments` says what is wrong with others."""
    newest = newest_name(root)
    expected = newest.sha256 if newest else None
    for number in range(newest.number if newest else 0, 0, -1):
        seen = _look(root, number, expected)
        expected = seen.moment.previous if seen.moment else None
        if seen.damage is None and seen.moment is not None:
            yield seen.moment


def moment_at(root: UPath, at: datetime | None, part: Part) -> Moment | None:
    """Return the newest moment at or before a time at which a part was captured.

    Args:
        root: The archive's folder.
        at: The time; None for the newest moment.
        part: The part.
    """
    for moment in moments(root):
        is_later = at is not None and datetime.fromisoformat(moment.answered_at) > at
        if not is_later and moment.parts[part].outcome == Outcome.CAPTURED:
            return moment
    return None


def note_moment(root: UPath, state: ClusterState, *, asked_at: str, answered_at: str) -> MomentName:
    """Write what a cluster answered, unless it is what the newest moment says.

    Returns:
        The name of the newest moment.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    for _ in range(TRIES):
        newest = newest_name(root)
        settings = _settings_hash(state.settings)
        moment = moment_of(
            state,
            number=newest.number + 1 if newest else 1,
            previous=newest.sha256 if newest and newest.sha256 else None,
            settings=settings,
            asked_at=asked_at,
            answered_at=answered_at,
        )
        if newest is not None and _is_current(root, newest, moment):
            return newest
        if settings is not None:
            _keep_settings(root, settings, state.settings)
        if create_text(root / moment.name.where, moment.to_bytes().decode()):
            head = ClusterHeadDocument(number=moment.number, sha256=moment.sha256)
            head.write(root / "cluster.json")
            return moment.name
    raise ArchiveError(f"{root / 'cluster'}: {TRIES} other runs wrote a moment; try again")


def _is_current(root: UPath, newest: MomentName, moment: Moment) -> bool:
    """Return whether the newest moment is intact and says the same."""
    try:
        known = read_moment(root, newest.number)
        read_settings(root, known)
    except (FileNotFoundError, ClusterDocumentError):
        return False
    return known.sha256 == newest.sha256 and known.is_like(moment)


def _settings_hash(settings: Settings) -> str | None:
    return None if settings == Settings() else check_seal(settings_bytes(settings))


def _keep_settings(root: UPath, sha256: str, settings: Settings) -> None:
    path, content = root / settings_path(sha256), settings_bytes(settings)
    if not create_text(path, content.decode()) and read_bytes(path) != content:
        # Damaged since; the name says which content is meant.
        write_text(path, content.decode())


@dataclass(frozen=True, slots=True)
class _Seen:
    """One number of the chain, as it was found.

    Attributes:
        moment: The moment; None if it is missing or damaged.
        damage: What is wrong with it, or with its settings.
        where: The damaged file.
        detail: More about it.
    """

    moment: Moment | None = None
    damage: Damage | None = None
    where: str = ""
    detail: str = ""


def check_moments(
    root: UPath, named: Mapping[int, str], newest: MomentName | None, *, whole: bool
) -> list[Finding]:
    """Find moments and settings that are missing or were changed.

    Args:
        root: The archive's folder.
        named: Hashes of moments that receipts name, by number.
        newest: The newest moment.
        whole: Whether to check all moments; otherwise only the newest and those that are named.
    """
    numbers = set(named) | ({newest.number} if newest else set())
    last = max(numbers, default=0)
    if whole:
        numbers |= set(range(1, last + 1))
    expected = dict(named) | ({newest.number: newest.sha256} if newest else {})
    findings: list[Finding] = []
    after: Moment | None = None
    for number in sorted(numbers, reverse=True):
        follows = after if after is not None and after.number == number + 1 else None
        seen = _look(root, number, expected.get(number) or (follows and follows.previous) or None)
        after = seen.moment
        if seen.damage is not None:
            detail = f"{seen.damage.value}{seen.detail}"
            findings.append(Finding(judge(is_newest=number == last), seen.where, detail))
    return findings


def _look(root: UPath, number: int, expected: str | None) -> _Seen:
    where = moment_path(number)
    try:
        moment = read_moment(root, number)
    except FileNotFoundError:
        return _Seen(damage=Damage.MISSING, where=where)
    except ClusterDocumentError as error:
        return _Seen(damage=Damage.CHANGED, where=where, detail=f": {error}")
    if (expected is not None and moment.sha256 != expected) or moment.number != number:
        detail = f": it is {moment.sha256[:12]}, but {str(expected)[:12]} was sealed there"
        return _Seen(damage=Damage.CHANGED, where=where, detail=detail)
    place = settings_path(moment.settings or "")
    try:
        read_settings(root, moment)
    except FileNotFoundError:
        return _Seen(moment, Damage.MISSING, place, f"; {where} needs it")
    except ClusterDocumentError as error:
        return _Seen(moment, Damage.CHANGED, place, f"; {where} needs it: {error}")
    return _Seen(moment)


def _read_head(root: UPath) -> MomentName | None:
    head = ClusterHeadDocument.read_note(root / "cluster.json")
    return MomentName(head.number, head.sha256) if head is not None else None


def _numbers(root: UPath) -> list[int]:
    names = list_folder(root / "cluster")
    return [int(name.partition(".")[0]) for name in names if _FILE.fullmatch(name)]


def _content(root: UPath, where: str) -> bytes | None:
    try:
        return read_bytes(root / where)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _hash(content: bytes) -> str:
    try:
        return parse_moment(content).sha256
    except ClusterDocumentError:
        return ""

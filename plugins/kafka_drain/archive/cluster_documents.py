"""Documents of what a cluster was at a drained moment, sealed and chained.

`cluster/<number>.json` is one moment: what became of each part, and the groups' offsets. What
rarely changes is in `cluster/settings/<hash>.json`, which many moments share. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from kafka_drain.archive.format_version import FORMAT_VERSION, READABLE
from kafka_drain.errors import TerminalError
from kafka_drain.kafka.cluster_state import (
    Acl,
    Broker,
    ClusterState,
    GroupState,
    Part,
    PartResult,
    ScramUser,
    Settings,
    TopicState,
)
from kafka_drain.storage.sealed_json import SealedName, SealError, check_seal, seal
from kafka_drain.storage.typed_json import DocumentError, Shape

D = TypeVar("D")


class ClusterDocumentError(TerminalError, ValueError):
    """Raised when a document of a cluster differs from what was sealed."""


def settings_path(sha256: str) -> str:
    """Return the file of settings, relative to the archive."""
    return f"cluster/settings/{sha256}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a cluster was at one moment.

    Attributes:
        number: Its number, from 1.
        previous: Hash of the moment before; None for the first one, and after one that is lost.
        cluster_id: The cluster's id; empty if it didn't say.
        asked_at: When the first request was sent, in UTC.
        answered_at: When the last answer had arrived, in UTC.
        parts: What became of each part.
        groups: Groups with committed offsets in the topics; None if they weren't captured.
        settings: Hash of the settings; None if none of them was captured.
        sha256: Its own hash; empty until it is sealed.
    """

    number: int
    previous: str | None
    cluster_id: str
    asked_at: str
    answered_at: str
    parts: Mapping[Part, PartResult]
    groups: tuple[GroupState, ...] | None
    settings: str | None
    sha256: str = field(default="", compare=False)

    @property
    def name(self) -> SealedName:
        """Its name in receipts."""
        return SealedName(self.number, self.sha256)

    def to_bytes(self) -> bytes:
        """Return the sealed content of its file."""
        values = {name: getattr(self, name) for name in _MOMENT_KEYS}
        return seal(_MOMENT.dump(_MomentFile(format_version=FORMAT_VERSION, **values)))

    def is_like(self, other: Moment) -> bool:
        """Return whether another moment says the same of the cluster."""
        return _said(self) == _said(other)


def _said(moment: Moment) -> tuple[object, ...]:
    return moment.cluster_id, dict(moment.parts), moment.groups, moment.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class _MomentFile:
    """A moment's file: its keys in order."""

    format_version: int
    number: int
    previous: str | None
    cluster_id: str
    asked_at: str
    answered_at: str
    parts: Mapping[Part, PartResult]
    groups: tuple[GroupState, ...] | None
    settings: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _SettingsFile:
    """A file of settings: its keys in order."""

    format_version: int
    brokers: tuple[Broker, ...] | None
    topics: tuple[TopicState, ...] | None
    acls: tuple[Acl, ...] | None
    users: tuple[ScramUser, ...] | None


_MOMENT_KEYS = [each.name for each in fields(_MomentFile) if each.name != "format_version"]
_SETTINGS_KEYS = [each.name for each in fields(Settings)]
_MOMENT = Shape(_MomentFile, readable=READABLE)
_SETTINGS = Shape(_SettingsFile, readable=READABLE)


def moment_of(
    state: ClusterState,
    *,
    number: int,
    previous: str | None,
    settings: str | None,
    asked_at: str,
    answered_at: str,
) -> Moment:
    """Return the moment at which a cluster answered, sealed."""
    moment = Moment(
        number=number,
        previous=previous,
        cluster_id=state.cluster_id,
        asked_at=asked_at,
        answered_at=answered_at,
        parts=state.parts,
        groups=state.groups,
        settings=settings,
    )
    return parse_moment(moment.to_bytes())


def settings_bytes(settings: Settings) -> bytes:
    """Return the sealed content of the file of some settings."""
    values = {name: getattr(settings, name) for name in _SETTINGS_KEYS}
    return seal(_SETTINGS.dump(_SettingsFile(format_version=FORMAT_VERSION, **values)))


def parse_moment(content: bytes, name: str = "a moment") -> Moment:
    """Parse a moment and verify its own hash.

    Args:
        content: Content of its file.
        name: Its name, for messages.

    Raises:
        ClusterDocumentError: When a byte was changed, or it isn't a moment.
    """
    sha256, document = _parse(_MOMENT, content, name)
    values = {key: getattr(document, key) for key in _MOMENT_KEYS}
    return Moment(**values, sha256=sha256)


def parse_settings(content: bytes, name: str = "settings") -> tuple[str, Settings]:
    """Parse a file of settings and verify its own hash; return both. Raises like `parse_moment`."""
    sha256, document = _parse(_SETTINGS, content, name)
    values: dict[str, Any] = {key: getattr(document, key) for key in _SETTINGS_KEYS}
    return sha256, Settings(**values)


def _parse(shape: Shape[D], content: bytes, name: str) -> tuple[str, D]:
    try:
        return check_seal(content), shape.parse(content)
    except SealError as error:
        raise ClusterDocumentError(f"{name} is damaged: {error}; restore it from a copy") from error
    except DocumentError as error:
        raise ClusterDocumentError(
            f"{name} isn't a document known to this release: it {error}, or use the release that "
            "wrote it"
        ) from error

"""Documents of a cluster's settings at a drained moment, sealed and chained.

`cluster/<number>.json` is one moment: what became of each part, and the groups' offsets. What
rarely changes is in `cluster/settings/<hash>.json`, which many moments share. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from kafka_drain.archive.format import Link, Sealed, SealedDocument
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
from kafka_drain.storage.sealed_json import SealedName


class ClusterDocumentError(TerminalError, ValueError):
    """Raised when a document of a cluster differs from what was sealed."""


def settings_path(sha256: str) -> str:
    """Return the file of settings, relative to the archive."""
    return f"cluster/settings/{sha256}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment(Link):
    """The state of a cluster at one moment.

    Attributes:
        cluster_id: The cluster's id; empty if it didn't say.
        asked_at: When the first request was sent, in UTC.
        answered_at: When the last answer had arrived, in UTC.
        parts: The result of each part.
        groups: Groups with committed offsets in the topics; None if they weren't captured.
        settings: Hash of the settings; None if none of them was captured.
    """

    cluster_id: str
    asked_at: str
    answered_at: str
    parts: Mapping[Part, PartResult]
    groups: tuple[GroupState, ...] | None
    settings: str | None

    @property
    def name(self) -> SealedName:
        """Its name in receipts."""
        return SealedName(self.number, self.sha256)

    def is_like(self, other: Moment) -> bool:
        """Return whether another moment says the same of the cluster."""
        return _said(self) == _said(other)


def _said(moment: Moment) -> tuple[object, ...]:
    return moment.cluster_id, dict(moment.parts), moment.groups, moment.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class _SettingsFile(SealedDocument):
    """A file of settings: its keys in order."""

    brokers: tuple[Broker, ...] | None
    topics: tuple[TopicState, ...] | None
    acls: tuple[Acl, ...] | None
    users: tuple[ScramUser, ...] | None


_SETTINGS_KEYS = [each.name for each in fields(Settings)]


def moment_of(
    state: ClusterState,
    *,
    number: int,
    previous: str | None,
    settings: str | None,
    asked_at: str,
    answered_at: str,
) -> Sealed[Moment]:
    """Return the moment at which a cluster answered, sealed."""
    return Moment(
        number=number,
        previous=previous,
        cluster_id=state.cluster_id,
        asked_at=asked_at,
        answered_at=answered_at,
        parts=state.parts,
        groups=state.groups,
        settings=settings,
    ).sealed()


def settings_bytes(settings: Settings) -> bytes:
    """Return the sealed content of the file of some settings."""
    return _SettingsFile(**{name: getattr(settings, name) for name in _SETTINGS_KEYS}).to_bytes()


def parse_moment(content: bytes, name: str = "a moment") -> Moment:
    """Parse a moment and verify its own hash.

    Args:
        content: Content of its file.
        name: Its name, for messages.

    Raises:
        ClusterDocumentError: When a byte was changed, or it isn't a moment.
    """
    return Moment.parse_named(content, name, "a document", ClusterDocumentError)


def parse_settings(content: bytes, name: str = "settings") -> tuple[str, Settings]:
    """Parse a file of settings and verify its own hash; return both. Raises like `parse_moment`."""
    document = _SettingsFile.parse_named(content, name, "a document", ClusterDocumentError)
    values: dict[str, Any] = {key: getattr(document, key) for key in _SETTINGS_KEYS}
    return document.sha256, Settings(**values)

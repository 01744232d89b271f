"""An archive on disk: its location, and the documents that accompany the data."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from upath import UPath

from kafka_drain.archive.copies import copy_path, keep_copies, read_copy
from kafka_drain.archive.documents import ArchiveDocument, IdentityDocument
from kafka_drain.archive.format import FORMAT_VERSION
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.state_folder import StateFolder
from kafka_drain.errors import ArchiveError
from kafka_drain.storage.immutability import Immutability
from kafka_drain.storage.object_retention import can_lock
from kafka_drain.storage.paths import is_file, locate
from kafka_drain.storage.typed_json import DocumentError, parse


def locks_of_copy(root: UPath) -> dict[str, Any] | None:
    """Return how the archive's own copy of archive.json says that its files are locked."""
    with suppress(DocumentError):
        return parse(ArchiveDocument, read_copy(root, "archive.json") or b"").settings[2]
    return None


@dataclass(frozen=True, slots=True)
class Archive:
    """The folder that holds one pipeline's files, manifest and checkpoint.

    Attributes:
        own: Folder in which runs keep their state instead of in the archive; None for there.
    """

    root: UPath
    own: UPath | None = None

    @classmethod
    def at(cls, path: str | UPath) -> Archive:
        """Return the archive in a folder, which need not exist."""
        return cls(locate(path))

    @property
    def state(self) -> UPath:
        """The folder that has `republish/`, `drills/` and `plans/`."""
        return self.root if self.own is None else self.own

    def keeping_state_in(self, folder: str | UPath) -> Archive:
        """Return the archive with another place for what runs keep, which is checked.

        Raises:
            ConfigError: When the folder has something else in it.
            ArchiveError: When it belongs to another archive, or this isn't one.
        """
        archive = replace(self, own=locate(folder))
        archive._state_folder().check()
        return archive

    def _state_folder(self) -> StateFolder:
        assert self.own is not None
        document = self.snapshot().document
        known = Archive(self.root).identity()
        return StateFolder(self.own, self.root, document.pipeline, document.cluster_id, known)

    @property
    def exists(self) -> bool:
        """Whether the folder holds an `archive.json`."""
        return is_file(self.root / "archive.json")

    @property
    def has_lost_document(self) -> bool:
        """Whether `archive.json` is missing but a copy of it exists."""
        return not self.exists and is_file(copy_path(self.root, "archive.json"))

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the archive's current state."""
        return Snapshot(self.root)

    def require(self) -> None:
        """Raise an error if the folder isn't an archive.

        Raises:
            ArchiveError: When it isn't an archive; says what it is.
            StoreUnavailableError: When its object store doesn't respond.
        """
        self.snapshot().document  # noqa: B018 - read now

    def create(
        self,
        *,
        pipeline: str,
        cluster_id: str,
        topic_ids: dict[str, str],
        source: dict[str, Any],
        isolation_level: str = "read_committed",
        retention: str | None = None,
        immutable: Immutability | None = None,
        known: ArchiveDocument | None = None,
    ) -> None:
        """Write `archive.json`; also used to add topics to it.

        Args:
            pipeline: Name of the pipeline.
            cluster_id: Id of the Kafka cluster.
            topic_ids: Topic ids by topic.
            source: The drained topics: topics, topic_pattern or assign.
            isolation_level: Isolation level of the source.
            retention: The sink's `retention` option: Spark drops older files from the manifest.
            immutable: The store's lock of sealed files; None for none.
            known: The existing document; None if there is none.

        Raises:
            LockedError: When another process has written it meanwhile.
        """
        document = ArchiveDocument.model_validate(
            {
                **(known.content() if known else {}),
                "format_version": max(FORMAT_VERSION, known.format_version if known else 0),
                "pipeline": pipeline,
                "cluster_id": cluster_id,
                "topics": dict(sorted(topic_ids.items())),
                "source": source,
                "isolation_level": isolation_level,
                "retention": retention,
                "immutable": None if immutable is None else asdict(immutable),
            }
        )
        document.replace(self.root / "archive.json", known)

    def identity(self) -> str | None:
        """Return the archive's id; None if none has been needed yet."""
        if self.own is not None:
            return self._state_folder().identity()
        try:
            return IdentityDocument.read(self.root / "identity.json").id
        except FileNotFoundError:
            return None

    def identify(self) -> str:
        """Return the archive's id, creating it on first use; a copy of the archive keeps it."""
        if self.own is not None:
            return self._state_folder().identify()
        known = self.identity()
        if known is None:
            IdentityDocument(id=uuid.uuid4().hex).create(self.root / "identity.json")
            known = self.identity()
        if known is None:
            raise ArchiveError(
                f"{self.root / 'identity.json'} was removed while it was being written"
            )
        return known

    def update_topics(self, document: ArchiveDocument, topic_ids: dict[str, str]) -> None:
        """Add topic ids to `archive.json`, whose content is `document`; other topics are kept."""
        topics = dict(sorted((document.topics | topic_ids).items()))
        document.model_copy(update={"topics": topics}).replace(self.root / "archive.json", document)

    def raise_format(self, version: int) -> None:
        """Let `archive.json` have a version, unless it has a higher one.

        The caller holds the archive's lease.
        """
        known = self.snapshot().document
        if known.format_version < version:
            document = known.model_copy(update={"format_version": version})
            document.replace(self.root / "archive.json", known)
            # On a disk, the locks may be known from the copy alone, see `settings_differ`.
            is_bare = known.immutable is None and not can_lock(self.root)
            locks = locks_of_copy(self.root) if is_bare else None
            if locks is None:
                keep_copies(self.root, ["archive.json"])
            else:
                document = document.model_copy(update={"immutable": locks})
                document.write(copy_path(self.root, "archive.json"))

    def generation(self, number: int) -> Generation:
        """Return a generation by its number; it need not exist."""
        return Generation(self.root, number)

"""The archive on disk: which folder and document is where, and reading and opening them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from upath import UPath

from kafka_drain.archive.copies import copy_path
from kafka_drain.archive.documents import ArchiveDocument
from kafka_drain.archive.format_version import FORMAT_VERSION
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.window import Window
from kafka_drain.errors import ArchiveError
from kafka_drain.storage.json_files import create_document, read_document, write_document
from kafka_drain.storage.paths import locate, require_reachable

__all__ = ["Archive"]


@dataclass(frozen=True, slots=True)
class Archive:
    """The folder that holds one pipeline's files, manifest and checkpoint."""

    root: UPath

    @classmethod
    def at(cls, path: str | UPath) -> Archive:
        """Name an archive by its folder, which need not exist."""
        return cls(locate(path))

    @property
    def exists(self) -> bool:
        """Whether the folder holds an `archive.json`."""
        return (self.root / "archive.json").is_file()

    @property
    def has_lost_document(self) -> bool:
        """Whether there is only a copy of `archive.json`."""
        return not self.exists and copy_path(self.root, "archive.json").is_file()

    def document(self) -> ArchiveDocument:
        """Read `archive.json`.

        Raises:
            ArchiveError: When the folder is no archive, or one of a newer format.
            StoreUnavailableError: When its object store doesn't answer.
        """
        require_reachable(self.root)
        try:
            return ArchiveDocument.read(self.root / "archive.json")
        except FileNotFoundError as error:
            if self.has_lost_document:
                raise ArchiveError(
                    f"{self.root} has lost its archive.json; run `kafka-drain repair {self.root} "
                    "--apply`, which writes it back from its copy"
                ) from error
            seen = "is a folder without archive.json" if self.root.is_dir() else "doesn't exist"
            raise ArchiveError(
                f"{self.root} {seen}, expected an archive that a drain made; check the path"
            ) from error
        except NotADirectoryError as error:
            raise ArchiveError(f"{self.root} isn't a folder; check the archive's path") from error

    def create(
        self,
        *,
        pipeline: str,
        cluster_id: str,
        topic_ids: dict[str, str],
        source: dict[str, Any],
        isolation_level: str = "read_committed",
        retention: str | None = None,
    ) -> None:
        """Write `archive.json`; also to add topics to it.

        Args:
            pipeline: The pipeline's name.
            cluster_id: The Kafka cluster's id.
            topic_ids: Topic ids by topic.
            source: What is drained: topics, topic_pattern or assign.
            isolation_level: How the source reads transactions.
            retention: The sink's option of that name: Spark drops older files from the manifest.
        """
        known = self.document().content() if self.exists else {}
        write_document(
            self.root / "archive.json",
            {
                **known,
                "format_version": FORMAT_VERSION,
                "pipeline": pipeline,
                "cluster_id": cluster_id,
                "topics": dict(sorted(topic_ids.items())),
                "source": source,
                "isolation_level": isolation_level,
                "retention": retention,
            },
        )

    def topic_ids(self, generation: Generation) -> dict[str, str]:
        """Return the ids of the topics whose offsets a generation counts in.

        An archive of version 0.1 has them in `archive.json` only.
        """
        return self.document().topics | generation.document().topics

    def topic_lives(self) -> dict[tuple[str, str], int]:
        """Return the first generation that counts in each topic, by its name and id.

        Of a topic that was made again, the lower number is the older life.
        """
        first: dict[tuple[str, str], int] = {}
        for generation in self.generations():
            for name, topic_id in generation.document().topics.items():
                first.setdefault((name, topic_id), generation.number)
        return first

    def identity(self) -> str | None:
        """Return the archive's id; None where none was needed yet."""
        try:
            return str(read_document(self.root / "identity.json", "id")["id"])
        except FileNotFoundError:
            return None

    def identify(self) -> str:
        """Return the archive's id, which is made when it is first needed; a copy keeps it."""
        known = self.identity()
        if known is None:
            create_document(self.root / "identity.json", {"id": uuid.uuid4().hex})
            known = self.identity()
        if known is None:
            raise ArchiveError(f"{self.root / 'identity.json'} was removed as it was written")
        return known

    def update_topics(self, topic_ids: dict[str, str]) -> None:
        """Note new topic ids; those of other topics stay."""
        document = self.document()
        topics = dict(sorted((document.topics | topic_ids).items()))
        write_document(self.root / "archive.json", document.content() | {"topics": topics})

    def generations(self) -> list[Generation]:
        """Return the generations, oldest first.

        Raises:
            ArchiveError: When the folder is no archive.
        """
        self.document()
        folder = self.root / "generations"
        if not folder.is_dir():
            return []
        numbers = sorted(int(e.name) for e in folder.iterdir() if e.name.isdigit() and e.is_dir())
        if numbers and not _is_begun(self.generation(numbers[-1]).folder, "generation.json"):
            numbers.pop()
        return [self.generation(number) for number in numbers]

    def generation(self, number: int) -> Generation:
        """Name a generation by its number; it need not exist."""
        return Generation(self.root, number)

    def open_generation(self) -> Generation | None:
        """Return the generation that drains append to; None when none was opened."""
        generations = self.generations()
        return generations[-1] if generations else None

    def windows(self) -> list[Window]:
        """Return the windows that are begun, by name."""
        windows = [Window(self.root, key) for key in self.window_keys()]
        return [window for window in windows if _is_begun(window.folder, "plan.json")]

    def window_keys(self) -> list[str]:
        """Return the names of the folders of windows: one listing, however many there are."""
        folder = self.root / "windows"
        if not folder.is_dir():
            return []
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir())


def _is_begun(folder: UPath, document: str) -> bool:
    """Whether there is something in a folder: one that was killed as it was made holds nothing."""
    return (folder / document).is_file() or any(
        not entry.name.startswith(".") for entry in folder.iterdir()
    )

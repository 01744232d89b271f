"""A folder outside an archive in which runs keep what they otherwise keep in the archive.

For archives that can't be written: a read-only copy, or somebody else's. It has `republish/`,
`drills/` and `plans/`, laid out as in an archive, and `state.json`, which names the archive.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from upath import UPath

from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.storage.json_files import create_document, is_unfinished, read_document, read_note
from kafka_drain.storage.paths import is_file, is_of_volume, list_folder, quoted

#: Names the archive that the folder belongs to.
BINDING = "state.json"

_KEYS = ("id", "archive", "pipeline", "cluster_id")


@dataclass(frozen=True, slots=True)
class StateFolder:
    """A folder outside an archive with the state of its runs.

    Attributes:
        folder: The folder; it need not exist.
        pipeline: The archive's pipeline.
        cluster_id: Id of the cluster that it was drained from.
        known_id: The archive's own id; None if it has none.
    """

    folder: UPath
    root: UPath
    pipeline: str
    cluster_id: str
    known_id: str | None

    def check(self) -> None:
        """Refuse a folder with something else in it; writes nothing.

        Raises:
            ConfigError: When it is an archive, or holds other files.
            ArchiveError: When it belongs to another archive.
        """
        names = list_folder(self.folder)
        if "archive.json" in names:
            raise ConfigError(
                f"{self.folder} is an archive; name a folder of its own for the state of the runs"
            )
        if BINDING in names:
            self._bound_id()
        elif others := [n for n in names if not is_of_volume(n) and not is_unfinished(n)]:
            raise ConfigError(
                f"{self.folder} isn't empty (it has {min(others)}), and has no {BINDING} of "
                "earlier runs; name an empty or a new folder"
            )

    def identity(self) -> str | None:
        """Return the archive's id, its own or the one that it got here; None for none yet."""
        return self._bound_id() if is_file(self.folder / BINDING) else self.known_id

    def identify(self) -> str:
        """Bind the folder to the archive, and return the archive's id.

        Raises:
            ArchiveError: When it belongs to another archive, or can't be written.
        """
        document = {
            "format_version": 1,
            "id": self.known_id or uuid.uuid4().hex,
            "archive": str(self.root),
            "pipeline": self.pipeline,
            "cluster_id": self.cluster_id,
            "is_own_id": self.known_id is not None,
        }
        create_document(self.folder / BINDING, document)
        return self._bound_id()

    def _bound_id(self) -> str:
        path = self.folder / BINDING
        bound = read_document(path, *_KEYS)
        there = (bound["pipeline"], bound["cluster_id"])
        # An archive gets an id of its own with its first run or frozen plan, perhaps meanwhile.
        # Before that, a copy elsewhere can't be told from another archive.
        by_id = self.known_id is not None and bound.get("is_own_id", True)
        is_same = self.known_id == bound["id"] if by_id else bound["archive"] == str(self.root)
        if there != (self.pipeline, self.cluster_id) or not is_same:
            raise ArchiveError(
                f"{path} is of the archive {bound['archive']} (pipeline {bound['pipeline']}), "
                f"expected {self.root} (pipeline {self.pipeline}); give each archive a folder of "
                "its own. Nothing was changed"
            )
        return str(bound["id"])


def arguments_of(folder: UPath) -> str:
    """Return an archive as commands take it, with its state's folder if that isn't its own.

    Args:
        folder: An archive's folder, or one with the state of its runs.
    """
    bound = read_note(folder / BINDING, "archive")
    place = quoted(folder)
    return place if bound is None else f"{quoted(bound['archive'])} --state {place}"

"""A republish's folder in the archive, `republish/<key>/`.

plan.json         what is sent where; written once, before anything else
opened.json       the progress of all shards is in Kafka; nothing was sent before this file
offset-map.json   source offsets to target offsets
receipt.json      the run has ended, and what verify found; a run that has one sends no more

Beside the runs, `openings/` says which of them may open (openings.py).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from upath import UPath

from kafka_drain.documents import create_document, create_text, write_text
from kafka_drain.errors import ArchiveError
from kafka_drain.locations import read_bytes
from kafka_drain.republishing.plan import RepublishPlan
from kafka_drain.sealed_json import SealError, seal, unseal

__all__ = ["OPENINGS", "RepublishRun", "list_runs", "run_key"]

_FOLDER = "republish"

#: Beside the runs' folders; no run's key is like it, as those end in a hash.
OPENINGS = "openings"


def run_key(name: str) -> str:
    """Return a run's name as it stands in folders, transactional ids and groups.

    Readable, at most 61 characters, and another one for each name. What a name holds in braces is
    left to the hash.
    """
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", name.partition("{")[0]).strip("-.")[:48]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class RepublishRun:
    """One republish, whatever the number of attempts.

    Attributes:
        root: The archive's folder.
        key: Name of the run's folder.
    """

    root: UPath
    key: str

    @property
    def folder(self) -> UPath:
        """The run's folder."""
        return self.root / _FOLDER / self.key

    def plan(self) -> RepublishPlan | None:
        """Read the plan; None when the run wasn't planned yet.

        Raises:
            ArchiveError: When its bytes aren't those that were written.
        """
        content = _read(self.folder / "plan.json")
        if content is None:
            return None
        try:
            return RepublishPlan.from_bytes(content)
        except (SealError, ValueError, KeyError, TypeError) as error:
            raise ArchiveError(
                f"{self.folder / 'plan.json'} was changed ({error}), expected the plan that this "
                "run began with; restore it from a copy. Nothing more was sent"
            ) from error

    def write_plan(self, plan: RepublishPlan) -> RepublishPlan:
        """Write the plan where there is none, and return the one that counts."""
        create_text(self.folder / "plan.json", plan.to_bytes().decode("utf-8"))
        written = self.plan()
        if written is None:
            raise ArchiveError(f"{self.folder / 'plan.json'} was removed as it was written")
        return written

    @property
    def is_opened(self) -> bool:
        """Whether the progress of all shards was written to Kafka."""
        return (self.folder / "opened.json").is_file()

    def mark_opened(self, document: dict[str, Any]) -> None:
        """Note that the progress of all shards is in Kafka."""
        create_document(self.folder / "opened.json", document)

    @property
    def has_ended(self) -> bool:
        """Whether the run has its receipt."""
        return (self.folder / "receipt.json").is_file()

    def receipt(self) -> dict[str, Any] | None:
        """Read the receipt; None when the run hasn't ended.

        Raises:
            ArchiveError: When its bytes aren't those that were written.
        """
        content = _read(self.folder / "receipt.json")
        try:
            return None if content is None else unseal(content)
        except SealError as error:
            raise ArchiveError(
                f"{self.folder / 'receipt.json'} was changed ({error}); restore it from a copy"
            ) from error

    def write_receipt(self, receipt: dict[str, Any]) -> bool:
        """Write the receipt where there is none yet; False when there is one."""
        return create_text(self.folder / "receipt.json", seal(receipt).decode())

    def write_offset_map(self, content: bytes) -> None:
        """Write the offset map; a verify that runs again writes the same one."""
        write_text(self.folder / "offset-map.json", content.decode())

    def offset_map(self) -> bytes | None:
        """Read the offset map; None when there is none."""
        return _read(self.folder / "offset-map.json")


def _read(path: UPath) -> bytes | None:
    try:
        return read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def list_runs(root: UPath) -> Iterator[RepublishRun]:
    """Yield an archive's runs, by key."""
    folder = root / _FOLDER
    if folder.is_dir():
        for name in sorted(entry.name for entry in folder.iterdir()):
            if name != OPENINGS:
                yield RepublishRun(root, name)

"""Store a lease, so that only one of many processes gets it.

On a local file system it is one file, `lock.json`. It is created as a hard link, which succeeds for
only one of many processes, and changed only under the kernel's lock on that file, which ends with
the process: a crash leaves nothing behind but a lease that expires. On S3, Google's store and
Azure's it is created only if it doesn't exist, and replaced only if it is unchanged since it was
read. On a store without such a condition, if two drains take over a lease at the same moment, the
one that was overwritten finds out at its next renewal.

HDFS replaces nothing on a condition, but creates exclusively. There, each change of the lease is a
new file in the folder `.lock`, with the next number: who read number 7 replaces it by creating
number 8, which only one can, and then removes what is older. The release is such a file too. Who
was suspended for so long that number 8 was created and removed again may create it once more, and
then finds the higher number.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol

from upath import UPath

from kafka_drain.errors import ArchiveError
from kafka_drain.storage.conditional_writes import version_of
from kafka_drain.storage.json_files import create_document, replace_document
from kafka_drain.storage.outages import naming_silence
from kafka_drain.storage.paths import is_local, list_folder, read_bytes
from kafka_drain.storage.schemes import HDFS
from kafka_drain.storage.typed_json import DocumentError, Row, parse

NAME = "lock.json"
FOLDER = ".lock"

#: Number of searches for the newest file, in case it is removed between the list and the read.
_TRIES = 100

#: A numbered file. The one with the highest number counts, and is never removed: a writer that was
#: suspended could otherwise bring back a number from the past.
_NAME = re.compile(r"(\d{12})\.json")
#: The unfinished write of one of them.
_UNFINISHED = re.compile(r"\.(\d{12})\.json\.[0-9a-f]{32}\.tmp")


def name_of(number: int) -> str:
    """Return the name of a numbered file."""
    return f"{number:012d}.json"


def newest(names: Iterable[str]) -> int:
    """Return the highest number among some names; 0 if none is a lease's."""
    return max((int(found[1]) for found in map(_NAME.fullmatch, names) if found), default=0)


def superseded(names: Iterable[str], number: int) -> list[str]:
    """Return the files that a newer lease replaces, unfinished writes among them.

    A writer of the same number may still be at work; it will be told that it exists.

    Args:
        names: The files in the folder.
        number: Number of the newer lease.
    """
    found = ((name, _NAME.fullmatch(name) or _UNFINISHED.fullmatch(name)) for name in names)
    return sorted(name for name, match in found if match and int(match[1]) < number)


@dataclass(frozen=True, slots=True)
class Stored:
    """A lease as it is stored.

    Attributes:
        content: Its bytes, whatever they are.
        written_at: When, by the store's clock.
        version: Identifies this state of it; None if the store has no such thing.
    """

    content: bytes
    written_at: datetime
    version: str | None


class LeaseStore(Protocol):
    """Where one folder's lease is stored."""

    @property
    def path(self) -> UPath:
        """The path for messages."""

    def read(self) -> Stored | None:
        """Read the lease; None if there is none.

        Raises:
            OSError: When it can't be read.
            StoreUnavailableError: When its store doesn't answer.
        """

    def create(self, document: Mapping[str, Any]) -> bool:
        """Store a lease where there is none; return whether it is this one.

        Raises:
            ArchiveError: When the folder can't be written.
        """

    def replace(self, document: dict[str, Any], version: str | None) -> bool:
        """Replace the lease that was read with a version; return False if it has changed.

        Raises:
            ArchiveError: When the folder can't be written.
        """

    def remove(self, released: dict[str, Any], version: str | None) -> bool:
        """Remove the lease that was read with a version; return False if it has changed.

        Args:
            released: The content that replaces it, where something has to stay.
            version: The version that `read` returned.
        """

    def alone(self) -> AbstractContextManager[bool]:
        """Keep other writers of this machine out; yield False if it was just replaced."""


def lease_store(root: UPath) -> LeaseStore:
    """Return the store of a folder's lease."""
    return NumberedFiles(root / FOLDER) if root.protocol == HDFS else OneFile(root / NAME)


@dataclass(frozen=True, slots=True)
class OneFile:
    """A lease in a file that is replaced."""

    path: UPath

    def read(self) -> Stored | None:
        """Read the lease; see `LeaseStore`."""
        try:
            with naming_silence(self.path):
                # First, so that a later write is detected, at the latest by the store.
                version = version_of(self.path)
                return Stored(read_bytes(self.path), _written_at(self.path), version)
        except FileNotFoundError:
            return None

    def create(self, document: Mapping[str, Any]) -> bool:
        """Store a lease; see `LeaseStore`."""
        return create_document(self.path, document)

    def replace(self, document: dict[str, Any], version: str | None) -> bool:
        """Replace the lease; see `LeaseStore`."""
        return replace_document(self.path, document, version)

    def remove(self, released: dict[str, Any], version: str | None) -> bool:
        """Remove the file, which nobody replaces while its lease lasts.

        In a store, which removes on no condition, an expired lease stays: whoever takes it over at
        this moment would lose the new one.
        """
        if version is None or released["released_at"] < released["expires_at"]:
            self.path.unlink()
        return True

    def alone(self) -> AbstractContextManager[bool]:
        """Lock the file; see `LeaseStore`."""
        return _alone(self.path)


class _Released(Row):
    released_at: str


@dataclass(frozen=True, slots=True)
class NumberedFiles:
    """A lease in files that are only created, the newest of which counts.

    Attributes:
        path: Their folder.
    """

    path: UPath

    def read(self) -> Stored | None:
        """Read the lease; see `LeaseStore`."""
        _, stored = self._newest()
        return stored

    def create(self, document: Mapping[str, Any]) -> bool:
        """Store a lease; see `LeaseStore`."""
        number, stored = self._newest()
        return stored is None and self._write(number + 1, document)

    def replace(self, document: dict[str, Any], version: str | None) -> bool:
        """Replace the lease; see `LeaseStore`."""
        return self._write(int(version or 0) + 1, document)

    def remove(self, released: dict[str, Any], version: str | None) -> bool:
        """Store that the lease was released; see `LeaseStore`."""
        return self._write(int(version or 0) + 1, released)

    def alone(self) -> AbstractContextManager[bool]:
        """Yield True: a number is created by one writer only, of whatever machine."""
        return nullcontext(True)

    def _newest(self) -> tuple[int, Stored | None]:
        """Return the highest number, 0 for none, and its lease; None if it was released."""
        for _ in range(_TRIES):
            number = newest(list_folder(self.path))
            if not number:
                return 0, None
            path = self.path / name_of(number)
            try:
                stored = Stored(read_bytes(path), _written_at(path), str(number))
            except FileNotFoundError:
                # Superseded and removed since it was listed.
                continue
            return number, None if _is_released(stored.content) else stored
        raise ArchiveError(
            f"{self.path}: a file was removed each time before it could be read; stop what writes "
            "there, and try again"
        )

    def _write(self, number: int, document: Mapping[str, Any]) -> bool:
        path = self.path / name_of(number)
        if not create_document(path, document):
            return False
        names = list_folder(self.path)
        if newest(names) > number:
            # It was somebody's long ago.
            path.unlink(missing_ok=True)
            return False
        for name in superseded(names, number):
            (self.path / name).unlink(missing_ok=True)
        return True


def _is_released(content: bytes) -> bool:
    try:
        parse(_Released, content)
    except DocumentError:
        return False
    return True


def _written_at(path: UPath) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)


@contextmanager
def _alone(path: UPath) -> Iterator[bool]:
    """Lock a file against other writers; yield False if it was just replaced or removed."""
    if not is_local(path):
        yield True
        return
    try:
        file = open(str(path), "r+b")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        yield False
        return
    except OSError as error:
        raise ArchiveError(f"{path} can't be opened: {error.strerror or error}") from error
    with file:
        # Some network file systems don't support locks; the check below has to suffice there.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield _is_at(path, file.fileno())


def _is_at(path: UPath, descriptor: int) -> bool:
    try:
        # Opened, not just stat'ed: NFS answers a stat from its cache.
        with open(str(path), "rb") as file:
            return os.path.samestat(os.fstat(descriptor), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False

"""An archive's data keys, in `keys/`: each wrapped by a master key, never as it is.

Data files name the data key that opens them by its id. A data key's document can be written again
for another master key, which no data file notices.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from kafka_drain.clock import now_text
from kafka_drain.encryption.kms import KEY_BYTES, KmsError, KmsSilentError, open_kms
from kafka_drain.errors import ArchiveError, KeyUnavailableError, KmsUnavailableError, MachineError
from kafka_drain.storage.outages import lies_in_store

#: The archive's folder of data keys.
FOLDER = "keys"

#: Format of their documents.
VERSION = 1

_TEXTS = ("id", "kms", "key", "wrapped", "created_at")

#: `<id>.<version>.json`; the highest version counts.
_NAME = re.compile(r"([0-9a-f]{16})\.(\d{4})\.json")

#: Number of times that documents are listed again, in case a rewrap removes one before it is read.
_TRIES = 10

#: For how long a KMS that gave no answer isn't asked again: each of many files would wait for it.
_SILENT_SECONDS = 60
#: When it is asked again for a data key, by archive and id, and what was wrong.
_silent: dict[tuple[str, str], tuple[float, str]] = {}
#: Archives as they were opened, in a store with their own login.
_roots: dict[str, Any] = {}
_asking = threading.Lock()

#: Folders of an archive that hold data files, at any depth.
_HOLD_DATA = ("generations", "windows")


def root_of(path: Any) -> Any:
    """Return the archive's folder of a data file, whose path is a `Path` or acts like one."""
    for parent in path.parents:
        if parent.name in _HOLD_DATA:
            return parent.parent
    raise KeyUnavailableError(
        f"{path} is encrypted, but isn't in an archive, whose folder {FOLDER}/ says which key "
        "opens it"
    )


def list_keys(root: Any) -> dict[str, Any]:
    """Return the path of each data key's newest document, by id."""
    folder = root / FOLDER
    # Sorted by version within an id: the highest comes last.
    return {found[1]: folder / name for name in _names(folder) if (found := _NAME.fullmatch(name))}


def _names(folder: Any) -> list[str]:
    if lies_in_store(folder):
        # Not at the top: executors that read local files don't need fsspec.
        from kafka_drain.storage.paths import list_folder

        return sorted(list_folder(folder))
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _content(path: Any) -> bytes:
    if lies_in_store(path):
        # Not at the top, as above.
        from kafka_drain.storage.paths import read_bytes

        return read_bytes(path)
    content: bytes = path.read_bytes()
    return content


def older_documents(root: Any) -> list[Any]:
    """Return the documents that a newer one of the same data key has replaced."""
    newest = list_keys(root)
    folder = root / FOLDER
    return [
        folder / name
        for name in _names(folder)
        if (found := _NAME.fullmatch(name)) and newest[found[1]].name != name
    ]


def read_keys(root: Any, only: str | None = None) -> dict[str, dict[str, str]]:
    """Read each data key's newest document, by id, while a rewrap may replace them.

    Args:
        only: Id of the data key to read; None for all.

    Raises:
        ArchiveError: When one was changed, or a newer release wrote it.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return {
                id_: read_key(path) for id_, path in list_keys(root).items() if only in (None, id_)
            }
    raise ArchiveError(
        f"{root}/{FOLDER}/ has a data key that was removed each time before it could be read; stop "
        "what writes there, and try again"
    )


def read_key(path: Any) -> dict[str, str]:
    """Read a data key's document: `id`, `kms`, `key`, `wrapped`, `created_at`.

    Raises:
        ArchiveError: When it was changed, or a newer release wrote it.
    """
    return parse_key(path, _content(path))


def parse_key(path: Any, content: bytes) -> dict[str, str]:
    """Parse a data key's document; see `read_key`."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise ArchiveError(f"{path} isn't JSON; restore it from a copy") from error
    if not isinstance(document, dict):
        raise ArchiveError(f"{path} isn't a JSON object; restore it from a copy")
    version = document.get("format_version")
    if isinstance(version, bool) or version != VERSION:
        raise ArchiveError(
            f"{path} has format_version {version!r}, but this kafka-drain reads {VERSION}; use the "
            "release that wrote it"
        )
    for name in _TEXTS:
        if not isinstance(document.get(name), str) or not document[name]:
            raise ArchiveError(
                f"{path} has {name} {document.get(name)!r}, expected text; restore it from a copy"
            )
    named = _NAME.fullmatch(str(path).rpartition("/")[2])
    if named is not None and named[1] != document["id"]:
        raise ArchiveError(
            f"{path} is of data key {document['id']!r}, expected {named[1]!r}; restore it from a "
            "copy"
        )
    return {name: document[name] for name in _TEXTS}


def open_key(document: Mapping[str, str]) -> bytes:
    """Return the data key of a document, by asking its KMS.

    Raises:
        KeyUnavailableError: When the master key can't be had; says why.
        KmsUnavailableError: When its KMS doesn't answer, or is sealed or too busy.
    """
    which = f"{document['key']!r} of {document['kms']}"
    try:
        key = open_kms(document["kms"]).unwrap(document["wrapped"], document["key"], document["id"])
    except KmsSilentError as error:
        raise KmsUnavailableError(
            f"keys, values and headers are encrypted, and master key {which}, which opens them, "
            f"can't be asked for now: {error}; try again later"
        ) from error
    except (KmsError, MachineError) as error:
        raise KeyUnavailableError(
            f"keys, values and headers are encrypted, and master key {which}, which opens them, "
            f"isn't available: {error}. Offsets, times and receipts can be checked without it"
        ) from error
    if len(key) != KEY_BYTES:
        raise KeyUnavailableError(f"master key {which} opens something that isn't a data key")
    return key


def data_key(root: Any, id_: str) -> bytes:
    """Return an archive's data key; asks its KMS at most once in a process if it gets an answer.

    Without one, it asks again after a minute.

    Raises:
        KeyUnavailableError: When it can't be had: its document or its master key is missing, or
            its document was changed, which says nothing of the data file that needs it.
        KmsUnavailableError: When its KMS doesn't answer, or is sealed or too busy.
        StoreUnavailableError: When the archive's store doesn't answer.
    """
    wanted = (str(root), id_)
    _roots[wanted[0]] = root
    # One at a time: of several, one may get an answer and another none.
    with _asking:
        until, said = _silent.get(wanted, (0.0, ""))
        if time.monotonic() < until:
            raise KmsUnavailableError(said)
        try:
            return _data_key(*wanted)
        except KmsUnavailableError as error:
            _silent[wanted] = (time.monotonic() + _SILENT_SECONDS, str(error))
            raise


@lru_cache(maxsize=1000)
def _data_key(root: str, id_: str) -> bytes:
    place = _roots[root] if "://" in root else Path(root)
    try:
        document = read_keys(place, id_).get(id_)
    except (ArchiveError, OSError) as error:
        raise KeyUnavailableError(f"data key {id_} can't be read: {error}") from error
    if document is None:
        raise KeyUnavailableError(
            f"{root}/{FOLDER}/ has no data key {id_}: without it, the keys, values and headers of "
            "the files that name it can't be read any more. Restore the folder from a copy"
        )
    return open_key(document)


def wrapped_document(id_: str, key: bytes, kms: str, master: str) -> dict[str, Any]:
    """Wrap a data key, and return its document.

    Raises:
        KeyUnavailableError: When the master key can't be had, or doesn't give the data key back.
        KmsUnavailableError: When its KMS doesn't answer, or is sealed or too busy.
    """
    try:
        opened = open_kms(kms)
        wrapped = opened.wrap(key, master, id_)
        # A key that only wraps would make the new files unreadable.
        if opened.unwrap(wrapped, master, id_) != key:
            raise KmsError("it gives back something else than it was given")
    except KmsSilentError as error:
        raise KmsUnavailableError(
            f"master key {master!r} of {kms} can't wrap a data key now: {error}. Nothing was "
            "changed; try again later"
        ) from error
    except (KmsError, MachineError) as error:
        raise KeyUnavailableError(
            f"master key {master!r} of {kms} can't wrap a data key: {error}. Nothing was changed"
        ) from error
    return {
        "format_version": VERSION,
        "id": id_,
        "kms": kms,
        "key": master,
        "wrapped": wrapped,
        "created_at": now_text(),
    }


def file_name(id_: str, version: int) -> str:
    """Return the name of a data key's document."""
    return f"{id_}.{version:04d}.json"


def version_of(path: Any) -> int:
    """Return the version of a data key's document, from its name."""
    return int(cast(re.Match[str], _NAME.fullmatch(path.name))[2])

"""Atomic reads and writes of an archive's JSON documents.

On a local file system, a document is durable when the call returns: file and folder are synced, so
that a power cut leaves the old document or the complete new one, never an empty one.
"""

from __future__ import annotations

import errno
import json
import os
import re
import uuid
from collections.abc import Mapping
from typing import Any, TextIO

from upath import UPath

from kafka_drain.errors import ArchiveError, NotWritableError, StoreUnavailableError
from kafka_drain.storage.conditional_writes import create_object, is_refused, replace_object
from kafka_drain.storage.immutability import Retention
from kafka_drain.storage.outages import lies_in_store, may_pass, remedy_of
from kafka_drain.storage.paths import (
    has_folders,
    is_file,
    is_local,
    list_folder,
    make_folder,
    read_bytes,
    sync_folder,
)
from kafka_drain.storage.typed_json import DocumentError, parse_object

#: Errors of file systems that are full.
FULL = {errno.ENOSPC, errno.EDQUOT}
# Errors of file systems without hard links.
NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}

#: Temporary name of a document while it is being written.
_UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}\.tmp")


def is_unfinished(name: str) -> bool:
    """Return whether a file is the unfinished write of a document, left by a kill or a crash."""
    return _UNFINISHED.fullmatch(name) is not None


def clear_unfinished(path: UPath) -> None:
    """Remove unfinished writes of a document; the caller must be its only writer."""
    if not has_folders(path):
        return
    for name in list_folder(path.parent):
        found = _UNFINISHED.fullmatch(name)
        if found and found["name"] == path.name:
            path.with_name(name).unlink(missing_ok=True)


def read_document(path: UPath, *keys: str) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        keys: Required keys.

    Raises:
        FileNotFoundError: When the file doesn't exist.
        ArchiveError: When the file isn't a JSON object, or lacks a key.
    """
    try:
        document = parse_object(read_bytes(path))
    except DocumentError as error:
        raise ArchiveError(f"{path} {error}") from error
    missing = [key for key in keys if key not in document]
    if missing:
        raise ArchiveError(f"{path} has no {', '.join(missing)}; restore it from a copy")
    return document


def read_note(path: UPath, *keys: str) -> dict[str, Any] | None:
    """Read an auxiliary JSON object, which proves nothing and is rewritten by the next run.

    In an archive written by an older release, it may be empty after a power cut. Validation reports
    an unreadable one as a finding.

    Args:
        keys: Required keys.

    Returns:
        None if the file doesn't exist or can't be read.
    """
    try:
        return read_document(path, *keys)
    except (FileNotFoundError, NotADirectoryError, ArchiveError):
        return None


def write_document(path: UPath, document: dict[str, Any]) -> None:
    """Write a JSON object; a reader sees either the old file or the complete new one.

    Raises:
        ArchiveError: When the folder can't be written.
    """
    write_text(path, _text(document))


def write_text(path: UPath, text: str) -> None:
    """Write a text file; a reader sees either the old file or the complete new one.

    Locally and on HDFS this is a rename; an object store shows an object only when it is complete.

    Raises:
        ArchiveError: When the folder can't be written; NotWritableError if this user may not.
        StoreUnavailableError: When its store doesn't answer, or is busy.
    """
    try:
        make_folder(path.parent, durable=True)
        if not is_local(path):
            _put(path, text)
            return
        beside = _beside(path)
        try:
            _write_synced(beside, text)
            os.replace(str(beside), str(path))
            sync_folder(path.parent)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _not_written(path, error) from error


def _put(path: UPath, text: str) -> None:
    try:
        path.write_bytes(text.encode())
    except (OSError, StoreUnavailableError):
        raise
    except Exception as error:
        # Each store has its own exceptions.
        raise _not_written(path, error) from error


def create_document(path: UPath, document: Mapping[str, Any]) -> bool:
    """Create a JSON document; see `create_text`."""
    return create_text(path, _text(document))


def create_text(path: UPath, text: str, retention: Retention | None = None) -> bool:
    """Create a text file; a reader sees either no file or the complete one.

    If several callers race with different texts, exactly one gets True. On an object store this
    requires exclusive creation through fsspec, which s3fs, gcsfs, adlfs and hdfs.py have; where the
    store doesn't, the later of two callers may overwrite the other, which detects it when it reads
    again.

    Args:
        text: Its content.
        retention: Its lock, in a store; None for none.

    Returns:
        False if the file already exists; it is left unchanged.

    Raises:
        ArchiveError: When the folder can't be written.
        StoreUnavailableError: When its store doesn't answer, is busy, or takes no writes now.
    """
    try:
        make_folder(path.parent, durable=True)
    except OSError as error:
        raise _not_written(path, error) from error
    if not is_local(path):
        return _create_object(path, text, retention)
    try:
        _create_local(path, text)
        return True
    except FileExistsError:
        return False
    except OSError as error:
        raise _not_written(path, error) from error


def _create_object(path: UPath, text: str, retention: Retention | None) -> bool:
    try:
        create_object(path, text.encode(), retention)
    except StoreUnavailableError:
        raise
    except Exception as error:
        if not is_refused(error):
            raise _not_written(path, error) from error
    # Also after a refusal: the first attempt may have succeeded with its response lost.
    try:
        return read_bytes(path) == text.encode()
    except FileNotFoundError:
        # Removed since: a lease that was released.
        return False


def replace_document(path: UPath, document: dict[str, Any], version: str | None) -> bool:
    """Overwrite a JSON document if it is unchanged since it was read.

    Args:
        document: The new content.
        version: The result of `version_of` before the read; None to write unconditionally.

    Returns:
        False if the document was changed in the meantime; it is left unchanged.

    Raises:
        ArchiveError: When the folder can't be written.
    """
    if version is None:
        write_document(path, document)
        return True
    text = _text(document)
    try:
        replace_object(path, text.encode(), version)
    except Exception as error:
        if not is_refused(error):
            raise _not_written(path, error) from error
        return is_file(path) and read_bytes(path) == text.encode()
    return True


def _create_local(path: UPath, text: str) -> None:
    beside = _beside(path)
    try:
        _write_synced(beside, text)
        os.link(str(beside), str(path))
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # Without hard links: equally exclusive, but a crash may leave half a file.
        _write_whole(path, text)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(path.parent)


def _write_synced(path: UPath, text: str) -> None:
    with open(str(path), "w", encoding="utf-8") as file:
        _sync(file, text)


def _write_whole(path: UPath, text: str) -> None:
    """Write a file that must not exist; a full disk, or a signal, leaves no half of it."""
    with open(str(path), "x", encoding="utf-8") as file:
        try:
            _sync(file, text)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _sync(file: TextIO, text: str) -> None:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=False) + "\n"


def _beside(path: UPath) -> UPath:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def _not_written(path: UPath, error: Exception) -> ArchiveError | StoreUnavailableError:
    why = getattr(error, "strerror", None) or error
    if remedy := remedy_of(error):
        return StoreUnavailableError(f"{path} can't be written: {why}; {remedy}")
    if may_pass(path, error):
        return StoreUnavailableError(
            f"{path} can't be written: {why}; check that its store is running, and try again"
        )
    is_refused = isinstance(error, PermissionError) or getattr(error, "errno", 0) == errno.EROFS
    kind = NotWritableError if is_refused else ArchiveError
    return kind(f"{path} can't be written: {why}; {_remedy(path, error)}")


def _remedy(path: UPath, error: Exception) -> str:
    """Return the remedy for a file that can't be written."""
    number = getattr(error, "errno", None)
    if number in FULL:
        return "free disk space, or raise the quota, and run this again; nothing was replaced"
    if number == errno.EROFS:
        return "its file system is mounted read-only; mount it writable"
    # A store's package gives it to each answer that it doesn't know.
    if number == errno.EIO and not lies_in_store(path):
        return "its disk has failed; check the system log"
    return "check that the folder exists and that this user may write to it"

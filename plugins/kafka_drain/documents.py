"""JSON documents of an archive, read whole and written atomically."""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

from upath import UPath

from kafka_drain.errors import ArchiveError

__all__ = ["read_document", "write_document", "write_text"]


def read_document(path: UPath, *keys: str) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.
        keys: Keys that it has to have.

    Raises:
        FileNotFoundError: When there is no such file.
        ArchiveError: When the file isn't a JSON object, or lacks a key.
    """
    content = path.read_bytes()
    try:
        document = json.loads(content)
    except ValueError as error:
        raise ArchiveError(f"{path} isn't JSON ({error}); restore it from a copy") from error
    if not isinstance(document, dict):
        raise ArchiveError(f"{path} holds {content[:40].decode()!r}, expected a JSON object")
    missing = [key for key in keys if key not in document]
    if missing:
        raise ArchiveError(f"{path} has no {', '.join(missing)}; restore it from a copy")
    return document


def write_document(path: UPath, document: dict[str, Any]) -> None:
    """Write a JSON object so that a reader sees the old file or the whole new one.

    Raises:
        ArchiveError: When the folder can't be written.
    """
    write_text(path, json.dumps(document, indent=2, sort_keys=False) + "\n")


def write_text(path: UPath, text: str) -> None:
    """Write a text file so that a reader sees the old file or the whole new one.

    Locally that is a rename; an object store shows an object only when it is complete.

    Raises:
        ArchiveError: When the folder can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.protocol not in ("", "file"):
            path.write_text(text)
            return
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            beside.write_text(text)
            os.replace(str(beside), str(path))
        except OSError:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ArchiveError(
            f"{path} can't be written: {error.strerror or error}; "
            "check that the folder exists and that this user may write to it"
        ) from error

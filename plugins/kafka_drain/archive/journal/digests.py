"""Digests of documents in the journal: one hash over the relevant content. Opens nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kafka_drain.archive.receipts import receipt_at
from kafka_drain.storage.typed_json import parse_object

#: Folder of the requests to erase records.
ERASURES = "erasures"


def digest_of(where: str, content: bytes) -> str:
    """Return the journal's digest of a document.

    Args:
        where: The file, relative to the archive.
        content: Content of the file.

    Raises:
        ValueError: When the content isn't such a document.
    """
    folder, _, name = where.rpartition("/")
    if folder == ERASURES:
        return canonical_digest(parse_object(content))
    if name not in _DIGESTS:
        return receipt_at(content, where).sha256
    document = parse_object(content)
    try:
        return _DIGESTS[name](document)
    except KeyError as error:
        raise ValueError(f"{where} has no {error}") from error


def identity_digest(document: Mapping[str, Any]) -> str:
    """Return the hash of the archive's identity in `archive.json`."""
    return canonical_digest((document["pipeline"], document["cluster_id"]))


def generation_digest(document: Mapping[str, Any]) -> str:
    """Return the hash of the parts of `generation.json` that never change after sealing.

    Topics may be added as they are drained; drained topics are in the receipts.
    """
    return canonical_digest({key: value for key, value in document.items() if key != "topics"})


def plan_digest(document: Mapping[str, Any]) -> str:
    """Return the hash of a window's `plan.json`."""
    return canonical_digest(document)


def canonical_digest(value: object) -> str:
    """Return the SHA-256 of a JSON value, independent of its formatting."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


_DIGESTS = {
    "archive.json": identity_digest,
    "generation.json": generation_digest,
    "plan.json": plan_digest,
}

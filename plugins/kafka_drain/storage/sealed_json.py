"""Sealed JSON: one line that ends in its own SHA-256, taken over all bytes before `,"sha256":`.

Receipts and republish plans have this form, so that a single changed byte is detected.

Opens nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SEAL = b',"sha256":"'
#: End of a sealed file.
SEALED_END = b'"}\n'
_SEAL_BYTES = len(_SEAL) + 64 + len(SEALED_END)


class SealError(ValueError):
    """Raised when bytes differ from the sealed ones."""


@dataclass(frozen=True, slots=True)
class SealedName:
    """Names one of a chain of sealed documents.

    Attributes:
        number: Its number, from 1.
        sha256: Its hash.
    """

    number: int
    sha256: str


def seal(document: Mapping[str, Any]) -> bytes:
    """Return the sealed bytes of a JSON object."""
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode() + SEALED_END


def hash_of(content: bytes) -> str:
    """Return the hash that sealed bytes end in; `check_seal` says whether it is theirs."""
    return content[-len(SEALED_END) - 64 : -len(SEALED_END)].decode("ascii", "replace")


def check_seal(content: bytes) -> str:
    """Verify a file's bytes and return their hash.

    Raises:
        SealError: When a byte was changed, or the content was never sealed.
    """
    body, end = content[:-_SEAL_BYTES], content[-_SEAL_BYTES:]
    if not end.startswith(_SEAL) or not end.endswith(SEALED_END):
        raise SealError(f"{len(content)} bytes that don't end in their own SHA-256")
    written = hash_of(content)
    if hashlib.sha256(body).hexdigest() != written:
        raise SealError("the SHA-256 at its end doesn't match its bytes")
    return written

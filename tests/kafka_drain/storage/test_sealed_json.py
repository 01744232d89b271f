"""A sealed line of JSON: its form, and that no byte of it can be another one."""

from __future__ import annotations

import hashlib
import json

import pytest

from kafka_drain.storage.sealed_json import SealError, check_seal, hash_of, seal

DOCUMENT = {"topic": "größe", "files": [{"path": "a", "bytes": 3}], "gaps": {}}


def test_seal() -> None:
    """A sealed document is one line of JSON, whose last key is the hash of all before it."""
    content = seal(DOCUMENT)

    body, _, rest = content.partition(b',"sha256":"')
    assert rest == f'{hashlib.sha256(body).hexdigest()}"}}\n'.encode()
    assert json.loads(content) == {**DOCUMENT, "sha256": check_seal(content)}
    assert hash_of(content) == check_seal(content)
    assert "größe".encode() in content
    assert content.count(b"\n") == 1
    assert b" " not in content


def test_check_seal_changed() -> None:
    """A byte that is changed, missing or added is found, wherever it is."""
    content = seal(DOCUMENT)

    for at in range(len(content)):
        before, other, after = content[:at], bytes([content[at] ^ 1]), content[at + 1 :]
        for changed in (before + other + after, before + after, before + other + content[at:]):
            with pytest.raises(SealError):
                check_seal(changed)


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b"\0" * 200, seal(DOCUMENT)[:-1], seal(DOCUMENT) + b"\n"]
)
def test_check_seal_never(content: bytes) -> None:
    """What was never sealed, or is cut off, is refused with its length."""
    with pytest.raises(SealError, match=f"^{len(content)} bytes"):
        check_seal(content)

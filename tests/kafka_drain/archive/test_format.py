"""Sealed documents: a dataclass is what its file holds, and knows its hash."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_drain.archive.format import SealedDocument
from kafka_drain.storage.sealed_json import SealError, check_seal, seal
from kafka_drain.storage.typed_json import ADDED, OPTIONAL, DocumentError, VersionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(SealedDocument):
    """A document with a key of each kind."""

    text: str
    count: int = 0
    later: int = field(default=7, metadata=ADDED)
    perhaps: bool = field(default=True, metadata=OPTIONAL)


WHOLE = {"format_version": 1, "text": "é", "count": 0, "later": 7}


def test_sealed() -> None:
    """What is sealed is what is read, with the hash that its bytes end in."""
    sealed = Note(text="é").sealed()

    assert sealed.content == seal(WHOLE)
    assert sealed.value.sha256 == check_seal(sealed.content)
    read = Note.parse(sealed.content)
    assert (read, read.sha256) == (sealed.value, sealed.value.sha256)
    assert read.sealed() == sealed
    assert read == Note(text="é")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, Note(text="é")),
        ({"perhaps": False}, Note(text="é", perhaps=False)),
        ({"perhaps": True}, Note(text="é")),
        ({"of_a_later_release": {}}, Note(text="é")),
        ({"later": None}, "later is None; expected a valid integer"),
        ({"count": "1"}, "count is 1; expected a valid integer"),
    ],
)
def test_parse_keys(keys: dict[str, Any], expected: Any) -> None:
    """Unknown keys are ignored, and no type is taken for another."""
    content = seal(WHOLE | keys)

    if isinstance(expected, str):
        with pytest.raises(DocumentError, match=expected):
            Note.parse(content)
        return
    assert Note.parse(content) == expected


@pytest.mark.parametrize("key", WHOLE)
def test_parse_without_key(key: str) -> None:
    """Only what older releases lack may be absent, not what merely has a default."""
    content = seal({name: value for name, value in WHOLE.items() if name != key})

    if key == "later":
        assert Note.parse(content) == Note(text="é")
        return
    said = "format version None" if key == "format_version" else f"has no {key}"
    with pytest.raises(DocumentError, match=said):
        Note.parse(content)


@pytest.mark.parametrize("version", [0, 2, "1", True, 1.0, None, [1]])
def test_parse_other_version(version: Any) -> None:
    """Another version is said, whatever else is wrong; also by an error that was passed on."""
    with pytest.raises(VersionError, match=r"has format version .*, expected 1") as caught:
        Note.parse(seal({"format_version": version}))

    passed_on = pickle.loads(pickle.dumps(caught.value))
    assert (str(passed_on), passed_on.version) == (str(caught.value), version)


def test_parse_changed() -> None:
    """A changed byte is found before anything is read."""
    with pytest.raises(SealError):
        Note.parse(seal(WHOLE).replace(b'"count":0', b'"count":1'))


def test_parse_two_hashes() -> None:
    """Of two keys with a hash, the seal counts, which is the last."""
    content = seal(WHOLE | {"sha256": "x"})

    assert Note.parse(content).sha256 == check_seal(content)

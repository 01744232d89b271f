"""Documents as typed values: what is refused, and what is written."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

from kafka_drain.storage.typed_json import (
    ADDED,
    OPTIONAL,
    Complete,
    DocumentError,
    Readable,
    Row,
    VersionError,
    dump,
    parse,
    parse_object,
    reason_of,
)


@dataclass(frozen=True)
class Part:
    """A part of a document."""

    start: int


@dataclass(frozen=True)
class Document(Complete):
    """A document with a key of each kind."""

    format_version: Annotated[int, Readable((2, 3))]
    parts: list[Part]
    usual: int = 5
    added: int = field(default=6, metadata=ADDED)
    optional: int = field(default=7, metadata=OPTIONAL)


ALL: dict[str, Any] = {
    "format_version": 3,
    "parts": [{"start": 1}],
    "usual": 1,
    "added": 2,
    "optional": 3,
}


def read(**changes: Any) -> Document:
    """Parse the document with other values; without the keys that have none."""
    document = {name: value for name, value in (ALL | changes).items() if value is not ...}
    return parse(Document, json.dumps(document).encode())


def test_parse() -> None:
    """Each key is read; one that an older release didn't know, or that says nothing, may lack."""
    assert read() == Document(3, [Part(1)], 1, 2, 3)
    assert read(added=..., optional=..., unknown=9) == Document(3, [Part(1)], 1)


@pytest.mark.parametrize("changes", [{}, {"optional": 7}, {"usual": 5, "added": 6}])
def test_dump(changes: dict[str, Any]) -> None:
    """All keys are written, in their order, but one that says nothing."""
    expected = {name: v for name, v in (ALL | changes).items() if (name, v) != ("optional", 7)}

    assert list(dump(read(**changes)).items()) == list(expected.items())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        # A default isn't what a document says.
        ({"usual": ..., "parts": ...}, "has no parts, usual; restore it from a copy"),
        ({"usual": "1"}, "was changed: usual is 1; expected a valid integer; restore it from a co"),
        ({"usual": 1.5}, "was changed: usual is 1.5; expected a valid integer; restore it from"),
        ({"parts": [{"start": 1}, {"start": None}]}, "was changed: parts[1].start is None; expect"),
        ({"parts": "\x1b[2J" * 99}, "was changed: parts is \\x1b[2J"),
        ({"format_version": 4}, "has format version 4, expected 2 or 3"),
        ({"format_version": True}, "has format version True, expected 2 or 3"),
        # The version first: another one has other keys.
        ({"format_version": 1, "usual": ...}, "has format version 1, expected 2 or 3"),
        ({"format_version": ...}, "has format version None, expected 2 or 3"),
    ],
)
def test_parse_refused(changes: dict[str, Any], says: str) -> None:
    """Nothing is converted or made up; what is wrong is named in one line for a terminal."""
    with pytest.raises(DocumentError) as caught:
        read(**changes)

    text = str(caught.value)
    assert text.startswith(says)
    assert text.isprintable()
    assert len(text) < 500
    assert isinstance(caught.value, VersionError) is ("format_version" in changes)


@pytest.mark.parametrize(
    "content",
    [
        b'{"start":1,"start":1}',
        b'\xef\xbb\xbf{"start":1}',
        '{"start":1}'.encode("utf-16"),
        b'{"start":1',
        b"[1]",
        b"",
        b"[" * 100_000,
    ],
)
def test_parse_not_json(content: bytes) -> None:
    """Bytes of which two readers may make different values are no document."""
    with pytest.raises(DocumentError):
        parse_object(content)
    with pytest.raises(DocumentError):
        parse(Part, content)


def test_row() -> None:
    """Keys that this release doesn't know are kept, and no default is added."""

    class Known(Row):
        a: int
        b: int = 5

    assert parse(Known, b'{"a":1,"c":2}').content() == {"a": 1, "c": 2}
    with pytest.raises(DocumentError, match="expected a valid integer"):
        parse(Known, b'{"a":"1"}')


def test_reason_of() -> None:
    """The reason alone is without advice."""
    with pytest.raises(DocumentError) as caught:
        read(usual=None)

    assert reason_of(caught.value) == "usual is None; expected a valid integer"

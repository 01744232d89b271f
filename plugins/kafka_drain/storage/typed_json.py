"""JSON documents as typed values: parsed strictly, with errors that name the problem.

A document is a pydantic model, or a frozen dataclass if it has thousands of rows. Nothing is
converted: a number as text is an error. Unknown keys are ignored by dataclasses and kept by models.

Opens nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")

#: Length, in characters, to which a value in an error is cut.
_SHOWN = 200


class DocumentError(ValueError):
    """Raised when bytes aren't the expected document; the text follows the document's name."""


class VersionError(DocumentError):
    """Raised when a document has a version that this release doesn't read.

    Attributes:
        version: The version, or what is in its place.
    """

    def __init__(self, text: str, version: object = None) -> None:
        super().__init__(text)
        self.version = version


class Row(BaseModel):
    """A JSON object, whole or part of a document; keeps keys unknown to this release."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    def content(self) -> dict[str, Any]:
        """Return the JSON object as read or built: no default is added, no unknown key lost."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class _Version(BaseModel):
    model_config = ConfigDict(extra="ignore")

    missing: ClassVar[object] = object()

    format_version: Any = missing


class Shape(Generic[T]):
    """Reads and writes one kind of document.

    Args:
        kind: A `Row`, or a frozen dataclass.
        readable: Versions that are read; empty if the document has no version.
        without_version: Version of a document without one; None if each must have one.
    """

    def __init__(
        self, kind: type[T], *, readable: Collection[int] = (), without_version: int | None = None
    ) -> None:
        self._kind = kind
        self._readable = readable
        self._without_version = without_version

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        # Built when first used: a command needs few of all documents.
        return TypeAdapter(self._kind)

    def parse(self, content: bytes) -> T:
        """Parse a document's bytes.

        Raises:
            VersionError: When it has another version, whatever else it says.
            DocumentError: When it isn't such a document; names key, value and what was expected.
        """
        try:
            # The version first, because another one may have other keys.
            if self._readable:
                self._require_readable(_Version.model_validate_json(content).format_version)
            return self._adapter.validate_json(content, strict=True)
        except ValidationError as error:
            parse_object(content)
            raise DocumentError(_wrong(error)) from error

    def _require_readable(self, version: Any) -> None:
        if version is _Version.missing:
            version = self._without_version
        # True equals 1.
        if type(version) is not int or version not in self._readable:
            expected = " or ".join(map(str, self._readable))
            raise VersionError(f"has format version {version!r}, expected {expected}", version)

    def dump(self, value: T) -> dict[str, Any]:
        """Return a value as JSON types, in the order of its fields."""
        document: dict[str, Any] = self._adapter.dump_python(value, mode="json", by_alias=True)
        return document


def parse_object(content: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        DocumentError: When it isn't one.
    """
    try:
        # Not of the bytes: then it would also take UTF-16, and a byte order mark.
        document = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"isn't JSON ({error}); restore it from a copy") from error
    if not isinstance(document, dict):
        shown = content[:40].decode(errors="replace")
        raise DocumentError(f"holds {shown!r}, expected a JSON object")
    return document


def _wrong(error: ValidationError) -> str:
    """Describe the error in a document."""
    found = error.errors(include_url=False)
    missing = [_key(each["loc"]) for each in found if each["type"] == "missing"]
    if missing:
        return f"has no {', '.join(missing)}; restore it from a copy"
    first = found[0]
    expected = first["msg"].removeprefix("Value error, ")
    if expected.startswith("Input should be "):
        expected = f"expected {expected.removeprefix('Input should be ')}"
    shown = str(first["input"])[:_SHOWN]
    return f"was changed: {_key(first['loc'])} is {shown}; {expected}; restore it from a copy"


def _key(loc: Sequence[int | str]) -> str:
    """Return the place of a value, such as `ranges[0].start`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".") or "the document"

"""JSON documents as typed values: parsed strictly, with errors that name the problem.

A document is a pydantic model, or a frozen dataclass if it has thousands of rows. Nothing is
converted: a number as text is an error. Unknown keys are ignored by dataclasses and kept by models.

Opens nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

T = TypeVar("T")

#: The end of a sealed document.
_SEAL = re.compile(rb',"sha256":"[0-9a-f]{64}"\}\n?\Z')

#: Length, in characters, to which a value in an error is cut.
_SHOWN = 200


class DocumentError(ValueError):
    """Raised when bytes aren't the expected document; the text follows the document's name."""


class VersionError(DocumentError):
    """Raised when a document has a version that this release doesn't read.

    Attributes:
        version: The version, or what is in its place; None if there is none.
        readable: The versions that it reads.
    """

    def __init__(self, text: str, version: object = None, readable: object = None) -> None:
        super().__init__(text)
        self.version = version
        self.readable = readable


@dataclass(frozen=True, slots=True)
class Readable:
    """Annotates a document's `format_version`: the versions that this release reads."""

    versions: tuple[int, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.versions))

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._check, handler(int))

    def _check(self, version: object) -> object:
        # True equals 1.
        if type(version) is not int or version not in self.versions:
            raise ValueError(f"expected {self}")
        return version


#: Metadata of a field of a `Complete` dataclass whose key documents of older releases lack.
ADDED = {"added": True}
#: Metadata of a field whose key is left out if the field has its default.
OPTIONAL = {"optional": True}


class Complete:
    """A dataclass of which a document has all keys, also those whose fields have a default.

    Except for fields that are `ADDED` or `OPTIONAL`.
    """

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        own: Any = handler.resolve_ref_schema(schema)
        of = {each.name: each for each in fields(source)}
        for key in own["schema"]["fields"]:
            if not of[key["name"]].metadata and key["schema"]["type"] == "default":
                key["schema"] = key["schema"]["schema"]
        optional = [(name, f.default) for name, f in of.items() if "optional" in f.metadata]

        def leave_out(value: Any, rest: SerializerFunctionWrapHandler) -> dict[str, Any]:
            document: dict[str, Any] = rest(value)
            for name, default in optional:
                if getattr(value, name) == default:
                    del document[name]
            return document

        if optional:
            own["serialization"] = core_schema.wrap_serializer_function_ser_schema(leave_out)
        return schema


@dataclass(frozen=True)
class WrittenAs:
    """Annotates a type that a document has as another one, which says what is read.

    Attributes:
        kind: The other type: a TypedDict.
        read: Makes a value of it.
        write: Makes it of a value.
    """

    kind: type[Any]
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            self.read,
            handler(self.kind),
            serialization=core_schema.plain_serializer_function_ser_schema(self.write),
        )


class Row(BaseModel):
    """A JSON object, whole or part of a document; keeps keys unknown to this release."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    def content(self) -> dict[str, Any]:
        """Return the JSON object as read or built: no default is added, no unknown key lost."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


# A class is hashable, which mypy doesn't see of those with an __eq__.
@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))


def parse(kind: type[T], content: bytes) -> T:
    """Parse the bytes of a document, which is a `Row`, or a frozen dataclass.

    Raises:
        VersionError: When it has another version, whatever else it says.
        DocumentError: When it isn't such a document; names key, value and what was expected.
    """
    try:
        document: T = _adapter(cast(Hashable, kind)).validate_json(content, strict=True)
        if not _SEAL.search(content, max(0, len(content) - 80)):
            # Pydantic takes the last of a key's values; a seal tells that nothing was added.
            parse_object(content)
        return document
    except ValidationError as error:
        found = parse_object(content)
        # The version first, because another one may have other keys.
        if any(each["loc"] == ("format_version",) for each in error.errors()):
            hints = get_type_hints(kind, include_extras=True)
            [readable] = hints["format_version"].__metadata__
            version = found.get("format_version")
            text = f"has format version {version!r}, expected {readable}"
            raise VersionError(text, version, readable) from error
        raise DocumentError(_printable(_wrong(error))) from error


def reason_of(error: ValueError) -> str:
    """Return the reason why bytes aren't the expected document, without advice."""
    return str(error).removeprefix("was changed: ").removesuffix("; restore it from a copy")


def dump(document: object) -> dict[str, Any]:
    """Return a frozen dataclass as JSON types, in the order of its fields."""
    adapter = _adapter(cast(Hashable, type(document)))
    dumped: dict[str, Any] = adapter.dump_python(document, mode="json", by_alias=True)
    return dumped


def parse_object(content: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        DocumentError: When it isn't one, or has a key twice: readers would differ on its value.
    """
    try:
        # Not of the bytes: then it would also take UTF-16, and a byte order mark.
        document = json.loads(content.decode(), object_pairs_hook=_unique)
    except DocumentError:
        raise
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"isn't JSON ({error}); restore it from a copy") from error
    if not isinstance(document, dict):
        shown = content[:40].decode(errors="replace")
        raise DocumentError(f"holds {shown!r}, expected a JSON object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DocumentError("has a key twice; restore it from a copy")
    return found


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


def _printable(text: str) -> str:
    """Escape control characters: a terminal would obey what somebody has written there."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _key(loc: Sequence[int | str]) -> str:
    """Return the place of a value, such as `ranges[0].start`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".") or "the document"

"""Records as lines of JSON that people read and edit, without loss. Opens nothing.

`find --out` writes them, `republish --from-file` reads them; docs/find.md describes them.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.errors import ConfigError, DataFileError

#: Kafka's names of `timestampType`.
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_TYPE_NUMBERS = {name: number for number, name in TIMESTAMP_TYPES.items()}

#: Number of wrong lines that are named.
NAMED = 10

#: Highest and lowest timestamp, in milliseconds: an archive's files have microseconds in 64 bits.
LATEST = (2**63 - 1) // 1000
EARLIEST = -LATEST

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

#: Number of characters of what was seen that an error shows.
_SHOWN = 40


@dataclass(frozen=True)
class RecordLine:
    """A record; its `repr` shows neither key, value nor headers.

    Attributes:
        partition: Where it is from, or None; so are offset and timestamps.
        timestamp: In milliseconds since 1970; None if it has none.
        timestamp_type: A key of TIMESTAMP_TYPES, or None.
        headers: Names and values, in order; a name may come again.
    """

    topic: str
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    timestamp_type: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), repr=False)

    def line(self) -> str:
        """Return the record as a line of JSON, without a line break.

        Raises:
            DataFileError: When its timestamp is of no type that Kafka has: it was changed.
        """
        kind = self.timestamp_type
        if kind is not None and kind not in TIMESTAMP_TYPES:
            raise DataFileError(
                f"{self.topic}-{self.partition}, offset {self.offset}: timestampType is {kind}, "
                f"expected one of {', '.join(map(str, TIMESTAMP_TYPES))}; the file was changed"
            )
        document = {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "timestamp_type": None if kind is None else TIMESTAMP_TYPES[kind],
            "key": _written(self.key),
            "value": _written(self.value),
            "headers": [
                {"name": name, "value": _written(content)} for name, content in self.headers
            ],
        }
        return json.dumps(document, ensure_ascii=False)


def _written(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


class _Wrong(ValueError):
    """Raised for the first thing that is wrong in a line; says the field, and what was seen."""


def read_lines(content: bytes, file: str) -> list[tuple[int, RecordLine]]:
    """Parse a file; return each record with the number of its line. Empty lines are none.

    Args:
        file: Its name, for messages.

    Raises:
        ConfigError: Names the lines and fields that are wrong; shows no key, value or header.
    """
    found: list[tuple[int, RecordLine]] = []
    wrong: list[str] = []
    for number, line in enumerate(io.BytesIO(content), 1):
        if not line.strip():
            continue
        try:
            found.append((number, parse_record(line)))
        except ValueError as error:
            wrong.append(f"line {number:,}: {error}")
    refuse_wrong(wrong, file)
    return found


def refuse_wrong(wrong: list[str], file: str) -> None:
    """Refuse a file if something is wrong in it.

    Raises:
        ConfigError: Names the first lines.
    """
    if wrong:
        more = f"; and {len(wrong) - NAMED:,} more lines" if len(wrong) > NAMED else ""
        shown = "; ".join(wrong[:NAMED])
        raise ConfigError(f"{file}: {shown}{more}. Correct the file; nothing was sent")


def parse_record(line: bytes) -> RecordLine:
    """Parse a line.

    Raises:
        ValueError: Says which field is wrong, what was seen and what is accepted.
    """
    document = _document(line)
    _refuse_names(document, "", _FIELDS, required=("topic", "key", "value"))
    return RecordLine(**{name: read(name, document.get(name)) for name, read in _FIELDS.items()})


def _document(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line.decode(), object_pairs_hook=_unique)
    except _Wrong:
        raise
    except UnicodeDecodeError:
        raise _Wrong("isn't UTF-8; bytes that aren't text are written as base64") from None
    except json.JSONDecodeError as error:
        raise _Wrong(f"isn't JSON ({error.msg} at character {error.pos + 1:,})") from None
    except (ValueError, RecursionError):
        # A number of thousands of digits, or as many brackets.
        raise _Wrong("isn't a record; expected an object with topic, key and value") from None
    if not isinstance(document, dict):
        raise _wrong("", document, "an object with topic, key and value")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            # Any other may be of an object that was written as a value.
            known = name in _FIELDS or name in ("name", "base64")
            raise _Wrong(f"has {_shown(name) if known else 'a name'} twice")
        found[name] = value
    return found


def _refuse_names(
    document: Mapping[str, Any], within: str, known: Iterable[str], *, required: Iterable[str]
) -> None:
    known = list(known)
    for name in document:
        if name not in known:
            # Within a header, it may be content.
            shown = f"{within}a name" if within else _shown(name)
            raise _Wrong(f"{shown} is unknown; accepted: {', '.join(known)}")
    for name in required:
        if name not in document:
            raise _Wrong(f"{within}{name} is missing; write null for none")


def _topic(name: str, seen: Any) -> str:
    if isinstance(seen, str) and _TOPIC.fullmatch(seen) and seen not in (".", ".."):
        return seen
    raise _wrong(name, seen, "a topic name: letters, digits, '.', '_' and '-'", shows=True)


def _number(least: int, most: int) -> Callable[[str, Any], int | None]:
    def read(name: str, seen: Any) -> int | None:
        # True is 1 in Python.
        if seen is None or (type(seen) is int and least <= seen <= most):
            return seen
        raise _wrong(name, seen, f"a whole number from {least} to {most}, or null", shows=True)

    return read


def _timestamp_type(name: str, seen: Any) -> int | None:
    if seen is None or (isinstance(seen, str) and seen in _TYPE_NUMBERS):
        return None if seen is None else _TYPE_NUMBERS[seen]
    raise _wrong(name, seen, f"{', '.join(_TYPE_NUMBERS)} or null", shows=True)


def _content(name: str, seen: Any) -> bytes | None:
    if seen is None:
        return None
    if isinstance(seen, str):
        return _utf8(name, seen)
    if not isinstance(seen, dict) or [*seen] != ["base64"] or not isinstance(seen["base64"], str):
        raise _wrong(name, seen, 'text, {"base64": "…"} or null')
    text = seen["base64"]
    try:
        content = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        content = None
    # Some digits after the last byte are ignored when they are decoded.
    if content is None or base64.b64encode(content).decode() != text:
        raise _wrong(f"{name}.base64", text, "base64 (RFC 4648, section 4) with its padding")
    return content


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _wrong(name, text, "text; half a surrogate pair is none") from None


def _headers(name: str, seen: Any) -> tuple[tuple[str, bytes | None], ...]:
    if seen is None:
        return ()
    if not isinstance(seen, list):
        raise _wrong(name, seen, 'a list of {"name": "…", "value": …}')
    return tuple(_header(f"{name}[{at}]", header) for at, header in enumerate(seen))


def _header(at: str, header: Any) -> tuple[str, bytes | None]:
    if not isinstance(header, dict):
        raise _wrong(at, header, '{"name": "…", "value": …}')
    _refuse_names(header, f"{at}.", ("name", "value"), required=("name", "value"))
    name = header["name"]
    if not isinstance(name, str):
        raise _wrong(f"{at}.name", name, "text")
    _utf8(f"{at}.name", name)
    return name, _content(f"{at}.value", header["value"])


#: How each field is read, by its name; from null if it is missing.
_FIELDS: dict[str, Callable[[str, Any], Any]] = {
    "topic": _topic,
    "partition": _number(0, 2**31 - 1),
    "offset": _number(0, 2**63 - 1),
    "timestamp": _number(EARLIEST, LATEST),
    "timestamp_type": _timestamp_type,
    "key": _content,
    "value": _content,
    "headers": _headers,
}


def _wrong(name: str, seen: Any, accepted: str, *, shows: bool = False) -> _Wrong:
    """Return an error that shows what was seen only if it can't be content of a record."""
    simple = isinstance(seen, (str, int, float)) or seen is None
    what = _shown(seen) if shows and simple else _kind(seen)
    return _Wrong(f"{name or 'the line'} is {what}; accepted: {accepted}")


def _shown(seen: Any) -> str:
    text = json.dumps(seen)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _kind(seen: Any) -> str:
    if isinstance(seen, str):
        return f"text of {len(seen):,} characters"
    if isinstance(seen, dict):
        return "an object"
    if isinstance(seen, list):
        return "a list"
    return "null" if seen is None else f"a {'boolean' if isinstance(seen, bool) else 'number'}"

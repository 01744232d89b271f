"""The request for an erasure: keys and headers from files, topics, a time range."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_drain.archive.documents import ErasedHeaderRow, ErasedTopicRow, ErasureDocument
from kafka_drain.archive.erasures import header_hash, key_hash
from kafka_drain.config.key_lines import lines_of
from kafka_drain.errors import ConfigError
from kafka_drain.intervals import milliseconds
from kafka_drain.maintenance.erase_options import EraseOptions

#: Bytes of a salt.
SALT_BYTES = 32


@dataclass(frozen=True)
class ErasureRequest:
    """A request for an erasure.

    Attributes:
        request: Id of the request.
        by: The requester.
        keys: Keys, one of which a record must have; None for any key.
        headers: Headers, one of which a record must have; None for any.
        topics: Topics; empty for all.
        from_ms: Lowest timestamp (Unix ms); None for no bound.
        to_ms: End of the timestamps, exclusive (Unix ms); None for no bound.
        for_ever: Whether records that are written after the request are erased too.
    """

    request: str
    by: str
    keys: frozenset[bytes] | None = field(default=None, repr=False)
    headers: frozenset[tuple[str, bytes]] | None = field(default=None, repr=False)
    topics: frozenset[str] = frozenset()
    from_ms: int | None = None
    to_ms: int | None = None
    for_ever: bool = False

    @classmethod
    def of(
        cls,
        options: EraseOptions,
        keys: frozenset[bytes] | None,
        headers: frozenset[tuple[str, bytes]] | None,
    ) -> ErasureRequest:
        """Return the request of a verb's options, with the keys and headers."""
        from_ms, to_ms = (
            None if time is None else milliseconds(time)
            for time in (options.from_time, options.to_time)
        )
        return cls(
            request=options.request,
            by=options.by,
            keys=keys,
            headers=headers,
            topics=frozenset(options.topics),
            from_ms=from_ms,
            to_ms=to_ms,
            for_ever=options.for_ever,
        )

    def check(self, known: Collection[str]) -> None:
        """Refuse a request that names nothing, or too much.

        Args:
            known: The archive's topics.

        Raises:
            ConfigError: Says what is missing.
        """
        if not self.request.strip() or not self.by.strip():
            raise ConfigError("an erasure needs the request's id and who asked: --request, --by")
        for what, names in (("keys", self.keys), ("headers", self.headers)):
            if names is not None and not names:
                raise ConfigError(f"the file of {what} has none; nothing was erased")
        if unknown := sorted(self.topics.difference(known)):
            raise ConfigError(
                f"the archive has no topic {', '.join(unknown)}; it has {', '.join(sorted(known))}"
            )
        bounds = (self.from_ms, self.to_ms)
        if None not in bounds and bounds[0] >= bounds[1]:  # type: ignore[operator]
            raise ConfigError("the time range is empty: it ends before it starts")
        if (self.keys, self.headers, *bounds) == (None,) * 4 and not self.topics:
            raise ConfigError(
                "an erasure must name its records: give keys, headers, topics or a time range"
            )

    def document(
        self, salt: bytes, scope: Iterable[ErasedTopicRow], asked_at: str
    ) -> ErasureDocument:
        """Return the request as it is written to the archive."""
        return ErasureDocument.model_validate(
            {
                "format_version": 1,
                "request": self.request,
                "by": self.by,
                "asked_at": asked_at,
                "salt": salt.hex(),
                "keys": sorted(key_hash(salt, key) for key in self.keys or ()),
                "headers": [
                    ErasedHeaderRow(name=name, hash=header_hash(salt, name, value)).content()
                    for name, value in sorted(self.headers or ())
                ],
                "topics": sorted(self.topics),
                "from_ms": self.from_ms,
                "to_ms": self.to_ms,
                "scope": [row.content() for row in scope],
                "for_ever": self.for_ever,
            }
        )


#: Fields by which requests are compared: all but its time and its scope.
_ASKED = {"request", "by", "keys", "headers", "topics", "from_ms", "to_ms", "for_ever"}


def asks_the_same(one: ErasureDocument, other: ErasureDocument) -> bool:
    """Return whether two documents ask for the same; they have the same salt."""
    contents = (each.model_dump(mode="json", include=_ASKED) for each in (one, other))
    return next(contents) == next(contents)


def refuse_names(*, all_records: bool, has_keys: bool, has_headers: bool, where: str) -> None:
    """Refuse to erase other records than those that are meant.

    A file or connection that was emptied by mistake must not erase all records of a topic.

    Args:
        all_records: Whether all records of the topics and times are meant, whatever their keys.
        has_keys: Whether there are keys.
        has_headers: Whether there are headers.
        where: The place that was searched for them, as the subject of a sentence.

    Raises:
        ConfigError: When both are said, or neither.
    """
    if all_records and (has_keys or has_headers):
        raise ConfigError(
            f"all_records is set, but {where} names keys or headers; empty it to erase all records "
            "of the topics and times. Nothing was erased"
        )
    if not all_records and not (has_keys or has_headers):
        raise ConfigError(
            f"{where} names no keys and no headers; set all_records to erase all records of the "
            "topics and times. Nothing was erased"
        )


def read_keys(path: str) -> frozenset[bytes]:
    """Read keys from a file, one a line.

    Raises:
        ConfigError: When it can't be read; names the line, never what is in it.
    """
    return parse_keys(_read(path), path)


def parse_keys(text: str, where: str) -> frozenset[bytes]:
    """Parse keys, one a line; `where` they are from is named by errors, as by `read_keys`."""
    return frozenset(_bytes(line, place) for line, place in lines_of(text, where))


def read_headers(path: str) -> frozenset[tuple[str, bytes]]:
    """Read headers from a file, one `name=value` a line.

    Raises:
        ConfigError: When it can't be read; names the line, never what is in it.
    """
    found = set()
    for line, place in lines_of(_read(path), path):
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise ConfigError(f"{place} isn't a header, expected name=value")
        found.add((name, _bytes(value, place)))
    return frozenset(found)


def _read(path: str) -> str:
    try:
        # Not `read_text`, which takes any carriage return for the end of a line.
        return Path(path).read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} isn't UTF-8 text; write other bytes as hex:… or base64:…"
        ) from error


def _bytes(text: str, where: str) -> bytes:
    prefix, colon, encoded = text.partition(":")
    try:
        if colon and prefix == "hex":
            return bytes.fromhex(encoded)
        if colon and prefix == "base64":
            return b64decode(encoded, validate=True)
    except (ValueError, binascii.Error) as error:
        raise ConfigError(f"{where} isn't {prefix}, as its prefix says") from error
    return text.encode()


def scope_of(
    known: Collection[tuple[str, str]], ends: Mapping[tuple[str, str], Mapping[int, int]]
) -> list[ErasedTopicRow]:
    """Return the scope of an erasure.

    Args:
        known: Name and id of the topics that the archive has records of.
        ends: By name and id, the end offset of each partition of the topics that Kafka has.
    """
    return [
        ErasedTopicRow(
            topic=topic,
            topic_id=topic_id,
            ends=None
            if (topic, topic_id) not in ends
            else {str(p): end for p, end in sorted(ends[topic, topic_id].items())},
        )
        for topic, topic_id in sorted({*known, *ends})
    ]

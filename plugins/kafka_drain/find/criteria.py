"""Search criteria. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_drain.errors import ConfigError
from kafka_drain.republish.planning.selection import Selection
from kafka_drain.schemas.value_path import ValuePath, bytes_of


@dataclass(frozen=True)
class Criteria:
    """Search criteria; a record matches if it meets all of them.

    Keys, headers and values may be personal data or secrets, so its `repr` shows none.

    Attributes:
        selection: Topics, partitions, offsets and times.
        keys: One of these keys; empty for any key, or none.
        headers: Names and values of headers, all of which a record has.
        value_contains: Bytes that the value contains; None for any value, or none.
        path: A condition on the decoded value; None for any value, or none.
    """

    selection: Selection = field(default_factory=Selection)
    keys: frozenset[bytes] = field(default=frozenset(), repr=False)
    headers: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    value_contains: bytes | None = field(default=None, repr=False)
    path: ValuePath | None = field(default=None, repr=False)

    def look_inside(self) -> bool:
        """Return whether records have to be read to know whether they match."""
        inside = self.keys, self.headers, self.value_contains is not None, self.path is not None
        return any(inside)

    def kinds(self) -> list[str]:
        """Return the names of the criteria that are given, without their values."""
        selection, found = self.selection, []
        for name, given in (
            ("topic", selection.topics),
            ("partition", selection.partitions),
            ("offset", selection.offsets),
            ("from_time", selection.from_ms is not None),
            ("to_time", selection.to_ms is not None),
            ("key", self.keys),
            ("header", self.headers),
            ("value_contains", self.value_contains is not None),
            ("jsonpath", self.path is not None),
        ):
            if given:
                found.append(name)
        return found

    @classmethod
    def of(
        cls,
        *,
        topics: Iterable[str] = (),
        partitions: Iterable[str] = (),
        offset: str | None = None,
        from_time: str | None = None,
        to_time: str | None = None,
        keys: Iterable[str] = (),
        headers: Iterable[str] = (),
        value_contains: str | None = None,
        jsonpath: str | None = None,
    ) -> Criteria:
        """Parse criteria as users write them.

        Args:
            topics: Topic names.
            partitions: Partition numbers.
            offset: An offset, or a range such as `100-200` with an exclusive end; requires one
                topic and one partition.
            from_time: Lowest timestamp, in ISO 8601; UTC if it has no time zone.
            to_time: Exclusive upper bound of timestamps.
            keys: Keys, as `bytes_of` reads them.
            headers: Headers as `name=value`; the value as `bytes_of` reads it.
            value_contains: A part of the value, as `bytes_of` reads it.
            jsonpath: A path, as `ValuePath` reads it.

        Raises:
            ConfigError: When a value isn't acceptable; shows no key, header or value.
        """
        topics, partitions = list(topics), list(partitions)
        offsets = [] if offset is None else [_range(offset, topics, partitions)]
        if value_contains == "":
            raise ConfigError("value_contains is empty, which every value contains; leave it out")
        return cls(
            selection=Selection.of(
                topics=topics,
                partitions=partitions,
                offsets=offsets,
                from_time=from_time,
                to_time=to_time,
            ),
            keys=frozenset(bytes_of("key", key) for key in keys),
            headers=tuple(map(_header, headers)),
            value_contains=None
            if value_contains is None
            else bytes_of("value_contains", value_contains),
            path=None if jsonpath is None else ValuePath.of(jsonpath),
        )


def _header(text: str) -> tuple[str, bytes]:
    name, found, value = text.partition("=")
    if not found:
        raise ConfigError("a header isn't acceptable; accepted: NAME=VALUE")
    try:
        name.encode()
    except UnicodeEncodeError:
        # Bytes of the command line that aren't text; not the cause, which shows them.
        raise ConfigError("a header's name isn't UTF-8, as all names in archives are") from None
    return name, bytes_of("the value of a header", value)


def _range(offset: str, topics: list[str], partitions: list[str]) -> str:
    """Return an offset or a range of them as `Selection` reads it."""
    if len(topics) != 1 or len(partitions) != 1:
        raise ConfigError(
            "an offset is only one record's within a partition; also give one topic and one "
            "partition"
        )
    start, has_end, end = offset.partition("-")
    if not start.isdecimal() or (has_end and not end.isdecimal()):
        raise ConfigError(
            f"offset = {offset!r} is not acceptable; accepted: an offset, or a range such as "
            "100-200, whose end is exclusive"
        )
    return f"{topics[0]}:{partitions[0]}:{start}-{end if has_end else int(start) + 1}"

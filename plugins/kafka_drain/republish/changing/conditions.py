"""Which records a filter keeps. Opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_drain.republish.changing.fields import HEADER, KEY, Field
from kafka_drain.schemas.value_path import ValuePath, bytes_of

if TYPE_CHECKING:
    # DAG files import this module, and pyarrow takes long to import.
    from kafka_drain.data_files.rows import Headers

NOT = "not "

#: Returns the decoded key or value of the record.
Content = Callable[[str], Any]


@dataclass(frozen=True)
class Condition:
    """What a record must have.

    Attributes:
        where: The part of the record.
        expected: The text that is expected there; None if it only has to be there.
        is_negated: Whether the record must not have it.
    """

    where: Field
    expected: str | None = field(repr=False)
    is_negated: bool = False

    @classmethod
    def of(cls, text: str) -> Condition:
        """Parse `key=K`, `header:NAME=V`, `$.path=V`, each also after `not `, or without a value.

        Raises:
            ConfigError: When it isn't a condition; doesn't show the value.
        """
        is_negated = text.startswith(NOT)
        named, expected = Field.of("filter", text.removeprefix(NOT))
        if named.steps is None and expected is not None:
            bytes_of(f"the value of filter {named}", expected)
        return cls(named, expected, is_negated)

    def holds(self, key: bytes | None, headers: Headers, content: Content) -> bool:
        """Return whether a record fulfils it."""
        return self._has(key, headers, content) != self.is_negated

    def _has(self, key: bytes | None, headers: Headers, content: Content) -> bool:
        where = self.where
        if where.steps is not None:
            return ValuePath(where.steps, self.expected).matches(content(where.part))
        expected = None if self.expected is None else bytes_of(where.part, self.expected)
        if where.part == KEY:
            return key is not None and expected in (None, key)
        assert where.part == HEADER
        return any(
            name == where.header and (expected is None or _bytes(held) == expected)
            for name, held in headers or ()
        )


@dataclass(frozen=True)
class Filter:
    """Conditions that decide together.

    Values of the same part that are expected are alternatives; everything else has to hold at once.

    Attributes:
        groups: Each group has a condition that must hold.
    """

    groups: Sequence[Sequence[Condition]]

    @classmethod
    def of(cls, conditions: Iterable[Condition]) -> Filter:
        """Group conditions."""
        groups: dict[Any, list[Condition]] = {}
        for number, condition in enumerate(conditions):
            is_choice = condition.expected is not None and not condition.is_negated
            groups.setdefault(condition.where if is_choice else number, []).append(condition)
        return cls([*groups.values()])

    @property
    def fields(self) -> list[Field]:
        """What the conditions name, each part of a record once."""
        return list(dict.fromkeys(one.where for group in self.groups for one in group))

    def keeps(self, key: bytes | None, headers: Headers, content: Content) -> bool:
        """Return whether a record is sent."""
        return all(
            any(condition.holds(key, headers, content) for condition in group)
            for group in self.groups
        )


def _bytes(held: str | bytes | None) -> bytes | None:
    return held.encode() if isinstance(held, str) else held

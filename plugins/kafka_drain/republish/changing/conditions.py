"""The conditions of a filter, as they are asked for; `filter_columns` decides. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.republish.changing.fields import Field
from kafka_drain.schemas.value_path import bytes_of

NOT = "not "


@dataclass(frozen=True)
class Condition:
    """A condition on a record.

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
        # Those of contents last: what others leave out isn't decoded, and may have no schema.
        in_turn = sorted(conditions, key=lambda one: one.where.steps is not None)
        for number, condition in enumerate(in_turn):
            is_choice = condition.expected is not None and not condition.is_negated
            groups.setdefault(condition.where if is_choice else number, []).append(condition)
        return cls([*groups.values()])

    @property
    def fields(self) -> list[Field]:
        """The fields of the conditions, each part of a record once."""
        return list(dict.fromkeys(one.where for group in self.groups for one in group))

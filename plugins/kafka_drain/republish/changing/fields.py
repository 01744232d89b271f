"""A field as users name it: a record's key, a header, or a part of a payload. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from kafka_drain.errors import ConfigError
from kafka_drain.schemas.value_path import ALL, ValuePath

KEY, VALUE, HEADER = "key", "value", "header"

#: The forms, for error messages.
FORMS = "key, header:NAME, or a path such as $.customer.email (in the key: key:$.customer.email)"


@dataclass(frozen=True)
class Field:
    """A part of a record.

    Attributes:
        part: `key`, `value` or `header`.
        header: The header's name.
        steps: The path in the key or value: names, indexes, or `ALL`; None for the whole key.
    """

    part: str
    header: str = ""
    steps: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, option: str, text: str) -> tuple[Field, str | None]:
        """Parse a field, and the text behind its `=`; None without one.

        Args:
            option: The option's name, for the error message.

        Raises:
            ConfigError: When it names nothing; doesn't show what is behind the `=`.
        """
        shown, is_given, given = text.partition("=")
        if shown == KEY:
            return cls(KEY), given if is_given else None
        if shown.startswith(f"{HEADER}:") and shown != f"{HEADER}:" and "\0" not in shown:
            return cls(HEADER, shown.removeprefix(f"{HEADER}:")), given if is_given else None
        part = KEY if text.startswith(f"{KEY}:$") else VALUE
        try:
            path = ValuePath.of(text.removeprefix(f"{part}:"))
        except ConfigError:
            raise ConfigError(f"{option} {shown!r} isn't acceptable; accepted: {FORMS}") from None
        return cls(part, steps=path.steps), path.expected

    def __str__(self) -> str:
        if self.part == HEADER:
            return f"{HEADER}:{self.header}"
        if self.steps is None:
            return self.part
        return (
            ("" if self.part == VALUE else f"{self.part}:") + "$" + "".join(map(_text, self.steps))
        )

    def meets(self, other: Field) -> bool:
        """Return whether a part of a record may belong to both."""
        if (self.part, self.header) != (other.part, other.header):
            return False
        if self.steps is None or other.steps is None:
            return True
        # The shorter path ends in something that may hold the rest of the longer one.
        return all(
            a == b or a is ALL or b is ALL for a, b in zip(self.steps, other.steps, strict=False)
        )


def _text(step: Any) -> str:
    if step is ALL:
        return "[*]"
    return f"[{step}]" if isinstance(step, int) else f"['{step}']"


def refuse_overlaps(fields: Iterable[Field]) -> None:
    """Refuse fields of which one may lie in another: which change comes first would decide.

    Raises:
        ConfigError: Names two of them.
    """
    for one, other in combinations(fields, 2):
        if one.meets(other):
            raise ConfigError(
                f"{one} and {other} may be the same part of a record, which can be changed only "
                "once; leave one out"
            )


def refuse_ends(option: str, field: Field) -> None:
    """Refuse indexes from the end, which would need the whole array to be read first.

    Raises:
        ConfigError: Names the field.
    """
    if any(isinstance(step, int) and step < 0 for step in field.steps or ()):
        raise ConfigError(
            f"{option} {field} counts from the end; accepted: indexes from 0, or [*] for all"
        )

"""JSON with numbers that can be compared by all their digits. Opens nothing.

What is read here is what `republish.changing.json_fields` reads: UTF-8, also with control
characters in texts, and with the `NaN` and `Infinity` that Python and others write, though no
standard has them.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from json import JSONDecoder
from typing import Any

#: Python reads no whole number with more digits.
_MOST_DIGITS = 4300

#: Numbers that JSON hasn't, as texts.
NAN, INFINITY, MINUS_INFINITY = "NaN", "Infinity", "-Infinity"


class Fraction(float):
    """A number that was written with a fraction or an exponent.

    Attributes:
        text: The number as it was written.
    """

    __slots__ = ("text",)
    text: str


def decoded(text: str) -> Any:
    """Return the content of JSON.

    `NaN`, `Infinity` and `-Infinity` are texts, as are numbers that neither a double nor Python's
    whole numbers can hold.

    Raises:
        ValueError: When it isn't JSON.
        RecursionError: When it is nested too deeply.
    """
    return _DECODER.decode(text)


def same(one: Any, other: Any) -> bool:
    """Return whether two decoded values are the same: numbers by all their digits."""
    if isinstance(one, (bool, str)) or one is None:
        # True equals 1 in Python, but not in JSON.
        return type(one) is type(other) and bool(one == other)
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(member, other[name]) for name, member in one.items())
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(other, (bool, str, dict, list)) or other is None:
        return False
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    a, b = _exact(one), _exact(other)
    return a is not None and a == b


def named_float(value: float) -> float | str:
    """Return a double; its name if it isn't a number that JSON can hold."""
    if math.isnan(value):
        return NAN
    if math.isinf(value):
        return INFINITY if value > 0 else MINUS_INFINITY
    return value


def _exact(value: Any) -> Decimal | None:
    """Return a number by all its digits; a double is the shortest number that it is written as."""
    try:
        if isinstance(value, Fraction):
            return Decimal(value.text)
        return Decimal(value) if isinstance(value, int) else Decimal(repr(value))
    except InvalidOperation:
        # Its exponent has too many digits.
        return None


def _whole(text: str) -> int | str:
    return int(text) if len(text) <= _MOST_DIGITS else text


def _fraction(text: str) -> Fraction | str:
    value = Fraction(text)
    if math.isinf(value):
        return text
    value.text = text
    return value


_DECODER = JSONDecoder(strict=False, parse_int=_whole, parse_float=_fraction, parse_constant=str)

"""Checks of single option values: each returns the value in Spark's form, or raises ConfigError.

Opens nothing.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from kafka_drain.errors import ConfigError

Check = Callable[[str, Any], str]
"""Takes an option's name and value, returns the value in Spark's form; raises ConfigError."""

_SECRET = re.compile("password|secret|token|jaas|key|user[._]info", re.IGNORECASE)
#: Words of secrets' names that are long enough to tell a misspelt one.
_MISSPELT = ("password", "passwd", "secret", "token", "credential", "credentials")
#: Largest number of Kafka's protocol, as of offsets and times, and of Spark's options.
_LARGEST = (1 << 63) - 1
_DURATION = re.compile(r"\d+(us|ms|s|m|min|h|d)")


def template_in(value: Any) -> str:
    """Return a text within a value that looks like a Jinja template; empty if there is none."""
    if isinstance(value, str):
        return value if "{{" in value or "{%" in value else ""
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Collection):
        return next(filter(None, map(template_in, value)), "")
    return template_in(vars(value)) if hasattr(value, "__dict__") else ""


def refuse(name: str, value: Any, accepted: str) -> ConfigError:
    """Return the error for a value that isn't acceptable."""
    return ConfigError(f"{name} = {value!r} is not acceptable; accepted: {accepted}")


def unknown(name: str, value: Any, known: Collection[str], what: str) -> ConfigError:
    """Return the error for an unknown name, suggesting the closest known one."""
    shown = "hidden" if may_be_secret(name) else repr(value)
    near = nearest(name, known)
    hint = f"; did you mean {near!r}?" if near else f"; accepted: {', '.join(sorted(known))}"
    return ConfigError(f"{name!r} (value {shown}) isn't a valid {what}{hint}")


def may_be_secret(name: str) -> bool:
    """Return whether a name is a secret's, maybe misspelt."""
    words = re.split(r"[._-]", name.lower())
    near = (difflib.get_close_matches(word, _MISSPELT, n=1, cutoff=0.75) for word in words)
    return _SECRET.search(name) is not None or any(near)


def removed(name: str, value: Any, instead: str) -> ConfigError:
    """Return the error for a name that only earlier releases know."""
    return ConfigError(f"{name!r} (value {value!r}) was removed: {instead}")


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that an unknown one is most like; None if it is like none."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return near[0] if near else None


def integer(minimum: int) -> Check:
    """Accept whole numbers of at least `minimum`."""

    def check(name: str, value: Any) -> str:
        accepted = f"a whole number, at least {minimum}"
        if isinstance(value, bool):
            raise refuse(name, value, accepted)
        try:
            number = int(str(value))
        except ValueError:
            raise refuse(name, value, accepted) from None
        if number < minimum:
            raise refuse(name, value, accepted)
        if number > _LARGEST:
            raise refuse(name, value, f"{accepted}, and at most {_LARGEST}")
        return str(number)

    return check


def fraction(name: str, value: Any) -> str:
    """Accept numbers between 0 and 1, without these."""
    try:
        number = float(str(value))
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise refuse(name, value, "a number between 0 and 1, such as 0.01")
    return str(number)


def boolean(name: str, value: Any) -> str:
    """Accept true or false."""
    written = str(value).lower()
    if written not in ("true", "false"):
        raise refuse(name, value, "true or false")
    return written


def text(name: str, value: Any) -> str:
    """Accept non-empty text."""
    if not isinstance(value, (str, int, float)) or not str(value):
        raise refuse(name, value, "text")
    return str(value)


def one_of(*choices: str) -> Check:
    """Accept one of several words."""

    def check(name: str, value: Any) -> str:
        if str(value) not in choices:
            raise refuse(name, value, ", ".join(choices))
        return str(value)

    return check


def duration(name: str, value: Any) -> str:
    """Accept a duration in Spark's notation."""
    if not _DURATION.fullmatch(str(value)):
        raise refuse(name, value, "a number with ms, s, m, h or d, for example '15m'")
    return str(value)


def timestamp(name: str, value: Any) -> str:
    """Accept milliseconds since 1970, or an ISO 8601 time with a time zone."""
    accepted = "milliseconds since 1970, or a time with its zone: '2026-01-31T00:00:00+00:00'"
    if isinstance(value, str) and not value.isdigit():
        try:
            value = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            raise refuse(name, value, accepted) from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise refuse(name, str(value), accepted)
        value = round(value.timestamp() * 1000)
    return integer(0)(name, value)


def _per_partition(
    name: str, value: Any, accepted: str, leaf: Check
) -> Mapping[str, Mapping[str, int]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise refuse(name, value, accepted) from None
    if not isinstance(value, Mapping) or not value:
        raise refuse(name, value, accepted)
    checked: dict[str, dict[str, int]] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, Mapping) or not partitions:
            raise refuse(f"{name}[{topic}]", partitions, accepted)
        for partition, number in partitions.items():
            at = f"{name}[{topic}][{partition}]"
            if not str(partition).isdecimal():
                raise refuse(at, number, accepted)
            checked.setdefault(str(topic), {})[str(int(partition))] = int(leaf(at, number))
    return checked


def offsets(name: str, value: Any) -> str:
    """Accept earliest, latest, or an offset for each partition (-2 earliest, -1 latest)."""
    if value in ("earliest", "latest"):
        return str(value)
    accepted = 'earliest, latest, or {"topic": {"0": 23, "1": -2}} (-2 is earliest, -1 latest)'
    return json.dumps(_per_partition(name, value, accepted, integer(-2)))


def timestamps(name: str, value: Any) -> str:
    """Accept a timestamp for each partition."""
    accepted = '{"topic": {"0": 1767225600000}}, in milliseconds since 1970'
    return json.dumps(_per_partition(name, value, accepted, timestamp))

"""Checks of single values: what is accepted, as which text, and what is refused."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka_drain.config.checks import (
    Check,
    boolean,
    duration,
    fraction,
    integer,
    offsets,
    one_of,
    refuse,
    template_in,
    text,
    timestamp,
    timestamps,
    unknown,
)
from kafka_drain.config.values import Values
from kafka_drain.errors import ConfigError
from tests.tables import each_of

# 2026-01-01T00:00:00 UTC
NEW_YEAR = 1767225600000


@each_of(
    "check, value, expected",
    [
        (integer(1), 1, "1"),
        (integer(1), "50000", "50000"),
        (integer(-1), -1, "-1"),
        (integer(0), " 7 ", "7"),
        (integer(0), (1 << 63) - 1, str((1 << 63) - 1)),
        (boolean, True, "true"),
        (boolean, False, "false"),
        (boolean, "True", "true"),
        (boolean, "false", "false"),
        (text, "a b", "a b"),
        (text, 5, "5"),
        (one_of("error", "latest"), "latest", "latest"),
        (fraction, "0.01", "0.01"),
        (fraction, 0.99, "0.99"),
        (duration, "15m", "15m"),
        (duration, "100ms", "100ms"),
        (duration, "2min", "2min"),
        (duration, "1d", "1d"),
        (timestamp, NEW_YEAR, str(NEW_YEAR)),
        (timestamp, str(NEW_YEAR), str(NEW_YEAR)),
        (timestamp, 0, "0"),
        (timestamp, "2026-01-01T00:00:00+00:00", str(NEW_YEAR)),
        (timestamp, "2026-01-01T01:00:00+01:00", str(NEW_YEAR)),
        (timestamp, "2026-01-01T00:00:00Z", str(NEW_YEAR)),
        (timestamp, "2026-01-01T00:00:00.123+00:00", str(NEW_YEAR + 123)),
        (timestamp, datetime(2026, 1, 1, tzinfo=timezone.utc), str(NEW_YEAR)),
        (
            timestamp,
            datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            str(NEW_YEAR),
        ),
        (offsets, "earliest", "earliest"),
        (offsets, "latest", "latest"),
    ],
)
def test_check_accepted(check: Check, value: Any, expected: str) -> None:
    """An accepted value becomes the text that Spark reads."""
    assert expected == check("option", value)


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (offsets, {"t": {"0": 23, "1": -2}}, {"t": {"0": 23, "1": -2}}),
        (offsets, {"t": {0: "23", 1: -1}, "u": {0: 0}}, {"t": {"0": 23, "1": -1}, "u": {"0": 0}}),
        (offsets, '{"t": {"0": 23}}', {"t": {"0": 23}}),
        (timestamps, {"t": {"0": NEW_YEAR}}, {"t": {"0": NEW_YEAR}}),
        (timestamps, '{"t": {"0": "2026-01-01T00:00:00Z"}}', {"t": {"0": NEW_YEAR}}),
        (
            timestamps,
            {"t": {0: datetime(2026, 1, 1, tzinfo=timezone.utc)}},
            {"t": {"0": NEW_YEAR}},
        ),
    ],
)
def test_check_accepted_per_partition(check: Check, value: Any, expected: object) -> None:
    """Values by partition may be written as JSON or as mappings, and become JSON with numbers."""
    assert expected == json.loads(check("option", value))


@each_of(
    "check, value, accepted",
    [
        (integer(1), 0, "a whole number, at least 1"),
        (integer(-1), -2, "a whole number, at least -1"),
        (integer(1), "many", "a whole number"),
        (integer(1), 1.5, "a whole number"),
        (integer(1), True, "a whole number"),
        (integer(1), None, "a whole number"),
        (integer(1), "", "a whole number"),
        (boolean, "yes", "true or false"),
        (boolean, 1, "true or false"),
        (boolean, None, "true or false"),
        (boolean, "", "true or false"),
        (text, "", "text"),
        (text, None, "text"),
        (text, ["a"], "text"),
        (text, {"a": 1}, "text"),
        (fraction, 0, "a number between 0 and 1"),
        (fraction, "1", "a number between 0 and 1"),
        (fraction, -0.5, "a number between 0 and 1"),
        (fraction, "nan", "a number between 0 and 1"),
        (fraction, "half", "a number between 0 and 1"),
        (integer(0), 1 << 63, f"and at most {(1 << 63) - 1}"),
        (one_of("error", "latest"), "Latest", "error, latest"),
        (one_of("error", "latest"), None, "error, latest"),
        (duration, 15, "a number with ms, s, m, h or d, for example '15m'"),
        (duration, "15", "a number with ms, s, m, h or d"),
        (duration, "15 m", "a number with ms, s, m, h or d"),
        (duration, "-1m", "a number with ms, s, m, h or d"),
        (duration, "1.5h", "a number with ms, s, m, h or d"),
        (duration, "1w", "a number with ms, s, m, h or d"),
        (timestamp, -1, "a whole number, at least 0"),
        (timestamp, "yesterday", "milliseconds since 1970, or a time with its zone"),
        (timestamp, "", "milliseconds since 1970, or a time with its zone"),
        (timestamp, True, "a whole number"),
        (offsets, "banana", 'earliest, latest, or {"topic": {"0": 23, "1": -2}}'),
        (offsets, "Earliest", "earliest, latest"),
        (offsets, "", "earliest, latest"),
        (offsets, 5, "earliest, latest"),
        (offsets, None, "earliest, latest"),
        (offsets, {}, "earliest, latest"),
        (offsets, "[]", "earliest, latest"),
        (timestamps, "latest", '{"topic": {"0": 1767225600000}}, in milliseconds since 1970'),
        (timestamps, {}, '{"topic": {"0": 1767225600000}}'),
    ],
)
def test_check_refused(check: Check, value: Any, accepted: str) -> None:
    """A refused value is told with the option's name and what is accepted."""
    with pytest.raises(ConfigError) as raised:
        check("some.option", value)

    message = str(raised.value)
    assert message.startswith("some.option = ")
    assert "is not acceptable; accepted: " in message
    # JSON text is told as what it holds.
    assert repr(value) in message or value == "[]"
    assert accepted in message


@pytest.mark.parametrize(
    ("check", "value", "start"),
    [
        (offsets, {"t": 5}, "o[t] = 5 is"),
        (offsets, {"t": {}}, "o[t] = {} is"),
        (offsets, {"t": {"0": -3}}, "o[t][0] = -3 is"),
        (offsets, {"t": {"0": 1, "1": "x"}}, "o[t][1] = 'x' is"),
        (offsets, {"t": {"x": 3}}, "o[t][x] = 3 is"),
        (offsets, {"t": {-1: 3}}, "o[t][-1] = 3 is"),
        (offsets, '{"t": {"0": null}}', "o[t][0] = None is"),
        (timestamps, {"t": {"0": -1}}, "o[t][0] = -1 is"),
        (timestamps, {"t": {"0": "2026-13-01T00:00:00Z"}}, "o[t][0] = '2026-13-01T00:00:00Z' is"),
    ],
)
def test_check_refused_per_partition(check: Check, value: Any, start: str) -> None:
    """A refused value of one partition is told with topic and partition."""
    with pytest.raises(ConfigError) as raised:
        check("o", value)

    assert str(raised.value).startswith(start)


@pytest.mark.parametrize(
    "value", ["2026-01-31T00:00:00", "2026-01-31", datetime(2026, 1, 31)], ids=str
)
def test_timestamp_without_zone(value: Any) -> None:
    """A time without a zone means another moment elsewhere: it is refused."""
    with pytest.raises(ConfigError, match=r"option = '2026-01-31.* or a time with its zone"):
        timestamp("option", value)


def test_timestamp_before_1970() -> None:
    """A time before 1970 is refused however it is written."""
    with pytest.raises(ConfigError, match="option = "):
        timestamp("option", "1960-01-01T00:00:00+00:00")


def test_duration_nanoseconds() -> None:
    """Spark's time strings know no nanoseconds."""
    with pytest.raises(ConfigError, match="option = '5ns'"):
        duration("option", "5ns")


def test_unknown_near() -> None:
    """A misspelt name gets the nearest one, without the whole list."""
    error = unknown("minPartition", 5, ["minPartitions", "startingOffsets"], "option of X")

    assert str(error) == (
        "'minPartition' (value 5) isn't a valid option of X; did you mean 'minPartitions'?"
    )


def test_unknown_far() -> None:
    """A name that is like no other gets the list."""
    error = unknown("zzz", "v", ["b", "a"], "option of X")

    assert str(error) == "'zzz' (value 'v') isn't a valid option of X; accepted: a, b"


@pytest.mark.parametrize(
    "name", ["kafka.pasword", "passwrd", "client.secrt", "sasl_tokn", "credentail", "PASSWORT"]
)
def test_unknown_misspelt_secret(name: str) -> None:
    """The value of a name that may be a misspelt secret's isn't shown."""
    error = unknown(name, "hunter2", ["b", "a"], "option of X")

    assert str(error).startswith(f"{name!r} (value hidden) isn't a valid option of X")


def test_refuse() -> None:
    """The message tells name, value and what is accepted."""
    assert str(refuse("n", "v", "w")) == "n = 'v' is not acceptable; accepted: w"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("/data/{{ ds }}", "/data/{{ ds }}"),
        ("{% if x %}a{% endif %}", "{% if x %}a{% endif %}"),
        ("/data/{x}", ""),
        (["a", "{{ b }}"], "{{ b }}"),
        ({"startingOffsets": {"t": {"0": "{{ c }}"}}}, "{{ c }}"),
        ({"maxOffsetsPerTrigger": 5}, ""),
        (None, ""),
        (5, ""),
        (Values(encoding="json", columns="{{ d }} BIGINT"), "{{ d }} BIGINT"),
        (Values(encoding="json", columns="id BIGINT"), ""),
    ],
)
def test_template_in(value: Any, found: str) -> None:
    """A template is found wherever it is in a value."""
    assert template_in(value) == found

"""Parts of a record as users name them."""

from __future__ import annotations

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.republish.changing.fields import Field, refuse_ends, refuse_overlaps
from kafka_drain.schemas.value_path import ALL

NAMED = {
    "key": (Field("key"), None),
    "key=a=b": (Field("key"), "a=b"),
    "key=": (Field("key"), ""),
    "header:h": (Field("header", "h"), None),
    "header:a:b=x": (Field("header", "a:b"), "x"),
    "$.a": (Field("value", steps=("a",)), None),
    "value:$.a=": (Field("value", steps=("a",)), ""),
    "$.a[0].b=1": (Field("value", steps=("a", 0, "b")), "1"),
    "$[*].*": (Field("value", steps=(ALL, ALL)), None),
    "key:$['a b']": (Field("key", steps=("a b",)), None),
    "$": (Field("value", steps=()), None),
}


@pytest.mark.parametrize("text", NAMED)
def test_field_of(text: str) -> None:
    """A field is a key, a header or a path; what is behind the = is given with it."""
    assert Field.of("mask", text) == NAMED[text]


@pytest.mark.parametrize(
    "text", ["", "keys", "value", "header:", "header:a\0", "a.b", "$.a.", "$..a", "$.a[", "key:a"]
)
def test_field_of_refused(text: str) -> None:
    """Anything else is refused, with what is accepted, and without what is behind the =."""
    with pytest.raises(ConfigError, match=r"mask .* isn't acceptable; accepted: key, header:NAME"):
        Field.of("mask", text)
    with pytest.raises(ConfigError) as refused:
        Field.of("filter", f"{text}\0=secret")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["key", "header:h", "$['a']", "key:$['a'][*]", "$[0]", "$"])
def test_field_text(text: str) -> None:
    """A field's text names the same field."""
    named, _ = Field.of("mask", text)
    assert str(named) == text


MEETING = {
    ("key", "key"): True,
    ("key", "key:$.a"): True,
    ("key", "$.a"): False,
    ("key:$.a", "$.a"): False,
    ("header:a", "header:a"): True,
    ("header:a", "header:b"): False,
    ("$.a", "$.a.b"): True,
    ("$.a", "$.b"): False,
    ("$.a[0]", "$.a[1]"): False,
    ("$.*", "$.a.b"): True,
    ("$.*.x", "$.a.y"): False,
    ("$.*.x", "$.a.x"): True,
    ("$", "$.a"): True,
}


@pytest.mark.parametrize("pair", MEETING)
def test_refuse_overlaps(pair: tuple[str, str]) -> None:
    """Fields of which one may lie in the other are refused, in either order."""
    fields = [Field.of("mask", text)[0] for text in pair]
    for given in (fields, fields[::-1]):
        if MEETING[pair]:
            with pytest.raises(ConfigError, match="may be the same part of a record"):
                refuse_overlaps(given)
        else:
            refuse_overlaps(given)


def test_refuse_ends() -> None:
    """Indexes from the end are refused; the first one is none."""
    with pytest.raises(ConfigError, match=r"mask \$\['a'\]\[-1\] counts from the end"):
        refuse_ends("mask", Field("value", steps=("a", -1)))
    refuse_ends("mask", Field("value", steps=("a", 0, ALL)))
    refuse_ends("mask", Field("key"))

"""Flags are made from declarations, and declarations from flags."""

from __future__ import annotations

import argparse
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, Field

from kafka_drain.cli.options import add_options, given_flags, options_from
from kafka_drain.config.options import Flag, Moment, Options, described, option, shown
from kafka_drain.errors import ConfigError


class Asked(Options):
    """What a verb is asked for."""

    declares: ClassVar[str] = "test"

    name: str | None = option(
        "Who", "me", "A name.", metavar="NAME", none=["--nobody", "Without a name."]
    )
    many: tuple[str, ...] = option("Who", (), "Some texts.", flags=["--one", "-o"])
    at: Moment = option(None, None, "A time.")
    is_on: Flag = option(None, False, "Whether it is on.")
    kind: Literal["a", "b"] = option(None, "a", "A kind.")
    pairs: dict[str, str] = option(None, {}, "Pairs.", flags=["--pair"])
    hidden: Flag = option(None, False, "Only a field of the form.", flags=[])


class Key(BaseModel):
    """What a pipeline declares.

    Attributes:
        days: How many
            days.
        columns: Names of columns.
    """

    days: Annotated[int, Field(ge=1), shown(metavar="DAYS")] = 7
    columns: Annotated[list[str], shown(nargs="*")] = ["a", "b"]


def parsed(*arguments: str) -> argparse.Namespace:
    """Return the arguments of a command with both declarations."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser, Asked)
    add_options(parser, Key, otherwise={"days": "a week"})
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ([], {}),
        (["--name", "you", "--kind", "b", "--is-on"], {"name": "you", "kind": "b", "is_on": True}),
        (["--nobody"], {"name": None}),
        (["--one", "x", "-o", "y"], {"many": ["x", "y"]}),
        (["--pair", "a=1", "--pair", "b="], {"pairs": {"a": "1", "b": ""}}),
        (["--pair", "a=1", "--pair", "a=1"], {"pairs": {"a": "1"}}),
        (["--at", "2026-01-01"], {"at": "2026-01-01T00:00:00Z"}),
    ],
)
def test_options_from(arguments: list[str], given: dict[str, Any]) -> None:
    """A flag is the option of its name; one that isn't given is the declaration's default."""
    assert options_from(parsed(*arguments), Asked) == Asked(**given)


def test_options_from_key() -> None:
    """What a pipeline declares has flags as well, and may have more than they say."""
    assert options_from(parsed("--days", "3", "--columns", "x", "y"), Key) == Key(
        days=3, columns=["x", "y"]
    )
    assert options_from(parsed("--days", "3"), Key, "columns", days=5) == Key(days=5)


@pytest.mark.parametrize(
    ("arguments", "declaration", "says"),
    [
        (["--pair", "a"], Asked, "^--pair 'a' is not acceptable; accepted: NAME=VALUE$"),
        (["--pair", "a=1", "--pair", "a=2"], Asked, "^--pair a is given with two values; give one"),
        (["--at", "noon"], Asked, "^at = 'noon' is not acceptable; accepted: a date or time"),
        (["--days", "0"], Key, "^days = 0: Input should be greater than or equal to 1$"),
    ],
)
def test_options_from_refused(
    arguments: list[str], declaration: type[BaseModel], says: str
) -> None:
    """What isn't acceptable is named in one line."""
    with pytest.raises(ConfigError, match=says):
        options_from(parsed(*arguments), declaration)


@pytest.mark.parametrize(
    "arguments",
    [["--kind", "c"], ["--days", "x"], ["--name", "you", "--nobody"], ["--hidden"]],
)
def test_add_options_refused(arguments: list[str]) -> None:
    """Another choice, a text for a number, a contradiction and a field of the form are refused."""
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parsed(*arguments)


def test_add_options_help() -> None:
    """Help has the sections, descriptions and what counts if a flag isn't given."""
    parser = argparse.ArgumentParser()
    add_options(parser, Asked, "name", "many", "kind", required=("kind",))
    add_options(parser, Key, otherwise={"days": "a week"})
    text = " ".join(parser.format_help().split())

    assert "Who: --name NAME A name. --nobody Without a name." in text
    assert "Some texts. Can be repeated." in text
    assert "--kind {a,b} [" in text
    assert "--days DAYS How many days (a week). --columns [COLUMNS ...] Names of columns." in text
    assert "--is-on" not in text


def test_given_flags() -> None:
    """The flags that were given are named as a user knows them."""
    arguments = parsed("--one", "x", "--is-on", "--days", "3")

    assert given_flags(arguments, Asked) == ["--one", "--is-on"]
    assert given_flags(arguments, Key, ("columns",)) == []
    assert given_flags(arguments, Key, ("days",)) == ["--days"]


def test_described() -> None:
    """A field has its type without null, a title, and a description of its own or the class's."""
    options = described(Asked)

    assert options["name"] == {
        "default": "me",
        "description": "A name.",
        "metavar": "NAME",
        "none": ["--nobody", "Without a name."],
        "section": "Who",
        "title": "Name",
        "type": "string",
    }
    assert described(Key)["days"]["description"] == "How many days."
    assert options["at"]["format"] == "date-time"
    options["name"].clear()
    assert described(Asked)["name"]

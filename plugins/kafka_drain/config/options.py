"""Options of a verb, declared once: flags, form, operator and reference page are made from it.

Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from datetime import datetime
from functools import cache
from inspect import cleandoc
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

from kafka_drain.config.checks import boolean
from kafka_drain.config.model import ConfigModel, collected
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.intervals import in_utc, parse_time

#: A key and its text in the section `Attributes` of a docstring.
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def option(section: str | None, default: Any, description: str, **shown: Any) -> Any:
    """Define an option.

    Args:
        section: Section of the form, and group of flags; None for none.
        default: Default value.
        description: Description shown in the form and in the command line's help.
        shown: `examples` for the form; `flags`, if they differ from the field's name, an empty list
            for none; `metavar`, the placeholder for the value in a flag's help; and `none`, a flag
            that sets None, with its description.
    """
    named = {} if section is None else {"section": section}
    return Field(default, description=description, json_schema_extra={**named, **shown})


def shown(**how: Any) -> Any:
    """Set the presentation of a declaration's key, as `option` does; its docstring describes it."""
    return Field(json_schema_extra=how)


class Options(ConfigModel):
    """The options of a verb: a field for each, with its default.

    Raises:
        ConfigError: When a key is unknown, a value isn't acceptable, or two values contradict each
            other.
    """

    # A template rendered to native objects turns a topic named 2024 into a number.
    model_config = ConfigDict(coerce_numbers_to_str=True)

    @classmethod
    def options(cls) -> dict[str, dict[str, Any]]:
        """Return the JSON Schema of each field by name, including what `option` adds."""
        return described(cls)


def described(kind: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each field of a declaration by name, with title and description.

    A field that says nothing of itself is described by the declaration's docstring.
    """
    return deepcopy(_described(kind))


@cache
def _described(kind: type[BaseModel]) -> dict[str, dict[str, Any]]:
    # Once: each pipeline of a DAG file asks for them.
    # Since Python 3.13, a docstring isn't indented any more.
    attributes = _ATTRIBUTE.findall(cleandoc(kind.__doc__ or ""))
    texts = {name: " ".join(text.split()) for name, text in attributes}
    found: dict[str, dict[str, Any]] = {}
    for name, schema in kind.model_json_schema()["properties"].items():
        # An optional field has a union of its type and null: keep the type.
        for either in schema.pop("anyOf", ()):
            schema = either | schema if either.get("type") != "null" else schema
        title = name.replace("_", " ").capitalize()
        found[name] = {"description": texts.get(name, "")} | schema | {"title": title}
    return found


def flags_of(name: str, option: dict[str, Any]) -> Sequence[str]:
    """Return the flags of an option, as `described` describes it."""
    flags: Sequence[str] = option.get("flags", [f"--{name.replace('_', '-')}"])
    return flags


def _flag(name: str, value: Any) -> Any:
    return boolean(name, value) == "true"


def _moment(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return in_utc(value)
    # A template that is rendered to native objects turns the date 20260131 into a number, which
    # would be taken for seconds since 1970.
    return None if value is None else parse_time(name, str(value))


def _ranges(name: str, ranges: tuple[str, ...]) -> tuple[str, ...]:
    parse_ranges(name, ranges)
    return ranges


Text = Annotated[str, StringConstraints(strip_whitespace=True)]
Flag = Annotated[bool, BeforeValidator(collected(_flag))]
Moment = Annotated[datetime | None, BeforeValidator(collected(_moment))]
Ranges = Annotated[tuple[str, ...], AfterValidator(collected(_ranges))]
Limit = Annotated[float, Field(ge=0, allow_inf_nan=False)]

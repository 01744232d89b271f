"""Flags of a verb's options, and of keys of a pipeline, made from their declarations."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kafka_drain.config.options import described, flags_of
from kafka_drain.errors import ConfigError

T = TypeVar("T", bound=BaseModel)

_NUMBERS = {"integer": int, "number": float}


def add_options(
    parser: argparse.ArgumentParser,
    declaration: type[BaseModel],
    *names: str,
    required: Collection[str] = (),
    otherwise: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Add the flags of a declaration; a flag that isn't used has no attribute.

    Args:
        declaration: The options of a verb, a pipeline, or what a pipeline declares.
        names: Some of its fields; none for all.
        required: Those that have to be given.
        otherwise: Values of those that aren't given, if their descriptions don't have them.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    for name, option in described(declaration).items():
        if (names and name not in names) or not flags_of(name, option):
            continue
        within: argparse._ActionsContainer = parser
        if (section := option.get("section")) is not None:
            within = groups.get(section) or groups.setdefault(
                section, parser.add_argument_group(section)
            )
        if name in otherwise:
            option["description"] = f"{option['description'].rstrip('.')} ({otherwise[name]})."
        _add_flag(within, name, option, required=name in required)


def _add_flag(
    within: argparse._ActionsContainer, name: str, option: dict[str, Any], *, required: bool
) -> None:
    kind, text = option["type"], option["description"]
    how: dict[str, Any] = {"metavar": option.get("metavar")}
    if not how["metavar"]:
        how["choices"] = option.get("enum")
    if kind == "boolean":
        how = {"action": "store_true"}
    elif kind in _NUMBERS:
        how["type"] = _NUMBERS[kind]
    elif "nargs" in option:
        how["nargs"] = option["nargs"]
    elif kind in ("array", "object"):
        how["action"] = "append"
        text += " Can be repeated."
    if required:
        how["required"] = True
    if "none" in option:
        within = within.add_mutually_exclusive_group()
    within.add_argument(
        *flags_of(name, option), dest=name, default=argparse.SUPPRESS, help=text, **how
    )
    if "none" in option:
        flag, text = option["none"]
        within.add_argument(
            flag, dest=name, action="store_const", const=None, default=argparse.SUPPRESS, help=text
        )


def options_from(
    arguments: argparse.Namespace, declaration: type[T], *names: str, **more: Any
) -> T:
    """Return the declaration that the arguments make.

    Args:
        arguments: The command's arguments.
        declaration: The options of a verb, or what a pipeline declares.
        names: The fields that are flags; none for all.
        more: Fields that aren't flags.

    Raises:
        ConfigError: When a value isn't acceptable, or two contradict each other.
    """
    given: dict[str, Any] = {}
    for name, option in described(declaration).items():
        if name in vars(arguments) and (not names or name in names):
            value = getattr(arguments, name)
            is_pairs = option.get("type") == "object"
            given[name] = pairs(flags_of(name, option)[0], value) if is_pairs else value
    try:
        return declaration(**given, **more)
    except ValidationError as error:
        found = error.errors()
        problems = (f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}" for e in found)
        raise ConfigError("; ".join(problems)) from None


def given_flags(
    arguments: argparse.Namespace, declaration: type[BaseModel], names: Collection[str] = ()
) -> list[str]:
    """Return the flags of a declaration, or of some of its fields, that were given."""
    return [
        flags_of(name, option)[0]
        for name, option in described(declaration).items()
        if name in vars(arguments) and (not names or name in names)
    ]


def pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse the values of a flag that takes NAME=VALUE.

    Raises:
        ConfigError: When one isn't in that form, or a name has two values.
    """
    parsed: dict[str, str] = {}
    for pair in texts:
        name, found, value = pair.partition("=")
        if not found:
            raise ConfigError(f"{flag} {pair!r} is not acceptable; accepted: NAME=VALUE")
        # Nobody would see which counts. Not the values, which may be secret.
        if parsed.setdefault(name, value) != value:
            raise ConfigError(f"{flag} {name} is given with two values; give one of them")
    return parsed

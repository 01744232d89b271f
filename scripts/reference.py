"""Generate the site's reference pages as Markdown from the code, when the site is built.

docs/conf.py inserts a part wherever a page has {from-code} with the part's name.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kafka_drain_airflow
from kafka_drain import errors
from kafka_drain.cli.exit_codes import MEANINGS
from kafka_drain.cli.main import GROUPS, parser
from kafka_drain.config.options import flags_of
from kafka_drain.findings import Reason
from kafka_drain.gaps import GapReason
from kafka_drain.republish.planning.request import RepublishRequest

__all__ = [
    "PARTS",
    "commands",
    "documents",
    "error_types",
    "exit_codes",
    "faults",
    "findings",
    "gap_reasons",
    "python_names",
    "republish_options",
]

#: Functions for readers of archives, outside kafka_drain_airflow.
READERS = ("kafka_drain.reading.archive_dataset", "kafka_drain_spark.reader.read_archive")

#: The JSON Schemas of an archive's documents.
_SCHEMAS = Path(__file__).parents[1] / "docs" / "format"
#: An enumeration with more values is shown by its type.
_FEW = 5
_FAULTS = Path(__file__).parents[1] / "docs" / "faults.tsv"


def commands() -> str:
    """Return the commands of `kafka-drain` by group, each with its description and arguments."""
    return "\n\n".join(
        part
        for title, names in GROUPS.items()
        for part in (f"## {title.capitalize()}", *map(_command, names))
    )


def _command(name: str) -> str:
    command = _subcommands(parser([name]))[name]
    plain, *groups = _groups(command)
    parts = [
        f"### `kafka-drain {name}`",
        _sentence(command.description or ""),
        _arguments(plain[1]),
    ]
    for title, actions in groups:
        parts += [_sentence(title), _arguments(actions)]
    return "\n\n".join(parts)


def _groups(command: argparse.ArgumentParser) -> list[tuple[str, list[argparse.Action]]]:
    """Return title and arguments of each group, preceded by the arguments without a group."""
    positional, options, *groups = command._action_groups
    plain = [*positional._group_actions, *options._group_actions]
    return [
        ("", [action for action in plain if not isinstance(action, argparse._HelpAction)]),
        *((group.title or "", group._group_actions) for group in groups),
    ]


def _arguments(actions: Iterable[argparse.Action]) -> str:
    return _table(("argument", "meaning"), ((_spelling(a), _meaning(a)) for a in actions))


def _subcommands(found: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in found._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    raise LookupError("kafka-drain has no commands")


def _names(action: argparse.Action) -> tuple[str, ...]:
    return tuple(action.option_strings) or (action.dest,)


def _spelling(action: argparse.Action) -> str:
    """Return an argument as it is typed: `--run NAME`, `archive`."""
    names = ", ".join(_names(action))
    if not action.option_strings or action.nargs == 0:
        return f"`{names}`"
    value = action.metavar or (
        "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    )
    return f"`{names} {value}`".replace("|", r"\|")


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": "kafka-drain"}
    if action.choices and action.metavar:
        text += f" (of {', '.join(map(str, action.choices))})"
    default = action.default
    # Help texts that state the default already have it in parentheses.
    if isinstance(default, str) and default != argparse.SUPPRESS and f"({default})" not in text:
        text += f" ({default})"
    text = _escaped(text.strip())
    return f"{text}; required" if action.required and action.option_strings else text


def republish_options() -> str:
    """Return the republish options, each with its name, flag, default and meaning."""
    rows = []
    for name, option in RepublishRequest.options().items():
        default = option["default"]
        has_default = isinstance(default, (str, int)) and default is not False
        shown = f"`{default}`" if has_default else ""
        flags = ", ".join(f"`{flag}`" for flag in flags_of(name, option))
        rows.append((f"`{name}`", flags, shown, _escaped(option["description"])))
    return _table(("option", "flag", "default", "meaning"), rows)


def exit_codes() -> str:
    """Return the exit codes of `kafka-drain`."""
    return _table(("code", "meaning"), ((f"`{c}`", _escaped(m)) for c, m in MEANINGS.items()))


def error_types() -> str:
    """Return the errors, each with whether a retry can help and when it is raised."""
    rows = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        if kind in (errors.KafkaDrainError, errors.TerminalError, errors.TransientError):
            continue
        doc = " ".join((kind.__doc__ or "").split()).removeprefix("Raised ")
        helps = "yes" if issubclass(kind, errors.TransientError) else "no"
        rows.append((f"`{name}`", helps, _escaped(doc.rstrip("."))))
    return _table(("error", "a retry can help", "raised"), rows)


def faults() -> str:
    """Return the faults, each with its numbers, required outcome and tests."""
    with _FAULTS.open(encoding="utf-8", newline="") as file:
        heads, *rows = csv.reader(file, dialect="excel-tab")
    # Cells are Markdown.
    return _table(heads, rows)


def findings() -> str:
    """Return the findings of a validation, each with its severity, meaning and remedy."""
    rows = (
        (f"`{reason}`", reason.severity, _escaped(reason.meaning), _escaped(reason.remedy))
        for reason in Reason
    )
    return _table(("code", "", "meaning", "what to do"), rows)


def gap_reasons() -> str:
    """Return the reasons of gaps, each with whether it is harmless, and its meaning."""
    rows = (
        (f"`{reason}`", "yes" if reason.harmless else "no", _escaped(reason.meaning))
        for reason in GapReason
    )
    return _table(("reason", "harmless", "what is there"), rows)


def documents() -> str:
    """Return the keys of each document of an archive, from its JSON Schema, by title."""
    schemas = [json.loads(path.read_text()) for path in _SCHEMAS.glob("*.schema.json")]
    return "\n\n".join(
        f"## {schema['title']}\n\n" + _table(("key", "type", "always", "meaning"), _keys(schema))
        for schema in sorted(schemas, key=lambda schema: str(schema["title"]))
    )


def _keys(schema: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, ...]]:
    """Yield a row for each key of a schema, those within objects and arrays after their own."""
    for name, value in schema.get("properties", {}).items():
        always = "yes" if name in schema["required"] else "no"
        # A link leads to a place on the format's page.
        meaning = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", value["description"])
        yield f"`{parent}{name}`", _type(value), always, _escaped(meaning)
        yield from _keys(value, f"{parent}{name}.")
    if isinstance(schema.get("items"), dict):
        yield from _keys(schema["items"], f"{parent.rstrip('.')}[].")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _keys(schema["additionalProperties"], f"{parent}*.")


def _type(schema: Mapping[str, Any]) -> str:
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if 0 < len(values) <= _FEW:
        return " or ".join("null" if value is None else f"`{value}`" for value in values)
    types = schema["type"]
    return str(types) if isinstance(types, str) else " or ".join(types)


def python_names() -> str:
    """Return autodoc directives for the names that DAG files and readers import."""
    names = [f"kafka_drain_airflow.{name}" for name in kafka_drain_airflow.__all__]
    sections = (
        ("DAGs", [name for name in names if name.rpartition(".")[2][0].islower()]),
        ("Pipeline", ["kafka_drain_airflow.Pipeline", "kafka_drain_airflow.Approval"]),
        ("Operators", [name for name in names if name.endswith("Operator")]),
        ("Readers", list(READERS)),
    )
    return "\n\n".join(
        f"## {title}\n\n```{{eval-rst}}\n{_autodoc(found)}\n```" for title, found in sections
    )


def _autodoc(names: Iterable[str]) -> str:
    return "\n".join(
        f".. auto{'class' if name.rpartition('.')[2][0].isupper() else 'function'}:: {name}"
        for name in names
    )


def _sentence(text: str) -> str:
    return _escaped(text[:1].upper() + text[1:]) + "."


def _escaped(text: str) -> str:
    """Escape a text for Markdown; code between backticks stays code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        part.replace("|", r"\|")
        if part.startswith("`")
        else re.sub(r"([\\*_{}\[\]<>|])", r"\\\1", part)
        for part in parts
    )


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "documents": documents,
    "errors": error_types,
    "exit-codes": exit_codes,
    "faults": faults,
    "findings": findings,
    "gap-reasons": gap_reasons,
    "python": python_names,
    "republish": republish_options,
}

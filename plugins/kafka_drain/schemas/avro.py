"""Avro schemas as JSON types: make them self-contained, and check that Spark can use them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_drain.errors import ConfigError

#: The name of this kind of schema in a registry.
AVRO = "AVRO"

_PRIMITIVE = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = ("record", "error", "enum", "fixed")


def parse_schema(text: str, where: str) -> Any:
    """Read a schema's JSON.

    Raises:
        ConfigError: When it isn't JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where} isn't an Avro schema: {error}") from error


def self_contained(schema: Any, references: Mapping[str, Any]) -> Any:
    """Return a schema with the definitions that it refers to inlined, each at its first use.

    A registry stores them separately (Confluent's schema references), but Spark needs one schema.

    Args:
        references: Schemas of other subjects by the full name of their type. Types that are nested
            in them count too, as they do for Confluent's registry.
    """
    return _Inlining(references).walk(schema, "")


class _Inlining:
    def __init__(self, references: Mapping[str, Any]) -> None:
        nested = (pair for schema in references.values() for pair in _definitions(schema, ""))
        self._references = {**references, **dict(nested)}
        self._defined: set[str] = set()
        self.undefined: list[str] = []

    def walk(self, schema: Any, namespace: str) -> Any:
        """Inline the references of a schema that is nested in a namespace."""
        if isinstance(schema, str):
            return self._name(schema, namespace)
        if isinstance(schema, list):
            return [self.walk(branch, namespace) for branch in schema]
        if not isinstance(schema, dict):
            return schema
        kind = schema.get("type")
        if kind in _NAMED:
            full = _full_name(schema.get("name", ""), schema.get("namespace", namespace))
            if full in self._defined and full in self._references:
                # It was used before the type within which it is defined.
                return full
            self._defined.add(full)
            own, _, short = full.rpartition(".")
            # Explicit, because the definition may end up nested in a different namespace.
            schema = {**schema, "name": short, "namespace": own}
            if "fields" not in schema:
                return schema
            fields = [{**f, "type": self.walk(f["type"], own)} for f in schema["fields"]]
            return {**schema, "fields": fields}
        inner = {"array": "items", "map": "values"}.get(str(kind), "type")
        return {**schema, inner: self.walk(schema[inner], namespace)} if inner in schema else schema

    def _name(self, name: str, namespace: str) -> Any:
        if name in _PRIMITIVE:
            return name
        for full in (_full_name(name, namespace), name):
            if full in self._defined:
                return full
            if full in self._references:
                return self.walk(self._references[full], "")
        self.undefined.append(name)
        return name


def _definitions(schema: Any, namespace: str) -> Iterator[tuple[str, Any]]:
    """Yield the named types that a schema defines, nested or not, by their full names.

    Each says its namespace.
    """
    if isinstance(schema, list):
        for branch in schema:
            yield from _definitions(branch, namespace)
    if not isinstance(schema, dict):
        return
    if schema.get("type") in _NAMED:
        full = _full_name(schema.get("name", ""), schema.get("namespace", namespace))
        namespace = full.rpartition(".")[0]
        yield full, {**schema, "namespace": namespace}
    for inner in ("type", "items", "values", "fields"):
        yield from _definitions(schema.get(inner), namespace)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def why_no_columns(schema: Any) -> str:
    """Return why Spark can't create columns for a schema; empty when it can.

    Recursive schemas are refused: decoding recurses as deep as the value's bytes demand, so that a
    bad value would overflow the executor's stack.

    Args:
        schema: A self-contained schema.
    """
    undefined = undefined_types(schema)
    return f"{undefined[0]} isn't defined" if undefined else _why_not(schema, "", ())


def undefined_types(schema: Any) -> list[str]:
    """Return the names of types that a schema uses and that nothing in it defines."""
    # With itself as a reference, because a type may be defined after its first use.
    inlining = _Inlining({"": schema})
    inlining.walk(schema, "")
    return inlining.undefined


def _why_not(schema: Any, namespace: str, within: tuple[str, ...]) -> str:
    if isinstance(schema, str):
        name = _full_name(schema, namespace)
        return f"{name} contains itself" if schema not in _PRIMITIVE and name in within else ""
    if isinstance(schema, list):
        found = (_why_not(branch, namespace, within) for branch in schema)
        return next(filter(None, found), "")
    if not isinstance(schema, dict):
        return f"{schema!r} isn't a schema"
    kind = schema.get("type")
    if kind in ("record", "error"):
        name = _full_name(schema.get("name", ""), schema.get("namespace", namespace))
        own = name.rpartition(".")[0]
        if not schema.get("fields"):
            return f"{name} has no fields"
        for field in schema["fields"]:
            if field["type"] == "null":
                return f"{name}.{field['name']} can only be null"
            why = _why_not(field["type"], own, (*within, name))
            if why:
                return why
        return ""
    if kind in ("enum", "fixed") or kind in _PRIMITIVE:
        return ""
    inner = schema.get({"array": "items", "map": "values"}.get(str(kind), "type"))
    return f"{schema!r} isn't a schema" if inner is None else _why_not(inner, namespace, within)

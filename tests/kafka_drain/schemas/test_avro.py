"""Avro schemas made self-contained, and which of them make columns."""

from __future__ import annotations

import copy
from typing import Any

import fastavro
import fastavro.utils
import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.schemas.avro import parse_schema, self_contained, undefined_types, why_no_columns

ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "com.acme.common",
    "fields": [{"name": "city", "type": "string"}, {"name": "country", "type": "Country"}],
}
COUNTRY = {
    "type": "enum",
    "name": "Country",
    "namespace": "com.acme.common",
    "symbols": ["DE", "FR"],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "com.acme",
    "fields": [
        {"name": "billing", "type": "com.acme.common.Address"},
        {"name": "shipping", "type": ["null", "com.acme.common.Address"]},
        {"name": "past", "type": {"type": "array", "items": "com.acme.common.Address"}},
        {"name": "by_name", "type": {"type": "map", "values": "com.acme.common.Country"}},
    ],
}
REFERENCES = {"com.acme.common.Address": ADDRESS, "com.acme.common.Country": COUNTRY}


def test_self_contained_references() -> None:
    """Each referenced type is defined once, where it is used first, and the inputs stay."""
    order, references = copy.deepcopy(ORDER), copy.deepcopy(REFERENCES)

    whole = self_contained(order, references)

    address = {"city": "Bonn", "country": "DE"}
    record = {"billing": address, "shipping": address, "past": [address], "by_name": {"x": "FR"}}
    assert fastavro.validate(record, fastavro.parse_schema(copy.deepcopy(whole)))
    assert (order, references) == (ORDER, REFERENCES)
    assert str(whole).count("'symbols'") == 1
    assert why_no_columns(whole) == ""


def test_self_contained_without_namespace() -> None:
    """A type without a namespace keeps having none inside a record that has one."""
    plain = {"type": "record", "name": "Plain", "fields": [{"name": "x", "type": "int"}]}
    outer = {
        "type": "record",
        "name": "Outer",
        "namespace": "n",
        "fields": [{"name": "a", "type": "Plain"}, {"name": "b", "type": "Plain"}],
    }

    whole = self_contained(outer, {"Plain": plain})

    [a, b] = whole["fields"]
    # Java looks there too when the enclosing namespace has no such name.
    assert (a["type"]["name"], a["type"]["namespace"], b["type"]) == ("Plain", "", "Plain")


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        ["null", "long"],
        {"type": "string", "avro.java.string": "String"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "fixed", "name": "Hash", "size": 16},
        ORDER | {"fields": [{"name": "f", "type": {"type": "array", "items": ["null", "int"]}}]},
    ],
)
def test_self_contained_without_references(schema: Any) -> None:
    """A schema that refers to nothing means the same afterwards, and makes columns."""
    whole = self_contained(schema, {})

    canonical = fastavro.schema.to_parsing_canonical_form
    assert canonical(whole) == canonical(schema)
    assert why_no_columns(whole) == ""


NODE = {
    "type": "record",
    "name": "Node",
    "namespace": "n",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (NODE, "n.Node contains itself"),
        (
            {"type": "record", "name": "Tree", "fields": [{"name": "all", "type": {
                "type": "array", "items": "Tree"}}]},
            "Tree contains itself",
        ),
        ({"type": "record", "name": "Empty", "fields": []}, "Empty has no fields"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]},
            "R.n can only be null",
        ),
        ({"type": "map"}, "{'type': 'map'} isn't a schema"),
        (7, "7 isn't a schema"),
    ],
)  # fmt: skip
def test_why_no_columns(schema: Any, why: str) -> None:
    """A schema that contains itself, or has nothing to make a column of, says so."""
    assert why_no_columns(self_contained(schema, {})) == why


def test_why_no_columns_same_type_twice() -> None:
    """A type that is used twice side by side doesn't contain itself."""
    assert why_no_columns(self_contained(ORDER, REFERENCES)) == ""


MONEY = {"type": "record", "name": "Money", "fields": [{"name": "c", "type": "int"}]}
HASH = {"type": "fixed", "name": "Hash", "namespace": "com.acme", "size": 4}
COMMON = {
    "type": "record",
    "name": "Common",
    "namespace": "com.acme",
    "fields": [
        {"name": "price", "type": ["null", MONEY]},
        {"name": "kind", "type": {"type": "map", "values": COUNTRY}},
        {"name": "more", "type": {"type": "array", "items": "Money"}},
    ],
}


def using(*types: Any) -> dict[str, Any]:
    """Return a record with a field of each type."""
    fields = [{"name": f"f{number}", "type": type_} for number, type_ in enumerate(types)]
    return {"type": "record", "name": "Using", "namespace": "com.acme", "fields": fields}


@pytest.mark.parametrize(
    "types",
    [
        ["com.acme.Money"],
        ["Money"],
        # Before and after the type within which it is defined.
        ["Money", "Common", "Money"],
        ["Common", "Money"],
        [{"type": "array", "items": "com.acme.common.Country"}, ["null", "Common"], "Common"],
    ],
)
@pytest.mark.parametrize("texts", [{"com.acme.Common": COMMON}, {"both": [HASH, COMMON]}])
def test_self_contained_nested(types: list[Any], texts: dict[str, Any]) -> None:
    """Each type that a reference's text defines is known, wherever in it that is, and once."""
    schema, references = using(*types), copy.deepcopy(texts)

    whole = self_contained(schema, references)

    parser: dict[str, Any] = {}
    for text in (HASH, COMMON):
        fastavro.parse_schema(copy.deepcopy(text), named_schemas=parser)
    expected = fastavro.parse_schema(copy.deepcopy(schema), named_schemas=parser)
    values = list(fastavro.utils.generate_many(expected, 5))
    parsed = fastavro.parse_schema(copy.deepcopy(whole))
    assert all(fastavro.validate(value, parsed) for value in values)
    assert str(whole).count("'Money'") <= 1
    assert references == texts
    assert why_no_columns(whole) == ""


def test_self_contained_nested_empty_namespace() -> None:
    """A type that is nested in one without a namespace has none either."""
    common = COMMON | {"namespace": ""}

    whole = self_contained(using("Money"), {"Common": common})

    [field] = whole["fields"]
    assert (field["type"]["name"], field["type"]["namespace"]) == ("Money", "")
    assert why_no_columns(whole) == ""


def test_self_contained_redefined() -> None:
    """A schema that defines a type of its own twice stays as wrong as it is."""
    whole = self_contained(using(MONEY, MONEY), {})

    with pytest.raises(fastavro.schema.SchemaParseException, match="redefined"):
        fastavro.parse_schema(whole)


def test_why_no_columns_unresolved() -> None:
    """A schema that names a type which nobody defines can't be parsed, so it makes no columns."""
    whole = self_contained(using({"type": "map", "values": ["null", "Gone"]}), {})

    assert why_no_columns(whole) == "Gone isn't defined"
    assert why_no_columns("com.acme.Money") == "com.acme.Money isn't defined"


def test_undefined_types_defined_later() -> None:
    """A type that is defined after its first use is defined."""
    assert undefined_types(using("Money", COMMON)) == []
    assert undefined_types(using("Gone", NODE, ["null", "Gone.Too"])) == ["Gone", "Gone.Too"]


def test_parse_schema_not_json() -> None:
    """What isn't JSON is refused by where it stands."""
    with pytest.raises(ConfigError, match=r"version 3 of subject a-value isn't an Avro schema"):
        parse_schema("syntax = 'proto3';", "version 3 of subject a-value")

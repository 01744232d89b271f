"""Forms of the factories' DAGs: one field per option of the verb."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from airflow.providers.common.compat.sdk import Param

from kafka_drain.config.options import Options, flags_of
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.verbs import APPROVABLE
from kafka_drain.drain.options import DrainOptions
from kafka_drain.drills.options import DrillOptions
from kafka_drain.maintenance.erase_options import EraseOptions
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.schemas.restore_options import RestoreSchemasOptions
from kafka_drain.windows.reprocess.options import ReprocessOptions
from kafka_drain_airflow.run_conf import Form

#: Airflow's picker knows no seconds; the parameter itself does.
PRECISION = (
    "The picker has minutes. For milliseconds, write 2026-11-21T13:00:00.250Z into the run's JSON "
    "configuration."
)
#: Keys that only flags have.
_OF_FLAGS = {"flags", "metavar", "none"}
#: The options of each kind of DAG whose form has any.
OPTIONS: Mapping[str, type[Options]] = {
    "drain": DrainOptions,
    "republish": RepublishRequest,
    "reprocess": ReprocessOptions,
    "erase": EraseOptions,
    "drill": DrillOptions,
    "restore_schemas": RestoreSchemasOptions,
}


def _options(kind: str) -> dict[str, dict[str, Any]]:
    return OPTIONS[kind].options() if kind in OPTIONS else {}


def _commands_names(kind: str) -> dict[str, str]:
    """Return the fields of a kind of DAG whose flags are called otherwise, by the flags' names."""
    names = {"plan": "plan_id"} if kind in APPROVABLE else {}
    for name, option in _options(kind).items():
        for flag in flags_of(name, option):
            names[flag.removeprefix("--").replace("-", "_")] = name
    return {other: name for other, name in names.items() if other != name}


#: The commands' names of a field, by kind of DAG; a conf may use either name.
COMMANDS_NAMES: Mapping[str, Mapping[str, str]] = {
    kind: _commands_names(kind) for kind in dict.fromkeys((*OPTIONS, *APPROVABLE))
}


def field(kind: str, name: str) -> str:
    """Return the Jinja expression of a field's value, under whichever name a conf has it."""
    value = f"params.{name}"
    for other in (other for other, of in COMMANDS_NAMES.get(kind, {}).items() if of == name):
        given = f"params.get({other!r})"
        # Partition 0 isn't an empty field.
        value = f"({given} if {given} is integer else {given} or {value})"
    return value


def field_value(kind: str, name: str, filtered: str = "") -> str:
    """Return the template of a field's value, with a filter of Jinja if one is named."""
    return f"{{{{ {field(kind, name)}{f' | {filtered}' if filtered else ''} }}}}"


def form_of(kind: str) -> Form:
    """Return the form of a kind of DAG."""
    removed = OPTIONS[kind].removed if kind in OPTIONS else {}
    return Form(kind, COMMANDS_NAMES.get(kind, {}), removed)


#: The expression of the form's plan id, which several kinds of DAG have.
PLAN_ID = field("republish", "plan_id")


def params_of(kind: str, *, apply: str = "", **changed: Mapping[str, Any]) -> dict[str, Param]:
    """Return a form's fields, in order, by the name of the operator's argument.

    Args:
        kind: The kind of DAG.
        apply: The effect of a run with and without *Apply*; empty for a form without it.
        changed: Differences from the options' declaration in this pipeline, by field.
    """
    params: dict[str, Param] = {}
    if apply:
        params["apply"] = Param(default=False, type="boolean", title="Apply", description=apply)
    if kind in APPROVABLE:
        params["plan_id"] = Param(
            default=None,
            type=["null", "string"],
            title="Plan id",
            description="The id of the plan that a dry run has shown: exactly this plan is carried "
            "out, or the run fails and says what has changed since. The other fields are ignored "
            "then.",
        )
    for name, option in _options(kind).items():
        params[name] = Param(**(_field(option) | dict(changed.get(name, {}))))
    return params


def topics_of(pipeline: Pipeline) -> dict[str, Any]:
    """Return the examples of a field for topics; those of a pattern are typed in, one per line."""
    known = list(pipeline.topics or pipeline.assign or {})
    return {"examples": known} if known else {}


def fields_of(kind: str, names: Collection[str]) -> dict[str, str]:
    """Return the operator's arguments as templates of the form's fields of these names."""
    return {name: _template(kind, name, _options(kind).get(name, {})) for name in names}


def _template(kind: str, name: str, option: Mapping[str, Any]) -> str:
    # As a quoted literal: native rendering would turn a topic named 2024 into a number, and so the
    # date 20260131.
    # A list may be given as one text: a topic named 2024_01 would be 202401.
    is_text = option.get("type") in ("string", "array") and "enum" not in option
    return field_value(kind, name, "pprint" if is_text else "")


def _field(option: dict[str, Any]) -> dict[str, Any]:
    """Return a field of the form; an optional field that is left empty is null."""
    field = {key: value for key, value in option.items() if key not in _OF_FLAGS}
    if field["default"] in (None, "", [], {}):
        field |= {"default": None, "type": ["null", field["type"]]}
    if field.get("format") == "date-time":
        field["description"] += f" {PRECISION}"
    return field

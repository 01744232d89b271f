"""Which names a run's conf may have, in the DAGs of the factories. Opens nothing.

Airflow checks the values of a DAG's params, not the names in a conf: it takes any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kafka_drain.config.checks import nearest
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.republish.planning.request import RepublishRequest

#: What Airflow itself puts into a conf: TriggerDagRunOperator, with the OpenLineage provider.
_AIRFLOWS = frozenset({"openlineage"})
#: What kafka-drain puts into one that isn't a field: `watch_pipelines` says why a drain is due.
_REASON = "reason"
#: Flags without a field, and what to set instead.
_INSTEAD = {"same_topics": "set target_topic to '{topic}'"}
#: By kind, values of fields that forms used to send and that mean what is done now anyway: a run
#: that an older release began can be tried again, though its conf can't be changed.
_USUAL = {"republish": [("transactions", "strict")]}
#: Fields that a DAG has no more if a person approves its plans.
_APPROVED = frozenset({"apply", "plan_id", "abandon", "dry_run"})
_APPROVABLE = ("republish", "reprocess", "maintain", "erase")
_PLAN = {"plan": "plan_id"}


def _of_flags() -> dict[str, str]:
    """Return the fields of a republish whose flags are called otherwise, by the flags' names."""
    return {
        flag.removeprefix("--").replace("-", "_"): name
        for name, option in RepublishRequest.options().items()
        for flag in option.get("flags", ())
        if flag.removeprefix("--").replace("-", "_") != name
    }


#: What the commands call a field, by kind of DAG; a conf may use either name.
COMMANDS_NAMES: Mapping[str, Mapping[str, str]] = {
    "drain": {"start": "window_start", "end": "window_end"},
    "republish": {**_of_flags(), **_PLAN},
    "reprocess": {"from_offset": "from_offsets", **_PLAN},
    "maintain": _PLAN,
    "erase": {"topic": "topics", **_PLAN},
    "restore_schemas": {"map": "schema_map"},
}


def field(kind: str, name: str) -> str:
    """Return the Jinja expression of a field's value, under whichever name a conf has it."""
    others = (other for other, of in COMMANDS_NAMES.get(kind, {}).items() if of == name)
    values = [f"params.get({other!r})" for other in others]
    return f"({' or '.join([*values, f'params.{name}'])})" if values else f"params.{name}"


def field_value(kind: str, name: str, filtered: str = "") -> str:
    """Return the template of a field's value, with a filter of Jinja if one is named."""
    return f"{{{{ {field(kind, name)}{f' | {filtered}' if filtered else ''} }}}}"


#: The expression of the form's plan id, which several kinds of DAG have.
PLAN_ID = field("republish", "plan_id")


def check_conf(dag_id: str, kind: str, conf: object, fields: Collection[str]) -> None:
    """Refuse a conf with a name that a DAG doesn't know, or with two names of one field.

    Args:
        dag_id: The DAG's id.
        conf: The run's conf.
        fields: The names of the DAG's params.

    Raises:
        ConfigError: Names all of them, and what is meant; shows no value, which may be a secret.
    """
    if not conf:
        return
    if not isinstance(conf, Mapping):
        raise ConfigError(
            f"the conf of {dag_id} is a {type(conf).__name__}; expected a JSON object with "
            f"{_listed(fields)}. Nothing was planned"
        )
    names = {o: name for o, name in COMMANDS_NAMES.get(kind, {}).items() if name in fields}
    # Forms used to have it instead of apply; see `approved_tasks.DRY_RUN`.
    old = {"dry_run": "apply"} if "apply" in fields and kind in _APPROVABLE else {}
    more = {_REASON} if kind == "drain" else set()
    known = {*fields, *names, *old, *more, *_AIRFLOWS}
    wrong = [
        f"{name!r} isn't a field of {dag_id}{_hint(kind, str(name), fields, names)}"
        for name in conf
        if name not in known and (name, conf[name]) not in _USUAL.get(kind, ())
    ]
    wrong += [
        f"{other!r} and {name!r} are the same field of {dag_id}: give one of them"
        for other, name in {**names, **old}.items()
        if _is_set(conf.get(other)) and _is_set(conf.get(name))
    ]
    if wrong:
        said = "; ".join(wrong)
        raise ConfigError(f"{said}{'' if said.endswith('?') else '.'} Nothing was planned")


def _is_set(value: object) -> bool:
    """Return whether a conf gives a value; a form sends all of its fields, these empty."""
    return value not in (None, "", [], {}, False)


def _hint(kind: str, name: str, fields: Collection[str], names: Mapping[str, str]) -> str:
    if kind == "republish" and name in RepublishRequest.removed:
        return f": it was removed, as {RepublishRequest.removed[name]}"
    if name in _INSTEAD and "target_topic" in fields:
        return f": {_INSTEAD[name]}"
    if name in _APPROVED and kind in _APPROVABLE and "apply" not in fields:
        return ": it does only what was approved; leave it out"
    if (near := nearest(name, [*fields, *names])) is not None:
        return f"; did you mean {near!r}?"
    if name in Pipeline.model_fields:
        return f": set {name} of the pipeline"
    return f"; its fields: {_listed(fields)}"


def _listed(fields: Iterable[str]) -> str:
    return ", ".join(fields) or "none"

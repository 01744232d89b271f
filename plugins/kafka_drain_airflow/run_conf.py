"""Check the names in a run's conf, in the DAGs of the factories. Opens nothing.

Airflow checks the values of a DAG's params, not the names in a conf: it takes any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.config.checks import nearest
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.verbs import APPROVABLE
from kafka_drain.errors import ConfigError

#: What Airflow itself puts into a conf: TriggerDagRunOperator, with the OpenLineage provider.
_AIRFLOWS = frozenset({"openlineage"})
#: A name of kafka-drain's own that isn't a field: `watch_pipelines` says why a drain is due.
_REASON = "reason"
#: Flags without a field, and what to set instead.
_INSTEAD = {"same_topics": "set target_topic to '{topic}'"}
#: By kind, values of fields that forms used to send and that mean what is done now anyway: a run
#: that an older release began can be tried again, though its conf can't be changed.
_USUAL = {"republish": [("transactions", "strict")]}
#: Fields that a DAG has no more if a person approves its plans.
_APPROVED = frozenset({"apply", "plan_id", "abandon", "dry_run"})


@dataclass(frozen=True)
class Form:
    """The form of a kind of DAG, beside its fields.

    Attributes:
        kind: The kind of DAG.
        names: The commands' name of a field, by its other name; a conf may use either.
        removed: The replacement for a field that only earlier releases know.
    """

    kind: str
    names: Mapping[str, str] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)


def refuse_unused(conf: Mapping[str, Any] | None, params: Mapping[str, Any]) -> None:
    """Refuse a conf where Airflow takes none: `dag_run_conf_overrides_params` is off.

    Args:
        conf: The run's conf. Airflow's UI puts every field of the form into it.
        params: The values of the fields in this run.

    Raises:
        ConfigError: Names the fields, and the setting.
    """
    unused = [name for name, value in (conf or {}).items() if params.get(name) != value]
    if unused:
        raise ConfigError(
            f"this Airflow ignores the run's {_listed(unused)}: [core] "
            "dag_run_conf_overrides_params is off. Nothing was planned; switch it on, as the forms "
            "of kafka-drain's DAGs need it"
        )


def check_conf(dag_id: str, form: Form, conf: object, fields: Collection[str]) -> None:
    """Refuse a conf with a name that a DAG doesn't know, or with two names of one field.

    Args:
        dag_id: The DAG's id.
        form: The DAG's form.
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
    kind = form.kind
    names = {other: name for other, name in form.names.items() if name in fields}
    # Forms used to have it instead of apply; see `approved_tasks.DRY_RUN`.
    old = {"dry_run": "apply"} if "apply" in fields and kind in APPROVABLE else {}
    more = {_REASON} if kind == "drain" else set()
    known = {*fields, *names, *old, *more, *_AIRFLOWS}
    wrong = [
        f"{name!r} isn't a field of {dag_id}{_hint(form, str(name), fields, names)}"
        for name in conf
        if name not in known and (name, conf[name]) not in _USUAL.get(kind, ())
    ]
    wrong += [
        f"{other!r} and {name!r} are the same field of {dag_id}: give one of them"
        for other, name in {**names, **old}.items()
        if _is_set(conf.get(other)) and _is_set(conf.get(name))
    ]
    if old and conf.get("apply") is False and conf.get("dry_run") is False:
        # An older release's conf would apply, a form's wouldn't.
        wrong.append(f"'dry_run' contradicts 'apply' of {dag_id}, both false: give apply alone")
    if wrong:
        said = "; ".join(wrong)
        raise ConfigError(f"{said}{'' if said.endswith('?') else '.'} Nothing was planned")


def _is_set(value: object) -> bool:
    """Return whether a conf gives a value; a form sends all of its fields, these empty."""
    # Partition 0 equals False, but it is a value.
    return value is not False and value not in (None, "", [], {})


def _hint(form: Form, name: str, fields: Collection[str], names: Mapping[str, str]) -> str:
    if name in form.removed:
        return f": it was removed, as {form.removed[name]}"
    if name in _INSTEAD and "target_topic" in fields:
        return f": {_INSTEAD[name]}"
    if name in _APPROVED and form.kind in APPROVABLE and "apply" not in fields:
        return ": it does only what was approved; leave it out"
    if (near := nearest(name, [*fields, *names])) is not None:
        return f"; did you mean {near!r}?"
    if name in Pipeline.model_fields:
        return f": set {name} of the pipeline"
    return f"; its fields: {_listed(fields)}"


def _listed(fields: Iterable[str]) -> str:
    return ", ".join(fields) or "none"

"""The form of a `republish_<name>` DAG: one field per republish option."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import Param

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.republish.planning.request import OWN_TOPIC, RepublishRequest

#: Airflow's picker knows no seconds; the parameter itself does.
PRECISION = (
    "The picker has minutes. For milliseconds, write 2026-11-21T13:00:00.250Z into the run's JSON "
    "configuration."
)


def republish_params(pipeline: Pipeline) -> dict[str, Param]:
    """Return the form's fields, in order, by the name of the operator's parameter."""
    beside = f"{pipeline.name}_republished"
    # The form offers the examples for selection; topics of a pattern are typed in, one per line.
    known = list(pipeline.topics or pipeline.assign or {})
    of_pipeline: dict[str, dict[str, Any]] = {
        "target_topic": {
            "default": beside,
            "examples": [beside, f"{OWN_TOPIC}_restored", OWN_TOPIC],
        },
        "topics": {"examples": known} if known else {},
    }
    apply = apply_param(
        "On: send the records. Off: only log what would be sent. Records sent to Kafka can't be "
        "taken back."
    )
    return {"apply": apply, "plan_id": plan_param()} | {
        name: Param(**(_field(option) | of_pipeline.get(name, {})))
        for name, option in RepublishRequest.options().items()
    }


def _field(option: dict[str, Any]) -> dict[str, Any]:
    """Return a field of the form; an optional field that is left empty is null."""
    field = {key: value for key, value in option.items() if key not in ("flags", "metavar")}
    if not field["default"] and field["type"] in ("string", "array", "object"):
        field |= {"default": None, "type": ["null", field["type"]]}
    if field.get("format") == "date-time":
        field["description"] += f" {PRECISION}"
    return field


def apply_param(description: str) -> Param:
    """Return the field that makes a run execute its plan."""
    return Param(default=False, type="boolean", title="Apply", description=description)


def plan_param() -> Param:
    """Return the field for the plan that an earlier run has frozen."""
    return Param(
        default=None,
        type=["null", "string"],
        title="Plan id",
        description="The id of the plan that a dry run has shown: exactly this plan is carried "
        "out, or the run fails and says what has changed since. The other fields are ignored then.",
    )


def time_param(title: str, description: str, section: str) -> Param:
    """Return a field for a point in time, with a calendar picker in the form."""
    return Param(
        default=None,
        type=["null", "string"],
        format="date-time",
        title=title,
        section=section,
        description=f"{description} {PRECISION}",
    )

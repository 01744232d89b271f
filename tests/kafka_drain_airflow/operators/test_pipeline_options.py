"""An operator's arguments are its verb's options: in its signature and among its templates."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pprint import pformat

import pytest
from jinja2.nativetypes import NativeEnvironment

from kafka_drain.config.options import Options
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.options import DrainOptions, PreflightOptions, ValidateOptions
from kafka_drain.drills.options import DrillOptions
from kafka_drain.errors import ConfigError
from kafka_drain.maintenance.erase_options import EraseOptions
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.schemas.restore_options import RestoreSchemasOptions
from kafka_drain.windows.reprocess.options import ReprocessOptions
from kafka_drain_airflow import (
    DrillOperator,
    EraseOperator,
    KafkaDrainOperator,
    PreflightOperator,
    ReprocessOperator,
    RepublishToKafkaOperator,
    RestoreSchemasOperator,
    ValidateManifestOperator,
)
from kafka_drain_airflow.forms import fields_of
from kafka_drain_airflow.operators.pipeline import PipelineOperator

UTC = timezone.utc

OPTIONS: Mapping[type[PipelineOperator], type[Options]] = {
    PreflightOperator: PreflightOptions,
    KafkaDrainOperator: DrainOptions,
    ValidateManifestOperator: ValidateOptions,
    RepublishToKafkaOperator: RepublishRequest,
    ReprocessOperator: ReprocessOptions,
    EraseOperator: EraseOptions,
    DrillOperator: DrillOptions,
    RestoreSchemasOperator: RestoreSchemasOptions,
}
#: Arguments of operators that aren't options of their verbs.
OTHERS = {"pipeline", "scope", "on_alert_callback", "registry_conn_id"}
PIPELINE = Pipeline(name="t", topics=["t"], archive="/archives/t")


@pytest.mark.parametrize("operator", OPTIONS)
def test_arguments_are_the_options(operator: type[PipelineOperator]) -> None:
    """The signature, which Airflow and editors read, lists all options; None is what is empty."""
    names = {*OPTIONS[operator].model_fields}
    own = inspect.signature(vars(operator)["__init__"]).parameters.values()
    named = {one.name: one.default for one in own if one.kind is one.KEYWORD_ONLY}

    assert named.keys() - OTHERS == names
    assert {default for name, default in named.items() if name in names} <= {None, False}
    assert names <= {*operator.template_fields}
    assert len(operator.template_fields) == len({*operator.template_fields})


@pytest.mark.parametrize("written", ["20260131", "2026-01-31", "20260131T00", "2026-01-31T00:00Z"])
@pytest.mark.parametrize("kind", ["drain", "republish", "reprocess", "erase"])
def test_time_of_form(kind: str, written: str) -> None:
    """A time that a form is given is the time that it is at a terminal, not a number of seconds."""
    name = "window_start" if kind == "drain" else "from_time"
    native = NativeEnvironment()
    native.filters["pprint"] = pformat
    template = native.from_string(fields_of(kind, [name])[name])

    rendered = template.render(params={name: written})
    asked = DrainOptions if kind == "drain" else ReprocessOptions

    assert rendered == written
    assert template.render(params={name: None}) is None
    if sys.version_info < (3, 11) and "-" not in written:
        return  # Python 3.10 doesn't parse it, and so it is refused.
    more = {"mode": "window"} if kind == "drain" else {}
    assert getattr(asked(**{name: rendered, **more}), name) == datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("rendered", [2026, 2026.5, 1769817600000])
def test_time_that_is_a_number(rendered: float) -> None:
    """A DAG that renders native objects turns texts into numbers, which are no times since 1970."""
    if sys.version_info >= (3, 11):
        assert ReprocessOptions(from_time=20260131).from_time == datetime(2026, 1, 31, tzinfo=UTC)
    with pytest.raises(ConfigError, match=r"from_time = .* is not acceptable; accepted: a date"):
        EraseOptions(request="1", by="me", topics=["t"], all_records=True, from_time=rendered)


@pytest.mark.parametrize("operator", OPTIONS)
def test_options_of_empty_fields(operator: type[PipelineOperator]) -> None:
    """What a form leaves empty, or a template doesn't find, is the declaration's default."""
    declaration = OPTIONS[operator]
    for empty in (None, "", []):
        given = dict.fromkeys(declaration.model_fields, empty)
        task = operator(task_id="t", pipeline=PIPELINE, **given)
        assert task.options(declaration) == declaration()
    # Unless the DAG renders natively.
    nothing = {n: "None" for n, f in declaration.model_fields.items() if f.default in (None, "")}
    task = operator(task_id="t", pipeline=PIPELINE, **nothing)
    assert task.options(declaration) == declaration()


def test_options_of_fields() -> None:
    """A field has the value that the declaration reads: lists without blank lines, times, flags."""
    task = KafkaDrainOperator(
        task_id="t",
        pipeline=PIPELINE,
        acknowledge_expired=["t:0:1-2", " ", "t:1:3-4"],
        window_start="2026-01-01",
        force="True",
    )
    options = task.options(DrainOptions)

    assert options.acknowledge_expired == ("t:0:1-2", "t:1:3-4")
    assert options.window_start is not None
    assert options.window_start.isoformat() == "2026-01-01T00:00:00+00:00"
    assert (options.force, options.new_archive, options.mode) == (True, False, "drain")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"force": "perhaps"}, "^force = 'perhaps' is not acceptable; accepted: true or false$"),
        ({"window_start": "noon"}, "^window_start = 'noon' is not acceptable; accepted: a date or"),
        ({"mode": "windows"}, "^mode = 'windows': Input should be 'drain' or 'window'$"),
        (
            {"acknowledge_expired": "t:0:9"},
            "^acknowledge_expired = 't:0:9' is not acceptable; accepted: topic:partition:start-end",
        ),
    ],
)
def test_options_refused(given: dict[str, str], says: str) -> None:
    """What isn't acceptable is named, with what is."""
    task = KafkaDrainOperator(task_id="t", pipeline=PIPELINE, **given)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=says):
        task.options(DrainOptions)

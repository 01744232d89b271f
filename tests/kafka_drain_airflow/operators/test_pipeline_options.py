"""An operator's arguments are its verb's options: in its signature and among its templates."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import pytest

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
from kafka_drain_airflow.operators.pipeline import PipelineOperator

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

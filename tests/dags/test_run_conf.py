"""Names that nothing knows are refused: in a run's conf, among flags, in a pipeline's keys."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException
from jinja2.nativetypes import NativeEnvironment

from kafka_drain.cli.main import COMMANDS, parser
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.maintenance.erase_options import EraseOptions
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain_airflow import create_dags, create_group_dags, create_watch_dag
from kafka_drain_airflow.dag_tags import kind_of
from kafka_drain_airflow.forms import (
    COMMANDS_NAMES,
    field_value,
    fields_of,
    form_of,
    topics_of,
)
from kafka_drain_airflow.operators.approval import Approval
from kafka_drain_airflow.operators.erase import EraseOperator
from kafka_drain_airflow.operators.republish import RepublishToKafkaOperator
from kafka_drain_airflow.run_conf import check_conf

NESTED: dict[str, dict[str, Any]] = {
    "drill": {"sample": "whole", "max_age_days": 30},
    "watch": {"lag": 1000, "hours_to_expiry": 12},
    "cut_over": {"kafka_conn_id": "target", "run_name": "mirror", "max_lag": 10},
}
PIPELINE = Pipeline(
    name="t",
    topics=["t"],
    archive="/archives/t",
    erase_conn_id="erase",
    target_registry_conn_id="registry",
    **NESTED,  # type: ignore[arg-type]
)
#: The command that does what a kind of DAG does.
COMMAND_OF = {
    "drain": "backfill",
    "republish": "republish",
    "reprocess": "reprocess",
    "maintain": "maintain",
    "erase": "erase",
    "drill": "drill",
    "cut_over": "cut-over",
    "restore_schemas": "restore-schemas",
}
#: Flags of those commands whose names a conf may have, whatever they are called there.
UNDERSTOOD = {
    "drain": {"--acknowledge-expired", "--start", "--end", "--force"},
    "reprocess": {"--from-batch", "--from-time", "--from-offset", "--plan", "--abandon"},
    "maintain": {"--plan"},
    "erase": {
        *("--request", "--by", "--topic", "--from-time", "--to-time", "--for-ever", "--plan"),
    },
    "drill": {"--sample", "--seed"},
    "cut_over": set[str](),
    "restore_schemas": {"--map", "--ids"},
}


@cache
def dags() -> dict[str, DAG]:
    """Return a DAG of each kind, by kind."""
    group = Pipeline(name="g", topics=["g"], archive="/archives/g")
    watch = create_watch_dag([PIPELINE])
    made = [*create_dags(PIPELINE).values(), *create_group_dags("all", [group]).values(), watch]
    return {kind_of(dag.tags) or "watch": dag for dag in reversed(made)}


def misspelt(name: str) -> Iterator[str]:
    """Yield a name with a letter missing, doubled, or changed for its neighbour."""
    for at, letter in enumerate(name):
        if letter.isalpha():
            yield name[:at] + name[at + 1 :]
            yield name[:at] + letter + name[at:]
            yield name[:at] + chr(ord(letter) ^ 1) + name[at + 1 :]


def first_task(dag: DAG) -> Any:
    """Return the task that runs first."""
    return next(task for task in dag.tasks if not task.upstream_task_ids)


def start(dag: DAG, conf: Any) -> None:
    """Do what comes before a DAG's first task does anything."""
    run = SimpleNamespace(conf=conf, run_type="manual")
    task = first_task(dag)
    # Airflow 2 renders outlets by it.
    task.pre_execute({"dag": dag, "dag_run": run, "ti": SimpleNamespace(task=task)})


def test_conf_misspelt_in_params_of_task() -> None:
    """A misspelt name is refused also where Airflow 2 has put it into the params of the task."""
    dag = dags()["republish"]
    first_task(dag).params["to_tme"] = "2026-01-01T12:00:00Z"

    with pytest.raises(AirflowFailException, match="'to_tme' isn't a field of"):
        start(dag, {"to_tme": "2026-01-01T12:00:00Z"})


def test_conf_misspelt() -> None:
    """Each field's name with a letter missing, doubled or changed is refused, or is a field's."""
    seen: Counter[str] = Counter()
    for kind, dag in dags().items():
        known = {*dag.params, *COMMANDS_NAMES.get(kind, {})}
        for field in known:
            for name in misspelt(field):
                if name in known:
                    # The command's name of it, or the other way round: `topic`, `topics`.
                    assert {name, field} == {*[name.rstrip("s"), name.rstrip("s") + "s"]}
                    seen["understood"] += 1
                    continue
                with pytest.raises(ConfigError, match=f"'{name}' isn't a field of {dag.dag_id}"):
                    check_conf(dag.dag_id, form_of(kind), {name: "x"}, dag.params)
                seen["refused"] += 1

    assert seen["refused"] > 1000
    assert seen["understood"] < 20


@pytest.mark.parametrize("kind", [*COMMAND_OF, "drain_group", "watch"])
def test_conf_refused_by_first_task(kind: str) -> None:
    """In each DAG the first task refuses an unknown name, before it does anything else."""
    dag = dags()[kind]

    with pytest.raises(AirflowFailException, match=rf"'aply' isn't a field of {dag.dag_id}"):
        start(dag, {"aply": True})


@pytest.mark.parametrize(
    ("kind", "conf", "says"),
    [
        ("republish", {"to_tme": 1}, "'to_tme' isn't a field of republish_t; did you mean 'to_t"),
        ("republish", {"offset": 1, "mask_": 1}, "mean 'offsets'.*'mask_' isn't.* mean 'mask'"),
        ("republish", {"same_topics": True}, "'same_topics' isn't.*: set target_topic to '{topi"),
        ("republish", {"filter": ["a"], "filters": ["b"]}, "'filter' and 'filters' are the same"),
        ("republish", {"partition": 0, "partitions": ["3"]}, "'partition' and 'partitions' are"),
        ("republish", {"apply": True, "dry_run": True}, "'dry_run' and 'apply' are the same"),
        (
            "maintain",
            {"apply": False, "dry_run": False},
            "'dry_run' contradicts 'apply' of maintain_t",
        ),
        ("republish", {"apply": False, "dry_run": False}, "give apply alone"),
        ("republish", ["to_time"], "the conf of republish_t is a list; expected a JSON object"),
        ("republish", {"transactions": "fast"}, "'transactions' isn't a.*it was removed, as each"),
        ("drain", {"transactions": "strict"}, "'transactions' isn't a field of drain_t"),
        ("drain", {"mdoe": "window"}, "'mdoe' isn't a field of drain_t; did you mean 'mode'"),
        ("drain", {"dry_run": True}, "'dry_run' isn't a field of drain_t; its fields: acknowl"),
        ("maintain", {"retention_days": 1}, "'retention_days' isn't.*: set retention_days of the"),
        ("cut_over", {"step": "mirror"}, "'step' isn't a field of cut_over_t; its fields: none"),
        ("restore_schemas", {"dry_run": False}, "'dry_run' isn't a field of restore_schemas_t"),
    ],
)
def test_conf_refused(kind: str, conf: Any, says: str) -> None:
    """An unknown name says which is meant; two names of one field are refused."""
    with pytest.raises(AirflowFailException, match=f"{says}.*Nothing was planned"):
        start(dags()[kind], conf)


@pytest.mark.parametrize(
    ("kind", "conf"),
    [
        ("republish", None),
        ("republish", {}),
        ("republish", {"dry_run": True}),
        ("republish", {"apply": True, "dry_run": False}),
        ("republish", {"apply": False, "dry_run": True}),
        # A form sends all of its fields, and those that are empty too.
        ("republish", {"filter": ["$.n=1"], "filters": None, "apply": True}),
        # The form of 0.2 sent it with all its other fields; its runs are tried again.
        ("republish", {"transactions": "strict"}),
        # TriggerDagRunOperator, with Airflow's OpenLineage provider.
        ("republish", {"openlineage": {"parentRunId": "x"}}),
        # `watch_pipelines` says why.
        ("drain", {"reason": "lag"}),
    ],
)
def test_conf_accepted(kind: str, conf: Any) -> None:
    """Fields, their commands' names, and what Airflow and a watch put into a conf are accepted."""
    dag = dags()[kind]
    check_conf(dag.dag_id, form_of(kind), conf, dag.params)


@pytest.mark.parametrize(
    ("kind", "conf", "ignored"),
    [
        ("drain", {"mode": "window", "start": "2026-01-01"}, "mode, start"),
        ("republish", {"apply": True, "dry_run": None}, "apply"),
        ("drain", {"mode": "drain"}, None),
        ("drain", None, None),
    ],
)
def test_conf_ignored_by_airflow(
    kind: str, conf: Any, ignored: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Airflow gives a conf to no field, a run that relies on it is refused."""
    task, run = first_task(dags()[kind]), SimpleNamespace(conf=conf, run_type="manual")
    params = {name: param.value for name, param in dags()[kind].params.items()}
    context: Any = {"dag": dags()[kind], "dag_run": run, "params": params}
    context["ti"] = SimpleNamespace(task=task)
    monkeypatch.setenv("AIRFLOW__CORE__DAG_RUN_CONF_OVERRIDES_PARAMS", "False")

    if ignored is None:
        task.pre_execute(context)
    else:
        with pytest.raises(AirflowFailException, match=f"ignores the run's {ignored}: .core."):
            task.pre_execute(context)


def test_conf_of_approval() -> None:
    """Where a person approves, a conf can't ask to go ahead."""
    dag = create_dags(Pipeline(name="a", topics=["a"], archive="/a"), approval=Approval())[
        "republish_a"
    ]

    with pytest.raises(AirflowFailException, match=r"'apply' isn't.*: it does only what was appro"):
        start(dag, {"apply": True})


def test_conf_of_own_dag() -> None:
    """In a user's own DAG, a conf is the user's."""
    from kafka_drain_airflow import PreflightOperator

    with DAG("mine", schedule=None) as dag:
        PreflightOperator(task_id="preflight", pipeline=PIPELINE)

    start(dag, {"whatever": 1})


@pytest.mark.parametrize(
    ("kind", "other", "field"),
    [(kind, *names) for kind, of_kind in COMMANDS_NAMES.items() for names in of_kind.items()],
)
def test_conf_commands_name(kind: str, other: str, field: str) -> None:
    """The command's name of a field is taken for the field's: its value reaches the task."""
    dag = dags()[kind]
    environment = NativeEnvironment()
    values = {name: param.value for name in dag.params if (param := dag.params.get_param(name))}
    values |= {name: None for name in dag.params if name not in values}
    template = environment.from_string(field_value(kind, field))

    assert template.render(params={**values, other: "given"}) == "given"
    assert template.render(params={**values, field: "given"}) == "given"
    tasks = [task for task in dag.tasks if hasattr(task, field)]
    assert tasks
    for task in tasks:
        assert getattr(task, field).startswith(field_value(kind, field)[:-3])


@pytest.mark.parametrize("other", ["partition", "partitions"])
@pytest.mark.parametrize("number", [0, "0", 7])
def test_conf_of_partition(other: str, number: object) -> None:
    """A single partition is the one that is sent, also the first: not all of them."""
    given = [number] if other == "partitions" else number
    params = {"partitions": None, other: given}
    template = NativeEnvironment().from_string(field_value("republish", "partitions"))
    task = RepublishToKafkaOperator(
        task_id="t", pipeline=PIPELINE, partitions=template.render(params=params)
    )

    assert task.options(RepublishRequest).partitions == (int(str(number)),)


@pytest.mark.parametrize("kind", ["republish", "erase"])
@pytest.mark.parametrize("given", ["2024_01", "1e5", "7", ["2024_01", "b"]])
def test_conf_of_topic(kind: str, given: Any) -> None:
    """A topic whose name looks like a number in Python is the one that is meant."""
    template = NativeEnvironment().from_string(fields_of(kind, ["topics"])["topics"])
    task = EraseOperator(
        task_id="t",
        pipeline=PIPELINE,
        request="r",
        topics=template.render(params={"topics": None, "topic": given}),
    )

    expected = (given,) if isinstance(given, str) else tuple(given)
    assert task.options(EraseOptions).topics == expected


@pytest.mark.parametrize("kind", COMMAND_OF)
def test_conf_of_flags(kind: str) -> None:
    """Of a command's flags, its DAG understands those that it has, and refuses all others.

    So a name that command and DAG give one thing is never just left aside.
    """
    dag = dags()[kind]
    understood, flags = set(), set()
    for action in command(COMMAND_OF[kind])._actions:
        for flag in action.option_strings:
            name = flag.lstrip("-").replace("-", "_")
            flags.add(flag)
            with suppress(ConfigError):
                check_conf(dag.dag_id, form_of(kind), {name: "x"}, dag.params)
                understood.add(flag)

    of_apply = {"--apply", "--dry-run"} if kind in ("republish", "reprocess") else set()
    of_apply |= {"--apply", "--dry-run"} if kind in ("maintain", "erase") else set()
    of_apply |= {"--apply"} if kind == "restore_schemas" else set()
    if kind == "republish":
        of_apply |= {"--plan"} | set(
            chain.from_iterable(a.option_strings for a in republish_actions())
        ) - {"--same-topics"}
    assert understood == UNDERSTOOD.get(kind, set()) | of_apply
    assert flags - understood


def republish_actions() -> Iterator[argparse.Action]:
    """Yield the flags of the republish's options."""
    fields = dags()["republish"].params
    for action in command("republish")._actions:
        if action.dest in fields and action.dest not in ("apply", "plan_id"):
            yield action


class Refused(Exception):
    """Raised in place of an exit."""


@cache
def command(name: str) -> argparse.ArgumentParser:
    """Return a command's parser, which raises where it would exit, and requires nothing."""
    commands = next(
        action for action in parser([name])._actions if isinstance(action.choices, dict)
    )
    found: argparse.ArgumentParser = commands.choices[name]  # type: ignore[index, call-overload]

    def error(message: str) -> NoReturn:
        raise Refused(message)

    found.error = error  # type: ignore[method-assign]
    for action in found._actions:
        action.required = False
    for group in found._mutually_exclusive_groups:
        group.required = False
    return found


def test_flags_misspelt() -> None:
    """Each flag with a letter missing, doubled or changed is refused, or taken for itself."""
    seen: Counter[str] = Counter()
    for name in COMMANDS:
        of_command = command(name)
        given = [
            next(iter(action.choices or ["x"]))
            for action in of_command._actions
            if not action.option_strings
        ]
        untouched = vars(of_command.parse_known_args(given)[0])
        for action in of_command._actions:
            if action.dest == "help":
                continue
            values = [] if action.nargs == 0 else ["1"]
            for flag in action.option_strings:
                for wrong in misspelt(flag):
                    if wrong in action.option_strings:
                        continue
                    try:
                        taken, left = of_command.parse_known_args([*given, wrong, *values])
                    except Refused:
                        left = [wrong]
                    if left:
                        seen["refused"] += 1
                        continue
                    changed = {k for k, v in vars(taken).items() if v != untouched.get(k)}
                    assert changed <= {action.dest}, (name, wrong, changed)
                    seen["taken for itself"] += 1

    assert seen["refused"] > 5000
    # The beginning of a flag stands for it.
    assert seen["taken for itself"] < 300


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("republish x --filters a", "--filter"),
        ("republish x --to-tme a", "--to-time"),
        ("republish x --hash-fields=a", "--hash"),
        ("republish x --drop-headers a", "--drop-header"),
        ("erase x --plan-id a", "--plan"),
    ],
)
def test_flag_meant(given: str, meant: str) -> None:
    """An unknown flag, such as the DAG's name of one, says which is meant."""
    name, *arguments = given.split()

    with pytest.raises(Refused, match=f"unrecognized arguments: .*; did you mean {meant}\\?$"):
        command(name).parse_known_args(arguments)


@pytest.mark.parametrize(("outer", "key"), [(o, k) for o, keys in NESTED.items() for k in keys])
def test_pipeline_key_misspelt(outer: str, key: str) -> None:
    """A key within a pipeline's key is refused with a letter missing, doubled or changed."""
    for wrong in misspelt(key):
        keys = {wrong if k == key else k: value for k, value in NESTED[outer].items()}
        with pytest.raises(ConfigError, match=f"'{wrong}' .*isn't a valid key of a pipeline's"):
            Pipeline(name="t", topics=["t"], archive="/t", **{outer: keys})


def test_fields_of_forms() -> None:
    """Each task's templates name fields of its DAG's form, and each field is in a template."""
    for kind, dag in dags().items():
        texts = [
            str(getattr(task, name, ""))
            for task in dag.tasks
            # A mapped task has its arguments apart.
            for name in (*task.template_fields, "partial_kwargs", "expand_input")
            if name != "pipeline"
        ]
        named = set(re.findall(r"params\.(?!get\b)(\w+)", " ".join(texts)))
        assert named == set(dag.params), kind


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ({"topics": ["a", "b"]}, {"examples": ["a", "b"]}),
        ({"assign": {"a": [0], "b": [1]}}, {"examples": ["a", "b"]}),
        ({"topic_pattern": "a.*"}, {}),
    ],
)
def test_topics_of(source: dict[str, Any], known: dict[str, Any]) -> None:
    """A field for topics offers those that the pipeline names, in whichever way."""
    assert topics_of(Pipeline(name="p", archive="/a", **source)) == known

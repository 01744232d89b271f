"""The arguments of users for the DAGs and tasks of a factory, and those that they can't change."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from airflow.providers.common.compat.sdk import DAG, BaseOperator

from kafka_drain.config.checks import refuse, unknown
from kafka_drain.config.schedules import check_schedule
from kafka_drain.errors import ConfigError
from kafka_drain_airflow.dag_tags import tags_of
from kafka_drain_airflow.forms import form_of
from kafka_drain_airflow.operators.pipeline import FormOperator

T = TypeVar("T", bound=BaseOperator)
Added = Mapping[str, Mapping[str, Any]]

#: The tasks of each kind of DAG; of a group, `validate_<pipeline>` too.
TASKS: Mapping[str, Sequence[str]] = {
    "drain": ("preflight", "drain", "validate"),
    "drain_group": ("drain", "done"),
    "republish": ("plan", "republish", "check_decoding"),
    "reprocess": ("plan", "reprocess"),
    "maintain": ("plan", "maintain"),
    "erase": ("plan", "erase"),
    "drill": ("drill", "check"),
    "cut_over": (
        *("mirror", "producers_off", "preflight", "drain", "validate", "last_drain"),
        *("last_mirror", "groups", "verify", "hand_over", "back"),
    ),
    "restore_schemas": ("restore_schemas",),
}
#: Arguments of DAGs that aren't set by `dag_kwargs`, and what sets them.
OWN = {
    "dag_id": "the factory's dag_id",
    "schedule": "the factory's schedules",
    "start_date": "the factory's start_date",
    "default_args": "the factory's default_args",
    "tags": "the factory's tags",
    "params": "kafka-drain: they are the DAG's form",
    "render_template_as_native_obj": "kafka-drain: the form's fields aren't text",
}
#: Arguments of DAGs that some supported Airflow doesn't have: since when, and what it has instead.
SINCE = {"deadline": ("3.1", "dagrun_timeout and on_failure_callback")}


@dataclass(frozen=True)
class FactoryArguments:
    """The arguments of users for DAGs and tasks.

    Attributes:
        common: Arguments of every DAG; `tags` without those that tell its kind.
        dag_id: Pattern of the DAGs' ids, with `{kind}` and `{name}`.
        schedules: Schedules by kind of DAG, as Airflow takes them.
        dags: Arguments for DAGs, by patterns of their kinds.
        tasks: Arguments for tasks, by patterns of their ids or of `<kind>.<task id>`.
        groups: Ids of further tasks of kind `drain_group`.

    Raises:
        ConfigError: If a pattern matches nothing, or an argument isn't theirs to set.
    """

    common: Mapping[str, Any]
    dag_id: str = "{kind}_{name}"
    schedules: Mapping[str, Any] = field(default_factory=dict)
    dags: Added = field(default_factory=dict)
    tasks: Added = field(default_factory=dict)
    groups: Sequence[str] = ()

    def __post_init__(self) -> None:
        try:
            ids = {self.dag_id.format(kind=kind, name="name") for kind in TASKS}
        except (KeyError, IndexError, ValueError):
            ids = set()
        if len(ids) < len(TASKS):
            accepted = "a text with {kind}, such as 'team_a.{kind}.{name}'"
            raise refuse("dag_id", self.dag_id, accepted)
        named = {"schedules": self.schedules, "dag_kwargs": self.dags, "task_kwargs": self.tasks}
        for name, given in named.items():
            if not isinstance(given, Mapping):
                raise refuse(name, given, "a dict")
        for kind, schedule in self.schedules.items():
            if kind not in TASKS:
                raise unknown(kind, schedule, TASKS, "kind of DAG in schedules")
            if isinstance(schedule, str):
                check_schedule(schedule)
            elif isinstance(schedule, (int, float)):
                accepted = "text, a timedelta, a timetable, assets or None"
                raise refuse(f"schedules[{kind!r}]", schedule, accepted)
        for pattern, given in self.dags.items():
            if not any(fnmatchcase(kind, pattern) for kind in TASKS):
                raise unknown(pattern, given, TASKS, "kind of DAG in dag_kwargs")
            _require_arguments(f"dag_kwargs[{pattern!r}]", given)
            check_dag_arguments(given, inspect.signature(DAG).parameters)
        every = [(kind, task_id) for kind in TASKS for task_id in self._tasks_of(kind)]
        for pattern, given in self.tasks.items():
            if not any(_is_task(pattern, *task) for task in every):
                known = {task_id for _, task_id in every}
                raise unknown(pattern, given, known, "task in task_kwargs")
            _require_arguments(f"task_kwargs[{pattern!r}]", given)

    def _tasks_of(self, kind: str) -> Iterator[str]:
        yield from TASKS[kind]
        if kind == "drain_group":
            yield from self.groups

    def of(self, kind: str, name: str) -> DagArguments:
        """Return the arguments for one DAG, given its kind and the name that its id contains."""
        return DagArguments(self, kind, self.dag_id.format(kind=kind, name=name))


def _require_arguments(name: str, given: Any) -> None:
    if not isinstance(given, Mapping):
        raise refuse(name, given, "a dict of arguments")


@dataclass(frozen=True)
class DagArguments:
    """The arguments of users for one DAG and its tasks.

    Attributes:
        of_factory: The arguments for all.
        kind: The DAG's kind.
        dag_id: The DAG's id.
    """

    of_factory: FactoryArguments
    kind: str
    dag_id: str

    def dag(self, schedule: Any, **own: Any) -> DAG:
        """Create the DAG, given its default schedule and the factory's own arguments."""
        factory = self.of_factory
        tags = tags_of(self.kind, factory.common.get("tags", ()))
        arguments = {**factory.common, "tags": tags, **own}
        for pattern, given in factory.dags.items():
            if fnmatchcase(self.kind, pattern):
                arguments |= given
        # The factory has turned that of drains into a timetable with data intervals.
        if self.kind not in ("drain", "drain_group"):
            schedule = factory.schedules.get(self.kind, schedule)
        return DAG(self.dag_id, schedule=schedule, **arguments)

    def task(self, operator: type[T], task_id: str, **own: Any) -> T:
        """Create a task, given its operator and the factory's own arguments."""
        task = task_with(self.of_factory.tasks, self.kind, operator, task_id, own)
        if isinstance(task, FormOperator):
            task.form = form_of(self.kind)
        return task


def check_dag_arguments(given: Mapping[str, Any], accepted: Collection[str]) -> None:
    """Refuse arguments that aren't for users to set, or that this Airflow's DAG doesn't have.

    Args:
        given: The arguments that a user adds to a DAG.
        accepted: The names that this Airflow's DAG takes.

    Raises:
        ConfigError: If there is one; says what to do instead.
    """
    for name, value in given.items():
        if name in OWN:
            raise ConfigError(f"dag_kwargs: {name} is set by {OWN[name]}")
        if name == "catchup" and value:
            raise ConfigError(
                "dag_kwargs: catchup would run each past interval again, although a drain goes on "
                "where the last one ended; leave it out, and backfill past intervals"
            )
        if name not in accepted and name in SINCE:
            version, instead = SINCE[name]
            raise ConfigError(
                f"dag_kwargs: {name} needs Airflow {version} or later; before that, set {instead}"
            )
        if name not in accepted:
            known = set(accepted) - OWN.keys()
            raise unknown(name, value, known, "argument of Airflow's DAG, in dag_kwargs")


def task_with(
    added: Added, kind: str, operator: type[T], task_id: str, own: Mapping[str, Any]
) -> T:
    """Create a task with the users' arguments; their outlets come after the factory's.

    Raises:
        ConfigError: If they set an argument that is the factory's.
    """
    arguments = dict(own)
    for pattern, given in added.items():
        if not _is_task(pattern, kind, task_id):
            continue
        for name, value in given.items():
            if name == "outlets":
                arguments[name] = [*arguments.get(name, ()), *value]
            elif name in own and name.startswith("retr"):
                # A pattern of many tasks doesn't mean one that has its own number of tries.
                if pattern in (task_id, f"{kind}.{task_id}"):
                    arguments[name] = value
            elif name in own or name in ("task_id", "dag"):
                raise ConfigError(
                    f"task_kwargs: {name} of task {task_id} is set by kafka-drain; for another "
                    f"value, create a {operator.__name__} in a DAG of your own"
                )
            else:
                arguments[name] = value
    return operator(task_id=task_id, **arguments)


def _is_task(pattern: str, kind: str, task_id: str) -> bool:
    return fnmatchcase(task_id, pattern) or fnmatchcase(f"{kind}.{task_id}", pattern)

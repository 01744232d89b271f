"""What users may add to a factory's DAGs and tasks, and what is refused with words."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Asset

from kafka_drain.config.cut_over import CutOver
from kafka_drain.config.drill import Drill
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain_airflow import create_dags, create_group_dags
from kafka_drain_airflow.factory_arguments import check_dag_arguments
from kafka_drain_airflow.timetables import NIGHT_HOURS, night_schedule

ORDERS = Pipeline(name="orders", topics=["orders"], archive="/archives/orders", drill=Drill())
ITEMS = Pipeline(name="items", topics=["items"], archive="/archives/items")


def test_factory_dag_ids() -> None:
    """All DAGs get the ids of the pattern, and by default those of each release before."""
    named = create_dags(ORDERS, dag_id="team_a.{kind}.{name}")
    usual = create_dags(ORDERS)

    kinds = ("drain", "republish", "reprocess", "maintain", "drill")
    assert list(named) == [f"team_a.{kind}.orders" for kind in kinds]
    assert list(usual) == [f"{kind}_orders" for kind in kinds]
    group = create_group_dags("g", [ORDERS, ITEMS], dag_id="{name}.{kind}")
    assert [dag_id for dag_id in group if "drain" in dag_id] == [
        *("g.drain_group", "orders.drain", "items.drain")
    ]


@pytest.mark.parametrize("pattern", ["orders", "{name}", "{kind}_{nam}", "{}", "{kind", ""])
def test_factory_dag_id_refused(pattern: str) -> None:
    """A pattern that gives several DAGs one id, or isn't one, is refused with an example."""
    with pytest.raises(ConfigError, match=r"dag_id = .* is not acceptable; accepted: a text with"):
        create_dags(ORDERS, dag_id=pattern)


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [
        ("@hourly", "CronDataIntervalTimetable"),
        ("5 4 * * *", "CronDataIntervalTimetable"),
        (timedelta(minutes=10), "Delta"),
        (Asset("file:///elsewhere"), "Asset"),
        ([Asset("file:///elsewhere")], "Asset"),
        (None, "NullTimetable"),
    ],
)
def test_factory_schedules(schedule: Any, kind: str) -> None:
    """Drains have any schedule that Airflow takes; a cron expression gives them data intervals."""
    dags = create_dags(ORDERS, schedules={"drain": schedule, "drill": schedule})

    timetable = type(dags["drain_orders"].timetable).__name__
    # Airflow 2 calls assets datasets.
    assert timetable.replace("Dataset", "Asset").startswith(kind)
    is_cron = isinstance(schedule, str)
    republish = type(dags["republish_orders"].timetable).__name__
    assert republish == ("BackfillTimetable" if is_cron else "NullTimetable")
    group = create_group_dags("g", [ITEMS], schedules={"drain": schedule})
    found = type(group["drain_group_g"].timetable).__name__
    assert found.replace("Dataset", "Asset").startswith(kind)
    of_pipeline = type(group["drain_items"].timetable).__name__
    assert of_pipeline == ("BackfillTimetable" if is_cron else "NullTimetable")


def test_factory_maintenance_off() -> None:
    """Maintenance may have another schedule than the night's, or none."""
    dags = create_dags(ORDERS, schedules={"maintain": None})

    assert type(dags["maintain_orders"].timetable).__name__ == "NullTimetable"


def test_night_schedule() -> None:
    """A hundred pipelines are spread over the night; each has the same time at every parse."""
    schedules = [night_schedule(f"pipeline_{number}") for number in range(100)]
    minutes = sorted(
        int(hour) * 60 + int(minute) for minute, hour, *_ in (text.split() for text in schedules)
    )

    assert night_schedule("flights") == "18 4 * * *"
    assert 0 <= minutes[0] < minutes[-1] < NIGHT_HOURS * 60
    assert max(map(minutes.count, minutes)) <= 3
    by_hour = [sum(hour == minute // 60 for minute in minutes) for hour in range(NIGHT_HOURS)]
    assert min(by_hour) >= 8


def test_factory_dag_kwargs() -> None:
    """Arguments of Airflow's DAG reach the kinds that a pattern matches; the last one counts."""
    dags = create_dags(
        ORDERS,
        dag_kwargs={
            "*": {"max_active_tasks": 4, "max_active_runs": 3},
            "dr*": {"dagrun_timeout": timedelta(hours=1)},
            "drill": {"max_active_runs": 1},
        },
    )

    assert {dag.max_active_tasks for dag in dags.values()} == {4}
    runs = {dag_id: dag.max_active_runs for dag_id, dag in dags.items()}
    assert runs.pop("drill_orders") == 1
    assert {*runs.values()} == {3}
    timed = {dag_id for dag_id, dag in dags.items() if dag.dagrun_timeout}
    assert timed == {"drain_orders", "drill_orders"}


@pytest.mark.parametrize("kind", ["*", "republish", "drain"])
def test_factory_catchup(kind: str) -> None:
    """No DAG runs for each past interval: those without a schedule of their own would, too."""
    with pytest.raises(ConfigError, match="catchup would run each past interval again"):
        create_dags(ORDERS, dag_kwargs={kind: {"catchup": True}})
    assert not any(
        dag.catchup for dag in create_dags(ORDERS, dag_kwargs={kind: {"catchup": False}}).values()
    )


def test_factory_task_kwargs() -> None:
    """Arguments reach the tasks that a pattern matches; outlets are added to the factory's."""
    mart = Asset("file:///mart")
    dags = create_dags(
        ORDERS,
        default_args={"retries": 7},
        task_kwargs={
            "*": {"pool": "kafka"},
            "drain": {"execution_timeout": timedelta(hours=2), "pool": "spark"},
            "maintain.*": {"retries": 0},
            "val*": {"outlets": [mart]},
        },
    )
    tasks = {task.task_id: task for dag in dags.values() for task in dag.tasks}

    assert tasks["drain"].pool == "spark"
    assert {task.pool for name, task in tasks.items() if name != "drain"} == {"kafka"}
    assert (tasks["maintain"].retries, tasks["republish"].retries) == (0, 7)
    timed = [name for name, task in tasks.items() if task.execution_timeout]
    assert timed == ["drain"]
    assert [outlet.uri for outlet in tasks["validate"].outlets] == [
        *("file:///archives/orders", "file:///mart")
    ]


def test_factory_task_kwargs_of_group() -> None:
    """A group's validations have ids of their own, and patterns."""
    dags = create_group_dags(
        "g",
        [ORDERS, ITEMS],
        task_kwargs={"validate_items": {"pool": "a"}, "drain_group.drain": {"pool": "b"}},
    )

    pools = {task.task_id: task.pool for task in dags["drain_group_g"].tasks}
    assert pools == {
        "drain": "b",
        "done": "default_pool",
        "validate_orders": "default_pool",
        "validate_items": "a",
    }
    assert {task.pool for task in dags["drain_orders"].tasks} == {"default_pool"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"schedules": {"drains": None}}, "'drains' .* did you mean 'drain'"),
        ({"schedules": {"drain": "@hourl"}}, "did you mean '@hourly'"),
        ({"schedules": {"maintain": "0 3 * *"}}, "schedule = '0 3 \\* \\*' is not acceptable"),
        ({"schedules": {"drain": 3600}}, r"schedules\['drain'\] = 3600 is .* a timedelta"),
        ({"dag_kwargs": {"dagrun_timeout": {}}}, "'dagrun_timeout' .*kind of DAG in dag_kwargs"),
        ({"dag_kwargs": {"*": {"schedule": None}}}, "schedule is set by the factory's schedules"),
        ({"dag_kwargs": {"*": {"dag_id": "a"}}}, "dag_id is set by the factory's dag_id"),
        ({"dag_kwargs": {"drain": {"params": {}}}}, "params is set by kafka-drain"),
        (
            {"dag_kwargs": {"drain": {"dagrun_timout": 1}}},
            "'dagrun_timout' .*of Airflow's DAG, in dag_kwargs; did you mean 'dagrun_timeout'",
        ),
        ({"task_kwargs": {"drain": {"pol": "x"}}}, "'pol' .*of KafkaDrainOperator; .*'pool'"),
        ({"task_kwargs": {"valdiate": {}}}, "'valdiate' .*did you mean 'validate'"),
        ({"task_kwargs": {"drains.*": {}}}, "task in task_kwargs"),
        ({"task_kwargs": {"drain": {"pipeline": 1}}}, "pipeline of task drain is set by kafka"),
        ({"task_kwargs": {"drain": {"task_id": "a"}}}, "task_id of task drain is set by kafka"),
        ({"task_kwargs": {"republish": {"placement": "key"}}}, "placement of task republish"),
        ({"task_kwargs": {"drain": {"conf": {}}}}, "no argument 'conf': set spark_conf of the"),
        # Each of several is looked at.
        (
            {"task_kwargs": {"drain": {"pool": "a"}, "validat": {"pool": "b"}}},
            "'validat' .*task in task_kwargs",
        ),
        (
            {"task_kwargs": {"drain": {"pool": "a", "pipeline": 1}}},
            "pipeline of task drain is set by kafka",
        ),
        ({"dag_kwargs": {"drain": {}, "mantain": {}}}, "'mantain' .*kind of DAG in dag_kwargs"),
        (
            {"dag_kwargs": {"drain": {"is_paused_upon_creation": True, "params": {}}}},
            "params is set by kafka-drain",
        ),
        ({"schedules": {"drain": "@hourly", "mantain": None}}, "'mantain' .*in schedules"),
        ({"schedules": {"drain": "@hourly", "maintain": 5}}, "schedules.'maintain'. = 5 is"),
        ({"start_date": "2026-01-01"}, "start_date = '2026-01-01' is not acceptable"),
        ({"start_date": None}, "start_date = None is not .*: a datetime"),
        ({"schedules": "@daily"}, "schedules = '@daily' is .*a dict"),
        ({"dag_kwargs": {"drain": None}}, r"dag_kwargs\['drain'\] = None is .*a dict of arg"),
        ({"task_kwargs": {"drain": "spark"}}, r"task_kwargs\['drain'\] = 'spark' is"),
    ],
)
def test_factory_argument_refused(given: dict[str, Any], says: str) -> None:
    """What matches nothing or would be overwritten is refused, and says what to do instead."""
    where = rf"^pipeline 'orders' \(test_factory_arguments\.py, line \d+\): .*{says}"
    with pytest.raises(ConfigError, match=where):
        create_dags(ORDERS, **given)


@pytest.mark.parametrize(
    ("name", "accepted", "says"),
    [
        ("deadline", ["deadline"], ""),
        (
            "deadline",
            ["dagrun_timeout"],
            "needs Airflow 3.1 or later; before that, set dag",
        ),
        ("dagrun_timout", ["dagrun_timeout"], "did you mean 'dagrun_timeout'"),
        ("tags", ["tags"], "tags is set by the factory's tags"),
    ],
)
def test_check_dag_arguments(name: str, accepted: list[str], says: str) -> None:
    """Which arguments there are, Airflow says; of a newer one, since when, and what to do."""
    if says:
        with pytest.raises(ConfigError, match=says):
            check_dag_arguments({name: 1}, accepted)
    else:
        check_dag_arguments({name: 1}, accepted)


def test_factory_start_date_in_zone() -> None:
    """The schedule of a factory is in the start date's time zone, as the pipeline's own is."""
    zone = timezone(timedelta(hours=5))
    dags = create_dags(
        ORDERS, start_date=datetime(2026, 1, 1, tzinfo=zone), schedules={"drain": "@daily"}
    )

    assert dags["drain_orders"].timetable._timezone.utcoffset(None) == timedelta(hours=5)


def test_factory_task_kwargs_of_whole_group() -> None:
    """A pattern for all tasks means a group's last one too."""
    dags = create_group_dags(
        "g", [ORDERS, ITEMS], task_kwargs={"*": {"queue": "kafka"}, "done": {"pool": "a"}}
    )

    assert {task.queue for task in dags["drain_group_g"].tasks} == {"kafka"}
    assert dags["drain_group_g"].get_task("done").pool == "a"


def test_factory_task_kwargs_of_mirror() -> None:
    """The mirror keeps its many tries, unless it is named itself."""
    moved = ITEMS.model_copy(update={"cut_over": CutOver(kafka_conn_id="b")})

    def dag_of(**given: Any) -> Any:
        return create_dags(moved, **given)["cut_over_items"]

    dag = dag_of(task_kwargs={"*": {"retries": 5}}, default_args={"retry_exponential_backoff": 2})
    assert (dag.get_task("mirror").retries, dag.get_task("groups").retries) == (288, 5)
    assert not dag.get_task("mirror").retry_exponential_backoff
    named = dag_of(task_kwargs={"cut_over.mirror": {"retries": 7}})
    assert named.get_task("mirror").retries == 7


def test_factory_task_kwargs_of_own_retries() -> None:
    """A pattern of many leaves a task's own tries, its id doesn't."""
    moved = ITEMS.model_copy(update={"cut_over": CutOver(kafka_conn_id="b")})
    for pattern, retries in (("cut_over.*", 288), ("cut_over.mirror", 0)):
        dags = create_dags(moved, task_kwargs={pattern: {"retries": 0}})
        assert dags["cut_over_items"].get_task("mirror").retries == retries

"""What the factory passes on to tasks: outlets, callbacks, form fields, order and rules."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka_drain.config.cut_over import CutOver
from kafka_drain.config.drill import Drill
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.cut_over.steps import CutOverStep
from kafka_drain_airflow import Approval, create_dags, create_group_dags

ORDERS = Pipeline(
    name="orders",
    topics=["orders"],
    archive="/archives/orders",
    erase_conn_id="erasure",
    drill=Drill(sample="whole"),
    target_registry_conn_id="registry",
)
ITEMS = Pipeline(name="items", topics=["items"], archive="/archives/items")


def tell(_: Any) -> None:
    """A callback for alerts."""


def names(task: Any) -> list[str]:
    """Return a task's outlets: archives by URI, aliases by name."""
    return [getattr(outlet, "uri", None) or outlet.name for outlet in task.outlets]


@pytest.mark.parametrize("approval", [None, Approval()])
@pytest.mark.parametrize("kind", ["reprocess", "maintain", "erase"])
def test_create_dags_replaced(kind: str, approval: Approval | None) -> None:
    """Each task that replaces or deletes files tells whoever reads the archive."""
    dag = create_dags(ORDERS, approval=approval)[f"{kind}_orders"]

    assert names(dag.get_task(kind)) == ["orders_replaced"]


def test_create_dags_approval() -> None:
    """Each kind of which the approval speaks waits for it, and no other."""
    dags = create_dags(ORDERS, approval=Approval(kinds=("erase", "maintain")))

    waits = {
        kind: dags[f"{kind}_orders"].get_task(kind).needs_plan
        for kind in ("republish", "reprocess", "maintain", "erase")
    }
    assert waits == {"republish": False, "reprocess": False, "maintain": True, "erase": True}


START = datetime(2026, 2, 3, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("is_group", "given", "retries"),
    [(False, {}, 2), (True, {}, 2), (True, {"retries": 5}, 5)],
)
def test_create_dags_common(is_group: bool, given: dict[str, Any], retries: int) -> None:
    """Every DAG has one run at a time, none of the past, and what the user sets for all."""
    more: dict[str, Any] = {"start_date": START, "default_args": given, "tags": ["mine"]}
    dags = create_group_dags("g", [ORDERS], **more) if is_group else create_dags(ORDERS, **more)

    for dag_id, dag in dags.items():
        kind = dag_id.removesuffix("_g" if dag_id.endswith("_g") else "_orders")
        assert (dag.max_active_runs, dag.catchup) == (1, False), dag_id
        assert (dag.start_date, dag.timezone.name) == (START, "UTC"), dag_id
        # Fields of forms aren't all text; only the group's drain has no form.
        has_form = kind != "drain_group"
        assert (dag.render_template_as_native_obj, bool(dag.params)) == (has_form, has_form), dag_id
        assert dag.doc_md, dag_id
        named = {"g"} if kind == "drain_group" else {"orders", *(["g"] if is_group else [])}
        assert set(dag.tags) == {"kafka-drain", f"kafka-drain:{kind}", "mine", *named}
        for task in dag.tasks:
            assert (task.retries, task.retry_delay) == (retries, timedelta(minutes=1)), task


def test_create_dags_drain() -> None:
    """Each task has its own pipeline and the form's fields; the validation has the callback."""
    dag = create_dags(ORDERS, on_alert_callback=tell)["drain_orders"]
    check, drain, validate = (dag.get_task(name) for name in ("preflight", "drain", "validate"))

    assert validate.upstream_task_ids == {"drain"}
    assert drain.upstream_task_ids == {"preflight"}
    assert validate.on_alert_callback == [tell]
    assert names(validate) == ["file:///archives/orders"]
    for task in (check, drain, validate):
        assert task.pipeline == ORDERS
        assert "acknowledge_expired" in str(task.acknowledge_expired)
        assert "window_start" in str(task.window_start)
    assert "force" in str(drain.force)
    assert "new_archive" in str(drain.new_archive)


def test_create_dags_schedules() -> None:
    """What sends, replaces or erases never starts alone, but by a backfill."""
    dags = create_dags(ORDERS)

    by_hand = ("reprocess", "erase", "restore_schemas")
    found = {kind: type(dags[f"{kind}_orders"].timetable).__name__ for kind in by_hand}
    assert found == dict.fromkeys(by_hand, "NullTimetable")
    assert type(dags["republish_orders"].timetable).__name__ == "BackfillTimetable"


def test_create_dags_decoding_checked() -> None:
    """A target's registry checks what was sent; without one there is nothing to check with."""
    dag = create_dags(ORDERS)["republish_orders"]

    assert dag.get_task("check_decoding").upstream_task_ids == {"republish"}
    assert not create_dags(ITEMS)["republish_items"].has_task("check_decoding")


def test_create_dags_restore_schemas() -> None:
    """Schemas are restored with the form's fields."""
    task = create_dags(ORDERS)["restore_schemas_orders"].get_task("restore_schemas")

    assert task.pipeline == ORDERS
    for name in ("apply", "schema_map", "ids"):
        assert name in str(getattr(task, name))


def test_create_dags_cut_over() -> None:
    """The steps of a cut-over have its pipeline; its validation has the callback."""
    cut_over = CutOver(kafka_conn_id="b")
    moved = ITEMS.model_copy(update={"cut_over": cut_over})

    dag = create_dags(moved, on_alert_callback=tell)["cut_over_items"]

    steps = [task for task in dag.tasks if hasattr(task, "step")]
    assert {task.step for task in steps} >= {step.value for step in CutOverStep}
    assert all(task.pipeline == moved for task in dag.tasks if hasattr(task, "pipeline"))
    assert dag.get_task("validate").on_alert_callback == [tell]
    assert names(dag.get_task("validate")) == ["file:///archives/items"]
    assert "cut_over_items" not in create_dags(ITEMS)


def test_create_dags_drill() -> None:
    """The newest result is checked after a failure too, which fails the run all the same."""
    dag = create_dags(ORDERS)["drill_orders"]

    assert dag.get_task("drill").downstream_task_ids == {"check", "done"}
    assert dag.get_task("done").upstream_task_ids == {"drill", "check"}
    assert dag.get_task("check").trigger_rule == "all_done"
    assert dag.params["sample"] == "whole"


def test_create_group_dags_tasks() -> None:
    """Each pipeline is validated, with the callback; pipelines' own DAGs have all that they had."""
    dags = create_group_dags("g", [ORDERS, ITEMS], on_alert_callback=tell, approval=Approval())
    group = dags["drain_group_g"]

    assert group.get_task("drain").pipelines == [ORDERS, ITEMS]
    assert group.get_task("done").upstream_task_ids == {
        *("drain", "validate_orders", "validate_items")
    }
    for pipeline in (ORDERS, ITEMS):
        for task in (
            group.get_task(f"validate_{pipeline.name}"),
            dags[f"drain_{pipeline.name}"].get_task("validate"),
        ):
            assert task.pipeline == pipeline
            assert task.on_alert_callback == [tell]
            assert names(task) == [f"file:///archives/{pipeline.name}"]
        assert dags[f"republish_{pipeline.name}"].get_task("republish").needs_plan
        # A backfill has the intervals of the pipeline's schedule.
        assert "0 * * * *" in dags[f"drain_{pipeline.name}"].timetable.description
        tags = dags[f"maintain_{pipeline.name}"].tags
        assert {pipeline.name, "g"} <= set(tags)

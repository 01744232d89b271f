"""What the factory passes on to tasks: outlets, callbacks, form fields, order and rules."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.config.drill import Drill
from kafka_drain.config.pipeline import Pipeline
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
        tags = dags[f"maintain_{pipeline.name}"].tags
        assert {pipeline.name, "g"} <= set(tags)

"""Create the DAG of a pipeline's cut-over: a checklist that people approve step by step."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from airflow.providers.common.compat.sdk import DAG, BaseOperator

from kafka_drain.config.cut_over import CutOver
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.cut_over.request import mirror_request
from kafka_drain.cut_over.steps import BACK, CutOverStep, way_back
from kafka_drain_airflow.factory_arguments import DagArguments
from kafka_drain_airflow.observability.archive_events import archive_asset
from kafka_drain_airflow.operators.approval import can_approve
from kafka_drain_airflow.operators.cut_over import CutOverOperator, approval
from kafka_drain_airflow.operators.drain import KafkaDrainOperator
from kafka_drain_airflow.operators.preflight import PreflightOperator
from kafka_drain_airflow.operators.validate import ValidateManifestOperator

#: Number and delay of the mirror's attempts until little is missing in the target: a day.
RETRIES, RETRY_DELAY = 288, timedelta(minutes=5)


def cut_over_dag(
    pipeline: Pipeline, settings: CutOver, of: DagArguments, on_alert_callback: Any
) -> DAG:
    """Create `cut_over_<name>`.

    Args:
        of: The users' arguments for the DAG and its tasks.
        on_alert_callback: See `create_dags`.

    Raises:
        ConfigError: If an option of the mirror isn't accepted.
    """
    mirror_request(settings.run_name, settings.mirror)
    with of.dag(
        schedule=None,
        description=f"Move the clients of {pipeline.archive} to another cluster, step by step",
        doc_md=_text(pipeline, settings),
    ) as dag:
        steps = {step: _step(of, pipeline, step) for step in CutOverStep}
        drain: list[BaseOperator] = [
            of.task(PreflightOperator, "preflight", pipeline=pipeline),
            of.task(KafkaDrainOperator, "drain", pipeline=pipeline),
            of.task(
                ValidateManifestOperator,
                "validate",
                pipeline=pipeline,
                outlets=[archive_asset(pipeline)],
                on_alert_callback=on_alert_callback,
            ),
        ]
        producers = _ask(
            CutOverStep.MIRROR, CutOverStep.PRODUCERS_OFF, "turn off all producers of its topics"
        )
        consumers = _ask(
            CutOverStep.LAST_MIRROR, CutOverStep.GROUPS, "stop the consumers of its groups"
        )
        hand_over = _ask(
            CutOverStep.VERIFY, CutOverStep.HAND_OVER, "point all clients at the target"
        )
        tasks = [
            *(steps[CutOverStep.MIRROR], producers, steps[CutOverStep.PRODUCERS_OFF], *drain),
            *(
                steps[CutOverStep.LAST_DRAIN],
                steps[CutOverStep.LAST_MIRROR],
                consumers,
                steps[CutOverStep.GROUPS],
            ),
            *(steps[CutOverStep.VERIFY], hand_over, steps[CutOverStep.HAND_OVER]),
        ]
        for before, after in pairwise(tasks):
            before >> after
        if can_approve():
            # At most one of the approvals leads here; those after it are skipped then.
            back = of.task(
                CutOverOperator,
                BACK,
                pipeline=pipeline,
                step=BACK,
                trigger_rule="none_failed_min_one_success",
            )
            back.asked_by = [each.task_id for each in (producers, consumers, hand_over)]
            [producers, consumers, hand_over] >> back
    return dag


def _step(of: DagArguments, pipeline: Pipeline, step: CutOverStep) -> BaseOperator:
    more: dict[str, Any] = {}
    if step is CutOverStep.MIRROR:
        # The next drain makes the lag smaller.
        more = {
            "retries": RETRIES,
            "retry_delay": RETRY_DELAY,
            "retry_exponential_backoff": False,
        }
    return of.task(CutOverOperator, step.value, pipeline=pipeline, step=step.value, **more)


def _ask(after: CutOverStep, then: CutOverStep, do: str) -> BaseOperator:
    """Ask whether to go on after a step; whoever answers sees what it saw, and the way back."""
    seen = f'{{{{ (ti.xcom_pull(task_ids="{after.value}") or {{}}).get("saw", "") }}}}'
    back = "\n".join(f"- {line}" for line in way_back(after))
    return approval(
        f"approve_{then.value}",
        subject=f"{{{{ dag.dag_id }}}}: {do}, then continue",
        body=f"{seen}\n\nNow {do}. Step `{then.value}` checks it.\n\nTo go back:\n\n{back}\n",
        then=then.value,
        back=BACK,
    )


def _text(pipeline: Pipeline, settings: CutOver) -> str:
    going_back = (
        "answer *Go back* at an approval: the task `back` restores the groups' offsets in the "
        "target"
        if can_approve()
        else "run `kafka-drain cut-over … --back --apply`, which restores the groups' offsets in "
        "the target"
    )
    return f"""
### Cut over {pipeline.name}

Moves the clients of `{pipeline.archive}` to the cluster of connection `{settings.kafka_conn_id}`.
Triggered by hand. Each task logs what it saw, and keeps it in the archive's `cut-over/`.

| task | passes if |
| --- | --- |
| `mirror` | what is sealed was sent, and the target lacks at most {settings.max_lag:,} offsets; \
tried every 5 minutes for a day, while drains go on |
| `approve_producers_off` | a person has turned off the producers |
| `producers_off` | the source's ends stay the same for {settings.quiet_seconds:g} seconds |
| `preflight`, `drain`, `validate` | the last drain is proven |
| `last_drain` | all that the source holds is sealed |
| `last_mirror` | all of it was sent, read back and compared |
| `approve_groups` | a person has stopped the consumers |
| `groups` | consumer groups have their offsets in the target |
| `verify` | the target is what the mirror and the translation have made of it |
| `approve_hand_over` | a person decides |
| `hand_over` | all of it still holds: producers and consumers may start on the target |

From `producers_off` on, each step looks at the source again: a producer that came back stops it.
Then turn it off, and clear `producers_off` with the tasks after it. Clearing any task is safe.

**Back is possible until the hand-over**: {going_back}. Nothing is changed at the source. Turn the
producers on again. What was sent stays in the target, and the next run continues there.
"""

"""Create the DAG that starts drains before their schedule says so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from kafka_drain.config.pipeline import Pipeline
from kafka_drain_airflow.dag_factory import DEFAULT_ARGS, START_DATE
from kafka_drain_airflow.dag_tags import TAG, own_tags
from kafka_drain_airflow.declared import declare_watch, of_pipelines
from kafka_drain_airflow.operators.watch import WatchOperator, check_watched, check_watching
from kafka_drain_airflow.run_conf import Form


def create_watch_dag(
    pipelines: Sequence[Pipeline],
    *,
    dag_id: str = "watch_pipelines",
    again_minutes: float = 15,
    poll_seconds: float = 60,
    deferrable: bool = True,
    drain_dag_id: str = "drain_{name}",
    start_date: datetime = START_DATE,
    default_args: dict[str, Any] | None = None,
    tags: Sequence[str] = (),
) -> DAG:
    """Create the DAG that starts `drain_<name>` when a limit in a pipeline's `watch` is reached.

    One deferred task watches all pipelines. The DAG is always running: a run ends when it has
    started drains, at the latest after an hour, and the next one begins.

    Args:
        pipelines: The pipelines, each with `watch`.
        dag_id: The DAG's id.
        again_minutes: Minutes in which a pipeline's drain is started at most once.
        poll_seconds: Seconds between two questions to Kafka.
        deferrable: False to wait on a worker, if no triggerer runs.
        drain_dag_id: Pattern of the ids of the DAGs that drain, such as `team_a.drain.{name}`, if
            `create_dags` has another one; that one, with `{kind}`, is accepted too.
        start_date: When watching starts.
        default_args: Arguments for all tasks; they override the defaults (two retries, one minute
            apart).
        tags: Tags in addition to `kafka-drain`.

    Raises:
        ConfigError: If there are no pipelines, one has no `watch`, an argument isn't acceptable, or
            the DAG file has created a DAG of this id before.
    """
    with of_pipelines("the watch of pipelines", pipelines):
        check_watched(pipelines)
        check_watching(pipelines, again_minutes, poll_seconds, drain_dag_id)
    declare_watch(dag_id)
    rows = "\n".join(
        f"| `{p.name}` | {_limit(p.watch.lag)} | {_limit(p.watch.hours_to_expiry)} |"
        for p in pipelines
        if p.watch
    )
    with DAG(
        dag_id=dag_id,
        schedule="@continuous",
        start_date=start_date,
        catchup=False,
        max_active_runs=1,
        default_args=DEFAULT_ARGS | (default_args or {}),
        tags=[TAG, *own_tags(tags)],
        description=f"Start the drains of {len(pipelines)} pipelines when their limits are reached",
        doc_md=f"""
### Watch pipelines

Starts `drain_<name>`, beside its schedule, when a pipeline reaches one of its limits. It waits in
the triggerer, and asks Kafka every {poll_seconds:g} s.

| pipeline | lag (offsets) | hours to expiry |
| --- | --- | --- |
{rows}

| task | what it does |
| --- | --- |
| `watch` | waits until drains are due; logs for each pipeline why its drain is due, or isn't |
| `drain` | triggers each of them; the reason is in its run's conf and in its log |

A drain isn't started while one that was started here waits or runs, or anybody holds the archive's
lease, and at most once in {again_minutes:g} minutes.
""",
    ) as dag:
        watch = WatchOperator(
            task_id="watch",
            pipelines=pipelines,
            again_minutes=again_minutes,
            poll_seconds=poll_seconds,
            deferrable=deferrable,
            drain_dag_id=drain_dag_id,
        )
        watch.form = Form("watch")
        _trigger_operator().partial(task_id="drain", skip_when_already_exists=True).expand_kwargs(
            watch.output
        )
    return dag


def _limit(limit: float | None) -> str:
    return "" if limit is None else f"{limit:,}"


def _trigger_operator() -> Any:
    """Return Airflow's own operator; only DAG files that watch import it."""
    try:
        from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
    except ImportError:  # Airflow 2
        from airflow.operators.trigger_dagrun import (  # type: ignore[no-redef]
            TriggerDagRunOperator,
        )
    return TriggerDagRunOperator

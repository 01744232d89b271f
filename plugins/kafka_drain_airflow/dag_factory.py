"""The DAGs of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param

from kafka_drain.config.groups import check_group
from kafka_drain.config.pipeline import Pipeline
from kafka_drain_airflow.forms.republish import apply_param, republish_params, time_param
from kafka_drain_airflow.observability.archive_events import archive_asset, replaced_alias
from kafka_drain_airflow.operators.drain import KafkaDrainOperator
from kafka_drain_airflow.operators.drain_group import DoneOperator, KafkaDrainGroupOperator
from kafka_drain_airflow.operators.maintain import MaintainOperator
from kafka_drain_airflow.operators.preflight import PreflightOperator
from kafka_drain_airflow.operators.reprocess import ReprocessOperator
from kafka_drain_airflow.operators.republish import RepublishToKafkaOperator
from kafka_drain_airflow.operators.validate import AlertCallback, ValidateManifestOperator
from kafka_drain_airflow.timetables import backfill_schedule, drain_schedule

__all__ = ["create_dags", "create_group_dags"]

START_DATE = datetime(2026, 1, 1, tzinfo=timezone.utc)
#: Forms had `dry_run` in place of `apply`, and `--conf` may still say it: until 0.4.
DRY_RUN = {"is_dry_run": "{{ params.get('dry_run') }}"}
DEFAULT_ARGS = {"owner": "kafka-drain", "retries": 2, "retry_delay": timedelta(minutes=1)}


def create_dags(
    pipeline: Pipeline,
    *,
    start_date: datetime = START_DATE,
    default_args: dict[str, Any] | None = None,
    tags: Sequence[str] = (),
    on_alert_callback: AlertCallback | Sequence[AlertCallback] = (),
) -> dict[str, DAG]:
    """Make the DAGs of a pipeline; Airflow finds them in the DAG file that calls this.

    Args:
        pipeline: The pipeline.
        start_date: From when on drains are scheduled; schedules are of its time zone.
        default_args: Arguments for all tasks, over the defaults (two retries, a minute apart).
        tags: Tags beside `kafka-drain` and the pipeline's name.
        on_alert_callback: Called when a validation finds what somebody should be told of: a
            notifier or a function, or several, as Airflow takes them for failed tasks.

    Returns:
        The DAGs by id: `drain_<name>`, `republish_<name>`, `reprocess_<name>`, `maintain_<name>`.
    """
    common = _common(start_date, default_args, [pipeline.name, *tags])
    schedule = drain_schedule(pipeline.schedule, start_date)
    return _pipeline_dags(pipeline, common, schedule, on_alert_callback)


def create_group_dags(
    name: str,
    pipelines: Sequence[Pipeline],
    *,
    start_date: datetime = START_DATE,
    default_args: dict[str, Any] | None = None,
    tags: Sequence[str] = (),
    on_alert_callback: AlertCallback | Sequence[AlertCallback] = (),
) -> dict[str, DAG]:
    """Make the DAGs of pipelines that are drained together, by one Spark application.

    Spark starts once for all of them. Each pipeline keeps its own DAGs; its `drain_<name>` is left
    to backfills and to people, and scheduled drains are runs of `drain_group_<name>`.

    Args:
        name: The group's name.
        pipelines: The pipelines, in the order in which they are drained.
        start_date: From when on drains are scheduled; schedules are of its time zone.
        default_args: Arguments for all tasks, over the defaults (two retries, a minute apart).
        tags: Tags beside `kafka-drain`, the group's name and the pipeline's.
        on_alert_callback: As of `create_dags`, for each of them.

    Returns:
        The DAGs by id: `drain_group_<name>`, and of each pipeline those that `create_dags` makes.

    Raises:
        ConfigError: When the pipelines differ in schedule or in what Spark is started with.
    """
    check_group(pipelines)
    group = _common(start_date, default_args, [name, *tags])
    dag = _drain_group_dag(name, pipelines, group, on_alert_callback)
    dags = {dag.dag_id: dag}
    for pipeline in pipelines:
        common = _common(start_date, default_args, [pipeline.name, name, *tags])
        schedule = backfill_schedule(pipeline.schedule, start_date)
        dags |= _pipeline_dags(pipeline, common, schedule, on_alert_callback)
    return dags


def _common(
    start_date: datetime, default_args: dict[str, Any] | None, tags: Sequence[str]
) -> dict[str, Any]:
    return {
        "start_date": start_date,
        "catchup": False,
        "max_active_runs": 1,
        "default_args": DEFAULT_ARGS | (default_args or {}),
        "tags": ["kafka-drain", *tags],
    }


def _pipeline_dags(
    pipeline: Pipeline, common: dict[str, Any], schedule_of_drains: Any, on_alert_callback: Any
) -> dict[str, DAG]:
    dags = [
        _drain_dag(pipeline, common, schedule_of_drains, on_alert_callback),
        _republish_dag(pipeline, common),
        _reprocess_dag(pipeline, common),
        _maintain_dag(pipeline, common),
    ]
    return {dag.dag_id: dag for dag in dags}


def _source(pipeline: Pipeline) -> str:
    if pipeline.topic_pattern:
        return f"the topics that match `{pipeline.topic_pattern}`"
    return ", ".join(f"`{topic}`" for topic in pipeline.topics or pipeline.assign or [])


def _drain_dag(
    pipeline: Pipeline, common: dict[str, Any], schedule: Any, on_alert_callback: Any
) -> DAG:
    with DAG(
        dag_id=f"drain_{pipeline.name}",
        schedule=schedule,
        description=f"Drain Kafka to {pipeline.archive} and prove that every offset arrived",
        render_template_as_native_obj=True,
        params={
            "log_level": Param(
                default=None,
                type=["null", "string"],
                examples=["INFO", "DEBUG", "TRACE"],
                title="Log level",
                description="Level of Spark's Kafka and sink classes for this run. Empty: the "
                "pipeline's, which is WARN unless it says otherwise.",
            ),
            "acknowledge_expired": Param(
                default=None,
                type=["null", "array"],
                items={"type": "string"},
                title="Acknowledge expired",
                description="Offsets that Kafka deleted before they were drained, one range a "
                "line, such as flights:0:100-200 (the end is not part of it). They are skipped, "
                "and kept in the receipt. Empty: a loss stops the run.",
            ),
            "mode": Param(
                default="drain",
                enum=["drain", "window"],
                title="Mode",
                description="drain: goes on where the last drain ended. window: drains what is "
                "missing of a data interval, as the runs of a backfill always do.",
                section="Window",
            ),
            "window_start": time_param(
                "Window start", "Empty: the run's own data interval.", "Window"
            ),
            "window_end": time_param("Window end", "The window ends just before it.", "Window"),
            "force": Param(
                default=False,
                type="boolean",
                title="Force",
                description="Drain the window's own files again and replace them. Refused where "
                "Kafka no longer holds all of them.",
                section="Window",
            ),
        },
        doc_md=f"""
### Drain {pipeline.name}

Drains {_source(pipeline)} to `{pipeline.archive}` ({pipeline.format}, {pipeline.compression}).
Each run takes what Kafka holds when it starts and goes on where the last one ended; a run with
nothing new succeeds and writes nothing.

| task | what it does |
| --- | --- |
| `preflight` | checks Kafka, archive and checkpoint against each other; changes nothing |
| `drain` | runs one Spark query to files; its log shows offsets done of planned, rate, time left |
| `validate` | proves that every offset is in exactly one file, seals receipts, writes a report |

A backfill's runs (`airflow dags backfill`) drain their data interval instead: what no receipt
covers of it, once, however often it is run.

A failed task says what was seen and what to do. Clearing any task is safe.
""",
        **common,
    ) as dag:
        window: dict[str, Any] = {
            "mode": "{{ params.mode }}",
            "window_start": "{{ params.window_start }}",
            "window_end": "{{ params.window_end }}",
            "acknowledge_expired": "{{ params.acknowledge_expired }}",
        }
        force = "{{ params.force }}"
        check = PreflightOperator(task_id="preflight", pipeline=pipeline, force=force, **window)
        drain = KafkaDrainOperator(
            task_id="drain",
            pipeline=pipeline,
            log_level="{{ params.log_level }}",
            force=force,
            **window,
        )
        validate = ValidateManifestOperator(
            task_id="validate",
            pipeline=pipeline,
            outlets=[archive_asset(pipeline)],
            on_alert_callback=on_alert_callback,
            **window,
        )
        check >> drain >> validate
    return dag


def _drain_group_dag(
    name: str, pipelines: Sequence[Pipeline], common: dict[str, Any], on_alert_callback: Any
) -> DAG:
    rows = "\n".join(f"| `{p.name}` | {_source(p)} | `{p.archive}` |" for p in pipelines)
    with DAG(
        dag_id=f"drain_group_{name}",
        schedule=drain_schedule(pipelines[0].schedule, common["start_date"]),
        description=f"Drain {len(pipelines)} pipelines with one Spark application, and prove each",
        doc_md=f"""
### Drain group {name}

Spark starts once and drains one pipeline after the other; each is then validated as in its own DAG.

| pipeline | drains | to |
| --- | --- | --- |
{rows}

What fails in one pipeline stops no other. The task `drain` fails then, and with it the run; a retry
only drains what is missing. Forms, backfills and windows are those of the pipelines' own DAGs.
""",
        **common,
    ) as dag:
        drain = KafkaDrainGroupOperator(task_id="drain", pipelines=pipelines)
        # A run is as good as its last tasks: without this one, a failed drain would be forgotten
        # over validations that succeeded.
        done = DoneOperator(task_id="done")
        drain >> done
        for pipeline in pipelines:
            validate = ValidateManifestOperator(
                task_id=f"validate_{pipeline.name}",
                pipeline=pipeline,
                outlets=[archive_asset(pipeline)],
                on_alert_callback=on_alert_callback,
                trigger_rule="all_done",
            )
            drain >> validate >> done
    return dag


def _republish_dag(pipeline: Pipeline, common: dict[str, Any]) -> DAG:
    params = republish_params(pipeline)
    with DAG(
        dag_id=f"republish_{pipeline.name}",
        schedule=backfill_schedule(pipeline.schedule, common["start_date"]),
        description=f"Send the records in {pipeline.archive} back to Kafka, exactly once",
        render_template_as_native_obj=True,
        params=params,
        doc_md=f"""
### Republish {pipeline.name}

Sends the sealed records in `{pipeline.archive}` to Kafka: key, value, headers, timestamp and
partition as they were, in offset order within each partition. Then it reads them back and compares.
Without *Apply* a run is a dry run: its log shows the plan, and nothing is sent.

Each record counts once, whatever happens meanwhile: a retry or a cleared task goes on where Kafka
says that the one before ended, and a run that has its receipt sends nothing. That holds for
consumers with `isolation.level=read_committed`.

A backfill's runs (`airflow dags backfill`) send the records whose timestamps lie in their data
interval.
""",
        **common,
    ) as dag:
        fields = {name: f"{{{{ params.{name} }}}}" for name in params} | DRY_RUN
        # As a literal in quotes: native rendering would make a number of a topic named 2024.
        for name in ("target_topic", "run_name"):
            fields[name] = f"{{{{ params.{name} | pprint }}}}"
        RepublishToKafkaOperator(task_id="republish", pipeline=pipeline, **fields)
    return dag


def _reprocess_dag(pipeline: Pipeline, common: dict[str, Any]) -> DAG:
    start = "One of the three says where to start; none goes on with a run that was killed."
    params = {
        "apply": apply_param(
            "On: drain again and replace. Off: only log what would be drained and removed."
        ),
        "from_batch": Param(
            default=None,
            type=["null", "string"],
            title="From batch",
            description="A batch id of the newest generation, such as 7, or generation and batch, "
            f"such as 1:7. {start}",
            section="Where to start",
        ),
        "from_time": time_param(
            "From time",
            "The batch with the first record of this timestamp or a later one.",
            "Where to start",
        ),
        "from_offsets": Param(
            default=None,
            type=["null", "array"],
            items={"type": "string"},
            title="From offsets",
            description="The batch with the first of these offsets, one a line: "
            "topic:partition:offset.",
            section="Where to start",
        ),
        "abandon": Param(
            default=False,
            type="boolean",
            title="Abandon",
            description="On: end a reprocess that was begun and can't end. What it hasn't sealed "
            "goes, archived files stay. Say no start then.",
        ),
    }
    with DAG(
        dag_id=f"reprocess_{pipeline.name}",
        schedule=None,
        description=f"Drain what {pipeline.archive} holds again, and replace the old files",
        render_template_as_native_obj=True,
        params=params,
        doc_md=f"""
### Reprocess {pipeline.name}

Drains what `{pipeline.archive}` holds from a batch, a time or an offset on again, as the pipeline
writes now ({pipeline.format}), and puts the new files in the place of the old ones.
Without *Apply* a run is a dry run: its log shows offsets, files and bytes.

It is refused where Kafka no longer holds all of it: the files are the only copy then. Old files go
last, when receipts prove that the new ones hold every record of theirs. Scheduled drains go on
meanwhile. A run that was killed goes on when it is cleared, or when a new run names no start.
""",
        **common,
    ) as dag:
        fields = {name: f"{{{{ params.{name} }}}}" for name in params} | DRY_RUN
        ReprocessOperator(
            task_id="reprocess", pipeline=pipeline, outlets=[replaced_alias(pipeline)], **fields
        )
    return dag


def _maintain_dag(pipeline: Pipeline, common: dict[str, Any]) -> DAG:
    retention = (
        f"files whose newest record is older than {pipeline.retention_days} days are deleted, and "
        "that is sealed"
        if pipeline.retention_days is not None
        else "nothing is deleted by age: `retention_days` isn't set"
    )
    with DAG(
        dag_id=f"maintain_{pipeline.name}",
        schedule="@daily",
        description=f"Close generations of {pipeline.archive}, and put their small files together",
        render_template_as_native_obj=True,
        params={
            "apply": apply_param(
                "On: do it. Off: only log what would be done. Scheduled runs do it in any case."
            ),
        },
        doc_md=f"""
### Maintain {pipeline.name}

Keeps `{pipeline.archive}` in order, once a day. A run that is started by hand only shows what it
would do, unless *Apply* is on.

1. Closes the open generation when its manifest has more than {pipeline.max_manifest_lines:,} lines
   or it is {pipeline.max_generation_days} days old, between two drains.
2. Retention: {retention}.
3. Rewrites small files of closed generations and of windows as files of about
   {pipeline.target_file_bytes >> 20:,} MiB, sorted by offset. Every offset, count and fingerprint
   is compared with the receipts before the small files go.

The open generation's files are never touched. A run can be killed at any point; the next one goes
on. Its log ends with files and bytes before and after.
""",
        **common,
    ) as dag:
        MaintainOperator(
            task_id="maintain",
            pipeline=pipeline,
            outlets=[replaced_alias(pipeline)],
            apply="{{ params.apply or dag_run.run_type != 'manual' }}",
            **DRY_RUN,
        )
    return dag

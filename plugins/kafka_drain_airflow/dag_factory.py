"""Create the DAGs of a pipeline or of a group of pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from kafka_drain.config.checks import refuse
from kafka_drain.config.drill import Drill
from kafka_drain.config.groups import check_group
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.options import DrainOptions, PreflightOptions, ValidateOptions
from kafka_drain.drills.options import DrillOptions
from kafka_drain.republish.planning.request import OWN_TOPIC
from kafka_drain.windows.reprocess.options import STARTS
from kafka_drain_airflow.cut_over_dag import cut_over_dag
from kafka_drain_airflow.dag_tags import own_tags
from kafka_drain_airflow.declared import declare, declare_group, of_pipeline, of_pipelines
from kafka_drain_airflow.factory_arguments import FactoryArguments
from kafka_drain_airflow.forms import field, fields_of, params_of, topics_of
from kafka_drain_airflow.observability.archive_events import archive_asset, replaced_alias
from kafka_drain_airflow.operators.approval import Approval
from kafka_drain_airflow.operators.approved_tasks import way_of
from kafka_drain_airflow.operators.drain import KafkaDrainOperator
from kafka_drain_airflow.operators.drain_group import DoneOperator, KafkaDrainGroupOperator
from kafka_drain_airflow.operators.drill import DrillCheckOperator, DrillOperator
from kafka_drain_airflow.operators.erase import EraseOperator
from kafka_drain_airflow.operators.maintain import MaintainOperator
from kafka_drain_airflow.operators.preflight import PreflightOperator
from kafka_drain_airflow.operators.reprocess import ReprocessOperator
from kafka_drain_airflow.operators.republish import RepublishToKafkaOperator
from kafka_drain_airflow.operators.schemas import CheckDecodingOperator, RestoreSchemasOperator
from kafka_drain_airflow.operators.validate import AlertCallback, ValidateManifestOperator
from kafka_drain_airflow.timetables import backfill_schedule, drain_schedule, night_schedule

START_DATE = datetime(2026, 1, 1, tzinfo=timezone.utc)
DEFAULT_ARGS = {"owner": "kafka-drain", "retries": 2, "retry_delay": timedelta(minutes=1)}


def create_dags(
    pipeline: Pipeline,
    *,
    start_date: datetime = START_DATE,
    default_args: dict[str, Any] | None = None,
    tags: Sequence[str] = (),
    on_alert_callback: AlertCallback | Sequence[AlertCallback] = (),
    approval: Approval | None = None,
    dag_id: str = "{kind}_{name}",
    schedules: Mapping[str, Any] | None = None,
    dag_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    task_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, DAG]:
    """Create the DAGs of a pipeline; Airflow finds them in the DAG file that calls this.

    Args:
        start_date: When scheduled drains start; schedules are in its time zone.
        default_args: Arguments for all tasks; they override the defaults (two retries, one minute
            apart).
        tags: Tags in addition to `kafka-drain`, `kafka-drain:<kind>` and the pipeline's name.
        on_alert_callback: Called when a validation finds something that needs attention: one or
            more notifiers or functions, in the form Airflow accepts for failed tasks.
        approval: The DAGs that need approval; None for none.
        dag_id: Pattern of the DAGs' ids, such as `team_a.{kind}.{name}`.
        schedules: Schedules by kind of DAG (drain, republish, reprocess, maintain, erase, drill,
            cut_over, restore_schemas), as Airflow takes them: text, timedelta, timetable, assets or
            None. By default, drains run by the pipeline's schedule, and maintenance once a night,
            at a time that depends on the pipeline's name.
        dag_kwargs: Arguments for Airflow's DAG, by patterns of kinds, such as
            `{"drain": {"dagrun_timeout": timedelta(hours=1)}, "*": {"max_active_tasks": 4}}`.
        task_kwargs: Arguments for tasks, by patterns of their ids, such as
            `{"drain": {"pool": "spark"}, "maintain.*": {"retries": 5}}`; a pattern with a dot
            has the DAG's kind before it. Of several that match, the last one counts; `retries` of
            a cut-over's `mirror` only by its own id. Approvals have their own options.

    Returns:
        The DAGs by id: `drain_<name>`, `republish_<name>`, `reprocess_<name>`, `maintain_<name>`,
        `erase_<name>` if the pipeline names a connection for it, `drill_<name>` if it declares
        drills, `cut_over_<name>` if it declares a cut-over, and `restore_schemas_<name>` if it
        names a target's Schema Registry.

    Raises:
        ConfigError: If the DAG file has created DAGs of these ids, or for the same archive, before;
            if a pattern matches nothing, or an argument isn't to be set. Names the pipeline and the
            line of the DAG file.
    """
    with of_pipeline(pipeline):
        common = _common(start_date, default_args, [pipeline.name], tags)
        added = FactoryArguments(
            common, dag_id, schedules or {}, dag_kwargs or {}, task_kwargs or {}
        )
        schedule = drain_schedule(_drains(pipeline, added), start_date)
        return _pipeline_dags(pipeline, added, schedule, on_alert_callback, approval)


def create_group_dags(
    name: str,
    pipelines: Sequence[Pipeline],
    *,
    start_date: datetime = START_DATE,
    default_args: dict[str, Any] | None = None,
    tags: Sequence[str] = (),
    on_alert_callback: AlertCallback | Sequence[AlertCallback] = (),
    approval: Approval | None = None,
    dag_id: str = "{kind}_{name}",
    schedules: Mapping[str, Any] | None = None,
    dag_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    task_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, DAG]:
    """Create the DAGs of pipelines that one Spark application drains together.

    Spark starts once for all of them. Each pipeline keeps its own DAGs: its `drain_<name>` serves
    backfills and manual runs, while scheduled drains are runs of `drain_group_<name>`.

    Args:
        name: The group's name.
        pipelines: The pipelines, in the order in which they are drained.
        start_date: When scheduled drains start; schedules are in its time zone.
        default_args: Arguments for all tasks; they override the defaults (two retries, one minute
            apart).
        tags: Tags in addition to `kafka-drain`, `kafka-drain:<kind>`, the group's name and the
            pipeline's name.
        on_alert_callback: See `create_dags`; used for each pipeline.
        approval: See `create_dags`; used for each pipeline.
        dag_id: See `create_dags`; the group's DAG is of kind `drain_group`.
        schedules: See `create_dags`; `drain` is the schedule of the group's DAG.
        dag_kwargs: See `create_dags`.
        task_kwargs: See `create_dags`; the group's validations are `validate_<pipeline>`.

    Returns:
        The DAGs by id: `drain_group_<name>`, and the DAGs that `create_dags` creates for each
        pipeline.

    Raises:
        ConfigError: If the pipelines differ in schedule or in the settings Spark is started with,
            or the DAG file has created DAGs of these ids before; if a pattern matches nothing, or
            an argument isn't to be set.
    """
    with of_pipelines(f"group {name!r}", pipelines):
        check_group(pipelines)
        added = FactoryArguments(
            _common(start_date, default_args, [name], tags),
            dag_id,
            schedules or {},
            dag_kwargs or {},
            task_kwargs or {},
            [f"validate_{pipeline.name}" for pipeline in pipelines],
        )
        declare_group(name, added.of("drain_group", name).dag_id)
        drains = _drains(pipelines[0], added)
        schedule = drain_schedule(drains, start_date)
        dag = _drain_group_dag(name, pipelines, added, schedule, on_alert_callback)
        dags = {dag.dag_id: dag}
        for pipeline in pipelines:
            common = _common(start_date, default_args, [pipeline.name, name], tags)
            # Scheduled drains are the group's.
            schedule = backfill_schedule(drains, start_date)
            tagged = replace(added, common=common)
            dags |= _pipeline_dags(pipeline, tagged, schedule, on_alert_callback, approval)
        return dags


def _drains(pipeline: Pipeline, added: FactoryArguments) -> Any:
    """Return the schedule of drains: the factory's, or else the pipeline's own."""
    return added.schedules.get("drain", pipeline.schedule)


def _common(
    start_date: datetime,
    default_args: dict[str, Any] | None,
    names: Sequence[str],
    tags: Sequence[str],
) -> dict[str, Any]:
    if not isinstance(start_date, datetime):
        accepted = "a datetime, such as datetime(2026, 1, 1, tzinfo=timezone.utc)"
        raise refuse("start_date", start_date, accepted)
    return {
        "start_date": start_date,
        "catchup": False,
        "max_active_runs": 1,
        "default_args": DEFAULT_ARGS | (default_args or {}),
        "tags": [*names, *own_tags(tags)],
    }


def _pipeline_dags(
    pipeline: Pipeline,
    added: FactoryArguments,
    schedule: Any,
    on_alert_callback: Any,
    approval: Approval | None,
) -> dict[str, DAG]:
    kinds = ("drain", "republish", "reprocess", "maintain")
    declare(pipeline, [added.of(kind, pipeline.name).dag_id for kind in kinds])
    dags = [
        _drain_dag(pipeline, added, schedule, on_alert_callback),
        _republish_dag(pipeline, added, approval),
        _reprocess_dag(pipeline, added, approval),
        _maintain_dag(pipeline, added, approval),
    ]
    if pipeline.erase_conn_id is not None:
        dags.append(_erase_dag(pipeline, pipeline.erase_conn_id, added, approval))
    if pipeline.drill is not None:
        dags.append(_drill_dag(pipeline, pipeline.drill, added))
    if pipeline.cut_over is not None:
        of = added.of("cut_over", pipeline.name)
        dags.append(cut_over_dag(pipeline, pipeline.cut_over, of, on_alert_callback))
    if pipeline.target_registry_conn_id is not None:
        dags.append(_restore_schemas_dag(pipeline, added))
    return {dag.dag_id: dag for dag in dags}


def _source(pipeline: Pipeline) -> str:
    if pipeline.topic_pattern:
        return f"the topics that match `{pipeline.topic_pattern}`"
    return ", ".join(f"`{topic}`" for topic in pipeline.topics or pipeline.assign or [])


def _drain_dag(
    pipeline: Pipeline, added: FactoryArguments, schedule: Any, on_alert_callback: Any
) -> DAG:
    of = added.of("drain", pipeline.name)
    with of.dag(
        schedule=schedule,
        description=f"Drain Kafka to {pipeline.archive} and prove that every offset arrived",
        render_template_as_native_obj=True,
        params=params_of("drain"),
        doc_md=f"""
### Drain {pipeline.name}

Drains {_source(pipeline)} to `{pipeline.archive}` ({pipeline.format}, {pipeline.compression}).
Each run resumes where the last one ended and drains what Kafka holds when the run starts; a run
that finds nothing new succeeds and writes nothing.

| task | what it does |
| --- | --- |
| `preflight` | checks that Kafka, archive and checkpoint are consistent; changes nothing |
| `drain` | runs one Spark query to files; logs offsets drained of those planned, rate, time left |
| `validate` | proves that every offset is in exactly one file, seals receipts, writes a report |

Backfill runs (`airflow dags backfill`) drain their data interval instead: only the part that no
receipt covers yet, so running a backfill again drains nothing twice.

A failed task logs what it found and what to do. Clearing any task is safe.
""",
    ) as dag:
        check = of.task(
            PreflightOperator,
            "preflight",
            pipeline=pipeline,
            **fields_of("drain", PreflightOptions.model_fields),
        )
        drain = of.task(
            KafkaDrainOperator,
            "drain",
            pipeline=pipeline,
            **fields_of("drain", DrainOptions.model_fields),
        )
        validate = of.task(
            ValidateManifestOperator,
            "validate",
            pipeline=pipeline,
            outlets=[archive_asset(pipeline)],
            on_alert_callback=on_alert_callback,
            **fields_of("drain", ValidateOptions.model_fields),
        )
        check >> drain >> validate
    return dag


def _drain_group_dag(
    name: str,
    pipelines: Sequence[Pipeline],
    added: FactoryArguments,
    schedule: Any,
    on_alert_callback: Any,
) -> DAG:
    rows = "\n".join(f"| `{p.name}` | {_source(p)} | `{p.archive}` |" for p in pipelines)
    of = added.of("drain_group", name)
    with of.dag(
        schedule=schedule,
        description=f"Drain {len(pipelines)} pipelines with one Spark application and prove each",
        doc_md=f"""
### Drain group {name}

Spark starts once and drains the pipelines one after another; each is then validated as in its own
DAG.

| pipeline | drains | to |
| --- | --- | --- |
{rows}

A failure in one pipeline doesn't stop the others, but the `drain` task fails, and with it the run;
a retry drains only what is missing. For forms, backfills and windows, use the pipelines' own DAGs.
""",
    ) as dag:
        drain = of.task(KafkaDrainGroupOperator, "drain", pipelines=pipelines)
        # A run's state is that of its leaf tasks: without this one, a run whose drain failed would
        # succeed if the validations do.
        done = of.task(DoneOperator, "done")
        drain >> done
        for pipeline in pipelines:
            validate = of.task(
                ValidateManifestOperator,
                f"validate_{pipeline.name}",
                pipeline=pipeline,
                outlets=[archive_asset(pipeline)],
                on_alert_callback=on_alert_callback,
                trigger_rule="all_done",
            )
            drain >> validate >> done
    return dag


def _republish_dag(pipeline: Pipeline, added: FactoryArguments, approval: Approval | None) -> DAG:
    way = way_of(approval, "republish")
    beside = f"{pipeline.name}_republished"
    target = {"default": beside, "examples": [beside, f"{OWN_TOPIC}_restored", OWN_TOPIC]}
    params = way.params(
        params_of(
            "republish",
            apply="On: send the records. Off: only log what would be sent. Records sent to Kafka "
            "can't be taken back.",
            target_topic=target,
            topics=topics_of(pipeline),
        )
    )
    of = added.of("republish", pipeline.name)
    with of.dag(
        schedule=backfill_schedule(_drains(pipeline, added), added.common["start_date"]),
        description=f"Send the records in {pipeline.archive} back to Kafka exactly once",
        render_template_as_native_obj=True,
        params=params,
        doc_md=f"""
### Republish {pipeline.name}

Sends the sealed records in `{pipeline.archive}` to Kafka with their original key, value, headers,
timestamp and partition, in offset order within each partition, then reads them back and compares.
{way.doc()}

Each record is delivered exactly once, even after failures: a retry or a cleared task resumes from
the progress committed to Kafka, and a run that already has a receipt sends nothing. This guarantee
holds for consumers with `isolation.level=read_committed`.

Backfill runs (`airflow dags backfill`) take the records whose timestamps lie in their data
interval.
""",
    ) as dag:
        fields = fields_of("republish", params)
        # A named run and a mirror have plans of their own.
        can_freeze = f"{{{{ not ({field('republish', 'run_name')} or params.follow) }}}}"
        republish = way.tasks(of, RepublishToKafkaOperator, pipeline, fields, can_freeze=can_freeze)
        if pipeline.target_registry_conn_id is not None:
            republish >> of.task(
                CheckDecodingOperator,
                "check_decoding",
                pipeline=pipeline,
                republished="{{ ti.xcom_pull(task_ids='republish') }}",
            )
    return dag


def _reprocess_dag(pipeline: Pipeline, added: FactoryArguments, approval: Approval | None) -> DAG:
    way = way_of(approval, "reprocess")
    apply = (
        "On: drain again and replace the files. Off: only log what would be drained and removed."
    )
    params = way.params(params_of("reprocess", apply=apply))
    of = added.of("reprocess", pipeline.name)
    with of.dag(
        schedule=None,
        description=f"Drain the records in {pipeline.archive} again and replace the old files",
        render_template_as_native_obj=True,
        params=params,
        doc_md=f"""
### Reprocess {pipeline.name}

Drains the records in `{pipeline.archive}` again, starting at a batch, a time or an offset, with the
pipeline's current settings ({pipeline.format}), and replaces the old files with the new ones.
{way.doc()}

A reprocess is refused if Kafka no longer holds all of these records, because the files are then the
only copy. Old files are removed last, once receipts prove that the new files hold all of their
records. Scheduled drains continue meanwhile. A run that was killed resumes when it is cleared, or
when a new run sets no start.
""",
    ) as dag:
        fields = fields_of("reprocess", params)
        # What was started has its plan.
        start = " or ".join(field("reprocess", name) for name in STARTS)
        can_freeze = f"{{{{ true if ({start}) and not params.abandon else false }}}}"
        outlets = [replaced_alias(pipeline)]
        way.tasks(of, ReprocessOperator, pipeline, fields, can_freeze=can_freeze, outlets=outlets)
    return dag


def _maintain_dag(pipeline: Pipeline, added: FactoryArguments, approval: Approval | None) -> DAG:
    way = way_of(approval, "maintain")
    apply = "On: run the maintenance. Off: only log the plan. Scheduled runs always apply it."
    params = way.params(params_of("maintain", apply=apply))
    retention = (
        f"files whose newest record is older than {pipeline.retention_days} days are deleted, and "
        "the deletion is sealed in a receipt"
        + (
            f". A record dated more than {pipeline.max_future_days} days after its drain counts as "
            "of the time of the drain"
            if pipeline.max_future_days is not None
            else ""
        )
        if pipeline.retention_days is not None
        else "nothing is deleted by age, because `retention_days` isn't set"
    )
    of = added.of("maintain", pipeline.name)
    with of.dag(
        schedule=night_schedule(pipeline.name),
        description=f"Close generations of {pipeline.archive} and compact their small files",
        render_template_as_native_obj=True,
        params=params,
        doc_md=f"""
### Maintain {pipeline.name}

Maintains `{pipeline.archive}` once a night. {way.doc("A manual run")}

1. Closes the open generation, between two drains, when its manifest has more than
   {pipeline.max_manifest_lines:,} lines or it is {pipeline.max_generation_days} days old.
2. Retention: {retention}.
3. Rewrites small files of closed generations and of windows as files of about
   {pipeline.target_file_bytes >> 20:,} MiB, sorted by offset. Every offset, count and fingerprint
   is compared with the receipts before the small files are removed.

Files of the open generation are never touched. A run can be killed at any point; the next one
resumes its work. The log ends with the number of files and bytes before and after.
""",
    ) as dag:
        # Airflow 3's other types of runs that somebody asks for.
        asked = ("manual", "operator_triggered", "asset_materialization")
        fields = {"apply": f"{{{{ params.apply or dag_run.run_type not in {asked} }}}}"}
        outlets = [replaced_alias(pipeline)]
        way.tasks(of, MaintainOperator, pipeline, fields, outlets=outlets)
    return dag


def _erase_dag(
    pipeline: Pipeline, conn_id: str, added: FactoryArguments, approval: Approval | None
) -> DAG:
    way = way_of(approval, "erase")
    apply = "On: erase the records. Off: only log what would be erased. It can't be undone."
    params = way.params(params_of("erase", apply=apply, topics=topics_of(pipeline)))
    of = added.of("erase", pipeline.name)
    with of.dag(
        schedule=None,
        description=f"Erase records of {pipeline.archive} on request",
        render_template_as_native_obj=True,
        params=params,
        doc_md=f"""
### Erase from {pipeline.name}

Removes records from the files of `{pipeline.archive}`, proves that all others are as they were, and
keeps the removed ones from coming back by a repair, reprocess, backfill or drain. {way.doc()}

Their keys or headers are never typed in here: the Airflow connection `{conn_id}` has them. The
archive keeps salted hashes, and a receipt of which offsets were erased, for which request, and for
whom. The plan names the copies that can't be reached, such as the topics themselves.

A run can be killed at any point: a retry, or the same request again, finishes it.
""",
    ) as dag:
        fields = fields_of("erase", params)
        outlets = [replaced_alias(pipeline)]
        way.tasks(of, EraseOperator, pipeline, fields, outlets=outlets)
    return dag


def _drill_dag(pipeline: Pipeline, settings: Drill, added: FactoryArguments) -> DAG:
    of = added.of("drill", pipeline.name)
    with of.dag(
        schedule=settings.schedule,
        description=f"Try to restore a part of {pipeline.archive}, and verify it",
        render_template_as_native_obj=True,
        params=params_of("drill", sample={"default": settings.sample, "type": "string"}),
        doc_md=f"""
### Drill {pipeline.name}

Tries a restore of `{pipeline.archive}`, in topics that nobody else uses, and measures how long it
takes (RTO) and how old the newest archived record is (RPO).

| task | what it does |
| --- | --- |
| `drill` | restores a sample to scratch topics, verifies and decodes it, removes the topics |
| `check` | fails if the newest drill failed, or none passed for {settings.max_age_days} days |

The result is kept in the archive's `drills/` and shown on its page. A drill that was killed leaves
topics named `{settings.prefix}.…`, which the next one removes.
""",
    ) as dag:
        drill = of.task(
            DrillOperator,
            "drill",
            pipeline=pipeline,
            **fields_of("drill", DrillOptions.model_fields),
        )
        check = of.task(DrillCheckOperator, "check", pipeline=pipeline, trigger_rule="all_done")
        # As in a group's DAG: a drill that was killed left no result that the check could see.
        done = of.task(DoneOperator, "done")
        drill >> [check, done]
        check >> done
    return dag


def _restore_schemas_dag(pipeline: Pipeline, added: FactoryArguments) -> DAG:
    apply = "On: register the schemas and write the map. Off: only log what would be done."
    params = params_of("restore_schemas", apply=apply)
    of = added.of("restore_schemas", pipeline.name)
    with of.dag(
        schedule=None,
        description=f"Register the schemas of {pipeline.archive} in another Schema Registry",
        render_template_as_native_obj=True,
        params=params,
        doc_md=f"""
### Restore schemas of {pipeline.name}

Registers the schemas that `{pipeline.archive}` keeps in the Schema Registry of the connection
`{pipeline.target_registry_conn_id}`, references first, and writes the map of their ids. Without
*Apply* a run is a dry run. What the registry already has is left as it is, and nothing is deleted.

Then run `republish_{pipeline.name}` with the same *Schema map*: it replaces the ids, and its task
`check_decoding` decodes what arrived with this registry.
""",
    ) as dag:
        of.task(
            RestoreSchemasOperator,
            "restore_schemas",
            pipeline=pipeline,
            **fields_of("restore_schemas", params),
        )
    return dag

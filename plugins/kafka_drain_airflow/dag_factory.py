"""Create the DAGs of a pipeline or of a group of pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param

from kafka_drain.config.drill import SAMPLES, Drill
from kafka_drain.config.groups import check_group
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.schemas.restore_order import IDS, NEW, RESTORED
from kafka_drain_airflow.cut_over_dag import cut_over_dag
from kafka_drain_airflow.declared import declare, declare_group, of_pipeline, of_pipelines
from kafka_drain_airflow.factory_arguments import FactoryArguments
from kafka_drain_airflow.forms.republish import (
    apply_param,
    plan_param,
    republish_params,
    time_param,
)
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
from kafka_drain_airflow.run_conf import field, field_value
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
        approval: Which DAGs do only what a person has approved; None for none.
        dag_id: Pattern of the DAGs' ids, such as `team_a.{kind}.{name}`.
        schedules: Schedules by kind of DAG (drain, republish, reprocess, maintain, erase, drill,
            cut_over, restore_schemas), as Airflow takes them: text, timedelta, timetable, assets or
            None. By default, drains run by the pipeline's schedule, and maintenance once a night,
            at a time that depends on the pipeline's name.
        dag_kwargs: Arguments for Airflow's DAG, by patterns of kinds, such as
            `{"drain": {"dagrun_timeout": timedelta(hours=1)}, "*": {"max_active_tasks": 4}}`.
        task_kwargs: Arguments for tasks, by patterns of their ids, such as
            `{"drain": {"pool": "spark"}, "maintain.*": {"retries": 5}}`; a pattern with a dot
            has the DAG's kind before it. Of several that match, the last one counts. Approvals have
            their own options.

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
        common = _common(start_date, default_args, [pipeline.name, *tags])
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
            _common(start_date, default_args, [name, *tags]),
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
            common = _common(start_date, default_args, [pipeline.name, name, *tags])
            # Scheduled drains are the group's.
            schedule = backfill_schedule(drains, start_date)
            tagged = replace(added, common=common)
            dags |= _pipeline_dags(pipeline, tagged, schedule, on_alert_callback, approval)
        return dags


def _drains(pipeline: Pipeline, added: FactoryArguments) -> Any:
    """Return when a pipeline is drained: as the factory is told, or else by its own schedule."""
    return added.schedules.get("drain", pipeline.schedule)


def _common(
    start_date: datetime, default_args: dict[str, Any] | None, tags: Sequence[str]
) -> dict[str, Any]:
    return {
        "start_date": start_date,
        "catchup": False,
        "max_active_runs": 1,
        "default_args": DEFAULT_ARGS | (default_args or {}),
        "tags": tags,
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
        params={
            "log_level": Param(
                default=None,
                type=["null", "string"],
                examples=["INFO", "DEBUG", "TRACE"],
                title="Log level",
                description="Log level of Spark's Kafka and sink classes for this run. Empty: the "
                "pipeline's setting, WARN by default.",
            ),
            "acknowledge_expired": Param(
                default=None,
                type=["null", "array"],
                items={"type": "string"},
                title="Acknowledge expired",
                description="Offsets that Kafka deleted before they were drained, one range per "
                "line, such as flights:0:100-200 (the end is exclusive). They are skipped and "
                "recorded in the receipt. Empty: a loss stops the run.",
            ),
            "new_archive": Param(
                default=False,
                type="boolean",
                title="New archive",
                description="On: begin a new archive although one was validated there before, "
                "which is gone for good. Off: such a run fails, as its volume may not be mounted.",
            ),
            "mode": Param(
                default="drain",
                enum=["drain", "window"],
                title="Mode",
                description="drain: resumes where the last drain ended. window: drains whatever is "
                "missing from a data interval; backfill runs always do this.",
                section="Window",
            ),
            "window_start": time_param(
                "Window start", "Empty: the run's own data interval.", "Window"
            ),
            "window_end": time_param("Window end", "Exclusive end of the window.", "Window"),
            "force": Param(
                default=False,
                type="boolean",
                title="Force",
                description="Drain the window's own files again and replace them. Refused if Kafka "
                "no longer holds all of their records.",
                section="Window",
            ),
        },
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
        window: dict[str, Any] = {
            "mode": "{{ params.mode }}",
            "window_start": field_value("drain", "window_start"),
            "window_end": field_value("drain", "window_end"),
            "acknowledge_expired": "{{ params.acknowledge_expired }}",
        }
        force, new_archive = "{{ params.force }}", "{{ params.new_archive }}"
        check = of.task(
            PreflightOperator,
            "preflight",
            pipeline=pipeline,
            force=force,
            new_archive=new_archive,
            **window,
        )
        drain = of.task(
            KafkaDrainOperator,
            "drain",
            pipeline=pipeline,
            log_level="{{ params.log_level }}",
            force=force,
            new_archive=new_archive,
            **window,
        )
        validate = of.task(
            ValidateManifestOperator,
            "validate",
            pipeline=pipeline,
            outlets=[archive_asset(pipeline)],
            on_alert_callback=on_alert_callback,
            **window,
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
        done = DoneOperator(task_id="done")
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
    params = way.params(republish_params(pipeline))
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

Backfill runs (`airflow dags backfill`) send the records whose timestamps lie in their data
interval.
""",
    ) as dag:
        fields = {name: field_value("republish", name) for name in params}
        # As a quoted literal: native rendering would turn a topic named 2024 into a number.
        for name in ("target_topic", "run_name", "schema_map"):
            fields[name] = field_value("republish", name, "pprint")
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
    start = "Set one of these three fields, or none to resume a run that was killed."
    params = {
        "apply": apply_param(
            "On: drain again and replace the files. Off: only log what would be drained and "
            "removed."
        ),
        "plan_id": plan_param(),
        "from_batch": Param(
            default=None,
            type=["null", "string"],
            title="From batch",
            description="A batch id in the newest generation, such as 7, or generation and batch, "
            f"such as 1:7. {start}",
            section="Where to start",
        ),
        "from_time": time_param(
            "From time",
            "Start with the batch that holds the first record with this timestamp or a later one.",
            "Where to start",
        ),
        "from_offsets": Param(
            default=None,
            type=["null", "array"],
            items={"type": "string"},
            title="From offsets",
            description="Start with the batch that holds the first of these offsets, one per line: "
            "topic:partition:offset.",
            section="Where to start",
        ),
        "abandon": Param(
            default=False,
            type="boolean",
            title="Abandon",
            description="On: end a reprocess that was started and can't finish. Windows that it "
            "hasn't sealed are removed; archived files stay. Leave the start fields empty.",
        ),
    }
    params = way.params(params)
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
        fields = {name: field_value("reprocess", name) for name in params}
        # What was started has its plan.
        offsets = field("reprocess", "from_offsets")
        start = f"params.from_batch or params.from_time or {offsets}"
        can_freeze = f"{{{{ true if ({start}) and not params.abandon else false }}}}"
        outlets = [replaced_alias(pipeline)]
        way.tasks(of, ReprocessOperator, pipeline, fields, can_freeze=can_freeze, outlets=outlets)
    return dag


def _maintain_dag(pipeline: Pipeline, added: FactoryArguments, approval: Approval | None) -> DAG:
    way = way_of(approval, "maintain")
    params = {
        "apply": apply_param(
            "On: run the maintenance. Off: only log the plan. Scheduled runs always apply it."
        ),
        "plan_id": plan_param(),
    }
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
        params=way.params(params),
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
        apply = "{{ params.apply or dag_run.run_type != 'manual' }}"
        outlets = [replaced_alias(pipeline)]
        way.tasks(of, MaintainOperator, pipeline, {"apply": apply}, outlets=outlets)
    return dag


def _erase_dag(
    pipeline: Pipeline, conn_id: str, added: FactoryArguments, approval: Approval | None
) -> DAG:
    way = way_of(approval, "erase")
    # Topics of a pattern are typed in, one per line.
    known = list(pipeline.topics or pipeline.assign or {})
    examples: dict[str, Any] = {"examples": known} if known else {}
    which = "Which records"
    params = {
        "apply": apply_param(
            "On: erase the records. Off: only log what would be erased. It can't be undone."
        ),
        "plan_id": plan_param(),
        "request": Param(
            default=None,
            type=["null", "string"],
            title="Request",
            description="Id of the request, which receipts name: no personal data. Empty: carry "
            "out what was asked for before on records that were drained since.",
        ),
        "by": Param(
            default=None,
            type=["null", "string"],
            title="By",
            description="Who asked, for the receipts: no personal data.",
        ),
        "topics": Param(
            default=None,
            type=["null", "array"],
            items={"type": "string"},
            title="Topics",
            description="Only of these topics, one per line. Empty: of all.",
            section=which,
            **examples,
        ),
        "from_time": time_param("From time", "Lowest timestamp of the records.", which),
        "to_time": time_param("To time", "End of the timestamps, exclusive.", which),
        "all_records": Param(
            default=False,
            type="boolean",
            title="All records",
            description="Off: only records with the keys or headers of the connection. On: all "
            "records of these topics and times; the connection must be without keys and headers.",
            section=which,
        ),
        "for_ever": Param(
            default=False,
            type="boolean",
            title="For ever",
            description="Also erase such records that are written to Kafka after this request.",
            section=which,
        ),
    }
    params = way.params(params)
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
        fields = {name: field_value("erase", name) for name in params}
        # As quoted literals: native rendering would turn a request named 2024 into a number.
        for name in ("request", "by"):
            fields[name] = f"{{{{ params.{name} | pprint }}}}"
        outlets = [replaced_alias(pipeline)]
        way.tasks(of, EraseOperator, pipeline, fields, outlets=outlets)
    return dag


def _drill_dag(pipeline: Pipeline, settings: Drill, added: FactoryArguments) -> DAG:
    of = added.of("drill", pipeline.name)
    with of.dag(
        schedule=settings.schedule,
        description=f"Try to restore a part of {pipeline.archive}, and verify it",
        render_template_as_native_obj=True,
        params={
            "sample": Param(
                default=settings.sample,
                enum=list(SAMPLES),
                title="Sample",
                description="newest_hour: the hour that ends with the newest record. random_day: a "
                "day (UTC) with records. whole: everything.",
            ),
            "seed": Param(
                default=None,
                type=["null", "integer"],
                minimum=0,
                title="Seed",
                description="Seed of the random day, to repeat a drill. Empty: a random one, which "
                "the result names.",
            ),
        },
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
            sample="{{ params.sample }}",
            seed="{{ params.seed }}",
        )
        check = of.task(DrillCheckOperator, "check", pipeline=pipeline, trigger_rule="all_done")
        drill >> check
    return dag


def _restore_schemas_dag(pipeline: Pipeline, added: FactoryArguments) -> DAG:
    of = added.of("restore_schemas", pipeline.name)
    with of.dag(
        schedule=None,
        description=f"Register the schemas of {pipeline.archive} in another Schema Registry",
        render_template_as_native_obj=True,
        params={
            "apply": apply_param(
                "On: register the schemas and write the map. Off: only log what would be done."
            ),
            "schema_map": Param(
                default=RESTORED,
                type="string",
                title="Schema map",
                description="Name of the map of ids, which the republish then takes.",
            ),
            "ids": Param(
                default=NEW,
                enum=list(IDS),
                title="Ids",
                description="new: the registry gives new ids. keep: ids and versions stay, which "
                "requires empty subjects and mode IMPORT.",
            ),
        },
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
            apply="{{ params.apply }}",
            # As a quoted literal: native rendering would turn a map named 2024 into a number.
            schema_map=field_value("restore_schemas", "schema_map", "pprint"),
            ids="{{ params.ids }}",
        )
    return dag

"""Restore an archive's schemas to another Schema Registry, and check what a republish has sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from kafka_drain.output import say
from kafka_drain.schemas.restore_options import RestoreSchemasOptions
from kafka_drain_airflow.connections import target_registry, terminal_errors_fail
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.operators.apply import ApplyOperator
from kafka_drain_airflow.operators.spark_job import SparkJobOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class RestoreSchemasOperator(ApplyOperator):
    """Register the schemas that an archive keeps in another Schema Registry, and write the map.

    What the target already has is left as it is, so a retry registers only what is missing. A
    republish with ``schema_map`` then replaces the ids in its records.

    Returns the registry, the map, and the numbers of versions, of those to register, and, if it was
    applied, of those in the map.

    :param pipeline: the pipeline whose archive keeps the schemas
    :param registry_conn_id: connection of the target's Schema Registry; None for the pipeline's
        ``target_registry_conn_id`` (templated)
    :param schema_map: name of the map that is written (templated)
    :param ids: ``new`` or ``keep`` (templated)
    :param apply: whether to register; otherwise the plan is only logged (templated)
    """

    template_fields: Sequence[str] = (
        *ApplyOperator.template_fields,
        "registry_conn_id",
        *RestoreSchemasOptions.model_fields,
    )
    ui_color = "#fdebd0"

    def __init__(
        self,
        *,
        registry_conn_id: str | None = None,
        schema_map: str | None = None,
        ids: str | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        self.registry_conn_id = registry_conn_id
        self.set_options(RestoreSchemasOptions, given)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Make a plan; with apply, register what is missing and write the map.

        Raises:
            AirflowFailException: If the target can't take the schemas as they are, or, once all are
                registered, if it refused a subject's settings; says why.
            RegistryUnavailableError: If the target doesn't respond; a retry resumes.
        """
        from kafka_drain.archive.archive import Archive
        from kafka_drain.clock import utc_now
        from kafka_drain.schemas.restore import SchemaRestore, rows_of, settings_of

        with terminal_errors_fail(), archive_access(self.pipeline):
            registry = target_registry(self.pipeline, self.registry_conn_id)
            options = self.options(RestoreSchemasOptions)
            applies = self.applies()
            archive = Archive.at(self.pipeline.archive)
            restore = SchemaRestore(archive, registry, options.schema_map, options.ids)
            plan = restore.plan()
            versions = (
                f"version {version} of {name}, id {id_}: {does}"
                for name, version, id_, does in rows_of(plan)
            )
            self.say_plan([*versions, *settings_of(plan)])
            for note in plan.notes:
                self.log.warning("%s", note)
            if plan.refusals:
                raise AirflowFailException(f"nothing was registered: {'; '.join(plan.refusals)}")
            result: dict[str, Any] = {
                "registry": plan.url,
                "schema_map": restore.map_name,
                "versions": len(plan.steps),
                "to_register": len(plan.missing),
            }
            if not applies:
                self.say_dry_run()
                return result
            restored = restore.apply(plan, now=utc_now())
            if restored.warnings:
                raise AirflowFailException(
                    "the schemas are registered, and the map is written, but "
                    f"{'; '.join(restored.warnings)}. Set it in the target, and clear this task"
                )
            return result | {"mapped": len(restored.map.schemas)}


class CheckDecodingOperator(SparkJobOperator):
    """Decode a finished republish's records with the target's schemas and the archive's own.

    It is skipped if the republish was a dry run, or replaced no schema ids.

    Returns the numbers of records, and of keys and values: decoded, expected, without, failed.

    :param pipeline: the pipeline whose archive was republished
    :param republished: the result of ``RepublishToKafkaOperator`` (templated)
    :param registry_conn_id: connection of the target's Schema Registry; None for the pipeline's
        ``target_registry_conn_id`` (templated)
    """

    template_fields: Sequence[str] = (
        *SparkJobOperator.template_fields,
        "republished",
        "registry_conn_id",
    )
    ui_color = "#d5f5e3"

    def __init__(
        self, *, republished: Any, registry_conn_id: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.republished = republished
        self.registry_conn_id = registry_conn_id

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Read the records back, and decode them on both sides.

        Raises:
            AirflowSkipException: If there is nothing to decode.
            AirflowFailException: If there is no result of a republish, or a key or value isn't
                decoded to the value that it has in the archive; names the first.
            RegistryUnavailableError: If the target's registry doesn't respond.
            TransientError: If the target can't be read to the end.
        """
        from kafka_drain.archive.archive import Archive
        from kafka_drain.republish.verifying.decoding_check import check_run

        run = self.republished
        if not isinstance(run, Mapping):
            raise AirflowFailException(
                f"republished = {run!r} isn't the result of a republish: its task may have been "
                "marked as success, or this DAG may not render native objects. Nothing was "
                "checked; clear the republish, which sends nothing twice, and this task"
            )
        if "verification" not in run or not run.get("schema_ids"):
            raise AirflowSkipException("nothing to decode: a dry run, or without a schema map")
        with terminal_errors_fail(), archive_access(self.pipeline):
            check = check_run(
                Archive.at(self.pipeline.archive),
                run["key"],
                kafka_cluster(self.pipeline.kafka_conn_id),
                target_registry(self.pipeline, self.registry_conn_id),
            )
        for line in check.lines():
            say(line)
        if not check.is_exact:
            raise AirflowFailException("; ".join(check.lines()))
        return check.content()

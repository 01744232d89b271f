"""Register a pipeline's archive as an Iceberg table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseHook

from kafka_drain.config.table import TableOptions
from kafka_drain_airflow.connections import extra_of, require_connection, terminal_errors_fail
from kafka_drain_airflow.operators.pipeline import PipelineOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class RegisterTableOperator(PipelineOperator):
    """Make an Iceberg table hold exactly the archive's sealed files, in one snapshot.

    For a task after the validation, or a DAG that the archive's asset schedules. A run that finds
    nothing new commits nothing; what a killed run hasn't committed, the next one does. Needs
    ``kafka-drain[iceberg]`` on the worker.

    Returns the table, the numbers of files added and removed, of files and records in the table,
    and the id of its snapshot.

    :param pipeline: the pipeline, or its keys as a dict (templated)
    :param catalog: name of the catalog, in pyiceberg's configuration on the worker unless a
        connection has its properties (templated)
    :param table: name of the table, with its namespace; it is created if it doesn't exist
        (templated)
    :param catalog_conn_id: connection of type Generic whose extra has the catalog's properties, as
        pyiceberg calls them; None for the worker's configuration (templated)
    """

    template_fields: Sequence[str] = (
        *PipelineOperator.template_fields,
        *TableOptions.model_fields,
        "catalog_conn_id",
    )
    ui_color = "#d6eaf8"

    def __init__(
        self, *, catalog: str, table: str, catalog_conn_id: str | None = None, **kwargs: Any
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        self.set_options(TableOptions, given)
        self.catalog_conn_id = catalog_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Register what was sealed, and remove what was replaced or deleted.

        Raises:
            AirflowFailException: If a retry can't help: pyiceberg or a connection is missing, the
                table holds something else, or a sealed file is damaged.
            TransientError: If the catalog doesn't answer, or another run changed the table at the
                same time; a retry looks again.
        """
        from kafka_drain.archive.archive import Archive

        with terminal_errors_fail(), archive_access(self.pipeline):
            from kafka_drain.iceberg import register_in_catalog

            archive, options = Archive.at(self.pipeline.archive), self.options(TableOptions)
            found = register_in_catalog(archive, options, self._properties())
        self.log.info("%s", found)
        return found.to_dict()

    def _properties(self) -> dict[str, Any]:
        conn_id = self.catalog_conn_id
        if conn_id in (None, "", "None"):
            return {}
        properties = '{"type": "rest", "uri": "https://host:8181"} as its extra'
        require_connection(conn_id, "Generic", properties)
        return extra_of(BaseHook.get_connection(conn_id), conn_id)

"""The Airflow plugin: timetables, and the pages that show archives and reports.

Airflow also loads plugins at the start of every task, so everything that isn't imported already is
imported only when it is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowPlugin, conf
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS


class KafkaDrainPlugin(AirflowPlugin):
    """Adds kafka-drain's pages at `/kafka-drain`."""

    name = "kafka_drain"

    @property
    def timetables(self) -> list[Any]:  # type: ignore[override]
        """Return the timetables used by this package's DAGs."""
        from kafka_drain_airflow.timetables import BackfillTimetable

        return [BackfillTimetable]

    # Only Airflow 3's API server reads the next two.
    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return the applications that the API server mounts."""
        from kafka_drain_airflow.addresses import URL_PREFIX
        from kafka_drain_airflow.pages.airflow3 import app

        return [{"app": app, "url_prefix": URL_PREFIX, "name": "kafka-drain"}]

    @property
    def external_views(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return Airflow 3's navigation entries, under Browse: archives and restores."""
        from kafka_drain_airflow.addresses import page_url

        return [
            {
                "name": f"Kafka {name}",
                "href": page_url(f"/{name}"),
                "destination": "nav",
                "category": "browse",
                "url_route": f"kafka-{name}",
            }
            for name in ("archives", "restores")
        ]

    # These are for Airflow 2, whose webserver serves the pages and resolves an operator link only
    # if it is registered here. Airflow 3 reads them too if its FAB provider is installed.
    @property
    def flask_blueprints(self) -> list[Any]:  # type: ignore[override]
        """Return the blueprint with the pages for Airflow 2's webserver."""
        if AIRFLOW_V_3_0_PLUS:
            return []
        from kafka_drain_airflow.pages.airflow2 import blueprint

        return [blueprint]

    @property
    def appbuilder_menu_items(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return Airflow 2's menu entries, under Browse: archives and restores."""
        if AIRFLOW_V_3_0_PLUS:
            return []
        from kafka_drain_airflow.pages.airflow2 import MENU_ITEMS

        return MENU_ITEMS

    @property
    def operator_extra_links(self) -> list[Any]:  # type: ignore[override]
        """Return the operator links that Airflow 2 may show on task instances."""
        if AIRFLOW_V_3_0_PLUS:
            return []
        from kafka_drain_airflow.observability.report_link import ReportLink
        from kafka_drain_airflow.observability.task_links import ArchiveLink, SparkUiLink

        return [ReportLink(), ArchiveLink(), SparkUiLink()]


def __getattr__(name: str) -> type[KafkaDrainPlugin] | None:
    """Return the plugin for the package's entry point; None if the plugins folder provides it.

    Airflow 3 reports a second plugin with the same name as an import error.
    """
    if name != "entry_point":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    folder = Path(conf.get("core", "plugins_folder", fallback="")).resolve()
    return None if Path(__file__).resolve().is_relative_to(folder) else KafkaDrainPlugin

"""What Airflow loads from this folder: timetables, and pages of archives and reports.

It is loaded at the start of every task as well, so it imports nothing that isn't there already.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowPlugin, conf
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

__all__ = ["KafkaDrainPlugin"]


class KafkaDrainPlugin(AirflowPlugin):
    """kafka-drain's pages, at `/kafka-drain`."""

    name = "kafka_drain"

    @property
    def timetables(self) -> list[Any]:  # type: ignore[override]
        """Return the timetables that DAGs of this package have."""
        from kafka_drain_airflow.timetables import BackfillTimetable

        return [BackfillTimetable]

    # Only the API server of Airflow 3 asks for these two.
    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return the applications that the API server mounts."""
        from kafka_drain_airflow.pages.addresses import URL_PREFIX
        from kafka_drain_airflow.pages.airflow3 import app

        return [{"app": app, "url_prefix": URL_PREFIX, "name": "kafka-drain"}]

    @property
    def external_views(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return what the navigation of Airflow 3 shows: the archives, under Browse."""
        from kafka_drain_airflow.pages.addresses import page_url

        return [
            {
                "name": "Kafka archives",
                "href": page_url("/archives"),
                "destination": "nav",
                "category": "browse",
                "url_route": "kafka-archives",
            }
        ]

    # These are Airflow 2's: there the webserver has the pages, and finds a link only when it is
    # named here. Airflow 3 would ask as well where its FAB provider is installed.
    @property
    def flask_blueprints(self) -> list[Any]:  # type: ignore[override]
        """Return the pages that the webserver of Airflow 2 adds to its own."""
        if AIRFLOW_V_3_0_PLUS:
            return []
        from kafka_drain_airflow.pages.airflow2 import blueprint

        return [blueprint]

    @property
    def appbuilder_menu_items(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return what the menu of Airflow 2 shows: the archives, under Browse."""
        if AIRFLOW_V_3_0_PLUS:
            return []
        from kafka_drain_airflow.pages.airflow2 import MENU_ITEM

        return [MENU_ITEM]

    @property
    def operator_extra_links(self) -> list[Any]:  # type: ignore[override]
        """Return the links that a task instance of Airflow 2 may have."""
        if AIRFLOW_V_3_0_PLUS:
            return []
        from kafka_drain_airflow.observability.report_link import ReportLink
        from kafka_drain_airflow.observability.task_links import ArchiveLink, SparkUiLink

        return [ReportLink(), ArchiveLink(), SparkUiLink()]


def __getattr__(name: str) -> type[KafkaDrainPlugin] | None:
    """Return the plugin to the package's entry point, unless the plugins folder has brought it.

    Airflow 3 would show a second plugin of the same name as an import error.
    """
    if name != "entry_point":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    folder = Path(conf.get("core", "plugins_folder", fallback="")).resolve()
    return None if Path(__file__).resolve().is_relative_to(folder) else KafkaDrainPlugin

"""What Airflow loads from this folder: timetables, and pages of archives and reports.

It is loaded at the start of every task as well, so it imports nothing that isn't there already.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowPlugin, conf

__all__ = ["KafkaDrainPlugin"]


class KafkaDrainPlugin(AirflowPlugin):
    """kafka-drain's pages, at `/kafka-drain`."""

    name = "kafka_drain"

    @property
    def timetables(self) -> list[Any]:  # type: ignore[override]
        """Return the timetables that DAGs of this package have."""
        from kafka_drain_airflow.timetables import BackfillTimetable

        return [BackfillTimetable]

    # Only the API server of Airflow 3 asks for it; Airflow 2 has no such pages, and no link to one.
    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return the applications that the API server mounts."""
        from kafka_drain_airflow.addresses import URL_PREFIX
        from kafka_drain_airflow.pages import app

        return [{"app": app, "url_prefix": URL_PREFIX, "name": "kafka-drain"}]

    @property
    def external_views(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return what the navigation of Airflow 3 shows: the archives, under Browse."""
        from kafka_drain_airflow.addresses import page_url

        return [
            {
                "name": "Kafka archives",
                "href": page_url("/archives"),
                "destination": "nav",
                "category": "browse",
                "url_route": "kafka-archives",
            }
        ]


def __getattr__(name: str) -> type[KafkaDrainPlugin] | None:
    """Return the plugin to the package's entry point, unless the plugins folder has brought it.

    Airflow 3 would show a second plugin of the same name as an import error.
    """
    if name != "entry_point":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    folder = Path(conf.get("core", "plugins_folder", fallback="")).resolve()
    return None if Path(__file__).resolve().is_relative_to(folder) else KafkaDrainPlugin

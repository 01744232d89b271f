"""The pages that the plugin adds to Airflow's API server, below `/kafka-drain`."""

from __future__ import annotations

from fastapi import FastAPI

from kafka_drain_airflow.pages import archives_view, report_view

__all__ = ["app"]

# Airflow mounts a plugin's application without any authentication: each route asks for it itself.
app = FastAPI(title="kafka-drain", docs_url=None, redoc_url=None, openapi_url=None)
app.include_router(report_view.router)
app.include_router(archives_view.router)

"""Addresses in Airflow's UI, without host: the browser knows by which name it reached it."""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

from airflow.providers.common.compat.sdk import conf
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

__all__ = ["URL_PREFIX", "airflow_url", "dag_url", "home_url", "page_url", "run_url"]

#: Where the plugin's pages are, below Airflow's own address.
URL_PREFIX = "/kafka-drain"

_SECTION = "api" if AIRFLOW_V_3_0_PLUS else "webserver"


def airflow_url(path: str) -> str:
    """Return a page of Airflow."""
    base: str = conf.get(_SECTION, "base_url", fallback="")
    return urlsplit(base).path.rstrip("/") + path


def page_url(path: str) -> str:
    """Return a page of the plugin."""
    return airflow_url(URL_PREFIX + path)


def home_url() -> str:
    """Return where Airflow's pages begin; empty in Airflow 3, whose frame is around ours."""
    return "" if AIRFLOW_V_3_0_PLUS else airflow_url("/home")


def dag_url(dag_id: str) -> str:
    """Return where Airflow shows a DAG."""
    path = f"/dags/{quote(dag_id, safe='')}"
    return airflow_url(path if AIRFLOW_V_3_0_PLUS else f"{path}/grid")


def run_url(dag_id: str, run_id: str) -> str:
    """Return where Airflow shows a run of a DAG."""
    if AIRFLOW_V_3_0_PLUS:
        return f"{dag_url(dag_id)}/runs/{quote(run_id, safe='')}"
    return f"{dag_url(dag_id)}?{urlencode({'dag_run_id': run_id})}"

"""URLs in Airflow's UI, without the host: the browser knows which host it used."""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

from airflow.providers.common.compat.sdk import conf
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

#: Path of the plugin's pages below Airflow's base URL.
URL_PREFIX = "/kafka-drain"

_SECTION = "api" if AIRFLOW_V_3_0_PLUS else "webserver"


def airflow_url(path: str) -> str:
    """Return the URL of one of Airflow's pages."""
    base: str = conf.get(_SECTION, "base_url", fallback="")
    return urlsplit(base).path.rstrip("/") + path


def page_url(path: str) -> str:
    """Return the URL of one of the plugin's pages."""
    return airflow_url(URL_PREFIX + path)


def home_url() -> str:
    """Return the URL of Airflow's home page; empty in Airflow 3, which frames our pages."""
    return "" if AIRFLOW_V_3_0_PLUS else airflow_url("/home")


def dag_url(dag_id: str) -> str:
    """Return the URL of a DAG in Airflow's UI."""
    path = f"/dags/{quote(dag_id, safe='')}"
    return airflow_url(path if AIRFLOW_V_3_0_PLUS else f"{path}/grid")


def run_url(dag_id: str, run_id: str) -> str:
    """Return the URL of a DAG run in Airflow's UI."""
    if AIRFLOW_V_3_0_PLUS:
        return f"{dag_url(dag_id)}/runs/{quote(run_id, safe='')}"
    return f"{dag_url(dag_id)}?{urlencode({'dag_run_id': run_id})}"

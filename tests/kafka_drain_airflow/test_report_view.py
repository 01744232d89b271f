"""Who sees a report in Airflow's UI, and what else the page never shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from kafka_drain.archive import Archive

pytestmark = pytest.mark.skipif(
    not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 has no pages of plugins in React"
)


ROOT = Path(__file__).resolve().parents[2]
PAGE = "<!DOCTYPE html><title>the report</title>"

# In a process of its own, with a database and the login of a real Airflow.
ASK = """
import json, sys, warnings
from types import SimpleNamespace
warnings.simplefilter("ignore")
from airflow import settings
from airflow.api_fastapi.app import init_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.utils import timezone
from airflow.utils.session import create_session
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import text
from kafka_drain_airflow import report_link
from kafka_drain_plugin import KafkaDrainPlugin

paths, requests = json.loads(sys.argv[1])
auth = init_auth_manager()
import_all_models()
Base.metadata.create_all(settings.engine)
with create_session() as session:
    # Without the DAG and the task instance that they would belong to.
    session.execute(text("PRAGMA foreign_keys=OFF"))
    for number, (run_id, path) in enumerate(paths.items(), start=1):
        session.execute(DagRun.__table__.insert().values(
            id=number, dag_id="drain_p", run_id=run_id, run_type="manual",
            data_interval_end=None, run_after=timezone.utcnow(),
        ))
        session.add(XComModel(
            dag_run_id=number, dag_id="drain_p", run_id=run_id, task_id="validate",
            map_index=-1, key="report", value=json.dumps(path),
        ))
outer = FastAPI()
for mounted in KafkaDrainPlugin().fastapi_apps:
    outer.mount(mounted["url_prefix"], mounted["app"])
viewer = SimpleAuthManagerUser(username="viewer", role="VIEWER")
stranger = SimpleAuthManagerUser(username="stranger", role=None)
users = {
    "viewer": {"_token": auth.generate_jwt(viewer)},
    "stranger": {"_token": auth.generate_jwt(stranger)},
    "forger": {"_token": "not.a.token"},
    None: {},
}
answers = {}
for name, (user, url) in requests.items():
    answer = TestClient(outer, cookies=users[user]).get(url, follow_redirects=False)
    answers[name] = [answer.status_code, answer.text, dict(answer.headers)]

xcoms = {}
report_link.XCom = SimpleNamespace(get_value=lambda *, ti_key, key: xcoms.get(key))
ti_key = SimpleNamespace(dag_id="drain_p", run_id="run+1", task_id="validate", map_index=-1)
link = report_link.ReportLink()
answers["link without report"] = link.get_link(None, ti_key=ti_key)
xcoms["report"] = paths["run+1"]
answers["link"] = link.get_link(None, ti_key=ti_key)
answer = TestClient(outer, cookies=users["viewer"]).get(answers["link"])
answers["linked"] = [answer.status_code, answer.text, dict(answer.headers)]

from kafka_drain import validation
from kafka_drain.findings import Finding, Reason
from kafka_drain.report import Report
from kafka_drain_airflow import Pipeline, ValidateManifestOperator

archive = sys.argv[2]
found = [Finding(Reason.FILE_MISSING, "a", "b")]
validation.validate_archive = lambda *a, **k: Report(archive, "p", findings=found)
pipeline = Pipeline(name="p", topics=["t"], archive=archive)
pushed = {}
ti = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
told = []
def tell(context):
    told.append([context["run_id"], context["alerts"]])
def fail(context):
    raise ConnectionError("nobody there")
try:
    operator = ValidateManifestOperator(
        task_id="validate", pipeline=pipeline, on_alert_callback=[fail, tell]
    )
    operator.execute({"ti": ti, "run_id": "failed run"})
except Exception as error:
    answers["failed"] = [type(error).__name__, pushed]
answers["told"] = told
print(json.dumps(answers))
"""


def ask(paths: dict[str, Any], requests: dict[str, Any], folder: Path) -> Any:
    """Return what an Airflow of its own answers.

    Args:
        paths: What the XComs hold, by run.
        requests: User and address, by case.
        folder: Where its home and the archive of a failing validation are.
    """
    ended = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps([paths, requests]), str(folder / "archive")],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW_CONN_KAFKA_DEFAULT": '{"conn_type": "kafka", '
            '"extra": {"bootstrap.servers": "127.0.0.1:1"}}',
            "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT / 'spark_jobs'}",
        },
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])


def url(run_id: str, dag_id: str = "drain_p") -> str:
    return f"/kafka-drain/reports/{dag_id}?run_id={run_id}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Paths that an XCom might hold, none of them a report's."""
    folder = tmp_path_factory.mktemp("hostile")
    archive, plain = folder / "archive", folder / "plain"
    for name in ("reports", "data", "reports/deeper"):
        (archive / name).mkdir(parents=True)
    (archive / "archive.json").write_text("{}")
    (plain / "reports").mkdir(parents=True)
    secrets = ("archive/secret", "archive/data/secret", "archive/reports/deeper/secret")
    for name in (*secrets, "plain/reports/secret"):
        (folder / f"{name}.html").write_text("secret")
    (archive / "reports" / "link.html").symlink_to(archive / "secret.html")
    (archive / "reports" / "odd.html").mkdir()
    (archive / "reports" / "a.txt").write_text("secret")
    return {
        "a file of the system": "/etc/passwd",
        "another ending": f"{archive}/reports/a.txt",
        "another folder": f"{archive}/data/secret.json",
        "below": f"{archive}/reports/deeper/secret.json",
        "dots": f"{archive}/reports/../secret.json",
        "dots, of a store": "s3://bucket/reports/../secret.json",
        "a link out": f"{archive}/reports/link.json",
        "a folder": f"{archive}/reports/odd.json",
        "no archive": f"{plain}/reports/secret.json",
        "nothing there": f"{archive}/reports/gone.json",
        "relative": "reports/secret.json",
        "another server": "http://127.0.0.1:1/reports/secret.json",
        "chained": f"simplecache::file://{archive}/reports/secret.json",
        "an unknown store": "nowhere://a/reports/b.json",
        "a null byte": f"{archive}/reports/a\0.json",
        "a number": 7,
        "nothing": None,
    }


@pytest.fixture(scope="module")
def answers(hostile: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Status, text and headers of each answer."""
    folder = tmp_path_factory.mktemp("report_view")
    reports = folder / "archive" / "reports"
    reports.mkdir(parents=True)
    archive = Archive.at(str(folder / "archive"))
    archive.create(pipeline="p", cluster_id="c", topic_ids={}, source={})
    (reports / "run_1.html").write_text(PAGE)
    requests = {
        "viewer": ("viewer", url("run%2B1")),
        "anonymous": (None, url("run%2B1")),
        "forger": ("forger", url("run%2B1")),
        "stranger": ("stranger", url("run%2B1")),
        "anonymous, no such run": (None, url("run9")),
        "no such run": ("viewer", url("run9")),
        "no run": ("viewer", "/kafka-drain/reports/drain_p"),
        "another DAG": ("viewer", url("run%2B1", "drain_q")),
        "all DAGs": ("viewer", url("run%2B1", "~")),
        "another map index": ("viewer", url("run%2B1") + "&map_index=0"),
        "docs": (None, "/kafka-drain/docs"),
        "schema": (None, "/kafka-drain/openapi.json"),
    }
    requests |= {f"hostile {name}": ("viewer", url(name)) for name in hostile}
    paths = {"run+1": f"{reports}/run_1.json", **hostile}
    return ask(paths, requests, folder)


def test_report_to_viewer(answers: Any) -> None:
    """Who may read the DAG's XComs sees the page, in which nothing runs or loads."""
    status, text, headers = answers["viewer"]

    assert (status, text) == (200, PAGE)
    assert headers["content-type"].startswith("text/html")
    policy = dict(
        part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["style-src"] == "'unsafe-inline'"
    assert "sandbox" in policy
    assert not any("script" in part for part in policy)
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("who", "status"),
    [("anonymous", 401), ("anonymous, no such run", 401), ("forger", 403), ("stranger", 403)],
)
def test_report_without_right(who: str, status: int, answers: Any) -> None:
    """Nobody else learns anything, not even which runs there are."""
    assert answers[who][0] == status
    assert "archive" not in answers[who][1]


@pytest.mark.parametrize("case", ["no such run", "another DAG", "all DAGs", "another map index"])
def test_report_not_written(case: str, answers: Any) -> None:
    """A task instance without a report is a 404 that says so."""
    status, text, _ = answers[case]

    assert status == 404
    assert "has written no report; its log says why" in text


def test_report_without_run(answers: Any) -> None:
    """The run has to be named."""
    assert answers["no run"][0] == 422


def test_report_of_hostile_path(answers: Any, hostile: dict[str, Any]) -> None:
    """What isn't the report of an archive is never served, whatever the XCom says."""
    seen = {name: answers[f"hostile {name}"] for name in hostile}

    assert {name: answer[0] for name, answer in seen.items()} == dict.fromkeys(hostile, 404)
    assert all("isn't the report of an archive" in answer[1] for answer in seen.values())


@pytest.mark.parametrize("page", ["docs", "schema"])
def test_report_view_tells_nothing_else(page: str, answers: Any) -> None:
    """The pages that FastAPI would add are not there: they would need no login."""
    assert answers[page][0] == 404


def test_report_link(answers: Any) -> None:
    """The link leads to the report, and there is none without a report."""
    assert answers["link without report"] == ""
    assert answers["linked"][:2] == [200, PAGE]


def test_validate_operator_failed_names_report(answers: Any) -> None:
    """A validation that fails has named its report before."""
    kind, pushed = answers["failed"]

    assert kind == "AirflowFailException"
    assert Path(pushed["report"]).is_file()
    assert Path(pushed["report"]).with_suffix(".html").is_file()


def test_validate_operator_failed_alerts(answers: Any) -> None:
    """Who asked is told of what is wrong, although another one couldn't be."""
    [[run, alerts]] = answers["told"]

    assert run == "failed run"
    assert [alert["kind"] for alert in alerts] == ["DAMAGED"]
    assert "file_missing" in alerts[0]["message"]

"""The page of all archives, asked of a real Airflow's login and database, in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from tests.kafka_drain.golden import sealed_copy

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 has no such pages")

ASK = """
import json, sys, uuid, warnings
warnings.simplefilter("ignore")
from datetime import timedelta
from airflow import settings
from airflow.api_fastapi.app import init_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models import import_all_models
from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.base import Base
from airflow.models.dag import DagModel, DagTag
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils import timezone
from airflow.utils.session import create_session
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import text
from kafka_drain_plugin import KafkaDrainPlugin

progress = {"job": "drain", "name": "a", "done": 1200, "total": 5000, "unit": "offsets",
            "percent": 24, "rate": "60/s", "left": "1 min 3 s",
            "spark_ui": "http://driver:4040", "at": "2026-11-22T11:00:00+00:00"}
dags, urls = json.loads(sys.argv[1])
auth = init_auth_manager()
import_all_models()
Base.metadata.create_all(settings.engine)
with create_session() as session:
    session.execute(text("PRAGMA foreign_keys=OFF"))
    session.add(DagBundleModel(name="dags-folder"))
    for number, (dag_id, uri) in enumerate(dags.items(), start=1):
        session.add(DagModel(dag_id=dag_id, bundle_name="dags-folder"))
        session.add(DagTag(name="kafka-drain", dag_id=dag_id))
        session.add(AssetModel(id=number, name=uri, uri=uri, group="asset"))
        session.add(TaskOutletAssetReference(asset_id=number, dag_id=dag_id, task_id="validate"))
        session.execute(TaskInstance.__table__.insert().values(
            id=uuid.UUID(int=number), dag_id=dag_id, run_id="run+9", task_id="drain",
            map_index=-1, state="running", pool="default_pool", pool_slots=1, try_number=1,
        ))
        session.add(XComModel(
            dag_run_id=100 * number + 9, dag_id=dag_id, run_id="run+9", task_id="drain",
            map_index=-1, key="progress", value=json.dumps(progress if number % 2 else "mine"),
        ))
        session.add(XComModel(
            dag_run_id=100 * number + 8, dag_id=dag_id, run_id="run+8", task_id="drain",
            map_index=-1, key="return_value",
            value=json.dumps({"offsets": 9000, "seconds": 6.0} if number % 2 else {"plan": 1}),
        ))
        for run in range(10):
            session.execute(DagRun.__table__.insert().values(
                id=100 * number + run, dag_id=dag_id, run_id=f"run+{run}", run_type="scheduled",
                state="failed" if run == 9 else "success", data_interval_end=None,
                run_after=timezone.utcnow() + timedelta(hours=run),
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
    "nobody": {},
}
answers = {}
for user, cookies in users.items():
    for url in urls:
        answer = TestClient(outer, cookies=cookies).get(url, follow_redirects=False)
        answers[f"{user} {url}"] = [answer.status_code, answer.text, dict(answer.headers)]
answers["views"] = KafkaDrainPlugin().external_views
print(json.dumps(answers))
"""

PAGE = "/kafka-drain/archives"
DATA = "/kafka-drain/api/archives"
URLS = [
    PAGE,
    DATA,
    "/kafka-drain/archives/drain_a/report",
    "/kafka-drain/archives/drain_new/report",
    "/kafka-drain/archives/other/report",
    "/kafka-drain/archives/drain_a",
    "/kafka-drain/archives/drain_web",
    "/kafka-drain/archives/drain_new",
    "/kafka-drain/archives/drain_golden",
    "/kafka-drain/archives/drain_golden/receipts/1/000000000012.json",
    "/kafka-drain/archives/drain_golden/receipts/1/generation.json",
    "/kafka-drain/archives/drain_golden/receipts/7/000000000012.json",
    "/kafka-drain/archives/drain_web/receipts/1/000000000012.json",
    "/kafka-drain/archives/drain_a/report?colours=dark",
    "/kafka-drain/archives/drain_a/report?colours=<b>",
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What an Airflow of its own answers: by user and address, status, text and headers."""
    folder = tmp_path_factory.mktemp("archives")
    validated, new = folder / "a", folder / "new"
    (validated / "reports").mkdir(parents=True)
    new.mkdir()
    (validated / "archive.json").write_text("{}")
    (validated / "reports" / "r.html").write_text('<html lang="en"><title>the report</title>')
    overview = {
        **dict.fromkeys(("files", "bytes", "records", "offsets"), 7),
        "pipeline": "a",
        "verdict": "complete",
        "validated_at": "2026-11-22T11:00:00+00:00",
        "report": "reports/r.json",
    }
    (validated / "overview.json").write_text(json.dumps(overview))
    dags = {
        "drain_a": f"file://{validated}",
        "drain_new": f"file://{new}",
        "drain_web": "http://127.0.0.1:1/archive",
        "drain_store": "s3://bucket/archive",
        "drain_golden": f"file://{sealed_copy(folder / 'golden').root}",
        "other": f"file://{validated}/",
    }
    ended = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps([dags, URLS])],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_MAX_ATTEMPTS": "1",
            "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT / 'spark_jobs'}",
        },
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])


def test_archives_to_viewer(answers: Any) -> None:
    """Who may read the DAGs sees their archives, and why some can't be read."""
    status, text, _ = answers[f"viewer {DATA}"]

    assert status == 200
    rows = {row["name"]: row for row in json.loads(text)["archives"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "a": "complete",
        "new": "not validated",
        "web": "unreadable",
        "store": "unreadable",
        "golden": "not validated",
    }
    assert rows["a"]["overview"]["files"] == 7
    assert "is in no store that this server asks" in rows["web"]["problem"]


def test_archives_page_to_viewer(answers: Any) -> None:
    """The page links to archive, report and the last eight runs, and lets nothing else run."""
    status, text, headers = answers[f"viewer {PAGE}"]

    assert status == 200
    assert 'href="/kafka-drain/archives/drain_a"' in text
    assert 'href="/kafka-drain/archives/drain_a/report"' in text
    assert "/dags/drain_a/runs/run%2B9" in text
    assert text.count("/dags/drain_a/runs/") == 8
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe-inline'; script" in policy  # of styles only


@pytest.mark.parametrize(
    ("url", "status"),
    [(URLS[2], 200), (URLS[3], 404), (URLS[4], 404), (URLS[13], 200), (URLS[14], 422)],
)
def test_newest_report_to_viewer(answers: Any, url: str, status: int) -> None:
    """The newest report is shown, or why there is none."""
    assert answers[f"viewer {url}"][0] == status


def test_newest_report_coloured(answers: Any) -> None:
    """A page around the report may choose its colours."""
    plain, dark = (answers[f"viewer {url}"][1] for url in (URLS[2], URLS[13]))

    assert plain == '<html lang="en"><title>the report</title>'
    assert dark == '<html lang="en" class="dark"><title>the report</title>'


def test_archive_to_viewer(answers: Any) -> None:
    """An archive's page has its runs and receipts, and one that can't be read says why."""
    shown = {url: answers[f"viewer {url}"] for url in URLS}

    golden = shown["/kafka-drain/archives/drain_golden"]
    assert golden[0] == 200
    assert "/archives/drain_golden/receipts/1/000000000012.json" in golden[1]
    assert "script-src 'sha256-" in golden[2]["content-security-policy"]
    for name in ("drain_a", "drain_web"):
        assert shown[f"/kafka-drain/archives/{name}"][0] == 200
    assert "in no store that this server asks" in shown["/kafka-drain/archives/drain_web"][1]


def test_archive_throughput_to_viewer(answers: Any) -> None:
    """An archive's page shows how fast its drains were; other results are left out."""
    shown = answers["viewer /kafka-drain/archives/drain_golden"][1]
    other = answers["viewer /kafka-drain/archives/drain_new"][1]

    assert "9,000 offsets in 6.0 s" in shown
    assert "Throughput" not in other


def test_archive_progress_to_viewer(answers: Any) -> None:
    """An archive's page shows how far a running task has got; what isn't progress is left out."""
    shown = answers["viewer /kafka-drain/archives/drain_a"][1]
    other = answers["viewer /kafka-drain/archives/drain_new"][1]

    assert "drain_a, drain" in shown
    assert ": running, 1,200 of 5,000 offsets (24 %), 60/s, 1 min 3 s left" in shown
    assert 'href="http://driver:4040"' in shown
    assert 'http-equiv="refresh" content="3"' in shown
    assert ">Progress<" not in other
    assert 'http-equiv="refresh" content="30"' in other


def test_receipt_to_viewer(answers: Any) -> None:
    """A receipt is shown as it was sealed; no other file is."""
    status, text, headers = answers[f"viewer {URLS[9]}"]
    assert status == 200
    assert json.loads(text)["generation"] == 1
    assert headers["content-type"] == "application/json"
    for url in URLS[10:13]:
        assert answers[f"viewer {url}"][0] == 404


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("user", ["nobody", "forger"])
def test_archives_without_login(answers: Any, user: str, url: str) -> None:
    """Without a login nothing is told."""
    status, text, _ = answers[f"{user} {url}"]

    assert status == {"nobody": 401, "forger": 403}[user]
    assert "drain_a" not in text.replace(url, "")


def test_archives_to_stranger(answers: Any) -> None:
    """Who may read no DAG sees no archive, and no report."""
    shown = [answers[f"stranger {url}"] for url in URLS]

    assert {status for status, _, _ in shown[2:]} == {403}
    for status, text, _ in shown[:2]:
        assert status in (200, 403)
        assert "complete" not in text.replace("color-scheme", "")


def test_archives_in_navigation(answers: Any) -> None:
    """Airflow's navigation leads to the page."""
    [view] = answers["views"]

    assert (view["href"], view["destination"]) == (PAGE, "nav")

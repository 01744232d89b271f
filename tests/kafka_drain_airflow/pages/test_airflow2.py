"""The pages in Airflow 2's webserver, below a base URL with a path: permissions, menu, links."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from demo.airflow_pages import NOBODY, VIEWER, PageAnswer, Scene, ask
from tests.kafka_drain.golden import sealed_copy

pytestmark = pytest.mark.skipif(AIRFLOW_V_3_0_PLUS, reason="Airflow 3 has no Flask webserver")

BASE = "/data/airflow"
ARCHIVES = f"{BASE}/kafka-drain/archives"
OWN = [
    f"{ARCHIVES}/drain_a",
    f"{ARCHIVES}/drain_a/report",
    f"{ARCHIVES}/drain_a/receipts/1/000000000012.json",
    f"{BASE}/kafka-drain/reports/drain_a?run_id=run+1",
]
OTHERS = [url.replace("drain_a", "drain_b") for url in OWN]
LINK = {
    "dag_id": "drain_a",
    "task_id": "validate",
    "execution_date": "2026-01-01T00:00:00+00:00",
    "link_name": "Report",
}
DAG_FILE = """
from kafka_drain_airflow import Pipeline, create_dags
for name, root in {roots!r}.items():
    create_dags(Pipeline(name=name, topics=["t"], archive=root))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PageAnswer]:
    """Responses of a separate Airflow, by user and URL."""
    folder = tmp_path_factory.mktemp("flask")
    root = sealed_copy(folder / "archive").root
    report = root / "reports" / "run_1.json"
    report.parent.mkdir(exist_ok=True)
    report.with_suffix(".html").write_text("<!DOCTYPE html><title>the report</title>")
    # A DAG file may not have two pipelines with one archive.
    roots = {"a": str(root), "b": str(sealed_copy(folder / "other").root)}
    dags = folder / "dags"
    dags.mkdir()
    (dags / "pipelines.py").write_text(DAG_FILE.format(roots=roots))
    noted = {"dag_id": "drain_a", "run_id": "run 1", "task_id": "validate"}
    scene: Scene = {
        "dag_files": str(dags),
        "runs": {"drain_a": {"run 1": "success"}},
        "xcoms": [{**noted, "key": "report", "value": str(report)}],  # type: ignore[typeddict-item]
    }
    urls = [ARCHIVES, f"{BASE}/kafka-drain/api/archives", *OWN, *OTHERS]
    users = (VIEWER, "guest", "without_xcoms", "homeless", NOBODY)
    requests = {f"{user} {url}": (user, url) for user in users for url in urls}
    requests |= {
        "home": (VIEWER, f"{BASE}/home"),
        "home of a stranger": ("stranger", f"{BASE}/home"),
        "link": (VIEWER, f"{BASE}/extra_links?{urlencode(LINK)}"),
        "two DAGs": ("guest", f"{OTHERS[0]}?dag_id=drain_a"),
    }
    base_url = f"http://127.0.0.1:8080{BASE}"
    return ask(folder, scene, requests, {"AIRFLOW__WEBSERVER__BASE_URL": base_url})


def test_archives_of_dag_files(answers: dict[str, PageAnswer]) -> None:
    """The list has what Airflow itself has noted of the DAGs, with addresses below its own."""
    text = answers[f"{VIEWER} {ARCHIVES}"].text

    assert f'href="{ARCHIVES}/drain_a"' in text
    assert f'href="{ARCHIVES}/drain_b"' in text
    assert f'href="{BASE}/dags/drain_a/grid?dag_run_id=run+1"' in text
    assert f'href="{BASE}/home"' in text


def test_archives_in_menu(answers: dict[str, PageAnswer]) -> None:
    """Users who see DAGs in the menu see the archives, and no one else does."""
    item = f'<a href="{ARCHIVES}">Kafka archives</a>'

    assert item in answers["home"].text
    assert answers["home of a stranger"].status == 200
    assert item not in answers["home of a stranger"].text


def test_report_linked(answers: dict[str, PageAnswer]) -> None:
    """The Report button of a task instance links to its report."""
    url = json.loads(answers["link"].text)["url"]

    assert url == f"{BASE}/kafka-drain/reports/drain_a?run_id=run+1&task_id=validate"
    assert "the report" in answers[f"{VIEWER} {OWN[3]}"].text


def test_archives_to_guest(answers: dict[str, PageAnswer]) -> None:
    """A user who may read one DAG sees its archive, and nothing of others."""
    assert "drain_b" not in answers[f"guest {ARCHIVES}"].text
    assert "drain_a" in answers[f"guest {ARCHIVES}"].text
    assert [answers[f"guest {url}"].status for url in OWN] == [200, 404, 200, 200]
    for url in OTHERS:
        assert answers[f"guest {url}"].status == 302
        assert answers[f"guest {url}"].headers["location"] == f"{BASE}/home"
    assert answers["two DAGs"].status == 403


@pytest.mark.parametrize("url", [*OWN, *OTHERS])
def test_archive_without_right_to_xcoms(answers: dict[str, PageAnswer], url: str) -> None:
    """A user who may read DAGs but no XComs can't see an archive's page, report or receipt."""
    assert answers[f"without_xcoms {url}"].status == 302
    assert answers[f"without_xcoms {url}"].headers["location"] == f"{BASE}/home"


@pytest.mark.parametrize("url", [ARCHIVES, f"{BASE}/kafka-drain/api/archives", *OWN, *OTHERS])
def test_archives_without_role(answers: dict[str, PageAnswer], url: str) -> None:
    """A user without permissions sees nothing; without a login, the pages redirect to it."""
    refused, answer = answers[f"homeless {url}"], answers[f"{NOBODY} {url}"]

    assert refused.status == 403
    assert answer.status == (403 if "/api/" in url else 302)
    assert answer.status == 403 or answer.headers["location"].startswith(f"{BASE}/login/?next=")
    for text in (refused.text, answer.text.replace(url, "")):
        assert "sealed" not in text
        assert "the report" not in text

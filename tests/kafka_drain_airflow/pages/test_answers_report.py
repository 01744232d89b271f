"""Who may see a report in Airflow's UI, and which files are never served."""

from __future__ import annotations

import html
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from demo.airflow_pages import FORGER, NOBODY, VIEWER, PageAnswer, ask
from kafka_drain.archive.archive import Archive
from kafka_drain_airflow.observability import report_link

PAGE = "<!DOCTYPE html><title>the report</title>"


def link(run_id: str, xcoms: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the target of the Report button, given the task's XComs."""
    known = SimpleNamespace(get_value=lambda *, ti_key, key: xcoms.get(key))
    monkeypatch.setattr(report_link, "XCom", known)
    key: Any = SimpleNamespace(dag_id="drain_p", run_id=run_id, task_id="validate", map_index=-1)
    operator: Any = None
    return report_link.ReportLink().get_link(operator, ti_key=key)


def url(run_id: str, dag_id: str = "drain_p") -> str:
    return f"/kafka-drain/reports/{dag_id}?run_id={run_id}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Paths that an XCom might contain, none of them a report's."""
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
def answers(
    hostile: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, PageAnswer]:
    """Status, text and headers of each answer."""
    folder = tmp_path_factory.mktemp("answers_report")
    reports = folder / "archive" / "reports"
    reports.mkdir(parents=True)
    archive = Archive.at(str(folder / "archive"))
    archive.create(pipeline="p", cluster_id="c", topic_ids={}, source={})
    (reports / "run_1.html").write_text(PAGE)
    requests = {
        "viewer": (VIEWER, url("run%2B1")),
        "anonymous": (NOBODY, url("run%2B1")),
        "forger": (FORGER, url("run%2B1")),
        "stranger": ("stranger", url("run%2B1")),
        "anonymous, no such run": (NOBODY, url("run9")),
        "no such run": (VIEWER, url("run9")),
        "no run": (VIEWER, "/kafka-drain/reports/drain_p"),
        "another DAG": (VIEWER, url("run%2B1", "drain_q")),
        "all DAGs": (VIEWER, url("run%2B1", "~")),
        "another map index": (VIEWER, url("run%2B1") + "&map_index=0"),
        "docs": (NOBODY, "/kafka-drain/docs"),
        "schema": (NOBODY, "/kafka-drain/openapi.json"),
    }
    requests |= {f"hostile {name}": (VIEWER, url(name)) for name in hostile}
    paths = {"run+1": f"{reports}/run_1.json", **hostile}
    with pytest.MonkeyPatch.context() as monkeypatch:
        requests["linked"] = (VIEWER, link("run+1", {"report": paths["run+1"]}, monkeypatch))
    noted = {"dag_id": "drain_p", "task_id": "validate", "key": "report"}
    return ask(
        folder,
        {
            "runs": {"drain_p": dict.fromkeys(paths, "success")},
            "xcoms": [{**noted, "run_id": run, "value": paths[run]} for run in paths],  # type: ignore[typeddict-item]
        },
        requests,
    )


def test_report_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """A user who may read the DAG's XComs sees the page, in which nothing runs or loads."""
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
def test_report_without_right(who: str, status: int, answers: dict[str, PageAnswer]) -> None:
    """Other users learn nothing, not even which runs exist; Airflow 2 redirects them."""
    assert answers[who][0] == (status if AIRFLOW_V_3_0_PLUS else 302)
    assert "archive" not in answers[who][1]


@pytest.mark.parametrize("case", ["no such run", "another DAG", "all DAGs", "another map index"])
def test_report_not_written(case: str, answers: dict[str, PageAnswer]) -> None:
    """A task instance without a report gets a 404 that says so."""
    status, text, _ = answers[case]

    assert status == 404
    assert "wrote no report; its log says why" in text


def test_report_without_run(answers: dict[str, PageAnswer]) -> None:
    """The run is required."""
    assert answers["no run"][0] == (422 if AIRFLOW_V_3_0_PLUS else 404)


def test_report_of_hostile_path(answers: dict[str, PageAnswer], hostile: dict[str, Any]) -> None:
    """A path that isn't an archive's report is never served, whatever the XCom contains."""
    seen = {name: answers[f"hostile {name}"] for name in hostile}

    assert {name: answer[0] for name, answer in seen.items()} == dict.fromkeys(hostile, 404)
    told = [html.unescape(answer.text) for answer in seen.values()]
    assert all("isn't the report of an archive" in text for text in told)


@pytest.mark.parametrize("page", ["docs", "schema"])
def test_report_tells_nothing_else(page: str, answers: dict[str, PageAnswer]) -> None:
    """FastAPI's built-in pages are disabled, because they would need no login."""
    assert answers[page][0] == 404


def test_report_link(answers: dict[str, PageAnswer], monkeypatch: pytest.MonkeyPatch) -> None:
    """The link opens the report, and there is no link without a report."""
    assert link("run+1", {}, monkeypatch) == ""
    assert answers["linked"][:2] == (200, PAGE)

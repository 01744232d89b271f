"""The page of all archives, with a real Airflow's login and database, in its own process."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from demo.airflow_pages import BROWSER, FORGER, LOOKER, NOBODY, VIEWER, PageAnswer, Scene, ask
from kafka_drain.findings import Reason
from kafka_drain.proof.report import note_overview, write_report
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import P1, sealed_copy
from tests.tables import each_of

PROGRESS = {
    "job": "drain",
    "name": "a",
    "done": 1200,
    "total": 5000,
    "unit": "offsets",
    "percent": 24,
    "rate": "60/s",
    "left": "1 min 3 s",
    "spark_ui": "http://driver:4040",
    "at": "2026-11-22T11:00:00+00:00",
}
#: What a task has said of a server that doesn't answer.
AWAY = "waiting: no response from Kafka at k:9092 within 3 s"
RESTORED = PROGRESS | {"job": "republish", "unit": "records", "done": 77}
RUN = "/dags/drain_a/runs/run%2B" if AIRFLOW_V_3_0_PLUS else "/dags/drain_a/grid?dag_run_id=run%2B"
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
    "/kafka-drain/archives/drain_a/report?embedded=true&colours=dark",
    "/kafka-drain/archives/drain_a/report?colours=<b>",
    "/kafka-drain/archives/drain_b",
    "/kafka-drain/archives/drain_lost",
    "/kafka-drain/restores",
    "/kafka-drain/archives/drain_golden/receipts/1/000000000012.json/page",
    "/kafka-drain/archives/drain_lost/report",
    "/kafka-drain/archives/drain_lost/report.json",
    "/kafka-drain/archives/drain_lost/report?colours=light",
    "/kafka-drain/archives/drain_cleared",
]
SOME = ("guest", "without_xcoms", "without_runs", "without_group")


USERS = (VIEWER, "stranger", FORGER, NOBODY)


def lose_a_file(folder: Path) -> Path:
    """Return an archive whose validation found that a file of one partition is missing."""
    archive = sealed_copy(folder)
    newest = list(archive.generation(1).receipts())[-1]
    [lost] = [file for file in newest.files if {c.tp for c in file.contents} == {P1}]
    (folder / lost.path).unlink()
    report = validate_archive(archive, None)
    note_overview(archive, report, write_report(archive, report, "lost"))
    return name_pipeline(folder, "lost")


def name_pipeline(folder: Path, name: str) -> Path:
    """Let an archive's overview be of a pipeline, and return the archive's folder."""
    overview = json.loads((folder / "overview.json").read_text())
    (folder / "overview.json").write_text(json.dumps(overview | {"pipeline": name}))
    return folder


def at(clock: str) -> str:
    """Return a time on the day of the validation, which takes place at 11:00."""
    return f"2026-11-22T{clock}:00+00:00"


#: For one validated archive: runs by date, their start and end, and their tasks.
PROVEN: dict[str, tuple[dict[str, str], dict[str, tuple[str, str]], list[Any]]] = {
    # The older of two runs was cleared, and has failed.
    "cleared": (
        {"r1": "failed", "r2": "success"},
        {"r1": (at("11:30"), at("11:40")), "r2": (at("10:50"), at("11:01"))},
        [("drain_cleared", "r2", "validate", "success")],
    ),
    # A manual validation took place while the run was draining.
    "by_hand": ({"r1": "failed"}, {"r1": (at("10:50"), at("11:20"))}, []),
    # A backfill of old intervals, and later runs that were validated.
    "backfilled": (
        {"r0": "failed"} | {f"s{number}": "success" for number in range(9)},
        {"r0": (at("11:30"), at("11:40"))}
        | {f"s{number}": (at("10:50"), at("11:01")) for number in range(9)},
        [("drain_backfilled", f"s{number}", "validate", "success") for number in range(9)],
    ),
    # Everything was validated afterwards.
    "since": (
        {"r1": "failed", "r2": "success"},
        {"r1": (at("10:30"), at("10:40")), "r2": (at("10:50"), at("11:01"))},
        [("drain_since", "r2", "validate", "success")],
    ),
    # The failure came after the validation, which proved everything that the run drained.
    "validated": (
        {"r1": "failed"},
        {"r1": (at("10:50"), at("11:20"))},
        [("drain_validated", "r1", "validate", "success")],
    ),
}


#: Tasks that have failed, with what they say; None of one that was killed.
FAILURES = [
    ("drain_cleared", "r1", "preflight", "orders doesn't exist;\ncreate it"),
    ("drain_group_g", "run+9", "drain", "the group's own secret"),
    ("drain_by_hand", "r1", "drain", None),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PageAnswer]:
    """Responses of a separate Airflow, by user and URL: status, text and headers."""
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
        **dict.fromkeys(("partitions", "generations", "windows", "unsealed_segments"), 0),
        "findings": {},
        "gaps": {},
        **dict.fromkeys(("sealed_at", "newest_record", "lag", "expires_at")),
    }
    (validated / "overview.json").write_text(json.dumps(overview))
    dags = {
        "drain_a": f"file://{validated}",
        "drain_new": f"file://{new}",
        "drain_web": "http://127.0.0.1:1/archive",
        "drain_store": "s3://bucket/archive",
        "drain_golden": f"file://{sealed_copy(folder / 'golden').root}",
        "drain_b": f"file://{folder / 'b'}",
        "other": f"file://{validated}/",
        "drain_lost": f"file://{lose_a_file(folder / 'lost')}",
    }
    runs = {f"run+{number}": "success" for number in range(9)} | {"run+9": "failed"}
    scene: Scene = {"dags": dags, "runs": dict.fromkeys(dags, runs), "xcoms": []}
    # A user's own DAG, in which tasks republish, maintain, and claim what isn't so.
    scene["groups"] = {"drain_group_g": ["drain_b"], "elt": []}
    scene["runs"] = {**scene["runs"], "drain_b": {"run+0": "failed"}, "drain_group_g": runs}
    scene["runs"] = {**scene["runs"], "elt": {"run+0": "running"}}
    told = {"pipeline": "a", "archive": str(validated), "is_restore": True}
    for task, key, value in (
        *(("send", "archive", told), ("send", "progress", RESTORED)),
        ("send", "waiting", {"said": AWAY}),
        *(("tidy", "archive", told | {"is_restore": False}), ("tidy", "progress", PROGRESS)),
        # It answers again.
        ("tidy", "waiting", {}),
        *(("odd", "archive", [told]), ("far", "archive", told | {"archive": "/other"})),
        *(("done", "archive", told), ("text", "archive", told | {"is_restore": "no"})),
    ):
        scene["xcoms"].append(
            {"dag_id": "elt", "run_id": "run+0", "task_id": task, "key": key, "value": value}
        )
    scene["tasks"] = [("elt", "run+0", "done", "success")]
    for name, (states, times, tasks) in PROVEN.items():
        copy = name_pipeline(shutil.copytree(validated, folder / name), name)
        dags[f"drain_{name}"] = f"file://{copy}"
        scene["runs"] = {**scene["runs"], f"drain_{name}": states}
        scene["times"] = {**scene.get("times", {}), f"drain_{name}": times}
        scene["tasks"] = [*scene.get("tasks", []), *tasks]
    # Two tasks of failed runs have said why; a third one was killed.
    for dag_id, run_id, task_id, problem in FAILURES:
        scene["tasks"] = [*scene["tasks"], (dag_id, run_id, task_id, "failed")]
        if problem:
            said = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "key": "problem"}
            scene["xcoms"].append({**said, "value": problem})  # type: ignore[typeddict-item]
    for key, value in (
        ("progress", PROGRESS),
        ("return_value", {"b": {"offsets": 777, "seconds": 2.0}, "c": {"offsets": 1}}),
    ):
        noted = {"dag_id": "drain_group_g", "run_id": "run+9", "task_id": "drain"}
        scene["xcoms"].append({**noted, "key": key, "value": value})  # type: ignore[typeddict-item]
    for number, dag_id in enumerate(
        name for name in dags if name != "drain_b" and name.removeprefix("drain_") not in PROVEN
    ):
        # Any task may write an XCom with that name; a window's drain returns other fields.
        progress: Any = "mine" if number % 2 else PROGRESS
        result = {"plan": 1} if number % 2 else {"offsets": 9000, "seconds": 6.0}
        for run_id, key, value in (
            ("run+9", "progress", progress),
            ("run+8", "return_value", result),
        ):
            noted = {"dag_id": dag_id, "run_id": run_id, "task_id": "drain"}
            scene["xcoms"].append({**noted, "key": key, "value": value})  # type: ignore[typeddict-item]
    # For one archive, Spark is starting in a newer run; for another, the task has finished.
    scene["runs"] = {**scene["runs"], "drain_golden": runs | {"run+10": "running"}}
    scene["tasks"] = [
        *scene["tasks"],
        ("drain_golden", "run+10", "drain", "running"),
        ("drain_web", "run+9", "drain", "success"),
    ]
    environment = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_MAX_ATTEMPTS": "1",
    }
    requests = {f"{user} {url}": (user, url) for user in USERS for url in URLS}
    requests |= {f"{user} {url}": (user, url) for user in SOME for url in URLS}
    requests |= {f"{user} {url}": (user, url) for user in (BROWSER, LOOKER) for url in URLS}
    requests["menu"] = (VIEWER, "/home")
    return ask(folder, scene, requests, environment)


def test_archives_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """A user who may read the DAGs sees their archives, and why some can't be read."""
    status, text, _ = answers[f"viewer {DATA}"]

    assert status == 200
    rows = {row["name"]: row for row in json.loads(text)["archives"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "a": "complete",
        "new": "not validated",
        "web": "unreadable",
        "store": "unreadable",
        "golden": "not validated",
        "b": "not validated",
        "lost": "findings",
        **dict.fromkeys(PROVEN, "complete"),
    }
    assert rows["a"]["overview"]["files"] == 7
    # Its archive.json is damaged.
    states = {"a": "not_ready", "new": "not_ready", "web": "unknown", "golden": "unknown"}
    assert {name: rows[name]["state"] for name in states} == states
    assert rows["golden"]["sentence"].startswith("golden: unknown: it was never validated")
    assert rows["golden"]["why"] == ["it was never validated"]
    assert "isn't in a store that this server may access" in rows["web"]["problem"]


def test_archives_run_that_ended_last(answers: dict[str, PageAnswer]) -> None:
    """An archive is complete only until a later run fails, regardless of the run's date."""
    _, text, _ = answers[f"viewer {DATA}"]

    rows = {row["name"]: row["standing"] for row in json.loads(text)["archives"]}
    assert {name: rows[name] for name in PROVEN} == {
        "cleared": "was complete, last run failed",
        "by_hand": "was complete, last run failed",
        "backfilled": "was complete, last run failed",
        "since": "complete",
        "validated": "complete",
    }


def test_archives_failed_run(answers: dict[str, PageAnswer]) -> None:
    """List and page say why the last run failed, in the words of its task, to whom may see it."""
    listed = html.unescape(answers[f"viewer {PAGE}"].text)
    page = html.unescape(answers["viewer /kafka-drain/archives/drain_cleared"].text)

    for text in (listed, page):
        assert "preflight: orders doesn't exist; create it" in text
    assert "drain: failed, and its log says why" in listed
    assert "the group's own secret" in listed
    hidden = html.unescape(answers[f"without_group {PAGE}"].text)
    assert "drain_b" in hidden
    assert "the group's own secret" not in hidden


def test_archives_page_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """The page links to archive, report and the last eight runs, and allows no foreign scripts."""
    status, text, headers = answers[f"viewer {PAGE}"]

    assert status == 200
    assert 'href="/kafka-drain/archives/drain_a"' in text
    assert re.search(r'<p class="verdict findings">\d+ archives: \d+ not ready, \d+ unknown<', text)
    assert 'href="/kafka-drain/archives/drain_a/report"' in text
    assert f'href="{RUN}9"' in text
    assert text.count(f'href="{RUN}') == 8
    # In Airflow 2, no frame with a link back surrounds the page.
    assert ('href="/home"' in text) is not AIRFLOW_V_3_0_PLUS
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe-inline'; script" in policy  # of styles only


@pytest.mark.parametrize("url", [PAGE, f"{PAGE}/drain_a"])
def test_page_script_is_the_policys(answers: dict[str, PageAnswer], url: str) -> None:
    """The page's only script is exactly the one that its policy allows."""
    _, text, headers = answers[f"viewer {url}"]

    [script] = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in headers["content-security-policy"]


@pytest.mark.parametrize(
    ("url", "status"),
    [
        (URLS[2], 200),
        (URLS[3], 404),
        (URLS[4], 404),
        (URLS[13], 200),
        (URLS[14], 422 if AIRFLOW_V_3_0_PLUS else 200),
    ],
)
def test_newest_report_to_viewer(answers: dict[str, PageAnswer], url: str, status: int) -> None:
    """The newest report is shown, or the reason why there is none."""
    assert answers[f"viewer {url}"][0] == status


def test_newest_report_coloured(answers: dict[str, PageAnswer]) -> None:
    """A page that embeds the report may choose its colors."""
    plain, dark, other = (answers[f"viewer {url}"][1] for url in (URLS[2], *URLS[13:15]))

    assert plain == '<html lang="en"><title>the report</title>'
    assert dark == '<html lang="en" class="dark"><title>the report</title>'
    assert 'class="<b>"' not in other
    policy = answers[f"viewer {URLS[13]}"].headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert policy.endswith("; sandbox allow-same-origin")


@pytest.mark.parametrize("url", [*URLS[2:13], *URLS[18:22]])
def test_links_in_airflows_frame(answers: dict[str, PageAnswer], url: str) -> None:
    """Every answer is of Airflow's origin: from another, a link in a frame takes no login along."""
    policy = answers[f"viewer {url}"].headers["content-security-policy"]

    assert "sandbox" not in policy or policy.endswith("; sandbox allow-same-origin")
    # Scripts run in our own pages alone: the files of an archive are somebody else's.
    assert ("script-src" in policy) is not ("sandbox" in policy)
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy


def test_report_linked_in_colours(answers: dict[str, PageAnswer]) -> None:
    """A report that is opened in Airflow's frame has its colours, and a way back."""
    text = answers[f"viewer {URLS[21]}"].text

    assert '<html lang="en" class="light">' in text
    assert 'href="/kafka-drain/archives/drain_lost"' in text


def test_archive_before_the_first_drain(answers: dict[str, PageAnswer]) -> None:
    """An archive that nothing was drained to is new, not damaged, on its page as in the list."""
    text = answers["viewer /kafka-drain/archives/drain_new"].text

    assert "Nothing has been sealed yet" in text
    assert "Not validated" in text
    assert "expected an archive" not in text


def test_archive_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """An archive's page shows its runs and receipts, or why the archive can't be read."""
    shown = {url: answers[f"viewer {url}"] for url in URLS}

    golden = shown["/kafka-drain/archives/drain_golden"]
    assert golden[0] == 200
    assert "/archives/drain_golden/receipts/1/000000000012.json" in golden[1]
    assert "script-src 'sha256-" in golden[2]["content-security-policy"]
    for name in ("drain_a", "drain_web"):
        assert shown[f"/kafka-drain/archives/{name}"][0] == 200
    assert "in a store that this server may access" in shown["/kafka-drain/archives/drain_web"][1]


def test_archive_throughput_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """An archive's page shows the throughput of its drains; other results are left out."""
    shown = answers["viewer /kafka-drain/archives/drain_golden"][1]
    other = answers["viewer /kafka-drain/archives/drain_new"][1]

    assert "9,000 offsets in 6.0 s" in shown
    assert "Throughput" not in other


def test_archive_progress_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """An archive's page shows the progress of running tasks; invalid progress is left out."""
    shown = answers["viewer /kafka-drain/archives/drain_a"][1]
    other = answers["viewer /kafka-drain/archives/drain_new"][1]

    assert "drain_a, drain" in shown
    assert ": running, 1,200 of 5,000 offsets (24 %), 60/s, 1 min 3 s left" in shown
    assert 'href="http://driver:4040"' in shown
    assert 'http-equiv="refresh" content="3"' in shown
    assert ": running, no progress yet<" in other
    assert "1,200" not in other


def test_archive_of_a_lost_file_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """The map is red where a file is missing, and an outline where nothing is proven."""
    lost = answers["viewer /kafka-drain/archives/drain_lost"][1]
    unproven = answers["viewer /kafka-drain/archives/drain_golden"][1]

    assert lost.count('height="12.00" class="damaged"') == 1
    assert 'height="12.00" class="covered"' in lost
    assert "findings" in lost.split("<h1>")[1].split("</dl>")[0]
    assert 'height="12.00" class="unproven"' in unproven
    assert 'class="covered"' not in unproven


def test_archive_progress_of_the_newest_run(answers: dict[str, PageAnswer]) -> None:
    """While a run starts Spark, the previous run isn't shown; a finished run shows its result."""
    starts = answers["viewer /kafka-drain/archives/drain_golden"][1]
    ended = answers["viewer /kafka-drain/archives/drain_web"][1]

    assert "drain_golden, drain</a>: running, no progress yet<" in starts
    assert "1,200" not in starts
    assert 'http-equiv="refresh" content="3"' in starts
    assert "drain_web, drain</a>: success, 5,000 of 5,000 offsets (100 %), " in ended
    assert 'http-equiv="refresh" content="30"' in ended


def test_grouped_archive_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """The page of an archive drained by a group's DAG shows that DAG's runs and progress."""
    listed = answers[f"viewer {PAGE}"][1]
    shown = answers["viewer /kafka-drain/archives/drain_b"][1]

    assert listed.count(f'href="{RUN.replace("drain_a", "drain_group_g")}') == 8
    assert f'href="{RUN.replace("drain_a", "drain_group_g")}9"' in listed
    assert "777 offsets in 2.0 s" in shown
    assert "drain_group_g, drain" in shown


def test_receipt_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """A receipt is served exactly as it was sealed; no other file is served."""
    status, text, headers = answers[f"viewer {URLS[9]}"]
    assert status == 200
    assert json.loads(text)["generation"] == 1
    assert headers["content-type"] == "application/json"
    for url in URLS[10:13]:
        assert answers[f"viewer {url}"][0] == 404


@each_of("url", URLS)
@each_of("user", [NOBODY, FORGER])
def test_archives_without_login(answers: dict[str, PageAnswer], user: str, url: str) -> None:
    """Without a login nothing is disclosed; Airflow 2 redirects to it."""
    status, text, headers = answers[f"{user} {url}"]

    if AIRFLOW_V_3_0_PLUS:
        assert status == {NOBODY: 401, FORGER: 403}[user]
    elif url == DATA:
        assert status == 403
    else:
        assert status == 302
        assert headers["location"].startswith("/login/?next=")
    assert "drain_a" not in text.replace(url.partition("?")[0], "")


def test_archives_to_stranger(answers: dict[str, PageAnswer]) -> None:
    """A user who may read no DAG sees no archive and no report."""
    lists = (PAGE, DATA, "/kafka-drain/restores")
    shown = [answers[f"stranger {url}"] for url in lists]
    other = [answers[f"stranger {url}"] for url in URLS if url not in lists]

    assert {status for status, _, _ in other} == {403 if AIRFLOW_V_3_0_PLUS else 302}
    for status, text, _ in shown:
        assert status in (200, 403)
        assert "complete" not in text.replace("color-scheme", "")
        assert "drain_a" not in text


def test_archives_of_a_browser_without_login(answers: dict[str, PageAnswer]) -> None:
    """A browser without a login is sent to Airflow's login page, and from there back."""
    for url in URLS:
        status, text, headers = answers[f"{BROWSER} {url}"]
        if not AIRFLOW_V_3_0_PLUS:
            assert status == (403 if url == DATA else 302)
            continue
        assert (status, text) == (303, "")
        asked = url.replace("<b>", "%3Cb%3E")
        assert headers["location"] == f"/api/v2/auth/login?{urlencode({'next': asked})}"


@pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 redirects to its home page")
def test_archives_of_a_browser_without_rights(answers: dict[str, PageAnswer]) -> None:
    """A browser gets a page that says what it takes, with a way back."""
    status, text, headers = answers[f"{LOOKER} /kafka-drain/archives/drain_a"]

    assert status == 403
    assert headers["content-type"].startswith("text/html")
    assert "the rights to read this DAG, its runs, its tasks and its XComs" in text
    assert f'href="{PAGE}"' in text


def test_archives_to_guest(answers: dict[str, PageAnswer]) -> None:
    """Who may read one DAG sees its archive and restores, and nothing of others."""
    listed, data = answers[f"guest {PAGE}"].text, answers[f"guest {DATA}"].text

    assert [row["name"] for row in json.loads(data)["archives"]] == ["a"]
    for text in (listed, data, answers["guest /kafka-drain/restores"].text):
        assert "drain_golden" not in text
        assert "drain_b" not in text
    assert answers["guest /kafka-drain/archives/drain_a"].status == 200
    refused = [answers[f"guest {url}"].status for url in URLS if "/drain_golden" in url]
    assert set(refused) == {403 if AIRFLOW_V_3_0_PLUS else 302}


@pytest.mark.parametrize("user", ["without_xcoms", "without_runs"])
def test_archives_without_a_right(answers: dict[str, PageAnswer], user: str) -> None:
    """Who may read DAGs, but not their runs or XComs, sees no archive: a page shows those too."""
    assert json.loads(answers[f"{user} {DATA}"].text) == {"archives": []}
    assert "drain_a" not in answers[f"{user} {PAGE}"].text
    others = [url for url in URLS if url.startswith(f"{PAGE}/drain_")]
    assert {answers[f"{user} {url}"].status for url in others} == (
        {403} if AIRFLOW_V_3_0_PLUS else {302}
    )


def test_archives_without_the_group(answers: dict[str, PageAnswer]) -> None:
    """Runs of a group's DAG that a user may not see still tell how the archive stands."""
    rows = json.loads(answers[f"without_group {DATA}"].text)["archives"]
    page = answers["without_group /kafka-drain/archives/drain_b"].text

    assert {row["name"]: row["standing"] for row in rows}["b"] == "not validated, last run failed"
    for text in (page, answers[f"without_group {PAGE}"].text):
        assert "drain_group_g" not in text


def test_receipt_page_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """A receipt is a page too, with links to its archive and to the receipt as it was sealed."""
    status, text, _ = answers[f"viewer {URLS[18]}"]

    assert status == 200
    assert 'href="/kafka-drain/archives/drain_golden"' in text
    assert f'href="{URLS[9]}"' in text


def test_report_to_viewer_has_a_way_back(answers: dict[str, PageAnswer]) -> None:
    """A report of its own page links to its archive and its JSON; an embedded one doesn't."""
    text = answers[f"viewer {URLS[19]}"].text
    page = answers["viewer /kafka-drain/archives/drain_lost"].text

    assert 'href="/kafka-drain/archives/drain_lost"' in text
    assert text.count('href="/kafka-drain/archives/drain_lost/report.json"') == 2
    status, document, headers = answers[f"viewer {URLS[20]}"]
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(document)["verdict"] == "findings"
    assert '<iframe src="/kafka-drain/archives/drain_lost/report?embedded=true"' in page


def test_archive_says_what_mends_it(
    answers: dict[str, PageAnswer],
) -> None:
    """The page and the list of a red archive have the sentence, and the page has the command."""
    page = html.unescape(answers["viewer /kafka-drain/archives/drain_lost"].text)
    listed = html.unescape(answers[f"viewer {PAGE}"].text)

    assert "Not complete: " in page
    for text in (page, listed):
        assert Reason.FILE_MISSING.meaning[1:] in text
    assert re.search(r"<code>kafka-drain repair /\S+/lost --apply</code>", page)


def test_restores_to_viewer(answers: dict[str, PageAnswer]) -> None:
    """Archives that can't be read are named; the others have no restores yet."""
    status, text, headers = answers["viewer /kafka-drain/restores"]

    assert status == 200
    assert "the restores of" in text
    assert "web: http://127.0.0.1:1/archive isn" in text
    assert headers["content-security-policy"].startswith("default-src 'none'")


def test_restores_of_own_dag(answers: dict[str, PageAnswer]) -> None:
    """A task that republishes in a user's own DAG is shown, whatever the DAG is called."""
    text = answers["viewer /kafka-drain/restores"].text

    assert "elt, send</a>: running, 77 of 5,000 records (24 %), 60/s, 1 min 3 s left" in text
    assert 'http-equiv="refresh" content="3"' in text
    assert f'<p class="warning">{AWAY}</p>' in text
    for other in ("tidy", "odd", "far", "done", "text"):
        assert f"elt, {other}" not in text


def test_archive_progress_of_own_dag(answers: dict[str, PageAnswer]) -> None:
    """What works on an archive in a user's own DAG is on its page, if the user may see that DAG."""
    text = answers["viewer /kafka-drain/archives/drain_a"].text

    assert "elt, send</a>: running, 77 of 5,000 records" in text
    assert "elt, tidy</a>: running, 1,200 of 5,000 offsets" in text
    assert text.count(AWAY) == 1
    assert "elt, done" not in text
    assert "elt, " not in answers["viewer /kafka-drain/archives/drain_golden"].text
    for page in ("archives/drain_a", "restores"):
        status, seen, _ = answers[f"guest /kafka-drain/{page}"]
        assert status == 200
        assert "elt, " not in seen


def test_archives_in_navigation(answers: dict[str, PageAnswer]) -> None:
    """Airflow's navigation links to the page."""
    if AIRFLOW_V_3_0_PLUS:
        from kafka_drain_plugin import KafkaDrainPlugin

        views = KafkaDrainPlugin().external_views
        assert [view["href"] for view in views] == [PAGE, "/kafka-drain/restores"]
        assert {view["destination"] for view in views} == {"nav"}
        assert len({view["url_route"] for view in views}) == 2
    else:
        assert f'<a href="{PAGE}">Kafka archives</a>' in answers["menu"].text
        assert '<a href="/kafka-drain/restores">Kafka restores</a>' in answers["menu"].text

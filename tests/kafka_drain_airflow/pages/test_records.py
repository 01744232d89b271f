"""The page *Records*, with a real Airflow's login and database, in its own process."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

if not AIRFLOW_V_3_0_PLUS:
    pytest.skip("only Airflow 3 has this page", allow_module_level=True)

from demo.airflow_pages import AUDITOR, NOBODY, VIEWER, PageAnswer, ask
from kafka_drain.offsets import TopicPartition
from kafka_drain_airflow.pages import records
from kafka_drain_airflow.pages.database import Place
from kafka_drain_airflow.pages.records import AT_ONCE, page_of
from tests.kafka_drain.made_archive import MadeArchive, dense

A0 = TopicPartition("a", 0)
PAGE = "/kafka-drain/archives/drain_a/records"
LINES = f"{PAGE}.jsonl"
ON = {"AIRFLOW__KAFKA_DRAIN__RECORDS_PAGE": "true", "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO"}
USERS = (AUDITOR, VIEWER, "stranger", NOBODY)

REQUESTS: dict[str, tuple[str, ...]] = {
    **{f"form {user}": (user, PAGE) for user in USERS},
    **{f"find {user}": (user, PAGE, "limit=3") for user in USERS},
    **{f"lines {user}": (user, LINES, "limit=3") for user in USERS},
    **{f"archive {user}": (user, PAGE.removesuffix("/records")) for user in (AUDITOR, VIEWER)},
    "key": (AUDITOR, PAGE, urlencode({"key": "secret-7"})),
    "next": (AUDITOR, PAGE, urlencode({"limit": 3, "trail": "a:1:0:2"})),
    "last": (AUDITOR, PAGE, urlencode([("trail", "a:1:0:2"), ("trail", "a:1:0:5")])),
    "wrong": (AUDITOR, PAGE, urlencode({"key": "hex:secret"})),
    "wrong limit": (AUDITOR, PAGE, urlencode({"limit": "1000000"})),
    "wrong lines": (AUDITOR, LINES, urlencode({"offset": "7"})),
    "large": (AUDITOR, PAGE, urlencode({"topic": "a", "partition": "0", "offset": "20"})),
    "whole": (AUDITOR, LINES, urlencode({"topic": "a", "partition": "0", "offset": "20"})),
    "other": (AUDITOR, "/kafka-drain/archives/drain_none/records", "limit=3"),
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, str]]]:
    """An archive whose records look dangerous, one of them large, and its DAG."""
    folder = tmp_path_factory.mktemp("records")
    made = MadeArchive(folder / "a", {"a": "id"})
    made.seal({A0: dense(0, 20)}, value=b"<script>alert(1)</script>", key=b"secret-7")
    made.seal({A0: dense(20, 21)}, value=b"\xff" * 5_000_000, key=None)
    made.open_generation()
    return folder, {"dags": {"drain_a": f"file://{made.root}"}}


@pytest.fixture(scope="module")
def answers(scene: tuple[Path, dict[str, dict[str, str]]]) -> dict[str, PageAnswer]:
    """Responses of a separate Airflow that shows records."""
    folder, content = scene
    return ask(folder, content, REQUESTS, ON)  # type: ignore[arg-type]


def test_records_own_right(answers: dict[str, PageAnswer]) -> None:
    """Who may only read the DAG sees no record and no link; without a login, nobody does."""
    for what in ("form", "find", "lines"):
        assert answers[f"{what} {AUDITOR}"].status == 200
        assert {answers[f"{what} {user}"].status for user in (VIEWER, "stranger")} == {403}
        assert answers[f"{what} {NOBODY}"].status == 401
        for user in USERS[1:]:
            assert "secret-7" not in answers[f"{what} {user}"].text
    assert f'href="{PAGE}"' in answers[f"archive {AUDITOR}"].text
    assert PAGE not in answers[f"archive {VIEWER}"].text


def test_records_found(answers: dict[str, PageAnswer]) -> None:
    """A page has as many records as wanted, escaped, and leads to the next and previous one."""
    first, following, last = (answers[name] for name in (f"find {AUDITOR}", "next", "last"))

    assert first.text.count('data-label="record"') == 3
    assert "<script>alert" not in first.text
    assert "&lt;script&gt;alert(1)" in first.text
    assert 'name="trail" value="a:1:0:2"' in first.text
    assert "Previous" not in first.text
    assert following.text.count('data-label="record"') == 3
    assert "Previous" in following.text
    assert last.text.count('data-label="record"') == 15
    assert ">Next<" not in last.text
    assert answers["key"].text.count('data-label="record"') == 20


def test_records_large(answers: dict[str, PageAnswer]) -> None:
    """A value of 5 MB is cut on the page, and whole in the download; bytes are digits."""
    assert len(answers["large"].text) < 50_000
    assert "10,000,004 characters" in answers["large"].text
    [record] = map(json.loads, answers["whole"].text.splitlines())
    assert record["value"] == "ff" * 5_000_000
    assert record["value_format"] == "hex"
    assert record["key"] is None
    assert "attachment" in answers["whole"].headers["content-disposition"]


def test_records_refused(answers: dict[str, PageAnswer]) -> None:
    """What isn't acceptable is said, without what was looked for beyond the form itself."""
    assert "key begins with hex:" in answers["wrong"].text
    assert "accepted: 1 to 1,000" in answers["wrong limit"].text
    assert answers["wrong lines"].status == 400
    assert answers["other"].status in (403, 404)


def test_records_headers(answers: dict[str, PageAnswer]) -> None:
    """The form is sent here only, nothing is loaded, and no cache keeps records."""
    for name in (f"form {AUDITOR}", f"find {AUDITOR}", f"lines {AUDITOR}"):
        headers = answers[name].headers
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "form-action http" not in headers["content-security-policy"]
    policy = answers[f"form {AUDITOR}"].headers["content-security-policy"]
    assert "form-action 'self'" in policy


def test_records_off(scene: tuple[Path, dict[str, dict[str, str]]]) -> None:
    """Unless the server is told to, nobody sees records."""
    folder, content = scene
    requests = {name: REQUESTS[name] for name in (f"form {AUDITOR}", f"find {AUDITOR}")}
    requests["archive"] = REQUESTS[f"archive {AUDITOR}"]
    found = ask(folder / "off", content, requests)  # type: ignore[arg-type]

    assert [found[name].status for name in requests] == [403, 403, 200]
    assert PAGE not in found["archive"].text


def test_records_audit(
    scene: tuple[Path, dict[str, dict[str, str]]], caplog: pytest.LogCaptureFixture
) -> None:
    """Who searched what by which kinds of criteria is logged, and not what was looked for."""
    folder, _ = scene
    place = Place(str(folder / "a"), name="a")
    posted = {"key": ["secret-7"], "header": ["h=secret-8"], "value_contains": ["secret-9"]}
    with caplog.at_level("INFO"):
        page_of(place, "/a", "", posted, "alice")

    [line] = [r.getMessage() for r in caplog.records if r.name == "kafka_drain.audit"]
    assert line == f"alice searches the records of {folder}/a by key, header, value_contains"
    assert "secret" not in caplog.text


def test_records_audit_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who searched is logged even if a damaged file ends the search: records were read by then."""
    made = MadeArchive(tmp_path / "a", {"a": "id"})
    made.seal({A0: dense(0, 5)})
    [file] = made.seal({A0: dense(5, 10)}, headers=[{"key": "a-name", "value": b""}])
    made.open_generation()
    path = Path(str(made.root / file.path))
    path.write_bytes(path.read_bytes().replace(b"a-name", b"\xff-name", 1))
    with caplog.at_level("INFO"):
        page = page_of(Place(str(made.root), name="a"), "/a", "", {"partition": ["0"]}, "alice")

    assert path.name in page
    assert page.count('data-label="record"') == 0
    [line] = [r.getMessage() for r in caplog.records if r.name == "kafka_drain.audit"]
    assert line == f"alice searches the records of {made.root} by partition"


def test_records_busy(scene: tuple[Path, dict[str, dict[str, str]]]) -> None:
    """A server runs a few searches at once; the others are told, and none is waited for."""
    folder, _ = scene
    place = Place(str(folder / "a"), name="a")
    for _ in range(AT_ONCE):
        records._searches.acquire()
    try:
        busy = page_of(place, "/a", "", {}, "alice")
    finally:
        records._searches.release(AT_ONCE)

    assert "other searches" in busy
    assert "other searches" not in page_of(place, "/a", "", {}, "alice")


def test_records_republish(scene: tuple[Path, dict[str, dict[str, str]]]) -> None:
    """What was found fills the form of a republish: a page's records, and all that match."""
    folder, _ = scene
    place = Place(str(folder / "a"), name="a")
    page = unescape(page_of(place, "/a", "republish_a", {"limit": ["20"]}, "alice"))
    by_key = {"limit": ["3"], "key": ["secret-7"]}
    some = unescape(page_of(place, "/a", "republish_a", by_key, "alice"))
    last = unescape(page_of(place, "/a", "republish_a", {"trail": ["a:1:0:17"]}, "alice"))

    assert fields_in(page) == [{"offsets": ["a:0:0-20"]}, {}]
    assert "/dags/republish_a" in page
    assert fields_in(some) == [{"offsets": ["a:0:0-3"]}]
    assert "no fields select those" in some
    # Everything was searched, but pages before this one have records too.
    assert fields_in(last) == [{"offsets": ["a:0:18-21"]}, {}]
    assert "republish" not in page_of(place, "/a", "", {}, "alice").lower()


def fields_in(page: str) -> list[dict[str, Any]]:
    """Return the configurations that a page has."""
    return [
        json.loads(found) for found in re.findall(r"<textarea[^>]*>(.*?)</textarea>", page, re.S)
    ]


def test_records_undecoded(tmp_path: Path) -> None:
    """A page says how many values a path couldn't be looked for in."""
    made = MadeArchive(tmp_path / "a", {"a": "id"})
    made.seal({A0: dense(0, 3)}, value=b"\0\0\0\0\x63x")
    made.open_generation()
    place = Place(str(made.root), name="a")

    page = unescape(page_of(place, "/a", "", {"jsonpath": ["$.id"]}, "alice"))

    assert "3 values couldn't be decoded (schema ids 99): they weren't searched." in page
    assert "couldn't be decoded" not in unescape(page_of(place, "/a", "", {}, "alice"))

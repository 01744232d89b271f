"""The restores of an archive, read from the documents of its runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from upath import UPath

from kafka_drain.pages.restores import TopicSent
from kafka_drain.republish import restores as module
from kafka_drain.republish.planning.runs import RepublishRun, drill_run, run_key
from kafka_drain.republish.restores import Restores
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.republish.receipts import receipt_of


def run_of(root: UPath, name: str) -> RepublishRun:
    """Return a run with a plan."""
    run = RepublishRun(root, run_key(name))
    run.write_plan(replace(PLAN, run=name, key=run.key))
    return run


@pytest.fixture
def root(tmp_path: Path) -> UPath:
    """The folder of an archive."""
    return UPath(tmp_path)


def test_restores_none(root: UPath) -> None:
    """An archive that nothing was restored from has no restores."""
    assert Restores().of(root) == ([], 0)


def test_restores_by_state(root: UPath) -> None:
    """How far a run is comes from the files in its folder; drills and openings are none."""
    known = Restores()
    run = run_of(root, "mine")
    run_of(root, drill_run("20260101T000000Z-01234567"))
    (root / "republish" / "openings").mkdir()
    (root / "republish" / "openings" / "00000001.json").write_text("{}")

    def seen() -> tuple[bool, bool, bool]:
        [one], _ = known.of(root)
        return one.is_opened, one.has_receipt, one.is_abandoned

    [planned], more = known.of(root)
    assert more == 0
    assert (planned.run, planned.key, planned.records) == ("mine", run.key, PLAN.records)
    assert planned.size == PLAN.size
    assert sum(topic.records for topic in planned.topics) == PLAN.records
    assert seen() == (False, False, False)
    run.mark_opened(PLAN)
    assert seen() == (True, False, False)
    run.abandon(datetime(2026, 1, 1, tzinfo=timezone.utc))
    assert seen() == (True, False, True)
    run.write_receipt(receipt_of(key=run.key))
    assert seen()[:2] == (True, True)


def test_restores_verified(root: UPath) -> None:
    """What verify found is in the receipt."""
    entry = {
        "source_topic": "t",
        "source_topic_id": "id",
        "source_partition": 0,
        "ranges": [(0, 10)],
        "from_ms": None,
        "to_ms": None,
        "records": 10,
        "target_topic": "u",
        "target_partition": 0,
    }
    verification = {
        "is_exact": False,
        "records": 20,
        "lost": 1,
        "twice": 2,
        "out_of_order": 0,
        "foreign": 0,
        "compacted": 0,
        "partitions": [],
    }
    run = run_of(root, "mine")
    sent = [entry, entry | {"source_partition": 1}]
    run.write_receipt(receipt_of(key=run.key, sent=sent, verification=verification))

    [one], _ = Restores().of(root)

    assert (one.is_exact, one.lost) == (False, 1)
    assert one.verified == "20 records compared; 1 lost; 2 duplicated"
    assert one.topics == [TopicSent("t", "u", 2, 20)]


def test_restores_read_once(root: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are read again only if they were replaced, however often they are asked for."""
    read: list[str] = []
    read_restore = module.read_restore

    def noting(run: RepublishRun, names: frozenset[str]) -> object:
        read.append(run.key)
        return read_restore(run, names)

    monkeypatch.setattr(module, "read_restore", noting)
    known, run = Restores(), run_of(root, "mine")
    known.of(root)
    known.of(root)
    assert read == [run.key]

    (run.folder / "plan.json").unlink()
    other = replace(PLAN, run="other", key=run.key, pipeline="a pipeline of another length")
    run.write_plan(other)
    assert [one.run for one in known.of(root)[0]] == ["other"]


def test_restores_newest(root: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many runs, documents of the newest are read; the others are counted."""
    monkeypatch.setattr(module, "NEWEST", 2)
    for number in range(5):
        run_of(root, f"run {number}")

    found, more = Restores().of(root)

    assert (len(found), more) == (2, 3)


def test_restores_changed(root: UPath) -> None:
    """A plan that was changed is a problem of that run, and of no other."""
    run = run_of(root, "mine")
    run_of(root, "other")
    plan = run.folder / "plan.json"
    plan.write_bytes(plan.read_bytes().replace(b"mine", b"mime"))

    problems = {one.key: bool(one.problem) for one in Restores().of(root)[0]}

    assert problems == {run.key: True, run_key("other"): False}

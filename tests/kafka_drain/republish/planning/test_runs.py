"""A run's folder: its name, and files that are written once."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from kafka_drain.cli.main import main
from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.republish.planning import runs
from kafka_drain.republish.planning.abandon import unfinished_run
from kafka_drain.republish.planning.documents import ThroughJson
from kafka_drain.republish.planning.follow import follower_key, followers, next_run
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.runs import RepublishRun, list_runs, run_key
from tests.kafka_drain.made_archive import MadeArchive
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.republish.receipts import receipt_of

# What Kafka takes as a group, a transactional id or a topic's name, and every file system.
SAFE = re.compile(r"[A-Za-z0-9_.-]+")


@given(st.text())
def test_run_key_safe(name: str) -> None:
    """Whatever a run is called, its key fits in folders, groups and transactional ids."""
    key = run_key(name)

    assert SAFE.fullmatch(key)
    assert 12 <= len(key) <= 61
    assert key not in (".", "..")
    # A follower's number comes after a dot.
    assert not re.fullmatch(r".*\.\d+", key)


@given(st.sets(st.text(), min_size=2, max_size=20))
def test_run_key_unique(names: set[str]) -> None:
    """No two names share a key."""
    assert len({run_key(name) for name in names}) == len(names)


def test_run_key_readable() -> None:
    """People recognise the name; what stands in braces is told apart by the hash."""
    assert re.fullmatch(r"copy-of-April-[0-9a-f]{12}", run_key("copy of April"))
    assert re.fullmatch(r"p-to-t-[0-9a-f]{12}", run_key('p to t {"a": 1}'))
    assert run_key('p to t {"a": 1}') != run_key('p to t {"a": 2}')
    assert re.fullmatch(r"-[0-9a-f]{12}", run_key("…"))


@pytest.fixture
def run(tmp_path: Path) -> RepublishRun:
    """A run of which nothing is written yet."""
    return RepublishRun(UPath(tmp_path), PLAN.key)


def test_run_new(run: RepublishRun) -> None:
    """A run that was never planned has nothing, and asking makes no folder."""
    assert run.plan() is run.receipt() is run.offset_map() is None
    assert not run.is_opened
    assert not run.folder.exists()
    assert list(list_runs(run.root)) == []


def test_write_plan_once(run: RepublishRun) -> None:
    """The plan that was written first counts, for whoever comes later as well."""
    first, second = replace(PLAN, size=1), replace(PLAN, size=2)

    assert run.write_plan(first) == first
    assert run.write_plan(second) == first

    assert run.plan() == first
    assert first != second
    assert list(list_runs(run.root)) == [run]


def test_write_plan_instead(run: RepublishRun) -> None:
    """While a run hasn't opened, a plan may take another one's place; the last one counts."""
    first = run.write_plan(PLAN)
    second = run.write_plan(replace(PLAN, size=2), replacing=first)

    assert (second.size, run.plan(), run.replaced()) == (2, second, {first.sha256})
    # Of two who plan again at one moment the later one takes what it finds.
    assert run.write_plan(replace(PLAN, size=3), replacing=first) == second
    for size in range(3, 13):
        second = run.write_plan(replace(PLAN, size=size), replacing=second)
    assert run.plan() == second
    assert (second.size, len(run.replaced())) == (12, 11)
    run.mark_opened(PLAN)
    assert run.write_plan(replace(PLAN, size=13), replacing=second) == second


def test_write_plan_instead_meets_opening(
    run: RepublishRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that opens while it is planned again goes on with the plan that it opened with."""
    first = run.write_plan(PLAN)
    real = runs.create_text

    def create_text(path: UPath, text: str) -> bool:
        run.mark_opened(PLAN)
        return real(path, text)

    monkeypatch.setattr(runs, "create_text", create_text)

    assert run.write_plan(replace(PLAN, size=2), replacing=first) == first


def test_plan_that_opened_lost(run: RepublishRun) -> None:
    """The plan that was replaced doesn't count for the one that has opened, which is missing."""
    first = run.write_plan(PLAN)
    second = run.write_plan(replace(PLAN, size=2), replacing=first)
    run.mark_opened(second)
    (run.folder / "plan.2.json").rename(run.folder / "plan.2.json.bak")

    for read in (run.plan, run.require_plan):
        with pytest.raises(ArchiveError, match=r"another plan than plan\.json.* the missing"):
            read()
    with pytest.raises(
        ArchiveError, match=rf"or end the run with `.* --abandon {run.key} --apply`"
    ):
        run.plan()

    (run.folder / "plan.2.json.bak").rename(run.folder / "plan.2.json")
    assert run.require_plan() == second


@pytest.mark.parametrize("left", [b"", b'{"plan": "'])
def test_plan_opened_half_written(run: RepublishRun, left: bytes) -> None:
    """Where a crash left half of what names the plan, the newest one counts."""
    second = run.write_plan(replace(PLAN, size=2), replacing=run.write_plan(PLAN))
    (run.folder / "opened.json").write_bytes(left)

    assert run.plan() == second


def test_plan_too_late(run: RepublishRun) -> None:
    """A plan that an attempt left behind when it was killed, after another opened, counts not."""
    first = run.write_plan(PLAN)
    run.write_plan(replace(PLAN, size=2), replacing=first)
    run.mark_opened(first)

    assert run.plan() == first


def test_write_plan_of_opened(run: RepublishRun) -> None:
    """A run that has opened gets no other plan if its own is lost: what it sent is unknown."""
    run.mark_opened(run.write_plan(PLAN))
    (run.folder / "plan.json").unlink()

    with pytest.raises(ArchiveError, match=r"plan\.json is missing.* a copy, or end"):
        run.write_plan(replace(PLAN, size=2))

    assert not (run.folder / "plan.json").exists()


def test_unended_run(tmp_path: Path) -> None:
    """A run is meant by its name, its folder's or its mirror's, unless it has ended."""
    archive = MadeArchive(tmp_path, {"t": "id"}).archive
    keys = [run_key("a b"), f"{follower_key('m')}.000001", f"{follower_key('m')}.000002"]
    for key in keys:
        RepublishRun(archive.root, key).write_plan(replace(PLAN, key=key))
    RepublishRun(archive.root, keys[1]).write_receipt(receipt_of(key=keys[1]))

    assert unfinished_run(archive, "m").key == keys[2]
    assert unfinished_run(archive, follower_key("m")).key == keys[2]
    assert unfinished_run(archive, "a b").key == keys[0]
    assert unfinished_run(archive, keys[0]).key == keys[0]
    with pytest.raises(ConfigError, match="has finished and has a receipt"):
        unfinished_run(archive, keys[1])
    with pytest.raises(ConfigError, match="has no run 'x'"):
        unfinished_run(archive, "x")


def test_abandon_mirror_at_rest(tmp_path: Path) -> None:
    """A mirror whose runs have all ended can be given up: otherwise maintenance waits for ever.

    It waits for files that a mirror has sent only in part, until its last run was abandoned.
    """
    archive = MadeArchive(tmp_path, {"t": "id"}).archive
    through: ThroughJson = {"generations": {}, "windows": []}
    for name in ("m", "other"):
        last = RepublishRun(archive.root, f"{follower_key(name)}.000001")
        last.write_plan(replace(PLAN, key=last.key))
        last.write_receipt(receipt_of(key=last.key, through=through))
    named = RepublishRun(archive.root, run_key("m"))
    named.write_plan(replace(PLAN, key=named.key))
    named.write_receipt(receipt_of(key=named.key))
    assert [name for name, _ in followers(archive)] == [follower_key("m"), follower_key("other")]

    assert main(["republish", str(archive.root), "--abandon", "m", "--apply"]) == 0

    assert [name for name, _ in followers(archive)] == [follower_key("other")]
    given_up, since = next_run(archive, follower_key("m"))
    assert (given_up.is_abandoned, since) == (True, through)
    assert given_up.plan() is None
    # As maintenance names it.
    assert unfinished_run(archive, follower_key("m")) == given_up
    # Repeated, it changes nothing.
    assert main(["republish", str(archive.root), "--abandon", "m", "--apply"]) == 0
    assert next_run(archive, follower_key("m"))[0] == given_up
    assert not list(given_up.folder.glob("plan*"))


def test_abandon_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command needs no Kafka, says which run it ends, and ends it when it is told."""
    archive = MadeArchive(tmp_path, {"t": "id"}).archive
    run = RepublishRun(archive.root, run_key("mine"))
    run.write_plan(replace(PLAN, key=run.key))

    abandon = ["republish", str(archive.root), "--abandon", "mine"]

    assert main(abandon) == 0
    assert not run.is_abandoned
    assert "dry run: nothing was changed; pass --apply to carry it out" in capsys.readouterr().err

    assert main([*abandon, "--apply"]) == 0
    assert run.is_abandoned
    assert run.key in capsys.readouterr().out


def test_write_plan_gives_its_hash(run: RepublishRun) -> None:
    """The plan that counts is the one of the file, with the hash that it ends in."""
    written = run.write_plan(replace(PLAN, sha256=""))

    assert written.sha256 == RepublishPlan.parse(PLAN.to_bytes()).sha256
    assert written.sha256 in (run.folder / "plan.json").read_text()


@pytest.mark.parametrize("name", ["plan", "receipt"])
def test_run_file_changed(run: RepublishRun, name: str) -> None:
    """A file whose bytes were changed is refused by name."""
    run.write_plan(PLAN)
    run.write_receipt(receipt_of(key=run.key, records=100))
    path = run.folder / f"{name}.json"
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))

    with pytest.raises(ArchiveError, match=rf"{name}\.json was changed .*restore it from a copy"):
        getattr(run, name)()


def test_write_receipt_once(run: RepublishRun) -> None:
    """The first receipt counts."""
    assert run.write_receipt(receipt_of(key=run.key, records=1))
    assert not run.write_receipt(receipt_of(key=run.key, records=2))

    receipt = run.receipt()
    assert receipt is not None
    assert receipt["records"] == 1


def test_mark_opened(run: RepublishRun) -> None:
    """A run is opened for good."""
    run.mark_opened(PLAN)
    run.mark_opened(PLAN)

    assert run.is_opened


def test_write_offset_map_again(run: RepublishRun) -> None:
    """The offset map is written anew by each verify."""
    run.write_offset_map(b'{"a":1}')
    run.write_offset_map(b'{"a":2}')

    assert run.offset_map() == b'{"a":2}'


def test_list_runs_by_key(tmp_path: Path) -> None:
    """Runs come by key, and a file that lies between their folders is none."""
    root = UPath(tmp_path)
    for key in ("b.000002", "a", "b.000010"):
        RepublishRun(root, key).write_receipt(receipt_of(key=key))
    (root / "republish" / ".DS_Store").write_text("")

    found = {run.key: run.receipt() for run in list_runs(root)}

    assert [key for key, receipt in found.items() if receipt] == ["a", "b.000002", "b.000010"]
    assert [run.plan() for run in list_runs(root)] == [None] * 3


@pytest.mark.parametrize("name", ["plan.json", "plan.2.json", "receipt.json"])
def test_run_document_of_another(run: RepublishRun, name: str) -> None:
    """A plan or receipt in another run's folder says nothing of that run."""
    first = run.write_plan(PLAN)
    run.write_plan(replace(PLAN, size=2), replacing=first)
    run.write_receipt(receipt_of(key=run.key))
    other = RepublishRun(run.root, "other")
    other.write_plan(replace(PLAN, key="other"))
    (other.folder / name).write_bytes((run.folder / name).read_bytes())

    for _ in range(2):
        with pytest.raises(ArchiveError, match=rf"other/{name} is of run {PLAN.key}, expected"):
            other.receipt() if name == "receipt.json" else other.plan()

"""Runs that resume long after they started, or alongside an attempt that wakes up late."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kafka_drain.archive.archive import Archive
from kafka_drain.clock import utc_now
from kafka_drain.errors import KafkaUnavailableError, ProgressError
from kafka_drain.republish import run as republishing
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.sending import attempts as opening
from kafka_drain.republish.sending import shard_sender as sending
from kafka_drain.republish.sending.shard_sender import SendJob
from tests.faults.injection import wait_for
from tests.faults.republish_case import Case, Stopped, Tapped, _Engine, tap
from tests.faults.republishing import make_target
from tests.faults.test_republish_refused import stop_after_first_shard

pytestmark = pytest.mark.integration

LONG_AGO = timedelta(days=30)


@pytest.fixture(autouse=True)
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shard takes several transactions."""
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", 300)
    monkeypatch.setattr(sending, "STEP", 100)


def execute(case: Case, ago: timedelta, send: Any = None) -> dict[str, Any]:
    """Make an attempt of a run, which is planned with an old time if it has no plan yet."""
    engine = _Engine(case, send)
    return case.planned(utc_now() - ago).execute(engine, utc_now)


def test_republish_goes_on_long_after(made_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was planned long ago resumes as long as Kafka has all of its progress.

    Progress that no longer changes is committed again, so that Kafka doesn't expire it.
    """
    with pytest.raises(Stopped):
        execute(made_case, LONG_AGO, stop_after_first_shard)
    committed: list[tuple[str, int, int]] = []
    real = opening.entry

    def entry(slot: Any, at: Any) -> Any:
        committed.append((slot.group.rpartition("-")[2], slot.tp.partition, at.records))
        return real(slot, at)

    monkeypatch.setattr(opening, "entry", entry)

    result = made_case.run()

    assert (result["records_sent"], result["attempts"]) == (900, 2)
    assert sorted(committed) == [("0", 0, 900), ("attempts", 0, 0)]
    assert made_case.audit().is_exact


def test_republish_verified_long_after(made_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that sent everything long ago gets its receipt and map once it can be verified."""

    def not_now(*arguments: Any) -> None:
        raise KafkaUnavailableError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(_Engine, "verify", not_now)
        with pytest.raises(KafkaUnavailableError):
            execute(made_case, LONG_AGO)

    result = made_case.run()

    assert result["records_sent"] == 0
    assert made_case.planned().run.offset_map() is not None


def test_republish_opened_long_after(made_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that couldn't open when it was planned is planned again, and resumes when killed."""

    def not_now(*arguments: Any) -> int:
        raise KafkaUnavailableError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(republishing, "open_run", not_now)
        with pytest.raises(KafkaUnavailableError):
            execute(made_case, LONG_AGO)
    before = made_case.planned(utc_now() - LONG_AGO).plan
    with pytest.raises(Stopped):
        execute(made_case, timedelta(), stop_after_first_shard)
    after = made_case.planned().plan

    assert before.sha256 != after.sha256
    assert before.created_at < after.created_at
    assert made_case.run()["records_sent"] == 900
    assert made_case.audit().is_exact


def test_republish_planned_again_beside_older(
    made_case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt paused while opening sends nothing after the run was planned again."""
    real = opening.Claim.confirm
    ended: list[dict[str, Any]] = []

    def confirm(claim: Any) -> None:
        monkeypatch.setattr(opening.Claim, "confirm", real)
        ended.append(made_case.run())
        real(claim)

    monkeypatch.setattr(opening.Claim, "confirm", confirm)
    with pytest.raises((ProgressError, republishing.ConfigError)):
        execute(made_case, LONG_AGO)

    assert ended[0]["records_sent"] == made_case.records
    assert made_case.audit().is_exact
    assert made_case.run()["records_sent"] == 0


def test_republish_killed_old_attempt(made_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that wakes up to be killed doesn't affect a later one, which finishes."""
    old = made_case.planned()
    engine = _Engine(made_case, stop_after_first_shard)
    with pytest.raises(Stopped):
        old.execute(engine, utc_now)
    aborted: list[None] = []

    def hook(_: Tapped, call: str, has_ended: bool) -> None:
        if call == "commit" and not has_ended and not aborted:
            aborted.append(old.abort())

    made = tap(monkeypatch, hook).made

    result = made_case.run()

    assert aborted
    assert (result["attempts"], result["verification"]["is_exact"]) == (2, True)
    # One finds its shard sent, three send the other: none was lost.
    assert len(made) == 4
    assert made_case.audit().is_exact


def test_republish_killed_attempt_aborts(made_case: Case) -> None:
    """A killed attempt aborts its open transactions, and counts as one more attempt."""
    killed = made_case.planned()

    def engine(plan: RepublishPlan, groups: list[list[SendJob]], tick: Any) -> None:
        stop_after_first_shard(plan, groups, tick)

    with pytest.raises(Stopped):
        killed.execute(_Engine(made_case, engine), utc_now)
    killed.abort()

    assert made_case.run()["attempts"] == 3
    assert made_case.audit().is_exact


def test_republish_in_copy_of_archive(
    made_case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run with the same name in a copy of the archive aborts no transaction of this one."""
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", 100_000)
    made_case.archive.identify()
    root = shutil.copytree(str(made_case.archive.root), tmp_path / "copy")
    target = make_target(made_case.bootstrap, f"{made_case.target}-copy", 2)
    made_case.name = "restore-1"
    copy = replace(made_case, archive=Archive.at(str(root)), target=target)
    ended: list[Any] = []

    def hook(_: Tapped, call: str, has_ended: bool) -> None:
        if call == "commit" and not has_ended and not ended:
            ended.append(None)
            ended.append(copy.run())

    made = tap(monkeypatch, hook).made

    assert made_case.run()["verification"]["is_exact"]
    assert ended[1]["verification"]["is_exact"]
    # One transaction and so one producer for each of the two shards of both runs: none was lost.
    assert len(made) == 4
    assert made_case.audit().is_exact
    assert copy.audit().is_exact


def test_republish_by_key_partitions_added(made_case: Case) -> None:
    """A run by key resumes as planned if the target has got more partitions since."""
    made_case.request["placement"] = "key"
    with pytest.raises(Stopped):
        made_case.run(stop_after_first_shard)
    admin = AdminClient({"bootstrap.servers": made_case.bootstrap, "log_level": 0})
    more = NewPartitions(made_case.target, 5)
    admin.create_partitions([more])[made_case.target].result(30)
    wait_for(
        lambda: len(admin.list_topics(timeout=20).topics[made_case.target].partitions) == 5,
        "more partitions",
    )

    assert made_case.run()["verification"]["is_exact"]
    assert made_case.visible("read_committed") == made_case.records

"""What a run is bound to: its archive, its cluster, its targets, and no other run's records."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ConfigError, KafkaDrainError, TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.republish import run as republishing
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.sending import shard_sender as sending
from kafka_drain.republish.sending.shard_sender import SendJob
from tests.faults.injection import wait_for
from tests.faults.republish_case import Case, Halted, Stopped, Tapped, halted_sender, tap
from tests.faults.republishing import make_target
from tests.faults.test_republish_refused import SMALL, made_again, stop_after_first_shard

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(own_kafka: LocalKafka) -> AdminClient:
    """A client for changes to the broker that tests may change."""
    return AdminClient({"bootstrap.servers": own_kafka.bootstrap_servers, "log_level": 0})


def refused(case: Case, error: type[KafkaDrainError], *says: str) -> None:
    """A plan is refused repeatedly, like the run itself, and nothing is sent."""
    before = case.ends()
    for attempt in (case.planned, case.run, case.planned, case.run):
        with pytest.raises(error) as caught:
            attempt()
        assert all(fragment in str(caught.value) for fragment in says), str(caught.value)
    assert case.ends() == before


# 74


def test_republish_done_on_another_cluster(case: Case, cluster: KafkaCluster) -> None:
    """A finished run isn't finished in another cluster, and both clusters are named."""
    case.run()
    elsewhere = replace(case, cluster=cluster)
    make_target(elsewhere.bootstrap, case.target, 2)

    refused(
        elsewhere,
        TopicError,
        *(case.cluster.cluster_id(), cluster.cluster_id(), "Nothing was sent", "--run"),
    )

    assert elsewhere.ends() == [0, 0]
    assert case.run()["records_sent"] == 0


def test_republish_done_target_made_again(case: Case, admin: AdminClient) -> None:
    """A finished run isn't finished in a recreated target, and both topics are named."""
    case.run()
    before = case.cluster.topics([case.target])[case.target].id
    made_again(admin, case.bootstrap, case.target)
    after = case.cluster.topics([case.target])[case.target].id

    refused(case, TopicError, case.target, before, after, "Nothing was sent", "--run")

    assert case.ends() == [0, 0]
    # Under another name the same records are sent, without a mention of repeating.
    case.name = "another"
    assert case.run()["verification"]["is_exact"]
    assert case.audit().is_exact


def test_republish_done_target_gone(case: Case, admin: AdminClient) -> None:
    """A finished run isn't finished if its target was deleted."""
    case.run()
    before = case.cluster.topics([case.target])[case.target].id
    admin.delete_topics([case.target])[case.target].result(30)
    wait_for(lambda: case.target not in admin.list_topics(timeout=20).topics, "the deletion")

    for attempt in (case.planned, case.run):
        with pytest.raises(TopicError, match="which doesn't exist") as caught:
            attempt()
        assert all(part in str(caught.value) for part in (case.target, before, "--run"))


# 75


def test_republish_two_at_one_moment(
    case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run that opens between another's check and its opening goes first, and is named."""
    other = replace(case, name="other", folder=tmp_path)
    real, ended = republishing.open_run, []

    def open_run(*arguments: Any) -> int:
        monkeypatch.setattr(republishing, "open_run", real)
        ended.append(other.run())
        return real(*arguments)

    monkeypatch.setattr(republishing, "open_run", open_run)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"run other-\w+ .* Nothing was sent"):
            case.run()

    assert ended[0]["verification"]["is_exact"]
    assert case.audit().is_exact


def test_republish_killed_before_it_opened(
    case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run killed before it opened blocks no other run, and can't come back alongside it."""

    class Killed(BaseException):
        """Like a SIGKILL: nothing is cleaned up."""

    def killed(*arguments: Any) -> int:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(republishing, "open_run", killed)
        with pytest.raises(Killed):
            case.run()
    other = replace(case, name="other", folder=tmp_path)

    assert other.run()["verification"]["is_exact"]
    with pytest.raises(ConfigError, match=r"run other-\w+ has sent"):
        case.run()
    assert case.audit().is_exact


def test_republish_many_at_one_moment(case: Case, tmp_path: Path) -> None:
    """Of four runs that start together one sends, and each of the others names a run."""
    started = Barrier(4)

    def run(number: int) -> dict[str, Any] | str:
        mine = replace(case, name=f"run {number}", folder=tmp_path / str(number))
        mine.folder.mkdir()
        started.wait()
        try:
            return mine.run()
        except ConfigError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(run, range(4)))

    sent = [answer for answer in answers if not isinstance(answer, str)]
    assert [receipt["verification"]["is_exact"] for receipt in sent] == [True]
    for answer in answers:
        assert not isinstance(answer, str) or re.match(r"run run-\d-\w+ ", answer), answer
    assert case.audit().is_exact


def test_republish_same_name_in_two_archives(
    case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same run name in another archive is another run: it aborts no transaction of this one."""
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", 100_000)
    root = shutil.copytree(str(case.archive.root), tmp_path / "second")
    target = make_target(case.bootstrap, f"{case.target}-second", 2)
    case.name = "restore-1"
    second = replace(case, archive=Archive.at(str(root)), target=target)
    ended = []

    def hook(tapped: Tapped, call: str, has_ended: bool) -> None:
        if call == "commit" and not has_ended and not ended:
            ended.append(None)
            ended.append(second.run())

    made = tap(monkeypatch, hook).made

    assert case.run()["verification"]["is_exact"]
    assert ended[1]["verification"]["is_exact"]
    # One transaction and so one producer for each of the two shards of both runs: none was lost.
    assert len(made) == 4
    assert case.audit().is_exact
    assert second.audit().is_exact


def test_republish_begun_by_older_release(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run from a release without archive ids resumes, and fences its open transactions."""
    with monkeypatch.context() as patch:
        patch.setattr(Archive, "identify", lambda archive: "")
        with pytest.raises(Stopped):
            case.run(stop_after_first_shard)
    begun = case.planned().plan
    assert '"format_version":1,' in (case.planned().run.folder / "plan.json").read_text()

    receipt = case.run()

    assert begun.kafka_name == begun.key
    assert (receipt["attempts"], receipt["verification"]["is_exact"]) == (2, True)
    assert case.audit().is_exact


def test_republish_begun_with_fast_transactions(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that an older release began with `fast` is finished, each transaction with a producer.

    That release's producer is still there, with an open transaction: it is fenced.
    """
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", SMALL)
    monkeypatch.setattr(sending, "STEP", 100)
    senders: list[Halted] = []

    def halt(_: RepublishPlan, groups: list[list[SendJob]], tick: Any) -> None:
        senders.append(halted_sender(groups[0][0], case.folder / "sender", "commit", False, nth=2))
        senders[0].wait_until_halted()
        raise Stopped

    make = republishing.make_plan
    with monkeypatch.context() as patch:
        patch.setattr(republishing, "make_plan", lambda *a, **b: with_fast(make(*a, **b)))
        try:
            with pytest.raises(Stopped):
                case.run(halt)
            made = tap(monkeypatch, lambda tapped, call, has_ended: None)
            receipt = case.run()
        finally:
            for sender in senders:
                sender.kill()

    assert '"transactions":"fast"' in (case.planned().run.folder / "plan.json").read_text()
    assert len(made.made) == sum(-(-len(each) // SMALL) for each in case.content.values()) - 1
    assert (receipt["attempts"], receipt["transactions"]) == (2, "fast")
    assert receipt["records_sent"] == case.records - SMALL
    assert receipt["verification"]["is_exact"]
    assert case.audit().is_exact
    assert case.run()["records_sent"] == 0


def with_fast(plan: RepublishPlan) -> RepublishPlan:
    """Return a plan as an older release made it, with `--transactions fast`."""
    request = {**plan.request, "transactions": "fast"}
    older = replace(plan, transactions="fast", request=request)
    return replace(older, sha256=RepublishPlan.parse(older.to_bytes()).sha256)


# 79


def test_republish_into_source(
    case: Case, cluster: KafkaCluster, bootstrap_servers: str, sealed: Any
) -> None:
    """A source that still holds the records is refused as a target, already during planning."""
    case.cluster, case.target = cluster, sealed.topic

    refused(case, TopicError, sealed.topic, "holds", "--into-source", "Nothing was sent")
    assert not (Path(str(case.archive.root)) / "republish").exists()

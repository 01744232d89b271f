"""A republish run: what comes before what, what a later attempt goes on with, what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ErasureLiftedDocument
from kafka_drain.archive.erasures import Erasure, next_erasure
from kafka_drain.archive.format import ERASED_VERSION
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.archive.window import Window
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    DeliveryError,
    KafkaUnavailableError,
    LockedError,
    SupersededError,
    TopicError,
    VerifyError,
)
from kafka_drain.evidence import signing
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.maintenance.erase import erasure_document
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import Level, level_of
from kafka_drain.progress import Progress
from kafka_drain.republish import run as module
from kafka_drain.republish.changing.change import Change
from kafka_drain.republish.changing.function_id import FunctionId
from kafka_drain.republish.changing.spec import ChangeSpec
from kafka_drain.republish.planning import planner
from kafka_drain.republish.planning.openings import Claim, ClaimState, claim_opening
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import OPENINGS, RepublishRun, list_runs
from kafka_drain.republish.run import Republish, plan_republish, sign_run
from kafka_drain.storage.json_files import write_document
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows import superseded_files
from kafka_drain.windows.superseded_files import remove_superseded
from tests.kafka_drain.cut_over.mirrored import EXACT
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense

FORMAT = Path(__file__).parents[3] / "docs" / "format"
COPY = TopicPartition("copy", 0)
KEEPING = {"retention.ms": "-1", "max.message.bytes": "1048588"}


@dataclass
class Target:
    """A cluster that is sent to, its progress, and the engine that sends; all notes what is done.

    Attributes:
        sent: Number of records that the progress in Kafka says.
        opened: Number of attempts.
        during: What happens while the engine sends, and while it verifies.
        verdict: What the comparison finds.
        done: What was done, in order.
    """

    cluster: FakeCluster
    sent: int = 0
    opened: int = 0
    during: dict[str, Callable[[], object]] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    orders: list[Any] = field(default_factory=list)
    checks: list[Any] = field(default_factory=list)

    def __call__(self, plan: RepublishPlan, groups: list[Any], tick: Callable[[], None]) -> None:
        self.done.append("send")
        self.orders = groups
        self.during.get("send", lambda: None)()
        self.sent = plan.records

    def verify(self, plan: RepublishPlan, jobs: list[Any]) -> dict[Any, Any]:
        self.done.append("verify")
        self.checks = jobs
        self.during.get("verify", lambda: None)()
        return {}

    def open_run(
        self, plan: RepublishPlan, run: RepublishRun, settings: object, claim: Claim | None
    ) -> int:
        """Take the place of `open_run`: confirms a first claim, and counts attempts."""
        self.done.append("open")
        assert (claim is None) is run.is_opened
        if claim is not None:
            claim.confirm()
            run.mark_opened(plan)
        self.opened += 1
        return self.opened

    def store(self, *_: object, **__: object) -> Any:
        """Take the place of `ProgressStore`."""
        return SimpleNamespace(
            read=lambda slots, timeout: {slots[0]: SimpleNamespace(records=self.sent)},
            close=lambda: None,
        )

    def summarize(self, plan: RepublishPlan, matches: Mapping[Any, Any]) -> tuple[Any, Any]:
        """Take the place of the comparison's summary."""
        found = {"lost": 0, "duplicates": 0, "out_of_order": 0, "change": None} | self.verdict
        verification = SimpleNamespace(
            **found,
            lines=list,
            gets_receipt=lambda delivery: not found["lost"],
            to_dict=lambda: {**EXACT, "records": plan.records},
        )
        return verification, SimpleNamespace(to_bytes=lambda: b"{}")


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of ten records of t-0 and twenty of t-1."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    made.seal(
        {TopicPartition("t", 0): dense(0, 10), TopicPartition("t", 1): dense(0, 20)},
        value=b'{"a": 1}',
    )
    made.open_generation()
    write_topic_settings(made.root, {"t": TopicSettings(2, 1)})
    return made


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    """Another cluster, with topic copy of two partitions."""
    logs = {TopicPartition("copy", number): Log() for number in range(2)}
    cluster = FakeCluster(
        logs, id="target", topic_ids={"copy": "copy-id"}, configs={"copy": KEEPING}
    )
    target = Target(cluster)
    monkeypatch.setattr(module, "open_run", target.open_run)
    monkeypatch.setattr(module, "ProgressStore", target.store)
    monkeypatch.setattr(module, "summarize", target.summarize)
    return target


def request(**changes: Any) -> RepublishRequest:
    """Ask for everything to be sent to topic copy."""
    asked: dict[str, Any] = {"target_topic": "copy", "run_name": "r", "engine": "worker"}
    return RepublishRequest(**asked | changes)


REQUEST = request()


def planned(
    made: MadeArchive, target: Target, request: RepublishRequest = REQUEST, **how: Any
) -> Republish:
    cluster: Any = target.cluster
    return plan_republish(made.archive, cluster, request, **{"now": NOW, "apply": True} | how)


def execute(
    made: MadeArchive, target: Target, request: RepublishRequest = REQUEST
) -> dict[str, Any]:
    return planned(made, target, request).execute(target, lambda: NOW)


def test_execute(made: MadeArchive, target: Target) -> None:
    """A run is opened, sent and verified, in this order; then it has a receipt, and is over."""
    receipt = execute(made, target)

    assert target.done == ["open", "send", "verify"]
    assert (receipt["records"], receipt["records_sent"], receipt["attempts"]) == (30, 30, 1)
    assert (receipt["exactly_once"], receipt["cluster_id"]) == (True, "target")
    assert {each["target_topic"] for each in receipt["sent"]} == {"copy"}
    again = execute(made, target)
    assert target.done == ["open", "send", "verify"]
    assert (again["records"], again["records_sent"]) == (30, 0)


def test_execute_receipt_of_plan(made: MadeArchive, target: Target) -> None:
    """The receipt says when the run was planned and ended, and how it was really sent."""
    ready = planned(made, target, request(engine="auto"))
    later = NOW + timedelta(hours=1)

    receipt = ready.execute(target, lambda: later)

    times = [each.isoformat(timespec="milliseconds") for each in (NOW, later)]
    assert [receipt["started_at"], receipt["finished_at"]] == times
    assert (receipt["engine"], receipt["transactions"]) == ("worker", "strict")
    assert (receipt["plan"], receipt["key"]) == (ready.plan.sha256, ready.run.key)


def test_execute_jobs_largest_first(made: MadeArchive, target: Target) -> None:
    """What takes longest is sent first, with the target's own limit of a batch."""
    target.cluster.configs["copy"] = KEEPING | {"max.message.bytes": "4096"}

    execute(made, target)

    jobs = [job for group in target.orders for job in group]
    assert [job.records for job in jobs] == [20, 10]
    assert {(job.largest_batch, job.partitions, job.attempt) for job in jobs} == {(4096, 2, 1)}


@pytest.mark.parametrize(
    ("limits", "largest"),
    [
        ({"max.message.bytes": "4096", "segment.bytes": "1073741824"}, 4096),
        # The least before Kafka 4 is 14; a batch that is larger than a segment is refused.
        ({"max.message.bytes": "1048588", "segment.bytes": "524288"}, 524288),
    ],
)
def test_execute_batches_fit_into_segment(
    made: MadeArchive, target: Target, limits: dict[str, str], largest: int
) -> None:
    """No batch is larger than the target takes, whichever setting is the lower one."""
    target.cluster.configs["copy"] = KEEPING | limits

    execute(made, target)

    assert {job.largest_batch for group in target.orders for job in group} == {largest}


def test_execute_jobs_as_asked(made: MadeArchive, target: Target) -> None:
    """Who sends and who verifies gets all that was asked for, and the secrets of both."""
    target.cluster.config = KafkaConfig({"bootstrap.servers": "a:1", "client.id": "me"})
    asked = request(
        hash_fields=("$.a",),
        placement="key:crc32",
        provenance=True,
        records_per_second=7.0,
        bytes_per_second=9.0,
    )
    ready = planned(made, target, asked, hash_key=b"a" * 32)
    ids: Any = {"map": "dr", "ids": {"5": 105}, "guids": {}, "kept": [], "counts": []}
    ready.plan = replace(ready.plan, schema_ids=ids)

    receipt = ready.execute(target, lambda: NOW)

    plan, root = ready.run.require_plan(), str(made.archive.root)
    settings = target.cluster.config.for_librdkafka()
    assert (plan.provenance, plan.placement) == (True, "key:crc32")
    for job in [job for group in target.orders for job in group]:
        assert (job.root, job.key, job.plan) == (root, plan.transactional_name, plan.sha256)
        assert (job.attempts, job.settings) == (plan.attempts, settings)
        assert (job.provenance, job.placement) == (plan.provenance, plan.placement)
        assert (job.records_per_second, job.bytes_per_second) == (7.0, 9.0)
        assert job.change.key == b"a" * 32
        assert job.change.spec.wanted == asked.wanted
        assert job.schema_ids == plan.translation is not None
    assert sorted(tp for job in target.checks for tp in job.tps) == sorted(target.cluster.logs)
    for job in target.checks:
        assert (job.root, job.state, job.key) == (root, str(made.archive.state), plan.key)
        assert (job.settings, job.change.key) == (settings, b"a" * 32)
    assert receipt["change"]["changed"] == 30
    assert not {"schemas", "shards"} & receipt["change"].keys()


class Ticked:
    """An engine that lets time pass and asks for the progress.

    Attributes:
        now: Seconds that have passed.
        steps: What happens before each tick: how much time passes, and something to be done.
        closed: Number of connections that were closed.
    """

    def __init__(self, target: Target, patch: pytest.MonkeyPatch) -> None:
        self.target = target
        self.now = 0.0
        self.steps: list[tuple[float, Callable[[], object]]] = []
        self.closed = 0
        patch.setattr(
            module, "Progress", lambda unit, total: Progress(unit, total, lambda: self.now)
        )
        patch.setattr(module, "ProgressStore", self.store)
        patch.setattr("kafka_drain.kafka.topic_watch.CONFIRM_SECONDS", 0)
        self.fails = False
        self.asked: list[float] = []

    def read(self, slots: Any, timeout: float) -> Any:
        self.asked.append(timeout)
        if self.fails:
            fails()
        return {slots[0]: SimpleNamespace(records=self.target.sent), "none": None}

    def close(self) -> None:
        self.closed += 1

    def store(self, *_: object, waits: bool) -> Any:
        assert not waits
        return SimpleNamespace(read=self.read, close=self.close)

    def __call__(self, plan: RepublishPlan, groups: Any, tick: Callable[[], None]) -> None:
        for seconds, happens in self.steps:
            self.now += seconds
            happens()
            tick()
        self.fails = False
        self.target.sent = plan.records

    def verify(self, plan: RepublishPlan, jobs: list[Any]) -> dict[Any, Any]:
        return self.target.verify(plan, jobs)


@pytest.fixture
def ticked(target: Target, monkeypatch: pytest.MonkeyPatch) -> Ticked:
    return Ticked(target, monkeypatch)


def test_send_progress(made: MadeArchive, target: Target, ticked: Ticked, said: list[str]) -> None:
    """It is said every two seconds what this attempt has sent, and of an outage that it is one."""

    def sent(records: int) -> Callable[[], None]:
        def change() -> None:
            ticked.fails, target.sent = records < 0, max(records, 0)

        return change

    target.sent = 10
    steps = [(1.9, 12), (0.1, -1), (2.0, 15), (1.9, 16), (0.1, -1), (2.0, -1), (2.0, 20)]
    ticked.steps = [(seconds, sent(records)) for seconds, records in steps]

    planned(made, target).execute(ticked, lambda: NOW)

    lines = [re.sub(" \\(.*", "", line) for line in said if "records" in line or "unknown" in line]
    unknown = "republish made: the progress is unknown: no response from Kafka"
    assert lines[-5:] == [
        unknown,
        "republish made: 5 of 20 records",
        unknown,
        "republish made: 10 of 20 records",
        "republish made: 20 of 20 records",
    ]
    # A look doesn't hold up the watch over the senders.
    assert ticked.asked[1:-1] == [5.0] * 5
    assert ticked.closed == 2


def test_send_target_vanishes(made: MadeArchive, target: Target, ticked: Ticked) -> None:
    """A target that is deleted meanwhile ends the sending: clients would wait for it to come."""

    def recreates() -> None:
        target.cluster.topic_ids = {"copy": "another"}

    ticked.steps = [(2.0, recreates), (9.0, fails)]
    ready = planned(made, target)

    with pytest.raises(TopicError, match="topic copy was deleted, and another of that name"):
        ready.execute(ticked, lambda: NOW)

    assert (ticked.now, ticked.closed, target.done) == (2.0, 2, ["open"])


@pytest.mark.parametrize("is_recreated", [True, False])
def test_send_blames_target(
    made: MadeArchive, target: Target, ticked: Ticked, is_recreated: bool
) -> None:
    """What a sender fails with is said as it is, unless its target has vanished."""

    def fail() -> None:
        if is_recreated:
            target.cluster.topic_ids = {"copy": "another"}
        raise DeliveryError("not acknowledged")

    ticked.steps = [(0.0, fail)]
    ready = planned(made, target)

    with pytest.raises(TopicError if is_recreated else DeliveryError) as raised:
        ready.execute(ticked, lambda: NOW)

    assert "topic copy was deleted" in str(raised.value) or not is_recreated
    assert isinstance(raised.value.__cause__, DeliveryError) is is_recreated
    assert ticked.closed == 2


def fails() -> None:
    raise KafkaUnavailableError("no response from Kafka")


@pytest.mark.parametrize("step", ["send", "verify"])
def test_execute_resumes(step: str, made: MadeArchive, target: Target) -> None:
    """A later attempt sends only what isn't sent, and claims nothing that is its own."""
    target.during[step] = fails
    with pytest.raises(KafkaUnavailableError):
        execute(made, target)
    assert planned(made, target).run.receipt() is None
    target.during.clear()
    target.sent = 12 if step == "send" else 30

    receipt = execute(made, target)

    assert (receipt["attempts"], receipt["records_sent"]) == (2, 18 if step == "send" else 0)


def test_execute_lost_records(made: MadeArchive, target: Target) -> None:
    """Without a comparison that finds all records there is no receipt, and no offset map."""
    target.verdict = {"lost": 1}

    with pytest.raises(VerifyError, match="lost 1, duplicated 0"):
        execute(made, target)

    run = planned(made, target).run
    assert (run.receipt(), run.offset_map()) == (None, None)
    target.verdict = {}
    assert execute(made, target)["records_sent"] == 0


def test_execute_other_results(made: MadeArchive, target: Target) -> None:
    """A change that gave something else than planned gets no receipt."""
    target.verdict = {"change": SimpleNamespace(others=[COPY])}
    ready = planned(made, target, request(mask=("$.a",)))

    with pytest.raises(VerifyError, match="made something else of the records of copy-0 than"):
        ready.execute(target, lambda: NOW)

    assert ready.run.receipt() is None


def test_execute_map_before_receipt(
    made: MadeArchive, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has its receipt has its map too: what is killed in between verifies again."""

    class Killed(BaseException):
        pass

    def dies(self: RepublishRun, *_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RepublishRun, "write_offset_map", dies)
        with pytest.raises(Killed):
            execute(made, target)

    assert planned(made, target).run.receipt() is None
    execute(made, target)
    run = planned(made, target).run
    assert (run.receipt() is not None, run.offset_map()) == (True, b"{}")
    assert target.done.count("verify") == 2


@pytest.mark.parametrize("step", ["mark_opened", "write_offset_map"])
def test_execute_follow_left_out_receipt_last(
    step: str, made: MadeArchive, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror's run that sends nothing has its receipt last, too: a killed one is done again."""

    def dies(self: RepublishRun, *_: object) -> None:
        raise KeyboardInterrupt

    mirror = request(follow=True, filters=("$.a=1",))
    execute(made, target, mirror)
    made.seal({TopicPartition("t", 1): dense(20, 25)}, value=b'{"a": 2}')
    made.open_generation()
    with monkeypatch.context() as patch:
        patch.setattr(RepublishRun, step, dies)
        with pytest.raises(KeyboardInterrupt):
            execute(made, target, mirror)

    *_, empty = list_runs(made.root)
    assert not empty.has_ended
    execute(made, target, mirror)
    assert (empty.has_ended, empty.is_opened) == (True, True)
    assert empty.offset_map() is not None


@pytest.mark.parametrize("when", ["before", "send", "after"])
def test_execute_target_recreated(when: str, made: MadeArchive, target: Target) -> None:
    """A target that is made again has lost what was sent to it: no run goes on with it."""
    ready = planned(made, target)

    def recreates() -> None:
        target.cluster.topic_ids = {"copy": "another"}

    if when == "send":
        target.during["send"] = recreates
    elif when == "before":
        recreates()
    else:
        ready.execute(target, lambda: NOW)
        recreates()

    with pytest.raises(TopicError, match="recreated"):
        ready.execute(target, lambda: NOW)

    assert ("send" in target.done) is (when != "before")
    # A claim would keep other runs from sending the records.
    assert (made.root / "republish" / OPENINGS).exists() is (when != "before")
    assert (ready.run.receipt() is None) is (when != "after")
    if when == "send":
        assert "verify" not in target.done


def test_execute_repeated(made: MadeArchive, target: Target) -> None:
    """Another run doesn't send the same records to the same topic again, unless told to."""
    execute(made, target)
    other = request(run_name="other")

    with pytest.raises(ConfigError, match=r"run r"):
        execute(made, target, other)

    assert target.done.count("send") == 1
    assert execute(made, target, request(run_name="other", repeat=True))["records_sent"] == 0
    assert target.done.count("send") == 2


def test_execute_repeated_meanwhile(made: MadeArchive, target: Target) -> None:
    """Nor if it was planned before the first one has opened."""
    first = planned(made, target)
    second = planned(made, target, request(run_name="other"))
    first.execute(target, lambda: NOW)

    with pytest.raises(ConfigError, match=r"run r"):
        second.execute(target, lambda: NOW)

    assert target.done.count("send") == 1


@pytest.mark.parametrize("follow", [False, True])
def test_execute_nothing_selected(
    follow: bool, made: MadeArchive, target: Target, said: list[str]
) -> None:
    """A run that selects nothing leaves no receipt: what is sealed later can still be sent.

    That it sent nothing is a warning, unless it is a mirror's, to which that often happens.
    """
    asked = request(from_time=NOW + timedelta(days=9999), follow=follow)
    if follow:
        execute(made, target, request(follow=True))
        target.done.clear()
        asked = request(follow=True)

    receipt = execute(made, target, asked)

    assert (target.done, receipt["records_sent"]) == ([], 0)
    assert planned(made, target, asked).run.receipt() is None
    [line] = [line for line in said if "no records are selected" in line]
    assert level_of(line) is (Level.PLAIN if follow else Level.WARNING)


@pytest.mark.parametrize("how", [{"filters": ("$.a=1",)}, {"partitions": (0,)}])
def test_execute_follow_left_out(how: dict[str, Any], made: MadeArchive, target: Target) -> None:
    """A mirror is done with what it was to leave out, and goes on after that was reprocessed."""
    mirror = request(follow=True, **how)
    [first, second] = [file.path for file in made.files()]
    execute(made, target, mirror)
    [third] = made.seal({TopicPartition("t", 1): dense(20, 25)}, value=b'{"a": 2}')
    made.open_generation()

    assert execute(made, target, mirror)["records_sent"] == 0
    *_, empty = list_runs(made.root)
    for name in ("plan", "opened", "receipt"):
        # As other programs may check it.
        schema = json.loads((FORMAT / f"republish-{name}.schema.json").read_text())
        Draft202012Validator(schema).validate(
            json.loads((empty.folder / f"{name}.json").read_text())
        )
    made.seal_window(
        "w",
        {TopicPartition("t", 0): dense(0, 10), TopicPartition("t", 1): dense(0, 25)},
        replaces=[first, second, third.path],
        kind="reprocess",
    )
    assert execute(made, target, mirror)["records_sent"] == 0
    assert target.done.count("send") == 1
    # Nor does a run without anything new leave something behind.
    assert len([*list_runs(made.root)]) == 2


@pytest.mark.parametrize("follow", [True, False])
def test_plan_folder_lost(follow: bool, made: MadeArchive, target: Target) -> None:
    """A run whose folder is lost isn't planned anew: what it has sent would be sent twice.

    Kafka's progress of it, which the target's fake doesn't keep, expires after a week.
    """
    asked = request(follow=follow)
    execute(made, target, asked)
    if follow:
        made.seal({TopicPartition("t", 1): dense(20, 25)})
        execute(made, target, asked)
    sent = target.done.count("send")
    *_, last = list_runs(made.root)
    shutil.move(str(last.folder), str(made.root / "lost"))

    for apply in (False, True):
        with pytest.raises(ArchiveError, match=rf"run {last.key} has opened, .* from a copy, or"):
            planned(made, target, asked, apply=apply)

    assert target.done.count("send") == sent
    assert not last.folder.exists()
    shutil.move(str(made.root / "lost"), str(last.folder))
    assert planned(made, target, asked).run.key


def test_plan_other_request(made: MadeArchive, target: Target) -> None:
    """A run that has begun goes on with what it was asked, and nothing else."""
    target.during["send"] = fails
    with pytest.raises(KafkaUnavailableError):
        execute(made, target)

    with pytest.raises(ConfigError, match="use the same request to resume it"):
        planned(made, target, request(topics=("t",), placement="key"))

    # How fast it is sent isn't part of it.
    assert planned(made, target, request(records_per_second=5)).plan.records == 30
    assert planned(made, target, request(pace=5)).plan.records == 30


def test_plan_paced_by_spark(
    made: MadeArchive, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that Spark began can't go on with a pace."""
    monkeypatch.setattr(planner, "WORKER_RECORDS", 0)
    target.during["send"] = fails
    with pytest.raises(KafkaUnavailableError):
        execute(made, target, request(engine="auto"))

    assert planned(made, target, request(engine="auto")).plan.engine == "spark"
    with pytest.raises(ConfigError, match="pace needs engine worker"):
        planned(made, target, request(engine="auto", pace=1))


def test_execute_jobs_paced(made: MadeArchive, target: Target) -> None:
    """All senders of an attempt follow one clock."""
    planned(made, target, request(pace=2)).execute(target, lambda: NOW)

    jobs = [job for group in target.orders for job in group]
    assert len(jobs) > 1
    assert {job.playback for job in jobs} != {None}
    assert len({job.playback for job in jobs}) == 1


def test_plan_abandoned(made: MadeArchive, target: Target) -> None:
    """A run that was abandoned isn't taken up again; one that has its receipt is over anyway."""
    target.during["send"] = fails
    with pytest.raises(KafkaUnavailableError):
        execute(made, target)
    run = planned(made, target).run
    run.abandon(NOW)

    with pytest.raises(ConfigError, match="was abandoned and what it sent is unknown"):
        planned(made, target)


def test_plan_outdated(made: MadeArchive, target: Target, said: list[str]) -> None:
    """A plan that never opened is made again once maintenance may have removed its files."""
    ready = planned(made, target)
    ready.run.write_plan(ready.plan)
    assert planned(made, target, now=NOW + module.UNOPENED).replaced is None

    later = planned(made, target, now=NOW + module.UNOPENED + timedelta(seconds=1))

    assert later.replaced == ready.plan
    assert "never started; planning it again" in said[-1]
    later.execute(target, lambda: NOW)
    assert planned(made, target).plan.created_at == later.plan.created_at


def test_execute_file_gone(made: MadeArchive, target: Target) -> None:
    """Of a run whose files were rewritten while it was planned, nothing is sent, until a retry."""
    ready = planned(made, target)
    [lost, *_] = {file.path for shard in ready.plan.shards for file in shard.files}
    path = made.root / lost
    path.rename(path.with_suffix(".away"))
    made.seal_window("compact_1", {TopicPartition("t", 0): dense(20, 21)})

    with pytest.raises(LockedError, match=f"{re.escape(lost)} was rewritten or deleted while"):
        ready.execute(target, lambda: NOW)

    assert (target.done, ready.run.is_opened) == ([], False)
    assert not (made.root / "republish" / OPENINGS).exists()
    path.with_suffix(".away").rename(path)
    assert execute(made, target)["records"] == 30


@pytest.mark.parametrize("is_begun", [True, False])
def test_execute_file_compacted(is_begun: bool, made: MadeArchive, target: Target) -> None:
    """Nothing is sent of files that a compaction replaced meanwhile, even if it began before."""
    old = [file.path for file in made.files()]
    if is_begun:
        # Frozen before its Spark job starts, long before it is sealed.
        plan = {"ranges": [], "format": "parquet", "replaces": [], "kind": "compact"}
        write_document(Window(made.root, "compact_0001").folder / "plan.json", plan)
    ready = planned(made, target)
    rows = {TopicPartition("t", 0): dense(0, 10), TopicPartition("t", 1): dense(0, 20)}
    value = {"value": b'{"a": 1}'}
    made.seal_window("compact_0001", rows, replaces=old, kind="compact", columns=value)
    for path in old:
        (made.root / path).unlink()

    with pytest.raises(LockedError, match="was rewritten or deleted while"):
        ready.execute(target, lambda: NOW)

    assert (target.done, ready.run.is_opened) == ([], False)
    assert execute(made, target)["records"] == 30


def test_execute_files_being_removed(
    made: MadeArchive, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent of files that maintenance has begun to remove before their plan was there."""
    old = [file.path for file in made.files()]
    ready = planned(made, target)
    rows = {TopicPartition("t", 0): dense(0, 10), TopicPartition("t", 1): dense(0, 20)}
    value = {"value": b'{"a": 1}'}
    made.seal_window("compact_0001", rows, replaces=old, kind="compact", columns=value)
    look = superseded_files.needed_files

    def needed_files(archive: Archive) -> dict[str, frozenset[str]]:
        found = look(archive)
        for _ in range(2):
            with pytest.raises(LockedError, match="was rewritten while"):
                ready.execute(target, lambda: NOW)
        return found

    monkeypatch.setattr(superseded_files, "needed_files", needed_files)
    with hold_lease(made.root / "maintenance", run="maintain"):
        removed = remove_superseded(made.archive)

    assert removed["removed_files"] == len(old)
    assert (target.done, ready.run.is_opened) == ([], False)
    assert execute(made, target)["records"] == 30


def test_execute_mirror_compacted_meanwhile(made: MadeArchive, target: Target) -> None:
    """A mirror sends nothing of files that a compaction has put together with later ones.

    They may still lie there, where the store locks them or a killed maintenance has left them. Had
    it sent them, no later run could send the window: it has sent only a part of it.
    """
    mirror = request(follow=True)
    ready = planned(made, target, mirror)
    made.seal({TopicPartition("t", 0): dense(10, 15)}, value=b'{"a": 1}')
    made.open_generation()
    old = [file.path for file in made.files()]
    rows = {TopicPartition("t", 0): dense(0, 15), TopicPartition("t", 1): dense(0, 20)}
    value = {"value": b'{"a": 1}'}
    made.seal_window("compact_0001", rows, replaces=old, kind="compact", columns=value)

    with pytest.raises(LockedError, match="was rewritten while"):
        ready.execute(target, lambda: NOW)

    assert (target.done, ready.run.is_opened) == ([], False)
    assert execute(made, target, mirror)["records"] == 35
    made.seal({TopicPartition("t", 0): dense(15, 16)}, value=b'{"a": 1}')
    assert execute(made, target, mirror)["records"] == 1


def asked_to_erase(made: MadeArchive) -> Erasure:
    """Accept an erasure of record 3 of each partition."""
    logs = {TopicPartition("t", 0): Log(end=10), TopicPartition("t", 1): Log(end=20)}
    source: Any = FakeCluster(logs, topic_ids={"t": "id-1"})
    wanted = ErasureRequest("r", "b", keys=frozenset({b"3"}))
    made.archive.raise_format(ERASED_VERSION)
    erasure = next_erasure(made.root, erasure_document(made.archive, source, wanted))
    erasure.accept()
    return erasure


def test_execute_erasure_accepted(made: MadeArchive, target: Target) -> None:
    """An erasure that was accepted while a run was planned keeps its records from being sent.

    It found no plan that needs the files, and is rewriting them.
    """
    ready = planned(made, target)
    erasure = asked_to_erase(made)

    with pytest.raises(ArchiveError, match=r"that erasure 1 \(r\) names and that aren't erased"):
        ready.execute(target, lambda: NOW)

    assert (target.done, ready.run.is_opened) == ([], False)
    with pytest.raises(ArchiveError, match="aren't erased yet"):
        execute(made, target)
    erasure.lift(ErasureLiftedDocument(format_version=1, by="b", lifted_at=NOW.isoformat()))
    assert execute(made, target)["records"] == 30


def test_execute_erased_meanwhile(made: MadeArchive, target: Target, said: list[str]) -> None:
    """Files that an erasure replaced while a run was planned aren't sent, though they lie there.

    The store may lock them, or the run's own plan has kept them.
    """
    ready = planned(made, target)
    asked_to_erase(made)
    kept = {TopicPartition("t", 0): dense(0, 10), TopicPartition("t", 1): dense(0, 20)}
    for rows in kept.values():
        del rows[3]
    old = [file.path for file in made.files()]
    made.seal_window("erase_0001", kept, replaces=old, kind="erase", columns={"value": b"{}"})

    with pytest.raises(LockedError, match=r"was rewritten while .* may have been erased"):
        ready.execute(target, lambda: NOW)

    assert (target.done, ready.run.is_opened) == ([], False)
    assert execute(made, target)["records"] == 28
    assert any("never started; planning it again" in line for line in said)


@pytest.mark.parametrize("is_said", [True, False])
def test_plan_outdated_opened(is_said: bool, made: MadeArchive, target: Target) -> None:
    """A plan that has opened is never made again: what was sent is bound to it.

    Also if its attempt was killed as soon as it had, before the run's folder said so.
    """
    target.during["send"] = fails
    with pytest.raises(KafkaUnavailableError):
        execute(made, target)
    run, plan = (found := planned(made, target)).run, found.plan
    if not is_said:
        (run.folder / "opened.json").unlink()

    again = planned(made, target, now=NOW + 2 * module.UNOPENED)

    assert (again.replaced, again.plan) == (None, plan)
    assert run.is_opened


def test_plan_of_other_archive(made: MadeArchive, target: Target) -> None:
    """A copy of an archive doesn't go on with the original's runs."""
    target.during["send"] = fails
    with pytest.raises(KafkaUnavailableError):
        execute(made, target)
    (made.root / "identity.json").unlink()

    with pytest.raises(ArchiveError, match="belongs to the archive with id"):
        planned(made, target)


@pytest.mark.parametrize("is_opened", [True, False])
def test_execute_made_topics(is_opened: bool, made: MadeArchive, target: Target) -> None:
    """Topics that were made for a run which fails before it opens are removed; later they stay."""
    target.cluster.configs["new"] = KEEPING
    republish = planned(made, target, request(target_topic="new", create_target=True))
    assert "new" in target.cluster.topic_names()
    if is_opened:
        target.during["send"] = fails
    else:
        republish = replace(republish, request=request(target_topic="new", placement="key"))

    with pytest.raises(KafkaUnavailableError if is_opened else ConfigError):
        republish.execute(target, lambda: NOW)

    assert ("new" in target.cluster.topic_names()) is is_opened


def test_plan_dry_run(made: MadeArchive, target: Target) -> None:
    """Without being carried out, a plan creates no topic, and gives the archive no id."""
    target.cluster.configs["new"] = KEEPING
    asked = request(target_topic="new", create_target=True)

    assert planned(made, target, asked, apply=False).plan.records == 30

    assert target.cluster.topic_names() == ["copy"]
    assert made.archive.identity() is None


def test_abort(made: MadeArchive, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an attempt that has begun and hasn't ended has transactions to be aborted."""
    aborted: list[int] = []

    def abort_shards(plan: object, run: object, settings: object, attempt: int) -> int:
        aborted.append(attempt)
        return 2

    monkeypatch.setattr(module, "abort_shards", abort_shards)
    republish = planned(made, target)
    republish.run.write_plan(republish.plan)
    republish.abort()
    assert aborted == []

    target.during["send"] = fails
    with pytest.raises(KafkaUnavailableError):
        republish.execute(target, lambda: NOW)
    republish.abort()
    assert aborted == [1]

    target.during.clear()
    republish.execute(target, lambda: NOW)
    republish.abort()
    assert aborted == [1]


def test_execute_at_least_once(made: MadeArchive, target: Target, said: list[str]) -> None:
    """Sent by Spark's own sink, a run is noted as opened first; a later attempt sends all again."""
    asked = request(delivery="at_least_once", engine="spark")
    run = planned(made, target, asked).run
    opened: list[bool] = []

    def sends() -> None:
        opened.append(run.is_opened and Claim(run.root, 1, run.key).state() is ClaimState.OPENED)
        if len(opened) == 1:
            fails()

    target.during["send"] = sends
    with pytest.raises(KafkaUnavailableError):
        execute(made, target, asked)

    receipt = execute(made, target, asked)

    assert opened == [True, True]
    assert any("everything is sent again" in line for line in said)
    assert (receipt["exactly_once"], receipt["records_sent"]) == (False, 30)
    assert receipt["transactions"] is None


def test_execute_at_least_once_withdrawn(
    made: MadeArchive, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose claim another one has withdrawn sends nothing, and isn't noted as opened."""
    asked = request(delivery="at_least_once", engine="spark")
    republish = planned(made, target, asked)

    def withdrawn(*arguments: Any, **more: Any) -> Claim:
        claim = claim_opening(*arguments, **more)
        claim.withdraw("other")
        return claim

    monkeypatch.setattr(module, "claim_opening", withdrawn)

    with pytest.raises(ConfigError, match="run other started to send"):
        republish.execute(target, lambda: NOW)

    assert (target.done, republish.run.is_opened) == ([], False)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SupersededError("attempt 2 took over"), "took over: nothing left to abort"),
        (KafkaUnavailableError("no answer"), "will end at their one-minute timeout: no answer"),
    ],
)
def test_abort_fails(
    made: MadeArchive,
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
    error: Exception,
    says: str,
) -> None:
    """An abort that fails is said, and hides nothing of why the attempt has ended."""

    def abort_shards(*_: object) -> int:
        raise error

    monkeypatch.setattr(module, "abort_shards", abort_shards)
    target.during["send"] = fails
    republish = planned(made, target)
    with pytest.raises(KafkaUnavailableError):
        republish.execute(target, lambda: NOW)

    republish.abort()

    assert says in said[-1]


@pytest.mark.parametrize("creates", [True, False])
def test_plan_lost_targets(made: MadeArchive, target: Target, creates: bool) -> None:
    """Topics that were removed with an attempt that never opened are made anew, if asked for."""
    target.cluster.configs["new"] = KEEPING
    asked = request(target_topic="new", create_target=True)
    first = planned(made, target, asked)
    first.run.write_plan(first.plan)
    assert planned(made, target, asked).replaced is None
    for tp in [tp for tp in target.cluster.logs if tp.topic == "new"]:
        del target.cluster.logs[tp]

    if creates:
        assert planned(made, target, asked).replaced == first.plan
        assert "new" in target.cluster.topic_names()
    else:
        with pytest.raises((ConfigError, TopicError)):
            planned(made, target, request(target_topic="new"))


def test_execute_made_topics_unsure(
    made: MadeArchive, target: Target, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """Topics that may have got records stay, and the error is the one that ended the run."""
    target.cluster.configs["new"] = KEEPING
    republish = planned(made, target, request(target_topic="new", create_target=True))

    def unreadable(_: RepublishRun) -> bool:
        raise OSError("gone away")

    def refuse(*_: object) -> None:
        monkeypatch.setattr(RepublishRun, "is_opened", property(unreadable))
        raise ConfigError("another request")

    monkeypatch.setattr(module, "_refuse_other_request", refuse)

    with pytest.raises(ConfigError, match="another request"):
        republish.execute(target, lambda: NOW)

    assert "new" in target.cluster.topic_names()
    assert "its new topics are left" in said[-1]


def test_plan_fails_after_creation(
    made: MadeArchive, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that fails or is interrupted once it has created its topics removes them."""
    target.cluster.configs["new"] = KEEPING
    asked = request(target_topic="new", create_target=True)

    for error in (KafkaUnavailableError, KeyboardInterrupt):

        def refuse(*_: object, why: type[BaseException] = error, **__: object) -> None:
            raise why

        with monkeypatch.context() as patch:
            patch.setattr("kafka_drain.republish.planning.planner.refuse_repeated", refuse)
            with pytest.raises(error):
                planned(made, target, asked)
        assert target.cluster.topic_names() == ["copy"]


@pytest.mark.parametrize(
    ("owner", "name"), [(RepublishRun, "require_writable"), (Archive, "identify")]
)
def test_plan_read_only(
    owner: type, name: str, made: MadeArchive, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No topic is created for a run whose folder, or whose archive's id, can't be written."""
    target.cluster.configs["new"] = KEEPING
    created: list[str] = []
    monkeypatch.setattr(target.cluster, "create_topic", lambda *of: created.append(of[0]))

    def refuse(_: object) -> None:
        raise ArchiveError("read-only")

    monkeypatch.setattr(owner, name, refuse)

    with pytest.raises(ArchiveError, match="read-only"):
        planned(made, target, request(target_topic="new", create_target=True))

    assert created == []


def test_plan_other_key(made: MadeArchive, target: Target) -> None:
    """A run goes on with its own key only: else the same content would get two pseudonyms."""
    asked = request(hash_fields=("$.a",))
    with pytest.raises(ConfigError, match="needs the secret key of pseudonyms"):
        planned(made, target, asked)
    target.during["send"] = fails
    with pytest.raises(KafkaUnavailableError):
        planned(made, target, asked, hash_key=b"a" * 32).execute(target, lambda: NOW)

    with pytest.raises(ConfigError, match="started with another key of pseudonyms") as raised:
        planned(made, target, asked, hash_key=b"b" * 32)

    assert "bbbb" not in str(raised.value)
    again = planned(made, target, asked, hash_key=b"a" * 32)
    assert again.change is not None
    assert again.change.key == b"a" * 32


def test_plan_follow_other_key(made: MadeArchive, target: Target) -> None:
    """A mirror goes on with its own key only, also in a run that isn't planned yet."""
    asked = request(hash_fields=("$.a",), follow=True)
    planned(made, target, asked, hash_key=b"a" * 32).execute(target, lambda: NOW)
    made.seal({TopicPartition("t", 1): dense(20, 25)}, value=b'{"a": 2}')
    made.open_generation()

    with pytest.raises(ConfigError, match="started with another key of pseudonyms"):
        planned(made, target, asked, hash_key=b"b" * 32)

    assert planned(made, target, asked, hash_key=b"a" * 32).plan.records == 5


def test_execute_other_key_meanwhile(made: MadeArchive, target: Target) -> None:
    """Nor does a run go on that another process has begun meanwhile with another key."""
    asked = request(hash_fields=("$.a",))
    mine = planned(made, target, asked, hash_key=b"a" * 32)
    planned(made, target, asked, hash_key=b"b" * 32).execute(target, lambda: NOW)
    (mine.run.folder / "receipt.json").unlink()

    with pytest.raises(ConfigError, match="started with another key of pseudonyms"):
        mine.execute(target, lambda: NOW)

    assert target.done.count("send") == 1


@pytest.mark.parametrize("name", ["m:g", "m:f"])
def test_plan_other_function(name: str) -> None:
    """Nor does a run go on with another function, or one that was edited."""
    wanted = request(change="m:f").wanted
    planned, found = FunctionId("m:f", "0" * 64, "3.12"), FunctionId(name, "1" * 64, "3.12")
    spec = ChangeSpec(wanted, planned)
    document: Any = spec.to_dict()

    module._refuse_other_change("r", document, Change(spec))
    with pytest.raises(ConfigError, match="run r: the plan has the function m:f"):
        module._refuse_other_change("r", document, Change(replace(spec, function=found)))


def test_plan_receipt_alone(made: MadeArchive, target: Target) -> None:
    """A run that has its receipt, but lost its plan, is over, and bound to its target."""
    execute(made, target)
    (planned(made, target).run.folder / "plan.json").unlink()

    assert execute(made, target, request(repeat=True))["records_sent"] == 0
    assert target.done.count("send") == 1
    target.cluster.topic_ids = {"copy": "another"}
    with pytest.raises(TopicError, match="recreated"):
        planned(made, target, request(repeat=True))


def test_plan_follow_recreated(made: MadeArchive, target: Target) -> None:
    """A mirror whose target was made again is refused: what was sent before is missing there."""
    mirror = request(follow=True)
    execute(made, target, mirror)
    made.seal({TopicPartition("t", 1): dense(20, 25)}, value=b'{"a": 1}')
    made.open_generation()
    target.cluster.topic_ids = {"copy": "another"}

    with pytest.raises(TopicError, match=r"recreated.* Nothing"):
        planned(made, target, mirror)


def test_sign_run(made: MadeArchive, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signed is what the receipt says, with the hashes of it and of the map; nothing before it."""
    signed: list[Any] = []

    def sign(*arguments: Any) -> str:
        signed.extend(arguments)
        return "path"

    monkeypatch.setattr(signing, "sign", sign)
    signer: Any = object()
    run = planned(made, target).run
    with pytest.raises(ArchiveError, match="has no receipt, so there is nothing to sign"):
        sign_run(made.archive, run, signer, NOW)
    execute(made, target)

    assert sign_run(made.archive, run, signer, NOW) == "path"

    archive, by, kind, name, document, files, at = signed
    assert (archive, by, kind, name, at) == (made.archive, signer, "republish", run.key, NOW)
    assert files == [f"republish/{run.key}/{file}.json" for file in ("receipt", "offset-map")]
    receipt: Any = run.receipt()
    left_out = {"sent", "through"}
    assert document == {key: value for key, value in receipt.items() if key not in left_out}
    assert document["verification"]["is_exact"]


def test_send_abandoned(made: MadeArchive, target: Target, ticked: Ticked) -> None:
    """A run that is abandoned while it is sent ends: erasures don't wait for it any more."""
    ready = planned(made, target)
    ticked.steps = [(2.0, lambda: ready.run.abandon(NOW)), (9.0, fails)]

    with pytest.raises(ConfigError, match="was abandoned"):
        ready.execute(ticked, lambda: NOW)

    assert (ticked.now, ready.run.has_ended) == (2.0, False)


def test_execute_abandoned_meanwhile(made: MadeArchive, target: Target) -> None:
    """A run that was abandoned after it was planned sends nothing."""
    ready = planned(made, target)
    ready.run.abandon(NOW)

    with pytest.raises(ConfigError, match="was abandoned"):
        ready.execute(target, lambda: NOW)

    assert target.done == []

"""A whole drill: what it restores, to where, and what is left and said when a step fails."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import DrillDocument, RegistryDocument, SeenIdsRow
from kafka_drain.archive.drills import read_drills, unfinished_drills
from kafka_drain.archive.schema_seals import REGISTRY
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.clock import utc_now
from kafka_drain.config.drill import PREFIX
from kafka_drain.drills import drill as module
from kafka_drain.drills.decoding import Decoding
from kafka_drain.drills.drill import DrillRequest, plan_drill, run_drill
from kafka_drain.errors import (
    ArchiveError,
    KafkaUnavailableError,
    LockedError,
    TopicError,
    VerifyError,
)
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.signing import Signer
from kafka_drain.evidence.verifying import verify_evidence
from kafka_drain.findings import Finding, Reason
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import drill_run
from kafka_drain.schemas.capture import OF_CONTEXT
from kafka_drain.schemas.decoders import Decoders
from kafka_drain.storage.lease import find_lease, hold_lease
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import golden_copy, sealed_copy
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense

SEALED = "2025-12-31T23:59:00.000+00:00"


class Leaving(FakeCluster):
    """Answers a number of times."""

    asked_times = 0
    _answered = False

    def __init__(self, answers: int) -> None:
        super().__init__({}, id="target")
        self._left = answers

    def cluster_id(self) -> str:
        self.asked_times += 1
        if self._left == 0:
            raise KafkaUnavailableError("no response from Kafka")
        self._left -= 1
        self._answered = True
        return self.id

    def named(self) -> dict[str, str]:
        known = super().named()
        return known if self._answered else {"bootstrap_servers": known["bootstrap_servers"]}

    def keeping_settings(self, *_: object) -> Any:
        raise KafkaUnavailableError("no response from Kafka")


@pytest.mark.parametrize(("answers", "asked", "known"), [(0, 1, ""), (1, 2, "target")])
def test_drill_without_kafka(answers: int, asked: int, known: str, tmp_path: Path) -> None:
    """A cluster that doesn't answer isn't waited for again to name it in the result.

    One that leaves later is asked for what is left of the scratch topics.
    """
    cluster: Any = Leaving(answers)

    result = run_drill(
        sealed_copy(tmp_path / "archive"),
        cluster,
        lambda *_: None,
        DrillRequest(),
        run="tests",
        clock=utc_now,
    )

    assert cluster.asked_times == asked
    assert (result.verdict, result.cluster_id) == ("failed", known)
    assert [problem.detail for problem in result.problems] == ["no response from Kafka"]


# the steps of a drill


class Scratchy(FakeCluster):
    """A cluster that takes scratch topics; it notes which it had, and refuses one if told so."""

    refuses = ""

    def __init__(self) -> None:
        super().__init__({TopicPartition("mine", 0): Log()}, id="target")
        self.made: dict[str, TopicSettings] = {}
        self.keeps: set[str] = set()

    def keeping_settings(self, name: str, settings: TopicSettings) -> dict[str, str]:
        return {}

    def create_topic(self, name: str, settings: TopicSettings) -> bool:
        if self.refuses and name.endswith(self.refuses):
            raise TopicError("the policy refuses it")
        self.made[name] = settings
        return super().create_topic(name, settings)

    def delete_topic(self, name: str, topic_id: str | None = None) -> bool:
        if name in self.keeps or "" in self.keeps:
            raise TopicError("the policy keeps it")
        return super().delete_topic(name, topic_id or self.ids_of([name]).get(name))


class Restore:
    """Takes the place of a republish: notes what it was asked for, and does what a test wants."""

    def __init__(self) -> None:
        self.asked: RepublishRequest | None = None
        self.records = 84
        self.sends: Callable[[], object] = lambda: None
        self.topics = set[str]()

    @property
    def plan(self) -> Any:
        return SimpleNamespace(records=self.records)

    def planned(self, archive: Archive, cluster: Any, request: RepublishRequest, **_: Any) -> Any:
        self.asked, self.topics = request, set(cluster.topic_names())
        return self

    def execute(self, engine: object, clock: object) -> dict[str, Any]:
        self.sends()
        return {"verification": {"is_exact": True}}


class Groups:
    """Takes the place of the cluster's consumer groups: a drill deletes its own."""

    def __init__(self, *_: object) -> None: ...

    def delete(self, group: str) -> None: ...


@pytest.fixture
def restore(monkeypatch: pytest.MonkeyPatch) -> Restore:
    """The republish of a drill, and no Kafka for its groups."""
    restore = Restore()
    monkeypatch.setattr(module, "plan_republish", restore.planned)
    monkeypatch.setattr(module, "ConsumerGroups", Groups)
    return restore


@pytest.fixture
def target() -> Scratchy:
    return Scratchy()


def drill(archive: Archive, target: Scratchy, **request: Any) -> DrillDocument:
    """Drill the whole archive, as of a fixed time."""
    asked = DrillRequest(**{"sample": "whole", "seed": 1} | request)
    cluster: Any = target
    return run_drill(archive, cluster, no_engine, asked, run="tests", clock=lambda: NOW)


def no_engine(*_: object) -> None:
    """Sends nothing: the republish doesn't ask it."""


no_engine.verify = lambda *_: {}  # type: ignore[attr-defined]


def test_run_drill_restores_to_scratch(
    archive: Archive, target: Scratchy, restore: Restore
) -> None:
    """Only what is sealed is sent, exactly once, and only to the drill's own topics."""
    result = drill(archive, target)

    [name] = target.made
    asked = restore.asked
    assert asked is not None
    assert (asked.topics, dict(asked.rename)) == (("flights",), {"flights": name})
    assert (asked.sealed_only, asked.engine, asked.delivery) == (True, "worker", "exactly_once")
    assert name == f"{PREFIX}.{result.drill}.flights"
    assert target.made[name].partitions == 2
    assert restore.topics == {"mine", name}
    assert (result.verdict, result.records, result.topics) == ("passed", 84, {"flights": name})
    assert result.verification == {"is_exact": True}
    assert read_drills(archive.root) == [result]
    assert target.topic_names() == ["mine"]
    assert unfinished_drills(archive.root) == []


@pytest.mark.parametrize(
    ("pattern", "is_own", "is_refused"),
    [
        (".*", True, True),
        (r".*\.flights", True, True),
        ("fl.*", True, False),
        ("kafka-drain-drill", True, False),
        (".*", False, False),
    ],
)
def test_run_drill_that_would_be_drained(
    pattern: str,
    is_own: bool,
    is_refused: bool,
    archive: Archive,
    target: Scratchy,
    restore: Restore,
) -> None:
    """Scratch topics that the pipeline's own pattern matches aren't made where it would see them.

    A drain meanwhile would archive one, and be refused each time once the drill has removed it.
    """
    path = Path(str(archive.root)) / "archive.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"source": {"topic_pattern": pattern}}))
    target.id = document["cluster_id"] if is_own else "target"

    result = drill(archive, target)

    assert bool(target.made) is not is_refused
    assert result.verdict == ("failed" if is_refused else "passed")
    if is_refused:
        [problem] = result.problems
        assert (problem.step, problem.error, problem.transient) == ("plan", "TopicError", False)
        assert f"topic_pattern {pattern!r} matches the scratch topic" in problem.detail
        assert unfinished_drills(archive.root) == []


def test_run_drill_without_records(archive: Archive, target: Scratchy, restore: Restore) -> None:
    """A drill that restored nothing has proven nothing: it fails."""
    restore.records = 0

    result = drill(archive, target)

    assert (result.verdict, result.rto_seconds, result.verification) == ("failed", None, None)
    [problem] = result.problems
    assert problem.step == "restore"
    assert "has no records; nothing was restored" in problem.detail
    assert target.topic_names() == ["mine"]


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (VerifyError("the target lacks a record"), False),
        (KafkaUnavailableError("no response from Kafka"), True),
        (OSError("no space left"), False),
    ],
)
def test_run_drill_restore_fails(
    archive: Archive,
    target: Scratchy,
    restore: Restore,
    error: Exception,
    transient: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What fails is in the result, nothing comes after it, and the scratch topics are removed."""
    monkeypatch.setattr(module, "_decoding_of", lambda _: pytest.fail("decodes what isn't there"))
    restore.sends = raising(error)

    result = drill(archive, target)

    [problem] = result.problems
    assert (problem.step, problem.error) == ("restore", type(error).__name__)
    assert problem.transient is transient
    assert (result.verdict, result.rto_seconds, result.left) == ("failed", None, [])
    assert target.topic_names() == ["mine"]
    assert unfinished_drills(archive.root) == []


def raising(error: BaseException) -> Callable[[], object]:
    """Return a function that raises an error."""

    def raises() -> None:
        raise error

    return raises


def test_run_drill_interrupted(archive: Archive, target: Scratchy, restore: Restore) -> None:
    """An interrupted drill removes its topics too, and leaves no result that could pass."""
    restore.sends = raising(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        drill(archive, target)

    assert target.topic_names() == ["mine"]
    assert read_drills(archive.root) == []
    assert find_lease(archive.root / "drills") is None


def test_run_drill_topics_left(archive: Archive, target: Scratchy, restore: Restore) -> None:
    """A drill that can't clean up fails, names what is left, and the next one removes it."""
    target.keeps = {""}

    result = drill(archive, target)

    left = [name for name in target.topic_names() if name != "mine"]
    assert (result.verdict, result.left) == ("failed", left)
    assert [(each.step, left[0] in each.detail) for each in result.problems] == [("clean_up", True)]
    assert len(unfinished_drills(archive.root)) == 1
    target.keeps = set()
    assert drill(archive, target).verdict == "passed"
    assert target.topic_names() == ["mine"]
    assert unfinished_drills(archive.root) == []


def test_run_drill_topic_refused(tmp_path: Path, target: Scratchy, restore: Restore) -> None:
    """If one of several scratch topics is refused, those before it are removed; nothing is sent."""
    made = MadeArchive(tmp_path / "archive", {"a": "1", "b": "2"})
    made.seal({TopicPartition("a", 0): dense(0, 3), TopicPartition("b", 4): dense(0, 3)})
    made.open_generation()
    target.refuses = ".b"

    result = drill(made.archive, target)

    assert len(target.made) == 1
    assert target.topic_names() == ["mine"]
    assert unfinished_drills(made.root) == []
    assert restore.asked is None
    assert [problem.step for problem in result.problems] == ["plan"]
    target.refuses = ""
    drill(made.archive, target)
    assert {name[-1]: each.partitions for name, each in target.made.items()} == {"a": 1, "b": 5}


def test_run_drill_while_another_runs(archive: Archive, target: Scratchy, restore: Restore) -> None:
    """Only one drill runs at a time: it would remove the other's topics as leftovers."""
    with (
        hold_lease(archive.root / "drills", run="other"),
        pytest.raises(LockedError, match="run other"),
    ):
        run_drill(
            archive,
            target,  # type: ignore[arg-type]
            no_engine,  # type: ignore[arg-type]
            DrillRequest(),
            run="tests",
            clock=utc_now,
        )

    assert target.made == {}


def test_run_drill_figures(tmp_path: Path, target: Scratchy, restore: Restore) -> None:
    """What would be lost now is the age of the newest sealed record when the drill started."""
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    newest = round(NOW.timestamp() * 1000) - 90_500
    made.seal({TopicPartition("t", 0): {0: newest - 5_000, 1: newest}})
    made.seal({TopicPartition("t", 0): {2: newest - 3_000}}, sealed_at=SEALED)
    made.open_generation()

    result = drill(made.archive, target, max_age_days=7)

    assert result.rpo_seconds == 90.5
    assert result.newest_record == "2025-12-31T23:58:29.500+00:00"
    assert (result.drained_through, result.max_age_days) == (SEALED, 7)


def test_run_drill_times(
    archive: Archive, target: Scratchy, restore: Restore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drill says when it began and ended, and how long its restore took."""
    now, seconds = NOW, 100.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: seconds))

    def sends() -> None:
        nonlocal now, seconds
        now, seconds = now + timedelta(hours=1), seconds + 7.25

    restore.sends = sends
    result = run_drill(
        archive,
        target,  # type: ignore[arg-type]
        no_engine,  # type: ignore[arg-type]
        DrillRequest(sample="whole"),
        run="tests",
        clock=lambda: now,
    )

    assert result.rto_seconds == 7.25
    times = [datetime.fromisoformat(at) for at in (result.started_at, result.finished_at)]
    assert times == [NOW, NOW + timedelta(hours=1)]
    assert result.drill.startswith(f"{NOW:%Y%m%dT%H%M%SZ}-")
    # What would be lost is as of its beginning.
    newest = datetime.fromisoformat(str(result.newest_record))
    assert result.rpo_seconds == pytest.approx((NOW - newest).total_seconds())


def test_run_drill_sample(tmp_path: Path, target: Scratchy, restore: Restore) -> None:
    """Only the sample's time is restored, and the result names it with its seed."""
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    newest = round(NOW.timestamp() * 1000) - 1
    made.seal({TopicPartition("t", 0): {0: newest - 7_200_000, 1: newest}})
    made.open_generation()

    result = drill(made.archive, target, sample="newest_hour", seed=7)

    asked = restore.asked
    assert asked is not None
    assert (asked.from_time, asked.to_time) == (NOW - timedelta(hours=1), NOW)
    assert asked.run_name == drill_run(result.drill)
    assert result.sample is not None
    assert result.sample.model_dump() == {
        "kind": "newest_hour",
        "from_time": "2025-12-31T23:00:00.000+00:00",
        "to_time": "2026-01-01T00:00:00.000+00:00",
        "seed": 7,
    }


def test_run_drill_settings(
    archive: Archive, target: Scratchy, restore: Restore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scratch topic is like its source, with what a restore needs and what the user sets."""
    config = {"max.message.bytes": "5", "compression.type": "zstd", "retention.ms": "1"}
    write_topic_settings(archive.root, {"flights": TopicSettings(7, 2, config=config)})
    asked: list[Any] = []

    def keeping(*given: object) -> dict[str, str]:
        asked.append(given)
        return {"retention.ms": "-1"}

    monkeypatch.setattr(target, "keeping_settings", keeping)

    drill(archive, target, topic_config={"compression.type": "lz4"})

    [(name, settings)] = target.made.items()
    assert asked == [(name, TopicSettings(7, 2, config=config))]
    expected = {"max.message.bytes": "5", "compression.type": "lz4", "retention.ms": "-1"}
    assert settings == TopicSettings(7, 2, config=expected)


def test_run_drill_signed(archive: Archive, target: Scratchy, restore: Restore) -> None:
    """A result is signed, with its file's hash; one that failed, too."""
    key = SigningKey.create(Path(str(archive.root)).with_name("key"))
    for records, verdict in ((84, "passed"), (0, "failed")):
        restore.records = records
        cluster: Any = target
        result = run_drill(
            archive,
            cluster,
            no_engine,  # type: ignore[arg-type]
            DrillRequest(sample="whole"),
            run="tests",
            clock=lambda: NOW,
            signer=Signer(key),
        )

        path = Path(str(archive.root)) / f"evidence/drill/{result.drill}.json"
        said = verify_evidence("it", path.read_bytes(), {key.public.id: key.public}).statement
        assert said.kind == "drill"
        assert said.document == result.content()
        assert said.document["verdict"] == verdict
        [(file, digest)] = said.files.items()
        content = (Path(str(archive.root)) / file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        assert json.loads(content) == result.content()


def test_plan_drill_random(archive: Archive) -> None:
    """Without a seed, each drill chooses by another, which its plan tells; 0 is a seed, too."""
    seeds = {plan_drill(archive, DrillRequest()).sample.seed for _ in range(3)}

    assert len(seeds) > 1
    assert plan_drill(archive, DrillRequest(seed=0)).sample.seed == 0


def test_plan_drill_day(tmp_path: Path) -> None:
    """Of a day, only topics and partitions whose files reach into it are restored."""
    made = MadeArchive(tmp_path / "archive", {"a": "1", "b": "2"})
    day, midnight = 86_400_000, 20_000 * 86_400_000
    made.seal({TopicPartition("a", 1): {0: midnight, 1: midnight + day - 1}})
    made.seal({TopicPartition("a", 0): {0: midnight + 5}})
    made.seal({TopicPartition("a", 3): {0: midnight + day}})
    made.seal({TopicPartition("b", 2): {0: midnight - 1}})
    made.open_generation()
    plans = {
        plan.sample.from_time: dict(plan.partitions)
        for seed in range(20)
        for plan in [plan_drill(made.archive, DrillRequest(seed=seed))]
    }

    assert {time.day: found for time, found in plans.items() if time} == {
        3: {"b": 3},
        4: {"a": 2},
        5: {"a": 4},
    }


def test_plan_drill_nothing_sealed(tmp_path: Path) -> None:
    """Without sealed records there is nothing to prove."""
    with pytest.raises(ArchiveError, match="has no sealed records to restore"):
        plan_drill(golden_copy(tmp_path / "archive"), DrillRequest())


@pytest.mark.parametrize(
    ("values", "verdict", "figures"),
    [
        ([b'{"a": 1}', b"2"], "passed", (4, 4, 0)),
        ([b"2", b"{"], "passed", (4, 2, 2)),
        ([b"2", b"\0\0\0\0\7x"], "failed", (4, 2, 2)),
    ],
)
def test_run_drill_decodes(
    archive: Archive,
    target: Scratchy,
    restore: Restore,
    values: list[bytes],
    verdict: str,
    figures: tuple[int, int, int],
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the target gives back is decoded, of each partition; what names no schema needs none."""
    named = Decoders(lambda _: None)
    monkeypatch.setattr(module, "_decoding_of", lambda _: Decoding(None, named=named))
    target.contents = lambda tp, span: rows_of(tp, values) if tp.topic != "mine" else []

    result = drill(archive, target)

    assert result.verdict == verdict
    decoded = result.decoded
    assert decoded is not None
    assert (decoded.values, decoded.decoded, decoded.undecodable) == figures
    warned = [line for line in said if "2 of 4 restored values aren't JSON" in line]
    assert bool(warned) == (b"{" in values)


def test_run_drill_decodes_some(
    archive: Archive, target: Scratchy, restore: Restore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each partition no more values are decoded than asked for, of topics with schemas only."""
    target.contents = lambda tp, span: rows_of(tp, [b"1", b"2", b"3"])

    def values(topics: set[str] | None) -> int:
        monkeypatch.setattr(module, "_decoding_of", lambda _: Decoding(None, topics))
        decoded = drill(archive, target, decoded=2).decoded
        assert decoded is not None
        return decoded.values

    assert [values(None), values({"flights"}), values({"other"})] == [4, 4, 0]


@pytest.mark.parametrize(
    ("notes", "verdict", "says"),
    [
        (["http://r rejects the login (403); not read: flights-value"], "failed", "schema 7"),
        (["http://r doesn't have the schemas of 1 ids in the records: 7"], "passed", "not judged"),
        ([f"http://r doesn't have the schemas of 1 ids: 7{OF_CONTEXT}"], "failed", "schema 7"),
    ],
)
def test_run_drill_no_schema_kept(
    archive: Archive,
    target: Scratchy,
    restore: Restore,
    notes: list[str],
    verdict: str,
    says: str,
    said: list[str],
) -> None:
    """A drill of values whose schemas the archive lacks fails, or says what it couldn't judge."""
    seen = SeenIdsRow(topic="flights", part="value", ids=[7], guids=[])
    update = {"url": "http://r", "seen": [seen], "notes": notes}
    RegistryDocument.empty().model_copy(update=update).write(archive.root / REGISTRY)
    target.contents = lambda tp, span: rows_of(tp, [b"\0\0\0\0\7x"])

    result = drill(archive, target)

    assert result.verdict == verdict
    assert result.decoded is not None
    assert result.decoded.unknown_schemas == [7]
    assert any(says in line for line in said)


def test_run_drill_decodes_in_batches(
    archive: Archive, target: Scratchy, restore: Restore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition is read up to its own limit and no further, of committed records only."""
    monkeypatch.setattr(module, "_decoding_of", lambda _: Decoding(None))
    target.contents = lambda tp, span: rows_of(tp, [b"1"] * 5)
    real, read = target.records, list[tuple[int, int]]()

    def records(tp: TopicPartition, span: OffsetRange, isolation_level: str) -> Iterator[Any]:
        assert (span.start, isolation_level) == (0, "read_committed")
        for batch in real(tp, span, isolation_level):
            for at in range(batch.num_rows):
                read.append((tp.partition, at))
                yield batch.slice(at, 1)

    monkeypatch.setattr(target, "records", records)
    decoded = drill(archive, target, decoded=3).decoded

    assert decoded is not None
    assert decoded.values == 6
    assert read == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # Nothing is known of a schema.
        (None, None),
        ({"settings": {"encoding": "json"}}, "json"),
        ({"settings": {"encoding": "avro"}}, "ids"),
    ],
)
def test_decoding_of(values: dict[str, Any] | None, expected: str | None, archive: Archive) -> None:
    """Values are decoded as the pipeline says, by schema ids also if no schema was kept."""
    generation = SimpleNamespace(document=SimpleNamespace(values=values))
    snapshot: Any = SimpleNamespace(root=archive.root, open_generation=generation)

    decoding = module._decoding_of(snapshot)

    found = None if decoding is None else "json" if decoding.decoders is None else "ids"
    assert found == expected
    snapshot.open_generation = None
    assert module._decoding_of(snapshot) is None


def test_run_drill_not_judged_of_others(
    archive: Archive, target: Scratchy, restore: Restore, said: list[str]
) -> None:
    """Schemas that topics lack which weren't restored don't concern the drill."""
    seen = [
        SeenIdsRow(topic=topic, part="value", ids=ids, guids=[])
        for topic, ids in (("flights", [*range(1, 13)]), ("other", [99]))
    ]
    note = "http://r doesn't have the schemas of 13 ids in the records: 7"
    update = {"url": "http://r", "seen": seen, "notes": [note]}
    RegistryDocument.empty().model_copy(update=update).write(archive.root / REGISTRY)

    result = drill(archive, target)

    assert result.decoded is not None
    assert result.decoded.unknown_schemas == [*range(1, 11)]
    [line] = [line for line in said if "not judged" in line]
    assert "values of flights" in line


def test_run_drill_schema_lost(
    archive: Archive, target: Scratchy, restore: Restore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With schemas that were changed since they were sealed, values aren't decoded: it fails."""
    lost = Finding(Reason.SCHEMA_CHANGED, "schemas.json", "schema 1 was changed")
    monkeypatch.setattr(module, "check_schemas", lambda *_, **__: [lost])

    result = drill(archive, target)

    assert [(each.step, each.error) for each in result.problems] == [("decode", "SchemaError")]
    assert result.verdict == "failed"
    assert result.records == 84


def rows_of(tp: TopicPartition, values: list[bytes]) -> list[dict[str, Any]]:
    """Return what a target partition holds."""
    return [
        {"topic": tp.topic, "partition": tp.partition, "offset": at, "value": value}
        for at, value in enumerate(values)
    ]


def test_run_drill_figures_of_the_future(
    tmp_path: Path, target: Scratchy, restore: Restore
) -> None:
    """A record that is dated ahead isn't the newest that would be kept."""
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    now = round(NOW.timestamp() * 1000)
    made.seal({TopicPartition("t", 0): {0: now - 90_500}})
    made.seal({TopicPartition("t", 0): {1: 2 * now}})
    made.open_generation()

    result = drill(made.archive, target, sample="newest_hour")

    assert result.rpo_seconds == 90.5
    assert result.sample is not None
    assert result.sample.to_time == "2025-12-31T23:58:29.501+00:00"

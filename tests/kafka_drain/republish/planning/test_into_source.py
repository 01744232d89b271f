"""Whether records may go into a topic that the archive drains."""

from __future__ import annotations

from dataclasses import astuple
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import TopicError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.into_source import Standing, Verdict, check_sources, judge
from kafka_drain.republish.planning.previous_runs import sent
from kafka_drain.republish.planning.runs import RepublishRun
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.republish.receipts import receipt_of
from tests.tables import each_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def expected(standing: Standing, is_asked: bool, follows: bool) -> Verdict:
    """Tell the verdict by looking from the dangers: twice there, mixed, without end, archived."""
    is_source = standing.same_cluster and standing.is_archived
    if is_source and follows and not is_asked:
        return Verdict.FEEDS_ITSELF
    if is_source and standing.exists and standing.holds_records and not is_asked:
        return {True: Verdict.HELD, False: Verdict.RECREATED}[standing.is_same_incarnation]
    if is_source and standing.exists and standing.holds_records:
        return Verdict.ASKED
    if is_source:
        return Verdict.RESTORES
    if standing.same_cluster and standing.is_matched:
        return Verdict.FEEDS_ITSELF if follows and not is_asked else Verdict.DRAINED
    return Verdict.ELSEWHERE


@each_of("flags", list(product([False, True], repeat=8)))
def test_judge(flags: tuple[bool, ...]) -> None:
    """All combinations; what may be there twice is refused unless it was said in words."""
    standing, (is_asked, follows) = Standing(*flags[:6]), flags[6:]
    assert astuple(standing) == flags[:6]

    verdict = judge(standing, is_asked=is_asked, follows=follows)

    assert verdict is expected(standing, is_asked, follows)
    assert not (verdict.is_refused and is_asked)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of topic t, which was made again once."""
    made = MadeArchive(tmp_path / "archive", {"t": "first"})
    made.seal({T0: dense(0, 10)})
    made.open_generation(t="second")
    made.seal({T0: dense(0, 4)})
    return made


def check(
    made: MadeArchive,
    logs: dict[TopicPartition, Log],
    id: str = "second",
    *targets: str,
    is_asked: bool = False,
    follows: bool = False,
    cluster_id: str = "cluster-1",
) -> list[str]:
    cluster: Any = FakeCluster(logs, id=cluster_id, topic_ids={"t": id})
    return check_sources(
        made.archive.snapshot(), cluster, targets or ("t",), is_asked=is_asked, follows=follows
    )


@pytest.mark.parametrize(
    ("id", "says"),
    [
        ("second", "which may be records of this archive: they would be duplicated"),
        ("first", "which may be records of this archive: they would be duplicated"),
        ("third", "recreated after it was archived: they would be mixed"),
    ],
)
def test_check_sources_held(made: MadeArchive, id: str, says: str) -> None:
    """A source that holds something is refused, whatever life of it; in words it may be."""
    logs = {T0: Log(), T1: Log(first=7, end=9)}

    with pytest.raises(TopicError, match=rf"t is a source of .* holds 2 offsets, .*{says}"):
        check(made, logs, id)

    [note] = check(made, logs, id, is_asked=True)
    assert note.startswith("WARNING topic t is a source of this archive and holds 2 offsets")


@pytest.mark.parametrize(
    "log",
    [Log(end=1), Log(first=7, end=8), Log(first=7, end=9, stable=7)],
    ids=["one", "one that is left", "open transaction"],
)
def test_check_sources_holds_one(made: MadeArchive, log: Log) -> None:
    """One offset that may be a record is enough, also one of a transaction that is still open."""
    with pytest.raises(TopicError, match=rf"holds {log.end - log.first} offsets"):
        check(made, {T0: log, T1: Log()})


@pytest.mark.parametrize(
    ("in_document", "in_generation", "is_source"),
    [(True, True, True), (True, False, True), (False, True, True), (False, False, False)],
)
def test_check_sources_known(
    tmp_path: Path, in_document: bool, in_generation: bool, is_source: bool
) -> None:
    """A topic is a source if archive.json names it, or a generation; one of both is enough."""
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    logs = {TopicPartition("new", 0): Log(end=5)}
    cluster: Any = FakeCluster(logs, topic_ids={"new": "2"})
    if in_generation:
        made.open_generation(new="2")
    ids = {"t": "1"} | ({"new": "2"} if in_document else {})
    known = made.archive.snapshot().document
    made.archive.create(
        pipeline="made", cluster_id="cluster-1", topic_ids=ids, source={}, known=known
    )
    snapshot = made.archive.snapshot()

    def notes() -> list[str]:
        return check_sources(snapshot, cluster, ["new"], is_asked=False, follows=False)

    if is_source:
        with pytest.raises(TopicError, match="which may be records of this archive: they would be"):
            notes()
    else:
        assert notes() == []


@pytest.mark.parametrize(
    ("sent_to", "is_part"), [("third", True), ("second", False), (None, False)]
)
def test_check_sources_restored_in_parts(
    made: MadeArchive, sent_to: str | None, is_part: bool
) -> None:
    """Where a run of the archive has restored part of an emptied source, the refusal says so.

    Receipts of older releases may not have the topic's id.
    """
    run = RepublishRun(made.root, "part-1")
    entry = sent(PLAN)[0]
    entry.pop("target_topic_id")
    entry["target_topic"] = "t"
    if sent_to is not None:
        entry["target_topic_id"] = sent_to
    run.write_receipt(receipt_of(key=run.key, sent=[entry]))
    RepublishRun(made.root, "part-2").mark_opened(PLAN)

    with pytest.raises(TopicError) as caught:
        check(made, {T0: Log(end=5), T1: Log()}, "third")

    says = "(run part-1 restored part of it; if it holds nothing else, continue with the next part"
    assert (says in str(caught.value)) is is_part


@pytest.mark.parametrize("id", ["first", "second", "third"])
def test_check_sources_empty(made: MadeArchive, id: str) -> None:
    """A source that was emptied, or made again and holds nothing, is restored without a switch."""
    [note] = check(made, {T0: Log(first=14, end=14), T1: Log()}, id)

    assert note == (
        "topic t is a source of this archive and holds 0 offsets: it is restored, and a drain "
        "will archive what is sent to it once more"
    )


def test_check_sources_gone(made: MadeArchive) -> None:
    """A source that is gone is restored without a switch."""
    [note] = check(made, {})

    assert "doesn't exist: it is restored" in note


def test_check_sources_elsewhere(made: MadeArchive) -> None:
    """Another topic, or one of the same name in another cluster, is no source."""
    assert check(made, {T0: Log(end=9)}, "second", "other") == []
    assert check(made, {T0: Log(end=9)}, cluster_id="elsewhere") == []


def test_check_sources_pattern(made: MadeArchive) -> None:
    """A target that the archive drains by its pattern is told; a mirror may not feed itself."""
    made.archive.create(
        pipeline="made",
        cluster_id="cluster-1",
        topic_ids={"t": "second"},
        source={"topic_pattern": "t.*"},
        known=made.archive.snapshot().document,
    )
    logs = {T0: Log(end=9), TopicPartition("t.restored", 0): Log(end=9)}

    [note] = check(made, logs, "second", "t.restored")
    assert note.startswith("WARNING topic t.restored matches this archive's topic_pattern")
    assert check(made, logs, "second", "t.restored", follows=True, is_asked=True) == [note]
    assert check(made, logs, "second", "not-t", follows=True) == []
    # Also if it doesn't exist yet.
    for target in ("t.restored", "t.new"):
        with pytest.raises(TopicError, match=rf"topic {target} is drained into this archive"):
            check(made, logs, "second", target, follows=True)

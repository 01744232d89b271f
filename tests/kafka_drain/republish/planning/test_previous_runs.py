"""What earlier runs sent: nothing is sent to a topic twice without being told so."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from kafka_drain.errors import ArchiveError, ConfigError, StoreUnavailableError
from kafka_drain.kafka.identity import NO_TOPIC_ID
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.republish.planning.documents import BindingJson, ReceiptJson
from kafka_drain.republish.planning.follow import follower_key
from kafka_drain.republish.planning.plan import RepublishPlan, Target
from kafka_drain.republish.planning.previous_runs import (
    is_of_same_run,
    refuse_repeated,
    repeated,
    sent,
)
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ProgressSlot, Shard, ShardFile
from tests.kafka_drain.made_archive import NOW
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.republish.receipts import receipt_of
from tests.kafka_drain.unsure_store import unsure_store

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def plan_of(
    key: str,
    first: int = 0,
    end: int = 10,
    rows: Rows | None = None,
    source: TopicPartition = A0,
    **changes: Any,
) -> RepublishPlan:
    """A run that sends one partition's offsets to topic copy."""
    file = ShardFile("f", "parquet", 1, "", first, end - 1, end - first, True)
    shard = Shard(
        0,
        source,
        changes.pop("topic_id", "id"),
        "copy",
        0,
        rows or Rows(),
        (file,),
        ProgressSlot("g", TopicPartition("copy", 0)),
    )
    target = Target("copy", changes.pop("target_id", "copy-id"), 2, (0, 0))
    return replace(PLAN, key=key, shards=(shard,), targets=(target,), **changes)


def note(root: UPath, plan: RepublishPlan, *, is_done: bool) -> None:
    """Leave a run behind: as it is when it has ended, or while it is on."""
    run = RepublishRun(root, plan.key)
    run.write_plan(plan)
    run.mark_opened(PLAN)
    if is_done:
        run.write_receipt(receipt_of(key=run.key, sent=sent(plan)))


@pytest.fixture(params=[True, False], ids=["ended", "on"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> UPath:
    """An archive of which run `before` has sent, or is sending, offsets 10 to 19 of a-0."""
    note(UPath(tmp_path), plan_of("before", 10, 20), is_done=request.param)
    return UPath(tmp_path)


@pytest.mark.parametrize(("first", "end"), [(0, 11), (19, 30), (10, 20), (14, 15), (0, 99)])
def test_refuse_repeated_offsets(root: UPath, first: int, end: int) -> None:
    """One record that is sent again is enough, and the message names the run and the records."""
    with pytest.raises(ConfigError, match=rf"run before .* records of a-0 with offsets {first} to"):
        refuse_repeated(root, plan_of("now", first, end))


def test_refuse_repeated_other_plan_left(tmp_path: Path) -> None:
    """The plan that a run replaced before it opened doesn't tell what it has sent."""
    root = UPath(tmp_path)
    run = RepublishRun(root, "before")
    first = run.write_plan(plan_of("before", 0, 10))
    run.mark_opened(run.write_plan(plan_of("before", 0, 20), replacing=first))
    with pytest.raises(ConfigError, match="offsets 15 to 19"):
        refuse_repeated(root, plan_of("now", 15, 20))
    (run.folder / "plan.2.json").unlink()

    with pytest.raises(ArchiveError, match=r"restore the missing plan from a copy, or allow rep"):
        refuse_repeated(root, plan_of("now", 15, 20))


@pytest.mark.parametrize(
    "now",
    [
        plan_of("now", 0, 10),
        plan_of("now", 20, 30),
        plan_of("now", 10, 20, source=A1),
        plan_of("now", 10, 20, source=B0),
        plan_of("now", 10, 20, topic_id="made again"),
        plan_of("now", 10, 20, target_id="other topic"),
        plan_of("now", 10, 20, rows=Rows((OffsetRange(0, 10), OffsetRange(20, 99)))),
        plan_of("before", 10, 20),
        replace(PLAN, key="now", shards=()),
    ],
    ids=[
        *("before", "after", "other partition", "other topic", "other life of the topic"),
        *("other target", "other offsets of its files", "the same run", "nothing"),
    ],
)
def test_refuse_repeated_other_records(root: UPath, now: RepublishPlan) -> None:
    """Other records, or the same ones to another topic, may be sent."""
    refuse_repeated(root, now)


@pytest.mark.parametrize(
    ("before", "now", "meets"),
    [
        (Rows(to_ms=5), Rows(from_ms=5), False),
        (Rows(from_ms=5), Rows(to_ms=5), False),
        (Rows(to_ms=6), Rows(from_ms=5), True),
        (Rows(from_ms=1, to_ms=5), Rows(from_ms=4, to_ms=9), True),
        (Rows(from_ms=1, to_ms=5), Rows(), True),
        (Rows(), Rows(to_ms=-5), True),
    ],
    ids=str,
)
def test_refuse_repeated_times(tmp_path: Path, before: Rows, now: Rows, meets: bool) -> None:
    """The same offsets may be sent in turn by intervals that meet at a millisecond."""
    root = UPath(tmp_path)
    note(root, plan_of("before", rows=before), is_done=True)

    if meets:
        with pytest.raises(ConfigError, match="run before has sent"):
            refuse_repeated(root, plan_of("now", rows=now))
    else:
        refuse_repeated(root, plan_of("now", rows=now))


@pytest.mark.parametrize(
    ("target_id", "topic", "is_refused"),
    [
        ("copy-id", "copy", True),
        # The id decides.
        ("copy-id", "other", True),
        ("another id", "copy", False),
        ("another id", "other", False),
        (None, "copy", True),
        (None, "other", False),
    ],
    ids=["same", "same id", "recreated", "other", "name of an unknown id", "other name"],
)
def test_refuse_repeated_target(
    tmp_path: Path, target_id: str | None, topic: str, is_refused: bool
) -> None:
    """A target is the same by its id; if an older release didn't record that, by its name."""
    root = UPath(tmp_path)
    [entry] = sent(plan_of("before"))
    entry["target_topic"] = topic
    entry.pop("target_topic_id")
    if target_id is not None:
        entry["target_topic_id"] = target_id
    RepublishRun(root, "before").write_receipt(receipt_of(key="before", sent=[entry]))

    if is_refused:
        with pytest.raises(ConfigError, match=r"run before has sent .* to copy: they would be"):
            refuse_repeated(root, plan_of("now"))
    else:
        refuse_repeated(root, plan_of("now"))


def test_refuse_repeated_not_begun(tmp_path: Path) -> None:
    """A run that was planned and never opened has sent nothing."""
    root = UPath(tmp_path)
    RepublishRun(root, "before").write_plan(plan_of("before"))

    refuse_repeated(root, plan_of("now"))


def test_refuse_repeated_plan_lost(tmp_path: Path) -> None:
    """If it is unknown what a run has sent, it may be anything; its receipt would tell."""
    root = UPath(tmp_path)
    note(root, plan_of("before", 10, 20), is_done=False)
    before = RepublishRun(root, "before")
    (before.folder / "plan.json").unlink()
    with pytest.raises(ArchiveError, match=r"plan\.json is missing.* run before .* with --repeat"):
        refuse_repeated(root, plan_of("now", 0, 10))

    before.write_receipt(receipt_of(key=before.key, sent=sent(plan_of("before", 10, 20))))

    refuse_repeated(root, plan_of("now", 0, 10))


@pytest.mark.parametrize("is_abandoned", [True, False])
def test_refuse_repeated_plan_damaged(tmp_path: Path, is_abandoned: bool) -> None:
    """What an abandoned run has sent counts, so that to abandon it is no way out."""
    root = UPath(tmp_path)
    note(root, plan_of("before", 10, 20), is_done=False)
    before = RepublishRun(root, "before")
    (before.folder / "plan.json").write_bytes(b"{}")
    if is_abandoned:
        before.abandon(NOW)

    with pytest.raises(ArchiveError, match=r"plan\.json was changed .* with --repeat") as caught:
        refuse_repeated(root, plan_of("now", 0, 10))

    assert "--abandon" not in str(caught.value)


def test_refuse_repeated_says_what_to_do(tmp_path: Path) -> None:
    """A run that is on can be gone on with by its name; one that has ended can't."""
    root = UPath(tmp_path)
    note(root, plan_of("before", run="the one before"), is_done=False)
    says = r"started to send .* Name that run to resume it \(--run-name 'the one before'; run_name"
    with pytest.raises(ConfigError, match=says):
        refuse_repeated(root, plan_of("now"))

    RepublishRun(root, "before").write_receipt(
        receipt_of(key="before", sent=sent(plan_of("before")))
    )

    with pytest.raises(
        ConfigError, match=r"has sent .* duplicated\. Choose other records"
    ) as caught:
        refuse_repeated(root, plan_of("now"))
    assert "Name that run" not in str(caught.value)


def test_refuse_repeated_of_mirror(tmp_path: Path) -> None:
    """A mirror's runs have ended, and the mirror goes on by its name."""
    root = UPath(tmp_path)
    RepublishRun(root, "f.000001").write_receipt(
        receipt_of(
            run="the mirror",
            key="f.000001",
            sent=sent(plan_of("f.000001")),
            through={"generations": {}, "windows": []},
        )
    )

    says = r"has sent .* Name that mirror to continue it \(--run-name 'the mirror'; run_name"
    with pytest.raises(ConfigError, match=says):
        refuse_repeated(root, plan_of("now"))


@pytest.mark.parametrize(
    ("before", "is_refused"),
    [("f.000001", False), ("f.000002", False), ("g.000001", True), ("f", True), ("f.x.1", True)],
)
def test_refuse_repeated_of_follower(tmp_path: Path, before: str, is_refused: bool) -> None:
    """A follower's receipts tell what its own runs sent; runs of others count."""
    root = UPath(tmp_path)
    note(root, plan_of(before), is_done=True)
    now = plan_of("f.000003", through={"generations": {}, "windows": []})

    if is_refused:
        with pytest.raises(ConfigError, match=f"run {before} has sent"):
            refuse_repeated(root, now)
    else:
        refuse_repeated(root, now)


def test_refuse_repeated_of_number(tmp_path: Path) -> None:
    """A run that follows nobody has no other runs of its own, whatever it is called."""
    root = UPath(tmp_path)
    note(root, plan_of("f.000001"), is_done=True)

    with pytest.raises(ConfigError, match=r"run f\.000001 has sent"):
        refuse_repeated(root, plan_of("f.000002"))


def test_sent_survives_its_receipt(tmp_path: Path) -> None:
    """What a plan sends is what its receipt says, within the files and the asked ranges."""
    run = RepublishRun(UPath(tmp_path), "key")
    rows = Rows((OffsetRange(0, 3), OffsetRange(5, 7), OffsetRange(9, 99)), from_ms=4)
    plan = plan_of("key", 2, 12, rows=rows)

    run.write_receipt(receipt_of(key=run.key, sent=sent(plan)))
    receipt = run.receipt()

    assert receipt is not None
    assert receipt["sent"] == sent(plan)
    [entry] = receipt["sent"]
    assert entry["ranges"] == [(2, 3), (5, 7), (9, 12)]
    assert (entry["from_ms"], entry["to_ms"]) == (4, None)
    assert (entry["source_topic_id"], entry["target_topic_id"]) == ("id", "copy-id")


offsets = st.tuples(st.integers(0, 12), st.integers(1, 6)).map(lambda p: (p[0], p[0] + p[1]))
times = st.none() | st.integers(0, 12)


@st.composite
def runs(draw: st.DrawFn, key: str) -> RepublishPlan:
    """Draw a run of one shard."""
    drawn = draw(st.none() | st.lists(offsets, min_size=1, max_size=3))
    ranges = None if drawn is None else tuple(merge(OffsetRange(a, b) for a, b in drawn))
    return plan_of(
        key,
        *draw(offsets),
        rows=Rows(ranges, draw(times), draw(times)),
        source=draw(st.sampled_from([A0, A1])),
        target_id=draw(st.sampled_from(["x", "y"])),
    )


def records_of(plan: RepublishPlan) -> set[Any]:
    """Return each record that a run may send: any offset of its files at any time."""
    [shard] = plan.shards
    rows = shard.rows
    return {
        (shard.source, plan.targets[0].id, offset, ms)
        for offset in range(shard.first, shard.end)
        for ms in range(-1, 14)
        if (rows.ranges is None or any(r.start <= offset < r.end for r in rows.ranges))
        and (rows.from_ms is None or ms >= rows.from_ms)
        and (rows.to_ms is None or ms < rows.to_ms)
    }


@settings(max_examples=150)
@given(before=runs("before"), now=runs("now"))
def test_refuse_repeated_property(
    before: RepublishPlan, now: RepublishPlan, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two runs that share a record are never both allowed; two that can't share one always are."""
    root = UPath(tmp_path_factory.mktemp("runs"))
    note(root, before, is_done=True)

    # Bounds that contradict each other select nothing, and are no reason to look closer.
    empty = not records_of(before) or not records_of(now)
    try:
        refuse_repeated(root, now)
    except ConfigError:
        assert empty or records_of(before) & records_of(now)
    else:
        assert not records_of(before) & records_of(now)


def test_sent_entry() -> None:
    """An entry says where a shard's records come from and go; empty ranges are left out."""
    rows = Rows((OffsetRange(0, 2), OffsetRange(3, 5), OffsetRange(12, 20)), from_ms=1, to_ms=2)
    plan = plan_of("key", 2, 12, rows=rows)
    [shard] = plan.shards

    assert sent(plan) == [
        {
            "source_topic": shard.source.topic,
            "source_topic_id": shard.topic_id,
            "source_partition": shard.source.partition,
            "ranges": [(3, 5)],
            "from_ms": 1,
            "to_ms": 2,
            "records": shard.records,
            "target_topic": shard.target_topic,
            "target_topic_id": "copy-id",
            "target_partition": shard.target_partition,
        }
    ]


def test_repeated() -> None:
    """Records that both plans send are named; none are where they don't overlap."""
    plan = plan_of("a", 0, 10)

    assert repeated(plan, sent(plan_of("b", 10, 20))) is None
    assert "with offsets 0 to 9" in (repeated(plan, sent(plan_of("b", 9, 20))) or "")


def test_is_of_same_run_follower_with_dot() -> None:
    """Only the last part of a key is a follower's number."""
    plan = plan_of("f.g.000001", through={"generations": {}, "windows": []})

    assert is_of_same_run(plan, "f.g.000002")
    assert not is_of_same_run(plan, "f.000001")


def test_refuse_repeated_after_others(tmp_path: Path) -> None:
    """Runs that never opened, and the run itself, don't end the search."""
    root = UPath(tmp_path)
    plan = plan_of("b")
    for key in ("a", "b"):
        RepublishRun(root, key).write_plan(plan_of(key))
    RepublishRun(root, "c").write_receipt(receipt_of(key="c", sent=sent(plan_of("c"))))

    with pytest.raises(ConfigError, match="run c has sent"):
        refuse_repeated(root, plan)


def test_refuse_repeated_store_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that doesn't say whether a run has begun isn't taken for one that hasn't."""
    root = unsure_store(monkeypatch, "/opened.json", OSError(errno.EBUSY, "SlowDown"))
    note(root, plan_of("before", 10, 20), is_done=False)

    with pytest.raises(StoreUnavailableError, match=r"opened\.json can't be read"):
        refuse_repeated(root, plan_of("now", 10, 20))


@pytest.mark.parametrize("topic", ["elsewhere", "copy"])
def test_refuse_repeated_of_long_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """Of a mirror to other topics, only the last receipt is read, however long it has run."""
    root, name = UPath(tmp_path), follower_key("mirror")
    bound: BindingJson = {"cluster_id": "c", "topics": {topic: f"{topic}-id"}}
    for number in range(1, 31):
        plan = plan_of(f"{name}.{number:06d}", 10 * number, 10 * number + 10)
        rows = [
            {**row, "target_topic": topic, "target_topic_id": f"{topic}-id"} for row in sent(plan)
        ]
        through = {"generations": {}, "windows": [], "bound": bound}
        RepublishRun(root, plan.key).write_receipt(
            receipt_of(key=plan.key, sent=rows, through=through)
        )
    read: list[str] = []
    receipt = RepublishRun.receipt

    def noting(run: RepublishRun) -> ReceiptJson | None:
        read.append(run.key)
        return receipt(run)

    monkeypatch.setattr(RepublishRun, "receipt", noting)

    if topic == "elsewhere":
        refuse_repeated(root, plan_of("now", 10, 20))
        assert read == [f"{name}.000030"]
    else:
        with pytest.raises(ConfigError, match=rf"run {name}.000001 has sent"):
            refuse_repeated(root, plan_of("now", 10, 20))


def test_refuse_repeated_of_mirror_extended(tmp_path: Path) -> None:
    """What a mirror sends to a topic that it was given since its last receipt isn't sent twice."""
    root, name = UPath(tmp_path), follower_key("mirror")
    bound: BindingJson = {"cluster_id": "c", "topics": {"elsewhere": "elsewhere-id"}}
    through = {"generations": {}, "windows": [], "bound": bound}
    RepublishRun(root, f"{name}.000001").write_receipt(
        receipt_of(key=f"{name}.000001", sent=[], through=through)
    )
    note(root, plan_of(f"{name}.000002", 10, 20), is_done=False)

    with pytest.raises(ConfigError, match=rf"run {name}\.000002 started to send records of a-0"):
        refuse_repeated(root, plan_of("now", 10, 20))


@pytest.mark.parametrize(("topic", "is_refused"), [("copy", True), ("other", False)])
def test_refuse_repeated_untold_id(tmp_path: Path, topic: str, is_refused: bool) -> None:
    """Zeros are no id: the names decide."""
    root = UPath(tmp_path)
    [entry] = sent(plan_of("before", target_id=NO_TOPIC_ID))
    entry["target_topic"] = topic
    RepublishRun(root, "before").write_receipt(receipt_of(key="before", sent=[entry]))
    now = plan_of("now", target_id=NO_TOPIC_ID)

    with pytest.raises(ConfigError, match="run before has sent") if is_refused else nullcontext():
        refuse_repeated(root, now)

"""Plans of archives without Kafka: which records, where to, and what is refused."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    DataFileError,
    ManifestInvalidError,
    NotSealedError,
    SourceRecordError,
    TopicError,
)
from kafka_drain.intervals import time_text
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.changing.change import Change
from kafka_drain.republish.changing.spec import ChangeRequest, ChangeSpec
from kafka_drain.republish.planning import planner
from kafka_drain.republish.planning import planner as planning
from kafka_drain.republish.planning.pace import MAX_PACED
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.planner import PROGRESS_SECONDS, make_plan
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import RepublishRun
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import P0, P1, add_batch, golden_copy, open_next
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.tables import each_of

# The golden archive holds offsets 0 to 41 of both partitions, a millisecond after each other.
NOON = 1_357_041_600_000
RECORDS = 84


def at(ms: int) -> str:
    """A time so many milliseconds after the first record of the golden archive."""
    return f"2013-01-01T12:00:00.{ms:03d}Z"


def cluster_with(**partitions: int) -> FakeCluster:
    """A cluster with topics of so many partitions, for old records."""
    return FakeCluster(
        {TopicPartition(t, p): Log(end=5) for t, n in partitions.items() for p in range(n)},
        # Not the archive's, whose topics of the same names would be sources.
        id="elsewhere",
        configs={topic: {"retention.ms": "-1"} for topic in partitions},
    )


def plan_of(
    archive: Archive, cluster: FakeCluster | None = None, *, run: str = "run", **asked: Any
) -> RepublishPlan:
    """Plan a republish to topic copy of two partitions."""
    options = {
        name: asked.pop(name)
        for name in ("apply", "key", "files", "through", "now", "change")
        if name in asked
    }
    return make_plan(
        archive.snapshot(),
        cluster or cluster_with(copy=2),  # type: ignore[arg-type]
        RepublishRequest(**{"target_topic": "copy", **asked}),
        run=run,
        **{"now": NOW, **options},
    )


@pytest.fixture
def copied(golden: Archive, tmp_path: Path) -> Archive:
    """A copy of the golden archive, for a test to change."""
    return Archive.at(str(shutil.copytree(str(golden.root), tmp_path / "copy")))


# which records


def test_make_plan_everything(golden: Archive) -> None:
    """Everything sealed is planned, a shard for each source partition, in offset order."""
    plan = plan_of(golden)

    assert (plan.records, plan.files) == (RECORDS, 28)
    assert plan.size == sum(p.stat().st_size for p in Path(str(golden.root)).rglob("part-*"))
    assert [shard.source for shard in plan.shards] == [P0, P1]
    for number, shard in enumerate(plan.shards):
        assert (shard.number, shard.target_topic, shard.target_partition) == (
            number, "copy", number
        )  # fmt: skip
        assert [file.first for file in shard.files] == list(range(0, 42, 3))
        assert all(len(file.sha256) == 64 for file in shard.files)
    assert plan.starts() == {TopicPartition("copy", p): 5 for p in (0, 1)}
    assert RepublishPlan.parse(plan.to_bytes()) == plan
    assert plan.sha256 == RepublishPlan.parse(plan.to_bytes()).sha256


def test_make_plan_writes_nothing(golden: Archive) -> None:
    """Planning leaves archive and cluster as they are."""
    before = sorted(Path(str(golden.root)).rglob("*"))
    cluster = cluster_with(copy=2)
    logs = dict(cluster.logs)

    plan_of(golden, cluster)

    assert sorted(Path(str(golden.root)).rglob("*")) == before
    assert cluster.logs == logs


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"topics": ["flights"]}, (42, 42)),
        ({"partitions": [1]}, (0, 42)),
        ({"partitions": [0]}, (42, 0)),
        ({"offsets": ["flights:0:10-20"]}, (10, 0)),
        ({"offsets": ["flights:1:41-99", "flights:0:0-1"]}, (1, 1)),
        ({"offsets": ["flights:0:0-5", "flights:0:3-7", "flights:0:40-41"]}, (8, 0)),
        ({"offsets": ["flights:0:42-99"]}, (0, 0)),
        ({"offsets": ["flights:0:0-9"], "partitions": [1]}, (0, 0)),
        ({"from_time": at(40)}, (2, 2)),
        ({"to_time": at(1)}, (1, 1)),
        ({"to_time": at(0)}, (0, 0)),
        ({"from_time": at(5), "to_time": at(25)}, (20, 20)),
        ({"from_time": at(5), "to_time": at(5)}, (0, 0)),
        ({"from_time": at(10), "offsets": ["flights:1:0-12"]}, (0, 2)),
        ({"to_time": at(10), "partitions": ["0"]}, (10, 0)),
    ],
    ids=str,
)
def test_make_plan_selection(
    golden: Archive, selection: dict[str, Any], expected: tuple[int, int]
) -> None:
    """Exactly the wanted records are counted, to the offset and to the millisecond."""
    plan = plan_of(golden, **selection)

    counts = {shard.source: shard.records for shard in plan.shards}
    assert (counts.get(P0, 0), counts.get(P1, 0)) == expected
    assert all(shard.records for shard in plan.shards)
    assert all(file.records for shard in plan.shards for file in shard.files)


bounds = st.none() | st.integers(-5, 50)


@settings(max_examples=60)
@given(
    rows=st.lists(st.integers(0, 45), min_size=1, max_size=30),
    files=st.integers(1, 4),
    wanted=st.none() | st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=1),
    from_ms=bounds,
    to_ms=bounds,
)
def test_make_plan_selection_property(
    rows: list[int],
    files: int,
    wanted: list[tuple[int, int]] | None,
    from_ms: int | None,
    to_ms: int | None,
) -> None:
    """What is counted is what going through all rows one by one finds."""
    tp = TopicPartition("t", 0)
    by_offset = dict(enumerate(rows))
    assume(from_ms is None or to_ms is None or from_ms <= to_ms)
    offsets = [f"t:0:{a}-{a + n}" for a, n in wanted or ()]
    times = {
        name: None if ms is None else time_text(ms)
        for name, ms in (("from_time", from_ms), ("to_time", to_ms))
    }

    def is_wanted(offset: int, ms: int) -> bool:
        return (
            (not wanted or any(a <= offset < a + n for a, n in wanted))
            and (from_ms is None or ms >= from_ms)
            and (to_ms is None or ms < to_ms)
        )

    with tempfile.TemporaryDirectory() as folder:
        made = MadeArchive(Path(folder) / "archive", {"t": "1"})
        for number in range(files):
            if batch := {o: ms for o, ms in by_offset.items() if o % files == number}:
                made.seal({tp: batch})
        now = datetime.now(timezone.utc)
        plan = plan_of(made.archive, offsets=offsets, **times, files=made.files, now=now)

    found = {o: ms for o, ms in by_offset.items() if is_wanted(o, ms)}
    assert plan.records == len(found)
    assert plan.timestamps_replaced == sum(ms == 0 for ms in found.values())
    assert len(plan.shards) == bool(found)
    for shard in plan.shards:
        assert (shard.first, shard.end) == (min(found), max(found) + 1)


@pytest.mark.parametrize(
    ("later_ms", "is_said"), [(None, False), (-1, False), (0, False), (1, True)]
)
def test_make_plan_beyond_archive(later_ms: int | None, is_said: bool, tmp_path: Path) -> None:
    """An end after the newest seal is warned of: records before it may not be archived yet."""
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    made.seal({TopicPartition("t", 0): dense(0, 5)}, sealed_at=time_text(1_000))
    made.seal({TopicPartition("t", 0): dense(5, 9)}, sealed_at=time_text(2_000))
    made.open_generation()
    end = None if later_ms is None else time_text(2_000 + later_ms)

    plan = plan_of(made.archive, to_time=end)

    said = [note for note in plan.notes if "1970-01-01T00:00:02.000Z" in note]
    assert [note.startswith("WARNING no drain was sealed since") for note in said] == (
        [True] * is_said
    )


def test_make_plan_timestamp_zero(tmp_path: Path) -> None:
    """Records of timestamp 0 are counted, and people are warned of them."""
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    made.seal({TopicPartition("t", 0): {0: 0, 1: 5, 2: 0, 3: -1}})

    plan = plan_of(made.archive, files=made.files)

    assert plan.timestamps_replaced == 2
    assert any(note.startswith("WARNING 2 records have timestamp 0") for note in plan.notes)


# where to


@pytest.fixture
def two_topics(tmp_path: Path) -> MadeArchive:
    """An archive of topics a (three partitions) and b (one)."""
    made = MadeArchive(tmp_path / "two" / "archive", {"a": "id-a", "b": "id-b"})
    made.seal({TopicPartition("a", p): dense(0, 10) for p in range(3)})
    made.seal({TopicPartition("b", 0): dense(0, 5), TopicPartition("a", 2): dense(10, 12)})
    return made


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"target_topic": None}, {"a": "a", "b": "b"}),
        ({"target_topic": "copy"}, {"a": "copy", "b": "copy"}),
        ({"target_topic": "{topic}_restored"}, {"a": "a_restored", "b": "b_restored"}),
        ({"target_topic": None, "rename": {"b": "copy"}}, {"a": "a", "b": "copy"}),
        ({"target_topic": "copy", "rename": {"b": "b_restored"}}, {"a": "copy", "b": "b_restored"}),
    ],
    ids=str,
)
def test_make_plan_renamed(
    two_topics: MadeArchive, asked: dict[str, Any], expected: dict[str, str]
) -> None:
    """Each topic's records go where it is said, and only such topics are targets."""
    cluster = cluster_with(a=3, b=1, copy=3, a_restored=3, b_restored=1, unused=1)

    plan = plan_of(two_topics.archive, cluster, files=two_topics.files, **asked)

    assert {shard.source.topic: shard.target_topic for shard in plan.shards} == expected
    assert {target.topic for target in plan.targets} == set(expected.values())
    assert plan.records == 37
    assert [(s.source.partition, s.target_partition) for s in plan.shards] == [
        (0, 0), (1, 1), (2, 2), (0, 0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("placement", "partitions", "expected"),
    [("key", 1, None), ("key", 5, None), (0, 1, 0), ("4", 5, 4)],
)
def test_make_plan_placement(
    two_topics: MadeArchive, placement: str | int, partitions: int, expected: int | None
) -> None:
    """By key the target may have any number of partitions; a number is the one partition."""
    cluster = cluster_with(copy=partitions)

    plan = plan_of(two_topics.archive, cluster, files=two_topics.files, placement=placement)

    assert {shard.target_partition for shard in plan.shards} == {expected}
    assert plan.records == 37


@pytest.mark.parametrize(("placement", "partitions"), [("original", 2), (3, 3)])
def test_make_plan_too_few_partitions(
    two_topics: MadeArchive, placement: str | int, partitions: int
) -> None:
    """A target without the partition that a record would go to is refused."""
    with pytest.raises(TopicError, match=f"copy has {partitions} partitions, but the records need"):
        plan_of(
            two_topics.archive,
            cluster_with(copy=partitions),
            files=two_topics.files,
            placement=placement,
        )


def test_make_plan_needs_of_what_is_sent(two_topics: MadeArchive) -> None:
    """Partitions that nothing is sent to needn't be there."""
    plan = plan_of(
        two_topics.archive,
        cluster_with(copy=1),
        files=two_topics.files,
        partitions=[0],
    )

    assert [shard.source for shard in plan.shards] == [
        TopicPartition("a", 0), TopicPartition("b", 0)
    ]  # fmt: skip


def test_make_plan_no_target_topic(two_topics: MadeArchive) -> None:
    """A target that isn't there is refused."""
    with pytest.raises(TopicError, match="nowhere doesn't exist"):
        plan_of(two_topics.archive, files=two_topics.files, target_topic="nowhere")


@pytest.mark.parametrize("apply", [False, True])
def test_make_plan_creates_target(two_topics: MadeArchive, apply: bool) -> None:
    """A missing target is made when it is asked for, and a dry run only says so."""
    write_topic_settings(two_topics.root, {"a": TopicSettings(4, 1), "b": TopicSettings(1, 1)})
    cluster = cluster_with()

    plan = plan_of(
        two_topics.archive,
        cluster,
        files=two_topics.files,
        target_topic="{topic}_new",
        create_target=True,
        apply=apply,
    )

    assert [target.partitions for target in plan.targets] == [4, 1]
    assert cluster.topic_names() == (["a_new", "b_new"] if apply else [])
    assert any("a_new will be created: 4 partitions" in n for n in plan.notes) != apply


@pytest.mark.parametrize(
    ("rename", "error", "says"),
    [
        ({"b": "x" * 250}, ConfigError, r"'x+' \(250 characters\) is not acceptable"),
        ({"b": "a b"}, ConfigError, r"'a b' \(3 characters\) is not acceptable"),
        ({"b": "a.new"}, ConfigError, "a.new and a_new differ only in dots and underscores"),
        ({"b": "z-refused"}, TopicError, "z-refused is against the policy"),
        ({"b": "z-small"}, TopicError, "z-small has 1 partitions, but the records need"),
    ],
)
@pytest.mark.parametrize("apply", [False, True])
def test_make_plan_creates_all_targets_or_none(
    two_topics: MadeArchive,
    apply: bool,
    rename: dict[str, str],
    error: type[Exception],
    says: str,
) -> None:
    """One target that can't be is found before another one is made, and by a dry run too."""
    write_topic_settings(two_topics.root, {"a": TopicSettings(4, 1), "b": TopicSettings(1, 1)})
    cluster = FakeCluster(
        {TopicPartition("z-small", 0): Log()}, id="elsewhere", refused=["z-refused"]
    )
    if "z-small" in rename.values():
        rename = {"a": "z-small", "b": "b-new"}

    with pytest.raises(error, match=says):
        plan_of(
            two_topics.archive,
            cluster,
            files=two_topics.files,
            target_topic="{topic}_new",
            rename=rename,
            create_target=True,
            apply=apply,
        )

    assert cluster.topic_names() == ["z-small"]


@pytest.mark.parametrize("apply", [False, True])
@pytest.mark.parametrize(
    ("delivery", "offsets", "is_refused"),
    [
        ("exactly_once", (), True),
        ("exactly_once", ("t:1:9-10",), True),
        ("exactly_once", ("t:0:0-9", "t:1:0-9", "t:1:10-20"), False),
        ("at_least_once", (), False),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_make_plan_header_name_with_nul(
    tmp_path: Path,
    apply: bool,
    delivery: str,
    offsets: tuple[str, ...],
    is_refused: bool,
    together: bool,
) -> None:
    """A selected record that can't be sent as it is refuses the run before a topic is made."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal({TopicPartition("t", p): dense(0, 9) for p in (0, 1)}, together=together)
    with_nul = [{"key": "a\0b", "value": b"1"}]
    made.seal({TopicPartition("t", 1): dense(9, 10)}, together=together, headers=with_nul)
    made.seal({TopicPartition("t", 1): dense(10, 20)}, together=together)
    write_topic_settings(made.root, {"t": TopicSettings(2, 1)})
    cluster = cluster_with()
    asked: dict[str, Any] = {
        "files": made.files,
        "apply": apply,
        "delivery": delivery,
        "create_target": True,
        "offsets": offsets,
    }

    if not (apply and is_refused):
        assert plan_of(made.archive, cluster, **asked).records
        return
    with pytest.raises(SourceRecordError, match=r"offset 9 of t-1 has .*nothing was sent"):
        plan_of(made.archive, cluster, **asked)
    assert cluster.topic_names() == []


def test_make_plan_header_name_with_nul_of_mirror(tmp_path: Path) -> None:
    """A mirror keeps its request, so that it is told another way than leaving the record out."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    tp = TopicPartition("t", 0)
    made.seal({tp: dense(0, 1)}, headers=[{"key": "a\0b", "value": b"1"}])
    mirror = RepublishRequest(target_topic="copy", follow=True)
    # What others are told to do is refused to it.
    for other in ({"offsets": ("t:0:1-9",)}, {"delivery": "at_least_once"}):
        asked: Any = {"target_topic": "copy", "follow": True, **other}
        assert not RepublishRequest(**asked).matches_request(mirror.to_dict())

    with pytest.raises(SourceRecordError, match=r"offset 0 of t-0 .*another mirror.*--change") as e:
        plan_of(made.archive, files=made.files, apply=True, follow=True)

    assert "at_least_once" not in str(e.value)


@pytest.mark.parametrize("apply", [False, True])
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("said", [None, False, True])
def test_make_plan_reads_header_names(
    tmp_path: Path,
    apply: bool,
    delivery: str,
    said: bool | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file is read for its header names unless its receipt says that none has a NUL."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.nul_header_names = said
    # Every file is opened to see whether a record may be too large.
    monkeypatch.setattr(planner, "large_records", lambda *_, **__: [])
    [file] = made.seal({TopicPartition("t", 0): dense(0, 9)})
    # Of the size that was sealed: whoever reads it fails.
    (made.root / file.path).write_bytes(b"\0" * file.bytes)
    asked: dict[str, Any] = {"files": made.files, "apply": apply, "delivery": delivery}

    if apply and delivery == "exactly_once" and said is not False:
        with pytest.raises(DataFileError, match="not readable as Parquet"):
            plan_of(made.archive, **asked)
    else:
        assert plan_of(made.archive, **asked).records == 9


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_make_plan_topic_made_again(tmp_path: Path, first: str, second: str) -> None:
    """Each life of a topic is a shard of its own; the older one comes first, offsets overlap.

    Topic ids are random: their order says nothing.
    """
    made = MadeArchive(tmp_path / "archive", {"t": first})
    tp = TopicPartition("t", 0)
    made.seal({tp: dense(0, 10)})
    made.open_generation(t=second)
    made.seal({tp: dense(0, 4)})

    # Where the first generation was compacted, its files lie behind all generations.
    for files in (made.files, lambda: made.files()[::-1]):
        plan = plan_of(made.archive, files=files)

        assert [(s.source, s.topic_id, s.records) for s in plan.shards] == [
            (tp, first, 10), (tp, second, 4)
        ]  # fmt: skip
    with pytest.raises(
        ConfigError, match=r"offsets of t-0 are ambiguous, as the topic was recreated.*by\s+time"
    ):
        plan_of(made.archive, files=made.files, offsets=["t:0:0-2"])


# progress


@settings(max_examples=30)
@given(
    sources=st.dictionaries(st.sampled_from("abc"), st.integers(1, 5), min_size=1),
    partitions=st.integers(1, 4),
    target=st.sampled_from(["one", "{topic}_x"]),
)
def test_progress_slots_property(sources: dict[str, int], partitions: int, target: str) -> None:
    """No two shards share one slot, each is on a partition that exists, groups are the run's."""
    with tempfile.TemporaryDirectory() as folder:
        made = MadeArchive(Path(folder) / "archive", {topic: topic for topic in sources})
        made.seal({TopicPartition(t, p): dense(0, 1) for t, n in sources.items() for p in range(n)})
        cluster = cluster_with(one=partitions, **{f"{topic}_x": partitions for topic in sources})
        plan = plan_of(
            made.archive, cluster, files=made.files, target_topic=target, placement="key", key="K"
        )

    slots = [shard.progress for shard in plan.shards]
    assert len(slots) == sum(sources.values())
    assert set(Counter([*slots, plan.attempts]).values()) == {1}
    for shard in plan.shards:
        assert shard.progress.tp.topic == shard.target_topic
        assert 0 <= shard.progress.tp.partition < partitions
        assert shard.progress.group.startswith("kafka-drain-republish-K-")


def test_make_plan_of_other_run(golden: Archive) -> None:
    """Another run keeps its progress elsewhere."""
    slots = [{s.progress.group for s in plan_of(golden, run=name).shards} for name in ("a", "b")]

    assert not slots[0] & slots[1]


# refusals


def test_make_plan_unsealed(copied: Archive) -> None:
    """What no validation has proven is refused, or left out when that is asked for."""
    add_batch(open_next(copied, "parquet", ["topic"]), 0, 42, 50)

    with pytest.raises(NotSealedError, match=r"2 files are committed but not sealed.*validate"):
        plan_of(copied)

    assert plan_of(copied, sealed_only=True).records == RECORDS


def test_make_plan_nothing_sealed(tmp_path: Path) -> None:
    """An archive of which nothing is sealed is refused, also when that would be left out."""
    archive = golden_copy(tmp_path / "archive")

    with pytest.raises(NotSealedError):
        plan_of(archive)
    with pytest.raises(ArchiveError, match="no sealed records; drain and validate first"):
        plan_of(archive, sealed_only=True)


@pytest.mark.parametrize(
    "asked",
    [
        {"topics": ["flihgts", "flights"]},
        {"offsets": ["flihgts:0:0-1"]},
        {"rename": {"flihgts": "copy"}},
    ],
    ids=str,
)
def test_make_plan_unknown_topic(golden: Archive, asked: dict[str, Any]) -> None:
    """A topic that the archive never held is refused, wherever it is named."""
    with pytest.raises(ArchiveError, match="no records of flihgts; it holds flights;"):
        plan_of(golden, **asked)


@pytest.mark.parametrize(
    ("asked", "unknown"),
    [
        ({"partitions": [77]}, "partition 77; it holds"),
        ({"partitions": [0, 2]}, "partition 2; it holds"),
        ({"topics": [P0.topic], "partitions": [77]}, f"partition 77 of {P0.topic}; it holds"),
        ({"offsets": [f"{P0.topic}:77:0-5"]}, f"{P0.topic}-77; it holds"),
    ],
)
def test_make_plan_unknown_partition(golden: Archive, asked: dict[str, Any], unknown: str) -> None:
    """A partition that the archive never held is refused, and those that it holds are named."""
    with pytest.raises(ArchiveError, match=rf"never held {unknown} {P0.topic}: 2 partitions"):
        plan_of(golden, **asked)


def test_make_plan_empty_interval(golden: Archive) -> None:
    """An interval without records is a plan without shards, not an error."""
    plan = plan_of(golden, from_time="2020-01-01")

    assert (plan.records, plan.shards, plan.targets) == (0, (), ())


@pytest.mark.parametrize("damage", ["gone", "longer"])
def test_make_plan_damaged_file(copied: Archive, damage: str) -> None:
    """A file that is gone or has another size is refused before anything else."""
    path = sorted(Path(str(copied.root)).rglob("part-*"))[0]
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"x")

    with pytest.raises(ManifestInvalidError, match=rf"{path.name}.*kafka-drain repair"):
        plan_of(copied)


def test_make_plan_receipt_damaged(copied: Archive) -> None:
    """Without all receipts nobody knows what is sealed."""
    path = next(Path(str(copied.root)).glob("generations/0001/receipts/*"))
    path.write_bytes(path.read_bytes()[:-9])

    with pytest.raises(ManifestInvalidError, match="is damaged"):
        plan_of(copied)


def test_make_plan_row_without_topic(golden: Archive) -> None:
    """Rows without a topic need a target that doesn't depend on it."""

    def untold() -> Iterator[Any]:
        for file in archive_files(golden.snapshot())[:1]:
            assert file.sealed is not None
            [content] = file.sealed.contents
            nameless = replace(content, topic="")
            yield replace(file, sealed=replace(file.sealed, contents=(nameless,)))

    for target_topic in (None, "{topic}_restored"):
        with pytest.raises(SourceRecordError, match=r"partition 0 and offset \d+ .* no topic"):
            plan_of(golden, target_topic=target_topic, files=lambda: list(untold()))
    assert plan_of(golden, files=lambda: list(untold())).records == 3


def test_make_plan_repeated(copied: Archive) -> None:
    """Records that another run started to send to this topic are refused unless repeated."""
    before = plan_of(copied, run="before", partitions=[0])
    run = RepublishRun(copied.root, before.key)
    run.write_plan(before)
    assert plan_of(copied).records == RECORDS

    run.mark_opened(PLAN)

    with pytest.raises(ConfigError, match=f"run {before.key} started to send records of flights-0"):
        plan_of(copied)
    assert plan_of(copied, repeat=True).records == RECORDS
    assert plan_of(copied, partitions=[1]).records == 42
    assert plan_of(copied, run="before", partitions=[0]) == before


# followers


def test_make_plan_follower_with_nothing_new(golden: Archive) -> None:
    """A follower that has sent all there is gets a plan without shards."""
    plan = plan_of(golden, files=list, through={"generations": {}, "windows": []})

    assert plan.shards == ()
    assert plan.through == {
        "generations": {},
        "windows": [],
        "bound": {"cluster_id": "elsewhere", "topics": {}},
    }


def test_make_plan_follower_repeats(copied: Archive) -> None:
    """A follower's own runs don't stand in its way; runs of others do."""
    through: dict[str, Any] = {"generations": {}, "windows": []}

    def files() -> list[ArchiveFile]:
        return archive_files(copied.snapshot())

    for key in ("f.000001", "other.000001"):
        earlier = plan_of(copied, files=files, through=through, key=key, repeat=True)
        run = RepublishRun(copied.root, key)
        run.write_plan(earlier)
        if key == "f.000001":
            run.mark_opened(PLAN)
    assert plan_of(copied, files=files, through=through, key="f.000002").records == RECORDS

    run.mark_opened(PLAN)

    with pytest.raises(ConfigError, match=r"run other\.000001 started to send"):
        plan_of(copied, files=files, through=through, key="f.000002")


# the engine


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "worker"),
        ({"engine": "worker"}, "worker"),
        ({"engine": "spark"}, "spark"),
        ({"delivery": "at_least_once"}, "spark"),
    ],
    ids=str,
)
def test_engine(golden: Archive, asked: dict[str, Any], expected: str) -> None:
    """The engine that was asked for sends; Spark sends what its own sink has to."""
    plan = plan_of(golden, **asked)

    assert plan.engine == expected
    assert any(note.startswith("engine worker: ") for note in plan.notes) == (not asked)


def test_make_plan_paced(tmp_path: Path) -> None:
    """The selected timestamps say how long it takes: a warning if Kafka forgets progress before."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    day = 86_400_000
    made.seal({TopicPartition("t", 0): {0: 5 * day, 1: day, 2: 9 * day, 3: 30 * day}})

    plan = plan_of(made.archive, files=made.files, offsets=["t:0:0-3"], pace=1, engine="auto")
    faster = plan_of(made.archive, files=made.files, offsets=["t:0:0-3"], pace=2)

    assert (plan.span_ms, plan.seconds(0, 0, 2)) == (8 * day, 4 * 86_400)
    assert plan.engine == "worker"
    assert [any("offsets.retention" in note for note in p.notes) for p in (plan, faster)] == [
        True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("sources", [16, 17, 65])
def test_make_plan_paced_writers(tmp_path: Path, sources: int) -> None:
    """A source partition that would wait for another is refused: its records would be late."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal({TopicPartition("t", number): {0: 1} for number in range(sources)})
    asked: dict[str, Any] = {"files": made.files, "placement": 0, "pace": 1}

    if sources == 16:
        assert len(plan_of(made.archive, **asked).chains) == 16
        return
    with pytest.raises(ConfigError, match=f"has {sources} source partitions, {sources - 16} of wh"):
        plan_of(made.archive, **asked)
    if sources > MAX_PACED:
        cluster = cluster_with(copy=sources)
        with pytest.raises(ConfigError, match=f"has {sources} source partitions, 0 of which"):
            plan_of(made.archive, cluster, **asked | {"placement": "original"})


@pytest.mark.parametrize("bound", ["WORKER_BYTES", "WORKER_RECORDS"])
def test_engine_auto_of_large_plan(
    golden: Archive, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beyond either bound is Spark's; what meets it is the worker's still."""
    plan = plan_of(golden)
    size = {"WORKER_BYTES": plan.size, "WORKER_RECORDS": plan.records}[bound]

    monkeypatch.setattr(planning, bound, size)
    assert plan_of(golden).engine == "worker"
    monkeypatch.setattr(planning, bound, size - 1)
    assert plan_of(golden).engine == "spark"
    assert plan_of(golden, engine="worker").engine == "worker"


def test_shard_rows_are_what_was_asked(golden: Archive) -> None:
    """A shard carries what tells its rows from the others of its files."""
    offsets = ["flights:0:1-4", "flights:0:9-12"]

    [shard] = plan_of(golden, offsets=offsets, from_time=at(2)).shards

    assert shard.rows.ranges == (OffsetRange(1, 4), OffsetRange(9, 12))
    assert (shard.rows.from_ms, shard.rows.to_ms) == (NOON + 2, None)
    assert [(f.first, f.last, f.records) for f in shard.files] == [
        (2, 2, 1), (3, 3, 1), (9, 11, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("days", [6, 8])
def test_make_plan_longer_than_progress(golden: Archive, days: int) -> None:
    """Kafka forgets the progress of writers that wait or are done for so long: a warning."""
    records = plan_of(golden).records
    plan = plan_of(golden, records_per_second=records / (days * 86_400))

    warned = any("offsets.retention.minutes" in note for note in plan.notes)

    assert warned == (days > 7)


@each_of(
    ("times", "warned"),
    [
        (0.9, "WARNING sending takes longer than Kafka keeps progress"),
        (1.1, "if keys and values are more than 1.1 times as large"),
        (99.9, "if keys and values are more than 99.9 times as large"),
        (100.1, None),
    ],
)
def test_make_plan_longer_than_progress_by_bytes(
    times: float, warned: str | None, golden: Archive
) -> None:
    """A limit counts bytes before compression: how large the files make them is a condition."""
    limit = plan_of(golden).size * times / PROGRESS_SECONDS
    plan = plan_of(golden, bytes_per_second=limit)

    notes = [note for note in plan.notes if "offsets.retention.minutes" in note]

    assert [warned in note for note in notes if warned] == ([] if warned is None else [True])
    assert plan.lines(0, limit)[0].endswith("if keys and values are as large as their files")


def test_make_plan_old_records_left_out(tmp_path: Path) -> None:
    """A target's retention is compared with the selected records, not with their whole files."""
    now = int(NOW.timestamp() * 1000)
    year, hour = 365 * 86_400_000, 3_600_000
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal(
        {TopicPartition("t", 0): {0: now - year, 1: now - hour, 2: now}},
        key=lambda tp, offset: b"key %d" % offset,
    )
    cluster = cluster_with(copy=1)
    cluster.configs["copy"] = {"retention.ms": str(7 * 24 * hour)}
    moment = datetime.fromtimestamp(now / 1000 - 30 * 86_400, timezone.utc).isoformat()

    recent: list[dict[str, Any]] = [{"offsets": ["t:0:1-3"]}, {"from_time": moment}]
    for selected in [*recent, {"filters": ["not key=key 0"]}]:
        wanted = ChangeRequest(filters=tuple(selected.get("filters", ())))
        change = Change(ChangeSpec(wanted)) if wanted else None
        plan = plan_of(made.archive, cluster, files=made.files, change=change, **selected)
        assert plan.records == 2
    with pytest.raises(TopicError, match="Kafka would delete it at once"):
        plan_of(made.archive, cluster, files=made.files, offsets=["t:0:0-1", "t:0:2-3"])

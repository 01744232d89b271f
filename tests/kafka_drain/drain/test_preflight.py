"""What preflight refuses and what it plans: archives made by hand, a fake cluster."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.archive.watermarks import observe, write_observations
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import (
    ArchiveError,
    AuthorizationError,
    CheckpointError,
    ConfigError,
    DataLossError,
    KafkaDrainError,
    KafkaUnavailableError,
    OpenTransactionError,
    StoreUnavailableError,
    TopicError,
)
from kafka_drain.findings import errors
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.identity import NO_TOPIC_ID
from kafka_drain.offsets import OffsetRange, TopicPartition, to_spark_json
from kafka_drain.output import Level, level_of
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.roll import plan_roll, roll
from tests.kafka_drain.fake_cluster import FakeCluster, GrowingCluster, Log
from tests.kafka_drain.golden import (
    END,
    add_batch,
    golden_cluster,
    golden_pipeline,
    in_kafka,
    open_next,
    sealed_copy,
)
from tests.kafka_drain.made_archive import MadeArchive, dense

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the pipeline's archive is, or will be."""
    return tmp_path / "archive"


def pipeline_to(folder: Path, **changes: Any) -> Pipeline:
    return Pipeline(**({"name": "p", "topics": ["a"], "archive": str(folder)} | changes))


def cluster_of(first: int = 0, end: int = 30, **changes: Any) -> FakeCluster:
    """Topic `a` with two partitions; the second one holds [0, 5)."""
    return FakeCluster({A0: Log(first=first, end=end), A1: Log(end=5)}, **changes)


def make_archive(folder: Path, **changes: Any) -> Generation:
    """Make an archive of pipeline `p` with an open generation that starts at 0."""
    archive = Archive.at(str(folder))
    archive.create(
        **(
            {
                "pipeline": "p",
                "cluster_id": "cluster-1",
                "topic_ids": {"a": "id-of-a"},
                "source": {},
            }
            | {key: value for key, value in changes.items() if key in ("pipeline", "cluster_id")}
        )
    )
    generation = archive.generation(1)
    generation.write(
        starting_offsets=changes.get("starting_offsets", {A0: 0, A1: 0}),
        file_format="parquet",
        partition_by=["topic", "date"],
        topic_ids={},
        reason="first",
    )
    return generation


def write(path: UPath, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def plan_batch(generation: Generation, batch: int, end: dict[TopicPartition, int]) -> None:
    write(generation.checkpoint / "offsets" / str(batch), f"v1\n{{}}\n{to_spark_json(end)}")


def list_batch(generation: Generation, batch: int) -> None:
    """Write the manifest file of a batch without files."""
    write(generation.data / "_spark_metadata" / str(batch), "v1")


def commit_batch(generation: Generation, batch: int) -> None:
    write(generation.checkpoint / "commits" / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')


def drain_batch(generation: Generation, batch: int, end: dict[TopicPartition, int]) -> None:
    plan_batch(generation, batch, end)
    list_batch(generation, batch)
    commit_batch(generation, batch)


def drained_archive(folder: Path, **changes: Any) -> Generation:
    """Make an archive that drained two batches, to 20 of a-0 and to 5 of a-1."""
    generation = make_archive(folder, **changes)
    drain_batch(generation, 0, {A0: 10, A1: 5})
    drain_batch(generation, 1, {A0: 20, A1: 5})
    return generation


def on_disk(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in root.rglob("*")
    }


def refuse(
    root: Path,
    pipeline: Pipeline,
    cluster: FakeCluster,
    error: type[KafkaDrainError],
    message: str,
) -> None:
    """Check that preflight refuses and leaves every file and folder as it was."""
    before = on_disk(root)
    with pytest.raises(error, match=message) as raised:
        preflight(pipeline, cluster)

    assert error is raised.type
    assert before == on_disk(root)


# the folder


def test_preflight_archive_is_file(tmp_path: Path, folder: Path) -> None:
    """A file in the place of the archive's folder is refused."""
    folder.write_text("mine")

    refuse(
        tmp_path, pipeline_to(folder), cluster_of(), ArchiveError, "archive is a file, not a folder"
    )


def test_preflight_archive_below_file(tmp_path: Path, folder: Path) -> None:
    """A folder that can't be made is refused before the drain, and its parent is named."""
    (tmp_path / "parent").write_text("mine")

    refuse(
        tmp_path,
        pipeline_to(tmp_path / "parent" / "x" / "archive"),
        cluster_of(),
        ArchiveError,
        r"archive can't be created: .*parent is a file, not a folder",
    )


def test_preflight_folder_of_others(tmp_path: Path, folder: Path) -> None:
    """A folder that holds something else is refused."""
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")

    refuse(
        tmp_path,
        pipeline_to(folder),
        cluster_of(),
        ArchiveError,
        "isn't empty and isn't an archive",
    )


@pytest.mark.parametrize(
    "name",
    ["lost+found", ".snapshot", ".DS_Store", "@eaDir", ".Trash-1000", ".nfs0000", "#recycle"],
)
def test_preflight_volume_root(folder: Path, name: str) -> None:
    """What a file system or a NAS keeps in a volume's root is nobody's: a first drain may begin."""
    (folder / name).mkdir(parents=True)

    plan = preflight(pipeline_to(folder), cluster_of())

    assert plan.generation is None
    assert f"a new archive begins at {folder}, which holds none" in "\n".join(plan.lines())


@pytest.mark.parametrize("made", [True, False])
def test_preflight_new_archive(tmp_path: Path, folder: Path, made: bool) -> None:
    """A missing or empty folder will be a new archive; preflight itself makes nothing."""
    if made:
        folder.mkdir()
    before = on_disk(tmp_path)

    plan = preflight(pipeline_to(folder), cluster_of(first=3))

    assert before == on_disk(tmp_path)
    assert plan.generation is None
    assert {A0: 3, A1: 0} == plan.starting_offsets == plan.start
    assert plan.end == {A0: 30, A1: 5}
    assert plan.offsets == 32
    assert "generation 1 (opened by this drain)" in plan.lines()[0]


# immutable archives


def test_preflight_immutable_weakened(folder: Path) -> None:
    """A pipeline that locks less than its archive did is warned of it, and drains."""
    make_archive(folder)
    document = json.loads((folder / "archive.json").read_text())
    locks = {"mode": "compliance", "days": 30}
    (folder / "archive.json").write_text(json.dumps(document | {"immutable": locks}))

    plan = preflight(pipeline_to(folder), cluster_of())

    assert plan.warnings[:1] == [
        "new files were locked for 30 days in compliance mode until now, and aren't locked any more"
    ]


# identity


def test_preflight_other_pipeline(tmp_path: Path, folder: Path) -> None:
    """Another pipeline's archive is refused, both names are told."""
    drained_archive(folder, pipeline="other")

    refuse(
        tmp_path,
        pipeline_to(folder),
        cluster_of(),
        ArchiveError,
        "is the archive of pipeline 'other', not of 'p'",
    )


def test_preflight_other_cluster(tmp_path: Path, folder: Path) -> None:
    """The same topic of another cluster is refused, both clusters are told."""
    drained_archive(folder)

    refuse(
        tmp_path,
        pipeline_to(folder),
        cluster_of(id="cluster-2"),
        ArchiveError,
        "from Kafka cluster cluster-1, but the connection 'kafka_default' leads to cluster "
        "cluster-2",
    )


def test_preflight_topic_made_again(tmp_path: Path, folder: Path) -> None:
    """A topic with another id is refused, both ids are told."""
    drained_archive(folder)

    refuse(
        tmp_path,
        pipeline_to(folder),
        cluster_of(topic_ids={"a": "new-id"}),
        TopicError,
        r"topic a was deleted and recreated .*new-id, the archive has id-of-a",
    )


def test_preflight_topic_made_again_before_first_batch(folder: Path) -> None:
    """Of a first drain that was stopped before it opened a generation, nothing is another's."""
    shutil.rmtree(str(make_archive(folder).folder))

    plan = preflight(pipeline_to(folder), cluster_of(topic_ids={"a": "new-id"}))

    assert (plan.generation, plan.topics["a"].id) == (None, "new-id")


def test_preflight_no_ids(folder: Path) -> None:
    """What Kafka doesn't tell is warned of, and taken neither for the same nor for another."""
    drained_archive(folder)
    untold = cluster_of(id="", topic_ids={"a": NO_TOPIC_ID})

    plan = preflight(pipeline_to(folder), untold)

    assert [line.split(":")[0] for line in plan.warnings[:2]] == [
        "Kafka tells no topic id of a",
        "Kafka tells no cluster id",
    ]
    # The archive's own ids stay.
    assert (plan.cluster_id, plan.topics["a"].id) == ("cluster-1", "id-of-a")


def test_preflight_log_rewritten(folder: Path) -> None:
    """A log with another record at the end of the archive is refused, with the way on."""
    made = MadeArchive(folder, {"a": "id-of-a"})
    made.seal({A0: dense(0, 20)})
    made.open_generation()
    others = cluster_of(contents=lambda tp, span: [])
    pipeline = pipeline_to(
        folder, name="made", topics=None, partition_by=["topic"], assign={"a": [0]}
    )

    with pytest.raises(DataLossError, match=r"a-0 from offset 0 on .*kafka-drain roll \S+ --rewr"):
        preflight(pipeline, others)


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_preflight_log_rewritten_before_sealing(tmp_path: Path, is_rewritten: bool) -> None:
    """Of batches that no validation has sealed yet, the end is compared as well."""
    archive = sealed_copy(tmp_path / "archive")
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, END + 8)
    pipeline = golden_pipeline(archive, partition_by=["topic"])
    cluster: Any = golden_cluster()

    def contents(tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
        """What is sealed is as it was."""
        rows = in_kafka(tp, span)
        return [each | {"value": b"other"} if each["offset"] >= END else each for each in rows]

    if is_rewritten:
        cluster.contents = contents

    if is_rewritten:
        with pytest.raises(DataLossError, match=r"was rewritten .* roll \S+ --rewritten"):
            preflight(pipeline, cluster)
    else:
        assert preflight(pipeline, cluster).not_compared == []


def test_preflight_unsealed_damaged(tmp_path: Path) -> None:
    """The plan names a file without a receipt that can't be compared with Kafka's log."""
    archive = sealed_copy(tmp_path / "archive")
    damaged, _ = add_batch(open_next(archive, "parquet", ["topic"]), 0, END, END + 8)
    damaged.write_bytes(b"PAR1")
    cluster: Any = golden_cluster()

    plan = preflight(golden_pipeline(archive, partition_by=["topic"]), cluster)

    [line] = plan.to_dict()["not_compared"]
    assert "1 files that aren't sealed can't be read" in line
    assert damaged.name in line
    assert f"`kafka-drain validate {archive.root}`" in line
    assert any(line in said for said in plan.lines())


def test_preflight_newer_archive_format(tmp_path: Path, folder: Path) -> None:
    """An archive of a newer format is refused."""
    drained_archive(folder)
    (folder / "archive.json").write_text('{"format_version": 3}')

    refuse(tmp_path, pipeline_to(folder), cluster_of(), ArchiveError, "has archive format 3")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "orc"}, r"holds parquet .*but the pipeline says orc"),
        ({"partition_by": ["topic"]}, r"\['topic', 'date'\], but the pipeline says .*\['topic'\]"),
    ],
)
def test_preflight_format_changed(
    tmp_path: Path, folder: Path, changes: dict[str, Any], message: str
) -> None:
    """A generation holds one format and one partitioning; a change is refused."""
    drained_archive(folder)

    refuse(tmp_path, pipeline_to(folder, **changes), cluster_of(), ArchiveError, message)


def test_preflight_format_corrected(folder: Path) -> None:
    """A generation of which nothing was read yet takes another format."""
    make_archive(folder)

    assert preflight(pipeline_to(folder, format="orc"), cluster_of()).generation is not None


# manifest and checkpoint


def remove(folder: UPath, *names: str) -> None:
    for name in names or [entry.name for entry in folder.iterdir()]:
        (folder / name).unlink()


def test_preflight_checkpoint_gone(tmp_path: Path, folder: Path) -> None:
    """A manifest without a checkpoint is refused: Spark would skip its next batches."""
    generation = drained_archive(folder)
    remove(generation.checkpoint / "offsets")
    remove(generation.checkpoint / "commits")

    refuse(
        tmp_path,
        pipeline_to(folder),
        cluster_of(),
        CheckpointError,
        r"checkpoint_missing: generations/0001/checkpoint: .*What to do: restore the checkpoint",
    )


def test_preflight_manifest_ahead(tmp_path: Path, folder: Path) -> None:
    """A checkpoint that is older than the manifest is refused."""
    generation = drained_archive(folder)
    drain_batch(generation, 2, {A0: 25, A1: 5})
    for name in ("offsets", "commits"):
        remove(generation.checkpoint / name, "1", "2")

    refuse(
        tmp_path, pipeline_to(folder), cluster_of(), CheckpointError, "manifest_ahead: .*batch 2"
    )


def test_preflight_manifest_behind(tmp_path: Path, folder: Path) -> None:
    """A manifest that is older than the checkpoint is refused."""
    generation = drained_archive(folder)
    remove(generation.data / "_spark_metadata", "1")

    refuse(tmp_path, pipeline_to(folder), cluster_of(), CheckpointError, "manifest_behind")


def test_preflight_manifest_gone(tmp_path: Path, folder: Path) -> None:
    """A checkpoint with commits and no manifest is refused."""
    generation = drained_archive(folder)
    remove(generation.data / "_spark_metadata")

    refuse(tmp_path, pipeline_to(folder), cluster_of(), CheckpointError, "manifest_missing")


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("checkpoint/offsets/1", "", "checkpoint_corrupt: generations/0001/checkpoint/offsets/1"),
        ("checkpoint/commits/1", "v1", "checkpoint_corrupt: generations/0001/checkpoint/commits/1"),
        ("data/_spark_metadata/1", "", "manifest_empty: generations/0001/data/_spark_metadata/1"),
        ("data/_spark_metadata/0", "v9", "manifest_corrupt: .*_spark_metadata/0:1"),
    ],
)
def test_preflight_unreadable_file(
    tmp_path: Path, folder: Path, path: str, text: str, message: str
) -> None:
    """A manifest or checkpoint file that Spark didn't write like that is refused by its path."""
    generation = drained_archive(folder)
    (generation.folder / path).write_text(text)

    refuse(tmp_path, pipeline_to(folder), cluster_of(), CheckpointError, message)


def test_preflight_many_findings(tmp_path: Path, folder: Path) -> None:
    """The first five findings are told, the others are counted."""
    generation = make_archive(folder)
    for batch in (0, 8):
        drain_batch(generation, batch, {A0: batch, A1: 0})

    refuse(tmp_path, pipeline_to(folder), cluster_of(), CheckpointError, r"\(and 16 more\)")


def test_preflight_commits_lost(tmp_path: Path, folder: Path) -> None:
    """Offsets two batches ahead of manifest and commits are refused: Spark would skip a batch."""
    generation = drained_archive(folder)
    plan_batch(generation, 2, {A0: 22, A1: 5})
    plan_batch(generation, 3, {A0: 24, A1: 5})

    refuse(tmp_path, pipeline_to(folder), cluster_of(), CheckpointError, "batch")


# offsets


@pytest.mark.parametrize("first", [21, 25])
def test_preflight_cursor_expired(tmp_path: Path, folder: Path, first: int) -> None:
    """Offsets that Kafka deleted before they were drained are refused and named."""
    drained_archive(folder)

    refuse(
        tmp_path,
        pipeline_to(folder),
        cluster_of(first=first),
        DataLossError,
        rf"no longer holds .* drained yet: a-0 \[20, {first}\); retention has passed the cursor",
    )


def test_preflight_cursor_at_first_offset(folder: Path) -> None:
    """A cursor that is exactly at the first offset has lost nothing."""
    drained_archive(folder)

    plan = preflight(pipeline_to(folder), cluster_of(first=20))

    assert plan.warnings == []
    assert plan.offsets == 10
    assert plan.skipped == {}


@pytest.mark.parametrize("value", [False, "false", "False"])
def test_preflight_cursor_expired_accepted(folder: Path, value: object) -> None:
    """With failOnDataLoss=false, lost offsets are a warning that names them."""
    drained_archive(folder)
    pipeline = pipeline_to(folder, source_options={"failOnDataLoss": value})

    plan = preflight(pipeline, cluster_of(first=25))

    assert len(plan.warnings) == 1
    assert "a-0 [20, 25)" in plan.warnings[0]
    assert plan.lines()[-1].endswith(f"WARNING {plan.warnings[0]}")
    assert level_of(plan.lines()[-1]) is Level.WARNING


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_preflight_log_truncated(tmp_path: Path, folder: Path, fail_on_data_loss: bool) -> None:
    """A log that is shorter than what was drained is refused, whatever failOnDataLoss says."""
    drained_archive(folder)
    pipeline = pipeline_to(folder, source_options={"failOnDataLoss": fail_on_data_loss})

    refuse(
        tmp_path, pipeline, cluster_of(end=19), DataLossError, "a-0 ends at 19, drained up to 20"
    )


@pytest.mark.parametrize("end", [20, 30])
def test_preflight_open_transaction_before_the_cursor(
    tmp_path: Path, folder: Path, end: int
) -> None:
    """A log that is only hidden behind an open transaction isn't lost; a retry can help.

    That also holds where nothing has come since it was drained.
    """
    drained_archive(folder)
    cluster = FakeCluster({A0: Log(end=end, stable=19), A1: Log(end=5)})

    refuse(
        *(tmp_path, pipeline_to(folder), cluster, OpenTransactionError),
        "a-0 is readable up to 19, drained from 20",
    )


def test_preflight_added_partition_expired(tmp_path: Path, folder: Path) -> None:
    """Spark reads an added partition from 0; when 0 has expired, that is refused and named."""
    drained_archive(folder)
    cluster = cluster_of()
    cluster.logs[TopicPartition("a", 2)] = Log(first=4, end=9)

    refuse(tmp_path, pipeline_to(folder), cluster, DataLossError, r"a-2 \[0, 4\)")


def test_preflight_starting_position_refused(tmp_path: Path, folder: Path) -> None:
    """A first drain from offsets that Kafka doesn't hold is refused."""
    pipeline = pipeline_to(folder, source_options={"startingOffsets": {"a": {"0": 99, "1": 0}}})

    refuse(tmp_path, pipeline, cluster_of(), ConfigError, r"startingOffsets\[a\]\[0\] = 99")


# topics


@pytest.mark.parametrize(
    ("source", "gone", "left"),
    [
        ({"topics": ["b"]}, "a-0, a-1", "--leave-out a"),
        ({"topics": ["c"]}, "a-0, a-1, b-0", "--leave-out a --leave-out b"),
        ({"assign": {"a": [0], "b": [0]}}, "a-1", "--leave-out a:1"),
        ({"assign": {"a": [0]}}, "a-1, b-0", "--leave-out a:1 --leave-out b"),
    ],
    ids=str,
)
def test_preflight_topic_no_longer_named(
    tmp_path: Path, folder: Path, source: dict[str, Any], gone: str, left: str
) -> None:
    """What was drained and isn't named any more is refused; only that is advised to be left out."""
    drain_batch(drained_archive(folder), 2, {A0: 20, A1: 5, B0: 1})
    logs = {A0: Log(end=30), A1: Log(end=5), B0: Log(end=1), TopicPartition("c", 0): Log(end=1)}

    refuse(
        tmp_path,
        pipeline_to(folder, **({"topics": None} | source)),
        FakeCluster(logs),
        CheckpointError,
        rf"has drained {gone}, which pipeline 'p' no longer names.*`kafka-drain roll \S+ {left}`",
    )


def test_preflight_partition_not_listed(tmp_path: Path, folder: Path) -> None:
    """A partition of a topic isn't gone because Kafka doesn't list it: another attempt may pass."""
    drain_batch(drained_archive(folder), 2, {A0: 20, A1: 5})

    refuse(
        tmp_path,
        pipeline_to(folder),
        FakeCluster({A0: Log(end=30)}),
        KafkaUnavailableError,
        r"doesn't list a-1 now.*try again.*`kafka-drain roll \S+ --leave-out a:1`",
    )


def test_preflight_pattern_not_listed(tmp_path: Path, folder: Path) -> None:
    """Kafka lists no topic that the user may not describe: a pattern names it still."""
    drain_batch(drained_archive(folder), 2, {A0: 20, A1: 5, B0: 1})

    refuse(
        tmp_path,
        pipeline_to(folder, topics=None, topic_pattern="[ab]"),
        FakeCluster({A0: Log(end=30), A1: Log(end=5)}),
        CheckpointError,
        r"has drained b-0, which .* no longer names, or .* ACL DESCRIBE is gone.*--leave-out b`",
    )


def test_preflight_topic_missing(tmp_path: Path, folder: Path) -> None:
    """A topic that doesn't exist is refused."""
    refuse(
        tmp_path, pipeline_to(folder, topics=["a", "nope"]), cluster_of(), TopicError, "topic nope"
    )


def test_preflight_assigned_partition_missing(tmp_path: Path, folder: Path) -> None:
    """An assigned partition that doesn't exist is named, with how many there are."""
    pipeline = pipeline_to(folder, topics=None, assign={"a": [0, 7]})

    refuse(
        tmp_path,
        pipeline,
        cluster_of(),
        TopicError,
        "assign names partitions that don't exist: a-7; topics have a: 2 partitions",
    )


def test_preflight_pattern_without_match(tmp_path: Path, folder: Path) -> None:
    """A pattern that no topic matches whole is refused."""
    cluster = FakeCluster({TopicPartition("alpha", 0): Log(end=1)})
    pipeline = pipeline_to(folder, topics=None, topic_pattern="a")

    refuse(tmp_path, pipeline, cluster, TopicError, "topic_pattern 'a' matches no topic")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"topics": ["a", "b"]}, {A0, A1, B0}),
        ({"topic_pattern": "[ab]"}, {A0, A1, B0}),
        ({"topic_pattern": "b"}, {B0}),
        ({"assign": {"a": [1], "b": [0]}}, {A1, B0}),
    ],
)
def test_preflight_which_partitions(
    folder: Path, source: dict[str, Any], expected: set[TopicPartition]
) -> None:
    """Topics, pattern and assignment each lead to their partitions."""
    cluster = FakeCluster({A0: Log(end=3), A1: Log(end=4), B0: Log(end=5)})

    plan = preflight(pipeline_to(folder, **({"topics": None} | source)), cluster)

    assert expected == set(plan.start) == set(plan.end)
    assert {tp.topic for tp in expected} == set(plan.topics)


# plans


def test_preflight_plan(folder: Path) -> None:
    """A drain goes on where the last committed batch ended."""
    drained_archive(folder)

    plan = preflight(pipeline_to(folder), cluster_of())

    assert plan.start == {A0: 20, A1: 5}
    assert plan.end == {A0: 30, A1: 5}
    assert plan.offsets == 10
    assert not plan.pending
    assert not plan.nothing_new
    assert {
        "pipeline": "p",
        "archive": str(folder),
        "generation": 1,
        "topics": ["a"],
        "offsets": 10,
        "start": '{"a":{"0":20,"1":5}}',
        "end": '{"a":{"0":30,"1":5}}',
        "warnings": [],
        "not_compared": [],
    } == json.loads(json.dumps(plan.to_dict()))


def test_preflight_changes_nothing(tmp_path: Path, folder: Path) -> None:
    """Preflight of an archive that can be drained writes nothing either."""
    drained_archive(folder)
    before = on_disk(tmp_path)

    preflight(pipeline_to(folder), cluster_of())

    assert before == on_disk(tmp_path)


def test_preflight_nothing_new(folder: Path) -> None:
    """When every offset is drained, there is nothing for Spark to do."""
    drained_archive(folder)

    plan = preflight(pipeline_to(folder), cluster_of(end=20))

    assert plan.nothing_new
    assert plan.offsets == 0
    assert "nothing new" in plan.lines()[1]


@pytest.mark.parametrize("listed", [True, False])
def test_preflight_pending(folder: Path, listed: bool) -> None:
    """A batch that was planned and not committed is work for Spark.

    If its files are listed, it is even if Kafka's log has become shorter: it isn't read again.
    """
    generation = drained_archive(folder)
    plan_batch(generation, 2, {A0: 30, A1: 5})
    if listed:
        list_batch(generation, 2)

    plan = preflight(pipeline_to(folder), cluster_of(end=20 if listed else 30))

    assert plan.pending
    assert not plan.nothing_new
    assert plan.start == {A0: 20, A1: 5}


@pytest.mark.parametrize(
    ("more", "end", "error", "seen"),
    [
        ({}, 50, DataLossError, "flights-0 ends at 50, to be read up to 60"),
        # Only in the batch that was stopped: nothing of it was drained yet.
        ({B0: 3}, 1000, CheckpointError, "includes b-0, which pipeline .* no longer names"),
    ],
)
def test_preflight_pending_impossible(
    tmp_path: Path,
    more: dict[TopicPartition, int],
    end: int,
    error: type[KafkaDrainError],
    seen: str,
) -> None:
    """A batch that Spark can't finish is refused before Spark waits for it; a roll leaves it.

    Its end stays as it was planned, whatever has become of its logs and topics.
    """
    archive = sealed_copy(tmp_path / "archive")
    cluster: Any = golden_cluster(end)
    # The golden archive was moved.
    roll(plan_roll(archive, cluster))
    pipeline = golden_pipeline(archive, partition_by=["topic"])
    flights = TopicPartition("flights", 0), TopicPartition("flights", 1)
    plan_batch(archive.generation(2), 0, {flights[0]: 60, flights[1]: 48} | more)

    way = f"run `kafka-drain validate {archive.root}`, then `kafka-drain roll {archive.root}`"
    with pytest.raises(error, match=f"{seen}.*{way}"):
        preflight(pipeline, cluster)
    assert errors(validate_archive(archive, cluster).findings) == []
    roll(plan_roll(archive, cluster))

    plan = preflight(pipeline, cluster)
    assert not plan.pending
    assert plan.start == dict.fromkeys(flights, END)


def test_preflight_first_batch_pending(folder: Path) -> None:
    """A first batch that was killed is repeated from where the generation starts."""
    generation = make_archive(folder, starting_offsets={A0: 7, A1: 1})
    plan_batch(generation, 0, {A0: 30, A1: 5})

    plan = preflight(pipeline_to(folder), cluster_of())

    assert plan.pending
    assert plan.start == {A0: 7, A1: 1}


def test_preflight_added_partition(folder: Path) -> None:
    """A partition that was added after the first drain is read from 0."""
    drained_archive(folder)
    cluster = cluster_of()
    cluster.logs[TopicPartition("a", 2)] = Log(end=9)

    plan = preflight(pipeline_to(folder), cluster)

    assert plan.start[TopicPartition("a", 2)] == 0
    assert plan.offsets == 10 + 9


def test_preflight_added_partition_before_first_batch(folder: Path) -> None:
    """A partition that was added before the first batch starts at its beginning."""
    make_archive(folder)
    cluster = cluster_of()
    cluster.logs[TopicPartition("a", 2)] = Log(first=4, end=9)

    plan = preflight(pipeline_to(folder), cluster)

    assert plan.starting_offsets[TopicPartition("a", 2)] == 4


def test_preflight_hidden_offsets(folder: Path) -> None:
    """Offsets from an open transaction on are not planned, and a warning counts them."""
    drained_archive(folder)
    cluster = FakeCluster({A0: Log(end=1030, stable=25), A1: Log(end=5)})

    plan = preflight(pipeline_to(folder), cluster)

    assert plan.hidden == {A0: 1005}
    assert plan.offsets == 5
    assert len(plan.warnings) == 1
    assert "1,005 offsets are in or after an open transaction" in plan.warnings[0]
    assert "a-0 1,005" in plan.warnings[0]


def test_preflight_busy_topic(folder: Path) -> None:
    """What arrives while Kafka is asked isn't taken for an open transaction."""
    drained_archive(folder)
    cluster = GrowingCluster({A0: Log(end=30), A1: Log(end=5)})

    plan = preflight(pipeline_to(folder), cluster)

    assert plan.hidden == {}
    assert plan.warnings == []


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingTimestamp": 5, "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_preflight_busy_topic_latest(folder: Path, options: dict[str, Any]) -> None:
    """A first drain that starts at the end of a busy topic isn't taken for one of a cut log."""
    cluster = GrowingCluster({A0: Log(end=30), A1: Log(end=5)})

    plan = preflight(pipeline_to(folder, source_options=options), cluster)

    assert all(plan.start[tp] <= plan.end[tp] for tp in (A0, A1))


@pytest.mark.parametrize(("minutes", "is_stalled"), [(1, False), (14, False), (16, True)])
def test_preflight_stalled(folder: Path, minutes: int, is_stalled: bool) -> None:
    """A partition stands still when it waits for longer than a transaction may last."""
    archive = Archive.at(str(drained_archive(folder).root))
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    bounds = {A0: KafkaBounds(0, 25, 30)}
    write_observations(archive, observe({}, bounds, "run 1", noon.timestamp()))
    cluster = FakeCluster({A0: Log(end=30, stable=25), A1: Log(end=5)})

    plan = preflight(pipeline_to(folder), cluster, clock=lambda: noon + timedelta(minutes=minutes))

    assert any("STALLED: a-0 " in warning for warning in plan.warnings) is is_stalled


def test_preflight_hidden_offsets_uncommitted(folder: Path) -> None:
    """Under read_uncommitted, nothing is hidden."""
    drained_archive(folder)
    cluster = FakeCluster({A0: Log(end=30, stable=25), A1: Log(end=5)})
    options = {"kafka.isolation.level": "read_uncommitted"}

    plan = preflight(
        pipeline_to(folder, source_options=options), cluster, classify=lambda cluster, last: []
    )

    assert plan.hidden == {}
    assert plan.warnings == []
    assert plan.offsets == 10


@pytest.mark.parametrize("reason", GapReason)
def test_preflight_uncommitted_transactional(folder: Path, reason: GapReason) -> None:
    """A last offset that only a transaction can have left is warned of under read_uncommitted."""
    drained_archive(folder)
    options = {"kafka.isolation.level": "read_uncommitted"}

    plan = preflight(
        pipeline_to(folder, source_options=options),
        cluster_of(end=30),
        classify=lambda cluster, last: [Gap(tp, r, reason) for tp, [r] in last.items() if tp == A0],
    )

    warned = "kafka.isolation.level is read_uncommitted and a has transactions"
    assert [warning.startswith(warned) for warning in plan.warnings] == [True] * (
        reason in (GapReason.CONTROL, GapReason.ABORTED, GapReason.OPEN)
    )


@pytest.mark.parametrize("missing", ["pipeline", "cluster_id", "topics"])
def test_preflight_archive_document_incomplete(tmp_path: Path, folder: Path, missing: str) -> None:
    """An archive.json that lacks a key is refused as an archive."""
    drained_archive(folder)
    document = json.loads((folder / "archive.json").read_text())
    del document[missing]
    (folder / "archive.json").write_text(json.dumps(document))

    refuse(tmp_path, pipeline_to(folder), cluster_of(), ArchiveError, missing)


@pytest.mark.parametrize("policy", [None, "delete", "compact,delete"])
def test_preflight_retention_shorter_than_schedule(tmp_path: Path, policy: str | None) -> None:
    """A topic that keeps records for less than the time between two drains is warned of."""
    config = {"retention.ms": "600000"} | ({"cleanup.policy": policy} if policy else {})

    [warning] = preflight(pipeline_to(tmp_path / "new"), cluster_of(configs={"a": config})).warnings

    assert "topic a keeps records for 10 min 0 s" in warning
    assert "drained every 60 min 0 s" in warning or "drained every 1 h" in warning


@pytest.mark.parametrize(
    ("retention", "policy"),
    [("-1", "delete"), ("3600000", "delete"), ("86400000", "delete"), ("600000", "compact")],
)
def test_preflight_retention_enough(tmp_path: Path, retention: str, policy: str) -> None:
    """As long as between two drains, or for ever, is in order: so is a topic that only compacts."""
    cluster = cluster_of(configs={"a": {"retention.ms": retention, "cleanup.policy": policy}})

    assert preflight(pipeline_to(tmp_path / "new"), cluster).warnings == []


def test_preflight_acknowledged(folder: Path) -> None:
    """Expired offsets are skipped when they are named, all of them."""
    drained_archive(folder)
    cluster = cluster_of(first=25, end=30)

    with pytest.raises(DataLossError, match=r"--acknowledge-expired a:0:20-25"):
        preflight(
            pipeline_to(folder), cluster, acknowledged=parse_ranges("accepted", ["a:0:20-24"])
        )
    plan = preflight(
        pipeline_to(folder),
        cluster,
        acknowledged=parse_ranges("accepted", ["a:0:20-24", "a:0:24-25"]),
    )

    assert plan.skips_expired
    assert "acknowledged" in plan.warnings[0]
    # Nothing of the partitions that still have all.
    assert plan.skipped == {A0: [OffsetRange(20, 25)]}


@pytest.mark.parametrize("is_in_store", [False, True])
def test_preflight_archive_document_lost(tmp_path: Path, is_in_store: bool) -> None:
    """Without archive.json and its copy, no archive is begun among the files of the old one.

    Its first drain would go on with the old checkpoint, and store again what later generations and
    windows have.
    """
    archive = sealed_copy(tmp_path / "archive")
    pipeline = golden_pipeline(archive)
    root = Path(str(archive.root))
    for name in ("archive.json", "copies/archive.json"):
        (root / name).unlink()
    if is_in_store:
        store = UPath(f"memory://{tmp_path.name}/lost")
        for path in filter(Path.is_file, root.rglob("*")):
            (store / str(path.relative_to(root))).write_bytes(path.read_bytes())
        object.__setattr__(pipeline, "archive", str(store))

    with pytest.raises(ArchiveError, match=r"generations, .*archive.json is lost.* restore arch"):
        preflight(pipeline, golden_cluster())  # type: ignore[arg-type]


def test_preflight_archive_document_copied(tmp_path: Path) -> None:
    """Where a copy of archive.json is there, the way out is a repair, not to restore a backup."""
    archive = sealed_copy(tmp_path / "archive")
    pipeline = golden_pipeline(archive)
    (archive.root / "archive.json").unlink()

    with pytest.raises(ArchiveError, match=r"kafka-drain repair .*archive"):
        preflight(pipeline, golden_cluster())  # type: ignore[arg-type]


def test_preflight_receipt_lost(tmp_path: Path) -> None:
    """No drain goes on with an archive that has lost a receipt, even one of a closed generation.

    Its offsets would be taken for never sealed.
    """
    archive = sealed_copy(tmp_path / "archive")
    pipeline = golden_pipeline(archive, partition_by=["topic"])
    open_next(archive, "parquet", ["topic"])
    cluster: Any = golden_cluster()
    preflight(pipeline, cluster)
    (archive.root / "generations/0001/receipts/000000000013.json").unlink()

    with pytest.raises(CheckpointError, match=r"receipts/000000000013\.json"):
        preflight(pipeline, cluster)


def test_preflight_lockable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that can't lock files is refused by a pipeline that asks for it, and no other."""
    asked: list[Any] = []

    def refuse(root: UPath, wanted: object) -> None:
        asked.append((root, wanted))
        raise ArchiveError("it has no Object Lock")

    monkeypatch.setattr("kafka_drain.drain.preflight.require_lockable", refuse)
    # A pipeline's file is refused that locks what is in a local folder.
    pipeline = pipeline_to(folder).model_copy(update={"immutable_days": 30})

    with pytest.raises(ArchiveError, match="no Object Lock"):
        preflight(pipeline, cluster_of())  # type: ignore[arg-type]

    assert asked == [(UPath(folder), pipeline.immutable)]
    assert preflight(pipeline_to(folder), cluster_of()).snapshot is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("isolation", "start"), [("read_committed", 20), ("read_uncommitted", 30)])
def test_preflight_latest_behind_transaction(folder: Path, isolation: str, start: int) -> None:
    """A first drain from `latest` begins with an open transaction, unless it reads uncommitted."""
    cluster: Any = FakeCluster({A0: Log(end=30, stable=20), A1: Log(end=5)})
    options = {"startingOffsets": "latest", "kafka.isolation.level": isolation}

    plan = preflight(pipeline_to(folder, source_options=options), cluster, classify=lambda *_: [])

    assert plan.start == {A0: start, A1: 5}
    assert plan.nothing_new


def test_preflight_were_read(folder: Path) -> None:
    """What the manifest lists was read, although its batch was never committed."""
    generation = drained_archive(folder)
    cluster: Any = cluster_of()
    assert preflight(pipeline_to(folder), cluster).were_read == {A0: 20, A1: 5}
    plan_batch(generation, 2, {A0: 28, A1: 5})
    list_batch(generation, 2)

    plan = preflight(pipeline_to(folder), cluster)

    assert plan.were_read == {A0: 28, A1: 5}
    assert plan.last_listed == 2
    assert plan.start == {A0: 20, A1: 5}


def test_preflight_added_partition_in_first_batch(folder: Path) -> None:
    """A partition added while the first batch is pending is read from 0, after that batch."""
    generation = make_archive(folder)
    plan_batch(generation, 0, {A0: 30, A1: 5})
    cluster: Any = cluster_of()
    cluster.logs[TopicPartition("a", 2)] = Log(end=9)

    plan = preflight(pipeline_to(folder), cluster)

    assert plan.starting_offsets == {A0: 0, A1: 0}
    assert plan.start == {A0: 0, A1: 0, TopicPartition("a", 2): 0}


def test_preflight_partition_named_again(tmp_path: Path) -> None:
    """A partition that is named again goes on behind what a repair has drained of it meanwhile."""
    made = MadeArchive(tmp_path / "archive", {"a": "id-of-a"})
    made.seal({A0: dense(0, 10), A1: dense(0, 10)})
    made.open_generation()
    made.start_at({A0: 10})
    made.seal_window("repair_1", {A1: dense(10, 15)})
    cluster: Any = FakeCluster({A0: Log(end=30), A1: Log(end=30)}, topic_ids=made.topic_ids)
    pipeline = Pipeline(name="made", topics=["a"], archive=str(made.root), partition_by=["topic"])

    plan = preflight(pipeline, cluster)

    assert plan.start == {A0: 10, A1: 15}
    assert plan.starting_offsets == {A0: 10, A1: 15}


def test_preflight_topic_away(folder: Path) -> None:
    """A topic that Kafka didn't list for a batch isn't read from its beginning once it is back."""
    generation = make_archive(folder, starting_offsets={A0: 0, A1: 0, B0: 0})
    drain_batch(generation, 0, {A0: 20, A1: 5, B0: 7})
    drain_batch(generation, 1, {A0: 25, A1: 5})
    cluster: Any = cluster_of()
    cluster.logs[B0] = Log(end=9)

    with pytest.raises(CheckpointError, match="drained b-0 to 7, but the checkpoint doesn't name"):
        preflight(pipeline_to(folder, topics=["a", "b"]), cluster)


def test_preflight_pending_without_partition(folder: Path) -> None:
    """A batch that was planned while Kafka didn't list a partition isn't finished without it."""
    generation = drained_archive(folder)
    plan_batch(generation, 2, {A0: 30})

    with pytest.raises(CheckpointError, match="doesn't include a-1"):
        preflight(pipeline_to(folder), cluster_of())  # type: ignore[arg-type]


def test_preflight_pending_hidden(folder: Path) -> None:
    """A pending batch whose end an open transaction hides now is finished: nothing is lost."""
    generation = drained_archive(folder)
    plan_batch(generation, 2, {A0: 30, A1: 5})
    cluster: Any = FakeCluster({A0: Log(end=30, stable=25), A1: Log(end=5)})

    plan = preflight(pipeline_to(folder), cluster)

    assert plan.pending
    assert plan.hidden == {A0: 5}


@pytest.mark.parametrize(
    ("schedule", "warns"), [("@daily", True), ("*/5 * * * *", False), (None, False)]
)
def test_preflight_expiring(folder: Path, schedule: str | None, warns: bool) -> None:
    """What Kafka may have deleted before the next scheduled drain is warned of."""
    archive = Archive.at(str(drained_archive(folder).root))
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    write_observations(archive, observe({}, {A0: KafkaBounds(0, 20, 20)}, "r", noon.timestamp()))
    cluster: Any = cluster_of(first=10)

    # Ten offsets in an hour: it reaches 30 in two.
    plan = preflight(
        pipeline_to(folder, schedule=schedule), cluster, clock=lambda: noon + timedelta(hours=1)
    )

    said = [warning for warning in plan.warnings if "will reach offset 30" in warning]
    assert ["in 2 h" in warning for warning in said] == [True] * warns


def test_preflight_store_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that can't be reached is refused by its URL."""

    def refuse(root: UPath) -> None:
        raise StoreUnavailableError(f"{root} can't be reached")

    monkeypatch.setattr("kafka_drain.drain.preflight.require_reachable", refuse)
    pipeline = pipeline_to(folder).model_copy(update={"archive": "memory://bucket/archive"})

    with pytest.raises(StoreUnavailableError, match="memory://bucket/archive can't be reached"):
        preflight(pipeline, cluster_of())  # type: ignore[arg-type]


@pytest.mark.parametrize("lacks", [os.W_OK, os.X_OK])
def test_preflight_not_writable(folder: Path, monkeypatch: pytest.MonkeyPatch, lacks: int) -> None:
    """A folder in which this user can't create another one is refused."""
    monkeypatch.setattr("os.access", lambda path, mode, **_: not mode & lacks)

    with pytest.raises(ArchiveError, match=f"no write permission for {folder.parent};"):
        preflight(pipeline_to(folder / "more"), cluster_of())  # type: ignore[arg-type]


def test_preflight_not_readable(folder: Path) -> None:
    """A topic that may be described but not read is refused."""
    with pytest.raises(AuthorizationError, match="READ"):
        preflight(pipeline_to(folder), cluster_of(allowed={"a": {"DESCRIBE"}}))  # type: ignore[arg-type]


def test_preflight_pending_partition_not_listed(tmp_path: Path, folder: Path) -> None:
    """What only a planned batch has can't be left out by a roll: its way is another."""
    plan_batch(drained_archive(folder), 2, {A0: 30, A1: 5, TopicPartition("a", 2): 3})

    refuse(
        tmp_path,
        pipeline_to(folder),
        cluster_of(end=30),
        KafkaUnavailableError,
        r"doesn't list a-2 now.*`kafka-drain validate \S+`, then `kafka-drain roll \S+`",
    )


def test_preflight_listed_expired(folder: Path) -> None:
    """What the manifest lists isn't lost because Kafka has deleted it since."""
    generation = drained_archive(folder)
    plan_batch(generation, 2, {A0: 28, A1: 5})
    list_batch(generation, 2)

    plan = preflight(pipeline_to(folder), cluster_of(first=25))

    assert (plan.warnings, plan.skipped) == ([], {})
    with pytest.raises(DataLossError, match=r"a-0 \[28, 29\)"):
        preflight(pipeline_to(folder), cluster_of(first=29))


def test_preflight_not_writable_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is there already is given to this user with all that is in it."""
    folder.mkdir()
    monkeypatch.setattr("os.access", lambda path, mode, **_: False)

    with pytest.raises(ArchiveError, match=rf"`chown -R \d+ {folder}`"):
        preflight(pipeline_to(folder), cluster_of())  # type: ignore[arg-type]

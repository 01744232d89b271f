"""Manifest, checkpoint and receipts of a generation against each other."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_state import ATTEMPTS, GenerationState
from kafka_drain.archive.journal.entries import Noted
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.journal.identity import note_of_settings
from kafka_drain.archive.snapshot import SnapshotGeneration
from kafka_drain.archive.watermarks import read_observations
from kafka_drain.archive.window import Window, range_rows
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import read_offsets, topic_of
from kafka_drain.findings import errors, summary
from kafka_drain.offsets import OffsetRange, TopicPartition, to_spark_json
from kafka_drain.proof.fingerprints import write_notes
from kafka_drain.proof.sealing import Identity, seal_window
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.json_files import write_document
from tests.kafka_drain.fake_cluster import GrowingCluster
from tests.kafka_drain.golden import (
    CHECKPOINT,
    END,
    MANIFEST,
    P0,
    P1,
    RECEIPTS,
    add_batch,
    golden_cluster,
    golden_copy,
    open_next,
    seal,
    state_of,
)

#: How many files the receipts of batches 0 to 11, 12 and 13 seal.
SEALED = 28


@pytest.fixture
def folder(archive: Archive) -> Path:
    """The archive's folder."""
    return Path(str(archive.root))


@pytest.fixture
def generation(archive: Archive) -> Generation:
    """The archive's one generation."""
    return archive.generation(1)


def found(state: GenerationState) -> dict[str, int]:
    return summary(state.findings)


def unsigned(path: Path) -> Path:
    """Take a file's `.crc` away, which would tell that it was changed."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return path


def change(path: Path, how: Callable[[list[str]], list[str]]) -> None:
    """Change the lines of a manifest file after its header."""
    header, *lines = unsigned(path).read_text().split("\n")
    path.write_text("\n".join([header, *how(lines)]))


def ends(offset: int) -> dict[TopicPartition, int]:
    return {P0: offset, P1: offset}


# what is in order


def test_read_state_unsealed(tmp_path: Path) -> None:
    """Without receipts, everything is new and starts where the generation does."""
    state = state_of(golden_copy(tmp_path / "archive").generation(1))

    assert state.findings == []
    assert (state.receipt, state.last_sealed, state.last_committed) == (None, -1, 13)
    assert (len(state.sealed), len(state.new)) == (0, SEALED)
    assert (state.sealed_ends, state.cursor) == (ends(0), ends(END))


def test_read_state_sealed(generation: Generation) -> None:
    """What receipts seal is told from what came later, though a compaction forgot the batches."""
    state = state_of(generation)

    assert state.findings == []
    assert (state.last_sealed, state.last_committed) == (13, 13)
    assert (len(state.sealed), len(state.new)) == (SEALED, 0)
    assert state.sealed_ends == state.cursor == ends(END)


def test_write_generation_again(archive: Archive) -> None:
    """A document that says the same stays, with its time: it may be sealed by now."""
    opened = open_next(archive, "parquet", ["topic"])
    before = (opened.folder / "generation.json").read_bytes()

    open_next(archive, "parquet", ["topic"])
    assert (opened.folder / "generation.json").read_bytes() == before
    open_next(archive, "orc", ["topic"])

    assert opened.read_document().format == "orc"


def test_read_state_new_batch(generation: Generation) -> None:
    """A batch after the last receipt is new; the next one starts where it ends."""
    add_batch(generation, 14, END, 50)

    state = state_of(generation)

    assert state.findings == []
    assert (state.last_sealed, state.last_committed) == (13, 14)
    assert [(sink_file.batch, sink_file.log) for sink_file in state.new] == [(14, "14")] * 2
    assert (state.sealed_ends, state.cursor) == (ends(END), ends(50))


def test_read_state_topic_deleted(archive: Archive) -> None:
    """The next batch starts where the last one that names a topic ends, be it not the newest."""
    generation, trains = archive.generation(2), TopicPartition("trains", 0)
    generation.write(
        starting_offsets={**ends(END), trains: 3},
        file_format="parquet",
        partition_by=["topic"],
        topic_ids={**archive.snapshot().document.topics, "trains": "id-2"},
        reason="rollover",
    )
    add_batch(generation, 0, END, 50)
    add_batch(generation, 1, 50, 55)
    first = Path(str(generation.checkpoint)) / "offsets" / "0"
    first.write_text("v1\n{}\n" + to_spark_json({**ends(50), trains: 8}))

    state = state_of(generation)

    assert state.findings == []
    assert state.sealed_ends == {**ends(END), trains: 3}
    assert state.cursor == {**ends(55), trains: 8}


@pytest.fixture
def repaired(tmp_path: Path) -> Archive:
    """A sealed archive of which a file of batch 13 was lost and drained again before the seal."""
    archive = golden_copy(tmp_path / "mended")
    generation = archive.generation(1)
    manifest, _ = generation.read_manifest()
    lost = next(file for file in manifest.files.values() if file.batch == 13)
    [content] = read_offsets(generation.data / lost.path, "parquet", topic_of(lost.path))
    identity = Identity(
        "golden", archive.snapshot().document.cluster_id, archive.snapshot().document.topics
    )
    window = Window(archive.root, "repair_1")
    replaces = [f"{generation.data_name}/{lost.path}"]
    span = OffsetRange(content.ranges[0].start, content.ranges[-1].end)
    ranges = range_rows({content.tp: [span]})
    write_document(
        window.folder / "plan.json", {"ranges": ranges, "format": "parquet", "replaces": replaces}
    )
    path = f"{window.data_name}/{lost.path}"
    (archive.root / path).parent.mkdir(parents=True)
    (generation.data / lost.path).rename(archive.root / path)
    data = (archive.root / path).read_bytes()
    file = CommittedFile(path, len(data), hashlib.sha256(data).hexdigest(), (content,))
    receipt = seal_window(
        [(content.tp, span)],
        [file],
        (),
        identity=identity,
        window=window.key,
        replaces=replaces,
        fingerprint=None,
        sealed_at="2026-01-01T00:00:00.000+00:00",
    )
    window.write_receipt(receipt.sealed())
    seal(archive)
    return archive


def test_read_state_repaired_before_seal(repaired: Archive) -> None:
    """A file that a window held when its batch was sealed may stay in the manifest."""
    state = state_of(repaired.generation(1))

    assert state.findings == []
    assert (len(state.sealed), len(state.new)) == (SEALED - 1, 0)
    assert errors(validate_archive(repaired, golden_cluster()).findings) == []


def test_read_state_repaired_before_and_after_seal(repaired: Archive) -> None:
    """Of two files that windows stand for, the one that its receipt seals is still expected."""
    generation = repaired.generation(1)
    sealed = generation.read_receipt(generation.receipt_names()[-2]).files[0].path
    window = repaired.snapshot().windows[0]
    other = Window(repaired.root, "repair_2")
    write_document(other.folder / "plan.json", window.plan.content())
    other.write_receipt(
        replace(window.receipt, window=other.key, files=(), replaces=(sealed,)).sealed()
    )

    state = state_of(generation)

    assert state.findings == []
    assert (len(state.sealed), len(state.new)) == (SEALED - 1, 0)


def test_read_state_repaired_compacted(repaired: Archive) -> None:
    """A compaction that forgot the batches, with a later one among them, changes nothing of it."""
    generation = repaired.generation(1)
    add_batch(generation, 14, END, 50)
    folder = Path(str(generation.data)) / "_spark_metadata"
    logs = [folder / name for name in ("9.compact", "10", "11", "12", "13", "14")]
    lines = [line for log in logs for line in log.read_text().split("\n")[1:]]
    (folder / "14.compact").write_text("\n".join(["v1", *lines]))
    for log in logs:
        unsigned(log).unlink()

    state = state_of(generation)

    assert state.findings == []
    assert (len(state.sealed), len(state.new)) == (SEALED - 1, 2)


def test_read_state_compacted_over_receipts(folder: Path, generation: Generation) -> None:
    """A compaction that mixes sealed batches with a new one doesn't mix up their files."""
    add_batch(generation, 14, END, 50)
    logs = [folder / MANIFEST / name for name in ("9.compact", "10", "11", "12", "13", "14")]
    lines = [line for log in logs for line in log.read_text().split("\n")[1:]]
    (folder / MANIFEST / "14.compact").write_text("\n".join(["v1", *lines]))
    for log in logs:
        unsigned(log).unlink()

    state = state_of(generation)

    assert state.findings == []
    assert {f.batch for f in state.manifest.files.values()} == {None}
    assert len(state.sealed) == SEALED
    assert sorted(f.path for f in state.new) == [
        f"topic=flights/part-{p:05d}-14.parquet" for p in (0, 1)
    ]


def test_read_state_planned_batch(folder: Path, generation: Generation) -> None:
    """A batch that was planned and not run yet is no damage."""
    (folder / CHECKPOINT / "offsets" / "14").write_text('v1\n{}\n{"flights":{"0":50,"1":50}}')

    state = state_of(generation)

    assert state.findings == []
    assert (state.last_committed, state.cursor) == (13, ends(END))


# what is behind


def test_read_state_checkpoint_behind(folder: Path, generation: Generation) -> None:
    """A checkpoint of an older copy is found by the receipts, the manifest being whole."""
    for name in ("offsets", "commits"):
        unsigned(folder / CHECKPOINT / name / "13").unlink()

    state = state_of(generation)

    assert found(state) == {"checkpoint_behind": 1, "manifest_ahead": 1}
    assert state.last_committed == 13
    assert state.cursor == ends(END)


def test_read_state_both_behind(folder: Path, generation: Generation) -> None:
    """Checkpoint and manifest of an older copy agree with each other, and not with receipts."""
    for name in (f"{CHECKPOINT}/offsets", f"{CHECKPOINT}/commits", MANIFEST):
        unsigned(folder / name / "13").unlink()

    state = state_of(generation)

    assert found(state) == {"checkpoint_behind": 1, "manifest_behind": 1}
    assert state.cursor == ends(END)
    assert all("the receipts seal up to batch 13" in f.detail for f in state.findings)


def test_read_state_manifest_behind(folder: Path, generation: Generation) -> None:
    """A manifest that lost its last batch is found once, not once by each witness."""
    unsigned(folder / MANIFEST / "13").unlink()

    assert found(state_of(generation)) == {"manifest_behind": 1}


@pytest.mark.parametrize(("gone", "reason"), [(MANIFEST, "manifest"), (CHECKPOINT, "checkpoint")])
def test_read_state_gone(folder: Path, generation: Generation, gone: str, reason: str) -> None:
    """A folder that is gone is found, and where to go on is told by the receipts."""
    shutil.rmtree(folder / gone)

    state = state_of(generation)

    assert found(state) == {f"{reason}_missing": 1}
    assert state.cursor == ends(END)


@pytest.mark.parametrize("gone", [(MANIFEST, CHECKPOINT), (CHECKPOINT, MANIFEST)])
def test_read_state_both_gone(folder: Path, generation: Generation, gone: tuple[str, str]) -> None:
    """Without manifest and checkpoint there is nothing that could contradict but the receipts."""
    for name in gone:
        shutil.rmtree(folder / name)

    state = state_of(generation)

    assert found(state) == {"checkpoint_missing": 1, "manifest_missing": 1}
    assert (state.last_committed, state.cursor) == (13, ends(END))


def test_read_state_checkpoint_elsewhere(folder: Path, generation: Generation) -> None:
    """A sealed batch that the checkpoint lets end elsewhere is found."""
    path = unsigned(folder / CHECKPOINT / "offsets" / "13")
    path.write_text(path.read_text().replace('"0":42', '"0":41'))

    state = state_of(generation)

    assert found(state) == {"checkpoint_corrupt": 1}
    assert state.findings[0].where == f"{CHECKPOINT}/offsets/13"


# what the manifest says of sealed batches


def test_read_state_manifest_changed(folder: Path, generation: Generation) -> None:
    """A size that isn't the sealed one is found, also by a line that says so of both."""
    change(folder / MANIFEST / "12", lambda lines: [with_size(lines[0], 7), *lines[1:]])

    state = state_of(generation)

    assert found(state) == {"manifest_changed": 1}
    assert state.findings[0].where == f"{MANIFEST}/12"
    assert "has 7 bytes, but its receipt says" in state.findings[0].detail


def with_size(line: str, size: int) -> str:
    return json.dumps(json.loads(line) | {"size": size})


def test_read_state_manifest_swapped(folder: Path, generation: Generation) -> None:
    """A sealed batch that lists another file has one too many and one too few."""
    change(
        folder / MANIFEST / "13", lambda lines: [lines[0].replace("part-00000", "part-9"), lines[1]]
    )

    state = state_of(generation)

    assert found(state) == {"manifest_changed": 1, "manifest_truncated": 1}
    assert {f.where for f in state.findings} == {f"{MANIFEST}/13:2", f"{MANIFEST}/13"}


@pytest.mark.parametrize(("log", "listed"), [("13", 2), ("12", 2), ("9.compact", 20)])
def test_read_state_manifest_truncated(
    folder: Path, generation: Generation, log: str, listed: int
) -> None:
    """A manifest file that lost lines of sealed batches is named, whether it was the newest."""
    for kept in {0, 1, listed - 1}:
        text = (folder / MANIFEST / log).read_text()
        change(folder / MANIFEST / log, lambda lines, kept=kept: lines[:kept])  # type: ignore[misc]

        state = state_of(generation)

        assert found(state) == {"manifest_truncated": 1}
        # The first receipt seals twelve batches, and can't tell which of their files it was.
        named = MANIFEST if log == "9.compact" else f"{MANIFEST}/{log}"
        assert state.findings[0].where == named
        assert f"doesn't list {listed - kept} files" in state.findings[0].detail
        (folder / MANIFEST / log).write_text(text)
    assert found(state_of(generation)) == {}


def test_read_state_truncated_checksum(folder: Path, generation: Generation) -> None:
    """Where Hadoop's checksum tells which of several files was cut, that one is named."""
    path = folder / MANIFEST / "9.compact"
    path.write_text(path.read_text().rpartition("\n")[0])

    state = state_of(generation)

    assert found(state) == {"manifest_truncated": 1}
    assert state.findings[0].where == f"{MANIFEST}/9.compact"


def test_read_state_truncated_beside_new(folder: Path, generation: Generation) -> None:
    """New batches are told from sealed ones also where a sealed batch lost its lines."""
    add_batch(generation, 14, END, 50)
    change(folder / MANIFEST / "13", lambda lines: [])

    state = state_of(generation)

    assert found(state) == {"manifest_truncated": 1}
    assert [sink_file.log for sink_file in state.new] == ["14", "14"]
    assert len(state.sealed) == SEALED - 2


@pytest.mark.parametrize("name", ["000000000011.json", "000000000013.json"])
def test_read_state_receipt_corrupt(folder: Path, generation: Generation, name: str) -> None:
    """A newest receipt that can't be read is named, and the one before it counts."""
    (folder / RECEIPTS / name).write_text("{}")

    state = state_of(generation)

    newest = name == "000000000013.json"
    assert found(state) == ({"receipt_corrupt": 1} if newest else {})
    assert (state.last_sealed, len(state.new)) == ((12, 2) if newest else (13, 0))


# retention


def retain(folder: Path, retention: str | None) -> None:
    """Note the sink's retention as a drain does."""
    document = json.loads((folder / "archive.json").read_text())
    accepted = note_of_settings(document.get("isolation_level", "read_committed"), retention)
    note_sealed(UPath(folder), Noted(documents=accepted))
    (folder / "archive.json").write_text(json.dumps(document | {"retention": retention}))


def test_read_state_retention(folder: Path, archive: Archive) -> None:
    """What Spark's retention hides from the manifest is proven by the receipts all the same."""
    retain(folder, "7d")
    change(folder / MANIFEST / "9.compact", lambda lines: lines[6:])

    state = state_of(archive.generation(1))
    report = validate_archive(archive, golden_cluster(), deep=True)

    assert state.findings == []
    assert (len(state.sealed), len(state.new)) == (SEALED - 6, 0)
    assert report.findings == []
    assert (report.complete, report.records, report.files) == (True, 2 * END, SEALED)
    assert len(archive_files(archive.snapshot())) == SEALED


def test_read_state_retention_new_batch(folder: Path, archive: Archive) -> None:
    """A batch after those that retention has hidden is new, and sealed in its turn."""
    retain(folder, "7d")
    change(folder / MANIFEST / "9.compact", lambda lines: lines[6:])
    add_batch(archive.generation(1), 14, END, 50)

    assert [f.log for f in state_of(archive.generation(1)).new] == ["14", "14"]
    assert seal(archive).receipts_written == 1
    assert state_of(archive.generation(1)).findings == []
    assert len(archive_files(archive.snapshot())) == SEALED + 2


@pytest.mark.parametrize(
    ("log", "kept"),
    [("9.compact", slice(0, 14)), ("9.compact", slice(0, None, 3)), ("13", slice(1, 2))],
)
def test_read_state_retention_explains_the_oldest(
    folder: Path, generation: Generation, log: str, kept: slice
) -> None:
    """Retention hides the oldest files of a compaction; others that are gone are damage."""
    retain(folder, "7d")
    change(folder / MANIFEST / log, lambda lines: lines[kept])

    assert found(state_of(generation)) == {"manifest_truncated": 1}


def test_read_state_retention_between_kept(folder: Path, generation: Generation) -> None:
    """Retention doesn't hide a batch's files while files of an older batch are still listed."""
    retain(folder, "7d")
    logs = [folder / MANIFEST / name for name in ("9.compact", "10", "11", "12", "13")]
    lines = [line for log in logs if log.name != "12" for line in log.read_text().split("\n")[1:]]
    (folder / MANIFEST / "13.compact").write_text("\n".join(["v1", *lines]))
    for log in logs:
        unsigned(log).unlink()

    state = state_of(generation)

    assert found(state) == {"manifest_truncated": 1}
    assert "doesn't list 2 files" in state.findings[0].detail


def test_read_state_no_retention(folder: Path, generation: Generation) -> None:
    """Without retention, the oldest files may not be missing either."""
    change(folder / MANIFEST / "9.compact", lambda lines: lines[6:])

    assert found(state_of(generation)) == {"manifest_truncated": 1}
    retain(folder, None)
    assert found(state_of(generation)) == {"manifest_truncated": 1}


# a drain that runs meanwhile


class Busy(SnapshotGeneration):
    """A generation that a drain writes to between reading its parts."""

    def __init__(self, generation: Generation, *events: Callable[[], object]) -> None:
        super().__init__(generation.root, generation.number)
        object.__setattr__(self, "events", list(events))
        object.__setattr__(self, "reads", 0)

    def read_checkpoint(self, starting_offsets, listed=None):  # type: ignore[no-untyped-def]
        object.__setattr__(self, "reads", self.reads + 1)
        if self.events:
            # Between the manifest, which was read, and the checkpoint.
            self.events.pop(0)()
        return super().read_checkpoint(starting_offsets, listed)


def test_read_state_batch_meanwhile(generation: Generation) -> None:
    """A batch that is committed between two reads doesn't look like a manifest that lost one."""
    busy = Busy(generation, lambda: add_batch(generation, 14, END, 50))

    state = state_of(busy)

    assert state.findings == []
    assert (state.last_committed, state.cursor, busy.reads) == (14, ends(50), 2)


def test_read_state_compaction_meanwhile(folder: Path, generation: Generation) -> None:
    """A compaction that removes files while they are read doesn't look like damage."""

    def compact() -> None:
        logs = [folder / MANIFEST / name for name in ("9.compact", "10", "11", "12", "13")]
        lines = [line for log in logs for line in log.read_text().split("\n")[1:]]
        (folder / MANIFEST / "13.compact").write_text("\n".join(["v1", *lines]))
        for log in logs:
            unsigned(log).unlink()
        raise FileNotFoundError

    busy = Busy(generation, compact)

    state = state_of(busy)

    assert state.findings == []
    assert (state.manifest.compacted, len(state.sealed), busy.reads) == (13, SEALED, 2)


def test_read_state_never_still(generation: Generation) -> None:
    """A drain that commits faster than one can read ends the attempts, and isn't damage."""
    batches = iter(range(14, 100))

    def more() -> None:
        batch = next(batches)
        add_batch(generation, batch, END + batch - 14, END + batch - 13)

    busy = Busy(generation, *[more] * (ATTEMPTS + 1))

    state = state_of(busy)

    assert busy.reads == ATTEMPTS + 1
    assert state.findings == []
    assert state_of(generation).findings == []


# what Kafka holds


def test_validate_busy_topic(tmp_path: Path) -> None:
    """What arrives while Kafka is asked doesn't wait behind an open transaction."""
    quiet = golden_cluster()
    archive = golden_copy(tmp_path / "archive")
    cluster: Any = GrowingCluster(quiet.logs, id=quiet.id, topic_ids=quiet.topic_ids)

    validate_archive(archive, cluster)

    assert [seen.hidden for seen in read_observations(archive).values()] == [0, 0]


# timestamps


def test_validate_time_beyond(archive: Archive) -> None:
    """A record's time that ORC isn't read with stops neither its proof nor a deep validation."""
    generation = open_next(archive, "orc", ["topic"])
    add_batch(generation, 0, END, 50, timestamp=datetime(9999, 12, 31, tzinfo=timezone.utc))
    write_notes(generation, [{"batch": 0, "records": 16, "fingerprint": "0" * 16}])

    assert seal(archive).receipts_written == 1
    assert validate_archive(archive, golden_cluster(), deep=True).findings == []

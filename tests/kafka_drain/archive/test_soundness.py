"""What was sealed and is gone, changed or there twice is found, and nothing is sealed meanwhile.

The generations' files, manifest and checkpoint are the golden archive's, which Spark wrote.
"""

from __future__ import annotations

import codecs
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.journal.files import note_sealed, read_journal, start_journal_anew
from kafka_drain.archive.journal.identity import note_of_settings
from kafka_drain.archive.receipts import parse_receipt
from kafka_drain.archive.soundness import check_sealed_state, note_of_holes, recreate_journal
from kafka_drain.archive.window import Window
from kafka_drain.cli.main import main as run_command
from kafka_drain.clock import utc_now
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import (
    ArchiveError,
    CheckpointError,
    LockedError,
    ManifestInvalidError,
    TopicError,
)
from kafka_drain.findings import Reason, errors
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.intervals import Interval
from kafka_drain.maintenance.maintain import plan_maintenance
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows import window_jobs
from kafka_drain.windows.backfill_plan import plan_backfill
from kafka_drain.windows.receipt_repair import repair_documents
from kafka_drain.windows.repair_plan import plan_repair
from kafka_drain.windows.reprocess.abandon import plan_abandon
from kafka_drain.windows.roll import plan_roll
from kafka_drain.windows.superseded_files import remove_superseded, remove_unsealed
from kafka_drain.windows.window_jobs import seal_proven, seal_superseding
from tests.kafka_drain.archives import (
    BACKFILL,
    G1,
    G2,
    HOUR,
    WINDOWS,
    seal_more,
    seal_rows,
    sealed_files,
    validated,
    write_window,
)
from tests.kafka_drain.fake_cluster import Log
from tests.kafka_drain.golden import (
    END,
    P0,
    P1,
    add_batch,
    golden_cluster,
    golden_copy,
    note_batch,
    open_next,
    row,
    seal,
    sealed_copy,
    write_rows,
)
from tests.kafka_drain.made_archive import MadeArchive, dense

Damage = Callable[[Path], Any]


def remove(*paths: str) -> Damage:
    """Remove files or folders."""

    def damage(root: Path) -> None:
        for path in paths:
            if (root / path).is_dir():
                shutil.rmtree(root / path)
            else:
                (root / path).unlink()

    return damage


def newest(*folders: str, receipts: int = 1) -> Damage:
    """Remove the newest files of some folders."""

    def damage(root: Path) -> None:
        for folder in folders:
            for path in sorted((root / folder).glob("[0-9]*.json"))[-receipts:]:
                path.unlink()

    return damage


def edit(path: str, **changes: Any) -> Damage:
    """Change what a JSON document says."""

    def damage(root: Path) -> None:
        document = json.loads((root / path).read_text())
        (root / path).write_text(json.dumps(document | changes))

    return damage


def twice(path: str) -> Damage:
    """Repeat the first key of a JSON document, with its value."""

    def damage(root: Path) -> None:
        text = (root / path).read_text()
        name, value = next(iter(json.loads(text).items()))
        first = f"{{{json.dumps(name)}: {json.dumps(value)}, "
        (root / path).write_text(first + text.lstrip()[1:])

    return damage


def both(*damages: Damage) -> Damage:
    """Do one damage after the other."""

    def damage(root: Path) -> None:
        for each in damages:
            each(root)

    return damage


def later_start(root: Path, folder: str) -> None:
    """Let a generation start later than it did."""
    document = json.loads((root / folder / "generation.json").read_text())
    starts = document["starting_offsets"]["flights"]
    edit(f"{folder}/generation.json", starting_offsets={"flights": dict.fromkeys(starts, 40)})(root)


def change_plan(root: Path, before: bytes) -> None:
    """Put bytes before a window's plan."""
    path = root / f"windows/{WINDOWS[3]}/plan.json"
    path.write_bytes(before + path.read_bytes())


GONE: dict[str, Damage] = {
    **{f"receipt of {key}": remove(f"windows/{key}/receipt.json") for key in WINDOWS},
    **{f"folder of {key}": remove(f"windows/{key}") for key in WINDOWS},
    "all windows": remove("windows"),
    "all windows' receipts": both(*(remove(f"windows/{key}/receipt.json") for key in WINDOWS)),
    "newest receipt": newest(f"{G2}/receipts"),
    "two newest receipts": newest(f"{G2}/receipts", receipts=2),
    "all receipts of the open generation": newest(f"{G2}/receipts", receipts=9),
    "newest receipt of the closed generation": newest(f"{G1}/receipts"),
    "all receipts of the closed generation": newest(f"{G1}/receipts", receipts=99),
    "oldest receipt of the closed generation": remove(f"{G1}/receipts/000000000011.json"),
    "the closed generation": remove(G1),
    "the open generation": remove(G2),
}
EDITED: dict[str, Damage] = {
    f"{what} of {folder}": damage
    for folder in (G1, G2)
    for what, damage in {
        "start": partial(later_start, folder=folder),
        "topic ids": edit(f"{folder}/generation.json", topics={"flights": "another"}),
        "partition columns": edit(f"{folder}/generation.json", partition_by=[]),
        "number": edit(f"{folder}/generation.json", generation=7),
        "format": edit(f"{folder}/generation.json", format="orc"),
        "reason": edit(f"{folder}/generation.json", reason="another"),
    }.items()
} | {
    "pipeline of the archive": edit("archive.json", pipeline="another"),
    "cluster of the archive": edit("archive.json", cluster_id="another"),
    "topic id of the archive": edit("archive.json", topics={"flights": "another"}),
    # Readers would differ on the value of a key that is there twice.
    "a key of the archive twice": twice("archive.json"),
    "a key of a generation twice": twice(f"{G1}/generation.json"),
    "topics of the archive": edit("archive.json", topics={}),
    "isolation level of the archive": edit("archive.json", isolation_level="read_uncommitted"),
    "retention of the archive": edit("archive.json", retention="30 days"),
    "plan of a window": edit(f"windows/{BACKFILL}/plan.json", ranges=[]),
    "interval of a window": edit(f"windows/{BACKFILL}/plan.json", interval=HOUR[::-1]),
    "format of a window": edit(f"windows/{WINDOWS[1]}/plan.json", format="orc"),
    "plan of a window gone": remove(f"windows/{WINDOWS[3]}/plan.json"),
    "plan of a window saved by an editor": lambda root: change_plan(root, codecs.BOM_UTF8),
    "plan of a window nested without end": lambda root: change_plan(root, b"[" * 100_000),
}
HOW: dict[str, dict[str, Any]] = {
    "open": {"scope": "open"},
    "all": {"scope": "all"},
    "deep": {"scope": "all", "deep": True},
}


def sealed_now(root: Path) -> dict[str, bytes]:
    """Return every receipt and entry of the journal that is there."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*.json")
        if path.name == "receipt.json" or path.parent.name in ("receipts", "journal")
    }


def assert_found_twice(root: Path, how: dict[str, Any], *reasons: str) -> None:
    """Validate twice: the second run is as red as the first, and nothing was sealed in between."""
    before = sealed_now(root)
    archive, cluster = Archive.at(str(root)), golden_cluster()
    if json.loads((root / "archive.json").read_text())["cluster_id"] == "another":
        cluster = None  # type: ignore[assignment]
    first, second = (validate_archive(archive, cluster, **how) for _ in range(2))

    found = [[(f.reason.value, f.where) for f in errors(r.findings)] for r in (first, second)]
    assert {reason for reason, _ in found[0]} & set(reasons), found[0]
    assert sorted(found[0]) == sorted(found[1])
    assert (first.receipts_written, second.receipts_written) == (0, 0)
    assert sealed_now(root) == before


@pytest.mark.parametrize("how", HOW)
def test_sealed_archive_sound(how: str, copy: Path) -> None:
    """An archive with windows of each kind is in order, however often it is validated."""
    archive = Archive.at(str(copy))
    before = sealed_now(copy)

    for _ in range(2):
        assert validated(archive, **HOW[how]).receipts_written == 0

    assert sealed_now(copy) == before


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("what", GONE)
def test_sealed_receipt_gone(what: str, how: str, copy: Path) -> None:
    """A receipt that was sealed is missed, of whatever window and generation, also the newest."""
    GONE[what](copy)

    assert_found_twice(copy, HOW[how], "receipt_missing", "receipt_hole")


@pytest.mark.parametrize("how", ["open", "deep"])
@pytest.mark.parametrize("what", EDITED)
def test_sealed_document_edited(what: str, how: str, copy: Path) -> None:
    """What says how sealed segments are read can't be edited unseen."""
    EDITED[what](copy)

    assert_found_twice(copy, HOW[how], "document_changed")


HARMLESS: dict[str, Damage] = {
    "source": edit("archive.json", source={"topic_pattern": "flights.*"}),
    "a topic that isn't sealed": lambda root: edit(
        "archive.json",
        topics={**json.loads((root / "archive.json").read_text())["topics"], "later": "id"},
    )(root),
    "a key of a later release": edit("archive.json", later=[1]),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_archive_document_changed_on_purpose(what: str, copy: Path) -> None:
    """What later drains may change isn't a finding."""
    HARMLESS[what](copy)

    assert validated(Archive.at(str(copy))).receipts_written == 0


@pytest.mark.parametrize("key", ["isolation_level", "retention"])
def test_settings_of_older_journal(key: str, copy: Path) -> None:
    """A journal without settings accepts those it finds, notes them, and then misses a change."""
    archive = Archive.at(str(copy))
    noted = archive.snapshot().journal.noted
    older = {path: value for path, value in noted.documents.items() if "settings/" not in path}
    remove("journal", "journal.json")(copy)
    known = max(
        parse_receipt(path.read_bytes()).journal
        for path in copy.rglob("*.json")
        if path.name == "receipt.json" or path.parent.name == "receipts"
    )
    start_journal_anew(archive.root, replace(noted, documents=older), known)

    validated(archive)

    now = archive.snapshot().journal.noted.documents
    assert {path: value for path, value in now.items() if path not in older} == note_of_settings(
        "read_committed", None
    )
    value = {"isolation_level": "read_uncommitted", "retention": "30 days"}[key]
    edit("archive.json", **{key: value})(copy)
    assert_found_twice(copy, HOW["open"], "document_changed")


@pytest.mark.parametrize("what", [what for what in EDITED if what.endswith("of the archive")])
def test_archive_document_repaired(what: str, copy: Path) -> None:
    """A repair restores an archive.json that was edited from its copy."""
    before = json.loads((copy / "archive.json").read_text())
    EDITED[what](copy)

    repair_documents(Archive.at(str(copy)).root)

    assert json.loads((copy / "archive.json").read_text()) == before
    assert validated(Archive.at(str(copy))).receipts_written == 0


def entries(root: Path) -> list[Path]:
    """Return the journal's entries, oldest first."""
    return sorted((root / "journal").glob("[0-9]*.json"))


def change_byte(root: Path) -> None:
    """Change a byte of the newest entry."""
    content = bytearray(entries(root)[-1].read_bytes())
    content[30] ^= 1
    entries(root)[-1].write_bytes(content)


def swap(root: Path) -> None:
    """Put one entry in the place of the one after it."""
    entries(root)[-1].write_bytes(entries(root)[-2].read_bytes())


NEWEST = both(newest("journal"), newest(f"{G2}/receipts"))
JOURNAL: dict[str, Damage] = {
    "newest entry": newest("journal"),
    "newest entry, and the receipt that it names": NEWEST,
    "newest two entries, and the receipts": both(NEWEST, NEWEST),
    "an entry between two others": lambda root: entries(root)[-2].unlink(),
    "first entry": lambda root: entries(root)[0].unlink(),
    "folder": remove("journal"),
    "folder, and the newest receipt": both(remove("journal"), newest(f"{G2}/receipts")),
    "folder and end": remove("journal", "journal.json"),
    "folder and end, and the newest receipt": both(
        remove("journal", "journal.json"), newest(f"{G2}/receipts")
    ),
    "end": remove("journal.json"),
    "end says less is there": edit("journal.json", sha256="0" * 64),
    "end isn't JSON": lambda root: (root / "journal.json").write_text("{"),
    "end is something else": lambda root: (root / "journal.json").write_text("{}"),
    "a byte": change_byte,
    "an entry is another": swap,
}


@pytest.mark.parametrize("how", ["open", "deep"])
@pytest.mark.parametrize("what", JOURNAL)
def test_journal_damaged(what: str, how: str, copy: Path) -> None:
    """Entries that are gone or changed are found, its end as well, also with their receipts."""
    JOURNAL[what](copy)

    assert_found_twice(copy, HOW[how], "journal_damaged")


OVERLAPS: dict[str, dict[TopicPartition, Iterable[int]]] = {
    "with a closed generation": {P0: range(30, 42)},
    "with the open generation": {P1: range(71, 200)},
    "with a window": {P0: range(909, 1000)},
    "of one offset": {P1: [END]},
}


@pytest.mark.parametrize("how", ["open", "deep"])
@pytest.mark.parametrize("what", OVERLAPS)
def test_segments_overlap(what: str, how: str, copy: Path) -> None:
    """A window with offsets that another segment holds, and whose files it doesn't stand for."""
    seal_rows(Archive.at(str(copy)), "20120101T000000Z_20120101T010000Z", OVERLAPS[what])

    assert_found_twice(copy, HOW[how], "segment_overlap")


@pytest.mark.parametrize("how", HOW)
def test_generations_overlap(how: str, tmp_path: Path) -> None:
    """A generation that drains offsets of another one again is found before it is sealed."""
    archive = sealed_copy(tmp_path / "archive")
    opened = open_next(archive, "parquet", ["topic"])
    start = {"flights": {"0": END - 2, "1": END - 2}}
    edit("generation.json", starting_offsets=start)(Path(str(opened.folder)))
    paths = add_batch(opened, 0, END - 2, END + 8)
    note_batch(opened, 0, paths, END - 2, END + 8)

    assert_found_twice(tmp_path / "archive", HOW[how], "segment_early")


def test_segment_sealed_before_overlap_found(tmp_path: Path) -> None:
    """Overlapping generations that an older release has sealed are found as well."""
    archive = sealed_copy(tmp_path / "archive")
    opened = open_next(archive, "parquet", ["topic"])
    add_batch(opened, 0, END, END + 8)
    assert validated(archive).receipts_written == 1
    receipt = opened.last_receipt()
    assert receipt is not None
    parts = tuple(
        replace(part, start=END - 2, so_far=replace(part.so_far, start=END - 2))
        for part in receipt.partitions
    )
    older = replace(receipt, partitions=parts, journal=0)
    Path(str(opened.folder / "receipts" / receipt.name)).write_bytes(older.to_bytes())
    start = {"flights": {"0": END - 2, "1": END - 2}}
    edit("generation.json", starting_offsets=start)(Path(str(opened.folder)))
    remove("journal", "journal.json")(tmp_path / "archive")
    for path in (tmp_path / "archive" / G1 / "receipts").iterdir():
        path.write_bytes(replace(parse_receipt(path.read_bytes()), journal=0).to_bytes())

    assert_found_twice(tmp_path / "archive", HOW["open"], "segment_overlap")


def open_too_late(root: Path) -> Archive:
    """Roll a sealed archive, and edit where the next generation starts before it has drained."""
    archive = sealed_copy(root)
    opened = open_next(archive, "parquet", ["topic"])
    start = {"flights": {"0": END + 5, "1": END}}
    edit("generation.json", starting_offsets=start)(Path(str(opened.folder)))
    return archive


def hole_of(archive: Archive) -> list[tuple[str, str]]:
    """Return the offsets between two generations that are found."""
    found = check_sealed_state(archive.snapshot()).findings
    return [(f.where, f.detail) for f in found if f.reason == Reason.SEGMENT_HOLE]


BETWEEN = f"resumes flights-0 after [{END}, {END + 5}), which {G1} doesn't hold"


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("drained", [False, True])
def test_generation_starts_too_late(
    drained: bool, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets between two generations that nobody holds are found, before they are drained too."""
    monkeypatch.setattr("kafka_drain.proof.gap_explanation.classify_gaps", all_lost)
    archive = open_too_late(tmp_path / "archive")
    if drained:
        skip_to(archive.generation(2), END + 5, END + 10)

    assert_found_twice(tmp_path / "archive", HOW[how], "segment_hole")
    assert hole_of(archive) == [(G2, BETWEEN)]
    if not drained:
        pipeline = Pipeline(name="golden", topics=["flights"], archive=str(archive.root))
        with pytest.raises(CheckpointError, match="segment_hole"):
            preflight(pipeline, golden_cluster())
        with pytest.raises(CheckpointError, match="segment_hole"):
            plan_roll(archive, golden_cluster())


def skip_to(generation: Generation, start: int, end: int) -> None:
    """Commit a batch that begins later in partition 0 than in partition 1."""
    first, _ = add_batch(generation, 0, END, end)
    cut(generation, 0, first, range(start, end))


@pytest.mark.parametrize("how", HOW)
def test_newest_receipts_lost_before_journal(
    how: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed generation without its newest receipt is noticed by the one that follows it."""
    monkeypatch.setattr("kafka_drain.proof.gap_explanation.classify_gaps", all_lost)
    newest(f"{G1}/receipts")(copy)
    without_journal(copy)

    assert_found_twice(copy, HOW[how], "segment_hole")
    for _ in range(2):
        recreate_journal(Archive.at(str(copy)), dry_run=False)
        assert_found_twice(copy, HOW[how], "segment_hole")


def without_journal(root: Path) -> None:
    """Make an archive as of a release that kept no journal."""
    remove("journal", "journal.json")(root)
    for path in [*root.rglob("receipt.json"), *root.rglob("receipts/*.json")]:
        path.write_bytes(replace(parse_receipt(path.read_bytes()), journal=0).to_bytes())
    previous = None
    for folder in (G1, G2):
        for path in sorted((root / folder / "receipts").iterdir()):
            receipt = replace(parse_receipt(path.read_bytes()), previous=previous)
            path.write_bytes(receipt.to_bytes())
            previous = parse_receipt(path.read_bytes()).sha256


def test_hole_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Kafka still has of it a repair drains: then nothing is missing, and all is sealed."""
    monkeypatch.setattr("kafka_drain.proof.gap_explanation.classify_gaps", all_lost)
    archive = open_too_late(tmp_path / "archive")
    skip_to(archive.generation(2), END + 5, END + 10)

    plan = plan_repair(archive, validate_archive(archive, golden_cluster()))
    assert plan.ranges == {P0: [OffsetRange(END, END + 5)]}
    receipt = write_window(archive, "repair_1", {P0: range(END, END + 5)})
    seal_superseding(archive, Window(archive.root, "repair_1"), receipt, run="test")

    assert validated(archive).receipts_written == 1
    assert validated(archive, deep=True).receipts_written == 0


@pytest.mark.parametrize("accepted", [f"flights:0:{END}-{END + 5}", f"flights:0:0-{END + 99}"])
def test_hole_expired_accepted(accepted: str, tmp_path: Path) -> None:
    """What Kafka no longer has somebody may accept: once, as the journal keeps it."""
    archive = open_too_late(tmp_path / "archive")
    skip_to(archive.generation(2), END + 5, END + 10)
    cluster = golden_cluster()
    cluster.logs[P0] = Log(first=END + 5, end=1000)
    less = [f"flights:0:{END}-{END + 4}", f"flights:1:{END}-{END + 5}"]

    for how in ({}, {"acknowledged": parse_ranges("accepted", less)}):
        for _ in range(2):
            report = validate_archive(archive, cluster, **how)  # type: ignore[arg-type]
            found = {finding.reason for finding in errors(report.findings)}
            assert found == {Reason.OFFSET_MISSING, Reason.SEGMENT_HOLE}
            assert report.receipts_written == 0
            assert plan_repair(archive, report).nothing_to_do

    report = validate_archive(archive, cluster, acknowledged=parse_ranges("accepted", [accepted]))
    assert (errors(report.findings), report.receipts_written) == ([], 1)
    report = validate_archive(archive, cluster)
    assert (report.findings, report.receipts_written) == ([], 0)
    assert hole_of(archive) == []
    assert archive_files(archive.snapshot())


def test_hole_accepted_of_id_with_slash(tmp_path: Path) -> None:
    """Topic ids are base64, as librdkafka writes them, and may contain a slash."""
    archive = golden_copy(tmp_path / "archive")
    cluster = golden_cluster()
    cluster.topic_ids["flights"] = "eEheveTsShe9kn/nDZlfvQ"
    edit("archive.json", topics=cluster.topic_ids)(tmp_path / "archive")
    assert errors(validate_archive(archive, cluster).findings) == []
    opened = open_next(archive, "parquet", ["topic"])
    start = {"flights": {"0": END + 5, "1": END}}
    edit("generation.json", starting_offsets=start)(Path(str(opened.folder)))
    skip_to(archive.generation(2), END + 5, END + 10)
    cluster.logs[P0] = Log(first=END + 5, end=1000)

    accepted = {P0: [OffsetRange(END, END + 5)]}
    report = validate_archive(archive, cluster, acknowledged=accepted)
    assert (errors(report.findings), report.receipts_written) == ([], 1)
    assert validate_archive(archive, cluster).findings == []
    assert archive_files(archive.snapshot())


def test_hole_of_lost_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Kafka still has isn't accepted as expired."""
    monkeypatch.setattr("kafka_drain.proof.gap_explanation.classify_gaps", all_lost)
    archive = open_too_late(tmp_path / "archive")

    for _ in range(2):
        how = {"acknowledged": parse_ranges("accepted", [f"flights:0:{END}-{END + 5}"])}
        report = validate_archive(archive, golden_cluster(), **how)  # type: ignore[arg-type]
        assert Reason.SEGMENT_HOLE in {finding.reason for finding in report.findings}
    assert hole_of(archive) == [(G2, BETWEEN)]


def cut(generation: Generation, batch: int, drained: Path, offsets: Iterable[int]) -> None:
    """Let a file of partition 0 be written without some records; its manifest has the size."""
    write_rows(drained, "parquet", [row(P0, offset) for offset in offsets])
    log = Path(str(generation.data / "_spark_metadata" / str(batch)))
    lines = log.read_text().split("\n")
    entry = json.loads(lines[1]) | {"size": drained.stat().st_size}
    log.write_text("\n".join([lines[0], json.dumps(entry), *lines[2:]]))


def test_repair_before_sealing_sound(tmp_path: Path) -> None:
    """What a repair drained again before the batch was sealed is held once, not twice."""
    archive = sealed_copy(tmp_path / "archive")
    opened = open_next(archive, "parquet", ["topic"])
    drained, _ = add_batch(opened, 0, END, END + 8)
    cut(opened, 0, drained, range(END, END + 5))
    seal_rows(archive, "repair_1", {P0: range(END + 5, END + 8)})

    first, second = validated(archive), validated(archive)

    assert (first.receipts_written, second.receipts_written) == (1, 0)


@pytest.mark.parametrize("sealed_between", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_two_repairs_before_sealing_sound(
    together: bool, sealed_between: bool, tmp_path: Path
) -> None:
    """Each batch leaves to repairs what it lost itself, sealed together or one after another."""
    archive = sealed_copy(tmp_path / "archive")
    opened = open_next(archive, "parquet", ["topic"])
    lost: list[int] = []
    for batch, fewer in enumerate((3, 5)):
        start = END + 10 * batch
        drained, _ = add_batch(opened, batch, start, start + 10)
        cut(opened, batch, drained, range(start, start + 10 - fewer))
        lost += range(start + 10 - fewer, start + 10)
        if not together:
            seal_rows(archive, f"repair_{batch}", {P0: lost})
            lost = []
            if sealed_between:
                assert validated(archive).receipts_written == 1
    if together:
        seal_rows(archive, "repair_1", {P0: lost[:3]})
        seal_rows(archive, "repair_2", {P0: lost[3:]})

    for _ in range(2):
        validated(archive)

    assert len(opened.receipt_names()) == 2


def test_window_of_sealed_meanwhile(tmp_path: Path) -> None:
    """What a batch was sealed with while Spark drained it again isn't sealed a second time."""
    archive = sealed_copy(tmp_path / "archive")
    opened = open_next(archive, "parquet", ["topic"])
    add_batch(opened, 0, END, END + 8)
    # As long as the manifest was damaged, these looked lost.
    receipt = write_window(archive, "repair_1", {P0: range(END + 5, END + 8)})
    assert validated(archive).receipts_written == 1
    before = sealed_now(tmp_path / "archive")

    for _ in range(2):
        with pytest.raises(
            LockedError, match=r"repair_1: another run .* which generations/0002 holds too"
        ):
            seal_superseding(archive, Window(archive.root, "repair_1"), receipt, run="test")

    assert sealed_now(tmp_path / "archive") == before
    assert validated(archive).receipts_written == 0


def test_window_suspended_before_its_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended until another run has sealed the same offsets, a window isn't sealed any more."""
    archive = sealed_copy(tmp_path / "archive")
    windows = [Window(archive.root, f"repair_{n}") for n in (1, 2)]
    receipts = [write_window(archive, w.key, {P0: range(800, 810)}) for w in windows]
    passed = [timedelta()]
    sync = window_jobs.sync_files

    def seal(number: int) -> None:
        root, clock = archive.root / "windows", lambda: utc_now() + passed[0]
        with hold_lease(root, run="tests", clock=clock) as lease:
            seal_proven(archive, windows[number], receipts[number], lease)

    def suspended(root: UPath, paths: Iterable[str]) -> None:
        monkeypatch.setattr(window_jobs, "sync_files", sync)
        passed[0] = timedelta(seconds=90)
        seal(1)

    monkeypatch.setattr(window_jobs, "sync_files", suspended)

    with pytest.raises(LockedError, match="expired while this process was suspended"):
        seal(0)

    assert [window.has_receipt() for window in windows] == [False, True]
    assert check_sealed_state(archive.snapshot()).findings == []


def test_window_beside_damaged_receipt(copy: Path) -> None:
    """A window's receipt that can't be read is named when another window is to be sealed."""
    archive = Archive.at(str(copy))
    receipt = write_window(archive, "repair_9", {P0: range(800, 810)})
    path = copy / "windows" / BACKFILL / "receipt.json"
    path.write_bytes(path.read_bytes()[:-9])
    before = sealed_now(copy)

    with pytest.raises(ManifestInvalidError, match=f"receipt_corrupt: windows/{BACKFILL}/"):
        seal_superseding(archive, Window(archive.root, "repair_9"), receipt, run="test")

    assert sealed_now(copy) == before


CORRUPT: dict[str, Damage] = {
    "receipt of the closed generation": lambda root: min((root / G1 / "receipts").iterdir()),
    "receipt of the open generation": lambda root: root / G2 / "receipts" / "000000000002.json",
    "receipt of a window": lambda root: root / "windows" / BACKFILL / "receipt.json",
}


def all_lost(cluster: Any, missing: dict[TopicPartition, list[OffsetRange]]) -> list[Gap]:
    """Say as a Kafka does that still holds all records."""
    return [Gap(tp, r, GapReason.LOST) for tp, ranges in missing.items() for r in ranges]


@pytest.mark.parametrize("what", CORRUPT)
def test_repair_beside_damaged_receipt(
    what: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is drained for hours that can't be sealed then: a damaged receipt comes first."""
    monkeypatch.setattr("kafka_drain.proof.gap_explanation.classify_gaps", all_lost)
    archive = Archive.at(str(copy))
    lost = sealed_files(archive.generation(2), P1)[0]
    (copy / lost.path).unlink()
    path = CORRUPT[what](copy)
    path.write_bytes(path.read_bytes()[:-9])

    report = validate_archive(archive, golden_cluster())

    assert GapReason.LOST in {gap.reason for gap in report.gaps}
    assert plan_repair(archive, report).nothing_to_do


def everything(root: Path) -> dict[str, bytes]:
    """Return all files of an archive."""
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_repair_dry_run_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run seals nothing, notes nothing, and leaves no file."""
    root = tmp_path / "archive"
    archive = sealed_copy(root)
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, END + 8)
    shutil.rmtree(root / "journal")
    (root / "journal.json").unlink()
    before = everything(root)
    monkeypatch.setattr(
        "kafka_drain.cli.commands.repair.cluster_from", lambda options: golden_cluster()
    )

    run_command(["repair", str(root), "--dry-run"])

    assert "nothing was changed" in capsys.readouterr().err
    assert everything(root) == before


#: Of each kind, something that no plan may be made with.
REFUSED = ["receipt of " + key for key in WINDOWS] + ["all windows", "newest receipt"]
REFUSED += ["newest receipt of the closed generation", "the closed generation"]


@pytest.mark.parametrize("what", [*REFUSED, *EDITED, *JOURNAL])
def test_unsound_archive_refused(what: str, copy: Path) -> None:
    """Nobody plans by an archive of which something that was sealed is missing or changed."""
    archive, cluster = Archive.at(str(copy)), golden_cluster()
    pipeline = Pipeline(name="flights", topics=["flights"], archive=str(copy))
    pipeline = pipeline.model_copy(update={"name": archive.snapshot().document.pipeline})
    (GONE | EDITED | JOURNAL)[what](copy)
    before = sealed_now(copy)
    refused = pytest.raises((ManifestInvalidError, CheckpointError, ArchiveError, TopicError))

    with refused:
        archive_files(archive.snapshot())
    with refused:
        plan_maintenance(pipeline)
    with refused:
        remove_unsealed(archive)
    with refused:
        remove_superseded(archive)
    with refused:
        plan_abandon(archive)
    with refused:
        plan_backfill(pipeline, cluster, Interval.parse(HOUR))
    if "window" not in what and not any(key in what for key in WINDOWS):
        with refused:
            preflight(pipeline, cluster)
        with refused:
            plan_roll(archive, cluster)
    report = validate_archive(archive, cluster if "cluster" not in what else None)
    assert plan_repair(archive, report).nothing_to_do
    assert sealed_now(copy) == before


@pytest.mark.parametrize("what", [f"folder of {key}" for key in WINDOWS])
def test_drain_goes_on_without_window(what: str, copy: Path) -> None:
    """A window that is gone stops no drain: what Kafka holds would expire meanwhile."""
    document = json.loads((copy / "archive.json").read_text())
    GONE[what](copy)
    pipeline = Pipeline(
        name=document["pipeline"], topics=["flights"], archive=str(copy), partition_by=["topic"]
    )

    with pytest.raises(CheckpointError, match="was moved"):
        # The golden archive's batches name another folder; no other reason is given.
        preflight(pipeline, golden_cluster())


def test_archive_of_older_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that no journal was kept of is validated as ever, and gets its journal."""
    with monkeypatch.context() as patch:
        patch.setattr("kafka_drain.proof.validation.note_sealed", lambda *noted: None)
        archive = golden_copy(tmp_path / "archive")
        seal(archive)
        seal_more(archive)
    assert not (tmp_path / "archive" / "journal").exists()

    assert validate_archive(archive, None).findings == []
    assert not (tmp_path / "archive" / "journal").exists()
    validated(archive)

    GONE["all windows"](tmp_path / "archive")
    assert_found_twice(tmp_path / "archive", HOW["open"], "receipt_missing")


def test_receipt_not_noted_yet(copy: Path) -> None:
    """Killed between a receipt and its entry: the next run notes it, and from then on it counts."""
    archive = Archive.at(str(copy))
    seal_rows(archive, "20120101T000000Z_20120101T010000Z", {P0: range(800, 810)})
    add_batch(archive.generation(2), 3, END + 30, END + 40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafka_drain.proof.validation.note_sealed", lambda *noted: None)
        assert validated(archive).receipts_written == 1

    assert validated(archive, scope="open").receipts_written == 0

    remove("windows/20120101T000000Z_20120101T010000Z")(copy)
    newest(f"{G2}/receipts")(copy)
    assert_found_twice(copy, HOW["open"], "receipt_missing")


def test_receipt_after_noted_one_forged(copy: Path) -> None:
    """A receipt that isn't the successor of the noted one isn't taken up."""
    path = copy / G2 / "receipts" / "000000000003.json"
    receipt = parse_receipt((path.parent / "000000000002.json").read_bytes())
    forged = replace(receipt, first_batch=3, last_batch=3, previous="0" * 64)
    path.write_bytes(forged.to_bytes())

    for how in HOW.values():
        assert_found_twice(copy, how, "receipt_changed")


@pytest.mark.parametrize(
    "what", [*(f"folder of {key}" for key in WINDOWS), "newest receipt", *JOURNAL]
)
def test_journal_begun_anew(what: str, copy: Path, said: list[str]) -> None:
    """Without a copy, somebody may say that what is there is all there is; nothing else does."""
    (GONE | JOURNAL)[what](copy)
    before = sealed_now(copy)
    archive = Archive.at(str(copy))

    recreate_journal(archive, dry_run=True)
    assert sealed_now(copy) == before
    recreate_journal(archive, dry_run=False)
    assert ": drops " in said[0]

    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        # What a window stood for is missed again, where nothing else holds it.
        assert {finding.reason for finding in errors(report.findings)} <= {
            Reason.FILE_MISSING,
            Reason.OFFSET_MISSING,
        }
    assert check_sealed_state(archive.snapshot()).findings == []


def test_journal_begun_anew_again(tmp_path: Path, said: list[str]) -> None:
    """What was accepted as lost, and what was given up, stays so, however often it begins anew."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    tp = TopicPartition("t", 0)
    made.seal({tp: dense(0, 10)})
    made.open_generation()
    made.start_at({tp: 15})
    for start in (15, 20, 25):
        made.seal({tp: dense(start, start + 5)})
    state = check_sealed_state(made.archive.snapshot())
    assert [(hole.tp, hole.range) for hole in state.holes] == [(tp, OffsetRange(10, 15))]
    note_sealed(made.root, state.there.plus(note_of_holes(state.holes)))
    names = made.archive.generation(2).receipt_names()
    for folder in ("", "copies/"):
        (made.root / f"{folder}{G2}/receipts/{names[1]}").unlink(missing_ok=True)
    assert {found.reason for found in check_sealed_state(made.archive.snapshot()).findings} == {
        Reason.RECEIPT_MISSING
    }
    where = f"{G2}/receipts/{names[2]}"

    for _ in range(3):
        before = read_journal(made.root)
        recreate_journal(made.archive, dry_run=True)
        assert read_journal(made.root) == before
        recreate_journal(made.archive, dry_run=False)

        state = check_sealed_state(made.archive.snapshot())
        assert (state.findings, state.holes) == ([], [])
        assert state.journal.newest > before.newest
        assert where in state.journal.noted.forgotten
        assert {found.reason for found in state.warnings} == {Reason.RECEIPT_FORGOTTEN}


def test_plan_that_no_reader_takes(tmp_path: Path) -> None:
    """A plan that was sealed as it is, but that readers refuse, is a finding of validations too."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal({P0: dense(0, 10)})
    made.seal_window("20260101T000000Z_20260101T010000Z", {P0: dense(10, 20)}, format="parque0")

    report = validate_archive(made.archive, None, writes=False)

    [found] = [each for each in report.findings if each.reason == Reason.DOCUMENT_CHANGED]
    assert found.subject == "windows/20260101T000000Z_20260101T010000Z/plan.json"
    assert "format" in found.detail

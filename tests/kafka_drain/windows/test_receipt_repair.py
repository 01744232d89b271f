"""What a repair does with what is sealed: each decision, and each damage on the golden archive."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic import AnyHash
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.copies import KEPT
from kafka_drain.archive.journal.entries import Noted
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.receipts import parse_receipt
from kafka_drain.archive.soundness import recreate_journal
from kafka_drain.archive.window import Window
from kafka_drain.cli.main import main
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import ArchiveError, CheckpointError
from kafka_drain.findings import errors
from kafka_drain.kafka.identity import SeenRecord
from kafka_drain.output import Level, level_of
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows.receipt_repair import (
    FileState,
    RepairAction,
    plan_document_repair,
    repair_documents,
)
from kafka_drain.windows.roll import plan_roll
from tests.forks import kill_points, run_forked
from tests.integration.killed_steps import kill_at_change
from tests.kafka_drain.archive.test_soundness import GONE, both, edit, entries, remove
from tests.kafka_drain.archives import BACKFILL, G1, G2, WINDOWS, seal_rows, write_window
from tests.kafka_drain.golden import END, add_batch, golden_cluster

Damage = Callable[[Path], Any]


def content_of(root: Path) -> dict[str, bytes]:
    """Return every file that proves, or decides how what is proven is read."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name not in ("observed.json", "overview.json")
    }


def empty(*paths: str) -> Damage:
    """Leave nothing of files but their names, as a power cut does."""

    def damage(root: Path) -> None:
        for path in paths:
            (root / path).write_bytes(b"")

    return damage


def half(path: str) -> Damage:
    """Leave the first half of a file."""

    def damage(root: Path) -> None:
        content = (root / path).read_bytes()
        (root / path).write_bytes(content[: len(content) // 2])

    return damage


def zeros(path: str) -> Damage:
    """Leave a file's length, and zeros in it."""

    def damage(root: Path) -> None:
        (root / path).write_bytes(bytes((root / path).stat().st_size))

    return damage


def another(path: str, like: str) -> Damage:
    """Put another receipt in the place of one."""

    def damage(root: Path) -> None:
        shutil.copyfile(root / like, root / path)

    return damage


def without_copies(root: Path) -> None:
    """As an older release has left it, or somebody who took the copies for needless."""
    shutil.rmtree(root / "copies")


NEWEST = f"{G2}/receipts/000000000002.json"
MIDDLE = f"{G2}/receipts/000000000001.json"
OLDEST = f"{G2}/receipts/000000000000.json"
CLOSED = [f"{G1}/receipts/{batch:012d}.json" for batch in (11, 12, 13)]
RECEIPTS = [NEWEST, MIDDLE, OLDEST, *CLOSED, *(f"windows/{key}/receipt.json" for key in WINDOWS)]
DOCUMENTS = ["archive.json", f"{G1}/generation.json", f"{G2}/generation.json"]
DOCUMENTS += [f"windows/{key}/plan.json" for key in WINDOWS]

COPIED: dict[str, Damage] = {
    **{f"{path} empty": empty(path) for path in [*RECEIPTS, *DOCUMENTS]},
    **{f"{path} gone": remove(path) for path in [*RECEIPTS, *DOCUMENTS]},
    **{f"{path} cut": half(path) for path in (NEWEST, CLOSED[2], DOCUMENTS[0])},
    **{f"{path} zeros": zeros(path) for path in (NEWEST, CLOSED[2], DOCUMENTS[0])},
    "all receipts empty": empty(*RECEIPTS),
    "all receipts of a generation gone": remove(NEWEST, MIDDLE, OLDEST),
    "all documents empty": empty(*DOCUMENTS),
    "receipts in a row": both(empty(NEWEST), remove(MIDDLE), half(OLDEST)),
    "another receipt": another(NEWEST, MIDDLE),
    "another receipt in a closed generation": another(CLOSED[1], CLOSED[0]),
    "edited generation": edit(f"{G1}/generation.json", format="orc"),
    "edited plan": edit(f"windows/{BACKFILL}/plan.json", ranges=[]),
    "edited archive": edit("archive.json", pipeline="another"),
}


@pytest.mark.parametrize("what", COPIED)
def test_repair_documents_from_copies(what: str, copy: Path, said: list[str]) -> None:
    """What was sealed and has a copy comes back byte for byte, and is named."""
    before = content_of(copy)
    COPIED[what](copy)

    planned = plan_document_repair(copy_root(copy))
    repair_documents(copy_root(copy))

    after = content_of(copy)
    assert before.items() <= after.items()
    assert planned.to_do
    assert all(found.step is RepairAction.RESTORE for found in planned.repairs)
    assert {found.where for found in planned.repairs} == {
        line.split(": ")[1].split(" ")[0] for line in said if "restores it" in line
    }
    assert {line.level for line in planned.lines()} == {Level.PLAIN}
    # What could be read is kept beside it.
    aside = after.keys() - before.keys()
    changed = [
        found
        for found in planned.repairs
        if found.seen in (FileState.CHANGED, FileState.UNREADABLE)
    ]
    assert len(aside) == len(changed)
    assert plan_document_repair(copy_root(copy)).repairs == []
    for _ in range(2):
        report = validate_archive(Archive.at(str(copy)), golden_cluster())
        assert errors(report.findings) == []
        assert report.receipts_written == 0


def copy_root(path: Path) -> Any:
    """Return an archive's folder."""
    return Archive.at(str(path)).root


@pytest.mark.parametrize("damage", [empty, half, zeros])
def test_repair_documents_never_sealed(
    damage: Callable[[str], Damage], copy: Path, said: list[str]
) -> None:
    """Half a receipt that nothing names was never sealed: its batch is proven and sealed again."""
    archive = Archive.at(str(copy))
    add_batch(archive.generation(2), 3, END + 30, END + 40)
    torn = f"{G2}/receipts/000000000003.json"
    shutil.copyfile(copy / NEWEST, copy / torn)
    damage(torn)(copy)
    for _ in range(2):
        red = validate_archive(archive, golden_cluster())
        assert "receipt_corrupt" in {str(finding.reason) for finding in errors(red.findings)}
        assert red.receipts_written == 0

    repair_documents(archive.root)

    assert "nothing names it" in said[0]
    assert sorted(path.name for path in (copy / torn).parent.glob("*.torn-*"))
    first, second = (validate_archive(archive, golden_cluster()) for _ in range(2))
    assert errors(first.findings) == errors(second.findings) == []
    assert (first.receipts_written, second.receipts_written) == (1, 0)
    assert parse_receipt((copy / torn).read_bytes()).previous == (
        parse_receipt((copy / NEWEST).read_bytes()).sha256
    )


def test_repair_documents_window_never_sealed(copy: Path) -> None:
    """Half a window's receipt that nothing names: the window is begun, and not sealed."""
    archive = Archive.at(str(copy))
    key = "20120101T000000Z_20120101T010000Z"
    seal_rows(archive, key, {})
    empty(f"windows/{key}/receipt.json")(copy)

    repair_documents(archive.root)

    assert [w.key for w in archive.snapshot().windows if not w.is_sealed] == [key]
    assert Window(archive.root, key).read_plan().ranges == []
    for _ in range(2):
        assert errors(validate_archive(archive, golden_cluster()).findings) == []


def test_repair_documents_window_of_older_release(copy: Path) -> None:
    """Before there was a journal: a window's receipt that is whole was sealed, and has to be."""
    both(remove("journal", "journal.json"), without_copies)(copy)
    path = copy / f"windows/{BACKFILL}/receipt.json"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"P", b"Q", 1).replace(b"window", b"windov", 1))
    changed = content_of(copy)

    repair_documents(copy_root(copy))
    assert content_of(copy) == changed

    path.write_bytes(b"")
    repair_documents(copy_root(copy))
    assert not path.exists()


@pytest.mark.parametrize("is_named", [False, True])
def test_repair_documents_named_by_compaction(is_named: bool, copy: Path) -> None:
    """Where neither the journal nor a receipt names one, a window that holds its records may."""
    newest = parse_receipt((copy / CLOSED[2]).read_bytes())
    path = copy / f"windows/{WINDOWS[3]}/receipt.json"
    compacted = parse_receipt(path.read_bytes())
    provenance = {CLOSED[2]: newest.sha256} if is_named else {}
    path.write_bytes(replace(compacted, provenance=provenance).to_bytes())
    both(remove("journal", "journal.json", G2), half(CLOSED[2]))(copy)

    repair_documents(copy_root(copy))

    assert (copy / CLOSED[2]).exists() == is_named
    if is_named:
        assert (copy / CLOSED[2]).read_bytes() == newest.to_bytes()


#: Of what is named and has no copy, the file that has to be restored.
REFUSED = {
    "newest": NEWEST,
    "middle": MIDDLE,
    "newest of a closed generation": CLOSED[2],
    "oldest of a closed generation": CLOSED[0],
    "of a window": f"windows/{BACKFILL}/receipt.json",
    "of the archive": "archive.json",
    "of a generation": f"{G2}/generation.json",
    "plan": f"windows/{BACKFILL}/plan.json",
}


@pytest.mark.parametrize("what", REFUSED)
def test_repair_documents_without_copy(what: str, copy: Path, said: list[str]) -> None:
    """What is named and has no copy is never set aside: the file to restore is named."""
    without_copies(copy)
    empty(REFUSED[what])(copy)
    before = content_of(copy)

    repair_documents(copy_root(copy))

    assert content_of(copy) == before
    (line,) = said
    assert f"can't fix: {REFUSED[what]} can't be read; restore it from a copy" in line
    assert level_of(line) is Level.ERROR
    if REFUSED[what] == "archive.json" or REFUSED[what].endswith("generation.json"):
        return
    for _ in range(2):
        report = validate_archive(Archive.at(str(copy)), golden_cluster())
        assert errors(report.findings)
        assert report.receipts_written == 0


@pytest.mark.parametrize("damage", [empty, half, zeros])
@pytest.mark.parametrize("where", [NEWEST, "archive.json"])
def test_repair_documents_copy_damaged(
    where: str, damage: Callable[[str], Damage], copy: Path, said: list[str]
) -> None:
    """A copy that is damaged as well replaces nothing: the file to restore is named."""
    both(empty(where), damage(f"copies/{where}"))(copy)
    before = content_of(copy)

    repair_documents(copy_root(copy))

    assert content_of(copy) == before
    (line,) = said
    assert f"can't fix: {where} can't be read; restore it from a copy" in line


def test_repair_documents_copy_of_another(copy: Path, said: list[str]) -> None:
    """Nor does a copy that can be read, but isn't of what was sealed."""
    both(empty(NEWEST), another(f"copies/{NEWEST}", MIDDLE))(copy)
    before = content_of(copy)

    repair_documents(copy_root(copy))

    assert content_of(copy) == before
    assert f"can't fix: {NEWEST} can't be read; restore it from a copy" in said[0]


def test_repair_documents_beside_damaged_journal(copy: Path, said: list[str]) -> None:
    """What a damaged journal doesn't name may have been sealed."""
    without_copies(copy)
    entries(copy)[-1].unlink()
    (copy / "journal.json").unlink()
    empty(NEWEST)(copy)
    before = content_of(copy)

    repair_documents(copy_root(copy))

    assert content_of(copy) == before
    assert "can't fix" in said[0]


@pytest.mark.parametrize("is_known", [False, True])
def test_repair_documents_torn_entry(is_known: bool, copy: Path) -> None:
    """An entry that was never finished is noted again; one that journal.json names is damage.

    Windows that aren't sealed yet say nothing of it.
    """
    write_window(Archive.at(str(copy)), "20120101T000000Z_20120101T010000Z", {})
    newest = entries(copy)[-1]
    if not is_known:
        torn = newest.with_name(f"{int(newest.stem) + 1:012d}.json")
        shutil.copyfile(newest, torn)
        newest = torn
    half(str(newest.relative_to(copy)))(copy)
    archive = Archive.at(str(copy))
    for _ in range(2):
        red = validate_archive(archive, golden_cluster())
        assert {str(finding.reason) for finding in errors(red.findings)} == {"journal_damaged"}

    repair_documents(archive.root)

    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        assert bool(errors(report.findings)) == is_known
    assert newest.exists() == is_known


@pytest.mark.parametrize(
    ("where", "state"),
    [
        *product(
            ["generations/0003/generation.json", "windows/x/plan.json"],
            ["whole journal", "damaged journal", "noted"],
        ),
        ("generations/0003/generation.json", "sealed"),
    ],
)
def test_repair_documents_may_be_removed(
    where: str, state: str, copy: Path, said: list[str]
) -> None:
    """Only a folder in which nothing can have been sealed may be removed, the user is told."""
    folder = (copy / where).parent
    (folder / "data").mkdir(parents=True)
    (copy / where).write_bytes(b"{")
    if state == "damaged journal":
        entries(copy)[-1].unlink()
    if state == "sealed":
        (folder / "receipts").mkdir()
    if state == "noted":
        note_sealed(copy_root(copy), Noted(documents={where: "0" * 64}))

    repair_documents(copy_root(copy))

    told = [line for line in said if where in line]
    assert any(f"or remove {folder.relative_to(copy)}" in line for line in told) is (
        state == "whole journal"
    ), told


@pytest.mark.parametrize("kind", ["generation", "window"])
def test_repair_documents_never_begun(kind: str, copy: Path) -> None:
    """Half a document in an otherwise empty folder: a generation or window that was never begun."""
    where = {"generation": "generations/0003/generation.json", "window": "windows/x/plan.json"}
    path = copy / where[kind]
    path.parent.mkdir()
    path.write_bytes(b"{")
    archive = Archive.at(str(copy))

    repair_documents(archive.root)

    assert [generation.number for generation in archive.snapshot().generations] == [1, 2]
    assert "x" not in {window.key for window in archive.snapshot().windows}
    for _ in range(2):
        assert errors(validate_archive(archive, golden_cluster()).findings) == []


@pytest.mark.parametrize(
    ("original", "name"),
    [(f"windows/{BACKFILL}", f"windows/{BACKFILL}_2"), (G2, "generations/0003")],
)
def test_repair_documents_copied_folder_is_all_there_is(
    original: str, name: str, copy: Path
) -> None:
    """A copy of a folder whose original is gone is never set aside: it may be the only one."""
    without_copies(copy)
    (copy / original).rename(copy / name)

    planned = plan_document_repair(copy_root(copy))
    repair_documents(copy_root(copy))

    assert FileState.COPIED not in {found.seen for found in planned.repairs}
    assert (copy / name / "data").is_dir()


def repair_until(folder: str, change: int) -> None:
    """Repair an archive, until the nth change of it."""
    kill_at_change(folder, change)
    repair_documents(Archive.at(folder).root)


def test_repair_documents_killed(copy: Path, tmp_path: Path) -> None:
    """Killed before any change of the file system, a repair is done again to its end."""
    before = content_of(copy)
    shutil.copyfile(copy / NEWEST, copy / f"{G2}/receipts/000000000003.json")
    both(
        half(f"{G2}/receipts/000000000003.json"),
        empty(NEWEST, f"{G1}/generation.json"),
        edit("archive.json", pipeline="another"),
        remove(f"windows/{BACKFILL}/plan.json"),
    )(copy)
    for change in kill_points():
        again = shutil.copytree(copy, tmp_path / str(change))
        code = run_forked(repair_until, str(again), change)

        repair_documents(copy_root(again))
        after = content_of(again)
        assert before.items() <= after.items()
        assert plan_document_repair(copy_root(again)).repairs == []
        assert f"{G2}/receipts/000000000003.json" not in after
        if code == 0:
            break
    assert change > 10


@pytest.mark.parametrize("folder", ["", "maintenance", "windows"])
def test_repair_new_journal_beside_others(
    folder: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """What is sealed or removed meanwhile would be forgotten: nobody else may do so."""
    # The windows' lease is waited for otherwise.
    monkeypatch.setattr("kafka_drain.windows.repair.wait_for_lease", hold_lease)
    before = content_of(copy)

    with hold_lease(copy_root(copy) / folder, run="another"):
        assert repair(copy, monkeypatch, "--new-journal", "--apply") != 0

    assert "another" in capsys.readouterr().err
    assert content_of(copy) == before


def test_repair_documents_sound(copy: Path, said: list[str]) -> None:
    """Nothing is done, nor said, where nothing is wrong."""
    before = content_of(copy)

    repair_documents(copy_root(copy))

    assert (content_of(copy), said) == (before, [])


def holding_all() -> Any:
    """The golden archive's Kafka, which also holds whatever was drained after it."""
    kafka: Any = golden_cluster()
    kafka.single_records = lambda offsets, _="", **more: {
        tp: SeenRecord(at, AnyHash(), None) for tp, at in offsets.items()
    }
    return kafka


def test_copies_bounded(copy: Path) -> None:
    """Of a generation's receipts, the newest have copies; of the rest, successors vouch."""
    archive = Archive.at(str(copy))
    for batch in range(3, 3 + 2 * KEPT, 2):
        for each in (batch, batch + 1):
            add_batch(archive.generation(2), each, END + 10 * each, END + 10 * each + 10)
        assert validate_archive(archive, holding_all()).receipts_written == 2

    kept = sorted(path.name for path in (copy / "copies" / G2 / "receipts").iterdir())
    assert KEPT <= len(kept) <= 2 * KEPT
    assert kept[-1] == archive.generation(2).receipt_names()[-1]


@pytest.mark.parametrize("what", [*(f"folder of {key}" for key in WINDOWS), "all windows"])
def test_repair_documents_window_gone(what: str, copy: Path) -> None:
    """Of a window that is gone, plan and receipt come back; its files are missed by name."""
    GONE[what](copy)

    repair_documents(copy_root(copy))

    for _ in range(2):
        # What was in it can be asked of a real Kafka alone.
        report = validate_archive(Archive.at(str(copy)), None)
        found = {str(finding.reason) for finding in errors(report.findings)}
        assert found <= {"file_missing", "offset_missing"}
        assert report.receipts_written == 0


@pytest.mark.parametrize("where", [NEWEST, CLOSED[2]])
def test_roll_beside_damaged_receipt(where: str, copy: Path) -> None:
    """No generation is opened where a receipt ends whose successor can't be read: repair first."""
    empty(where)(copy)
    archive = Archive.at(str(copy))

    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"receipt_corrupt: .*kafka-drain repair"):
            plan_roll(archive, golden_cluster())
    repair_documents(archive.root)

    # Of a window that it voids, this Kafka no longer has the records.
    gone = [f"flights:{partition}:900-910" for partition in (0, 1)]
    plan = plan_roll(archive, golden_cluster(), replaceable=parse_ranges("accepted", gone))
    assert plan.reason.startswith("archive was moved")


def repair(root: Path, monkeypatch: pytest.MonkeyPatch, *options: str, cluster: Any = None) -> int:
    """Run the command at a terminal, with the golden archive's Kafka."""
    monkeypatch.setattr(
        "kafka_drain.cli.commands.repair.cluster_from", lambda _: cluster or golden_cluster()
    )
    return main(["repair", str(root), *options])


def test_repair_command(copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """An empty newest receipt is repaired by the command alone; a dry run changes nothing."""
    before = content_of(copy)
    empty(NEWEST, "archive.json", f"{G1}/generation.json")(copy)
    damaged = content_of(copy)

    for told in ((), ("--dry-run",)):
        assert repair(copy, monkeypatch, *told) == 1
        assert content_of(copy) == damaged
        said = capsys.readouterr().err
        assert said.count("restores it from its copy") == 3
        assert said.endswith("dry run: nothing was changed; pass --apply to carry it out\n")

    for _ in range(2):
        assert repair(copy, monkeypatch, "--apply") == 0
    assert before.items() <= content_of(copy).items()


#: Of what is lost without a copy, whether the rest is in order when it was forgotten.
LOST: dict[str, Damage] = {
    "newest receipt": remove(NEWEST),
    "newest receipt empty": empty(NEWEST),
    "two newest receipts empty": empty(NEWEST, MIDDLE),
    "receipt in the closed generation": remove(CLOSED[1]),
    "the closed generation": remove(G1),
    "receipt of a window empty": empty(f"windows/{BACKFILL}/receipt.json"),
    "window": remove(f"windows/{BACKFILL}"),
    "edited generation": edit(f"{G1}/generation.json", reason="another"),
    "edited plan": edit(f"windows/{BACKFILL}/plan.json", opened_at="2026-01-02T00:00:00+00:00"),
    "journal": remove("journal", "journal.json"),
    "journal, and the newest receipt empty": both(remove("journal", "journal.json"), empty(NEWEST)),
}


@pytest.mark.parametrize("what", LOST)
def test_repair_new_journal(
    what: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Without a copy, what is lost can be forgotten, and every scope is green from then on.

    Each report says for good that something was forgotten, unless nothing says what there was.
    """
    without_copies(copy)
    LOST[what](copy)
    archive, cluster = Archive.at(str(copy)), golden_cluster()
    for _ in range(2):
        red = validate_archive(archive, cluster)
        assert errors(red.findings)
        assert red.receipts_written == 0
    monkeypatch.setattr("kafka_drain.cli.commands.repair.cluster_from", lambda _: cluster)

    assert main(["repair", str(copy), "--new-journal", "--apply"]) == 0, capsys.readouterr().err

    for how in ({"scope": "open"}, {"scope": "all"}, {"scope": "all", "deep": True}):
        report = validate_archive(archive, cluster, **how)  # type: ignore[arg-type]
        assert errors(report.findings) == []
        told = [f for f in report.findings if str(f.reason) == "receipt_forgotten"]
        assert bool(told) == (not what.startswith("journal"))
    # And another batch can follow.
    add_batch(archive.generation(2), 3, END + 30, END + 40)
    for written in (1, 0):
        report = validate_archive(archive, cluster)
        assert errors(report.findings) == []
        assert report.receipts_written == written


@pytest.mark.parametrize("damage", [remove, empty])
def test_new_journal_closed_generation(damage: Callable[[str], Damage], copy: Path) -> None:
    """Where a closed generation's newest receipt is given up, its offsets are missed by name."""
    without_copies(copy)
    damage(CLOSED[2])(copy)
    archive = Archive.at(str(copy))

    repair_documents(archive.root, forget=True)
    recreate_journal(archive, dry_run=False)

    for _ in range(2):
        # Whether Kafka still has them, a real one alone can say.
        report = validate_archive(archive, None)
        found = {str(finding.reason) for finding in errors(report.findings)}
        assert found == {"segment_hole", "offset_missing"}
        assert "receipt_forgotten" in {str(finding.reason) for finding in report.findings}


NOT_FORGOTTEN: dict[str, Damage] = {
    "plan": remove(f"windows/{BACKFILL}/plan.json"),
    "plan empty": empty(f"windows/{BACKFILL}/plan.json"),
    "another receipt between two": another(MIDDLE, OLDEST),
    "receipt between two empty": empty(MIDDLE),
}


@pytest.mark.parametrize("what", NOT_FORGOTTEN)
def test_repair_new_journal_refused(
    what: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """What contradicts the rest, or says how it is read, has to be restored; nothing is changed."""
    without_copies(copy)
    NOT_FORGOTTEN[what](copy)
    before = content_of(copy)

    for _ in range(2):
        assert repair(copy, monkeypatch, "--new-journal", "--apply") != 0
        assert "Nothing was changed" in capsys.readouterr().err

    assert content_of(copy) == before


def test_archive_document_lost(copy: Path) -> None:
    """Where archive.json is gone, and its copy is there, everybody is told of repair."""
    archive = Archive.at(str(copy))
    pipeline = Pipeline(name="flights", topics=["flights"], archive=str(copy))
    remove("archive.json")(copy)

    for refused in (archive.require, lambda: preflight(pipeline, golden_cluster())):
        with pytest.raises(
            ArchiveError, match=r"is missing its archive.json; run `kafka-drain repair"
        ):
            refused()


def test_repair_documents_on_s3(made: Path, bucket: str) -> None:
    """A store has no rename: what is set aside is copied there, and the rest is the same."""
    archive = Archive.at(f"{bucket}/archive")
    archive.root.fs.put(f"{made}/", archive.root.path, recursive=True)
    torn = f"{G2}/receipts/000000000003.json"
    for where in (NEWEST, torn):
        (archive.root / where).write_bytes(b"{")
    (archive.root / "archive.json").unlink()

    repair_documents(archive.root)

    for where in (NEWEST, "archive.json"):
        assert (archive.root / where).read_bytes() == (made / where).read_bytes()
    assert not (archive.root / torn).exists()
    aside = sorted(path.name for path in (archive.root / torn).parent.glob("*torn*"))
    assert [name[:22] for name in aside] == [f"00000000000{n}.json.torn" for n in (2, 3)]
    assert plan_document_repair(archive.root).repairs == []

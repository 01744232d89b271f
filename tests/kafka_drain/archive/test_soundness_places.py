"""Documents and folders that lie where others belong, and generations that start too early."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.segment_overlaps import find_early
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import CheckpointError, KafkaDrainError, ManifestInvalidError
from kafka_drain.findings import errors
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.receipt_repair import repair_documents
from tests.kafka_drain.archive.test_soundness import sealed_now
from tests.kafka_drain.archives import BACKFILL, WINDOWS
from tests.kafka_drain.golden import END, P0, P1, golden_cluster, open_next, sealed_copy

G1, G2 = "generations/0001", "generations/0002"
RETENTION = f"windows/{WINDOWS[-1]}"


def found(root: Path, **how: Any) -> list[tuple[str, str]]:
    """Return the errors of a validation, by reason and place; of two, which must agree."""
    cluster: Any = golden_cluster()
    first, second = (
        validate_archive(Archive.at(str(root)), cluster, writes=False, **how) for _ in range(2)
    )
    assert first.findings == second.findings
    return [(str(finding.reason), finding.where) for finding in errors(first.findings)]


def read(root: Path) -> list[str]:
    return [file.path for file in archive_files(Archive.at(str(root)).snapshot())]


def receipt(generation: str, number: int) -> str:
    return f"{generation}/receipts/{number:012d}.json"


def over(source: str, target: str) -> Callable[[Path], Any]:
    return lambda root: shutil.copy(root / source, root / target)


def folder(source: str, target: str) -> Callable[[Path], Any]:
    return lambda root: shutil.copytree(root / source, root / target)


#: Copies of receipts and of folders with receipts, and where they are found.
MISPLACED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "over the next": (over(receipt(G2, 0), receipt(G2, 1)), receipt(G2, 1)),
    "over the newest": (over(receipt(G2, 1), receipt(G2, 2)), receipt(G2, 2)),
    "after the newest": (over(receipt(G2, 2), receipt(G2, 3)), receipt(G2, 3)),
    "of another generation": (over(receipt(G1, 13), receipt(G2, 0)), receipt(G2, 0)),
    "of another window": (
        over(f"windows/{BACKFILL}/receipt.json", f"{RETENTION}/receipt.json"),
        f"{RETENTION}/receipt.json",
    ),
    "a window's folder": (
        folder(f"windows/{BACKFILL}", f"windows/{BACKFILL}_2"),
        f"windows/{BACKFILL}_2/receipt.json",
    ),
    "the folder of a deletion": (
        folder(RETENTION, "windows/retention_0004"),
        "windows/retention_0004/receipt.json",
    ),
    "a generation's folder": (folder(G2, "generations/0003"), "generations/0003/receipts/2"),
}


@pytest.mark.parametrize("scope", ["open", "all"])
@pytest.mark.parametrize("what", MISPLACED)
def test_receipt_misplaced(copy: Path, what: str, scope: str) -> None:
    """Readers refuse it, a validation names it, and a repair leaves what there was."""
    before, listed = sealed_now(copy), read(copy)
    damage, where = MISPLACED[what]
    damage(copy)

    reasons = dict(found(copy, scope=scope))
    if "generation" in what and "folder" in what:
        assert reasons.keys() == {"receipt_misplaced", "document_changed"}
    else:
        assert reasons["receipt_misplaced"] == where
    with pytest.raises(KafkaDrainError):
        read(copy)

    repair_documents(Archive.at(str(copy)).root)
    assert found(copy, scope=scope) == []
    assert read(copy) == listed
    hidden = {name: content for name, content in sealed_now(copy).items() if "/." not in name}
    assert {n: c for n, c in hidden.items() if ".torn-" not in n} == before


@pytest.mark.parametrize("name", [" (1)", ".bak", " copy"])
@pytest.mark.parametrize("source", [RETENTION, f"windows/{BACKFILL}", G2])
def test_copy_beside_ignored(copy: Path, source: str, name: str) -> None:
    """A folder that no window or generation is named like isn't read, and isn't an error."""
    listed = read(copy)
    shutil.copytree(copy / source, copy / f"{source}{name}")

    report = validate_archive(Archive.at(str(copy)), golden_cluster(), writes=False)  # type: ignore[arg-type]

    assert errors(report.findings) == []
    ignored = [f.where for f in report.findings if str(f.reason) == "copy_ignored"]
    assert ignored == [f"{source}{name}"]
    assert read(copy) == listed


@pytest.mark.parametrize("swapped", ["sizes", "gone"])
def test_archive_files_size(copy: Path, swapped: str) -> None:
    """A file of another size than its receipt says is refused, and so is one that is gone."""
    one, other = [path for path in read(copy) if path.startswith(G2)][:2]
    if swapped == "gone":
        (copy / one).unlink()
    else:
        (copy / one).write_bytes((copy / other).read_bytes() + b"\0")

    with pytest.raises(ManifestInvalidError, match=r"doesn't exist|its receipt says"):
        read(copy)


def pipeline_of(root: Path) -> Pipeline:
    document = Archive.at(str(root)).snapshot().document
    return Pipeline(
        name=document.pipeline, topics=["flights"], archive=str(root), partition_by=["topic"]
    )


@pytest.mark.parametrize("how", ["scope open", "scope all", "without Kafka"])
@pytest.mark.parametrize("starts", [{"0": END - 1, "1": END}, {"0": 0, "1": 0}])
def test_generation_starts_early(tmp_path: Path, starts: dict[str, int], how: str) -> None:
    """What is archived isn't drained again: found by a drain, and by each validation."""
    archive = sealed_copy(tmp_path / "archive")
    opened = open_next(archive, "parquet", ["topic"])
    path = Path(str(opened.folder)) / "generation.json"
    text = json.loads(path.read_text())
    path.write_text(json.dumps(text | {"starting_offsets": {"flights": starts}}))
    cluster: Any = None if "without" in how else golden_cluster()
    scope: Any = how.rpartition(" ")[2] if cluster else "all"

    report = validate_archive(archive, cluster, scope=scope)

    told = [(str(f.reason), f.where) for f in errors(report.findings)]
    assert {*told} == {("segment_early", G2)}
    with pytest.raises(CheckpointError, match="segment_early"):
        preflight(pipeline_of(tmp_path / "archive"), golden_cluster())  # type: ignore[arg-type]


@pytest.mark.parametrize("whose", [1, 7])
def test_generation_of_another(tmp_path: Path, whose: int) -> None:
    """A generation.json of another generation is refused before anything is drained to it."""
    archive = sealed_copy(tmp_path / "archive")
    opened = open_next(archive, "parquet", ["topic"])
    path = Path(str(opened.folder)) / "generation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"generation": whose}))

    assert found(tmp_path / "archive") == [("document_changed", f"{G2}/generation.json")]
    with pytest.raises(KafkaDrainError, match="is of generation"):
        preflight(pipeline_of(tmp_path / "archive"), golden_cluster())  # type: ignore[arg-type]


R = OffsetRange
KEY, OTHER = (TopicPartition("t", 0), "id"), (TopicPartition("t", 0), "made again")


@pytest.mark.parametrize(
    ("second", "third", "fresh", "told"),
    [
        ({KEY: R(10, 10)}, {}, {"g2"}, []),
        ({KEY: R(9, 9)}, {}, {"g2"}, ["g2"]),
        # It has sealed something: compared by what it holds.
        ({KEY: R(9, 20)}, {}, set(), []),
        # A topic that was made again has offsets of its own.
        ({OTHER: R(0, 0)}, {}, {"g2"}, []),
        # One that is left out is resumed later.
        ({}, {KEY: R(10, 10)}, {"g3"}, []),
        ({}, {KEY: R(5, 5)}, {"g3"}, ["g3"]),
        # What is lost between two has a finding of its own.
        ({KEY: R(12, 12)}, {KEY: R(11, 11)}, {"g2", "g3"}, ["g3"]),
        (None, {KEY: R(9, 9)}, {"g3"}, ["g3"]),
    ],
)
def test_find_early(second: Any, third: Any, fresh: set[str], told: list[str]) -> None:
    """A generation that has sealed nothing starts where those before it end, or later."""
    generations = [("g1", {KEY: R(0, 10)}), ("g2", second), ("g3", third)]

    assert [finding.where for finding in find_early(generations, fresh)] == told


def spoil(path: str, **changes: Any) -> Callable[[Path], Any]:
    def damage(root: Path) -> None:
        document = json.loads((root / path).read_text())
        (root / path).write_text(json.dumps(document | changes))

    return damage


def torn(path: str) -> Callable[[Path], Any]:
    return lambda root: (root / path).write_text("{")


#: Documents of which the archive has a copy.
DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "archive.json torn": (torn("archive.json"), "archive.json"),
    "archive.json gone": (lambda root: (root / "archive.json").unlink(), "archive.json"),
    "generation torn": (torn(f"{G1}/generation.json"), f"{G1}/generation.json"),
    "open generation torn": (torn(f"{G2}/generation.json"), f"{G2}/generation.json"),
    "open generation gone": (
        lambda root: (root / G2 / "generation.json").unlink(),
        f"{G2}/generation.json",
    ),
    "topics emptied": (spoil(f"{G1}/generation.json", topics={}), f"{G1}/generation.json"),
    "plan torn": (torn(f"windows/{WINDOWS[2]}/plan.json"), f"windows/{WINDOWS[2]}/plan.json"),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_plan_changed(copy: Path, window: str) -> None:
    """One changed value of a plan is a finding, whatever it says."""
    where = f"windows/{window}/plan.json"
    plan = (copy / where).read_text()
    for key, value in {
        "kind": "erase",
        "replaced": {"files": 1, "bytes": 1, "records": [{}]},
        "erasures": [{"erasure": 1, "request": "r", "by": "b"}],
        "interval": None,
        "format": "orc",
        "ranges": [],
        "topics": {"flights": "another"},
    }.items():
        (copy / where).write_text(json.dumps(json.loads(plan) | {key: value}))

        assert {*found(copy)} == {("document_changed", where)}, key
    repair_documents(Archive.at(str(copy)).root)
    assert found(copy) == []


@pytest.mark.parametrize("scope", ["open", "all"])
@pytest.mark.parametrize("what", DAMAGED)
def test_document_damaged(copy: Path, what: str, scope: str) -> None:
    """It is a finding beside all others, never a crash, and a repair restores it."""
    torn(f"windows/{BACKFILL}/receipt.json")(copy)
    damage, where = DAMAGED[what]
    damage(copy)

    assert {*found(copy, scope=scope)} == {
        ("document_changed", where),
        ("receipt_corrupt", f"windows/{BACKFILL}/receipt.json"),
    }
    repair_documents(Archive.at(str(copy)).root)
    assert found(copy, scope=scope) == []


def test_damaged_document_says_repair(copy: Path) -> None:
    """Who needs a document that is damaged says what restores it."""
    for name in (f"{G2}/generation.json", "archive.json"):
        torn(name)(copy)

        with pytest.raises(KafkaDrainError, match="repair") as raised:
            read(copy)
        assert "from a copy" not in str(raised.value).partition("kafka-drain repair")[0]


@pytest.mark.parametrize("behind", [1, 2, 3])
def test_journal_head_lags(copy: Path, behind: int) -> None:
    """journal.json lags by one entry if a run is killed; one that is older is damage."""
    newest = max(int(path.stem) for path in (copy / "journal").glob("0*.json"))
    entry = json.loads((copy / "journal" / f"{newest - behind:012d}.json").read_text())
    (copy / "journal.json").write_text(
        json.dumps({"entries": newest - behind, "sha256": entry["sha256"]})
    )

    expected = [] if behind == 1 else [("journal_damaged", "journal")]
    assert found(copy) == expected
    repair_documents(Archive.at(str(copy)).root)
    assert found(copy) == []


def test_unsealed_generation_other_folders(tmp_path: Path) -> None:
    """partition_by that the files' folders contradict is found before anything is sealed."""
    from tests.kafka_drain.golden import add_batch, note_batch

    archive = sealed_copy(tmp_path / "archive")
    opened = open_next(archive, "parquet", ["topic", "date"])
    note_batch(opened, 0, add_batch(opened, 0, END, END + 5), END, END + 5)

    assert ("document_changed", f"{G2}/generation.json") in found(tmp_path / "archive")
    assert {P0, P1} == set(opened.read_document().first_offsets())

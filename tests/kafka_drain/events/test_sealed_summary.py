"""What a validation tells the tasks after it: bounded, and it leads to every file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_drain import ArchiveError
from kafka_drain.archive.receipts import Receipt
from kafka_drain.events import sealed_summary as module
from kafka_drain.events.sealed_summary import sealed_summary
from kafka_drain.reading import archive_paths, sealed_paths
from tests.kafka_drain.golden import END, golden_copy, seal


def test_sealed_summary(tmp_path: Path) -> None:
    """Counts, offsets by topic and files are those of the receipts."""
    archive = golden_copy(tmp_path / "archive")

    told = sealed_summary(str(archive.root), seal(archive).sealed)

    receipts = list(archive.generation(1).receipts())
    assert told["segments"] == len(receipts) == 3
    assert told["records"] == sum(receipt.records for receipt in receipts)
    assert told["topics"] == {
        "flights": {"partitions": 2, "offsets": 2 * END, "records": told["records"]}
    }
    assert (told["offsets"], told["topics_left_out"]) == (2 * END, 0)
    assert told["files"] == len(told["paths"]) == receipts[-1].files_so_far.files
    assert told["bytes"] == receipts[-1].files_so_far.bytes
    assert told["receipts"] == [
        {"first": receipts[0].where, "last": receipts[-1].where, "receipts": 3}
    ]
    assert sorted(sealed_paths(told)) == sorted(archive_paths(archive))


def test_sealed_summary_of_nothing(tmp_path: Path) -> None:
    """A run that sealed nothing says so: the tasks after it find no file."""
    told = sealed_summary(str(tmp_path), [])

    assert (told["segments"], told["files"], told["topics"], told["receipts"]) == (0, 0, {}, [])
    assert sealed_paths(told) == []


def test_sealed_summary_bounded(tmp_path: Path) -> None:
    """However much was sealed, the summary stays small; what it leaves out, it counts."""
    [*_, receipt] = seal(golden_copy(tmp_path / "archive")).sealed
    [part, *_] = receipt.partitions
    parts = tuple(
        replace(part, topic=f"t{number % 150:03d}", partition=number) for number in range(10_000)
    )
    files = tuple(replace(receipt.files[0], path=f"{number:0200d}") for number in range(10_000))
    many = [
        replace(receipt, first_batch=number, last_batch=number, partitions=parts, files=files)
        for number in range(3)
    ]

    told = sealed_summary("/archive", many)

    assert (len(told["topics"]), told["topics_left_out"]) == (module.TOPICS, 50)
    assert (len(told["paths"]), told["files"]) == (module.FILES, 30_000)
    assert told["offsets"] == 3 * 10_000 * len(part.range)
    assert sum(topic["partitions"] for topic in told["topics"].values()) < 10_000
    assert len(json.dumps(told)) < 40_000


def some(told: dict[str, object]) -> dict[str, object]:
    """Return a summary that names fewer files than there are."""
    paths = told["paths"]
    assert isinstance(paths, list)
    return told | {"paths": paths[:1]}


def test_sealed_paths_by_receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the summary doesn't name all files, its receipts do, of generations and of windows."""
    archive = golden_copy(tmp_path / "archive")
    sealed = list(seal(archive).sealed)

    def of(*receipts: Receipt) -> list[str]:
        return sealed_paths(some(sealed_summary(str(archive.root), receipts)))

    assert sorted(of(*sealed)) == sorted(archive_paths(archive))
    last = [f"{archive.root}/{file.path}" for file in sealed[-1].files]
    assert of(sealed[-1]) == last
    window = replace(sealed[-1], generation=None, window="w")
    (archive.root / "windows" / "w").mkdir(parents=True)
    (archive.root / window.where).write_bytes(window.to_bytes())
    assert of(*sealed[:1], window)[-len(last) :] == last


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_sealed_paths_damaged(tmp_path: Path, damage: str) -> None:
    """No file is left out silently: a receipt that is missing or damaged is an error."""
    archive = golden_copy(tmp_path / "archive")
    told = some(sealed_summary(str(archive.root), seal(archive).sealed))
    [_, receipt, _] = archive.generation(1).receipts()
    path = archive.root / receipt.where
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))

    with pytest.raises(ArchiveError, match="2 receipts" if damage == "missing" else "is damaged"):
        sealed_paths(told)

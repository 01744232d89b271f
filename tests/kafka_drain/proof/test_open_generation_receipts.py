"""What a validation reads of the open generation: receipts as a chain, and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import Receipt
from kafka_drain.findings import Reason, errors
from kafka_drain.gaps import GapReason
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange
from kafka_drain.proof import gap_explanation, open_generation, validation
from kafka_drain.proof.committed_files import FilesRead, read_committed_files
from kafka_drain.proof.open_generation import ask_bounds
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.archive.test_soundness import Damage, cut, edit, newest
from tests.kafka_drain.fake_cluster import GrowingCluster, Log
from tests.kafka_drain.golden import END, P0, add_batch, golden_cluster, open_next
from tests.kafka_drain.windows.test_repair_plan_again import all_lost


def later(receipt: Receipt) -> Receipt:
    """Return a receipt that says another time."""
    return replace(receipt, sealed_at="2030-01-01T00:00:00.000+00:00")


def of_another(receipt: Receipt) -> Receipt:
    """Return a receipt that follows another one."""
    return replace(receipt, previous="0" * 64)


@pytest.mark.parametrize("change", [later, of_another])
@pytest.mark.parametrize("scope", ["open", "all"])
def test_validate_receipt_written_again(
    archive: Archive, change: Callable[[Receipt], Receipt], scope: str
) -> None:
    """A receipt that was changed and sealed again is found by the one after it, in each scope.

    Then nothing is sealed after it.
    """
    generation = archive.generation(1)
    add_batch(generation, 14, END, 50)
    name = generation.receipt_names()[-2]
    changed = change(generation.read_receipt(name))
    (generation.folder / "receipts" / name).unlink()
    assert generation.write_receipt(changed.sealed())

    report = validate_archive(archive, golden_cluster(), scope=scope)  # type: ignore[arg-type]

    assert errors(report.findings)
    assert report.receipts_written == 0


def test_validate_partition_by_edited(archive: Archive) -> None:
    """What generation.json says of folders is compared with files that aren't sealed yet."""
    opened = open_next(archive, "parquet", ["topic"])
    add_batch(opened, 0, END, END + 8)
    path = opened.folder / "generation.json"
    document = json.loads(path.read_text()) | {"partition_by": ["topic", "date"]}
    path.write_text(json.dumps(document))

    report = validate_archive(archive, golden_cluster(), scope="open")  # type: ignore[arg-type]

    told = [finding.detail for finding in errors(report.findings)]
    assert any("says partition_by ['topic', 'date'], but topic=flights/" in each for each in told)
    assert report.receipts_written == 0


def test_validate_missing_in_two_batches(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing of a partition is named for each batch, and none of them is sealed."""
    opened = open_next(archive, "parquet", ["topic"])
    for batch in (0, 1):
        start = END + 8 * batch
        drained, _ = add_batch(opened, batch, start, start + 8)
        cut(opened, batch, drained, range(start, start + 5))
    monkeypatch.setattr(gap_explanation, "classify_gaps", all_lost)

    report = validate_archive(archive, golden_cluster())  # type: ignore[arg-type]

    lost = [(gap.tp, gap.range) for gap in report.gaps if gap.reason == GapReason.LOST]
    assert lost == [(P0, OffsetRange(END + at, END + at + 3)) for at in (5, 13)]
    told = [f.detail for f in errors(report.findings) if f.reason == Reason.OFFSET_MISSING]
    assert [detail.partition(" is ")[0] for detail in told] == [str(r) for _, r in lost]
    assert report.receipts_written == 0


def test_ask_bounds_growing() -> None:
    """A record that arrives between two answers doesn't look as if a transaction hid it."""
    cluster: Any = GrowingCluster({P0: Log(first=3, end=10)})

    bounds = ask_bounds(cluster, [P0])[P0]

    assert bounds.earliest == 3
    assert bounds.high_watermark == bounds.last_stable == 11


@pytest.mark.parametrize(
    "damage",
    [
        newest("generations/0001/receipts"),
        edit("archive.json", pipeline="another"),
        edit("generations/0001/generation.json", reason="another"),
    ],
    ids=["receipt", "identity", "generation"],
)
@pytest.mark.parametrize("scope", ["open", "all"])
def test_validate_seals_nothing_beside_damage(archive: Archive, damage: Damage, scope: Any) -> None:
    """Where something sealed is missing or was changed, no further batch is sealed."""
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, 50)
    damage(Path(str(archive.root)))

    report = validate_archive(archive, golden_cluster(), scope=scope)  # type: ignore[arg-type]

    assert errors(report.findings)
    assert report.receipts_written == 0


@pytest.mark.parametrize(("many", "is_asked"), [(1, True), (2, False)])
def test_validate_many_files(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, many: int, *, is_asked: bool
) -> None:
    """More new files than one process is to read are given to executors, with their format."""
    add_batch(archive.generation(1), 14, END, 50)
    monkeypatch.setattr(open_generation, "MANY_FILES", many)
    asked: list[Any] = []

    def read_many(owner: Generation, files: Collection[SinkFile], file_format: str) -> FilesRead:
        asked.append((owner.name, [file.batch for file in files], file_format))
        return read_committed_files(owner, files, file_format)

    report = validate_archive(archive, golden_cluster(), read_many=read_many)  # type: ignore[arg-type]

    assert asked == ([("generations/0001", [14, 14], "parquet")] if is_asked else [])
    assert report.receipts_written == 1


@pytest.mark.parametrize("scope", ["open", "all"])
def test_validate_charted(archive: Archive, monkeypatch: pytest.MonkeyPatch, scope: Any) -> None:
    """The report's chart has the newest receipts, then what wasn't sealed before."""
    add_batch(archive.generation(1), 14, END, 50)
    for module in (open_generation, validation):
        monkeypatch.setattr(module, "CHARTED", 2)

    report = validate_archive(archive, golden_cluster(), scope=scope)  # type: ignore[arg-type]

    assert [each["last"] for each in report.batches] == [12, 13, 14]
    assert [each["sealed_at"] is None for each in report.batches] == [False, False, True]

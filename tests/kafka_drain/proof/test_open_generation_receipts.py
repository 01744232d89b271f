"""What a quick validation reads of the open generation: receipts as a chain, folders of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import Receipt
from kafka_drain.findings import errors
from kafka_drain.proof.open_generation import ask_bounds
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.fake_cluster import GrowingCluster, Log
from tests.kafka_drain.golden import END, P0, add_batch, golden_cluster, open_next


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
    """A receipt that was changed and sealed again is found by the one after it, in each scope."""
    generation = archive.generation(1)
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


def test_ask_bounds_growing() -> None:
    """A record that arrives between two answers doesn't look as if a transaction hid it."""
    cluster: Any = GrowingCluster({P0: Log(first=3, end=10)})

    bounds = ask_bounds(cluster, [P0])[P0]

    assert bounds.earliest == 3
    assert bounds.high_watermark == bounds.last_stable == 11

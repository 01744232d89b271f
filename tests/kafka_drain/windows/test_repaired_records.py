"""What a repair has read again, compared with what Spark read, in batches that aren't sealed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.window import Window
from kafka_drain.errors import DataLossError
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.committed_files import read_committed_files
from kafka_drain.proof.fingerprints import note_name
from kafka_drain.proof.sealing import Identity, seal_window
from kafka_drain.windows.repaired_records import compare_with_read, refuse_other_records
from tests.kafka_drain.golden import (
    END,
    P0,
    P1,
    add_batch,
    note_batch,
    row,
    sealed_copy,
    write_rows,
)

SPAN = OffsetRange(END, 50)
OFFSETS = range(END, 50)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """The golden archive, and a batch of two files that isn't sealed; that of P0 is gone."""
    archive = sealed_copy(tmp_path / "archive")
    paths = add_batch(archive.generation(1), 14, END, 50)
    note_batch(archive.generation(1), 14, paths, END, 50)
    paths[0].unlink()
    return archive


def lost_file(archive: Archive) -> str:
    return f"{archive.generation(1).data_name}/topic=flights/part-00000-14.parquet"


def window(
    archive: Archive,
    offsets: Mapping[TopicPartition, Sequence[int]],
    value: Callable[[int], bytes] | None = None,
    replaces: Sequence[str] | None = None,
) -> Receipt:
    """Write a window with the given offsets, as a repair does."""
    name = "topic=flights/part-00000.parquet"
    owner = Window(archive.root, "repair_1")
    path = Path(str(owner.data), "0", name)
    rows: list[dict[str, Any]] = [
        row(tp, at) | ({} if value is None else {"value": value(at)})
        for tp, own in offsets.items()
        for at in own
    ]
    write_rows(path, "parquet", rows)
    listed = [SinkFile(f"0/{name}", path.stat().st_size, 0, 0, "_SUCCESS")]
    files, findings = read_committed_files(owner, listed, "parquet")
    assert findings == []
    return seal_window(
        [(tp, OffsetRange(min(own), max(own) + 1)) for tp, own in offsets.items()],
        files,
        [],
        identity=Identity("flights", "cluster", {"flights": "id"}),
        window="repair_1",
        replaces=[lost_file(archive)] if replaces is None else replaces,
        fingerprint=None,
        sealed_at="",
    )


def others(archive: Archive, receipt: Receipt) -> dict[TopicPartition, list[OffsetRange]]:
    return compare_with_read(archive.snapshot(), receipt, "parquet")


@pytest.mark.parametrize("changed", [set(), {END}, {49}, set(OFFSETS)])
def test_compare_with_read(archive: Archive, changed: set[int]) -> None:
    """The window and what is left of the batch are together what Spark read, or they aren't."""
    receipt = window(
        archive,
        {P0: OFFSETS},
        lambda at: b"other" if at in changed else row(P0, at)["value"],
    )

    assert others(archive, receipt) == ({P0: [SPAN]} if changed else {})
    if changed:
        with pytest.raises(DataLossError, match=f"flights:0:{END}-50.*--leave-unsealed"):
            refuse_other_records(archive.snapshot(), receipt, "parquet")


def test_compare_with_read_both_lost(archive: Archive) -> None:
    """Of a batch that has lost all of its files, the window alone counts."""
    rest = lost_file(archive).replace("part-00000", "part-00001")
    both = [lost_file(archive), rest]
    (archive.root / rest).unlink()

    def found(value: bytes | None) -> dict[TopicPartition, list[OffsetRange]]:
        made = None if value is None else lambda _: value
        return others(archive, window(archive, {P0: OFFSETS, P1: OFFSETS}, made, both))

    assert found(None) == {}
    assert found(b"other") == {P0: [SPAN], P1: [SPAN]}


def test_compare_with_read_fewer(archive: Archive) -> None:
    """With fewer records, such as after an accepted loss, nothing can be told of the others."""
    receipt = window(archive, {P0: range(END + 1, 50)}, lambda _: b"other")

    assert others(archive, receipt) == {}


@pytest.mark.parametrize("way", ["note", "file"])
def test_compare_with_read_unknown(archive: Archive, way: str) -> None:
    """Without a note, or where another file of the batch is damaged, nothing can be told."""
    if way == "note":
        (archive.root / note_name(archive.generation(1), 14)).unlink()
    else:
        (archive.root / lost_file(archive).replace("part-00000", "part-00001")).write_bytes(b"x")

    assert others(archive, window(archive, {P0: OFFSETS}, lambda _: b"other")) == {}


def test_compare_with_read_not_listed(archive: Archive) -> None:
    """A window that only fills a hole of the batch is compared as well."""
    manifest = archive.generation(1).data / "_spark_metadata" / "14"
    lines = manifest.read_text().splitlines()
    manifest.write_text("\n".join(line for line in lines if "part-00000-14" not in line))

    receipt = window(archive, {P0: OFFSETS}, lambda _: b"other", [])

    assert others(archive, receipt) == {P0: [SPAN]}


def test_compare_with_read_without_generation(archive: Archive, tmp_path: Path) -> None:
    """Nothing is unsealed in an archive of windows alone."""
    receipt = window(archive, {P0: OFFSETS})
    backfilled = Archive.at(str(tmp_path / "backfilled"))
    backfilled.create(pipeline="flights", cluster_id="cluster", topic_ids={}, source={})

    assert others(backfilled, receipt) == {}


def test_compare_with_read_elsewhere(archive: Archive) -> None:
    """A window of sealed offsets has nothing of such a batch."""
    assert others(archive, window(archive, {P0: range(10)}, lambda _: b"other")) == {}

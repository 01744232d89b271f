"""Archives with something of each kind, sealed, and what puts it there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.window import Window
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import read_offsets
from kafka_drain.findings import errors
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.report import Report
from kafka_drain.proof.sealing import Identity, seal_deletion, seal_window
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.window_jobs import freeze_window
from tests.kafka_drain.golden import (
    END,
    P0,
    P1,
    add_batch,
    golden_cluster,
    open_next,
    row,
    sealed_copy,
    write_rows,
)

BACKFILL = "20121231T230000Z_20130101T000000Z"
HOUR = ["2012-12-31T23:00:00+00:00", "2013-01-01T00:00:00+00:00"]
#: A window of each kind.
WINDOWS = [BACKFILL, "repair_20130102T000000Z", "reprocess_0001_0001", "compact_0002"]
WINDOWS += ["retention_0003"]
G1, G2 = "generations/0001", "generations/0002"


def make_sealed(folder: Path) -> Archive:
    """Make an archive with a closed and an open generation and windows of each kind, all sealed."""
    return seal_more(sealed_copy(folder))


def seal_more(archive: Archive) -> Archive:
    """Give the sealed golden archive windows of each kind and an open generation, all sealed."""
    files = sealed_files(archive.generation(1), P0)
    _, repair, reprocess, compact, retention = WINDOWS
    backfill = {P0: range(900, 910), P1: range(900, 910)}
    seal_rows(archive, BACKFILL, backfill, interval=HOUR, topics=archive.snapshot().document.topics)
    repaired, reprocessed, compacted, deleted = files[0:1], files[1:3], files[3:5], files[5:6]
    for key, own in ((repair, repaired), (reprocess, reprocessed), (compact, compacted)):
        seal_rows(archive, key, {P0: offsets_of(own)}, replaces=own)
    seal_rows(archive, retention, {P0: offsets_of(deleted)}, replaces=deleted)
    opened = open_next(archive, "parquet", ["topic"])
    for batch in range(3):
        add_batch(opened, batch, END + 10 * batch, END + 10 * batch + 10)
        assert validated(archive).receipts_written == 1
    return archive


def sealed_files(generation: Generation, tp: TopicPartition) -> list[CommittedFile]:
    """Return a generation's sealed files of one partition, in the order of offsets."""
    files = []
    for receipt in generation.receipts():
        for file in receipt.files:
            contents = tuple(read_offsets(generation.root / file.path, "parquet", tp.topic))
            if tp in {content.tp for content in contents}:
                files.append(CommittedFile(file.path, file.bytes, file.sha256, contents))
    return sorted(files, key=lambda file: file.contents[0].first)


def offsets_of(files: Iterable[CommittedFile]) -> list[int]:
    """Return the offsets that files hold."""
    return [o for f in files for c in f.contents for r in c.ranges for o in range(r.start, r.end)]


def seal_rows(
    archive: Archive,
    key: str,
    rows: dict[TopicPartition, Iterable[int]],
    replaces: Iterable[CommittedFile] = (),
    **plan: Any,
) -> Receipt:
    """Write a window with the records of some offsets, and its receipt."""
    receipt = write_window(archive, key, rows, replaces, **plan)
    assert Window(archive.root, key).write_receipt(receipt.sealed())
    return receipt


def write_window(
    archive: Archive,
    key: str,
    rows: dict[TopicPartition, Iterable[int]],
    replaces: Iterable[CommittedFile] = (),
    **plan: Any,
) -> Receipt:
    """Write a window with the records of some offsets; return its receipt, not written yet."""
    window = Window(archive.root, key)
    document = archive.snapshot().document
    identity = Identity(document.pipeline, document.cluster_id, document.topics)
    paths = [file.path for file in replaces]
    held = {tp: sorted(offsets) for tp, offsets in rows.items()}
    ranges = {tp: OffsetRange(offsets[0], offsets[-1] + 1) for tp, offsets in held.items()}
    freeze_window(
        window,
        {tp: [r] for tp, r in ranges.items()},
        kind=WindowKind("backfill" if key[0].isdigit() else key.partition("_")[0]),
        replaces=paths,
        file_format="parquet",
        partition_by=["topic"],
        **plan,
    )
    files = []
    for tp, offsets in held.items() if not key.startswith("retention_") else ():
        name = f"{window.data_name}/1/topic={tp.topic}/part-{tp.partition}.parquet"
        path = Path(str(archive.root / name))
        write_rows(path, "parquet", [row(tp, offset) for offset in offsets])
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        contents = tuple(read_offsets(archive.root / name, "parquet", tp.topic))
        files.append(CommittedFile(name, path.stat().st_size, sha256, contents))
    sealed: dict[str, Any] = {
        "identity": identity,
        "window": key,
        "replaces": paths,
        "sealed_at": "2013-01-02T00:00:00.000+00:00",
    }
    if files:
        receipt = seal_window(list(ranges.items()), files, [], fingerprint=None, **sealed)
    else:
        gaps = [Gap(tp, r, GapReason.DELETED) for tp, r in ranges.items()]
        receipt = seal_deletion(gaps, **sealed)
    return receipt


def validated(archive: Archive, **how: Any) -> Report:
    """Validate an archive that is whole."""
    report = validate_archive(archive, golden_cluster(), **how)
    assert errors(report.findings) == []
    return report

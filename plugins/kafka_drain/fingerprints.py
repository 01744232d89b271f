"""The order-free fingerprint of a segment's records: XOR of an xxHash64 of each.

Spark takes it while it drains, from what it read of Kafka, before anything is written to a file:
`bit_xor(xxhash64(topic, partition, offset, timestamp, timestampType, key, value, headers))`. The
drain leaves it beside the generation's receipts, validation puts it into the receipt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from upath import UPath

from kafka_drain.content_checks import Taken
from kafka_drain.data_files import read_records, topic_of
from kafka_drain.documents import read_note, write_document
from kafka_drain.generation import Generation
from kafka_drain.offset_checks import Segment
from kafka_drain.receipts import Receipt
from kafka_drain.record_hashes import records_fingerprint

__all__ = ["files_fingerprint", "read_by_spark", "write_fingerprints"]

BATCH_BYTES = 32 << 20


def write_fingerprints(generation: Generation, batches: Iterable[Mapping[str, Any]]) -> None:
    """Leave what Spark computed of each batch: `batch`, `records` and `fingerprint`."""
    for batch in batches:
        path = generation.folder / "fingerprints" / f"{batch['batch']:012d}.json"
        write_document(path, dict(batch))


def files_fingerprint(root: UPath, receipt: Receipt, file_format: str) -> str:
    """Read all records of a segment's files and return their fingerprint.

    Raises:
        DataFileError: When a file can't be read.
    """
    value = 0
    for file in receipt.files:
        batches = read_records(root / file.path, file_format, BATCH_BYTES)
        value ^= records_fingerprint(batches, topic_of(file.path))
    return f"{value:016x}"


def read_by_spark(generation: Generation, part: Segment) -> Taken | None:
    """Return what Spark read of a segment.

    Returns:
        None when a drain was killed before it could leave it, or what it left can't be read: a
        power cut may have left an empty file.
    """
    value, records = 0, 0
    for batch in range(part.first_batch, part.last_batch + 1):
        path = generation.folder / "fingerprints" / f"{batch:012d}.json"
        found = read_note(path, "records", "fingerprint")
        if found is None:
            return None
        value ^= int(found["fingerprint"], 16)
        records += found["records"]
    return Taken(records, f"{value:016x}")

"""The order-free fingerprint of a segment's records: XOR of an xxHash64 of each.

Spark takes it while it drains, from what it read of Kafka, before anything is written to a file:
`bit_xor(xxhash64(topic, partition, offset, timestamp, timestampType, key, value, headers))`. The
drain leaves it beside the generation's receipts, validation puts it into the receipt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_drain.archive import Generation
from kafka_drain.contents import CommittedFile
from kafka_drain.documents import read_document, write_document
from kafka_drain.offset_checks import Segment

__all__ = ["segment_fingerprint", "write_fingerprints"]


def write_fingerprints(generation: Generation, batches: Iterable[Mapping[str, Any]]) -> None:
    """Leave what Spark computed of each batch: `batch`, `records` and `fingerprint`."""
    for batch in batches:
        path = generation.folder / "fingerprints" / f"{batch['batch']:012d}.json"
        write_document(path, dict(batch))


def segment_fingerprint(
    generation: Generation, part: Segment, files: Sequence[CommittedFile]
) -> str | None:
    """Return the fingerprint of a segment.

    Returns:
        None when a drain was killed before it could leave it, or what it left is of another
        number of records than the files hold.
    """
    value, records = 0, 0
    for batch in range(part.first_batch, part.last_batch + 1):
        try:
            path = generation.folder / "fingerprints" / f"{batch:012d}.json"
            found = read_document(path, "records", "fingerprint")
        except FileNotFoundError:
            return None
        value ^= int(found["fingerprint"], 16)
        records += found["records"]
    held = sum(content.records for file in files for content in file.contents)
    return f"{value:016x}" if records == held else None

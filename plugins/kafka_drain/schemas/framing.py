"""Tell the framing of other registries than Confluent's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.scalars import FALSE
from kafka_drain.schemas.schema_ids import HEADERS, ID_BYTES

#: Other registries' framing, which has no id that is translated here. AWS Glue: a byte of value 3,
#: one that says how the rest is compressed, and a UUID. Apicurio, with ids of eight bytes: a zero
#: byte and the id, so that its first four bytes look like the id 0, which no Confluent registry
#: gives.
GLUE, APICURIO = "AWS Glue's framing", "Apicurio's framing with ids of eight bytes"
FRAME_BYTES = 18
_GLUE_HEADS = (b"\3\0", b"\3\5")


class Framed(NamedTuple):
    """Where another registry's framing was seen.

    Attributes:
        topic: The record's topic.
        part: `key` or `value`.
        framing: The registry that it seems to belong to.
    """

    topic: str
    part: str
    framing: str


def framing_of(head: bytes | None, size: int) -> str | None:
    """Return the other registry whose framing a payload seems to have; None for none.

    Args:
        head: Its first bytes, at least five of them if it has as many.
        size: Its size in bytes.
    """
    if not head:
        return None
    if head[:2] in _GLUE_HEADS and size >= FRAME_BYTES:
        return GLUE
    return APICURIO if head[:ID_BYTES] == bytes(ID_BYTES) and size >= 9 else None


def count_framings(
    batch: pa.RecordBatch, topic: str, parts: Collection[str] = tuple(HEADERS)
) -> Counter[Framed]:
    """Count the payloads that seem to have another registry's framing; see `count_ids`."""
    counts: Counter[Framed] = Counter()
    for part in parts:
        column = batch[part]
        odd = pc.or_(
            pc.starts_with(column, pattern=b"\3"), pc.starts_with(column, pattern=bytes(ID_BYTES))
        )
        for payload in column.filter(odd.fill_null(FALSE)).to_pylist():
            framing = framing_of(payload, len(payload))
            if framing is not None:
                counts[Framed(topic, part, framing)] += 1
    return counts

"""Files of an archive, as their receipts describe them."""

from __future__ import annotations

from collections.abc import Sequence

from upath import UPath

from kafka_drain.archive.files import ArchiveFile
from kafka_drain.archive.receipts import SealedContent
from kafka_drain.archive.window import Window
from kafka_drain.offsets import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

Held = tuple[ArchiveFile, Sequence[SealedContent]]


def held(name: str, *contents: tuple[TopicPartition, int, int], topic_id: str = "new") -> Held:
    """Describe a file by its partitions with first and last offset; times are ten times these."""
    file = ArchiveFile(
        path=name,
        bytes=1,
        file_format="parquet",
        owner=Window(UPath("/archive"), "w"),
        topic_ids={"a": topic_id, "b": topic_id},
    )
    return file, [
        SealedContent.of(tp, first, last, last - first + 1, first * 10, last * 10)
        for tp, first, last in contents
    ]

"""A window on disk: plan, data files and receipt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upath import UPath

from kafka_drain.archive.documents import WindowPlan
from kafka_drain.archive.receipts import Receipt, parse_receipt
from kafka_drain.errors import ArchiveError
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.storage.json_files import create_text
from kafka_drain.storage.paths import read_bytes

__all__ = ["MAINTAINED", "SUPERSEDING", "Window", "range_rows", "ranges_of"]

#: How the names of windows begin that maintenance makes: copies of what sealed files hold, or
#: the record that files were deleted.
MAINTAINED = ("compact_", "retention_")
#: How the names of windows begin that stand for sound files.
SUPERSEDING = ("reprocess_", *MAINTAINED)


def range_rows(ranges: Mapping[TopicPartition, Sequence[OffsetRange]]) -> list[dict[str, Any]]:
    """Return offset ranges as JSON types, as they stand in a plan."""
    return [
        {"topic": tp.topic, "partition": tp.partition, "start": r.start, "end": r.end}
        for tp in sorted(ranges)
        for r in ranges[tp]
    ]


def ranges_of(rows: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, list[OffsetRange]]:
    """Read what `range_rows` has written."""
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    for row in rows:
        tp = TopicPartition(row["topic"], row["partition"])
        ranges.setdefault(tp, []).append(OffsetRange(row["start"], row["end"]))
    return ranges


@dataclass(frozen=True, slots=True)
class Window:
    """A bounded drain of offsets that no generation holds, with files and receipt of its own."""

    root: UPath
    key: str

    @property
    def name(self) -> str:
        """Folder relative to the archive."""
        return f"windows/{self.key}"

    @property
    def folder(self) -> UPath:
        """The window's folder."""
        return self.root / "windows" / self.key

    @property
    def data_name(self) -> str:
        """Data folder relative to the archive."""
        return f"{self.name}/data"

    @property
    def data(self) -> UPath:
        """Folder of the files; each attempt of a drain has one of its own in it."""
        return self.folder / "data"

    def plan(self) -> WindowPlan:
        """Read `plan.json`: the offsets, frozen before the drain.

        Raises:
            ArchiveError: When it is missing or no JSON object.
        """
        try:
            return WindowPlan.read(self.folder / "plan.json")
        except FileNotFoundError as error:
            raise ArchiveError(f"{self.folder} has no plan.json; restore it from a copy") from error

    def ranges(self) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the planned offsets, sorted and disjoint for each partition."""
        return self.plan().offsets()

    @property
    def supersedes(self) -> bool:
        """Whether it stands for sound files, which go; a repair's stands for damaged ones."""
        return self.key.startswith(SUPERSEDING)

    @property
    def is_maintained(self) -> bool:
        """Whether maintenance made it; until it is sealed, nobody needs it."""
        return self.key.startswith(MAINTAINED)

    @property
    def is_repair(self) -> bool:
        """Whether a repair made it: neither for a data interval nor to stand for sound files."""
        return not self.supersedes and self.plan().interval is None

    @property
    def is_sealed(self) -> bool:
        """Whether the window has a receipt."""
        return (self.folder / "receipt.json").is_file()

    def receipt(self) -> Receipt:
        """Read the window's receipt.

        Raises:
            ReceiptError: When its bytes aren't those that were sealed.
        """
        content = read_bytes(self.folder / "receipt.json")
        return parse_receipt(content, f"the receipt of window {self.key}")

    def write_receipt(self, receipt: Receipt) -> bool:
        """Write the receipt where there is none yet; False when there is one."""
        return create_text(self.folder / "receipt.json", receipt.to_bytes().decode("utf-8"))

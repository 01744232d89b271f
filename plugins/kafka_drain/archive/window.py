"""A window on disk: its plan, data files and receipt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upath import UPath

from kafka_drain.archive.documents import WindowPlan
from kafka_drain.archive.format import Sealed
from kafka_drain.archive.receipts import Receipt, receipt_at
from kafka_drain.errors import ArchiveError
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.storage.immutability import Retention
from kafka_drain.storage.json_files import create_text
from kafka_drain.storage.paths import is_file, read_bytes, read_if_there


def range_rows(ranges: Mapping[TopicPartition, Sequence[OffsetRange]]) -> list[dict[str, Any]]:
    """Return offset ranges as JSON types, in the form used by plans."""
    return [
        {"topic": tp.topic, "partition": tp.partition, "start": r.start, "end": r.end}
        for tp in sorted(ranges)
        for r in ranges[tp]
    ]


def ranges_of(rows: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, list[OffsetRange]]:
    """Parse the result of `range_rows`."""
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    for row in rows:
        tp = TopicPartition(row["topic"], row["partition"])
        ranges.setdefault(tp, []).append(OffsetRange(row["start"], row["end"]))
    return ranges


#: Accepted names of a window: never as a file manager names a copy of its folder. The time of an
#: interval's bound may end in milliseconds.
_KEY = re.compile(r"([0-9A-Za-z_=+-]|\.[0-9]{3}Z)+")


def is_key(folder: str) -> bool:
    """Return whether a folder is a window by its name; `<name> (1)` or `<name>.bak` isn't one."""
    return _KEY.fullmatch(folder) is not None


@dataclass(frozen=True, slots=True)
class Window:
    """A bounded drain of offsets that no generation holds, with its own files and receipt."""

    root: UPath
    key: str

    @property
    def name(self) -> str:
        """Folder, relative to the archive."""
        return f"windows/{self.key}"

    @property
    def folder(self) -> UPath:
        """The window's folder."""
        return self.root / "windows" / self.key

    @property
    def data_name(self) -> str:
        """Data folder, relative to the archive."""
        return f"{self.name}/data"

    @property
    def data(self) -> UPath:
        """Folder of the files, with a subfolder for each attempt of a drain."""
        return self.folder / "data"

    def read_plan(self) -> WindowPlan:
        """Read `plan.json`: the offsets, fixed before the drain; raises like `parse_plan`."""
        return self.parse_plan(self.read_plan_bytes())

    def read_plan_bytes(self) -> bytes | None:
        """Read the content of `plan.json`; None if it doesn't exist."""
        return read_if_there(self.folder / "plan.json")

    def parse_plan(self, content: bytes | None) -> WindowPlan:
        """Parse the content of `plan.json`.

        Raises:
            ArchiveError: When it doesn't exist, or was changed.
        """
        if content is None:
            raise ArchiveError(f"{self.folder} has no plan.json; restore it from a copy")
        return WindowPlan.parse(self.folder / "plan.json", content)

    def has_receipt(self) -> bool:
        """Return whether the window is sealed by now; raises like `is_file` if that isn't known."""
        return is_file(self.folder / "receipt.json")

    def read_receipt(self) -> Receipt:
        """Read the window's receipt.

        Raises:
            FileNotFoundError: When it doesn't exist.
            ReceiptError: When it differs from what was sealed there.
        """
        return receipt_at(read_bytes(self.folder / "receipt.json"), f"{self.name}/receipt.json")

    def write_receipt(self, sealed: Sealed[Receipt], retention: Retention | None = None) -> bool:
        """Write the receipt, locked if asked for; return False if it already exists."""
        return create_text(self.folder / "receipt.json", sealed.content.decode("utf-8"), retention)

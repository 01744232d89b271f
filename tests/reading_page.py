"""The examples of docs/reading.md, run as they stand there, and the archive that they read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_drain.archive.archive import Archive
from tests.kafka_drain.golden import END, add_batch, seal, sealed_copy

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reading.md"

#: Where the page has its archives.
PLACE = "/var/lib/kafka-drain"

#: How many records the archive has sealed of each of its two partitions, from offset 0 on.
SEALED = 50
#: topic, partition, records, sum of offsets, last offset
COUNTS = [("flights", p, SEALED, sum(range(SEALED)), SEALED - 1) for p in (0, 1)]


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        language: What it is written in.
        text: The code.
    """

    language: str
    text: str

    def run(self, folder: Path) -> dict[str, Any]:
        """Run Python as a module of its own, with archives in a folder; return its variables."""
        assert self.language == "python"
        code = compile(self.text.replace(PLACE, str(folder)), "example", "exec")
        variables: dict[str, Any] = {"__name__": "example"}
        exec(code, variables)
        return variables


def blocks_of(heading: str) -> list[Block]:
    """Return the blocks of code below a heading of the second level, in their order."""
    [section] = re.findall(
        rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.M | re.S
    )
    found = re.findall(r"^```(\w+)\n(.*?)^```$", section, flags=re.M | re.S)
    return [Block(language, code) for language, code in found]


def make_archive(folder: Path) -> Archive:
    """Make the page's archive: written by Spark, grown, and with files that nobody may read.

    The last batch isn't sealed, and a file is there that a killed task has left.
    """
    archive = sealed_copy(folder / "flights")
    add_batch(archive.generation(1), 14, END, SEALED)
    seal(archive)
    [path, _] = add_batch(archive.generation(1), 15, SEALED, SEALED + 5)
    path.with_name("part-00009-left.parquet").write_bytes(path.read_bytes())
    return archive

"""Find drivers of drains that run on this machine, by their command lines.

One whose command was killed ends by itself within seconds (`kafka_drain_spark.application`). Until
then, or if it is suspended, it may write without the archive's lease. A client of a Spark Connect
server writes nothing itself, and the next drain follows its query.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kafka_drain.errors import LockedError

#: The class that spark-submit starts.
SPARK = "org.apache.spark.deploy.SparkSubmit"


def drivers_of(archive: str) -> list[int]:
    """Return the processes that drain an archive and that this process didn't start.

    On Linux; elsewhere, none are found.

    Args:
        archive: The archive's folder, as job specs have it.
    """
    own = os.getpid()
    return sorted(
        process_id
        for process_id, words in _command_lines()
        if archive in map(_archive_of, specs_in(words)) and _parent_of(process_id) != own
    )


def refuse_orphans(archive: str) -> None:
    """Refuse to drain beside a driver that nobody's lease covers: this process holds it.

    Args:
        archive: The archive's folder, as job specs have it.

    Raises:
        LockedError: Names the processes, and how to end them.
    """
    found = drivers_of(archive)
    if found:
        named = " ".join(map(str, found))
        raise LockedError(
            f"{archive} is being drained without its lease by what a killed command has left: "
            f"process {named} on this machine. It ends within seconds, unless it or its command is "
            f"suspended; then end it with `kill -KILL {named}`. Run the same command again after it"
        )


def specs_in(words: list[str]) -> list[str]:
    """Return the paths of the job specs in a command line of a drain's Spark; else none."""
    if SPARK not in words:
        return []
    for at, word in enumerate(words[:-1]):
        if word.endswith("/main.py") and words[at + 1] == "drain":
            return words[at + 2 :]
    return []


def _command_lines() -> Iterator[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # Processes end meanwhile, and others' aren't ours to see.
        with suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            yield int(path.parent.name), [word for word in words if word]


def _archive_of(spec: str) -> str | None:
    with suppress(OSError, ValueError, AttributeError):
        found: str | None = json.loads(Path(spec).read_text(encoding="utf-8")).get("archive")
        return found
    return None


def _parent_of(process_id: int) -> int | None:
    """Return the process that started another one (field 4 in `man proc`); None if it has ended."""
    with suppress(OSError, ValueError, IndexError):
        # The name, in parentheses, is arbitrary.
        after = Path(f"/proc/{process_id}/stat").read_text(errors="replace").rpartition(")")[2]
        return int(after.split()[1])
    return None

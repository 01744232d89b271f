"""The lock file `jars.lock`: the jars that each configuration needs, with their sizes and hashes.

One line per jar, `<sha256> <bytes> <configuration> <path>`, sorted by configuration and path. The
path is relative to a repository in Maven's layout: `<group>/<artifact>/<version>/<file>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_drain.errors import MachineError

LOCK_FILE = Path(__file__).with_name("jars.lock")

# No part of a path may start with a dot: no path leads out of its folder, and no file is hidden.
_LINE = re.compile(
    r"([0-9a-f]{64}) ([1-9]\d*) ([\w-]+) ((?:\w[\w.+-]*/){3,}\w[\w.+-]*\.jar)", re.ASCII
)


@dataclass(frozen=True, slots=True, order=True)
class LockedJar:
    """A jar as the lock describes it.

    Attributes:
        path: Its path in a repository in Maven's layout.
        size: Its size in bytes.
        sha256: Its SHA-256.
    """

    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


def parse_lock(text: str) -> dict[str, list[LockedJar]]:
    """Return the jars of each configuration, in the order of the lock.

    Raises:
        MachineError: When a line is malformed.
    """
    locked: dict[str, list[LockedJar]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if found is None:
            raise MachineError(
                f"line {number} of jars.lock is {line!r}; expected "
                "`<sha256> <bytes> <configuration> <path>`; reinstall kafka-drain, or run "
                "`make lock-jars` in its repository"
            )
        sha256, size, conf, path = found.groups()
        locked.setdefault(conf, []).append(LockedJar(path, int(size), sha256))
    return locked


def format_lock(jars: Mapping[str, Iterable[LockedJar]]) -> str:
    """Return the text that `parse_lock` parses."""
    return "".join(
        f"{jar.sha256} {jar.size} {conf} {jar.path}\n"
        for conf in sorted(jars)
        for jar in sorted(jars[conf])
    )

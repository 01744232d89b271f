"""The lock of the jars, `jars.lock`: the SHA-256 of each jar that each configuration brings.

Its lines are sha256sum's, `<sha256>  <configuration>/<jar>`, in the order of the names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_drain.errors import MachineError

__all__ = ["LOCK_FILE", "Difference", "compare", "format_lock", "parse_lock"]

LOCK_FILE = Path(__file__).with_name("jars.lock")

_LINE = re.compile(r"([0-9a-f]{64})  ([\w-]+)/([^/\s]+\.jar)")


@dataclass(frozen=True, slots=True)
class Difference:
    """A jar that isn't as the lock says.

    Attributes:
        name: The file's name.
        seen: The SHA-256 of what was brought; None when the jar is missing.
        expected: The SHA-256 in the lock; None when the lock doesn't name the jar.
    """

    name: str
    seen: str | None
    expected: str | None

    def __str__(self) -> str:
        if self.seen is None:
            return f"{self.name} is missing, expected SHA-256 {self.expected}"
        wanted = "no such jar" if self.expected is None else self.expected
        return f"{self.name} has SHA-256 {self.seen}, expected {wanted}"


def parse_lock(text: str) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of each jar by its name, for each configuration.

    Raises:
        MachineError: When a line has another form.
    """
    locked: dict[str, dict[str, str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if found is None:
            raise MachineError(
                f"Line {number} of jars.lock is {line!r}, expected "
                "`<sha256>  <configuration>/<jar>`. Install kafka-drain again; in its repository, "
                "run `make lock-jars`."
            )
        sha256, conf, name = found.groups()
        locked.setdefault(conf, {})[name] = sha256
    return locked


def format_lock(jars: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text that `parse_lock` takes."""
    paths = {f"{conf}/{name}": sha for conf, found in jars.items() for name, sha in found.items()}
    return "".join(f"{sha256}  {path}\n" for path, sha256 in sorted(paths.items()))


def compare(seen: Mapping[str, str], expected: Mapping[str, str]) -> list[Difference]:
    """Return what differs between the jars that were brought and those of the lock, by name."""
    return [
        Difference(name, seen.get(name), expected.get(name))
        for name in sorted({*seen, *expected})
        if seen.get(name) != expected.get(name)
    ]

"""The real `kafka-drain` command in a process of its own, and what it leaves on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int
    out: str
    err: str


def run_module(
    module: str, *arguments: object, environment: Mapping[str, str | None] | None = None
) -> Ended:
    """Run a module of this checkout; an environment variable that is None is taken away."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "plugins"), **(environment or {})}
    ended = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def kafka_drain(*arguments: object, environment: Mapping[str, str | None] | None = None) -> Ended:
    """Run `kafka-drain`."""
    return run_module("kafka_drain.cli", *arguments, environment=environment)


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and modification time of everything below a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }

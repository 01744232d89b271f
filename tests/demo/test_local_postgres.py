"""The demo's PostgreSQL: who can access it, and its effect on its surroundings."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy

from demo.local_postgres import LocalPostgres
from kafka_drain.errors import MachineError


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    """Return the rows of a query."""
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(sqlalchemy.text(query))]
    engine.dispose()
    return rows


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Terminate a process after the test, as Popen would wait for it forever."""
    try:
        yield
    finally:
        process.kill()


def rights(path: Path) -> int:
    """Return the permissions of a path."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short temporary folder in the system's, which every user can traverse."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name:
        Path(name).chmod(0o777)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


@pytest.fixture(params=["short", "with a space/and $HOME", "l" * 90])
def postgres(request: pytest.FixtureRequest, short: Path) -> Iterator[LocalPostgres]:
    """A running server, wherever the checkout is."""
    folder = short / "private" / request.param
    folder.mkdir(parents=True)
    for path in (folder, *folder.parents[: len(folder.parents) - len(short.parents) - 1]):
        path.chmod(0o700)
    with LocalPostgres(folder / "postgres") as server:
        yield server


def test_postgres_for_this_user_alone(postgres: LocalPostgres, short: Path) -> None:
    """No other user can log in, or open data and socket; permissions of parent folders stay."""
    rules = ask(postgres.url, "SELECT type, auth_method, options FROM pg_hba_file_rules")
    (listens,) = ask(postgres.url, "SHOW listen_addresses")
    ((place,),) = ask(postgres.url, "SHOW unix_socket_directories")

    assert rules == [("local", "peer", ["map=demo"])]
    assert listens == ("",)
    socket_folder = Path(str(place).strip('"'))
    assert rights(postgres.folder) == rights(socket_folder) == 0o700
    assert rights(socket_folder / ".s.PGSQL.5432") == 0o700
    assert rights(socket_folder.parent) in (0o700, 0o711)
    assert rights(short / "private") == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's place, which root may")
def test_postgres_refuses_another_user(short: Path) -> None:
    """Another user that gets access to the socket is rejected by PostgreSQL itself."""
    with LocalPostgres(short / "postgres") as server:
        socket_folder = Path(server.url.partition("host=")[2])
        for path in (socket_folder.parent, socket_folder, socket_folder / ".s.PGSQL.5432"):
            path.chmod(0o777)
        programs = server._programs()
        command = [programs / "psql", "-h", socket_folder, "-U", "postgres", "-c", "SELECT 1"]
        command.append("postgres")
        ended = subprocess.run(
            command, user="daemon", extra_groups=[], cwd="/", capture_output=True, text=True
        )
        socket_folder.parent.chmod(0o711)

    assert ended.returncode != 0
    assert "Peer authentication failed" in ended.stderr


@pytest.mark.parametrize("reads_log", [False, True])
def test_postgres_of_another_pid(short: Path, reads_log: bool) -> None:
    """A process id that another program has reused is neither taken for the server nor stopped."""
    server = LocalPostgres(short / "postgres")
    with server:
        noted = (server.folder / "postmaster.pid").read_text().splitlines()
    command = ["tail", "-f", str(server.folder / "PG_VERSION")] if reads_log else ["sleep", "600"]
    with subprocess.Popen(command) as other, ended(other):
        lines = [str(other.pid), *noted[1:7], "ready   "]
        (server.folder / "postmaster.pid").write_text("\n".join(lines) + "\n")

        assert not server.is_running()
        assert not server.stop()
        with pytest.raises(MachineError, match="isn't running"):
            _ = server.url
        with server:
            assert ask(server.url, "SELECT 7") == [(7,)]
        time.sleep(0.2)

        assert other.poll() is None


@pytest.mark.parametrize("kind", ["link", "open", "file"])
def test_postgres_refuses_a_stranger_folder(short: Path, kind: str) -> None:
    """A folder that other users could access is refused, and nothing is started there."""
    there = short / f"kafka-drain-{os.getuid()}"
    if kind == "link":
        (short / "elsewhere").mkdir(mode=0o700)
        there.symlink_to(short / "elsewhere")
    elif kind == "open":
        there.mkdir()
        there.chmod(0o777)
    else:
        there.touch(mode=0o700)

    with pytest.raises(MachineError, match="isn't a folder of user"):
        LocalPostgres(short / "postgres").start()

    assert not (short / "postgres").exists()


def test_postgres_removed(short: Path) -> None:
    """Nothing of the server is left, except the programs."""
    server = LocalPostgres(short / "postgres")
    with server:
        assert server.is_running()

    server.remove()

    left = [path for path in short.rglob("*") if "programs-" not in str(path)]
    assert left == [short / f"kafka-drain-{os.getuid()}"]


def test_postgres_says_why_it_does_not_start(short: Path) -> None:
    """Data that isn't PostgreSQL's is refused with PostgreSQL's own message."""
    server = LocalPostgres(short / "postgres")
    with server:
        pass
    (server.folder / "PG_VERSION").write_text("7\n")

    with pytest.raises(MachineError, match="not compatible"):
        server.start()

"""The parts of the demo, before anything is started."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import demo.local_airflow
from demo.__main__ import ROOT
from demo.local_airflow import AirflowError, LocalAirflow
from tests.faults.injection import wait_for


def make_ui(folder: Path, port: int) -> subprocess.CompletedProcess[str]:
    """Run the command behind `make ui PORT=…`."""
    command = [sys.executable, "-m", "demo", "ui", "--folder", str(folder), "--port", str(port)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_ui_port_taken(tmp_path: Path) -> None:
    """A port in use is detected before anything starts, and the suggested port is free."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        ended = make_ui(tmp_path / "demo", port)

    assert ended.returncode == 1
    said = " ".join(ended.stdout.split())
    assert f"port {port} is in use by another program, and nothing was started" in said
    named = re.search(r"make ui PORT=(\d+)", said)
    assert named
    LocalAirflow(tmp_path, "", int(named[1])).require_port()
    assert not (tmp_path / "demo").exists()


def test_airflow_port_taken(tmp_path: Path) -> None:
    """Airflow isn't started on a port in use, where another program would serve its pages."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        airflow = LocalAirflow(tmp_path / "demo", "", other.getsockname()[1])

        with pytest.raises(AirflowError, match="is in use"):
            airflow.start()

    assert not (tmp_path / "demo").exists()


def test_environment_read_by_a_shell(tmp_path: Path) -> None:
    """A shell that sources the file has Airflow's environment, whatever characters it contains."""
    folder = tmp_path / 'it\'s a $HOME of "mine"'
    folder.mkdir()
    airflow = LocalAirflow(folder, "127.0.0.1:9", database="postgresql:///x?host=/a b&c")
    airflow.write_environment(folder / "environment.sh")

    script = '. "$1" && exec "$2" -c "import json, os; print(json.dumps(dict(os.environ)))"'
    command = ["sh", "-c", script, "sh", str(folder / "environment.sh"), sys.executable]
    seen = json.loads(subprocess.check_output(command, env={"PATH": os.defpath}))

    assert airflow.settings.items() <= seen.items()
    assert seen["PATH"] == f"{Path(sys.executable).parent}:{os.defpath}"
    assert seen["KAFKA_BOOTSTRAP_SERVERS"] == "127.0.0.1:9"


def test_stop_where_nothing_runs(tmp_path: Path) -> None:
    """Stopping what isn't running succeeds, and creates nothing."""
    command = [sys.executable, "-m", "demo", "stop", "--folder", str(tmp_path / "demo")]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert (ended.returncode, ended.stdout) == (0, "")
    assert not (tmp_path / "demo").exists()


def is_group(pid: int) -> bool:
    """Return whether a process group has any processes besides zombies."""
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True)
    found = [line.split() for line in listed.stdout.splitlines()]
    return any(group == str(pid) and not state.startswith("Z") for group, state in found)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process of another program, in its own group."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("start", ["", " other-boot/1234"])
def test_airflow_of_another_pid(tmp_path: Path, other: subprocess.Popen[bytes], start: str) -> None:
    """A process id that another program has reused is neither taken for Airflow nor stopped."""
    airflow = LocalAirflow(tmp_path, "")
    airflow.home.mkdir()
    (airflow.home / "standalone.pid").write_text(f"{other.pid}{start}")

    assert airflow.pid() is None
    assert airflow.running_port() is None
    assert not airflow.stop()

    assert other.poll() is None


#: What `airflow standalone` leaves behind when it exits: a process in its group.
LEAVES_CHILD = """#!/bin/sh
sh -c 'sleep 600; true' airflow scheduler &
{last}
"""


@pytest.fixture
def standalone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], LocalAirflow]:
    """Return a function that creates an Airflow whose `airflow standalone` is a script."""

    def make(last: str) -> LocalAirflow:
        program = tmp_path / "bin" / "airflow"
        program.parent.mkdir()
        program.write_text(LEAVES_CHILD.format(last=last))
        program.chmod(0o755)
        monkeypatch.setattr(demo.local_airflow, "BINARIES", program.parent)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        return LocalAirflow(tmp_path / "demo", "", port)

    return make


def test_airflow_ends_early(standalone: Callable[[str], LocalAirflow]) -> None:
    """If Airflow exits during startup, nothing that it started is left."""
    airflow = standalone("sleep 1; exit 3")

    with pytest.raises(AirflowError, match="exited with code 3"):
        airflow.start()

    assert airflow._standalone
    assert not is_group(airflow._standalone.pid)
    assert airflow.pid() is None


def test_airflow_start_interrupted(
    standalone: Callable[[str], LocalAirflow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while Airflow starts leaves nothing running, also in `make demo`."""
    airflow = standalone("wait")

    def interrupt() -> bool:
        time.sleep(0.5)
        raise KeyboardInterrupt

    monkeypatch.setattr(airflow, "healthy", interrupt)
    monkeypatch.setattr(airflow, "run", lambda *arguments, log: None)

    with pytest.raises(KeyboardInterrupt), airflow.running():
        pytest.fail("it has started")

    assert airflow._standalone
    assert airflow._standalone.returncode is not None, "nobody else may wait for it"
    assert not is_group(airflow._standalone.pid)


def test_airflow_stopped_without_its_leader(
    standalone: Callable[[str], LocalAirflow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's children are stopped even if it has exited itself, also by another process."""
    airflow = standalone("wait")
    monkeypatch.setattr(airflow, "healthy", lambda: time.sleep(0.5) or True)
    airflow.start()
    again = LocalAirflow(airflow.home.parent, "")
    pid = again.pid()
    assert pid
    assert again.running_port() == airflow.port
    os.kill(pid, signal.SIGKILL)
    assert airflow._standalone
    airflow._standalone.wait()

    assert again.pid() == pid
    assert again.stop()

    assert not is_group(pid)


def test_airflow_of_an_older_release(tmp_path: Path) -> None:
    """An Airflow started by a release that recorded no port has none, and can be stopped."""
    airflow = LocalAirflow(tmp_path, "")
    airflow.home.mkdir()
    command = ["sh", "-c", "sleep 600; true", "airflow", "standalone"]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            (airflow.home / "standalone.pid").write_text(str(process.pid))
            # Linux shows a program's command line only a moment after its start.
            wait_for(lambda: airflow.pid() == process.pid, "the program's words")
            assert airflow.running_port() is None
            assert airflow.stop()
            assert not is_group(process.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_environment_for_this_user_alone(tmp_path: Path) -> None:
    """Only this user can read the file for shells, because it may contain Kafka's password."""
    path = tmp_path / "environment.sh"
    path.write_text("")
    path.chmod(0o644)

    LocalAirflow(tmp_path, "").write_environment(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_environment_without_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's parts reach each other beside a proxy; other exceptions stay."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "intra")

    seen = LocalAirflow(tmp_path, "").environment

    assert seen["no_proxy"] == seen["NO_PROXY"] == "intra,127.0.0.1,localhost"

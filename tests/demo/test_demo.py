"""The demo's own parts, before anything is started."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from demo.__main__ import ROOT
from demo.local_airflow import AirflowError, LocalAirflow


def make_ui(folder: Path, port: int) -> subprocess.CompletedProcess[str]:
    """Run what `make ui PORT=…` runs."""
    command = [sys.executable, "-m", "demo", "ui", "--folder", str(folder), "--port", str(port)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_ui_port_taken(tmp_path: Path) -> None:
    """A taken port is noticed before anything is started, and the port that is named is free."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        ended = make_ui(tmp_path / "demo", port)

    assert ended.returncode == 1
    said = " ".join(ended.stdout.split())
    assert f"port {port} is taken by another program, and nothing was started" in said
    named = re.search(r"make ui PORT=(\d+)", said)
    assert named
    LocalAirflow(tmp_path, "", int(named[1])).require_port()
    assert not (tmp_path / "demo").exists()


def test_airflow_port_taken(tmp_path: Path) -> None:
    """Airflow isn't started on a port that another program has: its pages would be another's."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        airflow = LocalAirflow(tmp_path / "demo", "", other.getsockname()[1])

        with pytest.raises(AirflowError, match="is taken"):
            airflow.start()

    assert not (tmp_path / "demo").exists()


def test_environment_read_by_a_shell(tmp_path: Path) -> None:
    """A shell that reads the file has Airflow's environment, whatever characters are in it."""
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
    """Ending what doesn't run is quiet, and makes nothing."""
    command = [sys.executable, "-m", "demo", "stop", "--folder", str(tmp_path / "demo")]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert (ended.returncode, ended.stdout) == (0, "")
    assert not (tmp_path / "demo").exists()

"""scripts/setup.sh says what is missing before it installs anything."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


def test_setup_disk_full(tmp_path: Path) -> None:
    """A full disk is told of before packages are installed, or tests fail for it one by one."""
    df = tmp_path / "df"
    df.write_text("#!/bin/sh\necho Filesystem\necho /dev/vda 9 9 204800 9% /\n")
    df.chmod(0o755)

    run = subprocess.run(
        ["sh", str(CHECKOUT / "scripts" / "setup.sh"), str(tmp_path / "venv")],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 1
    assert "has 200 MB left on its disk, expected at least 2,048 MB" in run.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("noted", ["", " 3.11"], ids=["earlier release", "other Python"])
def test_setup_other_python(tmp_path: Path, noted: str) -> None:
    """An environment whose Python is another one by now is filled again."""

    def program(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    script = (CHECKOUT / "scripts" / "setup.sh").read_text()
    (uv,) = re.findall(r"uv_version=(\S+)", script)
    venv = tmp_path / "venv"
    program(tmp_path / "java" / "bin" / "java", """echo 'openjdk version "17.0.1"' >&2""")
    program(venv / "bin" / "python", 'case "$2" in *print*) echo 3.13;; esac')
    program(venv / "bin" / "uv", f'test "$1" != --version || {{ echo uv {uv}; exit; }}; exit 7')
    read = b"".join((CHECKOUT / n).read_bytes() for n in ("requirements.lock", "pyproject.toml"))
    (venv / "kafka-drain-setup").write_text(hashlib.sha256(read).hexdigest() + noted + "\n")

    run = subprocess.run(
        ["sh", str(CHECKOUT / "scripts" / "setup.sh"), str(venv)],
        env=os.environ | {"JAVA_HOME": str(tmp_path / "java")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 7, run.stderr
    assert "unchanged" not in run.stdout

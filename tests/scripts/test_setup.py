"""scripts/setup.sh says what is missing before it installs anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

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

"""A fresh Python process, to see what a piece of code imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["printed_by"]

PLUGINS = Path(__file__).parents[1] / "plugins"


def printed_by(script: str) -> list[str]:
    """Run a script with our packages on the path; return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(PLUGINS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()

"""Programs that import Airflow, in processes of their own: the import changes logging for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "answer_of"]

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120.0


def answer_of(program: str, *arguments: str, home: Path, **variables: str) -> Any:
    """Run a Python program, and return what it prints last, as JSON.

    Args:
        program: Its source.
        arguments: Its `sys.argv[1:]`.
        home: Airflow's home.
        variables: Further environment variables.
    """
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT / 'spark_jobs'}",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])

"""`kafka-drain validate`: what a run without anything to prove loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.kafka_drain.golden import sealed_copy

_RUN = """
import json, sys
from kafka_drain.cli.main import main
code = main(["validate", sys.argv[1], "--json"])
print(json.dumps({"code": code, "loaded": sorted({"numpy", "pyarrow"} & sys.modules.keys())}))
"""


def test_validate_nothing_new(tmp_path: Path) -> None:
    """A validation without new files doesn't import pyarrow, which takes longer than the rest."""
    archive = sealed_copy(tmp_path / "archive")
    ended = subprocess.run(
        [sys.executable, "-c", _RUN, str(archive.root)], check=True, capture_output=True, text=True
    )

    assert json.loads(ended.stdout.splitlines()[-1]) == {"code": 0, "loaded": []}

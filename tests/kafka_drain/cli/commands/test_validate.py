"""`kafka-drain validate`: what a run without anything to prove loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_drain.cli.main import main
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


def snapshot_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_validate_without_kafka(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If Kafka doesn't answer, the verdict on the files is given, and what it leaves open."""
    archive = sealed_copy(tmp_path / "archive")
    config = tmp_path / "kafka.json"
    config.write_text('{"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000}')
    before = snapshot_of(tmp_path / "archive")

    code = main(["validate", str(archive.root), "--kafka-config", str(config), "--json"])

    out, err = capsys.readouterr()
    assert code == 1
    assert json.loads(out)["verdict"] == "complete"
    assert "what follows is what the files alone prove" in err
    assert "kafka-drain validate: no response from Kafka at 127.0.0.1:1 within 1 s" in err
    assert "127.0.0.1:1 refuses connections" in err
    assert snapshot_of(tmp_path / "archive") == before

"""`kafka-drain evidence-key`: key pairs, and their replacement."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.cli.main import main


def test_evidence_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pair is created once, and nothing of the private key is printed."""
    path = tmp_path / "key"

    assert main(["evidence-key", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    assert main(["evidence-key", str(path)]) == 2
    assert path.read_bytes() == before
    printed = capsys.readouterr()
    assert "never overwritten" in printed.err
    assert before.splitlines()[1].decode() not in printed.out + printed.err


def test_evidence_key_replaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A key that replaces another one comes with the old one's word for it."""
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    assert main(["evidence-key", old]) == 0
    assert main(["evidence-key", new, "--replaces", old]) == 0
    verify = ["verify-evidence", f"{new}.rotation", "--public-key"]

    assert main([*verify, f"{old}.pub"]) == 0
    assert main([*verify, f"{new}.pub"]) == 1
    again = ["verify-evidence", f"{new}.rotation", "--public-key", f"{old}.pub"]
    assert main([*again, "--rotation", f"{new}.rotation"]) == 0

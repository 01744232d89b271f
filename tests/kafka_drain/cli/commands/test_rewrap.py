"""`kafka-drain rewrap`: a dry run by default; nothing secret is an argument."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from kafka_drain.archive.keys import keys_for_writing
from kafka_drain.cli.main import main
from kafka_drain.config.encryption import Encryption
from kafka_drain.encryption.data_keys import FOLDER
from kafka_drain.encryption.kms import FILE_VARIABLE
from tests.kafka_drain.made_archive import MadeArchive


def test_rewrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says how many data keys have another master key, and wraps them only with --apply."""
    masters = tmp_path / "masters.json"
    masters.touch(mode=0o600)
    masters.write_text(json.dumps({n: base64.b64encode(bytes(32)).decode() for n in "ab"}))
    monkeypatch.setenv(FILE_VARIABLE, str(masters))
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    command = ["rewrap", str(made.root), "--kms", "file", "--key", "b", "--json"]
    assert main(command) == 2
    assert "has no data keys" in capsys.readouterr().err
    keys_for_writing(made.root, Encryption(kms="file", key="a"))
    before = {path.name for path in (made.root / FOLDER).iterdir()}

    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["to_rewrap"] == 1
    assert {path.name for path in (made.root / FOLDER).iterdir()} == before

    assert main([*command, "--apply"]) == 0
    assert json.loads(capsys.readouterr().out)["rewrapped"] == 1
    [name] = [path.name for path in (made.root / FOLDER).iterdir()]
    assert name.endswith(".0002.json")

    # As if AWS KMS's alias led to another key now.
    masters.write_text(json.dumps({"b": base64.b64encode(b"b" * 32).decode()}))
    for more in ([], ["--apply"]):
        assert main([*command, *more]) == 1
        assert "master key 'b' of file, which opens them, isn't" in capsys.readouterr().err

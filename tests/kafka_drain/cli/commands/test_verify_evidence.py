"""`kafka-drain verify-evidence` on a machine that has nothing but the file and the key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_drain.cli.main import main
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.statement import Statement

#: Refuses what a stranger doesn't have: Airflow, Spark, Kafka, our readers of files.
OFFLINE = """
import socket, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {
            "airflow", "pyspark", "confluent_kafka", "pyarrow", "fastavro", "upath", "fsspec",
            "requests", "pydantic",
        }:
            raise ImportError(f"{name} isn't here")
sys.meta_path.insert(0, Refuse())
def refused(*_, **__): raise OSError("no network")
socket.socket.connect = refused
from kafka_drain.cli.main import main
sys.exit(main())
"""


def offline(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in an empty folder, without libraries and without a network."""
    return subprocess.run(
        [sys.executable, "-c", OFFLINE, "verify-evidence", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )


def signed(folder: Path) -> SigningKey:
    """Sign a drill with a new key, both in a folder."""
    key = SigningKey.create(folder / "key")
    document = {"verdict": "passed", "records": 5, "rto_seconds": 1.5}
    statement = Statement("drill", "2026-01-01T00:00:00+00:00", "id", "flights", document=document)
    (folder / "drill.json").write_bytes(key.sign(statement).to_bytes())
    return key


def test_verify_evidence_offline(tmp_path: Path) -> None:
    """A stranger verifies with file and key alone, and reads what is proven and what isn't."""
    key = signed(tmp_path)
    done = offline(tmp_path, "drill.json", "--public-key", "key.pub", "--html", "drill.html")

    assert done.returncode == 0, done.stderr
    assert "drill.json: the signature is correct" in done.stdout
    assert key.public.id in done.stdout
    assert "not proven:" in done.stdout
    assert "The signature is correct" in (tmp_path / "drill.html").read_text()


def test_verify_evidence_offline_changed(tmp_path: Path) -> None:
    """With one byte changed, the command fails by words, and writes no page."""
    signed(tmp_path)
    content = bytearray((tmp_path / "drill.json").read_bytes())
    content[40] ^= 1
    (tmp_path / "drill.json").write_bytes(content)
    done = offline(tmp_path, "drill.json", "--public-key", "key.pub", "--html", "drill.html")

    assert done.returncode == 1
    assert done.stdout == ""
    assert "drill.json was changed" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "drill.html").exists()


def test_verify_evidence_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Machines get what was signed, and the key, as JSON."""
    key = signed(tmp_path)
    arguments = [str(tmp_path / "drill.json"), "--public-key", str(tmp_path / "key.pub"), "--json"]

    assert main(["verify-evidence", *arguments]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verified"], answer["key"]) == (True, key.public.id)
    assert answer["document"]["records"] == 5


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"file": "none.json"}, 2, "none.json can't be read: No such file"),
        ({"key": "none.pub"}, 2, "none.pub can't be read: No such file"),
        ({"key": "drill.json"}, 2, "drill.json holds no public key"),
        ({"key": "other.pub"}, 1, "which isn't among the given ones"),
        ({"file": "key.pub"}, 1, "key.pub has a line 1 that isn't signed evidence"),
    ],
)
def test_verify_evidence_refused(
    changes: dict[str, str],
    code: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file or key that isn't one is named, and nothing is verified."""
    signed(tmp_path)
    SigningKey.create(tmp_path / "other")
    names = {"file": "drill.json", "key": "key.pub"} | changes
    key = str(tmp_path / names["key"])

    assert main(["verify-evidence", str(tmp_path / names["file"]), "--public-key", key]) == code
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""

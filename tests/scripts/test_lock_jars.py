"""`make lock-jars`: what Ivy brings becomes the lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.errors import MachineError
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.jars import lock as jar_lock
from scripts import lock_jars

OLD, NEW, SAME = "0" * 64, "1" * 64, "2" * 64


@pytest.fixture
def lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "jars.lock"
    monkeypatch.setattr(jar_lock, "LOCK_FILE", path)
    return path


def test_main_writes(
    lock_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lock is what each configuration brings; the lines that changed are printed."""
    lock_file.write_text(f"{SAME}  broker/a-1.jar\n{OLD}  broker/b-1.jar\n")
    brought = {jars.BROKER: {"a-1.jar": SAME, "b-2.jar": NEW}, jars.S3: {"a-1.jar": SAME}}
    monkeypatch.setattr(jars, "hashes_of", lambda conf: brought.get(conf, {}))

    assert lock_jars.main() == 0

    assert jar_lock.parse_lock(lock_file.read_text()) == brought
    assert capsys.readouterr().out.splitlines() == [
        f"- {OLD}  broker/b-1.jar",
        f"+ {NEW}  broker/b-2.jar",
        f"+ {SAME}  s3/a-1.jar",
        "jars.lock: 3 jars, 3 lines changed",
    ]


def test_main_fails(
    lock_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When one configuration can't be brought, the lock stays as it was."""

    def hashes_of(conf: str) -> dict[str, str]:
        if conf == jars.TOOLS:
            raise MachineError("no network")
        return {"a-1.jar": SAME}

    lock_file.write_text("as it was")
    monkeypatch.setattr(jars, "hashes_of", hashes_of)

    assert lock_jars.main() == 1

    assert lock_file.read_text() == "as it was"
    assert capsys.readouterr().err == "lock-jars: no network\n"

"""`make lock-jars`: the jars that Ivy retrieves become the lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.errors import MachineError
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.jars import lock as jar_lock
from kafka_drain.spark.jars.lock import LockedJar
from scripts import ivy, lock_jars

OLD, NEW, SAME = "0" * 64, "1" * 64, "2" * 64
A, B1, B2 = (
    LockedJar("g/a/1/a-1.jar", 10, SAME),
    LockedJar("g/b/1/b-1.jar", 20, OLD),
    LockedJar("g/b/2/b-2.jar", 30, NEW),
)


@pytest.fixture
def lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "jars.lock"
    monkeypatch.setattr(jar_lock, "LOCK_FILE", path)
    return path


def test_main_writes(
    lock_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lock has the jars of each configuration; the changed lines are printed."""
    lock_file.write_text(jar_lock.format_lock({jars.BROKER: [A, B1]}))
    brought = {jars.BROKER: [A, B2], jars.S3: [A]}
    monkeypatch.setattr(ivy, "resolve", lambda conf: brought.get(conf, []))

    assert lock_jars.main() == 0

    assert jar_lock.parse_lock(lock_file.read_text()) == brought
    assert capsys.readouterr().out.splitlines() == [
        f"- {OLD} 20 broker g/b/1/b-1.jar",
        f"+ {NEW} 30 broker g/b/2/b-2.jar",
        f"+ {SAME} 10 s3 g/a/1/a-1.jar",
        "jars.lock: 3 jars, 3 lines changed",
    ]


def test_main_fails(
    lock_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If one configuration can't be retrieved, the lock stays unchanged."""

    def resolve(conf: str) -> list[LockedJar]:
        if conf == jars.TOOLS:
            raise MachineError("no network")
        return [A]

    lock_file.write_text("as it was")
    monkeypatch.setattr(ivy, "resolve", resolve)

    assert lock_jars.main() == 1

    assert lock_file.read_text() == "as it was"
    assert capsys.readouterr().err == "lock-jars: no network\n"

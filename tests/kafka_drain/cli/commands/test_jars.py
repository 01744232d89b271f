"""`kafka-drain jars`: what Spark needs is fetched, for Kafka and for stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_drain.cli.main import main
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.jars import lock as jar_lock
from tests.maven_server import MavenServer, locked, maven_server

FILES = {"g/one/1/one-1.jar": b"one"}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenServer]:
    lock_file = tmp_path / "jars.lock"
    lock_file.write_text(jar_lock.format_lock(dict.fromkeys(jars.CONFS, locked(FILES))))
    monkeypatch.setattr(jar_lock, "LOCK_FILE", lock_file)
    monkeypatch.setattr(jars, "version", lambda name: "4.1.1")
    monkeypatch.setenv("KAFKA_DRAIN_CACHE", str(tmp_path / "cache"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with maven_server() as running:
        running.files |= FILES
        monkeypatch.setenv("KAFKA_DRAIN_MAVEN_URL", running.url)
        yield running


@pytest.mark.parametrize(
    ("arguments", "confs"),
    [
        ([], ["connector", "s3", "encryption"]),
        (["--broker"], ["connector", "s3", "encryption", "broker"]),
        (["--gcs"], ["connector", "s3", "encryption", "gcs"]),
    ],
)
def test_jars(
    repository: MavenServer,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    confs: list[str],
) -> None:
    """Spark's are fetched; those of Google's store and the broker's when they are asked for."""
    assert main(["jars", *arguments, "--json"]) == 0

    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert list(answer) == confs
    assert all(Path(path).read_bytes() == b"one" for [path] in answer.values())
    assert "connector jars: 3 of 3 bytes (100 %)" in printed.err


def test_jars_no_store(
    repository: MavenServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there are none for stores, that is said, and the others are fetched."""
    monkeypatch.setattr(jars, "version", lambda name: "4.2.0")

    assert main(["jars", "--json"]) == 0

    printed = capsys.readouterr()
    assert list(json.loads(printed.out)) == ["connector", "encryption"]
    assert "no s3 jars for Spark 4.2.0; install pyspark 3.5, 4.0 or 4.1" in printed.err


def test_jars_login_in_url(
    repository: MavenServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mirror's URL with a login is a usage error, which doesn't show it."""
    monkeypatch.setenv("KAFKA_DRAIN_MAVEN_URL", "https://me:s3cr3t@maven.example.com")

    assert main(["jars"]) == 2

    err = capsys.readouterr().err
    assert "move it to ~/.netrc" in err
    assert "s3cr3t" not in err

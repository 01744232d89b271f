"""Class archives: which one fits, and that no damaged one is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_drain.spark.cds import (
    archive_folder,
    archive_name,
    find_class_archive,
    remove_outdated,
    sharing_options,
)
from kafka_drain.spark.java import Java

JAVA = Java(Path("/usr/bin/java"), 17, 'openjdk version "17.0.15"')
SPARK = Path("/venv/pyspark")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a cache of its own."""
    monkeypatch.setenv("KAFKA_DRAIN_CACHE", str(tmp_path))


def write(name: str, size: int, said: int) -> Path:
    """Write an archive of a size under the name of another size."""
    archive_folder().mkdir(exist_ok=True)
    path = archive_folder() / f"{name}-{said}.jsa"
    path.write_bytes(b"x" * size)
    return path


def test_archive_name_changes_with_what_it_holds() -> None:
    """Another Java, another pyspark or another jar needs another archive."""
    names = {
        archive_name(JAVA, SPARK, ["a.jar"]),
        archive_name(Java(JAVA.path, 17, 'openjdk version "17.0.16"'), SPARK, ["a.jar"]),
        archive_name(Java(Path("/opt/java"), 17, JAVA.version), SPARK, ["a.jar"]),
        archive_name(JAVA, Path("/other/pyspark"), ["a.jar"]),
        archive_name(JAVA, SPARK, ["a.jar", "b.jar"]),
        archive_name(JAVA, SPARK, ["b.jar", "a.jar"]),
    }

    assert len(names) == 6
    assert archive_name(JAVA, SPARK, ["a.jar"]) in names


def test_archive_name_of_an_installed_again_pyspark(tmp_path: Path) -> None:
    """The same jar at the same place with another time needs another archive: Java checks both."""
    jar = tmp_path / "jars" / "spark-core.jar"
    jar.parent.mkdir()
    jar.write_bytes(b"jar")
    named = archive_name(JAVA, tmp_path, [])
    assert archive_name(JAVA, tmp_path, []) == named

    os.utime(jar, (1, 1))

    assert archive_name(JAVA, tmp_path, []) != named


def test_remove_outdated() -> None:
    """Archives of the same Java and pyspark as they were before go, those of others stay."""
    write("here-before", 5, 5)
    now = write("here-now", 5, 5)
    other = write("there-before", 5, 5)

    remove_outdated("here-now")

    assert sorted(archive_folder().iterdir()) == [now, other]


def test_find_class_archive_whole() -> None:
    """An archive is found by its name, whatever else is there."""
    write("other", 5, 5)
    path = write("wanted", 7, 7)

    assert find_class_archive("wanted") == path
    assert sharing_options(path) == [f"-XX:SharedArchiveFile={path}", "-Xshare:auto"]


def test_find_class_archive_cut_short() -> None:
    """One that was cut short isn't used: Java 17 crashes over it (SIGBUS)."""
    write("wanted", 6, 7)

    assert find_class_archive("wanted") is None


def test_find_class_archive_missing() -> None:
    """Without an archive, and without its folder, Java gets no options."""
    assert find_class_archive("wanted") is None
    assert sharing_options(None) == []

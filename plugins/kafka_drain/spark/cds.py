"""Class data sharing (CDS) for Spark's driver: where the CDS archive is, and how Java uses it.

Half the time of a small drain is Java loading 15,000 classes. `kafka-drain class-archive` creates
an archive of them once (JEP 350), which Java then maps into memory; without it, Java loads classes
as usual. An archive is valid for one Java and one state of the jars on the class path; its name
identifies both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from kafka_drain.spark.jars.fetch import cache_folder
from kafka_drain.spark.java import Java


def archive_folder() -> Path:
    """Return the folder of CDS archives, which need not exist yet."""
    return cache_folder() / "class-archives"


def archive_name(java: Java, spark: Path, jars: Sequence[str]) -> str:
    """Return the prefix of an archive's name: the paths of Java and pyspark, and their contents.

    Args:
        java: The Java that runs Spark.
        spark: The folder of pyspark.
        jars: The connector's jars, in class path order.
    """
    # Java compares the size and modification time of each jar and silently ignores the archive if
    # one has changed, for example after pyspark was reinstalled in the same place.
    spark_jars = sorted(str(path) for path in (spark / "jars").glob("*.jar"))
    stamps = [_stamp(jar) for jar in (*spark_jars, *jars)]
    place = _digest(str(java.path.resolve()), str(spark))
    return f"{place}-{_digest(java.version, *stamps)}"


def _digest(*lines: str) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _stamp(jar: str) -> str:
    """Return the parts of a jar that Java compares; only its name if it isn't a local file."""
    try:
        known = Path(jar).stat()
    except OSError:
        return jar
    return f"{jar} {known.st_size} {known.st_mtime_ns}"


def remove_outdated(name: str) -> None:
    """Remove archives of earlier versions at this place; a running Java keeps its mapped file."""
    place = name.partition("-")[0]
    for path in archive_folder().glob(f"{place}-*.jsa"):
        if not path.name.startswith(f"{name}-"):
            path.unlink(missing_ok=True)


def find_class_archive(name: str) -> Path | None:
    """Return the intact archive with this name prefix, or None.

    The file name contains the archive's size, because Java crashes on a truncated archive.
    """
    for path in archive_folder().glob(f"{name}-*.jsa"):
        if path.stem.rpartition("-")[2] == str(path.stat().st_size):
            return path
    return None


def sharing_options(archive: Path | None) -> list[str]:
    """Return Java's options for a CDS archive."""
    # auto: continue without the archive if it isn't valid.
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive else []

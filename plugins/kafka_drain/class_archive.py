"""Java's class-data sharing for Spark's driver: where the class archive lies, and how it is used.

Half of a small drain is Java loading 15,000 classes. An archive of them (JEP 350) is made once by
`kafka-drain class-archive` and mapped into memory from then on; without one, Java loads classes as
ever. It fits one Java, one pyspark and one class path: any other has another name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from kafka_drain.jars import cache_folder
from kafka_drain.java import Java

__all__ = ["archive_folder", "archive_name", "find_class_archive", "sharing_options"]


def archive_folder() -> Path:
    """Return the folder of class archives, which need not exist yet."""
    return cache_folder() / "class-archives"


def archive_name(java: Java, spark: Path, jars: Sequence[str]) -> str:
    """Return the beginning of an archive's name.

    Args:
        java: The Java that runs Spark.
        spark: The folder of pyspark.
        jars: The connector's jars, in the order of the class path.
    """
    # Java itself compares the class path's files, and goes without the archive when one changed.
    seen = "\n".join([java.version, str(java.path.resolve()), str(spark), *jars])
    return hashlib.sha256(seen.encode()).hexdigest()[:16]


def find_class_archive(name: str) -> Path | None:
    """Return a whole archive of that name.

    Its size is part of its file's name: Java crashes over an archive that was cut short.
    """
    for path in archive_folder().glob(f"{name}-*.jsa"):
        if path.stem.rpartition("-")[2] == str(path.stat().st_size):
            return path
    return None


def sharing_options(archive: Path | None) -> list[str]:
    """Return Java's options for a class archive."""
    # auto: goes on without the archive where it doesn't fit.
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive else []

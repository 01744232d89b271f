"""Java's class-data sharing for Spark's driver: where the class archive lies, and how it is used.

Half of a small drain is Java loading 15,000 classes. An archive of them (JEP 350) is made once by
`kafka-drain class-archive` and mapped into memory from then on; without one, Java loads classes as
ever. It fits one Java and the jars of a class path, as they were: any other has another name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from kafka_drain.spark.jars.fetch import cache_folder
from kafka_drain.spark.java import Java

__all__ = [
    "archive_folder",
    "archive_name",
    "find_class_archive",
    "remove_outdated",
    "sharing_options",
]


def archive_folder() -> Path:
    """Return the folder of class archives, which need not exist yet."""
    return cache_folder() / "class-archives"


def archive_name(java: Java, spark: Path, jars: Sequence[str]) -> str:
    """Return the beginning of an archive's name: where Java and pyspark lie, and what is there.

    Args:
        java: The Java that runs Spark.
        spark: The folder of pyspark.
        jars: The connector's jars, in the order of the class path.
    """
    # Java compares size and time of each jar, and goes without the archive, saying nothing, when
    # one changed: after pyspark was installed again, in the same place, for instance.
    spark_jars = sorted(str(path) for path in (spark / "jars").glob("*.jar"))
    stamps = [_stamp(jar) for jar in (*spark_jars, *jars)]
    place = _digest(str(java.path.resolve()), str(spark))
    return f"{place}-{_digest(java.version, *stamps)}"


def _digest(*lines: str) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _stamp(jar: str) -> str:
    """Return what Java compares of a jar; of one that isn't a file here, its name alone."""
    try:
        known = Path(jar).stat()
    except OSError:
        return jar
    return f"{jar} {known.st_size} {known.st_mtime_ns}"


def remove_outdated(name: str) -> None:
    """Remove the archives of what was at this place before; a Java that uses one keeps it."""
    place = name.partition("-")[0]
    for path in archive_folder().glob(f"{place}-*.jsa"):
        if not path.name.startswith(f"{name}-"):
            path.unlink(missing_ok=True)


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

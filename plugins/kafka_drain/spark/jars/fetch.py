"""The jars that pip doesn't install: Spark's Kafka connector, object stores, the demo's broker.

`jars.lock` lists the jars of each configuration with their sizes and hashes. `fetch` downloads them
from a Maven repository into a folder of the user's cache whose name depends on these lines of the
lock; a jar gets its final name once its SHA-256 has been verified. Only `fetch` uses the network;
`verified` only checks that the jars exist with their sizes.

The environment variable `KAFKA_DRAIN_CACHE` sets another cache folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kafka_drain.errors import ConfigError, KafkaDrainError, MachineError
from kafka_drain.output import heard_by
from kafka_drain.spark.jars import lock as jar_lock
from kafka_drain.spark.jars import maven
from kafka_drain.spark.jars.lock import LockedJar

CONNECTOR = "connector"
BROKER = "broker"
S3 = "s3"
GCS = "gcs"
ENCRYPTION = "encryption"
TOOLS = "tools"
HADOOP = "hadoop"
TIERED = "tiered"

#: The configurations for each minor version of Spark.
_FOR_SPARK = {
    "3.5": {
        CONNECTOR: "connector-spark35",
        S3: "s3-spark35",
        ENCRYPTION: "encryption-spark35",
    },
    "4.0": {
        CONNECTOR: "connector-spark40",
        S3: "s3-spark40",
        ENCRYPTION: "encryption-spark40",
    },
    "4.1": {CONNECTOR: CONNECTOR, S3: S3, ENCRYPTION: ENCRYPTION},
    "4.2": {CONNECTOR: "connector-spark42", ENCRYPTION: "encryption-spark42"},
}
#: The names whose jars depend on Spark's version.
_OF_SPARK = (CONNECTOR, S3, ENCRYPTION)
#: Version where pyspark isn't installed, as while an image is built.
_DEFAULT_SPARK = "4.1"

#: The broker's configuration for each version of Kafka; the first is the default.
BROKERS = {"4.1.0": BROKER, "4.0.0": "broker-kafka40", "4.4.0": "broker-kafka44"}

CONFS = (*(conf for confs in _FOR_SPARK.values() for conf in confs.values()), *BROKERS.values())
CONFS += (GCS, TOOLS, HADOOP, TIERED)


def cache_folder() -> Path:
    """Return the folder for downloads, which need not exist yet.

    It is `$KAFKA_DRAIN_CACHE`, else `$XDG_CACHE_HOME/kafka-drain`, else `~/.cache/kafka-drain`.
    """
    own = os.environ.get("KAFKA_DRAIN_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    # According to the XDG specification, a relative path is invalid and must be ignored.
    base = Path(xdg) if xdg and Path(xdg).is_absolute() else Path.home() / ".cache"
    return base / "kafka-drain"


def fetch(conf: str) -> list[Path]:
    """Return the jars of `conf`, downloading those that don't match the lock's SHA-256.

    Concurrent fetches wait for each other. A killed fetch leaves the jars that it has completed,
    and the next one resumes.

    Args:
        conf: One of this module's configuration names.

    Raises:
        ConfigError: When `conf` isn't one of this module's names, or the repository's URL is
            invalid.
        MachineError: When the cache can't be written, the repository doesn't have the jars that
            the lock names, or there are none for the installed pyspark.
    """
    name, conf = conf, _for_spark(conf)
    jars = _locked(conf)
    folder = _folder(conf, jars)
    if not all(_is_as_locked(folder, jar) for jar in jars):
        with _cache_locked():
            folder.mkdir(parents=True, exist_ok=True)
            missing = [jar for jar in jars if not _is_as_locked(folder, jar)]
            if missing:
                maven.download(missing, folder, f"{name} jars")
    return [folder / jar.name for jar in jars]


def verified(conf: str) -> list[Path]:
    """Return the jars of `conf` if they all exist with their sizes; download nothing.

    Raises:
        ConfigError: When `conf` isn't one of this module's names.
        MachineError: When a jar is missing or has a different size, or there are none for the
            installed pyspark.
    """
    name, conf = conf, _for_spark(conf)
    jars = _locked(conf)
    folder = _folder(conf, jars)
    wrong = [problem for jar in jars if (problem := _problem(folder / jar.name, jar.size))]
    if wrong:
        seen = f"in {folder}, {'; '.join(wrong)}" if folder.exists() else f"{folder} doesn't exist"
        flag = {GCS: " --gcs", BROKER: " --broker"}.get(name, "")
        raise MachineError(f"the {name} jars are incomplete: {seen}; run `kafka-drain jars{flag}`")
    return [folder / jar.name for jar in jars]


def main() -> int:
    """Fetch all jars but the benchmarks', print a line per configuration; return an exit code."""
    try:
        for conf in (CONNECTOR, S3, ENCRYPTION, BROKER):
            if conf == S3 and (problem := not_offered(S3)):
                print(problem)
                continue
            with heard_by(lambda line: print(line, file=sys.stderr, flush=True)):
                jars = fetch(conf)
            size = sum(jar.stat().st_size for jar in jars)
            print(f"{conf}: {len(jars)} jars, {size / 1e6:.1f} MB in {jars[0].parent}")
    except KafkaDrainError as error:
        print(f"kafka-drain: {error}", file=sys.stderr)
        return 1
    return 0


def not_offered(conf: str) -> str:
    """Return why there are no jars of `conf` for the installed pyspark; empty if there are."""
    spark = _installed_spark()
    if conf not in _OF_SPARK or conf in _FOR_SPARK.get(_minor(spark), {}):
        return ""
    *others, last = (minor for minor, confs in _FOR_SPARK.items() if conf in confs)
    return (
        f"kafka-drain has no {conf} jars for Spark {spark}; install pyspark {', '.join(others)} "
        f"or {last}, or name your own jars in the pipeline (jars=[…])"
    )


def _for_spark(conf: str) -> str:
    """Return the configuration that fits the installed pyspark."""
    if conf not in _OF_SPARK:
        return conf
    if problem := not_offered(conf):
        raise MachineError(problem)
    return _FOR_SPARK[_minor(_installed_spark())][conf]


def _installed_spark() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return _DEFAULT_SPARK


def _minor(spark: str) -> str:
    return ".".join(spark.split(".")[:2])


def _locked(conf: str) -> list[LockedJar]:
    if conf not in CONFS:
        raise ConfigError(f"no jars are declared for {conf!r}; expected one of {list(CONFS)}")
    locked = jar_lock.parse_lock(jar_lock.LOCK_FILE.read_text(encoding="utf-8"))
    if conf not in locked:
        raise MachineError(
            f"jars.lock has no line for {conf}; reinstall kafka-drain, or run `make lock-jars` in "
            "its repository"
        )
    return locked[conf]


def _folder(conf: str, jars: Sequence[LockedJar]) -> Path:
    digest = hashlib.sha256(jar_lock.format_lock({conf: jars}).encode()).hexdigest()
    return cache_folder() / "jars" / f"{conf}-{digest[:12]}"


def _is_as_locked(folder: Path, jar: LockedJar) -> bool:
    try:
        return hashlib.sha256((folder / jar.name).read_bytes()).hexdigest() == jar.sha256
    except OSError:
        return False


def _problem(path: Path, size: int) -> str:
    try:
        seen = path.stat().st_size
    except OSError:
        return f"{path.name} is missing"
    return "" if seen == size else f"{path.name} has {seen} bytes, expected {size}"


@contextmanager
def _cache_locked() -> Iterator[None]:
    """Hold the cache's lock, which the system releases when its holder dies."""
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise MachineError(
            f"the jar cache {cache} can't be written: {error}; free some space, fix its "
            "permissions, or set KAFKA_DRAIN_CACHE to another folder"
        ) from error


if __name__ == "__main__":
    sys.exit(main())

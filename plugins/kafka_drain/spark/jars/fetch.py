"""The jars that pip doesn't bring: Spark's Kafka connector, S3, a demo's broker, Kafka's tools.

Ivy fetches what `ivy.xml` declares into a folder of the user's cache, and each jar has to have the
SHA-256 that `jars.lock` names before the folder appears. Its name changes with both files. Only
`fetch` uses the network; `verified` only looks, and compares sizes.

`KAFKA_DRAIN_CACHE` moves the cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kafka_drain.errors import ConfigError, KafkaDrainError, MachineError
from kafka_drain.spark.jars import lock as jar_lock
from kafka_drain.spark.jars.ivy import IVY_FILE, ivy_command, run_ivy

__all__ = [
    "BROKER",
    "CONFS",
    "CONNECTOR",
    "S3",
    "TOOLS",
    "cache_folder",
    "fetch",
    "hashes_of",
    "main",
    "verified",
]

CONNECTOR = "connector"
BROKER = "broker"
S3 = "s3"
TOOLS = "tools"

#: Configurations for another Spark than 4.0, by the beginning of pyspark's version.
_OTHER_SPARKS = {"3.5.": {CONNECTOR: "connector-spark35", S3: "s3-spark35"}}

CONFS = (CONNECTOR, S3, *_OTHER_SPARKS["3.5."].values(), BROKER, TOOLS)

_INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class _Jar:
    name: str
    size: int
    sha256: str


def cache_folder() -> Path:
    """Return the folder for downloads, which need not exist yet.

    It is `$KAFKA_DRAIN_CACHE`, else `$XDG_CACHE_HOME/kafka-drain`, else `~/.cache/kafka-drain`.
    """
    own = os.environ.get("KAFKA_DRAIN_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification: a relative path is invalid and to be ignored.
    base = Path(xdg) if xdg and Path(xdg).is_absolute() else Path.home() / ".cache"
    return base / "kafka-drain"


def fetch(conf: str) -> list[Path]:
    """Return the jars of `conf`, downloading them first when they aren't complete.

    Processes that fetch at the same time wait for each other; the folder appears at once, with
    everything in it, or not at all.

    Raises:
        ConfigError: When `conf` isn't one of this module's names, or the settings file is missing.
        MachineError: When Java or pyspark is missing, the cache can't be written, Ivy fails, or
            what it brings isn't what the lock names.
    """
    conf = _for_spark(conf)
    folder = _folder(conf)
    jars, _ = _look(folder)
    if jars is not None:
        return jars
    command = ivy_command()
    with _cache_locked():
        jars, _ = _look(folder)
        if jars is None:
            _download(conf, folder, command)
    return verified(conf)


def hashes_of(conf: str) -> dict[str, str]:
    """Return the SHA-256 of each jar that Ivy brings for `conf`, by name, whatever the lock says.

    This is what a new lock is made of; the jars themselves aren't kept.

    Raises:
        ConfigError: As `fetch`.
        MachineError: As `fetch`, but for the lock.
    """
    _check_conf(conf)
    command = ivy_command()
    with _cache_locked(), _scratch_folder() as scratch:
        return {jar.name: jar.sha256 for jar in _bring(conf, scratch, command)}


def verified(conf: str) -> list[Path]:
    """Return the jars of `conf` when each is there with its size; download nothing.

    Raises:
        ConfigError: When `conf` isn't one of this module's names.
        MachineError: When a jar is missing or has another size.
    """
    jars, wrong = _look(_folder(_for_spark(conf)))
    if jars is None:
        raise MachineError(f"The {conf} jars aren't complete: {wrong}. Run `kafka-drain jars`.")
    return jars


def main() -> int:
    """Fetch all jars but those of benchmarks and print a line for each; return the exit status."""
    try:
        for conf in (CONNECTOR, S3, BROKER):
            jars = fetch(conf)
            size = sum(jar.stat().st_size for jar in jars)
            print(f"{conf}: {len(jars)} jars, {size / 1e6:.1f} MB in {jars[0].parent}")
    except KafkaDrainError as error:
        print(f"kafka-drain: {error}", file=sys.stderr)
        return 1
    return 0


def _for_spark(conf: str) -> str:
    """Return the configuration that fits the installed pyspark."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        return conf
    confs = next((c for start, c in _OTHER_SPARKS.items() if installed.startswith(start)), {})
    return confs.get(conf, conf)


def _check_conf(conf: str) -> None:
    if conf not in CONFS:
        raise ConfigError(f"No jars are declared for {conf!r}, expected one of {list(CONFS)}.")


def _folder(conf: str) -> Path:
    _check_conf(conf)
    # With the lock: jars that were compared with another one, or with none, are fetched again.
    declared = IVY_FILE.read_bytes() + jar_lock.LOCK_FILE.read_bytes() + conf.encode()
    return _jars_folder() / f"{conf}-{hashlib.sha256(declared).hexdigest()[:12]}"


def _jars_folder() -> Path:
    return cache_folder() / "jars"


def _ivy_cache() -> Path:
    return cache_folder() / "ivy"


def _look(folder: Path) -> tuple[list[Path] | None, str]:
    """Return the jars, or None and what is wrong."""
    index = folder / _INDEX
    try:
        files = json.loads(index.read_text(encoding="utf-8"))["files"]
        jars = [_Jar(**file) for file in files]
    except FileNotFoundError:
        return None, f"{index} doesn't exist"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, f"{index} can't be read ({error})"
    wrong = [problem for jar in jars if (problem := _problem(folder / jar.name, jar.size))]
    if wrong:
        return None, f"in {folder}, " + "; ".join(wrong)
    if not jars:
        return None, f"{index} names no jar"
    return [folder / jar.name for jar in jars], ""


def _problem(path: Path, size: int) -> str:
    try:
        seen = path.stat().st_size
    except OSError:
        return f"{path.name} is missing"
    return "" if seen == size else f"{path.name} has {seen} bytes, expected {size}"


@contextmanager
def _cache_locked() -> Iterator[None]:
    """Hold the cache's lock, which the system frees when its holder dies."""
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise MachineError(
            f"The jar cache {cache} can't be written: {error}. Make room or give it "
            "rights, or set KAFKA_DRAIN_CACHE to another folder."
        ) from error


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    folder = _jars_folder()
    folder.mkdir(parents=True, exist_ok=True)
    # Only a fetch that was killed leaves its folder behind: the lock keeps all others out.
    for leftover in folder.glob(".fetch-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _download(conf: str, folder: Path, command: list[str]) -> None:
    with _scratch_folder() as scratch:
        complete = scratch / "jars"
        complete.mkdir()
        jars = _bring(conf, complete, command)
        _refuse_others(conf, jars)
        index = json.dumps({"conf": conf, "files": [asdict(jar) for jar in jars]}, indent=1)
        (complete / _INDEX).write_text(index + "\n", encoding="utf-8")
        if folder.exists():
            folder.rename(scratch / "damaged")
        complete.rename(folder)


def _bring(conf: str, into: Path, command: list[str]) -> list[_Jar]:
    run_ivy(command, conf, into, _ivy_cache())
    jars = [
        _Jar(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(into.glob("*.jar"))
    ]
    if not jars:
        raise MachineError(
            f"Ivy reported success but retrieved no {conf} jar. Remove {cache_folder()} and "
            "run `kafka-drain jars` again."
        )
    return jars


def _refuse_others(conf: str, jars: list[_Jar]) -> None:
    locked = jar_lock.parse_lock(jar_lock.LOCK_FILE.read_text(encoding="utf-8"))
    differences = jar_lock.compare({jar.name: jar.sha256 for jar in jars}, locked.get(conf, {}))
    if not differences:
        return
    # What Ivy holds it takes again, whatever a corrected mirror serves.
    shutil.rmtree(_ivy_cache(), ignore_errors=True)
    raise MachineError(
        f"The {conf} jars that Ivy brought aren't those of jars.lock:\n"
        + "\n".join(f"  {difference}" for difference in differences)
        + "\nNone of them is kept. If ivy.xml is as it was, a mirror or a proxy serves other files "
        "than Maven Central: have it corrected, or name another one by KAFKA_DRAIN_IVY_SETTINGS. "
        "After a change of ivy.xml, run `make lock-jars`."
    )


if __name__ == "__main__":
    sys.exit(main())

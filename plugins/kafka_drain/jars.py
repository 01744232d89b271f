"""The jars that pip doesn't bring: Spark's Kafka connector, S3, a demo's broker, Kafka's tools.

The Ivy inside pyspark fetches what `ivy.xml` declares, into a folder of the user's cache whose
name changes with the declaration. Only `fetch` uses the network; `verified` only looks.

`KAFKA_DRAIN_CACHE` moves the cache. `KAFKA_DRAIN_IVY_SETTINGS` names an `ivysettings.xml`, where a
company's mirror of Maven Central is declared; without it Ivy's own defaults hold.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_drain.errors import ConfigError, KafkaDrainError, MachineError
from kafka_drain.java import require_java

__all__ = ["BROKER", "CONNECTOR", "S3", "TOOLS", "cache_folder", "fetch", "main", "verified"]

CONNECTOR = "connector"
BROKER = "broker"
S3 = "s3"
TOOLS = "tools"

_CONFS = (CONNECTOR, S3, BROKER, TOOLS)
_IVY_FILE = Path(__file__).with_name("ivy.xml")
_INDEX = "index.json"
_TIME_LIMIT_SECONDS = 1800
_LINES_OF_IVY = 8


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
        MachineError: When Java or pyspark is missing, the cache can't be written, or Ivy fails.
    """
    folder = _folder(conf)
    jars, _ = _look(folder)
    if jars is not None:
        return jars
    java = require_java().path
    ivy = _ivy_jar()
    settings = _settings()
    try:
        with _locked(cache_folder()):
            jars, _ = _look(folder)
            if jars is None:
                _download(conf, folder, [str(java), "-jar", str(ivy), *settings])
    except OSError as error:
        raise MachineError(
            f"The jar cache {cache_folder()} can't be written: {error}. Make room or give it "
            "rights, or set KAFKA_DRAIN_CACHE to another folder."
        ) from error
    return verified(conf)


def verified(conf: str) -> list[Path]:
    """Return the jars of `conf` when each is there with its size; download nothing.

    Raises:
        ConfigError: When `conf` isn't one of this module's names.
        MachineError: When a jar is missing or has another size.
    """
    jars, wrong = _look(_folder(conf))
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


def _folder(conf: str) -> Path:
    if conf not in _CONFS:
        raise ConfigError(f"No jars are declared for {conf!r}, expected one of {list(_CONFS)}.")
    digest = hashlib.sha256(_IVY_FILE.read_bytes() + conf.encode()).hexdigest()
    return cache_folder() / "jars" / f"{conf}-{digest[:12]}"


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


def _ivy_jar() -> Path:
    # Importing pyspark takes a second and would tie the core to Spark; finding it does neither.
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(Path(location, "jars").glob("ivy-*.jar"))
        if found:
            return found[-1]
    seen = "has no jars/ivy-*.jar (pyspark-client has none)" if spec else "is not installed"
    raise MachineError(
        f"The jars are fetched by the Ivy inside pyspark, but pyspark {seen} for {sys.executable}."
        " Install the full pyspark package."
    )


def _settings() -> list[str]:
    value = os.environ.get("KAFKA_DRAIN_IVY_SETTINGS")
    if not value:
        return []
    path = Path(value).expanduser().absolute()
    if not path.is_file():
        raise ConfigError(
            f"KAFKA_DRAIN_IVY_SETTINGS names {path}, which isn't a file. Point it to an "
            "ivysettings.xml, or unset it."
        )
    return ["-settings", str(path)]


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """Hold the cache's lock, which the system frees when its holder dies."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(conf: str, folder: Path, command: list[str]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Only a fetch that was killed leaves its folder behind: the lock keeps all others out.
    for leftover in folder.parent.glob(".fetch-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder.parent))
    try:
        complete = scratch / "jars"
        complete.mkdir()
        _run_ivy(conf, complete, command)
        jars = [
            _Jar(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(complete.glob("*.jar"))
        ]
        if not jars:
            raise MachineError(
                f"Ivy reported success but retrieved no {conf} jar. Remove {cache_folder()} and "
                "run `kafka-drain jars` again."
            )
        index = json.dumps({"conf": conf, "files": [asdict(jar) for jar in jars]}, indent=1)
        (complete / _INDEX).write_text(index + "\n", encoding="utf-8")
        if folder.exists():
            folder.rename(scratch / "damaged")
        complete.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_ivy(conf: str, into: Path, command: list[str]) -> None:
    ivy_cache = cache_folder() / "ivy"
    arguments = ["-cache", str(ivy_cache), "-ivy", str(_IVY_FILE), "-confs", conf]
    # A relative pattern, because Ivy would expand brackets in the cache's own path.
    arguments += ["-retrieve", "[artifact]-[revision].[ext]"]
    try:
        run = subprocess.run(
            [*command, *arguments],
            cwd=into,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(
            f"Ivy didn't fetch the {conf} jars within {_TIME_LIMIT_SECONDS} s. Check the network "
            "and run `kafka-drain jars` again; what has arrived is kept."
        ) from error
    if run.returncode != 0:
        raise MachineError(
            f"Ivy couldn't fetch the {conf} jars and ended with {run.returncode}:\n"
            + "\n".join(f"  {line}" for line in _meaningful(run.stdout))
            + "\nCheck the network (Java takes a proxy from JAVA_TOOL_OPTIONS, as "
            "-Dhttps.proxyHost=… -Dhttps.proxyPort=…), or set KAFKA_DRAIN_IVY_SETTINGS to an "
            "ivysettings.xml that names your mirror of Maven Central. Then run `kafka-drain jars`."
        )


def _meaningful(output: str) -> list[str]:
    """Return the last lines that say what failed, or the last lines at all."""
    lines = [line.strip(" \t:") for line in output.splitlines()]
    lines = [line for line in lines if line]
    signs = ("not found", "error", "FAILED", "Exception", "invalid", "No space")
    telling = [
        line
        for line in lines
        if any(sign in line for sign in signs) and not line.startswith("module not found")
    ]
    return list(dict.fromkeys(telling or lines))[-_LINES_OF_IVY:]


if __name__ == "__main__":
    sys.exit(main())

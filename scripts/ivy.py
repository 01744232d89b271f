"""Resolve the jars of `ivy.xml` with the Ivy inside pyspark, one configuration at a time.

Only `make lock-jars` runs this. `KAFKA_DRAIN_IVY_SETTINGS` may name an `ivysettings.xml` that
declares a mirror of Maven Central; without it, Ivy's defaults apply.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark.jars.fetch import cache_folder
from kafka_drain.spark.jars.lock import LockedJar
from kafka_drain.spark.java import require_java

__all__ = ["IVY_FILE", "resolve"]

IVY_FILE = Path(__file__).with_name("ivy.xml")

_TIME_LIMIT_SECONDS = 1800
_LINES_OF_IVY = 8
# The layout of a Maven repository. Relative, because Ivy would expand brackets in a folder's path.
_PATTERN = "[orgPath]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"


def resolve(conf: str) -> list[LockedJar]:
    """Return the jars that Ivy retrieves for one configuration of `ivy.xml`; no jar is kept.

    Resolves a single configuration, so that its versions don't depend on the others.

    Raises:
        ConfigError: If the settings file is missing.
        MachineError: If Java or pyspark is missing, or if Ivy fails, takes too long or retrieves
            nothing.
    """
    command = [str(require_java().path), "-jar", str(_ivy_jar()), *_settings()]
    command += ["-cache", str(cache_folder() / "ivy"), "-ivy", str(IVY_FILE), "-confs", conf]
    with TemporaryDirectory() as folder:
        _run([*command, "-retrieve", _PATTERN], conf, Path(folder))
        jars = [
            LockedJar(
                path=path.relative_to(folder).as_posix(),
                size=path.stat().st_size,
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            )
            for path in Path(folder).rglob("*.jar")
        ]
    if not jars:
        raise MachineError(
            f"Ivy reported success but retrieved no {conf} jar; expected those of ivy.xml; remove "
            f"{cache_folder() / 'ivy'} and run `make lock-jars` again"
        )
    return jars


def _run(command: list[str], conf: str, into: Path) -> None:
    try:
        run = subprocess.run(
            command,
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
            f"Ivy didn't retrieve the {conf} jars within {_TIME_LIMIT_SECONDS} s. Check the "
            "network and run `make lock-jars` again; downloaded files are kept."
        ) from error
    if run.returncode != 0:
        raise MachineError(
            f"Ivy couldn't retrieve the {conf} jars and ended with {run.returncode}:\n"
            + "\n".join(f"  {line}" for line in _meaningful(run.stdout))
            + "\nCheck the network (to use a proxy, set JAVA_TOOL_OPTIONS to "
            "-Dhttps.proxyHost=… -Dhttps.proxyPort=…), or set KAFKA_DRAIN_IVY_SETTINGS to an "
            "ivysettings.xml that names your mirror of Maven Central. Then run `make lock-jars`."
        )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(Path(location, "jars").glob("ivy-*.jar"))
        if found:
            return found[-1]
    seen = "has no jars/ivy-*.jar (pyspark-client has none)" if spec else "is not installed"
    raise MachineError(
        f"the jars are resolved by the Ivy inside pyspark, but pyspark {seen} for {sys.executable};"
        " install the full pyspark package"
    )


def _settings() -> list[str]:
    value = os.environ.get("KAFKA_DRAIN_IVY_SETTINGS")
    if not value:
        return []
    path = Path(value).expanduser().absolute()
    if not path.is_file():
        raise ConfigError(
            f"KAFKA_DRAIN_IVY_SETTINGS names {path}, which isn't a file. Set it to the path of an "
            "ivysettings.xml, or unset it."
        )
    return ["-settings", str(path)]


def _meaningful(output: str) -> list[str]:
    """Return the last lines that say what failed; otherwise the last lines of the output."""
    lines = [line.strip(" \t:") for line in output.splitlines()]
    lines = [line for line in lines if line]
    signs = ("not found", "error", "FAILED", "Exception", "invalid", "No space")
    telling = [
        line
        for line in lines
        if any(sign in line for sign in signs) and not line.startswith("module not found")
    ]
    return list(dict.fromkeys(telling or lines))[-_LINES_OF_IVY:]

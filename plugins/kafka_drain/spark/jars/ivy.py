"""The Ivy inside pyspark: brings the jars of one configuration of `ivy.xml` into a folder.

`KAFKA_DRAIN_IVY_SETTINGS` names an `ivysettings.xml`, where a company's mirror of Maven Central is
declared; without it Ivy's own defaults hold.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark.java import require_java

__all__ = ["IVY_FILE", "ivy_command", "run_ivy"]

IVY_FILE = Path(__file__).with_name("ivy.xml")

_TIME_LIMIT_SECONDS = 1800
_LINES_OF_IVY = 8


def ivy_command() -> list[str]:
    """Return the command that starts Ivy, after a look whether it can be started at all.

    Raises:
        ConfigError: When the settings file is missing.
        MachineError: When Java or pyspark is missing.
    """
    return [str(require_java().path), "-jar", str(_ivy_jar()), *_settings()]


def run_ivy(command: list[str], conf: str, into: Path, cache: Path) -> None:
    """Bring the jars of `conf` into a folder.

    Args:
        command: What `ivy_command` returned.
        conf: One configuration alone, so that its versions don't depend on the others.
        into: An empty folder.
        cache: Ivy's own; what is in it isn't downloaded again.

    Raises:
        MachineError: When Ivy fails or takes too long.
    """
    arguments = ["-cache", str(cache), "-ivy", str(IVY_FILE), "-confs", conf]
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

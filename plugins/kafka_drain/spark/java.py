"""Find the Java that Spark and Kafka run on, and check that its version is supported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kafka_drain.errors import MachineError

# Spark 4.0 needs 17 or later; from Java 24, Hadoop's calls to the security manager fail.
SUPPORTED_MAJORS = (17, 21)

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WHAT_TO_DO = (
    "Install a JDK or JRE of version 17 or 21, or set JAVA_HOME to its folder (the one that "
    "contains bin/java)."
)


@dataclass(frozen=True, slots=True)
class Java:
    """A working `java` command, its major version, and its `-version` output."""

    path: Path
    major: int
    version: str = field(default="", compare=False)


def require_java() -> Java:
    """Return the Java that this machine's programs will use: JAVA_HOME's, or else the PATH's.

    If JAVA_HOME is set, only it counts, because Spark's start scripts do the same.

    Raises:
        MachineError: When there is no Java, it doesn't run, or its version isn't 17 or 21.
    """
    home = os.environ.get("JAVA_HOME")
    path, output = _in_home(home) if home else _on_path()
    found = _VERSION.search(output)
    if found is None:
        raise MachineError(f"`{path} -version` printed no version: {_short(output)}. {_WHAT_TO_DO}")
    major = int(found.group(1))
    if major not in SUPPORTED_MAJORS:
        raise MachineError(f"{path} is Java {major}; expected Java 17 or 21. {_WHAT_TO_DO}")
    return Java(path, major, output)


def require_libraries(options: str) -> None:
    """Refuse a folder for temporary files from which Java can't load a library.

    Spark's and Kafka's codecs unpack theirs (zstd-jni, lz4, snappy) to `java.io.tmpdir`.

    Args:
        options: Options of the driver's Java; the last `-Djava.io.tmpdir` counts.

    Raises:
        MachineError: When its file system is mounted with `noexec`.
    """
    # Java's default doesn't follow TMPDIR.
    folder = (_TEMPORARY.findall(options) or ["/tmp"])[-1]
    try:
        # macOS doesn't have the flag.
        is_noexec = bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))
    except OSError:
        # Java says so itself.
        return
    if is_noexec:
        raise MachineError(
            f"{folder} is mounted with noexec, so Java can't load the libraries that Spark unpacks "
            "there; mount it without noexec, or set another folder in spark_conf: "
            "spark.driver.extraJavaOptions=-Djava.io.tmpdir=/var/tmp"
        )


def _in_home(home: str) -> tuple[Path, str]:
    path = Path(home) / "bin" / "java"
    if not path.is_file():
        raise MachineError(f"JAVA_HOME is {home}, which has no bin/java. {_WHAT_TO_DO}")
    return path, _output(path, "-version")


def _on_path() -> tuple[Path, str]:
    """Return the PATH's Java, and what it says of its version.

    It may be a program that chooses one (asdf, jenv, mise), whose folder is no JAVA_HOME.
    """
    on_path = shutil.which("java")
    if on_path is None:
        raise MachineError(
            f"No Java found: JAVA_HOME isn't set and no java is on the PATH. {_WHAT_TO_DO}"
        )
    path = Path(on_path).absolute()
    output = _output(path, "-XshowSettings:properties", "-version")
    home = _HOME.search(output)
    chosen = Path(home[1]) / "bin" / "java" if home else path
    return chosen if chosen.is_file() else path, _SETTINGS.sub("", output)


_HOME = re.compile(r"^[ \t]+java\.home = (.+)$", re.MULTILINE)
#: The properties, in a block of their own below a title.
_SETTINGS = re.compile(r"^\S.*\n(?:[ \t].*\n)+\n", re.MULTILINE)

_TEMPORARY = re.compile(r"-Djava\.io\.tmpdir=(\S+)")


@cache
def _output(path: Path, *options: str) -> str:
    try:
        run = subprocess.run(
            [path, *options],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{path} doesn't run: {error}. {_WHAT_TO_DO}") from error
    output = run.stderr + run.stdout
    if run.returncode != 0:
        raise MachineError(
            f"{path} doesn't run: `-version` exited with {run.returncode} and printed: "
            f"{_short(output)}. {_WHAT_TO_DO}"
        )
    return output


def _short(output: str) -> str:
    return " ".join(output.split())[:200] or "nothing"

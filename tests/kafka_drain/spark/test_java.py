"""Java: which one is taken, and what is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.errors import MachineError
from kafka_drain.spark.java import Java, require_java, require_libraries


def fake_java(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "java"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def prints(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of the PATH; JAVA_HOME isn't set."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("21.0.2-ea", 21)])
def test_require_java_supported(bin_folder: Path, version: str, major: int) -> None:
    """Java 17 and 21 on the PATH are taken."""
    path = fake_java(bin_folder, prints(version))

    assert Java(path, major) == require_java()


def test_require_java_options_from_environment(bin_folder: Path) -> None:
    """The line that Java prints about JAVA_TOOL_OPTIONS doesn't hide the version."""
    fake_java(bin_folder, "echo 'Picked up JAVA_TOOL_OPTIONS: -Da=1' >&2\n" + prints("17.0.1"))

    assert require_java().major == 17


def test_require_java_home_before_path(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAVA_HOME goes before the PATH."""
    fake_java(bin_folder, prints("17.0.1"))
    path = fake_java(tmp_path / "jdk" / "bin", prints("21.0.2"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))

    assert Java(path, 21) == require_java()


def test_require_java_home_unsupported(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JAVA_HOME that Spark would follow to a wrong version isn't passed over for the PATH."""
    fake_java(bin_folder, prints("17.0.1"))
    fake_java(tmp_path / "jdk" / "bin", prints("11.0.2"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))

    with pytest.raises(MachineError, match="is Java 11; expected Java 17 or 21"):
        require_java()


def test_require_java_home_empty_folder(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JAVA_HOME without bin/java is named."""
    fake_java(bin_folder, prints("17.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))

    with pytest.raises(MachineError, match=r"JAVA_HOME is .*nothing, which has no bin/java"):
        require_java()


@pytest.mark.parametrize("is_there", [True, False])
def test_require_java_shim(bin_folder: Path, tmp_path: Path, is_there: bool) -> None:
    """Of a program of asdf, jenv or mise that starts a Java, that Java is taken."""
    real = tmp_path / "jdk" / "bin" / "java"
    if is_there:
        fake_java(real.parent, prints("17.0.15"))
    settings = f"Property settings:\\n    java.home = {tmp_path / 'jdk'}\\n    other = a\\n\\n"
    shim = fake_java(
        bin_folder,
        "echo 'Picked up JAVA_TOOL_OPTIONS: -Da=1' >&2\n"
        f"""[ "$1" = -XshowSettings:properties ] && printf "{settings}" >&2\n"""
        + prints("17.0.15"),
    )

    found = require_java()

    assert found == Java(real if is_there else shim, 17)
    said = 'Picked up JAVA_TOOL_OPTIONS: -Da=1\nopenjdk version "17.0.15" 2025-04-15\n'
    assert found.version == said


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("24-ea", 24)])
def test_require_java_unsupported(bin_folder: Path, version: str, major: int) -> None:
    """Other versions are refused with what was seen, what is expected and what to do."""
    fake_java(bin_folder, prints(version))

    with pytest.raises(MachineError, match=rf"is Java {major}; expected Java 17 or 21\. Install"):
        require_java()


def test_require_java_missing(bin_folder: Path) -> None:
    """Without any Java the message says what to install."""
    with pytest.raises(MachineError, match=r"No Java found.* set JAVA_HOME to its folder"):
        require_java()


def test_require_java_fails(bin_folder: Path) -> None:
    """A java that ends with an error is refused with what it printed."""
    fake_java(bin_folder, "echo 'Unable to locate a Java Runtime.' >&2; exit 1")

    with pytest.raises(MachineError, match=r"doesn't run.*Unable to locate a Java Runtime"):
        require_java()


def test_require_java_not_a_program(bin_folder: Path) -> None:
    """A java that the system can't execute is refused."""
    fake_java(bin_folder, "").write_bytes(b"\x7fELF nonsense")

    with pytest.raises(MachineError, match="doesn't run"):
        require_java()


def test_require_java_hangs(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A java that doesn't answer is refused; it can't wait for input from the terminal."""
    fake_java(bin_folder, "")
    asked: list[Any] = []

    def hang(command: Any, **how: Any) -> None:
        asked.append(how)
        raise subprocess.TimeoutExpired("java", how["timeout"])

    monkeypatch.setattr(subprocess, "run", hang)

    with pytest.raises(MachineError, match=r"java doesn't run: .*timed out"):
        require_java()

    assert {how["stdin"] for how in asked} == {subprocess.DEVNULL}


def test_require_java_no_version(bin_folder: Path) -> None:
    """A java that names no version is refused with what it printed."""
    fake_java(bin_folder, "echo hello")

    with pytest.raises(MachineError, match=r"printed no version: hello\."):
        require_java()


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        ("", "/tmp"),
        ("-Xmx1g -Djava.io.tmpdir=/a", "/a"),
        ("-Djava.io.tmpdir=/a -Djava.io.tmpdir=/b -Xss1m", "/b"),
    ],
)
@pytest.mark.parametrize("is_noexec", [False, True])
def test_require_libraries(
    options: str, folder: str, is_noexec: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder from which no library can be loaded is refused before Spark starts."""
    asked: list[str] = []

    def statvfs(path: str) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID if is_noexec else os.ST_NOSUID)

    monkeypatch.setattr(os, "statvfs", statvfs)
    if is_noexec:
        with pytest.raises(MachineError, match=f"{folder} is mounted with noexec"):
            require_libraries(options)
    else:
        require_libraries(options)
    assert asked == [folder]


def test_require_libraries_no_folder() -> None:
    """Of a folder that isn't there, Java itself says so."""
    require_libraries("-Djava.io.tmpdir=/no/such/folder")

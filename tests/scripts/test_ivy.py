"""Ivy, from which a new lock of the jars is created."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.jars import lock as jar_lock
from scripts import ivy
from tests.maven_server import locked

VERSION = "echo 'openjdk version \"17.0.15\"' >&2"
BRINGS = """
/bin/mkdir -p org/a/one/1 org/b/three/3
printf one > org/a/one/1/one-1.jar
printf three > org/b/three/3/three-3.jar
"""
#: Maven's name for another jar of the same version, such as that of its tests.
CLASSIFIER = "{http://ant.apache.org/ivy/maven}classifier"
BROUGHT = locked({"org/a/one/1/one-1.jar": b"one", "org/b/three/3/three-3.jar": b"three"})


class Machine:
    """A machine whose `java` is a script that records its arguments and simulates Ivy."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.calls_file = folder / "calls"
        self.java = folder / "bin" / "java"
        self.java.parent.mkdir()
        self.ivy_does(BRINGS)

    def ivy_does(self, script: str) -> None:
        self.java.write_text(
            f'#!/bin/sh\ncase "$*" in *-version) {VERSION}; exit 0; esac\n'
            f'echo "$@" >> "{self.calls_file}"\n{script}\n',
            encoding="utf-8",
        )
        self.java.chmod(0o755)

    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(made.java.parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("KAFKA_DRAIN_CACHE", str(made.cache))
    monkeypatch.delenv("KAFKA_DRAIN_IVY_SETTINGS", raising=False)
    return made


def test_resolve(machine: Machine) -> None:
    """Path, size and hash of each jar are those of the retrieved files."""
    assert sorted(ivy.resolve(jars.CONNECTOR)) == BROUGHT


def test_resolve_command(machine: Machine) -> None:
    """Ivy gets its cache, the declaration, one configuration and Maven's layout."""
    ivy.resolve(jars.BROKER)

    (call,) = machine.calls()
    assert f"-cache {machine.cache / 'ivy'} -ivy {ivy.IVY_FILE} -confs broker -retrieve" in call
    assert "[orgPath]/[module]/[revision]/[artifact]-[revision]" in call
    assert "-settings" not in call


def test_resolve_settings(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """KAFKA_DRAIN_IVY_SETTINGS is passed to Ivy."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text("<ivysettings/>")
    monkeypatch.setenv("KAFKA_DRAIN_IVY_SETTINGS", str(settings))

    ivy.resolve(jars.BROKER)

    assert f"-settings {settings} " in machine.calls()[0]


def test_resolve_settings_missing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settings file that doesn't exist is refused before Ivy runs."""
    monkeypatch.setenv("KAFKA_DRAIN_IVY_SETTINGS", "/nowhere/ivysettings.xml")

    with pytest.raises(ConfigError, match=r"/nowhere/ivysettings\.xml, which isn't a file"):
        ivy.resolve(jars.BROKER)
    assert machine.calls() == []


def test_resolve_no_network(machine: Machine) -> None:
    """The message has Ivy's relevant lines once, without the rest, and says what to do."""
    machine.ivy_does(
        "for i in 1 2 3 4 5 6 7 8 9; do echo '==== local: tried'; done\n"
        "echo ':: a#b;1: not found'\necho ':: a#b;1: not found'\n"
        "echo 'Server access error at url u (java.net.UnknownHostException: h)'\nexit 1"
    )

    with pytest.raises(MachineError) as raised:
        ivy.resolve(jars.CONNECTOR)

    message = str(raised.value)
    assert message.count("a#b;1: not found") == 1
    assert "UnknownHostException" in message
    assert "tried" not in message
    assert "Check the network" in message


def test_resolve_nothing(machine: Machine) -> None:
    """An Ivy that succeeds without a jar is an error."""
    machine.ivy_does("exit 0")

    with pytest.raises(MachineError, match="retrieved no connector jar"):
        ivy.resolve(jars.CONNECTOR)


def test_resolve_no_pyspark(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyspark there is no Ivy, and the message says so."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(MachineError, match="pyspark is not installed"):
        ivy.resolve(jars.CONNECTOR)


def test_lock_has_what_is_asked_for() -> None:
    """The lock has each jar that ivy.xml requires, per configuration, at its path in Maven."""
    locks = jar_lock.parse_lock(jar_lock.LOCK_FILE.read_text(encoding="utf-8"))
    declared = ElementTree.parse(ivy.IVY_FILE)

    assert {conf.get("name") for conf in declared.iter("conf")} == set(jars.CONFS)
    for asked in declared.iter("dependency"):
        conf, _, _ = asked.get("conf", "").partition("->")
        group, name, version = (asked.get(key, "") for key in ("org", "name", "rev"))
        artifact = asked.find("artifact")
        kind = None if artifact is None else artifact.get(CLASSIFIER)
        file = f"{name}-{version}-{kind}.jar" if kind else f"{name}-{version}.jar"
        path = f"{group.replace('.', '/')}/{name}/{version}/{file}"
        assert path in [jar.path for jar in locks[conf]]

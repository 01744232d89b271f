"""Jars: fetched once, those of the lock and all of them or none, and never by `verified`."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.jars import lock as jar_lock
from kafka_drain.spark.jars.ivy import IVY_FILE

VERSION = "echo 'openjdk version \"17.0.15\"' >&2"
ONE = hashlib.sha256(b"one").hexdigest()
THREE = hashlib.sha256(b"three").hexdigest()
LOCKED = {"one-1.jar": ONE, "three-3.jar": THREE}


class Machine:
    """A machine whose `java` is a script that notes its arguments and stands in for Ivy."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.calls_file = folder / "calls"
        self.java = folder / "bin" / "java"
        self.java.parent.mkdir()
        self.lock_file = folder / "jars.lock"
        self.lock_file.write_text(jar_lock.format_lock(dict.fromkeys(jars.CONFS, LOCKED)))
        self.ivy_does("printf one > one-1.jar\nprintf three > three-3.jar")

    def ivy_does(self, script: str) -> None:
        self.java.write_text(
            f'#!/bin/sh\nif [ "$1" = -version ]; then {VERSION}; exit 0; fi\n'
            f'echo "$@" >> "{self.calls_file}"\n{script}\n',
            encoding="utf-8",
        )
        self.java.chmod(0o755)

    def ivy_caches(self, name: str) -> Path:
        """Put a file where Ivy keeps what it has downloaded."""
        path = self.cache / "ivy" / "a" / "jars" / name
        path.parent.mkdir(parents=True)
        path.touch()
        return path

    def kept(self) -> list[Path]:
        return list((self.cache / "jars").iterdir())

    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(made.java.parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("KAFKA_DRAIN_CACHE", str(made.cache))
    monkeypatch.setattr(jars, "version", lambda name: "4.0.2")
    monkeypatch.delenv("KAFKA_DRAIN_IVY_SETTINGS", raising=False)
    monkeypatch.setattr(jar_lock, "LOCK_FILE", made.lock_file)
    return made


def test_cache_folder_own_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KAFKA_DRAIN_CACHE goes before XDG_CACHE_HOME."""
    monkeypatch.setenv("KAFKA_DRAIN_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))

    assert tmp_path / "own" == jars.cache_folder()


def test_cache_folder_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Under XDG_CACHE_HOME the cache has a folder of its own."""
    monkeypatch.delenv("KAFKA_DRAIN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert tmp_path / "kafka-drain" == jars.cache_folder()


@pytest.mark.parametrize("xdg", ["", "relative"])
def test_cache_folder_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, xdg: str) -> None:
    """Without a usable variable the cache is in the home folder."""
    monkeypatch.delenv("KAFKA_DRAIN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert tmp_path / ".cache" / "kafka-drain" == jars.cache_folder()


def test_fetch_empty_cache(machine: Machine) -> None:
    """The folder's name carries declaration and lock, its index each file's size and hash."""
    fetched = jars.fetch(jars.CONNECTOR)

    declared = IVY_FILE.read_bytes() + machine.lock_file.read_bytes()
    digest = hashlib.sha256(declared + b"connector").hexdigest()[:12]
    folder = machine.cache / "jars" / f"connector-{digest}"
    assert [folder / "one-1.jar", folder / "three-3.jar"] == fetched
    assert json.loads((folder / "index.json").read_text())["files"] == [
        {"name": "one-1.jar", "size": 3, "sha256": ONE},
        {"name": "three-3.jar", "size": 5, "sha256": THREE},
    ]
    assert [folder] == machine.kept()


def test_fetch_command(machine: Machine) -> None:
    """Ivy gets the cache, the declaration and one configuration."""
    jars.fetch(jars.BROKER)

    (call,) = machine.calls()
    assert f"-cache {machine.cache / 'ivy'} -ivy " in call
    assert "-confs broker -retrieve [artifact]-[revision].[ext]" in call
    assert "-settings" not in call


def test_fetch_settings(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KAFKA_DRAIN_IVY_SETTINGS is handed to Ivy."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text("<ivysettings/>")
    monkeypatch.setenv("KAFKA_DRAIN_IVY_SETTINGS", str(settings))

    jars.fetch(jars.BROKER)

    assert f"-settings {settings} " in machine.calls()[0]


def test_fetch_settings_missing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settings file that isn't there is refused before Ivy runs."""
    monkeypatch.setenv("KAFKA_DRAIN_IVY_SETTINGS", "/nowhere/ivysettings.xml")

    with pytest.raises(ConfigError, match=r"/nowhere/ivysettings\.xml, which isn't a file"):
        jars.fetch(jars.BROKER)
    assert machine.calls() == []


def test_fetch_complete(machine: Machine) -> None:
    """What is complete isn't fetched again, and needs no Java."""
    first = jars.fetch(jars.CONNECTOR)
    machine.java.unlink()

    assert first == jars.fetch(jars.CONNECTOR)
    assert len(machine.calls()) == 1


def test_fetch_damaged(machine: Machine) -> None:
    """A folder with a cut file is replaced."""
    damaged = jars.fetch(jars.CONNECTOR)[0]
    damaged.write_bytes(b"")

    assert jars.fetch(jars.CONNECTOR)[0].read_bytes() == b"one"
    assert len(machine.calls()) == 2


def test_fetch_at_the_same_time(machine: Machine) -> None:
    """Of several that fetch at once, one runs Ivy and all get the jars."""
    machine.ivy_does("/bin/sleep 0.3\nprintf one > one-1.jar\nprintf three > three-3.jar")
    results: list[list[Path]] = []
    threads = [
        threading.Thread(target=lambda: results.append(jars.fetch(jars.CONNECTOR)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(results) == 3
    assert len(machine.calls()) == 1


def test_fetch_after_a_killed_one(machine: Machine) -> None:
    """What a killed fetch left behind is cleared away."""
    leftover = machine.cache / "jars" / ".fetch-killed" / "jars"
    leftover.mkdir(parents=True)

    jars.fetch(jars.CONNECTOR)

    assert not leftover.parent.exists()


def test_fetch_no_network(machine: Machine) -> None:
    """The message has Ivy's telling lines once, not the flood, and says what to do."""
    machine.ivy_does(
        "for i in 1 2 3 4 5 6 7 8 9; do echo '==== local: tried'; done\n"
        "echo ':: a#b;1: not found'\necho ':: a#b;1: not found'\n"
        "echo 'Server access error at url u (java.net.UnknownHostException: h)'\nexit 1"
    )

    with pytest.raises(MachineError) as raised:
        jars.fetch(jars.CONNECTOR)

    message = str(raised.value)
    assert message.count("a#b;1: not found") == 1
    assert "UnknownHostException" in message
    assert "tried" not in message
    assert "Check the network" in message
    assert machine.kept() == []


@pytest.mark.parametrize(
    ("ivy", "said"),
    [
        (
            "printf ONE > one-1.jar\nprintf three > three-3.jar",
            f"one-1.jar has SHA-256 {hashlib.sha256(b'ONE').hexdigest()}, expected {ONE}",
        ),
        (
            "printf one > one-1.jar\nprintf three > three-3.jar\nprintf one > two-2.jar",
            f"two-2.jar has SHA-256 {ONE}, expected no such jar",
        ),
        ("printf one > one-1.jar", f"three-3.jar is missing, expected SHA-256 {THREE}"),
    ],
    ids=["changed", "extra", "missing"],
)
def test_fetch_not_as_locked(machine: Machine, ivy: str, said: str) -> None:
    """Jars that the lock doesn't name as they are, or not all of its jars, are refused."""
    machine.ivy_does(ivy)
    in_ivy = machine.ivy_caches("one-1.jar")

    with pytest.raises(MachineError) as raised:
        jars.fetch(jars.CONNECTOR)

    first, *lines, what_to_do = str(raised.value).splitlines()
    assert first == "The connector jars that Ivy brought aren't those of jars.lock:"
    assert lines == [f"  {said}"]
    assert "a mirror or a proxy serves other files" in what_to_do
    assert "run `make lock-jars`" in what_to_do
    assert machine.kept() == []
    assert not in_ivy.exists()
    with pytest.raises(MachineError, match="aren't complete"):
        jars.verified(jars.CONNECTOR)


def test_fetch_every_difference(machine: Machine) -> None:
    """All that differs is named at once."""
    machine.ivy_does("printf ONE > one-1.jar\nprintf two > two-2.jar")

    with pytest.raises(
        MachineError, match=r"(?s)one-1\.jar has .*three-3\.jar is .*two-2\.jar has "
    ):
        jars.fetch(jars.CONNECTOR)


def test_fetch_damaged_then_not_as_locked(machine: Machine) -> None:
    """A damaged folder isn't replaced by jars that are refused."""
    damaged = jars.fetch(jars.CONNECTOR)[0]
    damaged.write_bytes(b"")
    machine.ivy_does("printf ONE > one-1.jar\nprintf three > three-3.jar")

    with pytest.raises(MachineError, match=r"aren't those of jars\.lock"):
        jars.fetch(jars.CONNECTOR)
    assert damaged.read_bytes() == b""


def test_fetch_after_another_lock(machine: Machine) -> None:
    """Under a new lock the jars are fetched and compared again."""
    jars.fetch(jars.CONNECTOR)
    other = {**LOCKED, "one-1.jar": THREE}
    machine.lock_file.write_text(jar_lock.format_lock({jars.CONNECTOR: other}))

    with pytest.raises(MachineError, match=f"one-1.jar has SHA-256 {ONE}, expected {THREE}"):
        jars.fetch(jars.CONNECTOR)
    assert len(machine.calls()) == 2


def test_fetch_conf_not_locked(machine: Machine) -> None:
    """A configuration of which the lock has no line is refused."""
    machine.lock_file.write_text("")

    with pytest.raises(MachineError, match=r"one-1\.jar has SHA-256 \w+, expected no such jar"):
        jars.fetch(jars.CONNECTOR)


def test_hashes_of_whatever_is_locked(machine: Machine) -> None:
    """What a new lock is made of needs no lock that fits, and leaves no jar behind."""
    machine.lock_file.write_text("")

    assert jars.hashes_of(jars.CONNECTOR) == LOCKED
    assert machine.kept() == []


def test_fetch_nothing_retrieved(machine: Machine) -> None:
    """An Ivy that succeeds without a jar isn't taken for success."""
    machine.ivy_does("exit 0")

    with pytest.raises(MachineError, match="retrieved no connector jar"):
        jars.fetch(jars.CONNECTOR)


def test_fetch_no_pyspark(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyspark there is no Ivy, and the message says so."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(MachineError, match="pyspark is not installed"):
        jars.fetch(jars.CONNECTOR)


def test_fetch_cache_not_writable(machine: Machine) -> None:
    """A cache that can't be made is named, with the variable that moves it."""
    machine.cache.write_text("a file is in the way")

    with pytest.raises(MachineError, match=r"can't be written: .* set KAFKA_DRAIN_CACHE"):
        jars.fetch(jars.CONNECTOR)


def test_verified_complete(machine: Machine) -> None:
    """What was fetched is verified."""
    assert jars.fetch(jars.BROKER) == jars.verified(jars.BROKER)


def test_verified_empty_cache(machine: Machine) -> None:
    """Nothing is downloaded: the command to run is named."""
    with pytest.raises(MachineError, match=r"index\.json doesn't exist. Run `kafka-drain jars`"):
        jars.verified(jars.CONNECTOR)
    assert machine.calls() == []
    assert not machine.cache.exists()


def test_verified_missing_and_cut(machine: Machine) -> None:
    """Every file that is missing or has another size is named."""
    one, three = jars.fetch(jars.CONNECTOR)
    one.unlink()
    three.write_bytes(b"th")

    with pytest.raises(
        MachineError, match=r"one-1\.jar is missing; three-3\.jar has 2 bytes, expected 5"
    ):
        jars.verified(jars.CONNECTOR)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"files": [{"name": "a"}]}', '{"files": []}'])
def test_verified_unreadable_index(machine: Machine, text: str) -> None:
    """An index in another form is the same as no jars."""
    index = jars.fetch(jars.CONNECTOR)[0].with_name("index.json")
    index.write_text(text)

    with pytest.raises(MachineError, match="Run `kafka-drain jars`"):
        jars.verified(jars.CONNECTOR)


@pytest.mark.parametrize("call", [jars.fetch, jars.verified, jars.hashes_of])
def test_unknown_conf(machine: Machine, call: object) -> None:
    """Other names of configurations are refused."""
    assert callable(call)
    with pytest.raises(ConfigError, match="'default', expected one of"):
        call("default")


def test_main_prints(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """A line is printed for each configuration."""
    assert jars.main() == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "connector: 2 jars",
        "s3: 2 jars",
        "broker: 2 jars",
    ]


def test_main_error(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """An error is a message and an exit status, without a stack trace."""
    machine.java.unlink()

    assert jars.main() == 1

    assert capsys.readouterr().err.startswith("kafka-drain: ")


def test_import_leaves_pyspark_alone() -> None:
    """Neither the import nor the search for Ivy imports pyspark."""
    code = (
        "import sys; from kafka_drain.spark.jars import ivy; ivy._ivy_jar(); "
        "sys.exit('pyspark' in sys.modules)"
    )
    folder = Path(jars.__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(folder)})


def test_lock_of_the_repository() -> None:
    """It names each jar that ivy.xml asks for, of each configuration, and is in its own order."""
    text = jar_lock.LOCK_FILE.read_text(encoding="utf-8")
    locked = jar_lock.parse_lock(text)
    declared = ElementTree.parse(IVY_FILE)

    assert jar_lock.format_lock(locked) == text
    assert {conf.get("name") for conf in declared.iter("conf")} == set(jars.CONFS) == set(locked)
    for asked in declared.iter("dependency"):
        conf, _, _ = asked.get("conf", "").partition("->")
        assert f"{asked.get('name')}-{asked.get('rev')}.jar" in locked[conf]


@pytest.mark.parametrize(
    "line",
    [
        f"{ONE}  one-1.jar",
        f"{ONE} broker/one-1.jar",
        f"{ONE[1:]}  broker/one-1.jar",
        f"{ONE}  broker/one-1.zip",
        f"{ONE}  broker/../one-1.jar",
        "<<<<<<< ours",
        "",
    ],
)
def test_parse_lock_other_form(line: str) -> None:
    """A line of another form is shown with its number, and what to do."""
    text = f"{THREE}  broker/three-3.jar\n{line}\n"

    with pytest.raises(MachineError, match=rf"Line 2 of jars\.lock is {re.escape(repr(line))}"):
        jar_lock.parse_lock(text)


@pytest.mark.parametrize(
    ("pyspark", "conf", "folder"),
    [
        ("4.0.2", "connector", "connector"),
        ("3.5.7", "connector", "connector-spark35"),
        ("3.5.7", "s3", "s3-spark35"),
        ("3.5.7", "broker", "broker"),
    ],
)
def test_verified_fits_spark(
    pyspark: str, conf: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's jars are those for the installed pyspark; the broker has its own."""
    monkeypatch.setenv("KAFKA_DRAIN_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "version", lambda name: pyspark)

    with pytest.raises(MachineError, match=rf"/{folder}-[0-9a-f]{{12}}/index.json doesn't exist"):
        jars.verified(conf)

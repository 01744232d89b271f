"""Jars: fetched once, those of the lock, never half of one, and never by `verified`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.jars import lock as jar_lock
from tests.maven_server import MavenServer, locked, maven_server

ONE, THREE = "g/one/1/one-1.jar", "g/three/3/three-3.jar"
FILES = {ONE: b"one", THREE: b"three"}
FETCH = "from kafka_drain.spark.jars import fetch, lock; from pathlib import Path; import sys; "
FETCH += "lock.LOCK_FILE = Path(sys.argv[1]); fetch.fetch(fetch.BROKER)"


class Machine:
    """A machine with an empty cache, a lock of its own and a repository that it reaches."""

    def __init__(self, folder: Path, repository: MavenServer) -> None:
        self.repository = repository
        self.repository.files |= FILES
        self.cache = folder / "cache"
        self.lock_file = folder / "jars.lock"
        self.lock_file.write_text(jar_lock.format_lock(dict.fromkeys(jars.CONFS, locked(FILES))))

    def start_fetch(self) -> subprocess.Popen[bytes]:
        """Fetch the broker's jars in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", FETCH, str(self.lock_file)],
            env={**os.environ, "PYTHONPATH": str(Path(jars.__file__).parents[3])},
        )

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.cache.rglob("*") if path.is_file())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with maven_server() as repository:
        made = Machine(tmp_path, repository)
        monkeypatch.setenv("KAFKA_DRAIN_MAVEN_URL", repository.url)
        monkeypatch.setenv("KAFKA_DRAIN_CACHE", str(made.cache))
        monkeypatch.setattr(jars, "version", lambda name: "4.1.1")
        monkeypatch.setattr(jar_lock, "LOCK_FILE", made.lock_file)
        yield made


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
    """The jars lie in one folder of the cache, with nothing else in it."""
    one, three = jars.fetch(jars.CONNECTOR)

    assert (one.name, one.read_bytes()) == ("one-1.jar", b"one")
    assert (three.name, three.read_bytes()) == ("three-3.jar", b"three")
    assert one.parent == three.parent
    assert one.parent.parent == machine.cache / "jars"
    assert machine.kept() == ["lock", "one-1.jar", "three-3.jar"]


def test_fetch_complete(machine: Machine) -> None:
    """What is complete isn't fetched again."""
    first = jars.fetch(jars.CONNECTOR)

    assert first == jars.fetch(jars.CONNECTOR)
    assert len(machine.repository.asked) == 2


def test_fetch_without_java_and_pyspark(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has neither yet gets its jars."""

    def missing(name: str) -> str:
        raise jars.PackageNotFoundError(name)

    monkeypatch.setattr(jars, "version", missing)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert len(jars.fetch(jars.CONNECTOR)) == 2


@pytest.mark.parametrize("damage", [b"", b"eno"], ids=["cut", "other bytes"])
def test_fetch_damaged(machine: Machine, damage: bytes) -> None:
    """A jar that isn't as the lock says is fetched again, and no other."""
    damaged = jars.fetch(jars.CONNECTOR)[0]
    damaged.write_bytes(damage)

    assert jars.fetch(jars.CONNECTOR)[0].read_bytes() == b"one"
    assert machine.repository.asked[2:] == [f"/maven2/{ONE}"]


def test_fetch_at_the_same_time(machine: Machine) -> None:
    """Of several processes that fetch at once, one downloads and all get the jars."""
    machine.repository.gate.clear()
    processes = [machine.start_fetch() for _ in range(3)]
    assert machine.repository.was_asked.wait(60)
    machine.repository.gate.set()

    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert sorted(machine.repository.asked) == [f"/maven2/{ONE}", f"/maven2/{THREE}"]
    assert len(jars.verified(jars.BROKER)) == 2


def test_fetch_killed(machine: Machine) -> None:
    """A fetch that is killed leaves no jar of which only a part has arrived; the next goes on."""
    machine.repository.gate.clear()
    process = machine.start_fetch()
    assert machine.repository.was_asked.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait(60)

    assert not any(name.endswith(".jar") for name in machine.kept())
    with pytest.raises(MachineError, match=r"one-1\.jar is missing; three-3\.jar is missing"):
        jars.verified(jars.BROKER)
    machine.repository.gate.set()
    assert jars.fetch(jars.BROKER)[0].read_bytes() == b"one"
    assert machine.kept() == ["lock", "one-1.jar", "three-3.jar"]


def test_fetch_not_as_locked(machine: Machine) -> None:
    """A jar with other bytes is refused; what had arrived before stays, and the next goes on."""
    machine.repository.files[THREE] = b"THREE"

    with pytest.raises(MachineError, match=r"three-3\.jar has SHA-256"):
        jars.fetch(jars.CONNECTOR)
    assert machine.kept() == ["lock", "one-1.jar"]
    with pytest.raises(MachineError, match=r"three-3\.jar is missing; run `kafka-drain jars`"):
        jars.verified(jars.CONNECTOR)

    machine.repository.files[THREE] = b"three"
    assert len(jars.fetch(jars.CONNECTOR)) == 2
    assert machine.repository.asked == [f"/maven2/{path}" for path in (ONE, THREE, THREE)]


def test_fetch_after_another_lock(machine: Machine) -> None:
    """Under a lock with other lines for them the jars lie elsewhere; other lines don't matter."""
    broker, connector = jars.fetch(jars.BROKER), jars.fetch(jars.CONNECTOR)
    machine.repository.files[ONE] = b"another one"
    changed = locked(machine.repository.files)
    machine.lock_file.write_text(
        jar_lock.format_lock({jars.CONNECTOR: changed, jars.BROKER: locked(FILES)})
    )

    assert jars.verified(jars.BROKER) == broker
    again = jars.fetch(jars.CONNECTOR)
    assert again[0].read_bytes() == b"another one"
    assert again[0].parent != connector[0].parent


def test_fetch_conf_not_locked(machine: Machine) -> None:
    """A configuration of which the lock has no line is refused."""
    machine.lock_file.write_text("")

    with pytest.raises(MachineError, match=r"jars\.lock has no line for connector"):
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
    with pytest.raises(MachineError, match=r" doesn't exist; run `kafka-drain jars`"):
        jars.verified(jars.CONNECTOR)
    assert machine.repository.asked == []
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


@pytest.mark.parametrize("call", [jars.fetch, jars.verified])
def test_unknown_conf(machine: Machine, call: object) -> None:
    """Other names of configurations are refused."""
    assert callable(call)
    with pytest.raises(ConfigError, match="'default'; expected one of"):
        call("default")


def test_main_prints(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """A line is printed for each configuration, and how far each has got to standard error."""
    assert jars.main() == 0

    printed = capsys.readouterr()
    assert [line.split(",")[0] for line in printed.out.splitlines()] == [
        "connector: 2 jars",
        "s3: 2 jars",
        "encryption: 2 jars",
        "broker: 2 jars",
    ]
    assert "broker jars: 8 of 8 bytes (100 %)" in printed.err


def test_main_error(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """An error is a message and an exit status, without a stack trace."""
    machine.repository.files.clear()

    assert jars.main() == 1

    assert "\nkafka-drain: http://127.0.0.1" in capsys.readouterr().err


def test_import_leaves_the_network_alone() -> None:
    """What starts jobs imports this module: it doesn't load what downloads, nor pyspark."""
    code = (
        "import sys; from kafka_drain.spark.jars import fetch; "
        "sys.exit(bool({'pyspark', 'requests', 'urllib3', 'ssl'} & set(sys.modules)))"
    )
    folder = Path(jars.__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(folder)})


@pytest.mark.parametrize(
    ("pyspark", "conf", "folder"),
    [
        ("4.1.1", "connector", "connector"),
        ("3.5.7", "connector", "connector-spark35"),
        ("3.5.7", "s3", "s3-spark35"),
        ("4.1.4", "s3", "s3"),
        ("4.0.2", "connector", "connector-spark40"),
        ("4.0.5", "s3", "s3-spark40"),
        ("4.2.0", "connector", "connector-spark42"),
        ("4.1.1", "encryption", "encryption"),
        ("3.5.7", "encryption", "encryption-spark35"),
        ("4.3.0", "broker", "broker"),
        ("4.3.0", "broker-kafka44", "broker-kafka44"),
    ],
)
def test_verified_fits_spark(
    pyspark: str, conf: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's jars are those for the installed pyspark; the broker has its own.

    The message names them as they were asked for; the folder tells the rest.
    """
    monkeypatch.setenv("KAFKA_DRAIN_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "version", lambda name: pyspark)

    with pytest.raises(
        MachineError, match=rf"the {conf} jars are .*/{folder}-[0-9a-f]{{12}} doesn't exist"
    ):
        jars.verified(conf)


@pytest.mark.parametrize(
    ("pyspark", "conf", "message"),
    [
        (
            "4.2.0",
            "s3",
            r"no s3 jars for Spark 4\.2\.0; install pyspark 3\.5, 4\.0 or 4\.1, or name your own",
        ),
        (
            "4.3.0",
            "connector",
            r"no connector jars for Spark 4\.3\.0; install pyspark 3\.5, 4\.0, 4\.1 or 4\.2, or ",
        ),
        ("4.10.0", "s3", r"no s3 jars for Spark 4\.10\.0"),
        ("3.4.4", "connector", r"no connector jars for Spark 3\.4\.4"),
    ],
)
@pytest.mark.parametrize("call", [jars.fetch, jars.verified])
def test_no_jars_for_spark(
    pyspark: str, conf: str, message: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Spark's jars aren't taken instead: what there are jars for is named."""
    monkeypatch.setattr(jars, "version", lambda name: pyspark)

    with pytest.raises(MachineError, match=message) as refused:
        call(conf)
    assert jars.not_offered(conf) == str(refused.value)


def test_main_fetches_what_is_offered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a Spark for which there are no S3 jars, the others are fetched, and that is said."""
    monkeypatch.setattr(jars, "version", lambda name: "4.2.0")

    assert jars.main() == 0

    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "connector: 2 jars",
        "kafka-drain has no s3 jars for Spark 4.2.0; install pyspark 3.5",
        "encryption: 2 jars",
        "broker: 2 jars",
    ]


def test_main_no_connector(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without jars for the installed Spark, an image isn't built as if it could drain."""
    monkeypatch.setattr(jars, "version", lambda name: "4.3.0")

    assert jars.main() == 1

    assert "no connector jars for Spark 4.3.0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("conf", "flag"), [(jars.GCS, " --gcs"), (jars.BROKER, " --broker"), (jars.S3, "")]
)
def test_verified_names_its_flag(machine: Machine, conf: str, flag: str) -> None:
    """The command in the message fetches what is missing."""
    with pytest.raises(MachineError, match=f"run `kafka-drain jars{flag}`$"):
        jars.verified(conf)

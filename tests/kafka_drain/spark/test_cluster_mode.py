"""Applications in cluster mode: submitted, followed, cancelled and found again."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kafka_drain.errors import ConfigError, LockedError, SparkJobError, StoreUnavailableError
from kafka_drain.output import Line
from kafka_drain.spark import run_folder
from kafka_drain.spark.cluster_manager import NoAnswerError
from kafka_drain.spark.cluster_mode import SparkCluster
from kafka_drain.spark.place import SparkConnection
from kafka_drain.spark.run_folder import RunFolder
from kafka_drain.spark.runner import runner_for
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.spark.yarn import ResourceManager, YarnApplication
from kafka_drain.storage.paths import locate

CONNECTION = SparkConnection("yarn", ["--queue", "night"], deploy_mode="cluster")

#: In the place of spark-submit: notes its arguments, and what its files hold.
SUBMIT = "import json, sys; json.dump(sys.argv[1:], open({note!r}, 'w')); {then}"


@dataclass(frozen=True)
class Application(SparkApplication):
    """An application that a Python program submits."""

    program: str = ""

    def command(self, master: str, options: Sequence[str] = (), binary: str = "") -> list[str]:
        return [sys.executable, "-c", self.program, master, *options, *self.arguments]


@dataclass
class Yarn:
    """A ResourceManager with one application, known by all tags once it was submitted."""

    states: list[YarnApplication | Exception]
    note: Path
    killed: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    handed: list[tuple[str, ...]] = field(default_factory=list)
    cleaned: list[str] = field(default_factory=list)
    name: ClassVar[str] = "YARN"
    secrets_folder: ClassVar[str] = ""

    def options(self, *arguments: Any) -> list[str]:
        return ResourceManager([]).options(*arguments)

    def hand_over(self, application_id: str, secrets: Mapping[str, Path]) -> None:
        self.handed.append((application_id, *sorted(secrets)))

    def clean_up(self, application_id: str) -> None:
        self.cleaned.append(application_id)

    def tagged(self, tag: str, *, alive: bool = True) -> list[YarnApplication]:
        if not self.note.exists() or not self.states:
            return []
        tags = json.loads(self.note.read_text())
        known = next(part for part in tags if part.startswith("spark.yarn.tags="))
        names = known.removeprefix("spark.yarn.tags=").split(",")
        state = self.states[0]
        if tag not in names or (alive and not is_alive(state)):
            return []
        known_state = RUNNING if isinstance(state, Exception) else state
        return [replace(known_state, tags=frozenset(names))]

    def application(self, application_id: str) -> YarnApplication:
        self.calls.append(application_id)
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state

    def kill(self, application_id: str) -> None:
        self.killed.append(application_id)
        self.states[:] = [KILLED]


def is_alive(state: YarnApplication | Exception) -> bool:
    return not isinstance(state, Exception) and state.is_alive


RUNNING = YarnApplication("a_1", "RUNNING")
SUCCEEDED = YarnApplication("a_1", "FINISHED", "SUCCEEDED")
FAILED = YarnApplication("a_1", "FINISHED", "FAILED", "out of memory")
KILLED = YarnApplication("a_1", "KILLED", "KILLED")


@dataclass
class World:
    """An archive, a private folder of a caller, and a cluster."""

    archive: Path
    private: Path
    heard: list[str] = field(default_factory=list)

    def application(self, *numbers: int, kind: str = "drain", then: str = "", **spec: Any) -> Any:
        """An application with a job of each number."""
        paths = []
        for number in numbers or (0,):
            secrets = self.private / f"secrets{number}.json"
            secrets.write_text('{"kafka.sasl.jaas.config": "s3cret"}')
            path = self.private / f"{number}.json"
            content = {
                "archive": str(self.archive / str(number)),
                "start": "{}",
                "planned_end": "{}",
                "result_path": str(self.private / f"result{number}.json"),
                "secrets_path": str(secrets),
            }
            path.write_text(json.dumps(content | spec))
            paths.append(str(path))
        return Application(
            name="a",
            path=Path("main.py"),
            arguments=[kind, *paths],
            conf={},
            jars=[],
            py_files=Path("p.zip"),
            driver_memory="1g",
            environment={},
            archive=str(self.archive / "0"),
            leases={str(self.archive / "0"): "token"},
            program=SUBMIT.format(note=str(self.note), then=then or "pass"),
        )

    @property
    def note(self) -> Path:
        return self.private / "submitted"

    def engine(self, *states: YarnApplication | Exception) -> tuple[SparkCluster, Yarn]:
        yarn = Yarn(list(states), self.note)
        engine = SparkCluster(CONNECTION, self.heard.append, yarn)
        engine.poll_seconds = 0.01  # type: ignore[misc]
        engine.last_seconds = 0.2  # type: ignore[misc]
        return engine, yarn

    def folders(self, number: int = 0) -> list[RunFolder]:
        return RunFolder.all_of(locate(self.archive / str(number)))

    def result(self, number: int = 0) -> Any:
        return json.loads((self.private / f"result{number}.json").read_text())


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An archive and a private folder."""
    (tmp_path / "private").mkdir()
    return World(tmp_path / "archives", tmp_path / "private")


def test_runner_for_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The deploy mode chooses the engine, whose ResourceManager is that of spark-submit."""
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))

    assert type(runner_for(CONNECTION)) is SparkCluster


def test_submit_arguments(world: World) -> None:
    """The driver gets run folders; secrets go as files of the application, in no run folder."""
    engine, _ = world.engine(RUNNING)

    assert engine.find(world.application()) is None
    assert engine.submit(world.application()) == "a_1"

    (folder,) = world.folders()
    submitted = json.loads(world.note.read_text())
    assert submitted[:5] == ["yarn", "--queue", "night", "--deploy-mode", "cluster"]
    assert submitted[submitted.index("--files") + 1] == (
        f"{world.private / 'secrets0.json'}#secrets-000.json"
    )
    assert submitted[-3:] == ["drain", "--runs", str(folder.path)]
    spec = folder.spec()
    assert (spec["result_path"], spec["secrets_path"]) == ("result-000.json", "secrets-000.json")
    run = folder.run()
    assert run is not None
    assert (run.kind, run.lease) == ("drain", "token")
    written = [path.read_text() for path in Path(str(folder.path)).iterdir()]
    assert not [text for text in written if "s3cret" in text]


def test_run_to_its_end(world: World) -> None:
    """What the driver prints is heard once; its result comes to where the caller reads it."""
    engine, yarn = world.engine(RUNNING, RUNNING, RUNNING, SUCCEEDED)
    application = world.application()
    polled = iter([(1, ["one"]), (1, ["one"]), (3, ["one", "two", "three"])])

    def state(application_id: str) -> YarnApplication:
        (folder,) = world.folders()
        if (progress := next(polled, None)) is not None:
            folder.write_progress(*progress)
        folder.write_result({"records": 3})
        return Yarn.application(yarn, application_id)

    yarn.application = state  # type: ignore[method-assign]

    engine(application)

    assert world.heard == ["one", "two", "three"]
    assert world.result() == {"records": 3}
    assert not world.folders()


@pytest.mark.parametrize(
    ("last", "says"), [(FAILED, "a_1 ended as FAILED 'out of memory'"), (KILLED, "as KILLED")]
)
@pytest.mark.parametrize("result", [None, {"error": "java.lang.X"}])
def test_run_failed(world: World, last: YarnApplication, says: str, result: Any) -> None:
    """An application that failed is an error, whose reason is in the result if there is one."""
    engine, yarn = world.engine(RUNNING, last)

    def state(application_id: str) -> YarnApplication:
        if result:
            world.folders()[0].write_result(result)
        return Yarn.application(yarn, application_id)

    yarn.application = state  # type: ignore[method-assign]

    with pytest.raises(SparkJobError, match=f"{says}.*yarn logs -applicationId a_1"):
        engine(world.application())

    assert (world.private / "result0.json").exists() is bool(result)
    assert not world.folders()


def test_submit_failed(world: World) -> None:
    """When spark-submit fails, its last lines say why."""
    engine, _ = world.engine()
    application = world.application(then="print('no such queue'); sys.exit(3)")

    with pytest.raises(SparkJobError, match="spark-submit failed with exit code 3"):
        engine(application)

    assert world.heard == ["no such queue"]


def test_submit_quiet(world: World) -> None:
    """A successful submission shows warnings only."""
    engine, _ = world.engine(RUNNING)
    warning = "26/11/24 11:56:03 WARN Utils: a"

    engine.submit(world.application(then=f"print('26/11/24 11:56:03 INFO b'); print({warning!r})"))

    assert world.heard == [warning]
    assert isinstance(world.heard[0], Line)


def submitted(world: World, **spec: Any) -> RunFolder:
    """Submit an application, and forget it as a killed process does."""
    engine, _ = world.engine(RUNNING)
    engine.submit(world.application(**spec))
    return world.folders()[0]


DONE, ERROR = {"records": 1}, {"error": "java.lang.X"}


@pytest.mark.parametrize(
    ("kind", "state", "result", "is_new", "found"),
    [
        ("drain", RUNNING, None, False, "a_1"),
        ("drain", RUNNING, None, True, "a_1"),
        ("drain", RUNNING, DONE, False, "a_1"),
        ("drain", SUCCEEDED, DONE, False, ""),
        ("drain", SUCCEEDED, DONE, True, None),
        ("drain", SUCCEEDED, ERROR, False, None),
        ("drain", SUCCEEDED, None, False, None),
        ("window", RUNNING, None, False, "a_1"),
        ("window", SUCCEEDED, DONE, False, None),
        ("sink", RUNNING, None, False, "a_1"),
        ("sink", SUCCEEDED, DONE, False, None),
        ("send", RUNNING, None, False, None),
        ("validate", RUNNING, None, False, None),
        ("validate", RUNNING, DONE, False, None),
        ("validate", SUCCEEDED, DONE, False, None),
        ("compact", RUNNING, None, False, None),
    ],
)
def test_find_again(
    world: World,
    kind: str,
    state: YarnApplication,
    result: Any,
    is_new: bool,
    found: str | None,
) -> None:
    """What runs is found, and its lease; of what has ended, a drain if nothing is new since."""
    folder = submitted(world, kind=kind)
    if result:
        folder.write_result(result)
    engine, _ = world.engine(state)
    retried = world.application(
        kind=kind, start='{"t":{"0":3}}', planned_end='{"t":{"0":4}}' if is_new else '{"t":{"0":3}}'
    )
    root = str(world.archive / "0")

    again = engine.find(replace(retried, leases={root: "of who looks"}))

    assert (again and again.id) == found
    if again and again.id:
        assert again.leases == {root: "token"}
    # What has ended and isn't wanted, is no later run's either.
    is_over = again is None and state is SUCCEEDED and result is not None
    assert world.folders() == ([] if is_over else [folder])


def test_find_asks_manager_of_conf(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration of the first application says which cluster manager is asked."""
    asked: list[Any] = []
    yarn = Yarn([RUNNING], world.note)

    def manager_of(*given: Any) -> Yarn:
        asked.append(given)
        return yarn

    monkeypatch.setattr("kafka_drain.spark.cluster_mode.manager_of", manager_of)
    engine = SparkCluster(CONNECTION, world.heard.append)
    application = replace(world.application(), conf={"spark.a": "1"})

    assert [engine.find(application) for _ in range(2)] == [None, None]

    assert asked == [(CONNECTION, {"spark.a": "1"})]


def test_follow_found(world: World) -> None:
    """What is found isn't submitted again."""
    submitted(world).write_result({"records": 1})
    before = world.note.read_text()
    engine, yarn = world.engine(RUNNING, SUCCEEDED)

    engine(world.application())

    assert (world.result(), yarn.calls) == ({"records": 1}, ["a_1", "a_1"])
    # Its submitter may have been killed before it handed them over.
    assert (yarn.handed, yarn.cleaned) == ([("a_1", "secrets-000.json")], ["a_1"])
    assert world.note.read_text() == before


def test_follow_found_and_submit_rest(world: World) -> None:
    """Of a group, the jobs that run already are followed, and the others submitted after them."""
    submitted(world).write_result({"records": 1})
    engine, yarn = world.engine(RUNNING, SUCCEEDED)
    calls = []

    def state(application_id: str) -> YarnApplication:
        calls.append([len(world.folders(0)), len(world.folders(1))])
        for folder in world.folders(1):
            folder.write_result({"records": 2})
        return Yarn.application(yarn, application_id)

    yarn.application = state  # type: ignore[method-assign]

    engine(world.application(0, 1))

    assert (world.result(0), world.result(1)) == ({"records": 1}, {"records": 2})
    assert calls[0] == [1, 0]


@pytest.mark.parametrize("second", [RUNNING, SUCCEEDED], ids=["runs", "ended"])
def test_follow_found_two_applications(world: World, second: YarnApplication) -> None:
    """Jobs of a group that earlier tries left in two applications are followed one by one."""
    engine, yarn = world.engine(RUNNING)
    left, polled = dict[str, YarnApplication](), list[str]()
    for number in (0, 1):
        world.engine(RUNNING)[0].submit(world.application(number))
        (known,) = yarn.tagged("kafka-drain")
        left[f"a_{number}"] = replace(known, id=f"a_{number}")
    if second is SUCCEEDED:
        del left["a_1"]
        world.folders(1)[0].write_result({"records": 1})

    def application(application_id: str) -> YarnApplication:
        polled.append(application_id)
        if polled.count(application_id) == 1:
            return left[application_id]
        number = int(application_id[-1])
        world.folders(number)[0].write_result({"records": number})
        del left[application_id]
        return SUCCEEDED

    yarn.application = application  # type: ignore[method-assign]
    yarn.tagged = (  # type: ignore[method-assign]
        lambda tag, **_: [app for app in left.values() if tag in app.tags]
    )
    running = sorted(left)

    engine(world.application(0, 1))

    assert polled == [application_id for application_id in running for _ in range(2)]
    assert [world.result(0), world.result(1)] == [{"records": 0}, {"records": 1}]


def test_follow_found_group(world: World) -> None:
    """A group's driver gets the secrets of all its jobs at once: a Secret is created only once.

    Each of its pipelines looks first whether a driver holds the lease of its archive.
    """
    engine, yarn = world.engine(RUNNING)
    engine.submit(world.application(0, 1))
    yarn.handed.clear()
    for number in (0, 1):
        for folder in world.folders(number):
            folder.write_result({"records": number})
    engine, _ = world.engine()
    engine._known = yarn

    for number in (0, 1):
        assert engine.find(world.application(number)) is not None
    yarn.states[:] = [RUNNING, SUCCEEDED]
    engine(world.application(0, 1))

    assert yarn.handed == [("a_1", "secrets-000.json", "secrets-001.json")]


def test_find_other_options(world: World) -> None:
    """A drain with other options isn't followed, and none starts beside it."""
    submitted(world)
    engine, _ = world.engine(RUNNING)

    with pytest.raises(LockedError, match=r"by a_1 with other options .*yarn application -kill"):
        engine.find(world.application(pipeline="q"))


@pytest.mark.parametrize(
    ("first", "state", "kind"),
    [("drain", SUCCEEDED, "drain"), ("drain", RUNNING, "window"), ("window", RUNNING, "drain")],
)
def test_find_beside(world: World, first: str, state: YarnApplication, kind: str) -> None:
    """An ended drain of other options, and a job of another kind, are in nobody's way."""
    submitted(world, kind=first)
    engine, _ = world.engine(state)

    assert engine.find(world.application(kind=kind, pipeline="q")) is None


@pytest.mark.parametrize("error", [NoAnswerError("silence"), ConfigError("silence")])
def test_poll_silence(world: World, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A ResourceManager may be silent for a while; in the end the application is left running.

    The same if it refuses to answer: a login may be about to be renewed.
    """
    engine, _ = world.engine(error, error, RUNNING)
    engine.submit(world.application())
    assert [engine.poll("a_1"), engine.poll("a_1"), engine.poll("a_1")] == [False] * 3
    assert world.heard[-2:] == ["waiting: silence", "YARN answers again, after 0 s"]

    engine, yarn = world.engine(error)
    monkeypatch.setattr("kafka_drain.spark.cluster_mode.PATIENCE_SECONDS", -1.0)
    with pytest.raises(NoAnswerError, match="silence"):
        engine.poll("a_1")
    assert yarn.killed == []


@pytest.mark.parametrize("error", [StoreUnavailableError("no NameNode"), RuntimeError("s3")])
def test_poll_without_progress(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A store that doesn't answer for a moment hides the driver's lines, and ends nothing."""
    engine, yarn = world.engine(RUNNING, RUNNING, RUNNING, SUCCEEDED)
    engine.submit(world.application())
    [folder] = world.folders()
    folder.write_progress(1, ["one"])
    read = run_folder.read_bytes

    def lost(path: Any) -> bytes:
        if path.name == "progress.json" and len(yarn.calls) == 2:
            raise error
        return read(path)

    monkeypatch.setattr(run_folder, "read_bytes", lost)
    assert engine.poll("a_1") is False
    folder.write_progress(2, ["one", "two"])
    assert engine.poll("a_1") is False
    assert engine.poll("a_1") is False
    folder.write_result({"records": 1})
    assert engine.poll("a_1") is True

    assert world.heard == ["one", "two"]
    assert world.result() == {"records": 1}


def test_run_without_progress(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application isn't killed for it."""
    engine, yarn = world.engine(RUNNING, SUCCEEDED)
    read = run_folder.read_bytes

    def lost(path: Any) -> bytes:
        if path.name == "progress.json":
            raise StoreUnavailableError("no NameNode")
        return read(path)

    monkeypatch.setattr(run_folder, "read_bytes", lost)
    engine(world.application())

    assert yarn.killed == []


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_end_application(world: World, how: str) -> None:
    """Whoever is interrupted or stopped ends the application."""
    engine, yarn = world.engine(RUNNING)
    application_id = engine.submit(world.application())

    if how == "cancel":
        engine.cancel(application_id)
    else:
        engine.stop()

    assert yarn.killed == ["a_1"]


def test_stop_while_submitting(world: World) -> None:
    """Who is stopped while spark-submit has handed the application over leaves none running.

    From a signal's handler, as Airflow does it: the thread that submits does nothing meanwhile.
    """
    engine, yarn = world.engine(RUNNING)
    application = world.application(then="sys.stdout.flush(); import time; time.sleep(60)")
    main = threading.get_ident()

    def tell() -> None:
        while not (world.note.exists() and world.note.read_text().endswith("]")):
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: engine.stop())
    try:
        threading.Thread(target=tell).start()
        with pytest.raises(SparkJobError, match="a_1 ended as KILLED"):
            run_or_give_up(engine, application)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert set(yarn.killed) == {"a_1"}


def test_stop_before_known(world: World) -> None:
    """Who is stopped before YARN knows what spark-submit has submitted leaves none running."""
    engine, yarn = world.engine(RUNNING)
    tagged = yarn.tagged

    def late(tag: str, *, alive: bool = True) -> list[YarnApplication]:
        if alive or yarn.calls:
            return tagged(tag, alive=alive) if yarn.calls else []
        engine.stop()
        yarn.calls.append("stopped")
        return []

    yarn.tagged = late  # type: ignore[method-assign]
    with pytest.raises(SparkJobError, match="a_1 ended as KILLED"):
        run_or_give_up(engine, world.application())

    assert yarn.killed == ["a_1"]


def run_or_give_up(engine: SparkCluster, application: Any) -> None:
    """Run an application; if it isn't killed within three seconds, kill it all the same."""
    giving_up = threading.Timer(3, lambda: engine._manager.states.__setitem__(0, FAILED))
    giving_up.start()
    try:
        engine(application)
    finally:
        giving_up.cancel()


@dataclass(frozen=True)
class Pod(YarnApplication):
    """An application whose end only its result tells, or that says why it waits."""

    waits: str = ""

    @property
    def has_succeeded(self) -> bool | None:  # type: ignore[override]
        return None

    @property
    def waits_for(self) -> str:
        return self.waits


@pytest.mark.parametrize(
    ("results", "fails"),
    [
        ([DONE, DONE], False),
        ([DONE, ERROR], True),
        ([DONE, None], True),
        ([ERROR, DONE], True),
        ([None, DONE], True),
    ],
)
def test_application_gone(world: World, results: list[Any], fails: bool) -> None:
    """What no longer exists has succeeded if each of its jobs left a result without an error."""
    engine, _ = world.engine(Pod("a_1", "Gone"))
    application_id = engine.submit(world.application(0, 1))
    for number, result in enumerate(results):
        if result is not None:
            world.folders(number)[0].write_result(result)

    if fails:
        with pytest.raises(SparkJobError, match="a_1 ended as UNDEFINED"):
            engine.poll(application_id)
    else:
        assert engine.poll(application_id)


def test_poll_waits(world: World) -> None:
    """Why an application doesn't start is said when it changes, not each time."""
    waits = [Pod("a_1", "NEW", waits=why) for why in ("no image", "no image", "")]
    engine, _ = world.engine(*waits)
    engine.submit(world.application())

    assert not any(engine.poll("a_1") for _ in range(4))

    assert world.heard == ["a_1 waits: no image", "a_1 waits: no longer"]


def test_started_id(world: World) -> None:
    """Whoever asked for it is told the id once, of what is submitted and of what is found."""
    for states in ([RUNNING, SUCCEEDED], [RUNNING, SUCCEEDED]):
        told: list[str] = []
        yarn = Yarn(list(states), world.note)
        engine = SparkCluster(CONNECTION, world.heard.append, yarn, told.append)
        engine.poll_seconds = 0.01  # type: ignore[misc]
        engine(world.application())
        assert told == ["a_1"]


def test_clean_up_refused(world: World) -> None:
    """A Secret that can't be removed doesn't fail what has succeeded."""
    engine, yarn = world.engine(RUNNING, SUCCEEDED)

    def refuse(_: str) -> None:
        raise ConfigError("no right")

    yarn.clean_up = refuse  # type: ignore[method-assign]

    engine(world.application())

    assert world.heard[-1] == "no right; the secrets of a_1 remain"


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), FileNotFoundError(2, "gone")])
def test_run_folders_stay(world: World, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Run folders that can't be removed, as another user's, fail nothing that runs or is done."""
    old = world.archive / "0" / "runs" / "20200101t000000z-0"
    old.mkdir(parents=True)
    engine, yarn = world.engine(RUNNING, SUCCEEDED)
    application = yarn.application

    def ended(application_id: str) -> YarnApplication:
        world.folders()[0].write_result({"records": 3})
        return application(application_id)

    def fail(folder: Any) -> None:
        raise error

    yarn.application = ended  # type: ignore[method-assign]
    monkeypatch.setattr(run_folder, "_remove", fail)

    engine(world.application())

    assert world.result() == {"records": 3}
    assert (yarn.killed, old.exists()) == ([], True)
    assert "can't be removed" in world.heard[-1]


@pytest.mark.parametrize(("secrets", "cleaned"), [(True, ["a_1"]), (False, [])])
def test_clean_up_asked(world: World, secrets: bool, cleaned: list[str]) -> None:
    """Secrets are removed at the end; without any, no right to do so is needed."""
    engine, yarn = world.engine(RUNNING, SUCCEEDED)

    engine(world.application(**({} if secrets else {"secrets_path": ""})))

    assert yarn.cleaned == cleaned
    assert yarn.handed == [("a_1", "secrets-000.json") if secrets else ("a_1",)]


def test_stop_nothing(world: World) -> None:
    """To stop what doesn't run is nothing."""
    engine, yarn = world.engine(RUNNING)

    engine.stop()

    assert yarn.killed == []


def test_run_folder_stays_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that was read and whose run folder stays fails no later drain, nor is it read again.

    Such as where the code that Spark has put into it is another user's.
    """

    def refused(_: Any) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(run_folder, "_remove", refused)
    folder = submitted(world)
    folder.write_result({"records": 1})
    engine, _ = world.engine(RUNNING, SUCCEEDED)
    engine(world.application())
    assert world.result() == {"records": 1}
    assert folder in world.folders()

    for end in ('{"t":{"0":4}}', "{}"):
        engine, _ = world.engine(SUCCEEDED)
        assert engine.find(world.application(planned_end=end)) is None


def test_run_folder_of_another_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that another user has left, and that this one may not remove, keeps no drain out."""
    folder = submitted(world)
    folder.write_result({"records": 1})

    def refused(_: Any) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(RunFolder, "remove", refused)
    engine, _ = world.engine(SUCCEEDED)

    assert engine.find(world.application(planned_end='{"t":{"0":4}}')) is None
    assert "can't be removed" in world.heard[-1]


def test_stop_while_finding(world: World) -> None:
    """Who is stopped while an application of before is being found ends it, too.

    What watches the job's topics stops it once: whoever follows it would wait for its end.
    """
    submitted(world).write_result({"records": 1})
    engine, yarn = world.engine(RUNNING, RUNNING, RUNNING, SUCCEEDED)
    tagged = yarn.tagged

    def stopped(tag: str, *, alive: bool = True) -> list[YarnApplication]:
        found = tagged(tag, alive=alive)
        engine.stop()
        return found

    yarn.tagged = stopped  # type: ignore[method-assign]

    with pytest.raises(SparkJobError, match="as KILLED"):
        engine(world.application())

    assert yarn.killed == ["a_1"]


@pytest.fixture
def environments(world: World, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environment of each submission; no process is started."""
    noted: list[dict[str, str]] = []

    def submit(_: Any, command: Sequence[str], environment: Mapping[str, str]) -> int:
        world.note.write_text(json.dumps(command[3:]))
        noted.append(dict(environment))
        return 0

    monkeypatch.setattr(SparkCluster, "_submit", submit)
    return noted


def test_submit_environment(
    world: World, environments: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application's variables go before this process's, and none makes it Connect's client."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    monkeypatch.setenv("SPARK_HOME", "/theirs")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/site")
    engine, _ = world.engine(RUNNING)

    engine.submit(replace(world.application(), environment={"SPARK_HOME": "/ours"}))

    [found] = environments
    assert (found["SPARK_HOME"], found["HADOOP_CONF_DIR"]) == ("/ours", "/site")
    assert "SPARK_REMOTE" not in found


@pytest.mark.usefixtures("environments")
def test_submit_group(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job of a group has its own lease, archive and files; the code is in the first folder."""
    engine, yarn = world.engine(RUNNING)
    options, asked = yarn.options, list[Any]()
    monkeypatch.setattr(yarn, "options", lambda *given: asked.append(given) or options(*given))

    engine.submit(world.application(0, 1, answers_path="/tmp/answers"))

    (first,), (second,) = world.folders(0), world.folders(1)
    [(run, tags, secrets, code)] = asked
    assert first.path.name == second.path.name == run
    assert tags[:2] == ["kafka-drain", run]
    assert len(tags) == len({*tags}) == 4
    assert secrets == {f"secrets-00{n}.json": world.private / f"secrets{n}.json" for n in (0, 1)}
    assert code == str(first.path)
    found = [(folder.run(), folder.spec()) for folder in (first, second)]
    assert [(run and run.lease, run and run.archive) for run, _ in found] == [
        ("token", str(world.archive / "0")),
        ("", str(world.archive / "1")),
    ]
    assert [(spec["result_path"], spec["answers_path"]) for _, spec in found] == [
        ("result-000.json", "answers-000.jsonl"),
        ("result-001.json", "answers-001.jsonl"),
    ]


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("result", [DONE, ERROR])
def test_collect_answers(world: World, result: dict[str, Any]) -> None:
    """A job's answers and attempt come with its result, for this user alone; none with an error."""
    engine, _ = world.engine(SUCCEEDED)
    answers = world.private / "answers"
    spec = {"kind": "validate", "answers_path": str(answers), "path": "/a/windows/attempt_3"}
    application_id = engine.submit(world.application(**spec))
    world.folders()[0].write_result(result, "1\n2\n")

    assert engine.poll(application_id)

    assert world.result() == result | {"attempt": "attempt_3"}
    if result is ERROR:
        assert not answers.exists()
    else:
        assert answers.read_text() == "1\n2\n"
        assert stat.S_IMODE(answers.stat().st_mode) == 0o600


@pytest.mark.usefixtures("environments")
def test_find_in_copy(world: World) -> None:
    """A result that was copied along with its archive isn't taken for the copy's."""
    submitted(world, archive="").write_result(DONE)
    shutil.copytree(world.archive / "0", world.archive / "1")
    application = world.application(archive="")
    engine, _ = world.engine(SUCCEEDED)

    assert engine.find(replace(application, archive=str(world.archive / "1"))) is None
    assert len(world.folders(1)) == 1
    assert engine.find(application) is not None


@pytest.mark.usefixtures("environments")
def test_submit_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was submitted and YARN never knows is an error, after a while."""
    monkeypatch.setattr("kafka_drain.spark.cluster_mode.KNOWN_SECONDS", 0.0)
    engine, yarn = world.engine()

    with pytest.raises(SparkJobError, match="YARN doesn't know the application 20"):
        engine.submit(world.application())

    assert yarn.killed == []


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize(
    ("error", "killed"),
    [
        (ConfigError("no right"), ["a_1"]),
        (KeyboardInterrupt("by hand"), ["a_1"]),
        (NoAnswerError("silence"), []),
    ],
)
def test_submit_secrets_refused(world: World, error: BaseException, killed: list[str]) -> None:
    """A driver that gets no secrets is ended; silence leaves it to the retry that finds it."""
    engine, yarn = world.engine(RUNNING)

    def refuse(*_: Any) -> None:
        raise error

    yarn.hand_over = refuse  # type: ignore[method-assign]

    with pytest.raises(type(error), match=str(error)):
        engine.submit(world.application())

    assert yarn.killed == killed


def test_run_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the second application of an engine prints is heard from its first line on."""
    engine, yarn = world.engine(SUCCEEDED)

    def state(application_id: str) -> YarnApplication:
        (folder,) = world.folders()
        folder.write_progress(1, ["begun"])
        folder.write_result(DONE)
        return SUCCEEDED

    monkeypatch.setattr(yarn, "application", state)

    for _ in range(2):
        engine(world.application(kind="window"))

    assert world.heard == ["begun"] * 2


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize(("seconds", "looks"), [(60.0, 3), (0.0, 1)])
def test_cancel_waits(
    world: World, seconds: float, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed application, which may write until it has ended, is waited for for a while."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    engine, yarn = world.engine(RUNNING)
    engine.last_seconds = seconds  # type: ignore[misc]
    application_id = engine.submit(world.application())
    yarn.states[:] = [RUNNING, RUNNING, KILLED]
    yarn.kill = yarn.killed.append  # type: ignore[method-assign]

    engine.cancel(application_id)

    assert (yarn.killed, len(yarn.calls)) == (["a_1"], looks)


def test_submit_failed_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What spark-submit couldn't submit isn't waited for."""
    monkeypatch.setattr(SparkCluster, "_submit", lambda *_: 3)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits"))
    engine, _ = world.engine()

    with pytest.raises(SparkJobError, match="spark-submit failed with exit code 3"):
        engine.submit(world.application())


@pytest.mark.usefixtures("environments")
def test_submit_keytab(world: World) -> None:
    """A driver in the cluster has the connection's keytab, from a file for this user."""
    engine, _ = world.engine(RUNNING)
    engine._connection = replace(CONNECTION, keytab=b"secret")

    engine.submit(world.application())

    given = json.loads(world.note.read_text())
    keytab = Path(given[given.index("--keytab") + 1])
    assert (keytab.read_bytes(), stat.S_IMODE(keytab.stat().st_mode)) == (b"secret", 0o600)
    assert "answers_path" not in world.folders()[0].spec()
    engine._forget()


def test_follow_failed_and_submit_rest(world: World) -> None:
    """A failed application's other jobs are no part of it: they are run all the same."""
    submitted(world).write_result(ERROR)
    engine, yarn = world.engine(RUNNING, FAILED, SUCCEEDED)

    def state(application_id: str) -> YarnApplication:
        for folder in world.folders(1):
            folder.write_result({"records": 2})
        return Yarn.application(yarn, application_id)

    yarn.application = state  # type: ignore[method-assign]
    with pytest.raises(SparkJobError, match="ended as FAILED"):
        engine(world.application(0, 1))

    assert (world.result(0), world.result(1)) == (ERROR, {"records": 2})

"""The ResourceManager's REST API, against a server that answers as Hadoop 3.4 does."""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.spark.cluster_manager import NoAnswerError
from kafka_drain.spark.submit import IN_CLUSTER
from kafka_drain.spark.yarn import ResourceManager, YarnApplication, addresses_in
from kafka_drain.storage.loopback import JsonHandler, loopback

#: As a ResourceManager of Hadoop 3.4.1 answered, without the figures.
RUNNING = {
    "id": "application_1795520306066_0001",
    "user": "root",
    "name": "drain_p",
    "state": "RUNNING",
    "finalStatus": "UNDEFINED",
    "diagnostics": "",
    "applicationType": "SPARK",
    "applicationTags": "kafka-drain,kd-1",
}


@dataclass
class Manager:
    """A server with the answers by path, that notes what it is asked."""

    address: str = ""
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)


@pytest.fixture
def manager() -> Iterator[Manager]:
    """A server in the place of a ResourceManager."""
    found = Manager()

    class Handler(JsonHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            found.asked.append((self.command, self.path, self.rfile.read(length).decode()))
            status, content = found.answers.get(self.path.partition("?")[0], (404, {}))
            self.answer(status, content)

        do_GET = do_PUT = handle_any

    with loopback(Handler, 0.02) as found.address:
        yield found


@pytest.mark.parametrize(
    ("apps", "ids"),
    [({"app": [RUNNING]}, [RUNNING["id"]]), ({}, []), (None, [])],
)
def test_tagged_answers(manager: Manager, apps: Any, ids: list[str]) -> None:
    """Of a tag, those are asked for that haven't ended; none is written in several ways."""
    manager.answers["/ws/v1/cluster/apps"] = (200, {"apps": apps})

    found = ResourceManager([manager.address]).tagged("kd-1")

    assert [app.id for app in found] == ids
    assert all(app.is_alive and app.tags == {"kafka-drain", "kd-1"} for app in found)
    states = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
    path = f"/ws/v1/cluster/apps?applicationTags=kd-1&states={states}"
    assert manager.asked == [("GET", path, "")]


def test_tagged_ended(manager: Manager) -> None:
    """An application that has ended is remembered."""
    ended = {**RUNNING, "state": "FINISHED"}
    manager.answers["/ws/v1/cluster/apps"] = (200, {"apps": {"app": [ended]}})

    (found,) = ResourceManager([manager.address]).tagged("kd-1", alive=False)

    assert not found.is_alive
    assert manager.asked == [("GET", "/ws/v1/cluster/apps?applicationTags=kd-1", "")]


@pytest.mark.parametrize(
    ("state", "status", "alive", "succeeded"),
    [
        ("NEW", "UNDEFINED", True, False),
        ("ACCEPTED", "UNDEFINED", True, False),
        ("RUNNING", "UNDEFINED", True, False),
        ("FINISHED", "SUCCEEDED", False, True),
        ("FINISHED", "FAILED", False, False),
        ("FAILED", "FAILED", False, False),
        ("KILLED", "KILLED", False, False),
    ],
)
def test_application_state(
    manager: Manager, state: str, status: str, alive: bool, succeeded: bool
) -> None:
    """An application has ended well only if YARN and the driver say so."""
    app = {**RUNNING, "state": state, "finalStatus": status, "diagnostics": None}
    manager.answers["/ws/v1/cluster/apps/a_1"] = (200, {"app": app})

    found = ResourceManager([manager.address]).application("a_1")

    assert (found.is_alive, found.has_succeeded) == (alive, succeeded)
    assert found.diagnostics == ""


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.yarn.tags": "team-a"},
        {"spark.yarn.maxAppAttempts": "2"},
        {"spark.yarn.submit.waitAppCompletion": "true"},
    ],
)
def test_options_refused(conf: dict[str, str], tmp_path: Path) -> None:
    """What applications are found by is kafka-drain's: spark_conf comes last, and would win."""
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    known = ResourceManager.of({"HADOOP_CONF_DIR": str(tmp_path)}, {**IN_CLUSTER, **conf})

    with pytest.raises(ConfigError, match=f"leave out {next(iter(conf))} in deploy mode cluster"):
        known.options("run", ["kafka-drain", "run"], {}, "/a")


def test_options_tags() -> None:
    """With kafka-drain's own settings, an application has its tags."""
    known = ResourceManager([], {**IN_CLUSTER, "spark.yarn.queue": "night"})

    assert known.options("run", ["kafka-drain", "run"], {}, "/a") == [
        "--conf",
        "spark.yarn.tags=kafka-drain,run",
    ]


def test_kill_request(manager: Manager) -> None:
    """An application is ended by its wanted state, in the user's name."""
    manager.answers["/ws/v1/cluster/apps/a_1/state"] = (202, {"state": "RUNNING"})

    ResourceManager([manager.address]).kill("a_1")

    method, path, body = manager.asked[0]
    assert (method, json.loads(body)) == ("PUT", {"state": "KILLED"})
    assert path.startswith("/ws/v1/cluster/apps/a_1/state?user.name=")


def test_kill_without_name(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user without a name can end an application, as whom Hadoop takes it for."""
    monkeypatch.setattr(getpass, "getuser", nameless)
    manager.answers["/ws/v1/cluster/apps/a_1/state"] = (202, {"state": "RUNNING"})

    ResourceManager([manager.address]).kill("a_1")
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    ResourceManager([manager.address]).kill("a_1")

    names = [path.partition("user.name=")[2] for _, path, _ in manager.asked]
    assert names == [f"user-{os.getuid()}", "etl"]


def nameless() -> str:
    """Stand for `getpass.getuser` of a user without an entry in passwd."""
    raise KeyError("getpwuid(): uid not found: 1000")


def test_ask_second_address(manager: Manager) -> None:
    """Of two ResourceManagers, the one that answers is active."""
    manager.answers["/ws/v1/cluster/apps/a_1"] = (200, {"app": RUNNING})

    found = ResourceManager(["http://127.0.0.1:1", manager.address]).application("a_1")

    assert found == YarnApplication.from_dict(RUNNING)


@pytest.mark.parametrize(
    "said",
    [{}, [], "no", {"status": "up"}, {"app": 1, "apps": 1}, {"app": {}, "apps": {"app": [1]}}],
)
def test_ask_other_answers(manager: Manager, said: Any) -> None:
    """What isn't a ResourceManager's answer, such as a proxy's, is none: another one is asked."""
    manager.answers["/ws/v1/cluster/apps"] = (200, said)
    manager.answers["/ws/v1/cluster/apps/app"] = (200, said)
    asked = ResourceManager([manager.address])

    with pytest.raises(NoAnswerError, match="isn't a ResourceManager's"):
        asked.tagged("kd-1")
    with pytest.raises(NoAnswerError, match="isn't a ResourceManager's"):
        asked.application("app")


def test_ask_no_answer(manager: Manager) -> None:
    """Silence is no state of an application: it may run on."""
    with pytest.raises(NoAnswerError, match=r"http://127.0.0.1:1: .*refused.*404"):
        ResourceManager(["http://127.0.0.1:1", manager.address]).application("a_1")


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", b"SSH-2.0-OpenSSH_9.6\r\n"],
)
def test_ask_broken_off(answer: bytes) -> None:
    """An answer that breaks off, or is no HTTP, is none: the application isn't ended for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def once() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        answering = threading.Thread(target=once)
        answering.start()
        with pytest.raises(NoAnswerError, match="no ResourceManager answers: "):
            ResourceManager([f"http://127.0.0.1:{server.getsockname()[1]}"]).application("a_1")
        answering.join()


@pytest.mark.parametrize("status", [401, 403])
def test_ask_login(manager: Manager, status: int) -> None:
    """A ResourceManager that requires a login is refused with what to do."""
    manager.answers["/ws/v1/cluster/apps/a_1"] = (status, {})

    with pytest.raises(ConfigError, match=f"answers {status} .* use deploy mode client"):
        ResourceManager([manager.address]).application("a_1")


def site(**properties: str) -> str:
    rows = "".join(
        f"<property><name>yarn.{name.replace('__', '-').replace('_', '.')}</name>"
        f"<value>{value}</value></property>"
        for name, value in properties.items()
    )
    return f"<?xml version='1.0'?><configuration>{rows}</configuration>"


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        (site(), ["http://localhost:8088"]),
        (site(resourcemanager_hostname="rm"), ["http://rm:8088"]),
        (site(resourcemanager_webapp_address="rm:99"), ["http://rm:99"]),
        (
            site(
                resourcemanager_hostname="rm",
                resourcemanager_webapp_address="${yarn.resourcemanager.hostname}:99",
            ),
            ["http://rm:99"],
        ),
        (
            site(resourcemanager_hostname="rm", http_policy="HTTPS_ONLY"),
            ["https://rm:8090"],
        ),
        (
            site(resourcemanager_webapp_https_address="rm:98", http_policy="HTTPS_ONLY"),
            ["https://rm:98"],
        ),
        (
            site(
                resourcemanager_ha_enabled="true",
                resourcemanager_ha_rm__ids="one, two",
                resourcemanager_hostname_one="a",
                resourcemanager_webapp_address_two="b:99",
            ),
            ["http://a:8088", "http://b:99"],
        ),
    ],
)
def test_addresses_in_site(text: str, addresses: list[str]) -> None:
    """Where the ResourceManager is, its clients' configuration says."""
    assert addresses_in(text) == addresses


def test_of_environment(tmp_path: Path) -> None:
    """The folder is that of spark-submit."""
    (tmp_path / "yarn-site.xml").write_text(site(resourcemanager_hostname="rm"))

    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        assert ResourceManager.of({name: str(tmp_path)}).addresses == ["http://rm:8088"]


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "can't be read: .*No such file"), ("<a>", "can't be read: no element|unclosed")],
)
def test_of_unreadable(tmp_path: Path, content: str | None, says: str) -> None:
    """Without a readable configuration, the message names the file."""
    if content is not None:
        (tmp_path / "yarn-site.xml").write_text(content)

    with pytest.raises(ConfigError, match=says):
        ResourceManager.of({"HADOOP_CONF_DIR": str(tmp_path)})


def test_of_nothing() -> None:
    """Without the variable, the message says what to set it to."""
    with pytest.raises(ConfigError, match="HADOOP_CONF_DIR isn't set; set it to the folder"):
        ResourceManager.of({})


@pytest.mark.parametrize(
    ("state", "waits"), [("ACCEPTED", True), ("RUNNING", False), ("FINISHED", False)]
)
def test_application_waits(state: str, waits: bool) -> None:
    """An application in a full queue is said to wait."""
    assert bool(YarnApplication("a_1", state).waits_for) is waits

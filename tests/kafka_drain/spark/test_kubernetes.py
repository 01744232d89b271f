"""Drivers in Kubernetes: what their pods' states mean, and what the API server is asked."""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark.cluster_manager import NoAnswerError
from kafka_drain.spark.kubernetes import DriverPod, Kubernetes
from kafka_drain.spark.place import SparkConnection
from tests.fake_kubernetes import FakeKubernetes, fake_kubernetes

RUN = "20260101t000000z-0123456789ab"
NAME = f"kafka-drain-{RUN}"
IMAGE = {"spark.kubernetes.container.image": "spark"}

DRIVER = "spark-kubernetes-driver"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeKubernetes]:
    """An API server, and a machine without any login."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with fake_kubernetes() as running:
        yield running


def kubernetes(fake: FakeKubernetes, **conf: str) -> Kubernetes:
    """Return what kafka-drain knows of an API server."""
    connection = SparkConnection(fake.master, deploy_mode="cluster")
    dotted = {f"spark.kubernetes.{name}": value for name, value in conf.items()}
    return Kubernetes.of(connection, IMAGE | dotted)


def driver(fake: FakeKubernetes, name: str = NAME, **labels: str) -> dict[str, Any]:
    """Create a driver's pod, as spark-submit does."""
    labels = {"spark-role": "driver", f"kafka-drain/{RUN}": "true"} | labels
    container = {"name": DRIVER, "image": "spark"}
    pod = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}
    return fake.create("pods", "default", pod)


def container(name: str = DRIVER, **state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": name, "state": state}]}


ENDED = {"exitCode": 1, "reason": "Error"}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available",
}


@pytest.mark.parametrize(
    ("phase", "status", "alive", "succeeded", "says"),
    [
        ("Pending", {}, True, False, ""),
        ("Pending", {"conditions": [UNSCHEDULABLE]}, True, False, "Unschedulable: 0/1 nodes"),
        (
            "Pending",
            container(waiting={"reason": "ImagePullBackOff", "message": "no such image"}),
            True,
            False,
            "ImagePullBackOff: no such image",
        ),
        ("Running", {}, True, False, ""),
        ("Running", container(running={}), True, False, ""),
        # Sidecars live on.
        ("Running", container(terminated={"exitCode": 0, "reason": "Completed"}), False, True, ""),
        ("Running", container(terminated=ENDED), False, False, "Running 'Error', exit code 1"),
        ("Running", container("sidecar", terminated=ENDED), False, False, "exit code 1"),
        ("Succeeded", {}, False, True, ""),
        ("Succeeded", container(terminated={"exitCode": 0}), False, True, ""),
        ("Failed", container(terminated=ENDED), False, False, "Failed 'Error', exit code 1"),
        (
            "Failed",
            container(terminated={"exitCode": 137, "reason": "OOMKilled"}),
            False,
            False,
            "Failed 'OOMKilled', exit code 137",
        ),
        (
            "Failed",
            {"reason": "Evicted", "message": "The node was low on resource: memory."},
            False,
            False,
            "Failed 'Evicted: The node was low on resource: memory.'",
        ),
    ],
)
def test_pod_states(
    fake: FakeKubernetes,
    phase: str,
    status: dict[str, Any],
    alive: bool,
    succeeded: bool,
    says: str,
) -> None:
    """Each phase of a pod, as the API server tells it."""
    driver(fake)
    fake.set_status(NAME, phase, **status)

    pod = kubernetes(fake).application(NAME)

    assert (pod.is_alive, pod.has_succeeded) == (alive, succeeded)
    assert says in (pod.waits_for if phase == "Pending" else pod.outcome)
    assert bool(pod.waits_for) == (phase == "Pending" and bool(status))


def test_pod_of_two_containers(fake: FakeKubernetes) -> None:
    """A sidecar that has ended says nothing of the driver beside it."""
    driver(fake)
    both = [
        {"name": "sidecar", "state": {"terminated": ENDED}},
        {"name": DRIVER, "state": {"running": {}}},
    ]
    fake.set_status(NAME, "Running", containerStatuses=both)

    assert kubernetes(fake).application(NAME).is_alive


def test_pod_gone(fake: FakeKubernetes) -> None:
    """Of a pod that was deleted, only its result can say how it ended."""
    pod = kubernetes(fake).application(NAME)

    assert (pod.is_alive, pod.has_succeeded) == (False, None)
    assert pod.outcome == "Gone 'the pod was deleted'"


def test_pod_unknown(fake: FakeKubernetes) -> None:
    """A lost node doesn't end a driver: it may write on."""
    driver(fake)
    fake.set_status(NAME, "Unknown", reason="NodeLost")
    known = kubernetes(fake)

    with pytest.raises(NoAnswerError, match=f"the node of pod {NAME} doesn't answer: NodeLost"):
        known.application(NAME)

    assert [pod.id for pod in known.tagged(RUN)] == [NAME]


def test_pod_commands() -> None:
    """The commands name the namespace."""
    pod = DriverPod("a", "spark", "Running")

    assert pod.kill_command == "kubectl delete pod --namespace spark a"
    assert pod.log_command == "kubectl logs --namespace spark a"


def test_tagged(fake: FakeKubernetes) -> None:
    """Drivers are found by label; executors, whose labels are Spark's, aren't."""
    driver(fake, "a", **{"kafka-drain/x": "true"})
    driver(fake, "b", **{"kafka-drain/x": "true"})
    driver(fake, "c", **{"kafka-drain/y": "true"})
    driver(fake, "d", **{"kafka-drain/x": "true", "spark-role": "executor"})
    fake.set_status("b", "Succeeded")
    known = kubernetes(fake)

    assert [pod.id for pod in known.tagged("x")] == ["a"]
    assert [pod.id for pod in known.tagged("x", alive=False)] == ["a", "b"]
    assert known.tagged("x")[0].tags == {RUN, "x"}
    assert known.tagged("z") == []


def test_kill(fake: FakeKubernetes) -> None:
    """A killed driver's pod is deleted, and what it owns; one that is gone is nobody's matter."""
    driver(fake)
    known = kubernetes(fake)

    known.kill(NAME)
    known.kill(NAME)

    assert not fake.pods


def test_hand_over(fake: FakeKubernetes, tmp_path: Path) -> None:
    """The Secret has the files, belongs to the pod, and is created once."""
    pod = driver(fake)
    (tmp_path / "s").write_text("s3cret")
    known = kubernetes(fake)

    known.hand_over(NAME, {"secrets-000.json": tmp_path / "s"})
    (tmp_path / "s").write_text("another")
    known.hand_over(NAME, {"secrets-000.json": tmp_path / "s"})

    (secret,) = fake.objects["secrets"].values()
    assert base64.b64decode(secret["data"]["secrets-000.json"]) == b"s3cret"
    assert secret["metadata"]["name"] == NAME
    (owner,) = secret["metadata"]["ownerReferences"]
    assert owner["uid"] == pod["metadata"]["uid"]
    known.kill(NAME)
    assert not fake.objects["secrets"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", None])
def test_hand_over_too_late(fake: FakeKubernetes, tmp_path: Path, phase: str | None) -> None:
    """A driver that has ended gets no Secret, which nobody would remove."""
    (tmp_path / "s").write_text("s3cret")
    if phase is not None:
        driver(fake)
        fake.set_status(NAME, phase)

    kubernetes(fake).hand_over(NAME, {"secrets-000.json": tmp_path / "s"})

    assert not fake.objects["secrets"]


def test_hand_over_nothing(fake: FakeKubernetes) -> None:
    """Without secrets, no right to create them is needed."""
    driver(fake)

    kubernetes(fake).hand_over(NAME, {})

    assert fake.requests == []


def test_clean_up(fake: FakeKubernetes, tmp_path: Path) -> None:
    """The Secret is deleted; the pod stays, for its log."""
    driver(fake)
    (tmp_path / "s").write_text("s3cret")
    known = kubernetes(fake)
    known.hand_over(NAME, {"s": tmp_path / "s"})

    known.clean_up(NAME)
    known.clean_up(NAME)

    assert (list(fake.pods), fake.objects["secrets"]) == ([NAME], {})


def test_options(fake: FakeKubernetes) -> None:
    """A driver's pod has a name and labels, a Secret, and a folder for our code."""
    options = kubernetes(fake).options(RUN, ["kafka-drain", RUN], {"s": Path("s")}, "/archive/runs")

    assert options[::2] == ["--conf"] * 6
    assert dict(each.split("=", 1) for each in options[1::2]) == {
        "spark.kubernetes.driver.pod.name": NAME,
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.driver.label.kafka-drain/kafka-drain": "true",
        f"spark.kubernetes.driver.label.kafka-drain/{RUN}": "true",
        f"spark.kubernetes.driver.secrets.{NAME}": "/etc/kafka-drain",
        "spark.kubernetes.file.upload.path": "file:///archive/runs",
    }


def test_options_fewer(fake: FakeKubernetes) -> None:
    """Without secrets none are mounted; an upload path of the user's is kept."""
    known = kubernetes(fake, **{"file.upload.path": "s3a://b/up"})

    options = known.options(RUN, [RUN], {}, "s3a://b/archive/runs")

    assert not [each for each in options if ".secrets." in each or "upload" in each]
    options = kubernetes(fake).options(RUN, [RUN], {}, "s3a://b/archive/runs")
    assert options[-1] == "spark.kubernetes.file.upload.path=s3a://b/archive/runs"


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({"container.image": ""}, "needs spark.kubernetes.container.image in spark_conf"),
        ({"driver.pod.name": "x"}, "leave out spark.kubernetes.driver.pod.name"),
        ({"submission.waitAppCompletion": "true"}, "leave out spark.kubernetes.submission.wait"),
    ],
)
def test_options_refused(fake: FakeKubernetes, conf: dict[str, str], says: str) -> None:
    """An image is needed; what drivers are found by is kafka-drain's."""
    with pytest.raises(ConfigError, match=says):
        kubernetes(fake, **conf).options(RUN, [RUN], {}, "/a")


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        (401, ConfigError, "answers 401 .*refused; kafka-drain needs the rights to list"),
        (403, ConfigError, "answers 403 .* in the namespace default"),
        (429, NoAnswerError, "answers 429 .*: refused"),
        (500, NoAnswerError, "answers 500 .*: refused"),
    ],
)
def test_api_refuses(fake: FakeKubernetes, status: int, error: type[Exception], says: str) -> None:
    """Missing rights are said; what may pass is no end of an application."""
    known = kubernetes(fake)
    fake.refuses = status

    for ask in (known.tagged, known.application, known.kill, known.clean_up):
        with pytest.raises(error, match=says):
            ask(NAME)  # type: ignore[operator]


@pytest.mark.parametrize("said", ["<html>", [], {}, {"items": [{}]}, {"items": 1}, None])
def test_api_other_answers(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    """What isn't an API server's answer, such as a proxy's, is none: the application goes on."""
    known = kubernetes(fake)
    data = said.encode() if isinstance(said, str) else json.dumps(said).encode()
    answer = SimpleNamespace(status=200, reason="OK", data=data)
    for name in ("list_namespaced_pod", "read_namespaced_pod"):
        monkeypatch.setattr(known.api, name, lambda *_, **__: answer)

    with pytest.raises(NoAnswerError, match="isn't an API server's"):
        known.application(NAME)
    with pytest.raises(NoAnswerError, match="isn't an API server's"):
        known.tagged(RUN)


@pytest.mark.parametrize("said", [b"<html>404</html>", b'{"message": "no Route matched"}', b"[]"])
def test_api_not_found_by_another(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """Where a proxy finds no API server, no pod is gone: its driver goes on."""
    known = kubernetes(fake)
    answer = SimpleNamespace(status=404, reason="Not Found", data=said)
    for name in ("list_namespaced_pod", "read_namespaced_pod"):
        monkeypatch.setattr(known.api, name, lambda *_, **__: answer)

    for ask, named in ((known.tagged, RUN), (known.application, NAME)):
        with pytest.raises(NoAnswerError, match="isn't an API server's"):
            ask(named)  # type: ignore[operator]


def test_api_silent(fake: FakeKubernetes) -> None:
    """A server that doesn't listen isn't the end of an application."""
    known = Kubernetes.of(SparkConnection("k8s://http://127.0.0.1:1", deploy_mode="cluster"), {})

    with pytest.raises(NoAnswerError, match=r"doesn't answer: .*refused"):
        known.application(NAME)


def test_api_hangs(fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts connections and never answers is given up after two requests."""
    monkeypatch.setattr("kafka_drain.spark.kubernetes._SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        master = f"k8s://http://127.0.0.1:{hanging.getsockname()[1]}"
        known = Kubernetes.of(SparkConnection(master, deploy_mode="cluster"), {})

        with pytest.raises(NoAnswerError, match=r"doesn't answer: .*timed out"):
            known.application(NAME)

        hanging.settimeout(0.2)
        connections = 0
        with suppress(TimeoutError):
            while True:
                hanging.accept()[0].close()
                connections += 1
    assert connections == 2


def test_namespace(fake: FakeKubernetes) -> None:
    """It comes from the connection; a pipeline's configuration goes before."""
    options = ["--queue", "q", "--conf", "spark.kubernetes.namespace=one"]
    connection = SparkConnection(fake.master, options, deploy_mode="cluster")

    assert Kubernetes.of(connection, {}).namespace == "one"
    given = {"spark.kubernetes.namespace": "two"}
    assert Kubernetes.of(connection, given).namespace == "two"
    assert kubernetes(fake).namespace == "default"


def test_login_missing(fake: FakeKubernetes) -> None:
    """Over HTTPS, a login is needed; the message says which there are."""
    connection = SparkConnection("k8s://127.0.0.1:6443", deploy_mode="cluster")

    with pytest.raises(ConfigError, match=r"no login .* https://127.0.0.1:6443: .*KUBECONFIG"):
        Kubernetes.of(connection, {})


def test_login_by_token_file(fake: FakeKubernetes, tmp_path: Path) -> None:
    """spark-submit's own files are used, which contain what no command line should."""
    (tmp_path / "token").write_text("s3cret\n")
    files = {"oauthTokenFile": "token", "caCertFile": "ca", "clientKeyFile": "key"}
    conf = {
        f"spark.kubernetes.authenticate.submission.{name}": str(tmp_path / file)
        for name, file in files.items()
    }

    found = Kubernetes.of(SparkConnection("k8s://h:443", deploy_mode="cluster"), conf).api

    settings = found.api_client.configuration
    assert "Bearer s3cret" in str(settings.auth_settings())
    assert (settings.host, settings.ssl_ca_cert) == ("https://h:443", str(tmp_path / "ca"))
    assert settings.key_file == str(tmp_path / "key")


def test_login_by_token_file_renewed(
    fake: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request has the file's token of that moment, also where a kubeconfig has a login."""
    user = {"name": "u", "user": {"token": "the kubeconfig's"}}
    config = {
        "current-context": "u",
        "clusters": [{"name": "c", "cluster": {"server": "https://elsewhere"}}],
        "users": [user],
        "contexts": [{"name": "u", "context": {"cluster": "c", "user": "u"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    token = tmp_path / "token"
    token.write_text("first\n")
    known = kubernetes(fake, **{"authenticate.submission.oauthTokenFile": str(token)})

    known.tagged(RUN)
    token.write_text("second\n")
    known.tagged(RUN)
    token.unlink()
    # As while the kubelet replaces it.
    with pytest.raises(NoAnswerError, match="token"):
        known.tagged(RUN)

    assert fake.logins == ["Bearer first", "Bearer second"]


def test_login_by_missing_file(fake: FakeKubernetes) -> None:
    """A token file that can't be read is named."""
    conf = {"spark.kubernetes.authenticate.submission.oauthTokenFile": "/nowhere/token"}

    with pytest.raises(ConfigError, match="oauthTokenFile: /nowhere/token can't be read"):
        Kubernetes.of(SparkConnection("k8s://h:443", deploy_mode="cluster"), conf)


def test_login_by_kubeconfig(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A kubeconfig's context gives the login; the master gives the address, as for spark-submit."""
    one, two = ({"name": name, "user": {"token": f"{name}-token"}} for name in ("one", "two"))
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "https://elsewhere"}}],
        "users": [one, two],
        "contexts": [
            {"name": name, "context": {"cluster": "c", "user": name}} for name in ("one", "two")
        ],
    }
    (tmp_path / "config").write_text(json.dumps(content))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    for context, name in ((None, "one"), ("two", "two")):
        conf = {"spark.kubernetes.context": context} if context else {}
        found = Kubernetes.of(SparkConnection(fake.master, deploy_mode="cluster"), conf).api
        settings = found.api_client.configuration
        for _ in range(3):
            assert f"{name}-token" in str(settings.auth_settings())
            assert settings.host == fake.address


def test_package_missing(fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the message says what to install."""
    monkeypatch.setitem(sys.modules, "kubernetes", None)

    with pytest.raises(MachineError, match=r"install kafka-drain\[kubernetes\]"):
        kubernetes(fake)


def test_login_in_pod(fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod, the service account's files are read; without them, that is said."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert not os.path.exists("/var/run/secrets/kubernetes.io")

    with pytest.raises(ConfigError, match="Service token file"):
        Kubernetes.of(SparkConnection("k8s://h:443", deploy_mode="cluster"), {})


def test_login_by_client_certificate(fake: FakeKubernetes) -> None:
    """A certificate is a login, without any token or kubeconfig."""
    names = {"clientCertFile": "cert_file", "clientKeyFile": "key_file"}
    conf = {f"spark.kubernetes.authenticate.submission.{name}": f"/{name}" for name in names}

    found = Kubernetes.of(SparkConnection("k8s://h:443", deploy_mode="cluster"), conf).api

    settings = found.api_client.configuration
    assert {name: getattr(settings, ours) for name, ours in names.items()} == {
        name: f"/{name}" for name in names
    }


def test_pod_unknown_ended(fake: FakeKubernetes) -> None:
    """A driver that had ended before its node was lost has ended."""
    driver(fake)
    fake.set_status(NAME, "Unknown", **container(terminated={"exitCode": 0}))

    pod = kubernetes(fake).application(NAME)

    assert (pod.is_alive, pod.has_succeeded) == (False, True)

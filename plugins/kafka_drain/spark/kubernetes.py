"""Drivers in Kubernetes, through its API: find their pods by label, ask for their state, end them.

Needs the package `kubernetes`, Kubernetes's own client, which reads kubeconfig files and runs the
login programs that they name.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark.cluster_manager import NoAnswerError
from kafka_drain.spark.place import SparkConnection

_SECONDS = 7.0
#: The name of the driver's container, unless a pod template gives it another one.
_CONTAINER = "spark-kubernetes-driver"
#: A label is `kafka-drain/<tag>`, with this value.
_PREFIX, _SET = "kafka-drain/", "true"

_CONF = "spark.kubernetes."
_LOGIN = f"{_CONF}authenticate.submission."
#: spark-submit's files for a login, and what Kubernetes's client calls them.
_LOGIN_FILES = {
    "caCertFile": "ssl_ca_cert",
    "clientCertFile": "cert_file",
    "clientKeyFile": "key_file",
}
#: Settings by which kafka-drain finds a pod.
_OURS = (f"{_CONF}driver.pod.name", f"{_CONF}submission.waitAppCompletion")
_IMAGES = (f"{_CONF}container.image", f"{_CONF}driver.container.image")


@dataclass(frozen=True)
class DriverPod:
    """A driver's pod according to the API.

    Attributes:
        id: Its name.
        phase: `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`, or `Gone` when it no longer
            exists.
        exit_code: That of the driver's container when it has ended: sidecars may live on.
        why: Why it waits or failed, if Kubernetes knows.
        uid: Identifies it among pods of the same name.
    """

    id: str
    namespace: str
    phase: str
    exit_code: int | None = None
    why: str = ""
    uid: str = ""
    tags: frozenset[str] = frozenset()

    @property
    def is_alive(self) -> bool:
        """Whether it hasn't ended."""
        return self.phase in ("Pending", "Running", "Unknown") and self.exit_code is None

    @property
    def has_succeeded(self) -> bool | None:
        """Whether it has ended without an error; None if it is gone."""
        if self.phase == "Gone":
            return None
        return not self.is_alive and (
            self.phase == "Succeeded" if self.exit_code is None else self.exit_code == 0
        )

    @property
    def waits_for(self) -> str:
        """Why it doesn't start, if Kubernetes says so."""
        return self.why if self.phase == "Pending" else ""

    @property
    def outcome(self) -> str:
        """Its phase, reason and exit code."""
        code = "" if self.exit_code is None else f", exit code {self.exit_code}"
        return f"{self.phase} {self.why[:500]!r}{code}"

    @property
    def kill_command(self) -> str:
        """The command that ends it."""
        return f"kubectl delete pod --namespace {self.namespace} {self.id}"

    @property
    def log_command(self) -> str:
        """The command that shows its log."""
        return f"kubectl logs --namespace {self.namespace} {self.id}"

    @classmethod
    def from_dict(cls, pod: Mapping[str, Any]) -> DriverPod:
        """Return the pod of an answer in JSON."""
        meta, status = pod["metadata"], pod.get("status") or {}
        containers = status.get("containerStatuses") or []
        named = [one for one in containers if one["name"] == _CONTAINER] or containers
        state = (named[0].get("state") or {}) if named else {}
        ended, waiting = state.get("terminated") or {}, state.get("waiting") or {}
        unmet = [one for one in status.get("conditions") or [] if one.get("status") == "False"]
        # The pod's own reason is an eviction or a lost node.
        why = next(filter(None, map(_reason, [status, ended, waiting, *unmet])), "")
        return cls(
            id=meta["name"],
            namespace=meta["namespace"],
            phase=status.get("phase") or "Pending",
            exit_code=ended.get("exitCode"),
            why=why,
            uid=meta.get("uid", ""),
            tags=frozenset(
                label.removeprefix(_PREFIX)
                for label in meta.get("labels") or {}
                if label.startswith(_PREFIX)
            ),
        )


def _reason(state: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (state.get("reason"), (state.get("message") or "").strip())))


@dataclass(frozen=True)
class Kubernetes:
    """A namespace of a Kubernetes cluster.

    Attributes:
        api: The `CoreV1Api` of Kubernetes's client.
        namespace: The namespace of the drivers.
        conf: Spark's configuration.
    """

    api: Any
    namespace: str = "default"
    conf: Mapping[str, str] = field(default_factory=dict)
    name: ClassVar[str] = "Kubernetes"
    #: Folder where the driver's pod mounts its Secret.
    secrets_folder: ClassVar[str] = "/etc/kafka-drain"

    @classmethod
    def of(cls, connection: SparkConnection, conf: Mapping[str, str]) -> Kubernetes:
        """Return the one that spark-submit uses.

        Args:
            connection: Names the API server.
            conf: Spark's configuration, with the settings below `spark.kubernetes`.

        Raises:
            MachineError: When the package `kubernetes` isn't installed.
            ConfigError: When neither a service account nor a kubeconfig file is found.
        """
        conf = {**_conf_in(connection.options), **conf}
        return cls(_api(connection.master, conf), conf.get(f"{_CONF}namespace") or "default", conf)

    def tagged(self, tag: str, *, alive: bool = True) -> list[DriverPod]:
        """Return the drivers with a tag: those that haven't ended, or all that there are.

        Raises:
            NoAnswerError: When the API server doesn't answer.
            ConfigError: When it refuses.
        """
        selector = f"{_PREFIX}{tag}={_SET},spark-role=driver"
        pods = self._ask(
            self.api.list_namespaced_pod,
            self.namespace,
            read=lambda answer: [DriverPod.from_dict(pod) for pod in answer["items"] or []],
            label_selector=selector,
        )
        return [pod for pod in pods or [] if pod.is_alive or not alive]

    def application(self, application_id: str) -> DriverPod:
        """Return a driver's pod, also when it is gone.

        Raises:
            NoAnswerError: When the API server doesn't answer, or the pod's node doesn't.
            ConfigError: When it refuses.
        """
        pod: DriverPod | None = self._ask(
            self.api.read_namespaced_pod,
            application_id,
            self.namespace,
            read=DriverPod.from_dict,
        )
        if pod is None:
            return DriverPod(application_id, self.namespace, "Gone", why="the pod was deleted")
        if pod.is_alive and pod.phase == "Unknown":
            raise NoAnswerError(f"the node of pod {pod.id} doesn't answer: {pod.why}")
        return pod

    def kill(self, application_id: str) -> None:
        """Delete a driver's pod; Kubernetes deletes its executors and its Secret.

        Raises:
            NoAnswerError: When the API server doesn't answer.
            ConfigError: When it refuses.
        """
        self._ask(self.api.delete_namespaced_pod, application_id, self.namespace)

    def options(
        self, run: str, tags: Sequence[str], secrets: Mapping[str, Path], code: str
    ) -> list[str]:
        """Return the options that name and label the driver's pod, and mount its Secret.

        Raises:
            ConfigError: When no image is configured, or a setting that is kafka-drain's.
        """
        if not any(self.conf.get(name) for name in _IMAGES):
            raise ConfigError(
                f"deploy mode cluster on Kubernetes needs {_IMAGES[0]} in spark_conf: an image "
                "with Spark, and a Python that has pydantic and universal-pathlib"
            )
        if taken := [name for name in _OURS if name in self.conf]:
            raise ConfigError(f"leave out {taken[0]}: kafka-drain sets it, to find the driver")
        pod = _pod_name(run)
        conf = {
            _OURS[0]: pod,
            _OURS[1]: "false",
            **{f"{_CONF}driver.label.{_PREFIX}{tag}": _SET for tag in tags},
        }
        if secrets:
            conf[f"{_CONF}driver.secrets.{pod}"] = self.secrets_folder
        if not self.conf.get(f"{_CONF}file.upload.path"):
            conf[f"{_CONF}file.upload.path"] = f"file://{code}" if code.startswith("/") else code
        return [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]

    def hand_over(self, application_id: str, secrets: Mapping[str, Path]) -> None:
        """Create the driver's Secret unless it exists; the pod waits for it.

        It belongs to the pod, so it can't outlive that, however this process ends.

        Raises:
            NoAnswerError: When the API server doesn't answer.
            ConfigError: When it refuses.
        """
        pod = self.application(application_id) if secrets else None
        if pod is None or not pod.is_alive:
            return
        data = {
            name: base64.b64encode(path.read_bytes()).decode() for name, path in secrets.items()
        }
        self._ask(
            self.api.create_namespaced_secret,
            self.namespace,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": pod.id,
                    "labels": {f"{_PREFIX}{tag}": _SET for tag in sorted(pod.tags)},
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": pod.id, "uid": pod.uid}
                    ],
                },
                "type": "Opaque",
                "data": data,
            },
        )

    def clean_up(self, application_id: str) -> None:
        """Delete the Secret of a driver that has ended; its pod stays, for its log.

        Raises:
            NoAnswerError: When the API server doesn't answer.
            ConfigError: When it refuses.
        """
        self._ask(self.api.delete_namespaced_secret, application_id, self.namespace)

    def _ask(
        self,
        call: Any,
        *arguments: Any,
        read: Callable[[Any], Any] = lambda answer: answer,
        **options: Any,
    ) -> Any:
        """Return the answer to a request; None if its object doesn't exist, or does already.

        Args:
            read: Reads an answer in JSON.
        """
        from urllib3.exceptions import HTTPError

        try:
            answer = call(*arguments, _preload_content=False, _request_timeout=_SECONDS, **options)
            status, reason, data = answer.status, answer.reason, answer.data
        except (HTTPError, OSError) as error:
            raise NoAnswerError(f"the Kubernetes API server doesn't answer: {error}") from error
        except Exception as error:
            # The client's ApiException, whose module differs between its versions.
            status = getattr(error, "status", None)
            if not status:
                raise
            reason, data = getattr(error, "reason", ""), getattr(error, "body", b"")
        if status in (404, 409) and _is_status(data):
            return None
        said = f"the Kubernetes API server answers {status} {reason}: {_message(data)}"
        if status in (401, 403):
            raise ConfigError(
                f"{said}; kafka-drain needs the rights to list, get and delete pods, and to create "
                f"and delete secrets, in the namespace {self.namespace}, besides what Spark needs"
            )
        # A proxy's, or another page.
        other = (
            "the Kubernetes API server doesn't answer: what is at its address answers "
            f"{status}, but its answer isn't an API server's"
        )
        if not 200 <= status < 300:
            raise NoAnswerError(other if status in (404, 409) else said)
        try:
            return read(json.loads(data))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise NoAnswerError(other) from error


def _is_status(data: bytes | str) -> bool:
    """Return whether an answer that is an error is an API server's."""
    try:
        return bool(json.loads(data)["kind"] == "Status")
    except (ValueError, KeyError, TypeError):
        return False


def _message(data: bytes | str) -> str:
    """Return the message of an answer that is an error."""
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return "no reason given"


def _pod_name(run: str) -> str:
    return f"kafka-drain-{run}"


def _conf_in(options: Sequence[str]) -> dict[str, str]:
    """Return the settings among spark-submit's options."""
    given = [value for name, value in pairwise(options) if name == "--conf"]
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def _point_at(configuration: Any, address: str) -> None:
    """Let a configuration name an API server instead of its kubeconfig's, whose login it renews."""
    configuration.host = address
    if renew := configuration.refresh_api_key_hook:

        def renew_there(which: Any) -> None:
            # A kubeconfig's sets both again.
            renew(which)
            which.host, which.refresh_api_key_hook = address, renew_there

        configuration.refresh_api_key_hook = renew_there


def _log_in(configuration: Any, path: str) -> None:
    """Let a configuration log in with a file's token; the kubelet renews that of a pod."""
    token = f"Bearer {Path(path).read_text(encoding='utf-8').strip()}"
    # The client's versions have different names for it.
    configuration.api_key |= {"BearerToken": token, "authorization": token}


def _api(master: str, conf: Mapping[str, str]) -> Any:
    """Return a client for the API server of a master, with the login that spark-submit finds.

    Raises:
        MachineError: When the package `kubernetes` isn't installed.
        ConfigError: When there is no login, or its files can't be read.
    """
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise MachineError(
            f"deploy mode cluster on Kubernetes needs the Python package kubernetes ({error}); "
            "install kafka-drain[kubernetes]"
        ) from error
    address = master.removeprefix("k8s://")
    address = address if "://" in address else f"https://{address}"
    found: Any = client.Configuration()
    files = {name: conf[_LOGIN + name] for name in _LOGIN_FILES if conf.get(_LOGIN + name)}
    has_login = bool(files or conf.get(f"{_LOGIN}oauthTokenFile"))
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=found)
        else:
            # By itself, it would read the variable once, when it is imported.
            path, context = os.environ.get("KUBECONFIG"), conf.get(f"{_CONF}context")
            config.load_kube_config(path, context, found)
    except config.ConfigException as error:
        # A local proxy has a login of its own.
        if not has_login and not address.startswith("http://"):
            raise ConfigError(
                f"there is no login for the Kubernetes API server {address}: {error}; run in a pod "
                f"with a service account, set KUBECONFIG, or set {_LOGIN}oauthTokenFile and "
                f"{_LOGIN}caCertFile in spark_conf"
            ) from error
    _point_at(found, address)
    # By default three, each with the time of the first: of a server that hangs, 40 s in silence.
    found.retries = 1
    for name, path in files.items():
        setattr(found, _LOGIN_FILES[name], path)
    if path := conf.get(f"{_LOGIN}oauthTokenFile"):
        found.refresh_api_key_hook = partial(_log_in, path=path)
        try:
            _log_in(found, path)
        except OSError as error:
            raise ConfigError(f"{_LOGIN}oauthTokenFile: {path} can't be read: {error}") from error
    return client.CoreV1Api(client.ApiClient(found))

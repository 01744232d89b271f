"""A node for the stand-in of Kubernetes: it runs pods of Spark as processes of this machine.

It does what the kubelet and the entry point of Spark's own image do: it waits until what a pod
mounts exists, and starts the driver or the executor with the pod's arguments and environment, and
nothing of this process's environment but Java. It has no network of its own: all pods are at
127.0.0.1, and the driver's Service, which DNS would resolve, is named by that address.
"""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_drain.spark.java import require_java
from kafka_drain.spark.submit import spark_home
from tests.fake_kubernetes import FakeKubernetes, Object

IP = "127.0.0.1"


@dataclass
class Node:
    """Runs the pods of an API server.

    Attributes:
        kubernetes: The API server.
        folder: For volumes and logs.
    """

    kubernetes: FakeKubernetes
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, content: Object) -> None:
        """Start a pod."""
        if content["kind"] == "Pod":
            threading.Thread(target=self._run, args=(content,), daemon=True).start()

    def stop(self, content: Object) -> None:
        """Stop the process of a pod that was deleted."""
        process = self.processes.get(content["metadata"]["name"])
        if process is not None and process.poll() is None:
            process.terminate()

    def kill(self, pod: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a pod's processes."""
        os.killpg(self.processes[pod].pid, how)

    def log(self, pod: str) -> str:
        """Return what a pod has printed."""
        path = self.folder / pod / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(
            f"{path}:\n{path.read_text()[-4000:]}" for path in self.folder.glob("*/log")
        )

    def _run(self, pod: Object) -> None:
        name, (container, *_) = pod["metadata"]["name"], pod["spec"]["containers"]
        folder = self.folder / name
        folder.mkdir()
        mounts = self._mount(pod, container, folder)
        if name not in self.kubernetes.pods:
            return
        variables = {each["name"]: _value(each, name) for each in container.get("env", [])}
        variables = {key: _moved(value, mounts) for key, value in variables.items()}
        arguments = [_moved(each, mounts) for each in container["args"]]
        for spec in (Path(each) / "spec.json" for each in arguments):
            if spec.is_file():
                # It names the Secret's mount.
                _move_in(spec, '"', mounts)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                _command(arguments, variables),
                env=variables
                | {"JAVA_HOME": str(_java().parents[1]), "PATH": os.environ["PATH"]}
                | {"SPARK_HOME": str(spark_home()), "HOME": str(folder)},
                cwd=folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.processes[name] = process
        status = {"podIP": IP, "hostIP": IP, "startTime": "2026-01-01T00:00:00Z"}
        state = {"name": container["name"], "ready": True, "restartCount": 0, "image": "spark"}
        state |= {"imageID": "", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        ready = {"type": "Ready", "status": "True"}
        self.kubernetes.set_status(
            name, "Running", **status, containerStatuses=[state], conditions=[ready]
        )
        code = process.wait()
        state["state"] = {
            "terminated": {"exitCode": code % 256, "reason": "Error" if code else "Completed"}
        }
        self.kubernetes.set_status(
            name, "Failed" if code else "Succeeded", **status, containerStatuses=[state]
        )

    def _mount(self, pod: Object, container: Object, folder: Path) -> dict[str, str]:
        """Create a pod's volumes when all that they hold exists; return their folders by path."""
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", [])}
        mounts = {}
        for mount in container.get("volumeMounts", []):
            volume, local = volumes[mount["name"]], folder / mount["name"]
            if "hostPath" in volume:
                mounts[mount["mountPath"]] = volume["hostPath"]["path"]
                continue
            local.mkdir(exist_ok=True)
            mounts[mount["mountPath"]] = str(local)
            for file, data in self._data(pod, volume):
                (local / file).write_bytes(data)
        for properties in folder.glob("*/spark.properties"):
            _move_in(properties, "=", mounts)
        return mounts

    def _data(self, pod: Object, volume: Object) -> Iterator[tuple[str, bytes]]:
        for kind, key, named in (
            ("configmaps", "configMap", "name"),
            ("secrets", "secret", "secretName"),
        ):
            if key not in volume:
                continue
            while (found := self.kubernetes.objects[kind].get(volume[key][named])) is None:
                if pod["metadata"]["name"] not in self.kubernetes.pods:
                    return
                time.sleep(0.05)
            names = {each["key"]: each["path"] for each in volume[key].get("items", [])}
            for file, text in found["data"].items():
                file = names.get(file, file)
                if kind == "secrets":
                    yield file, base64.b64decode(text)
                else:
                    yield file, re.sub(r"(spark.driver.host=).*", rf"\g<1>{IP}", text).encode()


def _java() -> Path:
    return require_java().path.resolve()


def _value(variable: dict[str, Any], pod: str) -> str:
    if "valueFrom" in variable:
        return {"status.podIP": IP, "metadata.name": pod}[
            variable["valueFrom"]["fieldRef"]["fieldPath"]
        ]
    return str(variable.get("value", ""))


def _moved(text: str, mounts: dict[str, str]) -> str:
    for path, folder in mounts.items():
        if text == path or text.startswith(f"{path}/"):
            return folder + text.removeprefix(path)
    return text


def _move_in(file: Path, before: str, mounts: dict[str, str]) -> None:
    text = file.read_text()
    for path, folder in mounts.items():
        text = text.replace(f"{before}{path}/", f"{before}{folder}/")
    file.write_text(text)


def _command(arguments: list[str], variables: dict[str, str]) -> list[str]:
    """Return what the entry point of Spark's image runs."""
    role, *rest = arguments
    if role == "driver":
        variables.setdefault("PYSPARK_PYTHON", sys.executable)
        bind = ["--conf", f"spark.driver.bindAddress={IP}", "--deploy-mode", "client"]
        return [str(spark_home() / "bin/spark-submit"), *bind, *rest]
    options = [value for key, value in variables.items() if key.startswith("SPARK_JAVA_OPT_")]
    given = {
        "--driver-url": "SPARK_DRIVER_URL",
        "--executor-id": "SPARK_EXECUTOR_ID",
        "--cores": "SPARK_EXECUTOR_CORES",
        "--app-id": "SPARK_APPLICATION_ID",
        "--hostname": "SPARK_EXECUTOR_POD_IP",
        "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "--podName": "SPARK_EXECUTOR_POD_NAME",
    }
    return [
        str(_java()),
        *options,
        f"-Xmx{variables['SPARK_EXECUTOR_MEMORY']}",
        *("-cp", f"{spark_home()}/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *(part for option, name in given.items() for part in (option, variables[name])),
    ]


@contextmanager
def node(kubernetes: FakeKubernetes, folder: Path) -> Iterator[Node]:
    """Run the pods that are created; no process is left at the end."""
    running = Node(kubernetes, folder)
    kubernetes.created, kubernetes.deleted = running.start, running.stop
    try:
        yield running
    finally:
        for process in running.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

"""Cluster mode on Kubernetes: Spark's own client and scheduler, a stand-in for API server and node.

Not a real cluster: `tests.fake_kubernetes` checks what is created against Kubernetes's JSON schema,
and `tests.kubernetes_node` runs the pods as processes. The archive is a folder that all share.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_drain.spark.run_folder import NAME as RUNS
from tests.fake_kubernetes import FakeKubernetes, fake_kubernetes
from tests.faults.injection import wait_for
from tests.filled_topic import RECORDS, assert_exact
from tests.kubernetes_node import Node, node
from tests.spark_connect import environment

pytestmark = [pytest.mark.integration, pytest.mark.kubernetes]

PATIENCE = 300.0
SLOW = ("--source-option", "maxOffsetsPerTrigger=40")
BATCHES = RECORDS // 40


class Cluster:
    """An API server and a node, and the commands that use them.

    Args:
        fake: The API server.
        running: The node.
        folder: For a token and pod templates.
        servers: Kafka's bootstrap servers.
    """

    def __init__(self, fake: FakeKubernetes, running: Node, folder: Path, servers: str) -> None:
        self.fake, self.node = fake, running
        (folder / "token").write_text("token")
        # As docs/engines.md has it, with a folder of this machine in the place of a claim.
        shared = {"name": "archives", "hostPath": {"path": str(folder)}}
        mount = {"name": "archives", "mountPath": str(folder)}
        container = {"name": "spark", "volumeMounts": [mount]}
        spec = {"containers": [container], "volumes": [shared]}
        template = folder / "pod.yaml"
        template.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "spec": spec}))
        k8s = "spark.kubernetes"
        conf = {
            f"{k8s}.container.image": "spark",
            f"{k8s}.driver.podTemplateFile": template,
            f"{k8s}.executor.podTemplateFile": template,
            "spark.pyspark.python": sys.executable,
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "600m",
            # In the place of the cluster's DNS, service account and watches.
            f"{k8s}.driver.master": fake.address,
            f"{k8s}.authenticate.driver.mounted.oauthTokenFile": folder / "token",
            f"{k8s}.executor.enableApiWatcher": "false",
            f"{k8s}.executor.apiPollingInterval": "1s",
        }
        given = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        where = ("--master", fake.master, "--deploy-mode", "cluster")
        self.options = ["--bootstrap-servers", servers, *where, *given]

    def start(self, *words: object) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "kafka_drain.cli", *map(str, words), *self.options],
            env=environment(KUBECONFIG="/nowhere"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def command(self, *words: object, code: int = 0) -> tuple[str, str]:
        """Run a command; return what it printed."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, f"{err}\n{self.node.logs()}"
        return out, err

    def drivers(self) -> list[str]:
        """Return the drivers' pods, the oldest first."""
        selected = self.fake.selected("pods", "spark-role=driver")
        return sorted(pod["metadata"]["name"] for pod in selected)

    def phase(self, pod: str) -> str:
        """Return the phase of a pod."""
        return str(self.fake.pods[pod]["status"]["phase"])


@pytest.fixture
def cluster_of_pods(tmp_path: Path, bootstrap_servers: str) -> Iterator[Cluster]:
    """A stand-in for Kubernetes that runs its pods."""
    (tmp_path / "pods").mkdir()
    with fake_kubernetes() as fake, node(fake, tmp_path / "pods") as running:
        yield Cluster(fake, running, tmp_path, bootstrap_servers)


def batches(archive: Path) -> int:
    return len([*archive.glob("generations/0001/checkpoint/commits/[0-9]*")])


def start_until_mid_query(cluster: Cluster, words: list[object], archive: Path) -> Any:
    """Start a slow drain, and wait until it is in mid-query."""
    process = cluster.start(*words)
    wait_for(
        lambda: batches(archive) > 1 or process.poll() is not None, "batches", patience=PATIENCE
    )
    assert process.poll() is None, f"{process.communicate()}\n{cluster.node.logs()}"
    return process


def test_drain_and_republish(
    cluster_of_pods: Cluster, topic: str, tmp_path: Path, cluster: Any, read: Any
) -> None:
    """A drain and both ways of a republish, with driver and executors in pods."""
    archive = tmp_path / "archive"

    out, err = cluster_of_pods.command("drain", archive, "--topic", topic, "--json")

    assert json.loads(out)["records"] == RECORDS
    assert f"{RECORDS:,} of {RECORDS:,} offsets (100 %)" in err
    (driver,) = cluster_of_pods.drivers()
    assert cluster_of_pods.phase(driver) == "Succeeded"
    assert_exact(archive, cluster)
    for number, how in enumerate((["--engine", "spark"], ["--delivery", "at_least_once"])):
        target = f"{topic}.copy{number}"
        sending = ("--target-topic", target, "--create-target", "--apply")
        cluster_of_pods.command("republish", archive, *sending, *how)
        assert {p: [r[1] for r in rows] for p, rows in read(target).items()} == {
            p: [r[1] for r in rows] for p, rows in read(topic).items()
        }
    assert not [*archive.glob(f"{RUNS}/*")]


def test_worker_killed(cluster_of_pods: Cluster, topic: str, tmp_path: Path, cluster: Any) -> None:
    """The worker is killed in mid-query: the retry follows the same pod to its end."""
    archive = tmp_path / "archive"
    words = ["drain", archive, "--topic", topic, "--json", *SLOW]
    process = start_until_mid_query(cluster_of_pods, words, archive)
    (driver,) = cluster_of_pods.drivers()

    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    out, _ = cluster_of_pods.command(*words)
    assert json.loads(out)["records"] == RECORDS
    assert cluster_of_pods.drivers() == [driver]
    assert_exact(archive, cluster)


def test_driver_evicted(cluster_of_pods: Cluster, topic: str, tmp_path: Path, cluster: Any) -> None:
    """The driver's pod is deleted in mid-query: the drain fails, and the next one resumes."""
    archive = tmp_path / "archive"
    words = ["drain", archive, "--topic", topic]
    process = start_until_mid_query(cluster_of_pods, [*words, *SLOW], archive)
    (driver,) = cluster_of_pods.drivers()

    cluster_of_pods.node.kill(driver)
    cluster_of_pods.fake.delete("pods", driver)

    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert f"{driver} ended as Gone 'the pod was deleted'" in err
    assert 1 < batches(archive) < BATCHES
    cluster_of_pods.command(*words)
    assert_exact(archive, cluster)


def test_interrupted(cluster_of_pods: Cluster, topic: str, tmp_path: Path, cluster: Any) -> None:
    """Ctrl-C deletes the driver's pod, and with it its executors; the next drain resumes."""
    archive = tmp_path / "archive"
    words = ["drain", archive, "--topic", topic]
    process = start_until_mid_query(cluster_of_pods, [*words, *SLOW], archive)

    os.killpg(process.pid, signal.SIGINT)

    process.communicate(timeout=120)
    assert cluster_of_pods.fake.pods == {}
    assert batches(archive) < BATCHES
    cluster_of_pods.command(*words)
    assert_exact(archive, cluster)

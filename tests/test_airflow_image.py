"""The image on top of Airflow's own, and the pod of the documentation: checks without an engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
from kubernetes.client import ApiClient

from tests.documentation.blocks import blocks
from tests.fake_kubernetes import VERSION

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "docker" / "airflow.Dockerfile").read_text()
INSTRUCTIONS = [line for line in DOCKERFILE.splitlines() if not line.startswith("#")]


def test_image_is_six_instructions() -> None:
    """Root installs Java and nothing else; Airflow's user gets the package and the jars."""
    names = [line.partition(" ")[0] for line in INSTRUCTIONS]

    assert names == ["FROM", "USER", "RUN", "USER", "COPY", "RUN"]
    assert [INSTRUCTIONS[1], INSTRUCTIONS[3]] == ["USER root", "USER airflow"]
    assert INSTRUCTIONS[5].endswith("&& kafka-drain jars")


def test_image_has_tested_versions() -> None:
    """Airflow and pyspark are those that the project is tested with; the extras exist."""
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "requirements.txt").read_text(), re.M))
    project = (ROOT / "pyproject.toml").read_text()
    (extras,) = re.findall(r"whl\)\[([\w,]+)\]", DOCKERFILE)

    assert INSTRUCTIONS[0] == f"FROM apache/airflow:{pins['apache-airflow']}-python3.12"
    assert f"pyspark=={pins['pyspark']} " in INSTRUCTIONS[5]
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.M)


def test_pod_override() -> None:
    """The documented pod is one of Kubernetes's: its executor accepts it, by its schema."""
    (block,) = (b for b in blocks() if b.page == "docs/install.md" and b.language == "python")
    found: dict[str, Any] = {}
    exec(block.text.partition("create_dags(\n")[0].replace(", create_dags", ""), found)

    pod = ApiClient().sanitize_for_serialization(found["pod"])

    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "task"}, **pod}
    kubernetes_validate.validate(document, VERSION, strict=True)
    (container,) = pod["spec"]["containers"]
    assert container["name"] == "base"

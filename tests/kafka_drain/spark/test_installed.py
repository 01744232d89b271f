"""pyspark and pyspark-client: alone, equal, or mixed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_drain.errors import MachineError
from kafka_drain.spark import installed
from kafka_drain.spark.installed import check_versions, installed_versions

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path("/venv/site-packages")


def install(folder: Path, **versions: str) -> Path:
    """Install fakes of packages, by normalized name; return the folder that they share."""
    shared = folder / "pyspark"
    shared.mkdir()
    (shared / "__init__.py").touch()
    for name, version in versions.items():
        (folder / f"{name}-{version}.dist-info").mkdir()
    return shared


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        ({}, {}),
        ({"pyspark": "4.0.2"}, {"pyspark": "4.0.2"}),
        ({"pyspark_client": "4.2.0"}, {"pyspark-client": "4.2.0"}),
        (
            {"pyspark": "4.0.2", "pyspark_client": "4.2.0.dev1"},
            {"pyspark": "4.0.2", "pyspark-client": "4.2.0.dev1"},
        ),
        ({"pyspark": "4.0.2", "pyspark_connect": "4.0.2"}, {"pyspark": "4.0.2"}),
        ({"pyspark_extension": "2.0", "my_pyspark": "1.0"}, {}),
    ],
)
def test_installed_versions(
    installed: dict[str, str], found: dict[str, str], tmp_path: Path
) -> None:
    """Packages are recognized by their metadata; pyspark-connect has no file in the folder."""
    assert installed_versions(install(tmp_path, **installed)) == found


def test_installed_versions_in_a_zip(tmp_path: Path) -> None:
    """Of a pyspark in a zip, as on executors, nothing is known."""
    packed = tmp_path / "pyspark.zip"
    packed.touch()

    assert installed_versions(packed / "pyspark") == {}


@pytest.mark.parametrize("spark", [None, "4.0.2", "4.2.0"])
@pytest.mark.parametrize("client", [None, "4.0.2", "4.2.0"])
def test_check_versions(spark: str | None, client: str | None) -> None:
    """Only both, at different versions, are refused."""
    versions = {"pyspark": spark, "pyspark-client": client}
    found = {name: version for name, version in versions.items() if version}
    if spark is None or client is None or spark == client:
        check_versions(found, FOLDER)
        return

    with pytest.raises(MachineError) as refused:
        check_versions(found, FOLDER)
    for told in (
        f"pyspark {spark} and pyspark-client {client} are both installed in {FOLDER}",
        "`pip uninstall pyspark pyspark-client`",
        f"`pip install pyspark=={spark}`",
        f"`pip install pyspark-client=={client}`",
        "install the same version of both",
    ):
        assert told in str(refused.value)


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that finds its pyspark in a folder."""
    path = os.pathsep.join(map(str, (folder, ROOT / "plugins", ROOT / "spark_jobs")))
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("client", "module", "message"),
    [
        ("4.0.2", "kafka_drain_spark", ""),
        ("4.2.0", "kafka_drain_spark", "pyspark 4.0.2 and pyspark-client 4.2.0 are both"),
        ("4.2.0", "kafka_drain", ""),
    ],
)
def test_import(client: str, module: str, message: str, tmp_path: Path) -> None:
    """Mixed versions are refused when the Spark side is imported, before pyspark is.

    Whoever doesn't use Spark in a process isn't bothered.
    """
    install(tmp_path, pyspark="4.0.2", pyspark_client=client)
    (tmp_path / "pyspark" / "__init__.py").write_text("raise AssertionError('imported')")

    ended = run(f"import {module}", tmp_path)

    assert (ended.returncode != 0) == bool(message)
    assert message in ended.stderr
    assert "imported" not in ended.stderr


def test_spark_home_mixed(tmp_path: Path) -> None:
    """Nothing is prepared for a mixed pyspark: no application, no server, no class archive."""
    install(tmp_path, pyspark="4.0.2", pyspark_client="4.2.0")

    ended = run("from kafka_drain.spark.submit import spark_home; spark_home()", tmp_path)

    assert "MachineError: pyspark 4.0.2 and pyspark-client 4.2.0 are both" in ended.stderr


def test_module_is_light() -> None:
    """The check adds no slow import to the start of each job."""
    source = Path(installed.__file__).read_text()

    assert "from importlib.metadata" not in source

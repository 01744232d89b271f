"""The site is built from the repository, without a warning, and has what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kafka_drain_airflow
from kafka_drain import errors
from kafka_drain.cli.main import COMMANDS
from kafka_drain.findings import Reason
from tests.documentation.blocks import DOCUMENTS, ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site, by the recipe of `make docs`."""
    pytest.importorskip("sphinx", reason="the group docs is in .venv, from Python 3.11 on")
    recipe = (ROOT / "Makefile").read_text().partition("\ndocs: ")[2]
    arguments = re.search(r"-m sphinx (.*?)\n\t@", recipe, flags=re.S)
    assert arguments is not None
    folder = tmp_path_factory.mktemp("site")
    words = arguments[1].replace("\\\n", " ").replace("build/", f"{folder}/").split()
    ended = subprocess.run(
        [sys.executable, "-m", "sphinx", *words],
        cwd=ROOT,
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": "kafka.of.who.builds:9092"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return folder / "site"


def test_site_has_every_document(site: Path) -> None:
    """Each document is a page, which the navigation leads to; the folder opens at the first one."""
    first = (site / "docs" / "index.html").read_text()

    for document in DOCUMENTS:
        page = document.relative_to(ROOT).with_suffix(".html")
        assert (site / page).exists()
        assert f'href="{os.path.relpath(page, "docs")}"' in first or page.name == "index.html"
    assert 'url=docs/index.html"' in (site / "index.html").read_text()


def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """No page takes a script, a style, a font or a picture from another server."""
    loaded = re.compile(
        r'<(?:script|img|iframe|source)[^>]+src="(?:https?:)?//|<link[^>]+href="(?:https?:)?//'
        r"|@import|url\(['\"]?(?:https?:)?//"
    )

    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert not loaded.search(path.read_text()), path


def test_site_has_the_reference(site: Path) -> None:
    """Commands, errors, findings, faults and the names for DAG files are those of the code."""
    commands = (site / "docs" / "reference" / "commands.html").read_text()
    names = (site / "docs" / "reference" / "errors.html").read_text()
    python = (site / "docs" / "reference" / "python.html").read_text()
    validation = (site / "docs" / "validation.html").read_text()
    faults = (site / "docs" / "faults.html").read_text()

    assert [name for name in COMMANDS if f'id="kafka-drain-{name}"' not in commands] == []
    leaves = {*errors.__all__} - {"KafkaDrainError", "TerminalError", "TransientError"}
    assert [name for name in leaves if f'<span class="pre">{name}</span>' not in names] == []
    assert [
        reason.value for reason in Reason if f'<span class="pre">{reason}</span>' not in validation
    ] == []
    assert "<p>Driver killed after files, before the manifest</p>" in faults
    assert [
        name
        for name in kafka_drain_airflow.__all__
        if f'id="kafka_drain_airflow.{name}"' not in python
    ] == []
    assert "kafka.of.who.builds" not in commands

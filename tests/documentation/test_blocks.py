"""Every block of code in the documents is checked, and run where that is possible."""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS, AIRFLOW_V_3_2_PLUS

from tests.documentation.blocks import (
    ROOT,
    RUN_ELSEWHERE,
    Code,
    blocks,
    imports,
    inline_code,
    python_blocks,
)
from tests.documentation.shell import check, check_inline, commands, commands_of
from tests.tables import each_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Run by `tests/integration/test_documentation.py`, on a real archive.
READERS = ("kafka_drain", "kafka_drain_spark")
#: Loaded as DAG files.
DAGS = ("airflow", "kafka_drain_airflow")

# Importing Airflow takes seconds: all questions to it in one process.
ASK_AIRFLOW = """
import contextlib, io, json, sys, warnings
warnings.simplefilter("ignore")
from airflow.cli.cli_parser import get_parser
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # Airflow 2
    from airflow.models.dagbag import DagBag
asked = json.load(sys.stdin)
refused = []
for arguments in asked["commands"]:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            get_parser().parse_args(arguments)
        except SystemExit:
            refused.append([arguments, said.getvalue()])
bags = {path: DagBag(dag_folder=path) for path in asked["files"]}
print("answer:" + json.dumps({
    "refused": refused,
    "errors": {path: list(bag.import_errors.values()) for path, bag in bags.items()},
    "dags": {path: sorted(bag.dags) for path, bag in bags.items()},
}))
"""


def _python(block: Code) -> None:
    compile(block.text, block.place, "exec")
    # Nothing else is run in this process: it may do what it likes.
    if block.page in RUN_ELSEWHERE:
        return
    if not {name.partition(".")[0] for name in imports(block)} & {*READERS, *DAGS}:
        exec(block.text, {})


def _shell(block: Code) -> None:
    for command in commands_of(block):
        check(command.words)


def _sql(block: Code) -> None:
    assert block.page in RUN_ELSEWHERE, f"{block.place}: no test runs it"


def _shown(block: Code) -> None:
    """A drawing, or what a program prints."""


def _built(block: Code) -> None:
    """A directive: the site's build refuses what is wrong with it."""


CHECKS: Mapping[str, Callable[[Code], Any]] = {
    "ini": lambda block: configparser.ConfigParser().read_string(block.text),
    "json": lambda block: json.loads(block.text),
    "python": _python,
    "sh": _shell,
    "sql": _sql,
    "text": _shown,
    "toml": lambda block: tomllib.loads(block.text),
    "yaml": lambda block: yaml.safe_load(block.text),
    "{from-code}": _built,
    "{toctree}": _built,
}


@each_of("block", blocks())
def test_block(block: Code) -> None:
    """A block is of a language that is checked here, and nothing is wrong with it."""
    assert block.language in CHECKS, f"{block.place}: {block.language!r} isn't checked"

    CHECKS[block.language](block)


@pytest.mark.parametrize(("page", "path"), RUN_ELSEWHERE.items())
def test_run_elsewhere(page: str, path: str) -> None:
    """A page that is left out here has tests that are there, and a block of it to run."""
    assert "def test_every_block_is_run" in (ROOT / path).read_text()
    assert any(block.page == page for block in blocks())


@each_of("page", sorted({code.page for code in inline_code()}))
def test_inline_commands(page: str) -> None:
    """A command that a sentence names exists, with its options."""
    for code in inline_code():
        if code.page == page:
            check_inline(code.text)


@pytest.fixture(scope="module")
def airflow_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Airflow says to the commands and DAG files of the documents."""
    folder = tmp_path_factory.mktemp("documents")
    files = []
    for number, block in enumerate(python_blocks(*DAGS)):
        path = folder / f"{number}_{Path(block.page).stem}_line_{block.line}.py"
        path.write_text(block.text)
        files.append(str(path))
    asked = [command.words[1:] for command in commands("airflow")]
    ended = subprocess.run(
        [sys.executable, "-c", ASK_AIRFLOW],
        input=json.dumps({"commands": asked, "files": files}),
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "plugins"), str(ROOT / "spark_jobs"))),
            "AIRFLOW_HOME": str(folder / "home"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    answer = next(line for line in ended.stdout.splitlines() if line.startswith("answer:"))
    answers: dict[str, Any] = json.loads(answer.removeprefix("answer:"))
    return answers


def test_dag_blocks(airflow_answers: dict[str, Any]) -> None:
    """Each block that makes DAGs is a DAG file that Airflow loads, and holds some."""
    assert airflow_answers["errors"]
    assert not any(airflow_answers["errors"].values()), airflow_answers["errors"]
    assert all(airflow_answers["dags"].values()), airflow_answers["dags"]


@pytest.mark.skipif(
    version("apache-airflow").startswith("2."), reason="the documents have Airflow 3's commands"
)
def test_airflow_commands(airflow_answers: dict[str, Any]) -> None:
    """Airflow's parser takes each `airflow` line; 3.0 and 3.1 can't have `dags backfill`."""
    refused = airflow_answers["refused"]
    if AIRFLOW_V_3_0_PLUS and not AIRFLOW_V_3_2_PLUS:
        refused = [each for each in refused if each[0][:2] != ["dags", "backfill"]]
    assert not refused


def test_line_that_checks_a_receipt() -> None:
    """The line that hashes a receipt without this package prints what the receipt ends in."""
    body = b'{"previous":null,"files":[]'
    sha256 = hashlib.sha256(body).hexdigest()
    (line,) = [command for command in commands("python3") if "sha256" in command.words[-1]]

    ended = subprocess.run(
        [sys.executable, *line.words[1:]],
        input=body + b',"sha256":"%s"}\n' % sha256.encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )

    assert ended.stdout.decode().strip() == sha256

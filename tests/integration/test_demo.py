"""`make ui` leaves a broker, Airflow and its PostgreSQL running, used here from a terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS, AIRFLOW_V_3_2_PLUS

from demo.__main__ import ENVIRONMENT, HOURS, ROOT
from demo.broker import KafkaCluster
from demo.broker.ports import free_ports
from demo.local_airflow import LocalAirflow
from demo.local_postgres import LocalPostgres

pytestmark = [pytest.mark.integration, pytest.mark.airflow]


def ask(postgres: LocalPostgres, command: str) -> list[object]:
    """Return the first column of a query's result."""
    engine = sqlalchemy.create_engine(postgres.url)
    with engine.begin() as connection:
        answer = connection.execute(sqlalchemy.text(command))
        rows = [row[0] for row in answer] if answer.returns_rows else []
    engine.dispose()
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The demo's folder, which other users can't access: pytest closes its folders to them."""
    folder = tmp_path_factory.mktemp("demo")
    yield folder
    LocalPostgres(folder / "postgres").remove()


@pytest.mark.parametrize("name", ["plain", "with a space"])
def test_postgres_keeps_its_data(folder: Path, name: str) -> None:
    """A PostgreSQL that was stopped resumes with its data, wherever the checkout is."""
    postgres = LocalPostgres(folder / name / "postgres")
    try:
        with postgres:
            ask(postgres, "CREATE TABLE kept AS SELECT 7 AS number")
            postgres.start()  # already running
            assert postgres.is_running()
        assert not postgres.is_running()
        assert not postgres.stop()

        with LocalPostgres(folder / name / "postgres") as again:
            assert ask(again, "SELECT number FROM kept") == [7]
    finally:
        postgres.stop()
        postgres.remove()


def run(folder: Path, *arguments: str) -> str:
    """Run a command of the demo as `make` does, and return its output."""
    command = [sys.executable, "-m", "demo", *arguments, "--folder", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def said(folder: Path) -> Iterator[str]:
    """The output of `make ui`, with fewer flights, while everything it started is running."""
    try:
        yield run(folder, "ui", "--flights", "3000", "--port", str(free_ports(1, avoid=())[0]))
    finally:
        run(folder, "stop")


@pytest.mark.skipif(
    not AIRFLOW_V_3_2_PLUS, reason="Airflow 3 loads the commands of other packages since 3.2"
)
def test_ui_backfill_at_a_terminal(folder: Path, said: str) -> None:
    """The command that `make ui` prints works as printed, in a shell that sourced its file."""
    (printed,) = (line.strip() for line in said.splitlines() if "airflow dags backfill" in line)
    script = f'. "$1" && airflow dags test drain_flights && {printed}'

    command = ["sh", "-c", script, "sh", str(folder / ENVIRONMENT)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)

    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output[-3000:]
    assert re.search(rf"{HOURS} of {HOURS} runs \(100 %\).* \({HOURS} success\)", output)
    assert "locked" not in output


@pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="the demo's Airflow is of version 3")
def test_ui_again_and_stop(folder: Path, said: str) -> None:
    """A second `make ui` prints the same, whatever its port; `make stop` stops everything."""
    again = run(folder, "ui", "--port", "1")

    assert said.endswith(again.removeprefix("everything is already running\n"))
    assert run(folder, "stop") == "Airflow stopped\nPostgreSQL stopped\nbroker stopped\n"
    assert LocalAirflow(folder, "").pid() is None
    assert not LocalPostgres(folder / "postgres").is_running()
    assert KafkaCluster(folder / "broker").running_nodes() == []
    assert not (folder / ENVIRONMENT).exists()

"""`make coverage`: coverage's figures by file become a table by package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import coverage_table
from scripts.coverage_table import Measured, by_package


def of_file(statements: int, run: int, branches: int = 0, taken: int = 0) -> dict[str, Any]:
    """Return the entry of a file in coverage's JSON."""
    return {
        "summary": {
            "num_statements": statements,
            "covered_lines": run,
            "num_branches": branches,
            "covered_branches": taken,
        }
    }


FILES = {
    "plugins/kafka_drain/errors.py": of_file(10, 10),
    "plugins/kafka_drain/spark/jars/lock.py": of_file(20, 15, 8, 6),
    "plugins/kafka_drain/spark/jars/fetch.py": of_file(30, 25, 2, 2),
    "spark_jobs/kafka_drain_spark/drain.py": of_file(0, 0),
}


def test_by_package() -> None:
    """Files are added up by their package; subpackages are counted separately."""
    assert by_package(FILES) == {
        "kafka_drain": Measured(10, 10, 0, 0),
        "kafka_drain.spark.jars": Measured(50, 40, 10, 8),
        "kafka_drain_spark": Measured(0, 0, 0, 0),
    }


def test_main(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each package has a line, and the last line is the total; an empty package counts as 100 %."""
    path = tmp_path / "coverage.json"
    path.write_text(json.dumps({"files": FILES}))

    assert coverage_table.main([str(path)]) == 0

    _, *lines = (line.split() for line in capsys.readouterr().out.splitlines())
    assert lines == [
        ["kafka_drain", "10", "0", "0", "0", "100.0", "%"],
        ["kafka_drain.spark.jars", "50", "10", "10", "2", "80.0", "%"],
        ["kafka_drain_spark", "0", "0", "0", "0", "100.0", "%"],
        ["all", "60", "10", "10", "2", "82.9", "%"],
    ]

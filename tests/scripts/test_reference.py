"""The content of the site's reference pages."""

from __future__ import annotations

import pytest

from kafka_drain.cli.main import GROUPS
from kafka_drain.findings import Reason
from kafka_drain.gaps import GapReason
from scripts.reference import (
    PARTS,
    commands,
    documents,
    error_types,
    exit_codes,
    faults,
    findings,
    gap_reasons,
    python_names,
    republish_options,
)


def test_commands() -> None:
    """Each command stands in its group with its arguments, their groups and defaults."""
    said = commands()

    headings = [line for line in said.splitlines() if line.startswith("#")]
    assert headings == [
        heading
        for title, names in GROUPS.items()
        for heading in (f"## {title.capitalize()}", *(f"### `kafka-drain {n}`" for n in names))
    ]
    assert "| `archive` | the archive's folder |" in said
    assert r"| `--engine auto\|worker\|spark` | " in said
    assert r"| `--master MASTER` | Spark master (local\[\*\]) |" in said
    assert "How they are sent." in said


def test_error_types() -> None:
    """Each error says whether a retry helps."""
    said = error_types().splitlines()

    assert any(line.startswith("| `LockedError` | yes | when another drain") for line in said)
    assert any(line.startswith("| `ConfigError` | no |") for line in said)
    assert not any("TerminalError" in line for line in said)


def test_exit_codes() -> None:
    """Each code has its meaning."""
    assert "| `2` | wrong usage, configuration or folder |" in exit_codes()


def test_faults() -> None:
    """A row has its numbers, its fault, the outcome and its tests, in a table of Markdown."""
    heads, _, first, *_ = faults().splitlines()

    assert heads == "| numbers | fault | required outcome | tests |"
    assert first.startswith("| 1 | Driver killed after files, before the manifest | ")
    assert first.endswith("`tests/faults/test_driver_killed.py::test_drain_killed_at` |")


def test_findings() -> None:
    """Each finding has its severity, its meaning and its remedy, with commands as code."""
    said = findings()

    assert said.count("\n| `") == len(Reason)
    assert "| `offset_duplicate` | error | an offset is in the committed files more" in said
    assert "run `kafka-drain repair --apply`" in said


def test_gap_reasons() -> None:
    """Each reason of a gap has whether it is harmless, and its meaning."""
    said = gap_reasons()

    assert said.count("\n| `") == len(GapReason)
    for gap in GapReason:
        assert f"| `{gap}` | {'yes' if gap.harmless else 'no'} | {gap.meaning} |" in said


def test_documents() -> None:
    """Each key of a document has its type, whether it is always there, and its meaning."""
    said = documents()

    archive = said.partition("## Archive\n")[2].partition("\n## ")[0]
    assert "| `source.topics` | array | no | Names of topics. |" in archive
    assert "| `immutable.mode` | `governance` or `compliance` | yes | " in archive
    assert "| `partitions[].gaps` | object | yes | " in said
    assert "| `*.partitions` | " in said.partition("## Topics\n")[2].partition("\n## ")[0]
    assert "](" not in said


def test_python_names() -> None:
    """Operators are classes, functions are functions."""
    said = python_names()

    assert ".. autoclass:: kafka_drain_airflow.KafkaDrainOperator" in said
    assert ".. autofunction:: kafka_drain_airflow.create_dags" in said


def test_republish_options() -> None:
    """An option has its name, its flags, its default and its meaning."""
    said = republish_options()

    assert "| `engine` | `--engine` | `auto` | worker: processes on this machine" in said
    assert "| `run_name` | `--run-name`, `--run` |  | Name of the run" in said
    assert "| `topics` | `--topic` |  | Only records of these source topics." in said
    assert "| `records_per_second` | `--records-per-second` | `0` |" in said


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_tables_that_fit(name: str) -> None:
    """Each row of a table has as many cells as its head."""
    cells = 0
    for line in PARTS[name]().replace(r"\|", "").splitlines():
        if not line.startswith("|"):
            cells = 0
            continue
        cells = cells or line.count("|")
        assert line.count("|") == cells, line

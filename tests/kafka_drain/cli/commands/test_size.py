"""`kafka-drain size`: the table that a person reads, and the JSON."""

from __future__ import annotations

import json

import pytest

from kafka_drain.cli.exit_codes import OK, USAGE
from kafka_drain.cli.main import main

LOAD = (
    *("--records-per-second", "100", "--record-bytes", "400"),
    *("--partitions", "6", "--retention-days", "365"),
)


def test_size_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Each figure has a row, and error bars where measurements leave some."""
    assert main(["size", *LOAD]) == OK

    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    found = {row[0]: row[1:] for row in rows if row}
    assert found["cores of a drain"] == ["2", "", ""]
    assert found["receipts"] == ["8,760", "", ""]
    assert found["archive, GB"] == ["801", "303", "1,299"]
    assert found["hours to restore a day, 2 cores"][0] == "0.02"
    assert len(found) == 9


def test_size_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has the load and unrounded figures."""
    assert main(["size", *LOAD, "--minutes", "1440", "--json"]) == OK

    document = json.loads(capsys.readouterr().out)
    assert document["load"]["partitions"] == 6
    assert document["size"]["receipts"] == 365
    assert document["size"]["archive_bytes"]["low"] == pytest.approx(
        100 * 400 * 86_400 * 365 * 0.24
    )


def test_size_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """What can't be is refused by its name."""
    assert main(["size", *LOAD[:-1], "-3"]) == USAGE

    assert "retention_days" in capsys.readouterr().err


def test_size_not_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    """What is no number is said to be none, not to be given twice."""
    assert main(["size", "--records-per-second", "nan", *LOAD[2:]]) == USAGE
    assert "records_per_second = nan is not acceptable" in capsys.readouterr().err

"""The examples of docs/reading.md are run, and give what the archive holds.

Spark's is in `integration/test_readers.py`.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.utils.config import Config

from kafka_drain.cli.main import main
from tests.kafka_drain.golden import END, P0, P1, row
from tests.reading_page import COUNTS, PAGE, PLACE, SEALED, blocks_of, make_archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the page's archives lie."""
    make_archive(tmp_path)
    return tmp_path


def late() -> list[dict[str, Any]]:
    """The records from offset 40 on, of which some have no key, no value or no header."""
    spark = [
        {
            "partition": p,
            "offset": offset,
            "key": b"k%d" % offset,
            "value": b"value %d of partition %d" % (offset, p),
            "headers": [{"key": "n", "value": b"%d" % offset}],
        }
        for p in (0, 1)
        for offset in (40, 41)
    ]
    rows = [row(tp, offset) for tp in (P0, P1) for offset in range(END, SEALED)]
    rows = spark + [{name: found[name] for name in spark[0]} for found in rows]
    return sorted(rows, key=lambda found: (found["partition"], found["offset"]))


def test_late() -> None:
    """The records that the examples find have all that may be missing in one."""
    for name in ("key", "value", "headers"):
        assert {found[name] is None for found in late()} == {True, False}


def test_duckdb_dataset(folder: Path) -> None:
    """DuckDB counts each sealed offset once in the dataset."""
    found = blocks_of("DuckDB")[0].run(folder)

    assert found["counts"].fetchall() == COUNTS


def test_duckdb_paths(folder: Path) -> None:
    """DuckDB's own reader finds the headers of the records that have some."""
    found = blocks_of("DuckDB")[1].run(folder)["headers"]

    expected = [
        (
            record["partition"],
            record["offset"],
            record["key"] and record["key"].decode(),
            header["key"],
            header["value"].decode(),
        )
        for record in late()
        if record["offset"] >= END
        for header in record["headers"] or []
    ]
    rows = [tuple(None if pd.isna(v) else v for v in row) for row in found.itertuples(index=False)]
    assert rows == expected
    assert None in {row[2] for row in rows}


def test_duckdb_sql(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DuckDB without Python reads the list that the command has written."""
    shell, sql = blocks_of("DuckDB")[2:]
    assert (shell.language, sql.language) == ("sh", "sql")
    program, *arguments, arrow, name = shlex.split(shell.text.replace(PLACE, str(folder)))
    assert (program, arrow) == ("kafka-drain", ">")
    monkeypatch.chdir(folder)

    assert main(arguments) == 0
    Path(name).write_text(capsys.readouterr().out)

    with duckdb.connect() as connection:
        assert connection.execute(sql.text).fetchall() == COUNTS


def test_polars_paths(folder: Path) -> None:
    """Polars counts each sealed offset once, and the records without a key."""
    found = blocks_of("Polars")[0].run(folder)["counts"]

    without = sum(offset % 7 == 0 for offset in range(END, SEALED))
    assert found.rows() == [(*counts, without) for counts in COUNTS]


def test_polars_dataset(folder: Path) -> None:
    """Polars finds in the dataset exactly the records from offset 40 on."""
    found = blocks_of("Polars")[1].run(folder)["late"]

    assert found.to_dicts() == [without_key(record) for record in late()]


def without_key(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "key"}


def test_pandas(folder: Path) -> None:
    """Pandas gets the records from offset 40 on, with times in UTC and values as text."""
    found = blocks_of("pandas and pyarrow")[0].run(folder)["late"]

    table = pa.Table.from_pandas(found.drop(columns=["timestamp", "text"]), preserve_index=False)
    rows = sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
    assert rows == late()
    assert str(found["timestamp"].dt.tz) == "UTC"
    texts = {record["value"] and record["value"].decode() for record in late()}
    assert {None if pd.isna(text) else text for text in found["text"]} == texts


def test_pyarrow_batches(folder: Path) -> None:
    """Batch by batch, the bytes of all values are counted."""
    found = blocks_of("pandas and pyarrow")[1].run(folder)["bytes_of_values"]

    spark = [b"value %d of partition 0" % offset for offset in range(END)] * 2
    rows = [row(tp, offset)["value"] for tp in (P0, P1) for offset in range(END, SEALED)]
    assert found == sum(len(value) for value in spark + rows if value is not None)


def test_iceberg(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has exactly the archive's sealed records, for pyiceberg and for DuckDB."""
    # For pyiceberg's SQL catalog. Airflow 2 pins SQLAlchemy 1.4.
    pytest.importorskip("sqlalchemy", minversion="2")
    configuration, command, _, registers, shown, queries = blocks_of("Iceberg")
    (folder / ".pyiceberg.yaml").write_text(configuration.text.replace(PLACE, str(folder)))
    monkeypatch.setenv("PYICEBERG_HOME", str(folder))
    # It is read when pyiceberg is imported.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())

    registering = registers.run(folder)
    registered = registering["found"]
    found = queries.run(folder)
    program, *arguments = shlex.split(command.text.replace(PLACE, str(folder)))
    capsys.readouterr()

    assert (program, main([*arguments, "--json"])) == ("kafka-drain", 0)
    again = json.loads(capsys.readouterr().out)
    assert again["snapshot_id"] == registered.snapshot_id
    assert shown.text.strip() == str(registered).replace(str(registered.snapshot_id), "…")
    assert found["counts"].fetchall() == COUNTS
    rows = [
        {name: record[name] for name in late()[0]} | {"headers": record["headers"] or None}
        for record in found["late"].to_pylist()
    ]
    assert sorted(rows, key=lambda record: (record["partition"], record["offset"])) == late()
    registering["catalog"].close()
    found["flights"].catalog.close()


def test_cursor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each sealed record is in one batch; once it is acknowledged, nothing is new."""
    [block] = blocks_of("Only what is new")
    block.run(folder)

    assert capsys.readouterr().out.split()[1] == str(sum(row[2] for row in COUNTS))
    block.run(folder)
    assert capsys.readouterr().out == ""


def test_every_block_is_run() -> None:
    """No example stands under a heading that no test takes."""
    taken = {"DuckDB": 4, "Polars": 2, "pandas and pyarrow": 2, "Spark": 1, "Iceberg": 6}
    taken["Only what is new"] = 1

    assert {heading: len(blocks_of(heading)) for heading in taken} == taken
    assert PAGE.read_text().count("\n```") == 2 * sum(taken.values())

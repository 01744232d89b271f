"""How Spark is told which files to read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.config.sink_options import MILLISECONDS
from kafka_drain_spark import data_files
from kafka_drain_spark.data_files import (
    BATCH_ROWS,
    COLUMNS,
    as_pattern,
    matches_nothing,
    read_files,
    with_exact_times,
    without_wrong_times,
)


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/data/orders/part-0.parquet", "/data/orders/part-0.parquet"),
        ("/data/größe #1 100%/co:lon/a+b", "/data/größe #1 100%/co:lon/a+b"),
        ("/[prod] {eu}/st*ar?/back\\slash", "/\\[prod\\] \\{eu\\}/st\\*ar\\?/back\\\\slash"),
    ],
)
def test_as_pattern(path: str, pattern: str) -> None:
    """What a pattern would take for more than itself is escaped, nothing else."""
    assert as_pattern(path) == pattern


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/co:lon/part-0.parquet", False),
        ("/data/[prod]/part-0.parquet", False),
        ("/data/[prod]/co:lon/part-0.parquet", True),
        ("/data/co:lon\\back/part-0.parquet", True),
        # The colon of a store's URL is none of a name.
        ("s3a://bucket/[prod]/part-0.parquet", False),
        ("s3a://bucket/[prod]/co:lon/part-0.parquet", True),
    ],
)
def test_matches_nothing(path: str, expected: bool) -> None:
    """A colon is in the way only of a path that Hadoop compares names for."""
    assert matches_nothing(path) is expected


class Rows:
    """Rows that are read: of which files, and what is done with them."""

    def __init__(self, files: list[Any], steps: tuple[Any, ...] = ()) -> None:
        self.files, self.steps = files, steps

    def withColumn(self, name: str, expression: str) -> Rows:
        """Replace a column."""
        return Rows(self.files, (*self.steps, (name, expression)))

    def select(self, *names: str) -> Rows:
        """Choose columns."""
        return Rows(self.files, (*self.steps, names))

    def union(self, other: Rows) -> Rows:
        """Append rows by position."""
        assert self.steps == other.steps
        return Rows([*self.files, *other.files], self.steps)

    def unionByName(self, other: Rows) -> Rows:
        """Append rows by the names of columns."""
        return Rows([*self.files, *other.files], (*self.steps, "and", *other.steps))


class Session:
    """A session whose reader is asked for files."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.asked: dict[str, Any] = {}
        self.readers: list[dict[str, Any]] = []
        self.conf = SimpleNamespace(set=self.settings.__setitem__)

    @property
    def read(self) -> Session:
        """Another reader."""
        self.asked = {}
        self.readers.append(self.asked)
        return self

    def format(self, name: str) -> Session:
        """Note the format."""
        self.asked["format"] = name
        return self

    def schema(self, text: str) -> Session:
        """Note the columns."""
        self.asked["schema"] = text
        return self

    def option(self, name: str, value: str) -> Session:
        """Note an option."""
        self.asked[name] = value
        return self

    def load(self, paths: Any) -> Rows:
        """Return the rows of files."""
        return Rows([paths])

    def createDataFrame(self, rows: list[Any], schema: str) -> tuple[list[Any], str]:
        """Return rows that were made here."""
        return rows, schema


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session without a JVM."""
    monkeypatch.setattr(data_files, "DataFrame", Rows)
    monkeypatch.setattr(data_files, "F", SimpleNamespace(expr=lambda text: text))
    return Session()


def test_read_files(session: Any) -> None:
    """Files are read in their folder's format, all with the same columns and the topic as text."""
    found: Any = read_files(
        session,
        [
            {"data_folder": "/a", "file_format": "parquet", "files": ["/a/1", "/a/2{}"]},
            {"data_folder": "/b", "file_format": "orc", "files": ["/b/3"]},
        ],
        {"date": "string"},
    )

    names = (*COLUMNS, "date")
    assert found.files == [["/a/1", r"/a/2\{\}"], ["/b/3"]]
    exact = ("timestamp", f"coalesce(timestamp_millis({MILLISECONDS}), timestamp)")
    assert found.steps == (names, "and", exact, names)
    parquet, orc = session.readers
    assert (parquet["format"], parquet["basePath"]) == ("parquet", "/a")
    assert (orc["format"], orc["basePath"]) == ("orc", "/b")
    assert "`topic` string" in parquet["schema"]
    assert "`value` binary" in parquet["schema"]
    assert parquet["schema"].endswith("`date` string")
    assert orc["schema"] == f"{parquet['schema']}, `{MILLISECONDS}` bigint"
    assert session.settings == {
        f"spark.sql.{name}.columnarReaderBatchSize": str(BATCH_ROWS) for name in ("parquet", "orc")
    }


@pytest.mark.parametrize("number", [1, 2, 5])
def test_read_files_without_pattern(session: Any, number: int) -> None:
    """If a path would match nothing as a pattern, each file is loaded literally, and once."""
    files = [f"/a/topic=x:y{{/{at}" for at in range(number)]
    source = {"data_folder": "/a", "file_format": "parquet", "files": files}

    found: Any = read_files(session, [source])

    assert found.files == files
    assert session.readers[0]["__globPaths__"] == "false"


def test_read_files_none(session: Any) -> None:
    """Without a file there are the columns, and no rows."""
    rows, schema = read_files(session, [], {"date": "string"})  # type: ignore[misc]

    assert rows == []
    assert schema.startswith("`key` binary, ")
    assert schema.endswith("`topic` string, `date` string")


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_exact_times(session: Any, file_format: str) -> None:
    """Only ORC has a second column for the time, and leaves out times that it would change."""
    rows: Any = Rows([])

    exact: Any = with_exact_times(rows, file_format)
    right: Any = without_wrong_times(rows, file_format)

    is_orc = file_format == "orc"
    assert exact.steps == (((MILLISECONDS, "unix_millis(timestamp)"),) if is_orc else ())
    wrong = f"CASE WHEN {MILLISECONDS} BETWEEN -999 AND -1 THEN NULL ELSE timestamp END"
    assert right.steps == ((("timestamp", wrong),) if is_orc else ())


def test_read_files_of_many_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The depth of a plan doesn't grow with the number of generations and windows."""

    class Deep:
        def __init__(self, depth: int = 0) -> None:
            self.depth = depth

        def unionByName(self, other: Deep) -> Deep:
            return Deep(1 + max(self.depth, other.depth))

    monkeypatch.setattr(data_files, "DataFrame", Deep)
    monkeypatch.setattr(data_files, "_read", lambda *_: Deep())
    spark: Any = SimpleNamespace(conf=SimpleNamespace(set=lambda *_: None))

    found: Any = read_files(spark, [{}] * 1000)

    assert found.depth == 10

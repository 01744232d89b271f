"""`kafka-drain register`: the table of an archive in a catalog that pyiceberg is configured for."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

# For pyiceberg's SQL catalog. Airflow 2 pins SQLAlchemy 1.4.
pytest.importorskip("sqlalchemy", minversion="2")

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from demo.broker.ports import free_ports
from kafka_drain.archive.archive import Archive
from kafka_drain.cli.main import main

SECRET = "s3cr3t"
Output = pytest.CaptureFixture[str]


def configured(folder: Path) -> SqlCatalog:
    return SqlCatalog(
        "archives", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/tables"
    )


@pytest.fixture
def command(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command for a catalog that variables of the environment configure, with a namespace."""
    with closing(configured(tmp_path)) as catalog:
        catalog.create_namespace("kafka")
    configure(
        monkeypatch, uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/tables"
    )
    return ["register", str(archive.root), "--catalog", "archives", "--table", "kafka.flights"]


def configure(monkeypatch: pytest.MonkeyPatch, **properties: str) -> None:
    """Configure catalog `archives` for pyiceberg, which reads its configuration when imported."""
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__ARCHIVES__{name.upper()}", value)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())


def test_register(command: list[str], archive: Archive, capsys: Output) -> None:
    """Text and JSON tell what was added, and a second run adds nothing."""
    assert main([*command, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first | {"snapshot_id": None} == {
        "archive": str(archive.root),
        "catalog": "archives",
        "table": "kafka.flights",
        "added": 28,
        "removed": 0,
        "files": 28,
        "records": 84,
        "snapshot_id": None,
    }

    assert main(command) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["added", "0"] in lines
    assert ["snapshot", "id", str(first["snapshot_id"])] in lines


def test_register_foreign(command: list[str], tmp_path: Path, capsys: Output) -> None:
    """A table with rows that aren't the archive's is refused, and stays as it is."""
    with closing(configured(tmp_path)) as catalog:
        table = catalog.create_table("kafka.flights", pa.schema([("offset", pa.int64())]))
        table.append(pa.table({"offset": pa.array([1], pa.int64())}))

        assert main(command) == 2

        assert "isn't part of the archive" in capsys.readouterr().err
        assert catalog.load_table("kafka.flights").scan().count() == 1


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"--table": "flights"}, 2, "table = 'flights' is not acceptable; accepted: NAMESPACE.TA"),
        ({"--table": "other.flights"}, 2, "no namespace other; create it"),
        ({"--catalog": "strange"}, 2, "catalog 'strange' has no type and uri that pyiceberg knows"),
        ({"archive": "/nowhere"}, 2, "/nowhere doesn't exist"),
    ],
)
def test_register_wrong(
    changed: dict[str, str], code: int, words: str, command: list[str], capsys: Output
) -> None:
    """What is given wrongly is said, with what to do."""
    for name, value in changed.items():
        command[1 if name == "archive" else command.index(name) + 1] = value

    assert main(command) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("properties", "code", "words"),
    [
        ({"uri": f"oracle://me:{SECRET}@host/db"}, 2, "has no type and uri that pyiceberg knows"),
        ({"uri": f"postgresql+nothing://me:{SECRET}@host/db"}, 1, "NoSuchModuleError"),
        ({"uri": f"postgresql+pg8000://me:{SECRET}@host/db"}, 1, "needs another Python package"),
        ({"uri": "sqlite:////nowhere/catalog.db"}, 1, "unable to open database file"),
        ({"uri": "http://127.0.0.1:{port}"}, 1, "doesn't answer as it should: ConnectionError"),
    ],
)
def test_register_catalog_away(
    properties: dict[str, str],
    code: int,
    words: str,
    command: list[str],
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A catalog that can't be used is named, and what is secret in its configuration isn't."""
    (port,) = free_ports(1, ())
    configure(monkeypatch, **{name: each.format(port=port) for name, each in properties.items()})

    assert main(command) == code
    said = capsys.readouterr().err
    assert "catalog 'archives' " in said
    assert words in said
    assert SECRET not in said


def test_register_not_installed(
    command: list[str], capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pyiceberg, the command says which extra has it."""
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    monkeypatch.delitem(sys.modules, "kafka_drain.iceberg", raising=False)

    assert main(command) == 1
    assert "install it alongside kafka-drain, as kafka-drain[iceberg]" in capsys.readouterr().err

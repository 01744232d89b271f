"""Archives in stores, as the pages open them: with the pipeline's own connection."""

from __future__ import annotations

import json
import threading
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands import status
from kafka_drain.clock import utc_now
from kafka_drain.errors import ArchiveError
from kafka_drain.look import MAX_AGE, Look
from kafka_drain.proof.report import note_overview
from kafka_drain.proof.validation import validate_archive
from kafka_drain_airflow.pages import archives
from kafka_drain_airflow.pages.archives import (
    FoundStart,
    find,
    is_damage,
    opened,
    page_beside,
    start_of,
)
from kafka_drain_airflow.pages.database import Place
from tests.kafka_drain.golden import golden_cluster, sealed_copy

ON_S3 = "s3://bucket/orders"


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Forget what other tests' connections gave."""
    archives._access.clear()
    archives._looks.clear()


def connect(monkeypatch: pytest.MonkeyPatch, login: str) -> None:
    connection = {"conn_type": "aws", "login": login, "password": "secret"}
    connection["extra"] = json.dumps({"endpoint_url": "http://127.0.0.1:1"})
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))


def test_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection's keys open it, and what lies below it too; the environment stays."""
    connect(monkeypatch, "k")

    root = opened(Place(ON_S3, "store"))

    expected = {"key": "k", "secret": "secret", "endpoint_url": "http://127.0.0.1:1"}
    assert str(root) == ON_S3
    assert expected.items() <= root.storage_options.items()
    assert expected.items() <= (root / "receipts").storage_options.items()
    assert "key" not in opened(Place(ON_S3)).storage_options


def test_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is asked again after some minutes: a role isn't assumed for every page."""
    connect(monkeypatch, "old")
    opened(Place(ON_S3, "store"))
    connect(monkeypatch, "new")

    assert opened(Place(ON_S3, "store")).storage_options["key"] == "old"
    at, access = archives._access["store"]
    archives._access["store"] = (at - archives.ACCESS_SECONDS, access)
    assert opened(Place(ON_S3, "store")).storage_options["key"] == "new"


def test_find_all_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a connection raises is about its archive alone, and shows no secret."""
    sealed = sealed_copy(tmp_path / "archive")
    note_overview(sealed, validate_archive(sealed, golden_cluster()), "reports/r.json")

    def access(conn_id: str) -> Any:
        raise RuntimeError("hush")

    monkeypatch.setattr(archives, "store_access", access)
    found, broken = archives.find_all([Place(str(sealed.root)), Place("s3://b/a", "broken")])

    assert found.overview is not None
    assert broken.problem == "this server can't read s3://b/a: RuntimeError"


def test_find_all_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that takes long holds up no other connection's archive."""
    slow, fast = threading.Event(), threading.Event()

    def access(conn_id: str) -> Any:
        if conn_id == "slow":
            slow.set()
            assert fast.wait(30)
        elif conn_id == "fast":
            assert slow.wait(30)
            fast.set()
        raise RuntimeError(conn_id)

    monkeypatch.setattr(archives, "store_access", access)

    archives.find_all([Place("s3://b/a", "slow"), Place("s3://b/b", "fast")])

    assert fast.is_set()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An archive that was found complete now."""
    sealed = sealed_copy(tmp_path / "archive")
    note_overview(sealed, validate_archive(sealed, golden_cluster()), "reports/r.json")
    return Place(str(sealed.root))


def looks(place: Place, seconds: float = archives.LIST_SECONDS) -> Any:
    """Return what pages know of an archive's files."""
    [look] = archives.looks_at([place], archives.find_all([place]), seconds)
    return look


def test_looks_at(place: Place) -> None:
    """A page's look is as `kafka-drain status`, and is kept until it is old, or a validation."""
    look = looks(place)
    now = utc_now()
    said = status.look(place.archive, MAX_AGE, now)
    assert (look.judge(now).state.value, look.judge(now).sentence) == ("ready", said["sentence"])

    next(Path(place.archive).glob("generations/*/data/**/part-*")).unlink()
    # The list has the earlier look; it ages all the same.
    assert looks(place) is look
    assert look.judge(now + 2 * MAX_AGE).state.value == "unknown"
    assert looks(place, -1).judge(now).state.value == "not_ready"
    archive = Archive.at(place.archive)
    note_overview(archive, validate_archive(archive, None), "reports/s.json")
    assert looks(place).judge(now).overview["verdict"] == "findings"


def test_looks_at_slow(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that takes long is for a later page: until then, nothing is known."""
    ready = threading.Event()
    monkeypatch.setattr(archives, "LOOK_PATIENCE", 0.01)

    def look(archive: Archive, of: Place) -> Any:
        assert ready.wait(30)
        return archives.FoundLook(look=Look(of.archive))

    monkeypatch.setattr(archives, "_looked", look)
    assert looks(place) is None
    # Nobody begins a second one meanwhile.
    assert looks(place, -1) is None
    monkeypatch.setattr(archives, "LOOK_PATIENCE", 30)
    ready.set()
    assert looks(place) == Look(place.archive)


def test_looks_at_slower_than_its_age(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that took longer than looks are kept is shown, not begun again for ever."""
    ready, at = threading.Event(), [0.0]
    monkeypatch.setattr(archives, "time", SimpleNamespace(monotonic=lambda: at[0]))
    monkeypatch.setattr(archives, "LOOK_PATIENCE", 0.01)

    def look(archive: Archive, of: Place) -> Any:
        assert ready.wait(30)
        return archives.FoundLook(look=Look(of.archive))

    monkeypatch.setattr(archives, "_looked", look)
    assert looks(place, archives.PAGE_SECONDS) is None
    at[0] += archives.PAGE_SECONDS + 1
    ready.set()
    first = archives._looks[place].looking
    wait([first], timeout=30)

    assert looks(place, archives.PAGE_SECONDS) == Look(place.archive)
    assert archives._looks[place].looking is first
    at[0] += archives.PAGE_SECONDS + 1
    looks(place, archives.PAGE_SECONDS)
    assert archives._looks[place].looking is not first


def test_looks_at_nothing(tmp_path: Path) -> None:
    """Before the first drain, there is nothing; what can't be read isn't looked at."""
    (tmp_path / "new").mkdir()
    new, web = Place(str(tmp_path / "new")), Place("http://127.0.0.1:1/archive")

    found = archives.find_all([new, web])
    look, none = archives.looks_at([new, web], found, archives.LIST_SECONDS)

    assert look is not None
    assert look.judge(utc_now()).sentence.endswith("not ready: nothing has been drained to it yet")
    assert none is None


def test_find_no_connection() -> None:
    """A connection that this server doesn't know is what the page says."""
    problem = find(Place(ON_S3, "nowhere")).problem

    assert problem.startswith(
        f"this server can't read {ON_S3}: there is no Airflow connection 'nowhere'; create one of"
    )


class Opened(Exception):
    """Raised with the location that a page would be read from."""


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (f"{ON_S3}/reports/r.json", "k"),
        ("s3://bucket/other/reports/r.json", None),
        ("s3://bucket/orders-of-others/reports/r.json", None),
        ("s3://elsewhere/orders/reports/r.json", None),
    ],
)
def test_page_beside_connection(
    path: str, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only below its own archive is a report opened with the connection: XComs may be forged."""
    connect(monkeypatch, "k")
    root = opened(Place(ON_S3, "store"))
    asked: list[UPath] = []

    def is_file(at: UPath) -> bool:
        asked.append(at)
        return False

    monkeypatch.setattr(type(root), "is_file", is_file)

    assert page_beside(path, root) is None
    assert [str(at) for at in asked] == [f"{path.partition('/reports/')[0]}/archive.json"]
    assert asked[0].storage_options.get("key") == key


@pytest.mark.parametrize("path", [f"{ON_S3}/reports/../../x/reports/r.json", f"{ON_S3}/r.json"])
def test_page_beside_nothing_else(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't a report of the archive isn't asked for."""
    connect(monkeypatch, "k")

    assert page_beside(path, opened(Place(ON_S3, "store"))) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"verdict": 7}'])
def test_find_damaged(tmp_path: Path, content: str) -> None:
    """A damaged document is called damaged, by its name; nothing is said of access."""
    archive = sealed_copy(tmp_path / "a")
    (archive.root / "overview.json").write_text(content)

    found = find(Place(str(archive.root)))

    assert found.is_damaged
    assert f"{archive.root}/overview.json" in found.problem
    assert "server can't read" not in found.problem


@pytest.mark.parametrize(
    ("content", "expected"), [('{"format_version": 99}', False), ("{", True), ("[]", True)]
)
def test_is_damage(tmp_path: Path, content: str, expected: bool) -> None:
    """A document of a newer release isn't damaged: this release can't read it."""
    archive = sealed_copy(tmp_path / "a")
    (archive.root / "archive.json").write_text(content)

    with pytest.raises(ArchiveError) as raised:
        _ = archive.snapshot().document

    assert is_damage(raised.value) is expected


def test_find_elsewhere() -> None:
    """A store that this server may not read isn't damage."""
    found = find(Place("http://127.0.0.1:1/a"))

    assert found.problem
    assert not found.is_damaged


@pytest.mark.parametrize("is_there", [True, False])
def test_start_of(tmp_path: Path, is_there: bool) -> None:
    """An archive has begun with its first generation."""
    if is_there:
        sealed_copy(tmp_path / "a")

    assert start_of(Place(str(tmp_path / "a"))) == FoundStart(is_there)


def test_start_of_unknown() -> None:
    """Of an archive that can't be read here, nobody knows."""
    found = start_of(Place("http://127.0.0.1:1/a"))

    assert found.is_begun is None
    assert found.problem


@pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 has datasets")
def test_archives_of(tmp_path: Path) -> None:
    """The connection's id comes from the database, with the archive."""
    from airflow.models.asset import AssetModel, TaskOutletAssetReference
    from airflow.models.base import Base
    from airflow.models.dag import DagTag
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    from kafka_drain_airflow.pages.database import archives_of

    engine = create_engine(f"sqlite:///{tmp_path}/airflow.db")
    models: tuple[Any, ...] = (
        TaskInstance,
        Trigger,
        AssetModel,
        TaskOutletAssetReference,
        DagTag,
        SerializedDagModel,
    )
    tables = [model.__table__ for model in models]
    Base.metadata.create_all(engine, tables=tables)
    with Session(engine) as session:
        extras = {"s3://b/a": {"archive_conn_id": "aws"}, "file:///data/b": {}}
        for number, (uri, extra) in enumerate(extras.items()):
            dag_id = f"drain_{number}"
            asset = AssetModel(name=uri, uri=uri, extra=extra)
            session.add(asset)
            session.flush()
            outlet = TaskOutletAssetReference(asset_id=asset.id, dag_id=dag_id, task_id="validate")
            session.add_all([outlet, DagTag(name="kafka-drain", dag_id=dag_id)])
        session.flush()

        assert archives_of(session, ["drain_0", "drain_1"]) == {
            "drain_0": Place("s3://b/a", "aws"),
            "drain_1": Place("/data/b"),
        }
    engine.dispose()


def test_find_of_another_pipeline(tmp_path: Path) -> None:
    """A pipeline whose archive is another one's isn't shown with that one's verdict."""
    archive = sealed_copy(tmp_path / "archive")
    report = validate_archive(archive, golden_cluster())
    overview = note_overview(archive, report, "reports/r.json")
    assert overview["verdict"] == "complete"

    other = find(Place(str(archive.root), name="orders"))

    assert other.overview is None
    assert "golden" in other.problem


def test_page_beside_on_hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report on HDFS is opened as archives there are, and not as universal_pathlib would."""
    root = sealed_copy(tmp_path / "archive").root
    (root / "reports").mkdir(exist_ok=True)
    (root / "reports" / "r.html").write_text("the report")
    asked: list[str] = []

    def locate(path: str) -> UPath:
        asked.append(path)
        return root / "reports" / "r.html"

    monkeypatch.setattr(archives, "locate", locate)

    page = page_beside("hdfs://h/archive/reports/r.json")

    assert page is not None
    assert page.read_text() == "the report"
    assert asked == ["hdfs://h/archive/reports/r.html"]
    assert page_beside(f"{root}/reports/r.json") is not None
    assert len(asked) == 1


def test_find_all_hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many archives of one store hang, those of another one are read."""
    sealed, over, locate = sealed_copy(tmp_path / "archive"), threading.Event(), archives.locate

    def slow(path: Any, *more: Any) -> UPath:
        if str(path).startswith("s3://hangs/"):
            over.wait(30)
            raise RuntimeError
        return locate(path, *more)

    monkeypatch.setattr(archives, "locate", slow)
    monkeypatch.setattr(archives, "PATIENCE", 2.0)
    hanging = [Place(f"s3://hangs/{number}") for number in range(40)]
    try:
        *lost, found = archives.find_all([*hanging, Place(str(sealed.root))])
    finally:
        over.set()

    assert found.problem == ""
    assert all("didn't respond" in each.problem for each in lost)

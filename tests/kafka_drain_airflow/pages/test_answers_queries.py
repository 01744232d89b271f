"""What the pages cost Airflow's database: as many queries for 200 archives as for two."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dag import DagTag
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
from sqlalchemy import create_engine, event
from sqlalchemy.orm import Session

from kafka_drain_airflow.dag_tags import tags_of
from kafka_drain_airflow.pages.answers import Answer, archives, archives_as_json, restores
from kafka_drain_airflow.pages.rights import Rights

if AIRFLOW_V_3_0_PLUS:
    from airflow.models.asset import AssetModel, TaskOutletAssetReference

pytestmark = pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 has datasets")

FEW, MANY = 2, 200


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[dict[int, Session]]:
    """Sessions of databases with few and with many pipelines, by their number."""
    import_all_models()
    engines = {number: create_engine(f"sqlite:///{tmp_path}/{number}.db") for number in (FEW, MANY)}
    found = {}
    for number, engine in engines.items():
        Base.metadata.create_all(engine)
        found[number] = session = Session(engine)
        for n in range(number):
            _add(session, f"p{n}", str(tmp_path / f"p{n}"))
        session.commit()
    yield found
    for number, session in found.items():
        session.close()
        engines[number].dispose()


def _add(session: Session, name: str, archive: str) -> None:
    """Add a pipeline with the DAGs that drain and republish, whose ids say nothing."""
    for kind in ("drain", "republish"):
        session.add_all(
            DagTag(dag_id=f"{name}-{kind[0]}", name=tag) for tag in tags_of(kind, [name])
        )
    extra = {"kafka_drain_pipeline": name}
    asset = AssetModel(name=name, uri=f"file://{archive}", extra=extra)
    session.add(asset)
    session.flush()
    outlet = {"asset_id": asset.id, "dag_id": f"{name}-d", "task_id": "validate"}
    session.add(TaskOutletAssetReference(**outlet))


def queries(session: Session, run: Callable[[], object]) -> list[str]:
    """Return the statements that a session executes while something runs."""
    said: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        said.append(statement)

    engine = session.get_bind()
    event.listen(engine, "before_cursor_execute", note)
    try:
        run()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return said


@pytest.mark.parametrize("page", [archives, archives_as_json, restores])
def test_queries_of_many_archives(
    sessions: dict[int, Session], page: Callable[[Session, Rights], Answer]
) -> None:
    """A list asks the database, and for the user's rights, as often for 200 archives as for two."""
    asked: dict[int, list[str]] = {}
    checked: dict[int, list[Collection[str]]] = {}
    for number, session in sessions.items():
        every = [f"p{n}-{kind}" for n in range(number) for kind in "dr"]
        checked[number] = times = []

        def visible(some: Collection[str], times: list[Collection[str]] = times) -> Collection[str]:
            times.append(some)
            return some

        rights = Rights(every, visible)
        asked[number] = queries(session, lambda s=session, r=rights: page(s, r))  # type: ignore[misc]

    assert len(asked[MANY]) == len(asked[FEW]) <= 10
    assert len(checked[MANY]) == len(checked[FEW]) <= 2
    assert sum(map(len, checked[MANY])) >= MANY

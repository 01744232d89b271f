"""The runs by which the pages say how an archive stands, however many others there are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
from sqlalchemy import create_engine, insert, select
from sqlalchemy.orm import Session

from kafka_drain.pages.overview import ArchiveRow
from kafka_drain_airflow.pages.database import RUNS, last_runs
from tests.kafka_drain.pages.test_remedies import OVERVIEW

if AIRFLOW_V_3_0_PLUS:
    from airflow.models.asset import AssetModel, TaskOutletAssetReference
    from airflow.models.xcom import XComModel

pytestmark = pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 has other columns")

#: When the archive was validated, and found complete.
VALIDATED = datetime.fromisoformat(OVERVIEW["validated_at"])


def later(minutes: int) -> datetime:
    """A time so many minutes after the validation."""
    return VALIDATED + timedelta(minutes=minutes)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A session of an empty database of Airflow's."""
    import_all_models()
    engine = create_engine(f"sqlite:///{tmp_path}/airflow.db")
    Base.metadata.create_all(engine)
    with Session(engine) as made:
        yield made
    engine.dispose()


def add(session: Session, run_id: str, state: str, dag_id: str = "drain_a", **times: Any) -> None:
    """Add a run of a DAG."""
    run = DagRun(dag_id=dag_id, run_id=run_id, run_type="manual", state=state, run_after=VALIDATED)
    for name in ("queued_at", "start_date", "end_date"):
        setattr(run, name, times.get(name))
    session.add(run)
    session.flush()


def add_validation(session: Session) -> None:
    """Make the DAG one that validates an archive, and let all of its runs so far have done so."""
    asset = AssetModel(name="a", uri="file:///a", extra={"kafka_drain_pipeline": "a"})
    session.add(asset)
    session.flush()
    outlet = {"asset_id": asset.id, "dag_id": "drain_a", "task_id": "validate"}
    session.add(TaskOutletAssetReference(**outlet))
    for run in session.query(DagRun):
        task = {"dag_id": run.dag_id, "run_id": run.run_id, "task_id": "validate", "map_index": -1}
        known = {"id": uuid.uuid4(), "state": "success", "pool": "p", "pool_slots": 1}
        session.execute(insert(TaskInstance.__table__).values(**task, **known, try_number=1))


def status_of(session: Session, *dag_ids: str) -> str:
    """Return how the page says that the archive of some DAGs stands."""
    dags = {"drain_a": dag_ids or ("drain_a",)}
    runs = last_runs(session, dags, dags["drain_a"]).get("drain_a", [])
    overview = OVERVIEW | {"verdict": "complete", "findings": {}}
    row = ArchiveRow("a", "/a", "/dag", overview=overview, runs=runs)
    assert len(row.shown_runs) <= RUNS
    return row.status(later(9)).words


@pytest.mark.parametrize("waiting", [1, RUNS, 30])
def test_last_runs_failed_before_a_backfill(session: Session, waiting: int) -> None:
    """The runs of a backfill, all created at once, don't hide that the drain before it failed."""
    add(session, "hourly", "failed", start_date=later(1), end_date=later(2))
    for number in range(waiting):
        add(session, f"backfill-{number}", "queued", queued_at=later(3))

    assert status_of(session) == "was complete, last run failed"


def test_last_runs_failed_beside_another_dag(session: Session) -> None:
    """Runs of one DAG don't hide that the archive's other DAG has failed."""
    add(session, "daily", "failed", "group", start_date=later(1), end_date=later(2))
    for number in range(RUNS):
        add(session, f"manual-{number}", "running", start_date=later(3))

    assert status_of(session, "drain_a", "group") == "was complete, last run failed"


@pytest.mark.parametrize(
    ("not_drained", "words"),
    [
        (["b"], "complete"),
        (["a", "b"], "was complete, last run failed"),
        # Its drain was killed, and has said nothing.
        (None, "was complete, last run failed"),
    ],
)
def test_last_runs_of_group(session: Session, not_drained: list[str] | None, words: str) -> None:
    """A validation after a group's drain that has failed doesn't cover what wasn't drained."""
    add(session, "hourly", "failed", start_date=later(-1), end_date=later(2))
    add_validation(session)
    task = {"dag_id": "drain_a", "run_id": "hourly", "task_id": "drain", "map_index": -1}
    known = {"id": uuid.uuid4(), "state": "failed", "pool": "p", "pool_slots": 1, "try_number": 1}
    known |= {"operator": "KafkaDrainGroupOperator"}
    session.execute(insert(TaskInstance.__table__).values(**task, **known))
    if not_drained is not None:
        [run_id] = session.scalars(select(DagRun.id))
        told = {"key": "not_drained", "value": not_drained, "dag_run_id": run_id}
        session.execute(insert(XComModel.__table__).values(**task, **told))

    assert status_of(session) == words


def test_last_runs_failed_beside_old_windows(session: Session) -> None:
    """Windows that were begun before the validation, and proven since, prove nothing of a drain."""
    for number in range(RUNS):
        add(session, f"w{number}", "success", start_date=later(-9), end_date=later(4))
    add_validation(session)
    assert status_of(session) == "complete"

    add(session, "hourly", "failed", start_date=later(1), end_date=later(2))

    assert status_of(session) == "was complete, last run failed"

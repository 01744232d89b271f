"""What the pages read of runs, and of what their tasks told, however many others there are."""

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

from kafka_drain.pages.archive import DrainResult
from kafka_drain.pages.overview import ArchiveRow
from kafka_drain_airflow.pages.database import (
    NEWEST,
    RUNS,
    drains_of,
    last_runs,
    progress_of,
    report_of,
    working_on,
)
from tests.kafka_drain.pages.test_remedies import OVERVIEW

if AIRFLOW_V_3_0_PLUS:
    from airflow.models.asset import AssetModel, TaskOutletAssetReference
    from airflow.models.xcom import XComModel

pytestmark = pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 has other columns")

DRAINER, GROUP = "KafkaDrainOperator", "KafkaDrainGroupOperator"
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


def told(
    session: Session,
    key: str,
    value: Any,
    *,
    run_id: str = "hourly",
    dag_id: str = "drain_a",
    task_id: str = "drain",
    map_index: int = -1,
    state: str = "success",
    operator: str | None = None,
    at: int = 0,
) -> None:
    """Let a task, which is added where it isn't there yet, tell something."""
    task = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
    if not session.query(DagRun).filter_by(dag_id=dag_id, run_id=run_id).count():
        add(session, run_id, "running" if state == "running" else "success", dag_id)
    if not session.query(TaskInstance).filter_by(**task).count():
        known = {"id": uuid.uuid4(), "state": state, "pool": "p", "pool_slots": 1, "try_number": 1}
        known |= {"operator": operator, "start_date": later(at)}
        session.execute(insert(TaskInstance.__table__).values(**task, **known))
    [run] = session.query(DagRun).filter_by(dag_id=dag_id, run_id=run_id)
    said = {"key": key, "value": value, "dag_run_id": run.id, "timestamp": later(at)}
    session.execute(insert(XComModel.__table__).values(**task, **said))


def drained(offsets: int, **more: Any) -> dict[str, Any]:
    """What a drain returns."""
    return {"offsets": offsets, "seconds": 2.0, **more}


def test_drains_of(session: Session) -> None:
    """What drained to the archive is shown, oldest first, in its own DAG as in a group's."""
    add_validation(session)
    told(session, "return_value", drained(1), run_id="1", at=1)
    told(session, "return_value", drained(2), run_id="2", at=3, task_id="odd", operator=DRAINER)
    told(session, "return_value", {"a": drained(3)}, dag_id="g", at=2, operator=GROUP)
    # Neither of this archive nor a drain's result.
    told(session, "return_value", drained(5, archive="/b"), run_id="3", at=4)
    told(session, "return_value", {"b": drained(6)}, dag_id="g", run_id="3", at=4, operator=GROUP)
    told(session, "return_value", drained(7), run_id="4", task_id="count", at=4)
    told(session, "return_value", {"plan": 1, "seconds": 1}, run_id="5", at=4)
    told(session, "return_value", "mine", run_id="6", at=4)
    told(session, "progress", drained(8), run_id="7", at=4)
    told(session, "return_value", drained(9), dag_id="other", at=4)

    shown = [DrainResult(later(at).isoformat()[:19], n, 2.0) for at, n in ((1, 1), (2, 3), (3, 2))]
    found = drains_of(session, "drain_a", ["g"])

    assert [DrainResult(one.at[:19], one.offsets, one.seconds) for one in found] == shown
    assert [one.offsets for one in drains_of(session, "drain_a")] == [1, 2]
    assert drains_of(session, "other") == []


def test_drains_of_many(session: Session) -> None:
    """Of very many drains, the newest ones are shown."""
    add_validation(session)
    for number in range(NEWEST + 3):
        told(session, "return_value", drained(number), run_id=str(number), at=number)

    assert [one.offsets for one in drains_of(session, "drain_a")] == [*range(3, NEWEST + 3)]


def progress(done: int) -> dict[str, Any]:
    """What a task says of its progress."""
    known = {"job": "drain", "name": "a", "total": 9, "unit": "offsets", "percent": 1}
    at = VALIDATED.isoformat()
    return known | {"done": done, "rate": "", "left": "", "spark_ui": "", "at": at}


def test_progress_of(session: Session) -> None:
    """A DAG's progress is that of its running run, or else of the one that ended last."""
    told(session, "progress", progress(1), run_id="1", state="running", at=1)
    add(session, "2", "success", start_date=later(5), end_date=later(6))
    told(session, "progress", progress(2), run_id="2", at=5)
    add(session, "3", "queued", queued_at=later(7))
    add(session, "4", "success", "b", end_date=later(1))
    told(session, "progress", progress(4), run_id="4", dag_id="b", at=2)
    add(session, "5", "failed", "b", end_date=later(3))
    told(session, "progress", progress(5), run_id="5", dag_id="b", at=1)
    told(session, "waiting", {"said": "waiting: no answer"}, run_id="5", dag_id="b")
    add(session, "6", "queued", "b", queued_at=later(9))
    told(session, "progress", progress(6), run_id="6", dag_id="b")
    told(session, "progress", progress(7), dag_id="c")

    found = {one.dag_id: one for one in progress_of(session, ["drain_a", "b"])}

    assert {dag_id: one.progress["done"] for dag_id, one in found.items()} == {"drain_a": 1, "b": 5}
    assert (found["drain_a"].waiting, found["b"].waiting) == ("", "waiting: no answer")
    assert found["b"].state == "success"


@pytest.mark.parametrize("restores", [False, True])
def test_working_on(session: Session, restores: bool) -> None:
    """Tasks that work on an archive now are shown, each mapped one with its own progress."""
    of_a = {"pipeline": "a", "archive": "/a"}
    for number in (0, 1):
        at: dict[str, Any] = {
            "dag_id": "elt",
            "task_id": "send",
            "map_index": number,
            "at": 2 - number,
        }
        told(session, "archive", of_a | {"is_restore": True}, state="running", **at)
        told(session, "progress", progress(number), **at)
    told(session, "archive", of_a, dag_id="elt", task_id="tidy", state="running", at=3)
    told(session, "archive", of_a, dag_id="elt", task_id="done", at=3)
    other = of_a | {"archive": "/other"}
    told(session, "archive", other, dag_id="elt", task_id="other", state="running", at=3)

    found = working_on(session, ["/a", "/b"], restores=restores)

    assert found.keys() == {"/a", "/b"}
    assert found["/b"] == []
    doing = [(one.task_id, one.progress.get("done")) for one in found["/a"]]
    assert doing == [("send", 1), ("send", 0), ("tidy", None)][: 2 if restores else 3]


def test_report_of(session: Session) -> None:
    """A report is that of exactly the task instance, and nothing else that it told."""
    where: dict[str, Any] = {"run_id": "1", "task_id": "validate"}
    told(session, "report", "/a/reports/mine.json", **where)
    told(session, "archive", {"archive": "/a"}, **where)
    told(session, "report", "/a/reports/mapped.json", **where, map_index=3)
    told(session, "report", "/a/reports/other.json", run_id="2", task_id="validate")

    assert report_of(session, "drain_a", "1", "validate", -1) == "/a/reports/mine.json"
    assert report_of(session, "drain_a", "1", "validate", 3) == "/a/reports/mapped.json"
    for asked in (
        ("drain_b", "1", "validate", -1),
        ("drain_a", "3", "validate", -1),
        ("drain_a", "1", "drain", -1),
        ("drain_a", "1", "validate", 0),
    ):
        with pytest.raises(LookupError, match="wrote no report"):
            report_of(session, *asked)

"""Plans that a person approves in Airflow, answered through the API as its UI does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from demo.broker.ports import free_ports
from demo.flights import PARTITIONS, create_topic, flight_records, produce
from demo.local_airflow import LocalAirflow
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.frozen_plans import list_plans
from kafka_drain_airflow.operators.approval import can_approve
from tests.airflow_api import AirflowApi
from tests.faults.injection import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.skipif(
        not AIRFLOW_V_3_0_PLUS or not can_approve(), reason="asking a person needs Airflow 3.1"
    ),
]

RECORDS = 500
NAME = "seen"
DAG = """
from kafka_drain_airflow import Approval, Pipeline, create_dags

pipeline = Pipeline(name="{name}", topics=["{name}"], archive="{archive}", retention_days=30)
globals().update(create_dags(pipeline, approval=Approval(), default_args={{"retries": 0}}))
"""


@dataclass
class Approvals:
    """A running Airflow whose DAGs ask before they act, and an archive of 500 records."""

    airflow: LocalAirflow
    archive: Archive
    api: AirflowApi

    def unpause(self, kind: str) -> None:
        """Let a DAG's runs start, also those of its schedule."""
        self.api.unpause(f"{kind}_{NAME}")

    def trigger(self, kind: str, run_id: str, **conf: Any) -> None:
        """Start a run, as the form does."""
        self.api.trigger(f"{kind}_{NAME}", run_id, **conf)

    def seen(self, kind: str, run_id: str) -> dict[str, Any]:
        """Wait until a run waits for an answer, and return its question."""
        return self.api.question(f"{kind}_{NAME}", run_id)

    def answer(self, kind: str, run_id: str, option: str) -> dict[str, str]:
        """Answer the question of a run; return the states of its tasks, once it has ended."""
        return self.api.answer(f"{kind}_{NAME}", run_id, option)


@pytest.fixture(scope="module")
def approvals(
    tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str
) -> Iterator[Approvals]:
    """Airflow with its scheduler, after a drain of 500 records."""
    folder = tmp_path_factory.mktemp("approvals")
    create_topic(bootstrap_servers, NAME)
    assert produce(bootstrap_servers, NAME, islice(flight_records(), RECORDS)) == RECORDS
    archive, dags = folder / "archives" / NAME, folder / "dags"
    dags.mkdir()
    (dags / "seen.py").write_text(DAG.format(name=NAME, archive=archive))
    [port] = free_ports(1, avoid=())
    with LocalAirflow(folder, bootstrap_servers, port, dags) as airflow:
        airflow.run("db", "migrate", log="migrate")
        airflow.test_dag(f"drain_{NAME}", "drain", print)
        with airflow.running():
            running = Approvals(airflow, Archive.at(str(archive)), AirflowApi.login(airflow))
            for kind in ("republish", "reprocess"):
                running.unpause(kind)
            yield running


DONE = {"plan": "success", "approve": "success"}


def test_republish_approved(approvals: Approvals, make_topic: Any, read: Any) -> None:
    """A person sees what is sent and where to, and only then it is sent, once."""
    target = make_topic(partitions=PARTITIONS)
    approvals.trigger("republish", "sent", target_topic=target)

    seen = approvals.seen("republish", "sent")
    [plan_id] = list_plans(approvals.archive.root)[-1:]
    assert plan_id.startswith("republish-")
    assert seen["subject"] == f"Republish {NAME}?"
    assert f"### Send {RECORDS} records of {NAME} to Kafka" in seen["body"]
    assert f"{target} ({PARTITIONS:,} partitions, empty)" in seen["body"]
    assert not any(read(target).values())

    assert approvals.answer("republish", "sent", "Approve") == {**DONE, "republish": "success"}
    assert read(target) == read(NAME)


def test_republish_rejected(approvals: Approvals, make_topic: Any, read: Any) -> None:
    """If it is rejected, nothing is sent and the task is skipped."""
    target = make_topic(partitions=PARTITIONS)
    approvals.trigger("republish", "rejected", target_topic=target)
    approvals.seen("republish", "rejected")

    assert approvals.answer("republish", "rejected", "Reject") == {**DONE, "republish": "skipped"}
    assert not any(read(target).values())


def test_republish_changed(
    approvals: Approvals, make_topic: Any, read: Any, bootstrap_servers: str
) -> None:
    """If something else has written to the target since, the task fails and sends nothing."""
    target = make_topic(partitions=PARTITIONS)
    approvals.trigger("republish", "changed", target_topic=target)
    approvals.seen("republish", "changed")
    assert produce(bootstrap_servers, target, islice(flight_records(), 3)) == 3

    assert approvals.answer("republish", "changed", "Approve") == {**DONE, "republish": "failed"}
    assert sum(map(len, read(target).values())) == 3
    logs = "".join(path.read_text() for path in log_files(approvals, "republish", "changed"))
    assert f"the offsets of topic {target} grew by 3: something else writes to it" in logs


def log_files(approvals: Approvals, kind: str, run_id: str) -> Iterator[Path]:
    folder = approvals.airflow.home / "logs" / f"dag_id={kind}_{NAME}" / f"run_id={run_id}"
    return (folder / f"task_id={kind}").glob("*.log")


def test_reprocess_approved(approvals: Approvals) -> None:
    """A person sees which files are replaced, and then these are."""
    before = {file.path for file in archive_files(approvals.archive.snapshot())}
    approvals.trigger("reprocess", "again", from_batch="0")

    body = approvals.seen("reprocess", "again")["body"]
    assert f"### Drain {RECORDS} offsets again and replace {len(before)} files" in body

    assert approvals.answer("reprocess", "again", "Approve") == {**DONE, "reprocess": "success"}
    after = archive_files(approvals.archive.snapshot())
    assert before.isdisjoint(file.path for file in after)
    assert sum(file.records or 0 for file in after) == RECORDS


def test_maintain_approved(approvals: Approvals) -> None:
    """A scheduled run asks too: all records are older than 30 days, and go once it is approved."""
    approvals.unpause("maintain")
    runs = f"/dags/maintain_{NAME}/dagRuns"
    wait_for(lambda: approvals.api.ask("GET", runs)["total_entries"] == 1, "a scheduled run")
    [run] = approvals.api.ask("GET", runs)["dag_runs"]
    run_id = quote(run["dag_run_id"])

    body = approvals.seen("maintain", run_id)["body"]
    assert f"delete {RECORDS} records" in body
    assert sum(file.records or 0 for file in archive_files(approvals.archive.snapshot())) == RECORDS

    assert approvals.answer("maintain", run_id, "Approve") == {**DONE, "maintain": "success"}
    assert archive_files(approvals.archive.snapshot()) == []

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

pipeline = Pipeline(
    name="{name}",
    topics=["{name}"],
    archive="{archive}",
    retention_days=30,
    erase_conn_id="erase_{{request}}",
)
globals().update(create_dags(pipeline, approval=Approval(), default_args={{"retries": 0}}))

eyes = Pipeline(name="eyes", topics=["{name}"], archive="{archive}-eyes")
asks = Approval(kinds=["republish"], four_eyes=True)
globals().update(create_dags(eyes, approval=asks, default_args={{"retries": 0}}))
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
        airflow.test_dag("drain_eyes", "drain", print)
        with airflow.running():
            running = Approvals(airflow, Archive.at(str(archive)), AirflowApi.login(airflow))
            for kind in ("republish", "reprocess", "erase"):
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


def test_republish_approved_by_its_starter(
    approvals: Approvals, make_topic: Any, read: Any
) -> None:
    """With four eyes, who has started a run can't approve it, but may reject it."""
    api, target = approvals.api, make_topic(partitions=PARTITIONS)
    api.unpause("republish_eyes")
    for option, state in (("Approve", "failed"), ("Reject", "success")):
        api.trigger("republish_eyes", option, target_topic=target)
        api.question("republish_eyes", option)

        states = api.answer("republish_eyes", option, option)

        assert (states["approve"], states["republish"] == "success") == (state, False)
    assert not any(read(target).values())
    logs = "".join(
        path.read_text() for path in approvals.airflow.home.glob("logs/*republish_eyes*/**/*.log")
    )
    assert "has started this run, and may not approve it (four_eyes)" in logs


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


#: A key that no record has; with it, the keys of a carrier's flights are erased.
NOBODY = "key-that-nobody-may-see"


def test_erase_approved(approvals: Approvals) -> None:
    """A person sees how many records are erased, not which keys: these stay in their connection.

    Once the plan is frozen, it can be removed: what is approved needs no keys.
    """
    gone = sum(record.key == b"UA" for record in islice(flight_records(), RECORDS))
    named = {"connection_id": "erase_r1", "conn_type": "generic", "password": f"UA\n{NOBODY}"}
    approvals.api.ask("POST", "/connections", named)
    approvals.trigger("erase", "r1", request="r1", by="privacy")

    body = approvals.seen("erase", "r1")["body"]
    assert f"### Erase {gone} records" in body
    assert "2 keys; all topics" in body
    approvals.api.ask("DELETE", "/connections/erase_r1")

    assert approvals.answer("erase", "r1", "Approve") == {**DONE, "erase": "success"}
    files = archive_files(approvals.archive.snapshot())
    assert sum(file.records or 0 for file in files) == RECORDS - gone
    folders = (approvals.airflow.home / "logs", Path(str(approvals.archive.root)))
    written = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in written if NOBODY.encode() in path.read_bytes()]
    tasks = "/dags/erase_seen/dagRuns/r1/taskInstances"
    for task in ("plan", "erase"):
        xcom = approvals.api.ask("GET", f"{tasks}/{task}/xcomEntries/return_value")
        assert NOBODY not in str(xcom)
        assert NOBODY not in str(approvals.api.ask("GET", f"{tasks}/{task}"))


def test_maintain_approved(approvals: Approvals) -> None:
    """A scheduled run asks too: all records are older than 30 days, and go once it is approved."""
    approvals.unpause("maintain")
    runs = f"/dags/maintain_{NAME}/dagRuns"
    wait_for(lambda: approvals.api.ask("GET", runs)["total_entries"] == 1, "a scheduled run")
    [run] = approvals.api.ask("GET", runs)["dag_runs"]
    run_id = quote(run["dag_run_id"])

    body = approvals.seen("maintain", run_id)["body"]
    left = sum(file.records or 0 for file in archive_files(approvals.archive.snapshot()))
    assert left > 0
    assert f"delete {left} records" in body

    assert approvals.answer("maintain", run_id, "Approve") == {**DONE, "maintain": "success"}
    assert archive_files(approvals.archive.snapshot()) == []

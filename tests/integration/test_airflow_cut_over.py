"""A cut-over between two clusters, run by a real Airflow, whose approvals a person answers."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_1_PLUS
from confluent_kafka import Producer

from demo.local_airflow import LocalAirflow
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.cut_overs import read_cut_over
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups, offsets_of
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.runs import run_key
from tests.faults.republishing import read_topic
from tests.integration.test_translate_group import take

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.skipif(not AIRFLOW_V_3_1_PLUS, reason="Airflow can't ask people before 3.1"),
]

RECORDS, READ = 60, 25

DAGS = """
from kafka_drain_airflow import Pipeline, create_dags

for name in {names}:
    create_dags(
        Pipeline(
            name=name,
            topics=[name],
            archive={archives!r} + "/" + name,
            cut_over={{
                "kafka_conn_id": "kafka_b",
                "quiet_seconds": 1,
                "mirror": {{"engine": "worker"}},
            }},
        )
    )
"""

#: Answers the approvals of a run, as Airflow's page of required actions does.
ANSWER = """
import json, sys, time
from types import SimpleNamespace
from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session

person = SimpleNamespace(get_id=lambda: "ann", get_name=lambda: "Ann")
dag_id, answers = sys.argv[1], json.loads(sys.argv[2])
while answers:
    with create_session() as session:
        waiting = (
            session.query(TaskInstance)
            .filter(TaskInstance.dag_id == dag_id, TaskInstance.state == "awaiting_input")
            .all()
        )
        for ti in waiting:
            if ti.task_id in answers:
                payload = UpdateHITLDetailPayload(chosen_options=[answers.pop(ti.task_id)])
                update_hitl_detail(dag_id, ti.run_id, ti.task_id, payload, person, session)
    time.sleep(0.5)
"""


@dataclass
class Moving:
    """An Airflow with two clusters, and what its tasks said."""

    airflow: LocalAirflow
    source: KafkaCluster
    target: KafkaCluster
    groups: dict[str, str]
    said: list[str] = field(default_factory=list)

    def cut_over(self, name: str, **answers: str) -> None:
        """Run the DAG; a person answers its approvals."""
        dag = f"cut_over_{name}"
        given = {f"approve_{task}": answer for task, answer in answers.items()}
        person = subprocess.Popen(
            [sys.executable, "-c", ANSWER, dag, json.dumps(given)],
            env=self.airflow.environment,
            text=True,
        )
        try:
            self.airflow.test_dag(dag, dag, self.said.append)
            assert person.wait(30) == 0
        finally:
            person.kill()
            person.wait()

    def ask(self, query: str) -> list[Any]:
        """Query Airflow's database."""
        with contextlib.closing(sqlite3.connect(self.airflow.home / "airflow.db")) as database:
            return database.execute(query).fetchall()

    def states(self, name: str) -> dict[str, str]:
        """Return the state of each task."""
        query = f"SELECT task_id, state FROM task_instance WHERE dag_id = 'cut_over_{name}'"
        return dict(self.ask(query))

    def seen(self, name: str) -> list[tuple[str, str]]:
        """Return the steps that were taken, as the archive has them."""
        root = Archive.at(str(self.airflow.archives / name)).root
        return [(d.step, d.verdict) for d in read_cut_over(root, run_key("cut-over"))]

    def committed(self, cluster: KafkaCluster, name: str) -> list[int]:
        """Return what the group has committed."""
        tp = TopicPartition(name, 0)
        found = ConsumerGroups(cluster.config).committed(self.groups[name], [tp])
        return list(offsets_of(found).values())


@pytest.fixture(scope="module")
def moving(
    tmp_path_factory: pytest.TempPathFactory, cluster: KafkaCluster, other_cluster: KafkaCluster
) -> Iterator[Moving]:
    """Two topics that were drained once; a group has read a part of each."""
    folder = tmp_path_factory.mktemp("airflow")
    names = [f"{name}_{uuid.uuid4().hex[:8]}" for name in ("moved", "returned")]
    (folder / "dags").mkdir()
    text = DAGS.format(names=names, archives=str(folder / "archives"))
    (folder / "dags" / "moving.py").write_text(text)
    servers = cluster.config.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    groups = {}
    for name in names:
        cluster.create_topic(name, TopicSettings(1, 1, config={"retention.ms": "-1"}))
        for n in range(RECORDS):
            producer.produce(name, b"%d" % n, b"key", headers=[("h", b"%d" % n)])
        assert producer.flush(30) == 0
        groups[name] = f"g-{name}"
        committed = {TopicPartition(name, 0): Committed(READ)}
        ConsumerGroups(cluster.config).commit(groups[name], committed)
    target = {"bootstrap.servers": other_cluster.config.bootstrap_servers}
    with pytest.MonkeyPatch.context() as patch:
        connection = {"conn_type": "kafka", "extra": target}
        patch.setenv("AIRFLOW_CONN_KAFKA_B", json.dumps(connection))
        with LocalAirflow(folder, servers, dags=folder / "dags") as airflow:
            airflow.run("db", "migrate", log="migrate")
            found = Moving(airflow, cluster, other_cluster, groups)
            for name in names:
                airflow.test_dag(f"drain_{name}", f"drain_{name}", found.said.append)
            yield found


def named(moving: Moving, begin: str) -> str:
    """Return the name of one of the pipelines."""
    return next(name for name in moving.groups if name.startswith(begin))


CONTINUE = dict.fromkeys(("producers_off", "groups", "hand_over"), "Continue")


def test_cut_over_dag_whole(moving: Moving) -> None:
    """People approve three times; then all is on the other cluster, and the group continues."""
    name = named(moving, "moved")
    moving.cut_over(name, **CONTINUE)

    states = moving.states(name)
    assert states.pop("back") == "skipped"
    assert set(states.values()) == {"success"}
    steps = "mirror producers_off last_drain last_mirror groups verify hand_over".split()
    assert moving.seen(name) == [(step, "passed") for step in steps]
    # Whoever was asked saw what the step before had seen, and the way back; who it was is kept.
    asked = moving.ask(
        "SELECT body, responded_by FROM hitl_detail JOIN task_instance ON ti_id = id WHERE "
        f"task_id = 'approve_groups' AND dag_id = 'cut_over_{name}'"
    )
    [(body, person)] = asked
    assert f"sent and compared {RECORDS} records" in body
    assert "turn the producers on again" in body
    assert "Ann" in str(person)
    servers = [c.config.bootstrap_servers for c in (moving.source, moving.target)]
    was, now = (read_topic(each, name) for each in servers)
    assert now == was
    assert len(now[0]) == RECORDS
    assert (moving.committed(moving.source, name), moving.committed(moving.target, name)) == (
        [READ],
        [READ],
    )
    assert take(servers[1], moving.groups[name], name, 1) == [str(READ)]


def test_cut_over_dag_back(moving: Moving) -> None:
    """An approval that is refused goes back: the group is gone on the target, not at the source."""
    name = named(moving, "returned")
    moving.cut_over(name, **{**CONTINUE, "hand_over": "Go back"})

    states = moving.states(name)
    assert (states["back"], states["hand_over"], states["groups"]) == (
        *("success", "skipped"),
        "success",
    )
    assert moving.seen(name)[-2:] == [("verify", "passed"), ("back", "passed")]
    assert moving.committed(moving.target, name) == []
    assert moving.committed(moving.source, name) == [READ]
    assert not ConsumerGroups(moving.target.config).describe(moving.groups[name]).exists
    assert any(f"topic {name} keeps {RECORDS} records at the target" in s for s in moving.said)

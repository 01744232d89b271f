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
from kafka_drain.evidence.keys import PublicKey, SigningKey, trusted
from kafka_drain.evidence.verifying import verify_evidence
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups, offsets_of
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.runs import run_key
from tests.airflow_api import AirflowApi
from tests.faults.republishing import read_topic
from tests.integration.test_airflow_backfill import free_port
from tests.integration.test_translate_group import take

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.soak,
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
            evidence_conn_id="evidence",
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
            .filter(TaskInstance.dag_id == dag_id)
            # The latter before Airflow 3.3.
            .filter(TaskInstance.state.in_(["awaiting_input", "deferred"]))
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
    key: PublicKey
    names: dict[str, str]
    groups: dict[str, str] = field(default_factory=dict)
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

    def fill(self, name: str) -> None:
        """Create and drain a topic, of which a group has read a part."""
        servers = self.source.config.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        self.source.create_topic(name, TopicSettings(1, 1, config={"retention.ms": "-1"}))
        for n in range(RECORDS):
            producer.produce(name, b"%d" % n, b"key", headers=[("h", b"%d" % n)])
        assert producer.flush(30) == 0
        self.groups[name] = f"g-{name}"
        committed = {TopicPartition(name, 0): Committed(READ)}
        ConsumerGroups(self.source.config).commit(self.groups[name], committed)
        self.airflow.test_dag(f"drain_{name}", f"drain_{name}", self.said.append)

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
    """An Airflow that doesn't run anything yet."""
    folder = tmp_path_factory.mktemp("airflow")
    begins = ("moved", "returned", "scheduled")
    names = {begin: f"{begin}_{uuid.uuid4().hex[:8]}" for begin in begins}
    (folder / "dags").mkdir()
    text = DAGS.format(names=[*names.values()], archives=str(folder / "archives"))
    (folder / "dags" / "moving.py").write_text(text)
    key = SigningKey.create(folder / "key")
    connections = {
        "KAFKA_B": {
            "conn_type": "kafka",
            "extra": {"bootstrap.servers": other_cluster.config.bootstrap_servers},
        },
        "EVIDENCE": {"conn_type": "generic", "password": (folder / "key").read_text()},
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, connection in connections.items():
            patch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
        servers = cluster.config.bootstrap_servers
        with LocalAirflow(folder, servers, free_port(), folder / "dags") as airflow:
            airflow.run("db", "migrate", log="migrate")
            yield Moving(airflow, cluster, other_cluster, key.public, names)


CONTINUE = dict.fromkeys(("producers_off", "groups", "hand_over"), "Continue")
STEPS = "mirror producers_off last_drain last_mirror groups verify hand_over".split()


def check_moved(moving: Moving, name: str) -> None:
    """All is on the other cluster, the group continues there, and each step was signed."""
    assert moving.seen(name) == [(step, "passed") for step in STEPS]
    servers = [c.config.bootstrap_servers for c in (moving.source, moving.target)]
    was, now = (read_topic(each, name) for each in servers)
    assert now == was
    assert len(now[0]) == RECORDS
    committed = [moving.committed(each, name) for each in (moving.source, moving.target)]
    assert committed == [[READ], [READ]]
    assert take(servers[1], moving.groups[name], name, 1) == [str(READ)]
    folder, keys = moving.airflow.archives / name / "evidence" / "cut-over", trusted([moving.key])
    signed = [verify_evidence("it", path.read_bytes(), keys) for path in sorted(folder.iterdir())]
    assert [each.statement.document["step"] for each in signed] == STEPS


def test_cut_over_dag_whole(moving: Moving) -> None:
    """People approve three times; then all is on the other cluster, and the group continues."""
    name = moving.names["moved"]
    moving.fill(name)
    moving.cut_over(name, **CONTINUE)

    states = moving.states(name)
    assert states.pop("back") == "skipped"
    assert set(states.values()) == {"success"}
    # Whoever was asked saw what the step before had seen, and the way back; who it was is kept.
    asked = moving.ask(
        "SELECT body, responded_by FROM hitl_detail JOIN task_instance ON ti_id = id WHERE "
        f"task_id = 'approve_groups' AND dag_id = 'cut_over_{name}'"
    )
    [(body, person)] = asked
    assert f"sent and compared {RECORDS} records" in body
    assert "turn the producers on again" in body
    assert "Ann" in str(person)
    check_moved(moving, name)


def test_cut_over_dag_back(moving: Moving) -> None:
    """An approval that is refused goes back: the group is gone on the target, not at the source."""
    name = moving.names["returned"]
    moving.fill(name)
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


def test_cut_over_dag_scheduled(moving: Moving) -> None:
    """Airflow's scheduler runs the whole cut-over; people answer through its API."""
    name, airflow = moving.names["scheduled"], moving.airflow
    moving.fill(name)
    dag, run = f"cut_over_{name}", "by-hand"
    with airflow.running():
        api = AirflowApi.login(airflow)
        api.unpause(dag)
        api.trigger(dag, run)
        for step, answer in CONTINUE.items():
            api.answer_when_asked(dag, run, f"approve_{step}", answer)
        api.ended(dag, run)

    states = moving.states(name)
    assert states.pop("back") == "skipped"
    assert set(states.values()) == {"success"}
    check_moved(moving, name)

"""Drills of made archives on a real broker: what they restore, find, leave and prove."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastavro import parse_schema, schemaless_writer

from kafka_drain.archive.documents import DrillDocument, SchemasDocument
from kafka_drain.archive.drills import read_drills, unfinished_drills
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.config.drill import Drill
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.evidence.keys import PublicKey, trusted
from kafka_drain.evidence.verifying import compare_with_archive, verify_evidence
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.storage.lease import hold_lease
from kafka_drain_airflow.operators.drill import DrillCheckOperator, DrillOperator
from tests.integration.command_line import kafka_drain
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
#: A record that a broker's default takes, and a smaller limit doesn't.
LARGE = os.urandom(30_000)


def avro(id_: int, number: int) -> bytes:
    """Return a value in Confluent's wire format."""
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(ORDER), {"id": number})
    return b"\0" + id_.to_bytes(4, "big") + stream.getvalue()


class Drilled:
    """A sealed archive of 60 records in two topics, its key, and drills of it."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.folder, self.servers = folder, servers
        names = {f"{name}-{uuid4().hex[:8]}": f"id of {name}" for name in ("one", "two")}
        made = MadeArchive(folder / "archive", names)
        self.one, self.two = names
        made.seal({TopicPartition(self.one, p): dense(0, 20) for p in (0, 1)}, value=avro(7, 5))
        later = {TopicPartition(self.two, 0): dense(0, 20, first_ms=1_767_100_000_000)}
        self.files = made.seal(later, value=avro(7, 6))
        self.archive = made.archive
        rows = [{"id": 7, "schema": ORDER, "subject": "one-value", "version": 1}]
        SchemasDocument.model_validate({"schemas": rows}).write(self.archive.root / "schemas.json")
        newest = {TopicPartition(self.two, 0): dense(20, 21, first_ms=1_767_100_000_000)}
        self.large = made.seal(newest, value=b"large" + LARGE)
        made.open_generation()
        settings = {name: TopicSettings(2, 1) for name in names}
        write_topic_settings(self.archive.root, settings)
        self.key = folder / "key"
        if not self.key.exists():
            assert kafka_drain("evidence-key", str(self.key)).code == 0

    def run(self, *more: str, sample: str = "whole") -> tuple[int, DrillDocument]:
        """Run a drill by the command line; return exit code and result."""
        done = kafka_drain(
            "drill",
            str(self.archive.root),
            *("--to-bootstrap", self.servers, "--sample", sample),
            *("--evidence-key", str(self.key), *more),
        )
        assert "Traceback" not in done.err
        return done.code, read_drills(self.archive.root)[-1]

    def evidence(self, drill: DrillDocument) -> Path:
        """Return the drill's evidence."""
        return self.folder / "archive" / "evidence" / "drill" / f"{drill.drill}.json"


@pytest.fixture
def drilled(tmp_path: Path, bootstrap_servers: str) -> Drilled:
    """An archive to drill."""
    return Drilled(tmp_path, bootstrap_servers)


def scratch(cluster: KafkaCluster) -> list[str]:
    """Return the scratch topics of drills."""
    return [name for name in cluster.topic_names() if name.startswith("kafka-drain-drill")]


def groups_of(cluster: KafkaCluster, drill: str) -> list[str]:
    """Return the groups that a drill's republish left."""
    admin = cluster.admin.client
    return [g.group_id for g in admin.list_consumer_groups().result().valid if drill in g.group_id]


def check_offline(drilled: Drilled, drill: DrillDocument) -> None:
    """The evidence verifies with the public key alone, and not with one byte changed."""
    path, copy = drilled.evidence(drill), drilled.folder / "copy.json"
    keys = trusted([PublicKey.read(f"{drilled.key}.pub")])
    verified = verify_evidence("it", path.read_bytes(), keys)
    assert DrillDocument.model_validate(verified.statement.document) == drill
    compare_with_archive(verified, str(drilled.archive.root))
    verify = ("verify-evidence", str(copy), "--public-key", f"{drilled.key}.pub")
    copy.write_bytes(path.read_bytes())
    assert kafka_drain(*verify).code == 0
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    copy.write_bytes(changed)
    done = kafka_drain(*verify)
    assert done.code == 1
    assert "was changed" in done.err


def test_drill(drilled: Drilled, cluster: KafkaCluster) -> None:
    """A drill restores all, decodes, measures, signs, and leaves nothing behind."""
    before = cluster.topic_names()
    code, drill = drilled.run()

    assert (code, drill.verdict, drill.problems, drill.left) == (0, "passed", [], [])
    assert drill.records == 61
    assert drill.rto_seconds is not None
    assert drill.rto_seconds > 0
    assert drill.rpo_seconds is not None
    assert drill.newest_record == "2025-12-30T13:06:40.020+00:00"
    assert drill.verification is not None
    assert drill.verification["is_exact"] is True
    assert drill.verification["lost"] == drill.verification["twice"] == 0
    assert sum(each["found"] for each in drill.verification["partitions"]) == 61
    assert drill.decoded is not None
    assert (drill.decoded.decoded, drill.decoded.without_schema) == (60, 1)
    assert cluster.topic_names() == before
    assert groups_of(cluster, drill.drill) == []
    assert unfinished_drills(drilled.archive.root) == []
    check_offline(drilled, drill)


def test_drill_samples(drilled: Drilled) -> None:
    """The newest hour and a random day restore only their records; a seed repeats a day."""
    code, newest = drilled.run(sample="newest-hour")
    assert (code, newest.records) == (0, 21)
    assert list(newest.topics) == [drilled.two]
    days = [drilled.run("--seed", seed, sample="random-day")[1] for seed in ("1", "1", "3")]

    assert days[0].sample == days[1].sample
    assert {day.verdict for day in days} == {"passed"}
    assert {day.records for day in days} <= {21, 40}


def test_drill_file_made_bad(drilled: Drilled, cluster: KafkaCluster) -> None:
    """A drill finds a data file with one byte changed; its evidence says so, and verifies."""
    path = drilled.archive.root / drilled.files[0].path
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(bytes(content))
    code, drill = drilled.run()

    assert (code, drill.verdict) == (1, "failed")
    [problem] = drill.problems
    assert problem.step == "restore"
    assert drilled.files[0].path.rpartition("/")[2] in problem.detail
    assert drill.rto_seconds is None
    assert scratch(cluster) == []
    check_offline(drilled, drill)


def test_drill_schema_deleted(drilled: Drilled, cluster: KafkaCluster) -> None:
    """A drill finds that a schema which restored values name is gone from the archive."""
    rows = [{"id": 8, "schema": ORDER, "subject": "one-value", "version": 2}]
    SchemasDocument.model_validate({"schemas": rows}).write(drilled.archive.root / "schemas.json")
    code, drill = drilled.run()

    assert (code, drill.verdict) == (1, "failed")
    [problem] = drill.problems
    assert (problem.step, problem.error) == ("decode", "SchemaError")
    assert "doesn't have schema 7" in problem.detail
    assert drill.decoded is not None
    assert drill.decoded.unknown_schemas == [7]
    # The records themselves were restored.
    assert drill.rto_seconds is not None
    assert scratch(cluster) == []
    check_offline(drilled, drill)


def test_drill_target_too_small(drilled: Drilled, cluster: KafkaCluster) -> None:
    """A drill finds a record that the target's max.message.bytes doesn't take, and names it."""
    code, drill = drilled.run("--topic-config", "max.message.bytes=10000")

    assert (code, drill.verdict) == (1, "failed")
    [problem] = drill.problems
    assert (problem.step, problem.error) == ("restore", "TopicError")
    assert "max.message.bytes=10000" in problem.detail
    assert drilled.large[0].path in problem.detail
    assert scratch(cluster) == []
    check_offline(drilled, drill)


def test_drill_target_unreachable(drilled: Drilled) -> None:
    """A drill whose target doesn't respond fails, says that a later one may pass, and is kept."""
    drilled.servers = "127.0.0.1:1"
    config = drilled.folder / "config.json"
    config.write_text(json.dumps({"socket.timeout.ms": 1000}))
    code, drill = drilled.run("--to-kafka-config", str(config))

    assert (code, drill.verdict) == (1, "failed")
    assert drill.problems[0].error == "KafkaUnavailableError"
    assert drill.problems[0].transient
    check_offline(drilled, drill)


KILLED = """
import os, signal, sys
from kafka_drain.{module} import {owner}
before = {owner}.{name}
def killed(*arguments, **more):
    if {early}:
        os.kill(os.getpid(), signal.SIGKILL)
    before(*arguments, **more)
    os.kill(os.getpid(), signal.SIGKILL)
{owner}.{name} = killed
from kafka_drain.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "owner", "name", "early"),
    [
        ("kafka.cluster", "KafkaCluster", "create_topic", True),
        ("kafka.cluster", "KafkaCluster", "create_topic", False),
        ("republish.run", "Republish", "_claim", False),
        ("republish.run", "Republish", "_send", False),
        ("republish.run", "Republish", "_seal", False),
        ("kafka.cluster", "KafkaCluster", "delete_topic", True),
        ("kafka.cluster", "KafkaCluster", "delete_topic", False),
    ],
)
def test_drill_killed(
    module: str, owner: str, name: str, early: bool, drilled: Drilled, cluster: KafkaCluster
) -> None:
    """Wherever a drill is killed, the next one removes what it left, and passes."""
    before = cluster.topic_names()
    script = KILLED.format(module=module, owner=owner, name=name, early=early)
    arguments = ["drill", str(drilled.archive.root), "--to-bootstrap", drilled.servers]
    killed = subprocess.run(
        [sys.executable, "-c", script, *arguments, "--sample", "whole"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(unfinished_drills(drilled.archive.root)) == 1
    assert read_drills(drilled.archive.root) == []
    # Its lease runs out by itself; the documented way is to remove it.
    lock = Path(str(drilled.archive.root)) / "drills" / "lock.json"
    lock.unlink()
    code, drill = drilled.run()

    assert (code, drill.verdict) == (0, "passed")
    assert cluster.topic_names() == before
    assert unfinished_drills(drilled.archive.root) == []


def test_drill_beside_another(drilled: Drilled) -> None:
    """A second drill at the same time is refused, and removes nothing of the first."""
    done = kafka_drain("drill", str(drilled.archive.root), "--check")
    assert done.code == 1
    assert "no drill has passed yet" in done.out
    with hold_lease(drilled.archive.root / "drills", run="first"):
        done = kafka_drain("drill", str(drilled.archive.root), "--to-bootstrap", drilled.servers)
    assert done.code == 1
    assert "first" in done.err
    assert read_drills(drilled.archive.root) == []
    assert drilled.run()[0] == 0
    assert kafka_drain("drill", str(drilled.archive.root), "--check").code == 0


def test_drill_operators(
    drilled: Drilled, cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of `drill_<name>` restore by Airflow's connections, sign, and check."""
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": drilled.servers}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    key = {"conn_type": "generic", "password": drilled.key.read_text()}
    monkeypatch.setenv("AIRFLOW_CONN_EVIDENCE", json.dumps(key))
    pipeline = Pipeline(
        name="made",
        topics=[drilled.one],
        archive=str(drilled.archive.root),
        evidence_conn_id="evidence",
        drill={"sample": "whole", "topic_config": {"max.message.bytes": 10_000}},
    )
    context: Any = {"run_id": "a run"}
    with pytest.raises(Exception, match=r"max\.message\.bytes=10000"):
        DrillOperator(task_id="drill", pipeline=pipeline).execute(context)
    with pytest.raises(Exception, match=r"failed: .*max\.message\.bytes=10000"):
        DrillCheckOperator(task_id="check", pipeline=pipeline).execute(context)
    fits = pipeline.model_copy(update={"drill": Drill(sample="whole")})
    result = DrillOperator(task_id="drill", pipeline=fits).execute(context)

    assert (result["verdict"], result["records"], result["max_age_days"]) == ("passed", 61, 14)
    assert DrillCheckOperator(task_id="check", pipeline=fits).execute(context)["state"] == "ok"
    assert scratch(cluster) == []
    check_offline(drilled, read_drills(drilled.archive.root)[-1])

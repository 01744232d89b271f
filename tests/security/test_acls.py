"""What a user has to be allowed: no more than the documentation lists, and nothing less."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.faults.republishing import read_topic
from tests.integration.command_line import Ended, kafka_drain
from tests.security.acls import Acls, Rule, documented
from tests.security.conftest import PASSWORD
from tests.security.secured_kafka import SecuredKafka
from tests.security.watching import command_lines_with, files_with

pytestmark = pytest.mark.integration

USER = "archivist"
RECORDS = 200


@dataclass(frozen=True)
class Run:
    """A user over SASL_SSL with SCRAM, a topic to drain, and an archive."""

    secured: SecuredKafka
    acls: Acls
    folder: Path
    topic: str
    target: str

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    def command(self, name: str, *arguments: object, conf: bool = False) -> Ended:
        """Run a command with the connection from a file, and all it writes in our folder."""
        scratch = self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        connection = ("--kafka-config", self.folder / "connection.json")
        spark = ("--master", "local[2]") if conf else ()
        return kafka_drain(
            *(name, self.archive, *connection, *spark, *arguments),
            environment={"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)},
        )

    def drain(self) -> Ended:
        events = self.folder / "events"
        events.mkdir(exist_ok=True)
        logged = ("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events}")
        return self.command("drain", "--topic", self.topic, *logged, conf=True)

    def republish(self, *options: str) -> Ended:
        return self.command(
            "republish", "--apply", "--target-topic", self.target, *options, conf=True
        )

    def allow(self, *rules: Rule) -> None:
        self.acls.only(USER, *rules)

    def in_target(self) -> int:
        records = read_topic(self.secured.kafka.bootstrap_servers, self.target)
        return sum(len(of_partition) for of_partition in records.values())


@pytest.fixture(scope="module")
def run(secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A topic of two partitions, an empty target, and a user whom nothing is allowed."""
    folder = tmp_path_factory.mktemp("secured-run")
    made = Run(secured, Acls(secured.admin), folder, "secured-source", "secured-target")
    new = [NewTopic(name, 2) for name in (made.topic, made.target)]
    for future in secured.admin.create_topics(new).values():
        future.result(30)
    servers = secured.kafka.bootstrap_servers
    # A transaction's end is an offset without a record, which validation asks Kafka about.
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(made.topic, str(number).encode(), str(number).encode())
    producer.commit_transaction(30)
    connection = folder / "connection.json"
    connection.touch(mode=0o600)
    connection.write_text(json.dumps(secured.scram(USER, PASSWORD)))
    return made


def refused(ended: Ended, *named: str) -> None:
    """A command has failed, in one line that names what isn't allowed."""
    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err
    last = ended.err.strip().splitlines()[-1]
    for text in named:
        assert text in last
    assert PASSWORD not in ended.out + ended.err


@pytest.mark.parametrize("left_out", range(len(documented("drain", "any"))))
def test_drain_without_one_acl(run: Run, left_out: int) -> None:
    """Each ACL that is taken away stops a drain before it has written anything, and is named."""
    rules = documented("drain", run.topic)
    missing = rules.pop(left_out)
    run.allow(*rules)

    refused(run.drain(), missing[2], f"topic {run.topic}")

    assert not run.archive.exists()


def test_drain_with_acls(run: Run) -> None:
    """With those that the documentation lists, and no other, a drain is proven; no secret leaks."""
    with command_lines_with(PASSWORD) as command_lines:
        run.allow(*documented("drain", run.topic))
        drained = run.drain()
        refused(run.command("validate"), "READ", "Group kafka-drain-validate")
        run.allow(*documented("validate", run.topic))
        validated = run.command("validate", "--json")

    assert drained.code == 0, drained.err
    assert validated.code == 0, validated.err
    report: dict[str, Any] = json.loads(validated.out)
    assert (report["verdict"], report["records"]) == ("complete", RECORDS)
    assert command_lines == set()
    assert PASSWORD not in drained.out + drained.err + validated.out + validated.err
    assert any((run.folder / "events").iterdir())
    assert files_with(PASSWORD, run.folder) == {"connection.json": "0o600"}


@pytest.mark.parametrize("left_out", range(len(documented("republish", "any"))))
def test_republish_without_one_acl(run: Run, left_out: int) -> None:
    """Each ACL that is taken away stops a republish before its first record, and is named."""
    assert run.archive.exists()
    rules = documented("republish", run.target)
    missing = rules.pop(left_out)
    run.allow(*rules)

    kind = {"TOPIC": f"topic {run.target}", "GROUP": "Group ", "TRANSACTIONAL_ID": "Transactional"}
    refused(run.republish("--run", f"without-{left_out}"), missing[2], kind[missing[0]])

    assert run.in_target() == 0


@pytest.mark.parametrize("engine", ["worker", "spark"])
def test_republish_with_acls(run: Run, engine: str) -> None:
    """With those that the documentation lists, and no other, each engine sends exactly once."""
    run.allow(*documented("republish", run.target))
    before = run.in_target()

    with command_lines_with(PASSWORD) as command_lines:
        ended = run.republish("--engine", engine, "--run", engine, "--repeat")

    assert ended.code == 0, ended.err
    assert run.in_target() == before + RECORDS
    assert command_lines == set()
    assert PASSWORD not in ended.out + ended.err
    assert files_with(PASSWORD, run.folder) == {"connection.json": "0o600"}

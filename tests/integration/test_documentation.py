"""Commands and readers in the documentation work when copied, on a real archive."""

from __future__ import annotations

import ast
import uuid
from argparse import Namespace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plans import list_plans
from kafka_drain.cli.main import parser
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_state import ASKED
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.cluster_capture import describe_with
from kafka_drain.proof.validation import validate_archive
from tests.documentation.blocks import Code, python_blocks
from tests.documentation.shell import Command, commands

pytestmark = pytest.mark.integration

#: The time that the documented commands use: some records are older, some newer.
MOMENT = datetime(2026, 1, 31, 13, tzinfo=timezone.utc)
RECORDS = 40
SERVERS = "KAFKA_BOOTSTRAP_SERVERS"
#: Reader functions whose first string argument is the archive.
READERS = ("archive_dataset", "read_archive")


#: Why a command isn't run that names another master than this machine.
MASTERS = {
    "sc://": "needs a server: test_spark_connect.py runs it",
    "k8s://": "needs a cluster: test_kubernetes.py runs it on a stand-in",
    "yarn": "needs a cluster: test_yarn.py runs it",
}
#: Why a command isn't run at all.
ELSEWHERE = {
    "register": "needs a configured catalog: test_reading_page.py runs it",
    "rewrap": "needs an encrypted archive: test_encryption.py wraps its data keys again",
    "status": "fails unless the archive is ready: test_status.py runs it",
}


def why_not(options: Namespace) -> str:
    """Return why a command is only parsed; empty if it is run."""
    if options.name in ("jars", "class-archive"):
        return "changes this machine's caches: `make setup` and `make class-archive` run it"
    if options.name in ("evidence-key", "verify-evidence") or getattr(
        options, "evidence_key", None
    ):
        return "needs a key, or creates one: test_evidence.py runs it"
    if getattr(options, "immutable_days", None):
        return "needs a bucket that locks: test_s3_immutable.py runs it"
    if options.name in ELSEWHERE:
        return ELSEWHERE[options.name]
    if options.name == "find" and options.key_file:
        return "reads keys from a file: test_find.py runs it"
    if options.name == "cut-over" and options.back:
        return "needs two clusters: test_cut_over.py runs it"
    if options.name == "reprocess" and options.apply:
        return "drains again with Spark: test_reprocess.py runs it"
    if options.name == "reprocess" and getattr(options, "abandon", False):
        return "needs a reprocess that was begun: test_abandoning.py runs it"
    if getattr(options, "from_file", None):
        return "sends a file of found records: test_record_file.py runs it"
    if options.name == "republish" and options.abandon:
        return "needs a run that was begun: test_runs.py runs it"
    if getattr(options, "registry", None) or getattr(options, "schema_map", None):
        return "needs a Schema Registry: test_schema_registry.py runs it"
    if options.name == "spark-server":
        return MASTERS["sc://"]
    master = getattr(options, "master", "")
    return next((why for prefix, why in MASTERS.items() if master.startswith(prefix)), "")


class Example:
    """A drained topic that replaces the one in the documentation.

    Its folder, brokers, topics, groups and runs replace those that the documents name. Each page
    has its own targets, groups and runs, because it must work for users who read no other page.
    """

    def __init__(self, archive: str, topic: str, cluster: KafkaCluster, keys: Path) -> None:
        self.archive, self.topic, self.cluster, self.keys = archive, topic, cluster, keys
        self.suffix = f"-{uuid.uuid4().hex[:8]}"
        self.target = ""
        self.groups: set[str] = set()

    def options(self, command: Command) -> Namespace:
        """Parse a documented command, and replace its names with ours."""
        options = parser().parse_args(command.words[1:])
        page = self.page_name(command.page)
        given = vars(options)
        if given.get("archive"):
            options.archive = self.archive
        if given.get("bootstrap_servers"):
            options.bootstrap_servers = self.cluster.config.bootstrap_servers
        if given.get("to_bootstrap"):
            options.to_bootstrap = self.cluster.config.bootstrap_servers
        for name in ("topic", "topics"):
            if given.get(name):
                setattr(options, name, [self.topic])
        if options.name == "erase" and options.keys:
            # Later pages need all records: nobody has this key.
            options.keys = self.keys
        if given.get("state"):
            options.state = str(self.keys.parent / f"state{page}")
        if given.get("out"):
            options.out = str(self.keys.parent / options.out)
        if given.get("plan_id"):
            # A plan's id has its hash: it is that of the page's own `--freeze`.
            [options.plan_id] = list_plans(Archive.at(self.archive).root)
        for name in ("target_topic", "run_name", "run", "group"):
            if isinstance(given.get(name), str):
                setattr(options, name, given[name] + page)
        return options

    def page_name(self, page: str) -> str:
        """Return what is added to the names that a page uses."""
        return "-" + page.removesuffix(".md").replace("/", "-") + self.suffix

    def is_lost(self, page: str, other: KafkaCluster) -> None:
        """Let a group have read half, and a validation note it; then there is another cluster.

        The page on recovery starts where the cluster is gone.
        """
        self.target = self.topic
        self.has_group(f"billing{self.page_name(page)}")
        describe = describe_with(self.cluster.config, ASKED)
        validate_archive(Archive.at(self.archive), self.cluster, describe=describe)
        self.cluster = other

    def has_group(self, group: str) -> None:
        """Let a group have read half of each partition, and previously looked at the target."""
        if group not in self.groups:
            read = {self.topic: RECORDS // 4, self.target: 0}
            offsets = {
                TopicPartition(topic, partition): Committed(offset, "")
                for topic, offset in read.items()
                for partition in (0, 1)
            }
            ConsumerGroups(self.cluster.config).commit(group, offsets)
            self.groups.add(group)


@pytest.fixture
def example(
    archive_folder: str,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    drain: Any,
    tmp_path: Path,
) -> Example:
    """Forty records around the documented time, drained but not yet validated."""
    topic = make_topic(2)
    first = int(MOMENT.timestamp() * 1000) - 5_000
    for partition in (0, 1):
        records = [(b"%d" % n, b"value", [], first + n * 1000) for n in range(RECORDS // 2)]
        send(topic, records, partition)
    drain(Pipeline(name="flights", topics=[topic], archive=archive_folder))
    keys = tmp_path / "keys.txt"
    keys.write_text("nobody\n")
    return Example(archive_folder, topic, cluster, keys)


def test_documented_commands(
    example: Example,
    other_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every `kafka-drain` line on every page works, in the order of its page."""
    failed, run = [], 0
    page, drained = "", example.cluster
    for command in commands():
        if command.page != page:
            page, example.cluster = command.page, drained
            if page.endswith("recovery.md"):
                example.is_lost(page, other_cluster)
            monkeypatch.delenv(SERVERS, raising=False)
        if command.words[0] in ("export", "."):
            monkeypatch.setenv(SERVERS, example.cluster.config.bootstrap_servers)
        if command.words[0] != "kafka-drain":
            continue
        options = example.options(command)
        if why_not(options):
            continue
        if options.name == "republish" and options.plan_id is None:
            example.target = options.target_topic
        if options.name == "translate-group":
            example.has_group(options.group)
        try:
            code = options.command(options)
        except Exception as error:  # so that all failures are shown, not only the first
            code = f"{type(error).__name__}: {error}"
        run += 1
        said = capsys.readouterr()
        if code != 0:
            failed.append(f"{command}\n  {code} {said.err[-500:]}")

    assert not failed, "\n".join(failed)
    assert run >= len({command.page for command in commands("kafka-drain")})


def test_documented_readers(example: Example, spark: Any, capsys: Any) -> None:
    """Every Python block that reads an archive reads ours, without prior validation."""
    found = list(python_blocks("kafka_drain", "kafka_drain_spark"))
    for block in found:
        exec(compile(_with_archive(block, example.archive), block.place, "exec"), {"spark": spark})

    assert found
    assert str(RECORDS) in capsys.readouterr().out


def _with_archive(block: Code, archive: str) -> ast.Module:
    """Return a block that reads another archive."""
    tree = ast.parse(block.text)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in READERS:
            for argument in call.args:
                if isinstance(argument, ast.Constant):
                    argument.value = archive
    return tree

"""Thousands of source partitions into one target partition: resources depend on writers only."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning import chains
from kafka_drain.republish.planning.chains import MAX_PER_PARTITION
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.sending import shard_sender as sending
from kafka_drain.republish.verifying.offset_map import OffsetMap
from tests.brokers import SHORT_LIVED
from tests.faults.injection import NOON
from tests.faults.republish_case import Case, Stopped, Tapped, tap
from tests.faults.republishing import ROOT, make_target, read_topic
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration

OPEN_FILES = 256
MEMORY = 1 << 30

#: `python -m tests.faults.test_many_partitions 10000` sends more of them.
SOURCES = 600


@dataclass
class Usage:
    """The peak resource usage of a command's processes.

    Attributes:
        code: Exit code.
        seconds: Duration.
        open_files: Maximum number of open files of one process.
        memory: Maximum resident bytes of all processes together.
    """

    code: int
    seconds: float
    open_files: int
    memory: int


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))


def run_watched(log: Path, *arguments: object) -> Usage:
    """Run `kafka-drain` with a low limit of open files, and watch its processes."""
    began = time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kafka_drain.cli", *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            preexec_fn=few_files,
        )
        files = memory = 0
        while True:
            used = [usage_of(one) for one in (process.pid, *children(process.pid))]
            files = max(files, *(one[0] for one in used))
            memory = max(memory, sum(one[1] for one in used))
            try:
                code = process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            return Usage(code, time.monotonic() - began, files, memory)


def children(process: int) -> list[int]:
    try:
        found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in found]


def usage_of(process: int) -> tuple[int, int]:
    """Return the number of open files of a process, and its resident bytes."""
    folder = Path(f"/proc/{process}")
    try:
        pages = int((folder / "statm").read_text().split()[1])
        return len(os.listdir(folder / "fd")), pages * resource.getpagesize()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0


def make_archive(folder: Path, sources: int, records: int = 5) -> MadeArchive:
    """Create an archive with the given number of partitions, one file each."""
    made = MadeArchive(folder, {"wide": "id-wide"})
    rows = {TopicPartition("wide", p): dense(0, records, NOON + 10 * p) for p in range(sources)}
    made.seal_window("0_1", rows)
    return made


def send_and_count(bootstrap: str, folder: Path, sources: int, *arguments: object) -> Usage:
    """Send an archive with the given number of partitions into one, and count the records there."""
    made = make_archive(folder / "archive", sources)
    target = make_target(bootstrap, f"t-{uuid.uuid4().hex[:8]}", 1)
    log = folder / "log"
    command = ["republish", made.root, "--bootstrap-servers", bootstrap, "--target-topic", target]
    used = run_watched(log, *command, "--apply", "--placement", 0, "--run-name", target, *arguments)
    assert used.code == 0, f"{used}\n" + "\n".join(log.read_text().splitlines()[-60:])
    found = read_topic(bootstrap, target)[0]
    assert len(found) == 5 * sources
    assert len(set(found)) == 5 * sources
    [path] = (folder / "archive" / "republish").glob("*/plan.json")
    plan = RepublishPlan.parse(path.read_bytes())
    assert len(plan.shards) == sources
    assert len(plan.chains) <= MAX_PER_PARTITION
    return used


def test_republish_many_partitions_into_one(cluster: KafkaCluster, tmp_path: Path) -> None:
    """More source partitions than a process may open files are sent and verified."""
    bootstrap = cluster.config.bootstrap_servers

    used = send_and_count(bootstrap, tmp_path, SOURCES)

    assert used.open_files < OPEN_FILES
    assert used.memory < MEMORY


def test_republish_chain_interrupted(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions may end anywhere in a chain; a resumed chain sends each shard once, in order.

    The map says where each source offset went, although its shard shares a writer.
    """
    monkeypatch.setattr(chains, "MAX_PER_PARTITION", 2)
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", 25)
    monkeypatch.setattr(sending, "STEP", 10)
    made = MadeArchive(tmp_path / "many", {"many": "id-many"})
    sizes = {TopicPartition("many", p): 5 + 11 * p for p in range(7)}
    made.seal_window("0_1", {tp: dense(3, 3 + size, NOON) for tp, size in sizes.items()})
    request = {"placement": 0, "provenance": True}
    many = replace(case, archive=made.archive, request=request)
    lost = itertools.count(1)
    stops = itertools.count(1)

    def hook(_: Tapped, call: str, has_ended: bool) -> None:
        if call == "commit" and has_ended and next(lost) % 3 == 0:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the answer was lost"))
        if call == "offsets" and has_ended and next(stops) == 4:
            raise Stopped

    tap(monkeypatch, hook)
    with pytest.raises(Stopped):
        many.run()
    result = many.run()

    plan = many.planned().plan
    assert [len(chain) for chain in plan.chains] == [4, 3]
    assert result["attempts"] == 2
    assert result["verification"]["is_exact"]
    found: dict[int, list[tuple[int, int]]] = {}
    for place, (_, _, headers, _) in enumerate(read_topic(many.bootstrap, many.target)[0]):
        told = dict(headers)
        source = int(told["kafka-drain.partition"])
        found.setdefault(source, []).append((int(told["kafka-drain.offset"]), place))
    for tp, size in sizes.items():
        assert [offset for offset, _ in found[tp.partition]] == list(range(3, 3 + size))
    content = many.planned().run.offset_map()
    assert content is not None
    mapped = {one.source: one for one in OffsetMap.parse(content).partitions}
    assert mapped.keys() == sizes.keys()
    for tp, one in mapped.items():
        first = found[tp.partition][0][0]
        assert one.blocks[0].source_start == first
        assert sum(block.records for block in one.blocks) == sizes[tp]
        assert one.blocks[-1].source_end == 3 + sizes[tp]


if __name__ == "__main__":
    import tempfile

    from demo.broker import KafkaCluster as LocalKafka

    with (
        tempfile.TemporaryDirectory() as made,
        LocalKafka(Path(made) / "kafka", java_options=SHORT_LIVED) as broker,
    ):
        print(send_and_count(broker.bootstrap_servers, Path(made), int(sys.argv[1]), *sys.argv[2:]))  # noqa: T201

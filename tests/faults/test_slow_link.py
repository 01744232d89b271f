"""A link on which sending a full queue takes longer than a transaction may."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.sending import producer
from kafka_drain.republish.sending import shard_sender as sending
from kafka_drain.republish.verifying.verify import verify_partition
from tests.faults.injection import NOON
from tests.faults.republish_case import Case, Tapped, tap
from tests.faults.republishing import make_target, read_topic
from tests.faults.slow_link import SlowLink, kafka_behind
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration

#: Bytes per second.
RATE = 1_000_000

#: A tenth of the defaults, so that a tenth of the records shows the same.
TRANSACTION_TIMEOUT_MS, MESSAGE_TIMEOUT_MS = 6_000, 4_500

#: Larger than lz4's window, so that a copy of the same bytes isn't compressed.
VALUE = os.urandom(100_000)

RECORDS = 120


@pytest.fixture(scope="module")
def slow_kafka(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LocalKafka, str, SlowLink]]:
    """A broker behind a slow link."""
    with kafka_behind(tmp_path_factory.mktemp("slow"), RATE) as started:
        yield started


def test_republish_slow_link(
    slow_kafka: tuple[LocalKafka, str, SlowLink],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a full queue would take longer than a transaction may, less is queued.

    No transaction has to be sent again, and the log says rate and time left.
    """
    broker, address, _ = slow_kafka
    monkeypatch.setitem(producer.SETTINGS, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
    monkeypatch.setitem(producer.SETTINGS, "message.timeout.ms", MESSAGE_TIMEOUT_MS)
    # The same part of it as without these limits.
    monkeypatch.setitem(producer.SETTINGS, "linger.ms", MESSAGE_TIMEOUT_MS // 9)
    monkeypatch.setattr(sending, "PATIENCE_SECONDS", 20.0)
    made = MadeArchive(tmp_path / "archive", {"large": "id-large"})
    rows = dense(0, RECORDS, NOON)
    made.seal_window("0_1", {TopicPartition("large", 0): rows}, columns={"value": VALUE})
    target = make_target(broker.bootstrap_servers, f"t-{uuid.uuid4().hex[:8]}", 1)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": address}))
    case = Case(made.archive, cluster, target, {0: []}, tmp_path)
    commits: list[bool] = []
    tap(monkeypatch, lambda _, call, ended: commits.append(ended) if call == "commit" else None)

    result = case.run()

    assert result["records_sent"] == RECORDS
    assert result["verification"]["is_exact"]
    assert commits.count(True) == commits.count(False) >= 3
    [found] = read_topic(broker.bootstrap_servers, target).values()
    assert [key for key, *_ in found] == [b"%d" % offset for offset in rows]
    # Nothing was uploaded twice.
    uncommitted = read_topic(broker.bootstrap_servers, target, "read_uncommitted")
    assert len(uncommitted[0]) == RECORDS
    assert result["seconds"] < 4 * RECORDS * len(VALUE) / RATE


def test_verify_aborted_on_slow_link(
    slow_kafka: tuple[LocalKafka, str, SlowLink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minutes of aborted records, which readers never receive, don't count as silence."""
    broker, address, _ = slow_kafka
    fast = {"bootstrap.servers": broker.bootstrap_servers}
    made = MadeArchive(tmp_path / "archive", {"small": "id-small"})
    tp = TopicPartition("small", 0)
    made.seal_window("0_1", {tp: dense(0, 10, NOON)})
    target = make_target(broker.bootstrap_servers, f"t-{uuid.uuid4().hex[:8]}", 1)
    cluster = KafkaCluster(KafkaConfig(fast))
    case = Case(made.archive, cluster, target, {0: []}, tmp_path, {"engine": "worker"})
    aborted: list[bool] = []

    def hook(_: Tapped, call: str, has_ended: bool) -> None:
        if not aborted:
            aborted.append(True)
            other = Producer({**fast, "transactional.id": target, "log_level": 0})
            other.init_transactions(20)
            other.begin_transaction()
            for _ in range(RECORDS):
                other.produce(target, VALUE, partition=0)
            assert other.flush(30) == 0
            other.abort_transaction(20)

    tap(monkeypatch, hook)
    result = case.run()
    assert result["verification"]["is_exact"]

    began = time.monotonic()
    match = verify_partition(
        str(made.root),
        case.planned().plan,
        {"bootstrap.servers": address},
        TopicPartition(target, 0),
        end_timeout_seconds=8.0,
    )

    assert match.is_exact
    assert match.found == 10
    # It took longer than the limit for silence.
    assert time.monotonic() - began > 9.0

"""A header name with a NUL, which Spark's sink sends: the client that reads back cuts it off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.planner import make_plan
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.verifying import verify
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.raw_batches import mock_broker, send_raw

COPY = TopicPartition("copy", 0)


@pytest.mark.parametrize(
    ("name", "sent", "lost"),
    [("ab", "ab", 0), ("a\0b", "a\0b", 0), ("a\0b", "b\0b", 1), ("a\0b", "a\0c", 0)],
)
def test_verify_header_name_with_nul(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sent: str, lost: int
) -> None:
    """What the refusal advises, at_least_once, gets its receipt; names count up to the NUL."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    tp = TopicPartition("t", 0)

    def headers(_: TopicPartition, offset: int) -> Any:
        return [None, [{"key": name, "value": b"1"}, {"key": "x", "value": None}]][offset % 2]

    made.seal({tp: dense(0, 4)}, headers=headers)
    producer, servers = mock_broker(COPY)
    for offset in range(4):
        sent_headers: Any = [(sent, b"1"), ("x", None)] if offset % 2 else []
        send_raw(servers, COPY, b"%d" % offset, b"value", sent_headers, 1_000 + offset)
    cluster: Any = FakeCluster(
        {COPY: Log(end=0)}, id="elsewhere", configs={"copy": {"retention.ms": "-1"}}
    )
    plan = make_plan(
        made.archive.snapshot(),
        cluster,
        RepublishRequest(target_topic="copy", delivery="at_least_once", engine="spark"),
        run="run",
        now=NOW,
        files=made.files,
        apply=True,
    )
    cluster.logs[COPY] = Log(end=4)
    settings = {"bootstrap.servers": servers}
    cluster.config = KafkaConfig(settings)
    monkeypatch.setattr(verify, "KafkaCluster", lambda _: cluster)

    match = verify.verify_partition(str(made.root), plan, settings, COPY)

    assert (match.expected, match.lost) == (4, 2 * lost)
    del producer

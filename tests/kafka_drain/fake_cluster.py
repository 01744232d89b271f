"""A Kafka cluster made of plain values, with the questions of `kafka_cluster.KafkaCluster`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.synthetic import AnyHash
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.xxhash64 import record_hashes
from kafka_drain.errors import TopicError
from kafka_drain.kafka.acls import TARGET, require_access
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import Topic
from kafka_drain.kafka.identity import SeenRecord, counted_as
from kafka_drain.kafka.single_records import RecordSample
from kafka_drain.kafka.topics import MAX_MESSAGE_BYTES, TopicSettings
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.spark.submit import SparkApplication, prepare_application


@dataclass(frozen=True)
class Log:
    """One partition as the broker holds it.

    Attributes:
        first: First offset that is still there.
        end: The high watermark.
        stable: The last stable offset; None when no transaction is open.
        times: Timestamp in milliseconds by offset.
    """

    first: int = 0
    end: int = 0
    stable: int | None = None
    times: Mapping[int, int] | None = None


class FakeCluster:
    """Answers from a table of logs; refuses as the real one does."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, Log],
        *,
        id: str = "cluster-1",
        topic_ids: Mapping[str, str] | None = None,
        configs: Mapping[str, dict[str, str]] | None = None,
        allowed: Mapping[str, set[str]] | None = None,
        refused: Collection[str] = (),
        contents: Callable[[TopicPartition, OffsetRange], list[dict[str, Any]]] | None = None,
    ) -> None:
        self.contents = contents
        #: The leader epoch of records from an offset on; earlier ones have 0.
        self.epoch_from: dict[TopicPartition, tuple[int, int]] = {}
        self.logs = dict(logs)
        self.id = id
        self.topic_ids = dict(topic_ids or {})
        self._counted: Mapping[str, str] = {}
        self.configs = dict(configs or {})
        self.allowed = dict(allowed or {})
        self.refused = set(refused)
        #: What new topics inherit, and why which of their settings are refused.
        self.broker: dict[str, str] = {"message.max.bytes": str(MAX_MESSAGE_BYTES)}
        self.words: dict[str, str] = {}
        self.samples: list[RecordSample] = []
        self.config = KafkaConfig({"bootstrap.servers": "fake:9092"})

    def look(self) -> None:
        """Nothing keeps it from answering."""

    def cluster_id(self) -> str:
        return self.id

    def named(self) -> dict[str, str]:
        return {"bootstrap_servers": self.config.bootstrap_servers, "cluster_id": self.id}

    def asked(self) -> dict[str, str]:
        return self.named()

    def counting(self, topic_ids: Mapping[str, str]) -> FakeCluster:
        counting = copy(self)
        counting._counted = dict(topic_ids)
        return counting

    def topic_names(self) -> list[str]:
        return sorted({tp.topic for tp in self.logs if not tp.topic.startswith("__")})

    def topics(
        self, names: Collection[str], needed: Sequence[str] = ("DESCRIBE",)
    ) -> dict[str, Topic]:
        missing = sorted(set(names) - {tp.topic for tp in self.logs})
        if missing:
            raise TopicError(f"topic {', '.join(missing)} doesn't exist")
        for name in names:
            require_access(self.config, name, self.allowed.get(name, TARGET), needed)
        return self._described(names)

    def _described(self, names: Collection[str]) -> dict[str, Topic]:
        return {
            name: Topic(
                name,
                counted_as(self._counted.get(name), self.topic_ids.get(name, f"id-of-{name}")),
                tuple(sorted(tp.partition for tp in self.logs if tp.topic == name)),
            )
            for name in sorted(names)
        }

    def matching(self, pattern: str) -> list[str]:
        names = [name for name in self.topic_names() if re.fullmatch(pattern, name)]
        if not names:
            raise TopicError(f"topic_pattern {pattern!r} matches no topic")
        return names

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp].first for tp in partitions}

    def latest(
        self, partitions: Iterable[TopicPartition], isolation_level: str
    ) -> dict[TopicPartition, int]:
        return {tp: self._end(self.logs[tp], isolation_level) for tp in partitions}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {tp: offset for tp, (offset, _) in self.first_since(times).items()}

    def first_since(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return {
            tp: min(
                (
                    (offset, at)
                    for offset, at in (self.logs[tp].times or {}).items()
                    if offset >= self.logs[tp].first and at >= time
                ),
                default=(-1, -1),
            )
            for tp, time in times.items()
        }

    def records(
        self, tp: TopicPartition, span: OffsetRange, isolation_level: str
    ) -> Iterator[pa.RecordBatch]:
        """Kafka holds nothing any more, unless `contents` says what."""
        end = self._end(self.logs[tp], isolation_level)
        if self.contents is not None:
            rows = self.contents(tp, OffsetRange(max(span.start, self.logs[tp].first), end))
            found = [row for row in rows if row["offset"] in span]
            yield pa.RecordBatch.from_pylist(found, schema=SCHEMA)

    def single_records(
        self,
        offsets: Mapping[TopicPartition, int],
        isolation_level: str = "read_uncommitted",
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, SeenRecord]:
        """Kafka has the records that `contents` says; without it, those of any archive."""
        if self.contents is None and isolation_level == "read_committed":
            return {}
        if self.contents is None:
            return {tp: SeenRecord(at, AnyHash(), None) for tp, at in offsets.items()}
        found = {}
        for tp, at in offsets.items():
            for batch in self.records(tp, OffsetRange(at, sys.maxsize), isolation_level):
                if not batch.num_rows:
                    continue
                for _, rows, hashes in record_hashes(batch.slice(0, 1), tp.topic):
                    seen = frozenset(f"{value:016x}" for value in hashes)
                    offset = rows["offset"][0].as_py()
                    first, epoch = self.epoch_from.get(tp, (0, 0))
                    found[tp] = SeenRecord(offset, seen, epoch if offset >= first else 0)
        return found

    def times_from(
        self,
        offsets: Mapping[TopicPartition, int],
        count: int,
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Kafka has no records at an offset that it has deleted, and reads on from no other."""
        return {
            tp: sorted(timed for timed in (self.logs[tp].times or {}).items() if timed[0] >= at)[
                : count if at >= self.logs[tp].first else 0
            ]
            for tp, at in offsets.items()
        }

    def sample_records(self, places: Iterable[Mapping[TopicPartition, int]]) -> list[RecordSample]:
        """Kafka has the samples that a test has put there, of the partitions that are asked for."""
        asked = {tp for each in places for tp in each}
        return [sample for sample in self.samples if sample.tp in asked]

    def topic_config(self, name: str) -> dict[str, str]:
        return self.configs.get(name, {})

    def topic_settings(self, name: str) -> TopicSettings:
        partitions = len(self.topics([name])[name].partitions)
        config = self.topic_config(name)
        compacted = "compact" in config.get("cleanup.policy", "delete")
        return TopicSettings(partitions, 1, config=config, compacted=compacted)

    def has_topic(self, name: str) -> bool:
        return name in self.topic_names()

    def check_new_topic(self, name: str, settings: TopicSettings) -> None:
        if name in self.refused:
            raise TopicError(f"Kafka at fake:9092 answered: {name} is against the policy")

    def existing(self, names: Iterable[str]) -> set[str]:
        listed = {*names}.intersection(self.topic_names())
        return listed | self.ids_of({*names} - listed).keys()

    def ids_of(self, names: Collection[str]) -> dict[str, str]:
        there = {tp.topic for tp in self.logs}
        return {name: self.topics([name])[name].id for name in names if name in there}

    def brokers(self) -> int:
        return 3

    def broker_config(self) -> dict[str, str]:
        return dict(self.broker)

    def refused_settings(self, name: str, settings: TopicSettings) -> dict[str, str]:
        return {each: words for each, words in self.words.items() if each in settings.config}

    def delete_topic(self, name: str, topic_id: str | None = None) -> bool:
        if self.ids_of([name]).get(name) != topic_id:
            return False
        self.logs = {tp: log for tp, log in self.logs.items() if tp.topic != name}
        return True

    def create_topic(self, name: str, settings: TopicSettings) -> bool:
        if self.has_topic(name):
            return False
        for partition in range(settings.partitions):
            self.logs.setdefault(TopicPartition(name, partition), Log())
        self.configs.setdefault(name, dict(settings.config))
        return True

    @staticmethod
    def _end(log: Log, isolation_level: str) -> int:
        if isolation_level == "read_uncommitted" or log.stable is None:
            return log.end
        return log.stable


class GrowingCluster(FakeCluster):
    """A cluster whose partitions get a record each between any two questions."""

    def latest(
        self, partitions: Iterable[TopicPartition], isolation_level: str
    ) -> dict[TopicPartition, int]:
        found = super().latest(partitions, isolation_level)
        self.logs = {tp: replace(log, end=log.end + 1) for tp, log in self.logs.items()}
        return found


def fake_application(name: str, **given: Any) -> SparkApplication:
    """Take the place of `prepare_application` on a machine that needs no Java for it.

    It takes what that takes; alone, a name is enough.
    """
    if given:
        signature(prepare_application).bind(name, **given)
    nowhere = Path("/nowhere")
    return SparkApplication(name, nowhere, [], {}, [], nowhere, "1g", {})

"""The clients of `confluent_kafka` over logs in memory: what they are asked, and what they answer.

They stand where the product makes its own, so that all of its code of Kafka runs as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AclOperation, ConfigSource, OffsetSpec, ResourceType

from tests.histories.coordinator import Coordinator
from tests.histories.log import Batch, Entry, KafkaLog, PartitionLog

__all__ = ["FakeAdminClient", "FakeConsumer"]

_OWN = ConfigSource.DYNAMIC_TOPIC_CONFIG
#: What every topic inherits.
_DEFAULTS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "retention.ms": "-1",
    "min.insync.replicas": "1",
}


def refused(code: int, text: str = "") -> KafkaException:
    return KafkaException(KafkaError(code, text or str(KafkaError(code))))


def answer(question: Callable[[], Any]) -> Future[Any]:
    """Return a future that has what a question returns or raises."""
    future: Future[Any] = Future()
    try:
        future.set_result(question())
    except KafkaException as error:
        future.set_exception(error)
    return future


class FakeAdminClient:
    """Answers requests about a cluster."""

    def __init__(self, log: KafkaLog, config: Mapping[str, Any]) -> None:
        self._log = log

    def poll(self, _: float) -> int:
        return 0

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        topics = {
            name: SimpleNamespace(
                topic=name,
                error=None,
                partitions={
                    number: SimpleNamespace(id=number, leader=1, replicas=[1], error=None)
                    for number in range(len(found.partitions))
                },
            )
            for name, found in self._log.topics.items()
        }
        brokers = {1: SimpleNamespace(id=1, host="fake", port=9092)}
        return SimpleNamespace(cluster_id=self._log.id, brokers=brokers, topics=topics)

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        return {name: answer(lambda name=name: self._topic(name)) for name in topics.topic_names}

    def _topic(self, name: str) -> Any:
        found = self._found(name)
        replica = SimpleNamespace(id=1)
        partitions = [
            SimpleNamespace(id=number, replicas=[replica], isr=[replica], leader=replica)
            for number in range(len(found.partitions))
        ]
        return SimpleNamespace(
            name=name, topic_id=found.id, partitions=partitions, authorized_operations=None
        )

    def _found(self, name: str) -> Any:
        if name not in self._log.topics:
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return self._log.topics[name]

    def describe_configs(self, resources: Iterable[Any], **_: Any) -> dict[Any, Future[Any]]:
        return {each: answer(lambda each=each: self._config(each)) for each in resources}

    def _config(self, resource: Any) -> dict[str, Any]:
        own: Mapping[str, str] = {}
        if resource.restype == ResourceType.TOPIC:
            own = self._found(resource.name).config
        return {
            name: SimpleNamespace(
                name=name,
                value=value,
                source=(_OWN if name in own else ConfigSource.DEFAULT_CONFIG).value,
                is_sensitive=False,
                is_read_only=False,
            )
            for name, value in {**_DEFAULTS, **own}.items()
        }

    def list_offsets(
        self, wanted: Mapping[KafkaTopicPartition, OffsetSpec], isolation_level: Any, **_: Any
    ) -> dict[Any, Future[Any]]:
        isolation = isolation_level.name.lower()
        return {
            tp: answer(lambda tp=tp, spec=spec: self._offset(tp, spec, isolation))
            for tp, spec in wanted.items()
        }

    def _offset(self, tp: KafkaTopicPartition, spec: OffsetSpec, isolation: Any) -> Any:
        log = _log_of(self._log, tp)
        if log is None:
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if spec is OffsetSpec.earliest():
            return SimpleNamespace(offset=log.first, timestamp=-1)
        if spec is OffsetSpec.latest():
            return SimpleNamespace(offset=log.ends(isolation), timestamp=-1)
        for _, entry in log.read(log.first, isolation):
            if not entry.is_marker and entry.timestamp >= spec._value:
                return SimpleNamespace(offset=entry.offset, timestamp=entry.timestamp)
        return SimpleNamespace(offset=-1, timestamp=-1)

    def describe_cluster(self, **_: Any) -> Future[Any]:
        node = SimpleNamespace(id=1, host="fake", port=9092, rack=None)
        return answer(
            lambda: SimpleNamespace(
                cluster_id=self._log.id,
                nodes=[node],
                authorized_operations=list(AclOperation),
                controller=node,
            )
        )

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        return answer(lambda: SimpleNamespace(valid=[], errors=[]))

    def describe_consumer_groups(self, groups: Iterable[str], **_: Any) -> dict[str, Future[Any]]:
        def refuse() -> None:
            raise refused(KafkaError.GROUP_ID_NOT_FOUND)

        return {group: answer(refuse) for group in groups}

    def describe_acls(self, *_: Any, **__: Any) -> Future[Any]:
        def refuse() -> None:
            raise refused(KafkaError.SECURITY_DISABLED)

        return answer(refuse)

    def describe_user_scram_credentials(self, **_: Any) -> Future[Any]:
        return answer(dict)

    def list_groups(self, *_: Any, **__: Any) -> list[Any]:
        return []


def _log_of(log: KafkaLog, tp: KafkaTopicPartition) -> PartitionLog | None:
    found = log.topics.get(tp.topic)
    if found is None or not 0 <= tp.partition < len(found.partitions):
        return None
    return found.partitions[tp.partition]


@dataclass(frozen=True)
class Message:
    """A record as a consumer returns it, or an event."""

    tp: tuple[str, int]
    batch: Batch | None = None
    entry: Entry | None = None
    code: int | None = None
    at: int = -1

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def topic(self) -> str:
        return self.tp[0]

    def partition(self) -> int:
        return self.tp[1]

    def offset(self) -> int:
        return self.at if self.entry is None else self.entry.offset

    def key(self) -> bytes | None:
        assert self.entry is not None
        return self.entry.key

    def value(self) -> bytes | None:
        assert self.entry is not None
        return self.entry.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        assert self.entry is not None
        return list(self.entry.headers) or None

    def timestamp(self) -> tuple[int, int]:
        assert self.entry is not None
        return 1, self.entry.timestamp

    def leader_epoch(self) -> int:
        assert self.batch is not None
        return self.batch.epoch


@dataclass
class _Position:
    """Where a consumer reads a partition.

    Attributes:
        next: The next offset to ask for.
        version: Which assignment it is of, as librdkafka's log has it.
        fetched: What was fetched, and not returned yet.
        is_paused: Whether it is paused.
        is_told: Whether its end, or its error, was returned.
    """

    next: int
    version: int
    fetched: list[Message] = field(default_factory=list)
    is_paused: bool = False
    is_told: bool = False


class FakeConsumer:
    """Reads assigned partitions, and logs its responses as librdkafka does with `debug=fetch`.

    Args:
        coordinator: Knows the cluster, and which offsets aren't decided.
        config: librdkafka's settings.
    """

    def __init__(self, coordinator: Coordinator, config: Mapping[str, Any], **more: Any) -> None:
        self._coordinator = coordinator
        self._log = coordinator.log
        config = {**config, **more}
        self._isolation = config.get("isolation.level", "read_committed")
        self._group = config.get("group.id", "")
        self._tells_end = config.get("enable.partition.eof", False)
        self._fetch_bytes = int(config.get("fetch.message.max.bytes", 1 << 20))
        logger = config.get("logger")
        self._logger: logging.Logger | None = logger if "debug" in config else None
        self._positions: dict[tuple[str, int], _Position] = {}
        self._version = 0

    def assign(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        self._version += 2
        before = self._positions
        self._positions = {}
        for each in partitions:
            tp = each.topic, each.partition
            log = _log_of(self._log, each)
            start = each.offset
            if start == -2:
                start = log.first if log else 0
            position = _Position(start, self._version)
            position.is_paused = tp in before and before[tp].is_paused
            self._positions[tp] = position

    def unassign(self) -> None:
        self._positions = {}

    def incremental_unassign(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        for each in partitions:
            del self._positions[each.topic, each.partition]

    def pause(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        for each in partitions:
            self._positions[each.topic, each.partition].is_paused = True

    def resume(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        for each in partitions:
            self._positions[each.topic, each.partition].is_paused = False

    def close(self) -> None:
        self._positions = {}

    def poll(self, _: float = -1) -> Message | None:
        for tp, position in self._positions.items():
            if position.is_paused:
                continue
            if not position.fetched:
                self._fetch(tp, position)
            if position.fetched:
                return position.fetched.pop(0)
        return None

    def consume(self, count: int = 1, timeout: float = -1) -> list[Message]:
        found: list[Message] = []
        while len(found) < count and (message := self.poll(timeout)) is not None:
            found.append(message)
        return found

    def committed(
        self, partitions: list[KafkaTopicPartition], timeout: float = -1
    ) -> list[KafkaTopicPartition]:
        held = self._log.groups.get(self._group, {})
        found = []
        for each in partitions:
            tp = each.topic, each.partition
            if self._isolation == "read_committed" and self._coordinator.is_pending(
                self._group, tp
            ):
                raise refused(KafkaError._TIMED_OUT, "the offset isn't decided yet")
            offset, metadata = held.get(tp, (-1001, ""))
            found.append(KafkaTopicPartition(each.topic, each.partition, offset, metadata))
        return found

    def consumer_group_metadata(self) -> str:
        return str(self._group)

    def _fetch(self, tp: tuple[str, int], position: _Position) -> None:
        """Ask for the next batches; what isn't a record is skipped, as the client does."""
        log = self._log.partition(*tp)
        if log is None or not log.first <= position.next <= log.end:
            self._tell(tp, position, KafkaError._AUTO_OFFSET_RESET)
            return
        while not position.fetched:
            if position.next >= log.ends(self._isolation):
                if self._tells_end:
                    self._tell(tp, position, KafkaError._PARTITION_EOF)
                return
            self._say(
                f"Fetch topic {tp[0]} [{tp[1]}] at offset {position.next} (leader epoch -1, "
                f"current leader epoch {log.epoch}, v{position.version})"
            )
            found: list[tuple[Batch, Entry]] = []
            batches = 0
            end = position.next
            for batch in log.batches:
                if batch.end <= position.next:
                    continue
                if batches and (batches + 1) * 500 > self._fetch_bytes:
                    break
                batches += 1
                found += [
                    (batch, entry)
                    for entry in batch.entries
                    if position.next <= entry.offset < log.ends(self._isolation)
                ]
                end = batch.end
            markers = sum(entry.is_marker for _, entry in found)
            position.fetched = [
                Message(tp, batch, entry)
                for batch, entry in found
                if not entry.is_marker
                and (self._isolation == "read_uncommitted" or entry.is_committed)
            ]
            position.next = max(end, position.next + 1)
            last = found[-1][1].offset if found else -1
            self._say(
                f"Enqueue {len(found)} message(s) (24 bytes, {len(found)} ops) on {tp[0]} "
                f"[{tp[1]}] fetch queue (qlen 1, v{position.version}, last_offset {last}, "
                f"{markers} ctrl msgs, 0 aborted msgsets, uncompressed)"
            )

    def _tell(self, tp: tuple[str, int], position: _Position, code: int) -> None:
        if not position.is_told:
            position.is_told = True
            position.fetched.append(Message(tp, code=code, at=position.next))

    def _say(self, line: str) -> None:
        if self._logger is not None:
            self._logger.debug("%s", line)

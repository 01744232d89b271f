"""The progress of shards, kept in Kafka as committed offsets of groups that have no members.

Each is committed in the transaction that sends the records (KIP-98), so that both count or neither.
The committed offset is the source offset to continue from. The metadata, less than 1 KiB, holds the
plan's hash and the number of records sent, across all shards of a chain, which share one progress.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.errors import ProgressError
from kafka_drain.kafka.client_config import for_client
from kafka_drain.kafka.error_codes import UNAVAILABLE
from kafka_drain.republish.planning.shards import ProgressSlot
from kafka_drain.republish.sending.send_errors import explained, is_terminal

TIMEOUT_SECONDS = 60.0

#: Maximum number of groups connected at a time; each takes about five open files. (AdminClient
#: could ask for all of them, but librdkafka 2.16 crashes when a coordinator is still loading its
#: groups.)
MAX_CONSUMERS = 16


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """The progress of a shard.

    Attributes:
        offset: The source offset to continue from.
        records: Number of records sent.
        plan: Hash of the plan that they belong to.
    """

    offset: int
    records: int
    plan: str

    def metadata(self) -> str:
        """Return the metadata of the committed offset."""
        return json.dumps({"plan": self.plan, "records": self.records}, separators=(",", ":"))


def entry(slot: ProgressSlot, progress: ShardProgress) -> KafkaTopicPartition:
    """Return a progress as the offset to commit."""
    return KafkaTopicPartition(
        slot.tp.topic, slot.tp.partition, progress.offset, progress.metadata()
    )


class ProgressStore:
    """Reads progress. One unsubscribed consumer per group is enough; it never joins the group.

    The most recently used consumers stay connected.

    Args:
        settings: librdkafka settings for the target cluster.
        waits: Whether reads wait while a transaction that includes an offset is being decided
            (KIP-447). Without waiting, reads only report how far a run has got and must not be used
            to decide what to send.
    """

    def __init__(self, settings: Mapping[str, Any], *, waits: bool = True) -> None:
        self._settings = dict(settings)
        self._isolation = "read_committed" if waits else "read_uncommitted"
        self._consumers: dict[str, Consumer] = {}
        self._metadata: dict[str, Any] = {}

    def close(self) -> None:
        """Close the connections."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers = {}

    def group_metadata(self, group: str) -> Any:
        """Return the metadata of a group without members, for `send_offsets_to_transaction`."""
        if group not in self._metadata:
            # No brokers needed: for a group without members, the name is all the metadata.
            consumer = Consumer({"group.id": group, "log_level": 2})
            self._metadata[group] = consumer.consumer_group_metadata()
            consumer.close()
        return self._metadata[group]

    def read(
        self, slots: Iterable[ProgressSlot], timeout: float = TIMEOUT_SECONDS
    ) -> dict[ProgressSlot, ShardProgress | None]:
        """Read the committed progress; None where none is committed.

        Raises:
            ProgressError: When a committed offset isn't a republish's progress.
            AuthorizationError: When reading the group isn't allowed.
            KafkaUnavailableError: When Kafka doesn't answer in time.
        """
        found: dict[ProgressSlot, ShardProgress | None] = {}
        by_group: dict[str, list[ProgressSlot]] = {}
        for slot in dict.fromkeys(slots):
            by_group.setdefault(slot.group, []).append(slot)
        for group, members in by_group.items():
            asked = [KafkaTopicPartition(s.tp.topic, s.tp.partition) for s in members]
            answers = self._committed(group, asked, timeout)
            for slot, answer in zip(members, answers, strict=True):
                found[slot] = _parse(slot, answer)
        return found

    def _committed(
        self, group: str, asked: Collection[KafkaTopicPartition], timeout: float
    ) -> list[KafkaTopicPartition]:
        deadline = time.monotonic() + timeout
        while True:
            try:
                answers: list[KafkaTopicPartition] = self._consumer(group).committed(
                    list(asked), timeout=min(5.0, timeout)
                )
                failed = next((a.error for a in answers if a.error), None)
                if failed is None:
                    return answers
                raise KafkaException(failed)
            except KafkaException as error:
                found = self._refusal(group) or error.args[0]
                if found.code() not in UNAVAILABLE or time.monotonic() >= deadline:
                    raise explained(found, f"the progress in group {group}") from error
            time.sleep(0.1)

    def _refusal(self, group: str) -> KafkaError | None:
        """Return why the coordinator can't be found; `committed` itself only reports a timeout."""
        message = self._consumer(group).poll(0)
        error = message.error() if message is not None else None
        return error if error is not None and is_terminal(error) else None

    def _consumer(self, group: str) -> Consumer:
        consumer = self._consumers.pop(group, None)
        if consumer is None:
            while len(self._consumers) >= MAX_CONSUMERS:
                oldest = next(iter(self._consumers))
                self._consumers.pop(oldest).close()
            own = {
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": self._isolation,
                "log_level": 2,
            }
            consumer = Consumer(for_client(self._settings, own))
        # The dict is ordered: the most recently used consumer comes last.
        self._consumers[group] = consumer
        return consumer


def _parse(slot: ProgressSlot, answer: KafkaTopicPartition) -> ShardProgress | None:
    if answer.offset < 0:
        return None
    try:
        metadata = json.loads(answer.metadata or "")
        return ShardProgress(answer.offset, int(metadata["records"]), str(metadata["plan"]))
    except (TypeError, ValueError, KeyError) as error:
        raise ProgressError(
            f"group {slot.group} holds offset {answer.offset} of {slot.tp} with metadata "
            f"{answer.metadata!r}, expected a republish's progress; another client commits to this "
            "group. Nothing more was sent; start a new run into an empty topic"
        ) from error

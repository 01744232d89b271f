"""How large records are, and how well they compress: by responses from a few places of a log.

librdkafka logs the size of each response (`debug=msg`), and how many bytes of keys and values it
unpacked from it (`debug=fetch`), before it hands over the response's records.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer

from kafka_drain.errors import SourceRecordError
from kafka_drain.kafka.client_config import KafkaConfig, for_client
from kafka_drain.kafka.fetch_account import SETTINGS as TOLD
from kafka_drain.kafka.message_headers import header_bytes
from kafka_drain.kafka.single_records import SETTINGS, next_messages
from kafka_drain.offsets import TopicPartition

_SIZE = re.compile(r"Topic (?P<topic>\S+) \[(?P<partition>\d+)\] MessageSet size (?P<size>\d+),")
_UNPACKED = re.compile(
    r"Enqueue (?P<records>\d+) message\(s\) \((?P<bytes>\d+) bytes, .* on (?P<topic>\S+) "
    r"\[(?P<partition>\d+)\] fetch queue"
)


@dataclass(frozen=True, slots=True)
class FetchSample:
    """A response from one place of a partition.

    Attributes:
        tp: The partition.
        fetched: The response's size in bytes, as it was sent.
        records: Number of its records.
        unpacked: Number of bytes of their keys, values and headers.
    """

    tp: TopicPartition
    fetched: int
    records: int
    unpacked: int


class SampleLines(logging.Handler):
    """Reads sizes from a client's lines; `logger` is the client's."""

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        # Not of the process's tree: nobody is to print what a client logs for debugging.
        self.logger = logging.Logger(__name__)
        self.logger.addHandler(self)
        self._fetched: dict[TopicPartition, int] = {}
        self._samples: dict[TopicPartition, FetchSample] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line of librdkafka."""
        line = record.getMessage()
        if sent := _SIZE.search(line):
            tp = TopicPartition(sent["topic"], int(sent["partition"]))
            self._fetched[tp] = int(sent["size"])
        elif got := _UNPACKED.search(line):
            tp = TopicPartition(got["topic"], int(got["partition"]))
            fetched, records = self._fetched.pop(tp, 0), int(got["records"])
            if fetched and records:
                self._samples.setdefault(tp, FetchSample(tp, fetched, records, int(got["bytes"])))

    def take(self, tp: TopicPartition, headers: int) -> FetchSample | None:
        """Return the first response of a partition with records since the last call.

        Args:
            tp: The partition.
            headers: Number of bytes of a record's headers, which the client doesn't count.
        """
        found = self._samples.pop(tp, None)
        if found is None:
            return None
        unpacked = found.unpacked + found.records * headers
        return FetchSample(tp, found.fetched, found.records, unpacked)


def sample_fetches(
    config: KafkaConfig, places: Iterable[Mapping[TopicPartition, int]]
) -> list[FetchSample]:
    """Return a response from each of some places, where Kafka has records.

    Args:
        config: Connection settings.
        places: Offsets, of each partition one at a time.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    lines = SampleLines()
    own = {**SETTINGS, **TOLD, "debug": f"{TOLD['debug']},msg", "logger": lines.logger}
    found: list[FetchSample | None] = []
    with closing(Consumer(for_client(config.for_librdkafka(), own))) as consumer:
        for offsets in places:
            try:
                for tp, message in next_messages(consumer, offsets, 1):
                    found.append(lines.take(tp, header_bytes(message)))
            except SourceRecordError:
                # Whoever reads it all comes to it, and says what to do.
                continue
    return [sample for sample in found if sample is not None]

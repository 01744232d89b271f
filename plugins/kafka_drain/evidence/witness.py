"""A witness: an append-only file, or a topic of Kafka, outside of the archive."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kafka_drain.errors import ConfigError, DeliveryError, EvidenceError
from kafka_drain.kafka.client_config import for_client
from kafka_drain.offsets import NO_END, OffsetRange, TopicPartition

if TYPE_CHECKING:
    from kafka_drain.kafka.cluster import KafkaCluster

#: Begins the name of a witness that is a topic.
TOPIC = "kafka:"

#: Takes the lines so far; returns the line to append, or None.
NextLine = Callable[[list[bytes]], bytes | None]


class Witness(Protocol):
    """Where lines are appended, and never changed."""

    @property
    def name(self) -> str:
        """The file or topic, for display."""

    def lines(self) -> list[bytes]:
        """Return all lines, oldest first.

        Raises:
            EvidenceError: When it can't be read.
        """

    def append(self, next_line: NextLine) -> bool:
        """Append a line; return False if there was none."""


class WitnessFile:
    """A file with a line for each change of the archive.

    Args:
        path: The file; created with its first line, but not its folder.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    @property
    def name(self) -> str:
        """The file."""
        return str(self._path)

    def lines(self) -> list[bytes]:
        """Return all lines; none if the file doesn't exist.

        Raises:
            EvidenceError: When it can't be read.
        """
        try:
            return self._path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise EvidenceError(f"witness {self._path} can't be read: {error.strerror}") from error

    def append(self, next_line: NextLine) -> bool:
        """Append a line, which survives a power cut; return False if there was none.

        Raises:
            EvidenceError: When the file can't be written.
        """
        try:
            with self._opened() as file:
                lines = self.lines()
                line = next_line(lines)
                if line is None:
                    return False
                # A killed run may have left half a line; it stays, as nothing is ever removed.
                torn = b"\n" if lines and not lines[-1].endswith(b"\n") else b""
                content = memoryview(torn + line)
                while content:
                    # A disk that fills up takes a part, and only then refuses the rest.
                    content = content[os.write(file, content) :]
                os.fsync(file)
                return True
        except OSError as error:
            raise EvidenceError(
                f"witness {self._path} can't be written: {error.strerror}; its folder must exist, "
                "and this user must be able to append to the file"
            ) from error

    @contextmanager
    def _opened(self) -> Iterator[int]:
        # Created by the first validation, which must not be a surprise to others: 0644.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


class WitnessTopic:
    """A topic of Kafka, whose partition 0 has a record for each change of the archive.

    Args:
        cluster: Its cluster, preferably another one than the archive's source.
        topic: The topic, which must keep its records forever.
    """

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._cluster = cluster
        self._tp = TopicPartition(topic, 0)

    @property
    def name(self) -> str:
        """The topic."""
        return f"{TOPIC}{self._tp.topic}"

    def lines(self) -> list[bytes]:
        """Return all lines.

        Raises:
            TopicError: When the topic doesn't exist.
            KafkaUnavailableError: When Kafka doesn't respond.
        """
        self._cluster.topics([self._tp.topic], ("READ", "DESCRIBE"))
        span = OffsetRange(0, NO_END)
        return [
            value
            for batch in self._cluster.records(self._tp, span, "read_committed")
            for value in batch["value"].to_pylist()
            if value is not None
        ]

    def append(self, next_line: NextLine) -> bool:
        """Append a line, which all in-sync replicas have acknowledged; False if there was none.

        Of two validations at the same moment, both may follow the same line; that is accepted.

        Raises:
            DeliveryError: When Kafka didn't acknowledge it.
        """
        line = next_line(self.lines())
        if line is None:
            return False
        # Not at the top: most witnesses are files.
        from confluent_kafka import Producer

        failed: list[Any] = []
        settings = {"enable.idempotence": True, "message.timeout.ms": 30_000, "log_level": 2}
        producer = Producer(for_client(self._cluster.config.for_librdkafka(), settings))
        producer.produce(
            self._tp.topic,
            line,
            partition=self._tp.partition,
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
        if producer.flush(60) or failed:
            why = failed[0].str() if failed else "no response"
            raise DeliveryError(f"Kafka didn't take the line of witness {self.name}: {why}")
        return True


def open_witness(name: str, cluster: Callable[[], KafkaCluster]) -> Witness:
    """Return a witness by its name.

    Args:
        name: The absolute path of a file, or `kafka:` and a topic.
        cluster: Returns the cluster that a topic is in; called only for a topic.

    Raises:
        ConfigError: When it is neither.
    """
    if name.startswith(TOPIC) and len(name) > len(TOPIC):
        return WitnessTopic(cluster(), name.removeprefix(TOPIC))
    if name.startswith("/"):
        return WitnessFile(name)
    raise ConfigError(
        f"witness = {name!r} is not acceptable; accepted: the absolute path of a file outside the "
        f"archive, or {TOPIC} and the name of a topic"
    )

"""Every error that kafka-drain raises on purpose.

    KafkaDrainError
    ├── TerminalError                 a retry can't help: something has to be changed first
    │   ├── ConfigError               a pipeline, option or argument is not acceptable
    │   ├── MachineError              Java, Python or a jar that has to be there is not
    │   ├── ArchiveError              the folder isn't an archive, is another's, or can't be written
    │   ├── CheckpointError           checkpoint, manifest and generation contradict each other
    │   ├── TopicError                a topic is missing, was made again, or can't take the records
    │   ├── DataLossError             Kafka no longer holds offsets that the drain still needs
    │   ├── ManifestInvalidError      validation found damage in an archive
    │   ├── DataFileError             a data file can't be read
    │   └── SourceRecordError         a row of a data file can't be sent to Kafka
    └── TransientError                the same call may succeed later
        ├── KafkaUnavailableError     the brokers don't answer
        ├── LockedError               another drain holds the archive's lease
        ├── SparkJobError             spark-submit ended with an error that has no other name here
        └── DeliveryError             Kafka didn't acknowledge every record that was sent

A message says what was seen, what was expected and what to do. All classes take the message
alone, so that they survive pickling between Airflow's processes.
"""

from __future__ import annotations

__all__ = [
    "ArchiveError",
    "CheckpointError",
    "ConfigError",
    "DataFileError",
    "DataLossError",
    "DeliveryError",
    "KafkaDrainError",
    "KafkaUnavailableError",
    "LockedError",
    "MachineError",
    "ManifestInvalidError",
    "SourceRecordError",
    "SparkJobError",
    "TerminalError",
    "TopicError",
    "TransientError",
]


class KafkaDrainError(Exception):
    """Raised when kafka-drain refuses or fails; the message is meant for people."""


class TerminalError(KafkaDrainError):
    """Raised when a retry can't help."""


class TransientError(KafkaDrainError):
    """Raised when the same call may succeed later."""


class ConfigError(TerminalError):
    """Raised when a pipeline, an option or an argument is not acceptable."""


class MachineError(TerminalError):
    """Raised when Java, Python or a jar that has to be on the machine is missing."""


class ArchiveError(TerminalError):
    """Raised when a folder isn't an archive, belongs to another pipeline, or can't be written."""


class CheckpointError(TerminalError):
    """Raised when checkpoint, manifest and generation contradict each other."""


class TopicError(TerminalError):
    """Raised when a topic is missing, was made again, or can't take the records."""


class DataLossError(TerminalError):
    """Raised when Kafka no longer holds offsets that the drain still needs."""


class ManifestInvalidError(TerminalError):
    """Raised when validation found damage in an archive."""


class DataFileError(TerminalError):
    """Raised when a data file can't be read; the message says what is wrong with it."""


class SourceRecordError(TerminalError):
    """Raised when a row of a data file can't be sent to Kafka."""


class KafkaUnavailableError(TransientError):
    """Raised when the Kafka brokers don't answer."""


class LockedError(TransientError):
    """Raised when another drain holds the archive's lease; the message says which one."""


class SparkJobError(TransientError):
    """Raised when spark-submit ended with an error that has no other name here."""


class DeliveryError(TransientError):
    """Raised when Kafka didn't acknowledge every record that was sent."""
